//! Streams: order, losses, overlaps, ends, floods; each compared with the bytes that were sent.

mod receivers;

use super::*;
use fyke_frame::walk::view::tcp_flags::FIN;
use fyke_testkit::random::Random;

const SECOND: u64 = 1_000_000_000;

fn end(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Segment<'_> {
    let (source, destination) = (end(1000), end(80));
    let payload_len = payload.len() as u32;
    Segment { source, destination, sequence, acknowledged: None, flags, payload, payload_len }
}

fn back<'a>(sequence: u32, flags: u8, payload: &'a [u8]) -> Segment<'a> {
    let there = segment(sequence, flags, payload);
    Segment { source: there.destination, destination: there.source, ..there }
}

/// Output: the bytes of a direction, with `#` and the number of missing bytes at a gap, and `.` at
/// the end.
#[derive(Default)]
struct Seen(std::collections::BTreeMap<(u64, bool), String>);

impl Seen {
    fn add(&mut self, piece: Piece<'_>) {
        let text = self.0.entry((piece.connection, piece.forward)).or_default();
        assert!(!text.ends_with('.'), "after the end");
        if piece.missing > 0 {
            text.push_str(&format!("#{}#", piece.missing));
        }
        text.push_str(&String::from_utf8_lossy(piece.bytes));
        if piece.bytes.is_empty() {
            text.push('.');
        }
    }

    fn of(&self, connection: u64, forward: bool) -> &str {
        self.0.get(&(connection, forward)).map_or("", String::as_str)
    }
}

