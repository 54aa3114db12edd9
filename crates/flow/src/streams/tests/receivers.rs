//! Streams and packets as receivers read them: tables of segments and fragments with the contents that Linux 6.18 gave
//! to a program, and the same rules for other systems.

use super::*;
use crate::reassembly::{Limits as PacketLimits, Reassembler};
use fyke_frame::walk::view::tcp_flags::{PSH, URG};
use fyke_frame::{Frame, LinkType, walk};
use fyke_testkit::packet::Packet;

fn acknowledges(segment: Segment<'_>, number: u32) -> Segment<'_> {
    Segment { flags: segment.flags | ACK, acknowledged: Some(number), ..segment }
}

/// A segment from the client of an established connection: offset of its first byte, bytes, flags, and the distance of
/// its acknowledgement from the right one.
type Sent = (i64, &'static [u8], u8, Option<i64>);

/// The segments of a connection: a handshake, and then those of the client.
fn established<'a>(sent: &[(i64, &'a [u8], u8, Option<i64>)]) -> Vec<Segment<'a>> {
    let mut all = vec![
        segment(1_000, SYN, b""),
        acknowledges(back(5_000, SYN, b""), 1_001),
        acknowledges(segment(1_001, 0, b""), 5_001),
    ];
    for &(offset, bytes, flags, acknowledged) in sent {
        let acknowledged = acknowledged.map(|far| 5_001_u32.wrapping_add(far as u32));
        let one = segment(1_001_u32.wrapping_add(offset as u32), flags, bytes);
        all.push(Segment { acknowledged, ..one });
    }
    all
}

/// Segments that receivers refuse: the contents that Linux 6.18 reads, as measured with a socket of it.
#[test]
fn refused_segments_are_not_read() {
    const PUSHED: u8 = ACK | PSH;
    const FIRST: Sent = (0, b"SECRET", PUSHED, Some(0));
    const WORD: Sent = (6, b"WORD", PUSHED, Some(0));
    let all = &Policy::ALL[..];
    let exact = &[Policy::First, Policy::Linux, Policy::Bsd, Policy::Windows][..];
    let cases: [(&str, Sent, &[Policy], &str); 18] = [
        ("no decoy", (0, b"", ACK, Some(0)), all, "SECRETWORD"),
        ("reset beyond", (8, b"", RST, None), exact, "SECRETWORD"),
        ("reset beyond, with ACK", (8, b"", RST | ACK, Some(0)), exact, "SECRETWORD"),
        ("reset beyond", (8, b"", RST, None), &[Policy::OldLinux, Policy::Hpux11], "SECRET."),
        ("reset", (6, b"", RST, None), all, "SECRET."),
        ("reset, another ACK", (6, b"", RST | ACK, Some(90_000)), all, "SECRET."),
        ("reset before", (5, b"", RST, None), all, "SECRETWORD"),
        ("reset with bytes", (6, b"xx", RST | ACK, Some(0)), all, "SECRET."),
        ("all flags", (6, b"xxxx", SYN | FIN | RST | PUSHED | URG, Some(0)), all, "SECRET."),
        ("SYN", (700_000, b"", SYN, None), all, "SECRETWORD"),
        ("SYN in the window", (10, b"", SYN, None), all, "SECRETWORD"),
        ("SYN+ACK", (6, b"", SYN | ACK, Some(0)), all, "SECRETWORD"),
        ("SYN+ACK with bytes", (6, b"xxxx", SYN | ACK, Some(0)), all, "SECRETWORD"),
        ("no flags", (6, b"xxxx", 0, None), all, "SECRETWORD"),
        ("PSH alone", (6, b"xxxx", PSH, None), all, "SECRETWORD"),
        ("FIN alone", (6, b"xxxx", FIN, None), all, "SECRETWORD"),
        ("old ACK", (6, b"xxxx", PUSHED, Some(-2_000_000)), all, "SECRETxxxx"),
        ("ACK of bytes never sent", (6, b"xxxx", PUSHED, Some(500_000)), all, "SECRETWORD"),
    ];
    for (name, decoy, policies, expected) in cases {
        for &policy in policies {
            let (seen, streams) = run(policy, &established(&[FIRST, decoy, WORD]));
            assert_eq!(seen.of(1, true), expected, "{name}, {policy:?}");
            assert_eq!(streams.counters().connections, 1, "{name}, {policy:?}");
        }
    }
}

