//! An edit finds the frames that are already in the capture ring: none of them is missed, none is delivered twice.
//!
//! Needs namespaces, as root or as a user; prints a skip if they are refused.

use fyke_capture::{RingOptions, RingSource};
use fyke_graph::node::{Class, Kind};
use fyke_graph::runtime::NodeCounts;
use fyke_graph::{Classes, GraphHandle, Made};
use fyke_lab::net::{CLIENTS_DEVICE, World, WorldError, client_address};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of frames sent before a filter accepts them.
const EARLY: u64 = 3_000;
const PORT: u16 = 7_000;

/// Returns the filter's counts, and the number of frames that left it.
fn counts_of(look_back: &str, world: &World) -> (NodeCounts, u64) {
    let text =
        format!("(wire) > {{f}}(filter, \"udp dst port 1\"{look_back}) > {{n}}(packetcount)");
    let sender = world.servers.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let send = |count: u64, port: u16| {
        for number in 0..count {
            sender.send_to(&number.to_be_bytes(), (client_address(0), port)).unwrap();
        }
    };
    let ring = world.clients.inside(|| {
        let interface = Some(CLIENTS_DEVICE.to_owned());
        RingSource::open(RingOptions { interface, timeout_ms: 20, ..RingOptions::default() })
    });
    let ring = ring.unwrap().unwrap();
    let mut classes = Classes::new();
    classes.register(Class { name: "wire", kind: Kind::Source, ..Class::NODE });
    let given = vec![("wire", Made::Source(Box::new(ring)))];
    let (mut engine, handle) = GraphHandle::start_with(&[&text], classes, given).unwrap();
    let filters = engine.filters("f").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let capture = std::thread::spawn(move || {
        engine.run(&stopped).unwrap();
        engine.view()
    });
    let wait_for = |arrived: u64| {
        let end = Instant::now() + Duration::from_secs(20);
        while handle.view().node("f").is_none_or(|node| node.counts.arrived < arrived) {
            assert!(Instant::now() < end, "the frames do not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        handle.view().node("f").map_or(0, |node| node.counts.arrived)
    };
    send(EARLY, PORT);
    let arrived = wait_for(EARLY);
    filters.add(&format!("udp dst port {PORT}")).unwrap();
    send(1, 9);
    wait_for(arrived + 1);
    stop.store(true, Ordering::Relaxed);
    let view = capture.join().unwrap();
    let (filter, behind) = (view.node("f").unwrap(), view.node("n").unwrap());
    assert!(filter.counts.is_exact() && filter.failed.is_none(), "{filter:?}");
    (filter.counts, behind.counts.arrived)
}

#[test]
fn an_edit_finds_what_the_ring_still_holds() {
    let world = match World::create(1, 1) {
        Ok(world) => world,
        Err(refused @ WorldError::Refused { .. }) => return eprintln!("skipped: {refused}"),
        Err(error) => panic!("{error}"),
    };
    let (counts, behind) = counts_of(", lookback=y", &world);
    assert_eq!((counts.late, counts.passed, behind), (EARLY, EARLY, EARLY), "{counts:?}");
    let (counts, behind) = counts_of("", &world);
    assert_eq!((counts.late, counts.passed, behind), (0, 0, 0), "without look-back");
}
