//! Frames that the fused tier judges, and frames that it leaves to columns, for usual texts.

use super::*;
use crate::judge::inner::InnerReader;
use crate::plan::Sharing;
use crate::{Level, PassSet};
use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::packet::Packet;

/// The frames that the plan of a text accepts in the fused tier and those that it leaves, at every level.
fn judged(text: &str, frames: &[Vec<u8>]) -> (Vec<usize>, Vec<usize>) {
    let predicate = compile(text, &Options::default()).expect("a right text");
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_filter(&predicate).expect("room");
    edit.commit();
    let snapshot = set.reader().snapshot();
    let plan = snapshot.plan(Sharing::All);
    let fused = plan.fused.as_ref().unwrap_or_else(|| panic!("{text} has a fused form"));
    let mut batch = Batch::new();
    for data in frames {
        batch.push(Frame::new(LinkType::EN10MB, data)).expect("room");
    }
    let mut results = Level::all().into_iter().map(|level| {
        let mut columns = crate::judge::columns::Columns::default();
        columns.fit(plan);
        let mut found = vec![Mask::EMPTY; plan.passes.len()];
        let (within, chunk_words) = (batch.all(), columns.chunk_words());
        let mut states = States::default();
        let job = FusedJob {
            plan,
            fused,
            batch: &batch,
            within,
            chunk_words,
            found: &mut found,
            states: &mut states,
            inner: &mut Vec::<InnerReader>::new(),
        };
        crate::judge::arch::Vectors::run(level, job);
        let accepted = found.iter().fold(Mask::EMPTY, |all, &some| all | some);
        (accepted.iter().collect(), states.left.iter().collect())
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
    // Only IPv4 packets must reach past their header.
    let text = "tcp[12] & 0xf0 = 0x50 or arp";
    let arp = [Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build()];
    assert_eq!(judged(text, &arp), (vec![0], vec![]));
    assert_eq!(judged(text, &frames), (vec![0], vec![1, 2]));
}

/// Computed values, and missing ones.
#[test]
fn computed_values_are_columns() {
    let payload = |bytes: &[u8]| tcp().payload(bytes).build();
    let options = tcp().tcp_options(&[1, 1, 1, 1]).payload(b"GET /").build();
    let ip_options = Packet::ethernet()
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .ip_options(&[1, 1, 1, 1])
        .tcp(22, 40_000)
        .payload(b"GET /")
        .build();
    let udp = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(22, 22).build();
    let frames = [payload(b"GET /"), payload(b"PUT /"), payload(b""), options, ip_options, udp];
    // Nothing is left: a segment without a payload is rejected, whatever the order of the text.
    for text in [
        "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
        "tcp[(tcp[12] >> 2):4] = 0x47455420",
        "tcp[(tcp[12] / 4):4] - 1 = 0x4745541f",
        "tcp[4 * (tcp[12] / 16):2] * 2 = 2 * 0x4745 and len > 54",
    ] {
        assert_eq!(judged(text, &frames), (vec![0, 3, 4], vec![]), "{text}");
    }
    // Here it depends on the order; "TCP only" is no guard, as TCP may be in either version of IP.
    let text = "tcp[(tcp[12] >> 2):4] = 0x47455420 or udp";
    assert_eq!(judged(text, &frames), (vec![0, 3, 4], vec![2, 5]));
    assert!(judged("ip[0] * ip[1] = 0 and ip[2:2] % 2 = 1", &frames).1.is_empty());
    assert_eq!(judged("ip[0] / ip[1] = 0", &frames), (vec![], vec![]));
    assert_eq!(
        judged("ip[8] > ip[9] and ip[9] + 1 < ip[8] - 1", &frames),
        (vec![0, 1, 2, 3, 4, 5], vec![])
    );
    assert_eq!(judged("greater 59", &frames).0, judged("len - 1 > 57", &frames).0);
}

/// IPv6 addresses at either end, and few of them.
#[test]
fn prefixes_are_runs_of_words() {
    let packet = |source: u128, destination: u128| {
        Packet::ethernet().ipv6(source, destination).udp(1, 2).build()
    };
    let frames = [packet(1, 2), packet(2, 1), packet(3, 1 << 100), packet(4, 5), tcp().build()];
    assert_eq!(judged("ip6 host ::1", &frames), (vec![0, 1], vec![]));
    assert_eq!(judged("ip6 host (::2 or ::3 or ::7)", &frames), (vec![0, 1, 2], vec![]));
    assert_eq!(judged("not ip6 src host ::3", &frames), (vec![0, 1, 3, 4], vec![]));
    assert_eq!(judged("ip6 net 0:10::/32", &frames), (vec![2], vec![]));
    let short = [packet(1, 2)[..44].to_vec(), packet(1, 2)[..54].to_vec()];
    assert_eq!(judged("ip6 src or dst host ::2 or arp", &short), (vec![1], vec![0]));
    assert_eq!(judged("ip6 src host ::1", &short), (vec![0, 1], vec![]));
    assert_eq!(judged("ip6 dst host ::2", &short), (vec![1], vec![]));
}