/// The capture may lack what a segment acknowledges: its bytes count as soon as the receiver has them.
#[test]
fn doubtful_bytes_count_if_the_receiver_has_them() {
    let doubtful = (6, &b"WORD"[..], ACK, Some(500));
    let mut all = established(&[(0, b"SECRET", ACK, Some(0)), doubtful]);
    let (seen, mut streams) = run(Policy::First, &all);
    assert_eq!(seen.of(1, true), "SECRET");
    assert!(streams.held_bytes() > 0);
    let mut rest = Seen::default();
    streams.finish(&mut |_, piece| rest.add(piece));
    assert_eq!((rest.of(1, true), streams.held_bytes()), ("WORD.", 0));
    all.push(acknowledges(back(5_501, 0, b""), 1_011));
    let (seen, streams) = run(Policy::First, &all);
    assert_eq!((seen.of(1, true), streams.held_bytes()), ("SECRETWORD", 0));
    // Afterwards nothing is doubtful: the number of that segment tells what was sent.
    all.push(acknowledges(segment(1_011, 0, b"next"), 5_501));
    let (seen, streams) = run(Policy::First, &all);
    assert_eq!((seen.of(1, true), streams.counters().doubtful), ("SECRETWORDnext", 1));
    // Without any, the longest wait ends the doubt.
    let (mut seen, mut streams) = run(Policy::First, &all[..5]);
    streams.expire(60 * SECOND, &mut |piece| seen.add(piece));
    assert_eq!(seen.of(1, true), "SECRETWORD");
    // The end of a direction can be doubtful too.
    let fin = (6, &b"WORD"[..], ACK | FIN, Some(500));
    let mut all = established(&[(0, b"SECRET", ACK, Some(0)), fin]);
    all.push(acknowledges(back(5_501, 0, b""), 1_012));
    assert_eq!(run(Policy::First, &all).0.of(1, true), "SECRETWORD.");
}

#[test]
fn a_new_connection_of_known_ends_needs_an_answer() {
    let mut all = established(&[(0, b"old", ACK, Some(0))]);
    all.push(segment(70_000_000, SYN, b""));
    let (seen, _) = run(Policy::First, &[&all[..], &[segment(1_004, ACK, b"er")]].concat());
    assert_eq!(seen.of(1, true), "older");
    // The answer to another SYN changes nothing.
    for (number, expected) in [(70_000_001, ["old.", "new"]), (5, ["old", ""])] {
        let answer = acknowledges(back(9_000, SYN, b""), number);
        let new = acknowledges(segment(70_000_001, 0, b"new"), 9_001);
        let (seen, streams) = run(Policy::First, &[&all[..], &[answer, new]].concat());
        assert_eq!([seen.of(1, true), seen.of(2, true)], expected, "{number}");
        assert_eq!(streams.counters().connections, if expected[1].is_empty() { 1 } else { 2 });
    }
}

/// After a gap of any size the stream continues as soon as the receiver acknowledges bytes after it.
#[test]
fn streams_continue_after_large_gaps() {
    for gap in [1_u64 << 20, 1 << 26, 1 << 28, 1 << 30, (1 << 31) - 5, (1 << 31) + 5, 3 << 30] {
        let after = 1_006_u32.wrapping_add(gap as u32);
        let mut all = established(&[(0, b"first", ACK, Some(0))]);
        all.push(acknowledges(back(5_001, 0, b""), 1_006));
        for number in 0..3 {
            let start = after.wrapping_add(4 * number);
            all.push(acknowledges(segment(start, 0, b"next"), 5_001));
            all.push(acknowledges(back(5_001, 0, b""), start.wrapping_add(4)));
        }
        let (seen, streams) = run(Policy::First, &all);
        // Of a larger one the size is unknown.
        let gap = if gap > i32::MAX as u64 { 1 } else { gap };
        assert_eq!(seen.of(1, true), format!("first#{gap}#nextnextnext"));
        let counters = streams.counters();
        assert_eq!((counters.gaps, counters.missing_bytes), (1, gap));
        assert_eq!(streams.held_bytes(), 0);
        // The acknowledgement may be captured before the bytes; without one there is no gap.
        let bytes = segment(after, ACK, b"next");
        let answer = acknowledges(back(5_001, 0, b""), after.wrapping_add(4));
        let (seen, _) = run(Policy::First, &[&all[..5], &[answer, bytes]].concat());
        assert_eq!(seen.of(1, true), format!("first#{gap}#next"));
        let next = segment(1_006, ACK, b"!");
        let (seen, _) = run(Policy::First, &[&all[..5], &[bytes, next]].concat());
        assert_eq!(seen.of(1, true), "first!");
    }
}

