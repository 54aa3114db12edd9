//! Prints the cost of a walk; asserts only that both frames are walked to the end, so it is cheap
//! enough for every run.

use fyke_frame::walk::{Layers, Stop, walk, walk_again};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::hint::black_box;
use std::time::Instant;

/// Cost of one call: the minimum of many rounds, because other programs run on the same processor.
fn least_ns(mut call: impl FnMut() -> bool) -> f64 {
    const CALLS: u32 = 10_000;
    let round = |_| {
        let start = Instant::now();
        assert!((0..CALLS).all(|_| call()));
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..30).map(round).fold(f64::INFINITY, f64::min)
}

#[test]
fn walk_cost() {
    let plain = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2);
    let tunnel = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).vxlan(7).ether();
    let tunnel = tunnel.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2);
    for (name, packet) in [("TCP", plain), ("TCP in VXLAN", tunnel)] {
        let bytes = packet.payload(&[7; 64]).build();
        let frame = Frame::new(LinkType::EN10MB, &bytes);
        assert_eq!(walk(&frame).stop(), Stop::Done);
        let anew = least_ns(|| black_box(walk(black_box(&frame)).ports()).is_some());
        let mut layers = Layers::new();
        let again = least_ns(|| {
            walk_again(black_box(&frame), &mut layers);
            black_box(layers.ports()).is_some()
        });
        println!("{name}: walk {anew:.1} ns, walk_again {again:.1} ns");
    }
}