/// Runs segments a second apart; returns the output of one direction before the end, and the rest.
fn run(policy: Policy, segments: &[Segment<'_>]) -> (Seen, Streams) {
    let mut streams = Streams::new(Limits::default(), policy);
    let mut seen = Seen::default();
    for (segment, second) in segments.iter().zip(1..) {
        streams.segment(segment, second * SECOND, &mut |piece| seen.add(piece));
    }
    (seen, streams)
}

fn forward(segments: &[Segment<'_>]) -> String {
    run(Policy::First, segments).0.of(1, true).to_owned()
}

#[test]
fn a_refused_connection_may_begin_again_with_the_same_number() {
    let reset = Segment { flags: RST | ACK, ..back(0, 0, b"") };
    let (seen, streams) = run(
        Policy::First,
        &[segment(99, SYN, b""), reset, segment(99, SYN, b""), segment(100, ACK, b"hello")],
    );
    assert_eq!((seen.of(2, true), streams.counters().connections), ("hello", 2));
}

#[test]
fn segments_come_out_in_order_and_once() {
    for base in [0, 1000, u32::MAX - 3] {
        let at = |offset: u32| base.wrapping_add(1).wrapping_add(offset);
        let syn = segment(base, SYN, b"");
        let [one, two, three] =
            [segment(at(0), ACK, b"abc"), segment(at(3), ACK, b"def"), segment(at(6), ACK, b"ghi")];
        let fin = segment(at(9), FIN | ACK, b"");
        assert_eq!(forward(&[syn, one, two, three, fin]), "abcdefghi.");
        assert_eq!(forward(&[syn, three, fin, two, one]), "abcdefghi.");
        assert_eq!(forward(&[syn, two, one, one, two, three, three, fin, fin]), "abcdefghi.");
        let last = segment(at(5), FIN | ACK, b"fghi");
        assert_eq!(forward(&[syn, last, one, two]), "abcdefghi.");
        // Keep-alives, with and without a byte of rubbish.
        let alive = [segment(at(2), ACK, b""), segment(at(2), ACK, b"x")];
        assert_eq!(forward(&[syn, one, alive[0], alive[1], two, alive[0], three]), "abcdefghi");
    }
}

#[test]
fn both_directions_and_connections_are_kept_apart() {
    let (seen, streams) = run(
        Policy::First,
        &[
            segment(0, SYN, b""),
            back(700, SYN | ACK, b""),
            back(701, ACK, b"hello"),
            segment(1, ACK, b"hi"),
            segment(3, FIN | ACK, b""),
            back(706, FIN | ACK, b"!"),
            // The same ports again.
            segment(5000, SYN, b""),
            segment(5001, ACK, b"again"),
        ],
    );
    assert_eq!((seen.of(1, true), seen.of(1, false)), ("hi.", "hello!."));
    assert_eq!(seen.of(2, true), "again");
    let counters = streams.counters();
    assert_eq!((counters.connections, counters.midstream, counters.segments), (2, 0, 4));
}

#[test]
fn a_connection_may_be_picked_up_in_the_middle() {
    let (seen, streams) = run(
        Policy::First,
        &[back(900, ACK, b""), segment(50, ACK, b"bc"), segment(49, ACK, b"ab")],
    );
    assert_eq!(seen.of(1, true), "bc");
    assert_eq!(streams.counters().midstream, 1);
    // A SYN with ACK, but no earlier SYN: the other end was first.
    let (seen, _) = run(Policy::First, &[back(9, SYN | ACK, b""), segment(50, ACK, b"a")]);
    assert_eq!(seen.of(1, true), "a");
}

#[test]
fn a_gap_is_skipped_in_the_end_and_counted() {
    let gap = [segment(0, SYN, b""), segment(4, ACK, b"def"), segment(9, ACK, b"ij")];
    let (mut seen, mut streams) = run(Policy::First, &gap);
    assert_eq!(seen.of(1, true), "");
    assert!(streams.held_bytes() > 5);
    streams.expire(11 * SECOND, &mut |piece| seen.add(piece));
    assert_eq!(seen.of(1, true), "", "it is waited for");
    streams.expire(12 * SECOND + SECOND / 2, &mut |piece| seen.add(piece));
    assert_eq!(seen.of(1, true), "#3#def");
    streams.finish(&mut |_, piece| seen.add(piece));
    assert_eq!(seen.of(1, true), "#3#def#2#ij.");
    let counters = streams.counters();
    assert_eq!((counters.gaps, counters.missing_bytes, counters.delivered_bytes), (2, 5, 5));
    assert_eq!((streams.held_bytes(), streams.len()), (0, 0));
}

#[test]
fn what_the_capture_cut_off_is_missing() {
    let cut = Segment { payload_len: 5, ..segment(1, ACK, b"abc") };
    let after = segment(6, ACK, b"fg");
    assert_eq!(forward(&[segment(0, SYN, b""), cut, after]), "abc#2#fg");
}

#[test]
fn a_reset_ends_both_directions_where_it_is_believed() {
    let start = [segment(0, SYN, b""), back(9, SYN | ACK, b""), segment(1, ACK, b"ab")];
    for (sequence, policy, ends) in [
        (3, Policy::First, true),
        (4, Policy::First, false),
        (4, Policy::OldLinux, true),
        (4, Policy::Linux, false),
        (2, Policy::Linux, false),
    ] {
        let mut all = start.to_vec();
        all.extend([segment(8, ACK, b"late"), segment(sequence, RST, b"")]);
        all.push(segment(3, ACK, b"cd"));
        let (seen, streams) = run(policy, &all);
        let expected = if ends { ("ab#5#late.", ".") } else { ("abcd", "") };
        assert_eq!((seen.of(1, true), seen.of(1, false)), expected, "{sequence} {policy:?}");
        assert_eq!(streams.counters().dropped_bytes, 0);
    }
}

#[test]
fn blind_segments_far_away_change_nothing() {
    let far = [segment(1 << 30, ACK, b"evil"), segment(0xf000_0000, ACK, b"evil")];
    let (seen, streams) =
        run(Policy::First, &[segment(0, SYN, b""), far[0], far[1], segment(1, ACK, b"ab")]);
    assert_eq!((seen.of(1, true), streams.counters().outside), ("ab", 2));
}

/// Old bytes `OOOO` at 3 to 7 are held when new bytes `n` arrive; then the beginning arrives.
#[test]
fn overlaps_are_decided_as_the_receiver_does() {
    let cases: [(u32, &[u8], [&str; 6]); 6] = [
        // first, last, bsd, linux, windows, solaris
        (3, b"nnnn", ["OOOO", "nnnn", "OOOO", "OOOO", "OOOO", "nnnn"]),
        (3, b"nnnnn", ["OOOOn", "nnnnn", "OOOOn", "nnnnn", "OOOOn", "nnnnn"]),
        (2, b"nnn", ["nOOOO", "nnnOO", "nnnOO", "nnnOO", "nnnOO", "nOOOO"]),
        (2, b"nnnnnn", ["nOOOOn", "nnnnnn", "nnnnnn", "nnnnnn", "nnnnnn", "nnnnnn"]),
        (5, b"nnn", ["OOOOn", "OOnnn", "OOOOn", "OOOOn", "OOOOn", "OOnnn"]),
        (4, b"nn", ["OOOO", "OnnO", "OOOO", "OOOO", "OOOO", "OOOO"]),
    ];
    for (start, new, expected) in cases {
        for (policy, expected) in Policy::ALL.into_iter().zip(expected) {
            let first = b"+++";
            let begin = &first[..start.min(3) as usize];
            let segments = [
                segment(0, SYN, b""),
                segment(1 + 3, ACK, b"OOOO"),
                segment(1 + start, ACK, new),
                segment(1, ACK, begin),
            ];
            let (seen, streams) = run(policy, &segments);
            let begin = String::from_utf8_lossy(begin);
            let seen = seen.of(1, true);
            assert_eq!(seen, format!("{begin}{expected}"), "{policy:?} {start} {new:?}");
            assert!(streams.counters().contradicting_bytes > 0);
        }
    }
    // Delivered bytes stay, whatever the policy.
    let both = [segment(0, SYN, b""), segment(1, ACK, b"GOOD"), segment(1, ACK, b"EVIL")];
    assert_eq!(run(Policy::Last, &both).0.of(1, true), "GOOD");
}

/// Streams cut into segments that arrive late, twice and overlapping, with the same bytes, give
/// exactly the sent bytes.
#[test]
fn disorder_without_loss_gives_what_was_sent() {
    let (mut random, seed) = Random::seeded(5);
    println!("seed {seed}");
    for round in 0..300 {
        let text: Vec<u8> = (0..random.below(3000)).map(|at| b'a' + (at % 23) as u8).collect();
        let base = random.below(1 << 32) as u32;
        let mut order = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let len = 1 + random.below(300);
            let from = at.saturating_sub(random.below(40));
            let to = (at + len).min(text.len());
            for _ in 0..1 + random.below(2) {
                order.push((order.len() + random.below(12), from, to));
            }
            at = to;
        }
        order.sort();
        let policy = Policy::ALL[round % Policy::ALL.len()];
        let mut streams = Streams::new(Limits::default(), policy);
        let mut got = Vec::new();
        let mut give = |piece: Piece<'_>| got.extend_from_slice(piece.bytes);
        streams.segment(&segment(base, SYN, b""), 0, &mut give);
        for (_, from, to) in order {
            let sequence = base.wrapping_add(1).wrapping_add(from as u32);
            streams.segment(&segment(sequence, ACK, &text[from..to]), 0, &mut give);
        }
        assert!(got == text, "round {round}");
        let counters = streams.counters();
        assert_eq!((counters.contradicting_bytes, counters.gaps, streams.held_bytes()), (0, 0, 0));
    }
}

#[test]
fn floods_are_bounded_and_every_byte_is_accounted_for() {
    let (mut random, seed) = Random::seeded(6);
    println!("seed {seed}");
    let limits = Limits {
        connections: 50,
        direction_bytes: 4_000,
        bytes: 20_000,
        gap_ns: 500,
        idle_ns: 3_000,
    };
    let mut streams = Streams::new(limits, Policy::First);
    let payload = [b'x'; 200];
    let (mut sent, mut got) = (0, 0);
    for now_ns in 0..60_000 {
        let port = random.below(200) as u16;
        let flags = [ACK, ACK, ACK, SYN, FIN | ACK, RST][random.below(6)];
        let bytes = &payload[..random.below(200)];
        let bytes = if flags & (SYN | RST) != 0 { &[][..] } else { bytes };
        let one = segment(random.below(6_000) as u32, flags, bytes);
        let one = Segment { source: end(2000 + port), ..one };
        sent += bytes.len() as u64;
        streams.segment(&one, now_ns, &mut |piece| got += piece.bytes.len() as u64);
        assert!(streams.held_bytes() <= 20_000 && streams.len() <= 50);
    }
    streams.finish(&mut |_, piece| got += piece.bytes.len() as u64);
    let counters = streams.counters();
    assert_eq!(counters.delivered_bytes, got);
    assert!(sent >= got + counters.repeated_bytes + counters.dropped_bytes);
    assert!(counters.evicted > 0 && counters.gaps > 0 && counters.dropped_bytes > 0);
    assert_eq!((streams.held_bytes(), streams.waiting.len()), (0, 0));
}

fn acknowledges(segment: Segment<'_>, number: u32) -> Segment<'_> {
    Segment { flags: segment.flags | ACK, acknowledged: Some(number), ..segment }
}

#[test]
fn bytes_after_a_gap_are_delivered_before_a_reset_ends_the_connection() {
    let start = [segment(0, SYN, b""), back(700, SYN | ACK, b""), segment(1, ACK, b"start")];
    let evil = segment(100, ACK, b"evil");
    for reset in [segment(6, RST, b""), back(701, RST, b""), back(701, RST | ACK, b"")] {
        let (seen, streams) = run(Policy::First, &[&start[..], &[evil, reset]].concat());
        assert_eq!(seen.of(1, true), "start#94#evil.");
        let counters = streams.counters();
        assert_eq!((counters.gaps, counters.missing_bytes, counters.dropped_bytes), (1, 94, 0));
        assert_eq!((streams.held_bytes(), streams.waiting.len()), (0, 0));
    }
}

#[test]
fn a_gap_that_the_receiver_does_not_have_is_skipped_at_once() {
    let start = [segment(0, SYN, b""), segment(1, ACK, b"start")];
    let (late, next) = (segment(100, ACK, b"evil"), segment(104, ACK, b"more"));
    let (before, after) =
        (acknowledges(back(701, 0, b""), 6), acknowledges(back(701, 0, b""), 104));
    let forward = |rest: &[Segment<'_>]| forward(&[&start[..], rest].concat());
    assert_eq!(forward(&[late, before, next]), "start");
    // The number of the acknowledgement arrives after the bytes or before them.
    assert_eq!(forward(&[late, after, next]), "start#94#evilmore");
    assert_eq!(forward(&[after, late, next]), "start#94#evilmore");
    // Bytes that come after their acknowledgement fill the gap while nothing waits for them.
    let filling = [b'-'; 94];
    let filled = format!("start{}evil", "-".repeat(94));
    assert_eq!(forward(&[after, segment(6, ACK, &filling), late]), filled);
    // Acknowledgements of bytes that were never sent cost nothing.
    assert_eq!(forward(&[acknowledges(back(701, 0, b""), 6 + (1 << 27)), late]), "start");
    // The end of a direction is acknowledged too.
    let fin = segment(104, FIN | ACK, b"");
    assert_eq!(forward(&[fin, acknowledges(back(701, 0, b""), 105)]), "start.");
}

#[test]
fn gaps_wait_at_the_same_time() {
    let mut streams = Streams::new(Limits::default(), Policy::First);
    let mut seen = Seen::default();
    let mut at = |time_ns: u64, segment: Segment<'_>| {
        streams.segment(&segment, time_ns, &mut |piece| seen.add(piece));
    };
    at(SECOND, segment(0, SYN, b""));
    for number in 0..4u64 {
        at((2 + number) * SECOND, segment(10 + 10 * number as u32, ACK, b"part"));
    }
    at(13 * SECOND + 1, segment(1, ACK, b""));
    at(16 * SECOND, segment(1, ACK, b""));
    assert_eq!(seen.of(1, true), "#9#part#6#part#6#part#6#part");
}

#[test]
fn of_two_syns_the_acknowledged_one_counts() {
    let syns = [segment(0, SYN, b""), back(700, SYN | ACK, b""), back(90_000_000, SYN | ACK, b"")];
    let ack = |number| acknowledges(segment(1, 0, b""), number);
    let answers = [back(701, ACK, b"first"), back(90_000_001, ACK, b"second")];
    for (number, expected) in [(701, "first"), (90_000_001, "second")] {
        for again in [back(700, SYN | ACK, b""), back(90_000_000, SYN | ACK, b"")] {
            let rest = [ack(number), again, ack(number), answers[0], answers[1]];
            let (seen, streams) = run(Policy::First, &[&syns[..], &rest].concat());
            assert_eq!((seen.of(1, false), streams.counters().connections), (expected, 1));
        }
    }
    // Once there are bytes, another SYN changes nothing.
    let rest = [ack(701), answers[0], syns[2], answers[1], back(706, ACK, b"!")];
    let (seen, _) = run(Policy::First, &[&syns[..2], &rest].concat());
    assert_eq!(seen.of(1, false), "first!");
}

/// Flows of one segment leave before established ones, and are not the only ones that leave.
#[test]
fn a_flood_of_first_segments_keeps_established_flows() {
    let limits = Limits { connections: 100, ..Limits::default() };
    let mut streams = Streams::new(limits, Policy::First);
    let mut add = |port: u16, number: u32, flags: u8| {
        let one = Segment { source: end(port), ..segment(number, flags, b"") };
        streams.segment(&one, SECOND, &mut |_| ()).map(|flow| flow.connection)
    };
    let mut known = Vec::new();
    for port in 0..60 {
        let connection = add(1_000 + port, 0, SYN);
        assert_eq!(add(1_000 + port, 1, ACK), connection);
        known.push(connection);
    }
    for port in 0..10_000 {
        add(10_000 + port, 0, SYN);
    }
    for (port, connection) in (0..60).zip(&known) {
        assert_eq!(add(1_000 + port, 1, ACK), *connection, "{port}");
    }
    // Where established flows take the room, new ones get a quarter of it.
    for port in 0..30 {
        add(30_000 + port, 0, SYN);
        add(30_000 + port, 1, ACK);
    }
    let first = add(40_000, 0, SYN);
    for port in 1..20 {
        add(40_000 + port, 0, SYN);
    }
    assert_eq!(add(40_000, 1, ACK), first);
    let counters = streams.counters();
    assert_eq!((streams.len(), counters.most_flows), (100, 100));
    assert_eq!(counters.evicted, counters.connections - 100);
}

/// States that are loaded ahead, the wrong ones included, change nothing.
#[test]
fn announced_segments_are_handled_as_others() {
    let (mut random, seed) = Random::seeded(22);
    println!("seed {seed}");
    let pieces = |announced: bool, order: &[(u16, u32)]| {
        let mut streams =
            Streams::new(Limits { connections: 64, ..Limits::default() }, Policy::First);
        let mut seen = Vec::new();
        for batch in order.chunks(100) {
            let made: Vec<_> = batch
                .iter()
                .map(|&(port, number)| Segment {
                    source: end(port),
                    ..segment(number, if number % 97 == 0 { FIN | ACK } else { ACK }, b"abcd")
                })
                .collect();
            if announced {
                let told = made.iter().copied().skip(usize::from(batch[0].0 % 3));
                assert!(streams.warm(told) >= batch.len() - 2);
            }
            for one in &made {
                let flow = streams.segment(one, SECOND, &mut |piece| {
                    seen.push((piece.connection, piece.flow, piece.offset, piece.missing));
                });
                let Some(Flow { number, connection, .. }) = flow else { continue };
                seen.push((connection, number, 0, 0));
                // Of some, enough was seen.
                if connection.is_multiple_of(5) {
                    streams.settle(number, connection, true, 1);
                    streams.settle(number, connection, false, 1);
                }
            }
        }
        (seen, streams.counters())
    };
    let mut next = [0_u32; 100];
    let order: Vec<_> = (0..5_000)
        .map(|_| {
            let port = random.below(100);
            next[port] += 4 * (1 + random.below(2) as u32);
            (2_000 + port as u16, next[port])
        })
        .collect();
    let plain = pieces(false, &order);
    assert!(plain.1.evicted > 0 && plain.1.settled > 10 && plain.0.len() > 1_000);
    assert_eq!(plain, pieces(true, &order));
}