/// A keep-alive repeats the byte before the next one, also if that was not captured.
#[test]
fn keep_alives_are_no_content() {
    let keep_alive = segment(0, ACK, b"\0");
    assert_eq!(forward(&[keep_alive, segment(1, ACK, b"DATA")]), "DATA");
    assert_eq!(forward(&[segment(0, ACK | PSH, b"\0"), segment(1, ACK, b"DATA")]), "\0DATA");
    assert_eq!(forward(&[segment(0, ACK, b"a"), segment(1, ACK, b"b")]), "ab");
    assert_eq!(forward(&[segment(0, SYN, b""), keep_alive, segment(1, ACK, b"DATA")]), "DATA");
}

/// Bytes after the end of a direction are not those that were received again.
#[test]
fn bytes_after_the_end_are_dropped() {
    let start = [segment(0, SYN, b""), segment(1, FIN | ACK, b"end")];
    let after = segment(2, ACK, b"nd, more");
    let (seen, streams) = run(Policy::First, &[&start[..], &[after]].concat());
    let counters = streams.counters();
    assert_eq!(seen.of(1, true), "end.");
    assert_eq!((counters.repeated_bytes, counters.dropped_bytes), (2, 6));
}

/// A fragment; `from` in bytes.
fn part(six: bool, from: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let (ether, at) = (Packet::ethernet(), from as u16);
    let ip = match six {
        true => ether.ipv6([0x20; 16], [0x21; 16]).fragment6(1, at, more),
        false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, at, more),
    };
    ip.ip_payload(17, payload).build()
}

/// Puts fragments together; returns the payloads of the packets.
fn packets(tracker: &mut Reassembler, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for data in frames {
        let frame = Frame::new(LinkType::EN10MB, data);
        if let Some(whole) = tracker.add(&frame, &walk(&frame)) {
            let ip = walk(&whole).innermost_level().and_then(|level| level.ipv4());
            let header = if ip.is_some() { 20 } else { 40 };
            all.push(whole.data[header..].to_vec());
        }
    }
    all
}

/// Fragments of one packet, in bytes, with its text or another one: what Linux 6.18 reads of it.
#[test]
fn overlaps_are_decided_as_linux_does() {
    let (text, other) = ([b'O'; 48], [b'n'; 48]);
    type Order<'a> = &'a [(usize, usize, bool)];
    let cases: [(&str, Order<'_>, bool); 11] = [
        ("no overlap", &[(0, 24, false), (24, 48, false)], true),
        ("same again", &[(0, 24, false), (24, 40, false), (24, 40, false), (40, 48, false)], true),
        ("other again", &[(0, 24, false), (24, 40, false), (24, 40, true), (40, 48, false)], true),
        ("end overlaps", &[(0, 32, false), (24, 40, true), (40, 48, false)], false),
        ("start overlaps", &[(32, 48, false), (24, 40, true), (0, 24, false)], false),
        ("covers", &[(32, 40, false), (24, 48, true), (0, 24, false)], false),
        ("inside", &[(24, 48, false), (32, 40, true), (0, 24, false)], true),
        ("inside, the same", &[(0, 40, false), (24, 32, false), (40, 48, false)], true),
        // Fragments that arrived in order are one run, others are not.
        ("over two", &[(0, 16, false), (16, 32, false), (8, 24, true), (32, 48, false)], true),
        ("over two", &[(16, 32, false), (0, 16, false), (8, 24, true), (32, 48, false)], false),
        ("another end", &[(0, 24, false), (40, 48, false), (24, 32, true), (24, 40, false)], false),
    ];
    for six in [false, true] {
        for (name, order, is_read) in cases {
            let ends_early = name == "another end";
            let frames: Vec<Vec<u8>> = order
                .iter()
                .map(|&(from, to, is_other)| {
                    let bytes = if is_other { &other } else { &text };
                    let more = to < 48 && !(ends_early && to == 32);
                    part(six, from, more, &bytes[from..to])
                })
                .collect();
            let mut tracker = Reassembler::new(PacketLimits::default(), Policy::Linux.into());
            let made = packets(&mut tracker, &frames);
            let expected: &[Vec<u8>] = if is_read { &[text.to_vec()] } else { &[] };
            assert_eq!(made, expected, "{name}, IPv6: {six}");
        }
    }
}
