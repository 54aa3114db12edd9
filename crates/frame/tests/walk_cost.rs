//! Prints what a walk costs; asserts only that both frames are walked to the end, so it is cheap enough for every run.

use fyke_frame::walk::{Stop, walk};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;
use std::hint::black_box;
use std::time::Instant;

#[test]
fn walk_cost() {
    let plain = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2);
    let tunnel = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).vxlan(7).ether();
    let tunnel = tunnel.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2);
    for (name, packet) in [("TCP", plain), ("TCP in VXLAN", tunnel)] {
        let bytes = packet.payload(&[7; 64]).build();
        let frame = Frame::new(LinkType::EN10MB, &bytes);
        assert_eq!(walk(&frame).stop(), Stop::Done);
        let rounds = 200_000;
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(walk(black_box(&frame)).ports());
        }
        println!("{name}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(rounds));
    }
}
