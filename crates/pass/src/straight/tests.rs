//! What the short way judges itself, and what it leaves to the long way: texts that people use, frame after frame.

use super::*;
use crate::plan::Sharing;
use crate::{Level, PassSet};
use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;

/// The frames that the plan of a text accepts the short way and those that it leaves, at every level.
fn judged(text: &str, frames: &[Vec<u8>]) -> (Vec<usize>, Vec<usize>) {
    let predicate = compile(text, &Options::default()).expect("a right text");
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_filter(&predicate).expect("room");
    edit.commit();
    let snapshot = set.reader().snapshot();
    let plan = snapshot.plan(Sharing::All);
    let straight = plan.straight.as_ref().unwrap_or_else(|| panic!("{text} has a short way"));
    let mut batch = Batch::new();
    for data in frames {
        batch.push(Frame::new(LinkType::EN10MB, data)).expect("room");
    }
    let mut results = Level::all().into_iter().map(|level| {
        let mut columns = crate::columns::Columns::default();
        columns.fit(plan);
        let mut found = vec![Mask::EMPTY; plan.passes.len()];
        let (within, quads) = (batch.all(), columns.quads());
        let mut states = States::default();
        let job = Job {
            plan,
            straight,
            batch: &batch,
            within,
            quads,
            found: &mut found,
            states: &mut states,
        };
        crate::arch::Vectors::straight(level, job);
        let accepted = found.iter().fold(Mask::EMPTY, |all, &some| all | some);
        (accepted.iter().collect(), states.left().iter().collect())
    });
    let first = results.next().expect("a level");
    assert!(results.all(|result| result == first), "{text}");
    first
}

fn tcp() -> Packet {
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(22, 40_000)
}

/// A TCP segment of 54 bytes is shorter than the places where an IPv6 packet has its ports.
#[test]
fn short_frames_stay_unless_the_order_of_the_text_matters() {
    let frames = [
        tcp().build(),
        Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(22, 22).build(),
        tcp().build()[..37].to_vec(),
        Packet::ethernet().ipv6(1, 2).tcp(22, 40_000).build(),
        Packet::ethernet().ipv6(1, 2).tcp(22, 40_000).build()[..56].to_vec(),
    ];
    assert!(frames[0].len() < 58);
    assert_eq!(judged("tcp port 22", &frames), (vec![0, 3], vec![2, 4]));
    // Only IPv4 packets have to reach behind their header.
    let text = "tcp[12] & 0xf0 = 0x50 or arp";
    let arp = [Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build()];
    assert_eq!(judged(text, &arp), (vec![0], vec![]));
    assert_eq!(judged(text, &frames), (vec![0], vec![1, 2]));
}
