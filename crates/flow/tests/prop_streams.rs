//! Streams compared with a model that keeps every byte, for all policies: segments in any order, with contents that
//! contradict each other, at every edge of the sequence space.

use fyke_flow::streams::{Event, Handling, Limits, Policies, Policy, Segment, Streams};
use fyke_frame::walk::view::tcp_flags::{ACK, FIN, PSH, RST, SYN, URG};
use fyke_testkit::random::rounds;
use std::collections::HashMap;
use std::net::SocketAddr;

/// True if new bytes replace old ones, by the relation of their ranges; written down from the table in Suricata's
/// documentation, system by system.
fn new_wins(policy: Policy, (start, end): (usize, usize), (old, old_end): (usize, usize)) -> bool {
    use Policy::*;
    let before = start < old;
    match (before, start == old, end.cmp(&old_end)) {
        _ if policy == Last => true,
        _ if matches!(policy, First | Vista) => false,
        // It begins before: the newer systems' rule, and Solaris only if it covers the old ones.
        (true, _, order) => !matches!(policy, Solaris | Hpux11) || order.is_ge(),
        (_, true, std::cmp::Ordering::Equal) => matches!(policy, OldLinux | Solaris | Hpux11),
        (_, true, std::cmp::Ordering::Greater) => {
            matches!(policy, OldLinux | Solaris | Hpux11 | Linux)
        }
        (_, false, std::cmp::Ordering::Greater) => matches!(policy, Solaris | Hpux11),
        _ => false,
    }
}

/// Every byte of a direction, with the number of the piece that it belongs to.
#[derive(Default)]
struct Model {
    bytes: Vec<Option<(u8, u32)>>,
    next: usize,
    pieces: u32,
    out: Vec<u8>,
}

impl Model {
    fn take(&mut self, policy: Policy, start: usize, bytes: &[u8]) {
        let from = start.max(self.next);
        let Some(bytes) = bytes.get(from - start..).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let end = from + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), None);
        self.pieces += 1;
        let own = self.pieces;
        // Pieces that were there, each a run of bytes of one number.
        let mut at = self.next;
        let mut kept = vec![false; bytes.len()];
        while at < self.bytes.len() {
            let Some((_, number)) = self.bytes[at] else {
                at += 1;
                continue;
            };
            let run = self.bytes[at..].iter();
            let same = |byte: &&Option<(u8, u32)>| byte.is_some_and(|(_, other)| other == number);
            let run_end = at + run.take_while(same).count();
            let (low, high) = (at.max(from), run_end.min(end));
            if low < high && !new_wins(policy, (from, end), (at, run_end)) {
                kept[low - from..high - from].fill(true);
            }
            at = run_end;
        }
        // A piece that is cut in two becomes two pieces.
        let mut number = own;
        for (index, byte) in bytes.iter().enumerate() {
            if kept[index] {
                self.pieces += 1;
                number = self.pieces;
            } else {
                self.bytes[from + index] = Some((*byte, number));
            }
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some(Some((byte, _))) = self.bytes.get(self.next) {
            self.out.push(*byte);
            self.next += 1;
        }
    }

    /// The rest, with the gaps left out.
    fn end(&mut self) {
        let rest = self.bytes.get(self.next..).unwrap_or_default();
        self.out.extend(rest.iter().flatten().map(|(byte, _)| byte));
    }
}

fn end(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn segment(port: u16, sequence: u32, flags: u8, payload: &[u8]) -> Segment<'_> {
    let payload_len = payload.len() as u32;
    let (source, destination) = (end(port), end(80));
    Segment { source, destination, sequence, acknowledged: None, flags, payload, payload_len }
}

#[test]
fn streams_are_those_of_a_model_that_keeps_every_byte() {
    rounds(71, |random| {
        for round in 0..2_000 {
            let policy = Policy::ALL[round % Policy::COUNT];
            let limits = Limits { gap_ns: u64::MAX, ..Limits::default() };
            let mut streams = Streams::new(limits, policy);
            let mut model = Model::default();
            let base = [0, random.number() as u32, u32::MAX - 20][round % 3];
            let mut got = Vec::new();
            let mut give =
                |piece: fyke_flow::streams::Piece<'_>| got.extend_from_slice(piece.bytes);
            streams.segment(&segment(1, base.wrapping_sub(1), SYN, b""), 0, &mut give);
            for number in 0..2 + random.below(14) {
                let start = random.below(40);
                let bytes = vec![b'a' + number as u8; 1 + random.below(12)];
                let sequence = base.wrapping_add(start as u32);
                // Receivers refuse segments without ACK, also the end of a stream.
                if random.chance(9) {
                    let flags = [0, PSH, FIN, FIN | PSH | URG][random.below(4)];
                    streams.segment(&segment(1, sequence, flags, b"decoy"), 0, &mut give);
                }
                // A reset elsewhere, and its bytes, change nothing.
                if random.chance(9) {
                    let reset = base.wrapping_add(model.next as u32).wrapping_sub(1);
                    streams.segment(&segment(1, reset, RST | ACK, b"decoy"), 0, &mut give);
                }
                // So does a SYN after the first bytes.
                if random.chance(9) && model.next > 0 {
                    streams.segment(&segment(1, sequence, SYN | ACK, b"decoy"), 0, &mut give);
                }
                streams.segment(&segment(1, sequence, ACK, &bytes), 0, &mut give);
                model.take(policy, start, &bytes);
            }
            streams.finish(&mut |_, piece| got.extend_from_slice(piece.bytes));
            model.end();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&got), text(&model.out), "{policy:?}, round {round}");
        }
    });
}

/// Any segments of a few connections: memory is bounded, every event belongs to a flow that is there, offsets
/// continue, and everything ends once.
#[test]
fn hostile_segments_are_bounded_and_events_consistent() {
    rounds(72, |random| {
        let (limits, handling) = match random.chance(2) {
            true => Handling::thesis(),
            false => (Limits::default(), Handling { direction_segments: 9, ..Handling::default() }),
        };
        let mut policies = Policies::default();
        policies.add("linux@10.0.0.1:80").unwrap();
        let handling = Handling { policies, ..handling };
        let limits =
            Limits { connections: 30, bytes: 30_000, gap_ns: 400, idle_ns: 9_000, ..limits };
        let mut streams = Streams::with(limits, handling);
        let mut open: HashMap<u32, (u64, [u64; 2], [bool; 2])> = HashMap::new();
        let mut on = |event: Event<'_>| match event {
            Event::Removed { flow, connection } => {
                assert!((1..=30).contains(&flow));
                let known = open.remove(&flow);
                assert!(known.is_none_or(|(number, ..)| number == connection));
            }
            Event::Piece(piece) => {
                let entry =
                    open.entry(piece.flow).or_insert((piece.connection, [0; 2], [false; 2]));
                let side = usize::from(piece.forward);
                assert_eq!(entry.0, piece.connection);
                assert!(!entry.2[side], "after its end");
                if !piece.bytes.is_empty() {
                    assert_eq!(entry.1[side] + piece.missing, piece.offset);
                }
                entry.1[side] = piece.offset + piece.bytes.len() as u64;
                entry.2[side] = piece.bytes.is_empty();
            }
        };
        let payload = [b'x'; 300];
        for now_ns in 0..30_000 {
            let flags = [ACK, ACK, ACK, ACK, SYN, SYN | ACK, FIN | ACK, RST, RST | FIN];
            let flags = flags[random.below(flags.len())];
            let bytes = &payload[..random.below(300)];
            let base = [0, u32::MAX - 500, 1 << 31][random.below(3)];
            let sequence = if random.chance(9) { base } else { 0 };
            let sequence = sequence.wrapping_add(random.below(900) as u32);
            let mut one = segment(2_000 + random.below(60) as u16, sequence, flags, bytes);
            // Some are cut by the capture.
            one.payload =
                &bytes[..bytes.len() - bytes.len().min(random.below(2) * random.below(50))];
            if random.chance(2) {
                std::mem::swap(&mut one.source, &mut one.destination);
            }
            // Acknowledgements of what was sent, was not, and of bytes far away.
            let base = [0, u32::MAX - 500, 1 << 31][random.below(3)];
            let base = if random.chance(9) { base } else { 0 };
            let number = base.wrapping_add(random.below(1_500) as u32);
            one.acknowledged = (flags & ACK != 0 && random.chance(2)).then_some(number);
            if random.chance(7) {
                streams.datagram(17, one.source, one.destination, now_ns, &mut on);
            }
            if let Some(flow) = streams.segment_events(&one, now_ns, &mut on)
                && random.chance(20)
            {
                streams.settle(flow.number, flow.connection, flow.forward, 1);
            }
            if random.chance(50) {
                streams.expire_events(now_ns, &mut on);
            }
            assert!(streams.held_bytes() <= 30_000 && streams.len() <= 30);
        }
        streams.finish_events(&mut |_, event| on(event));
        assert_eq!((streams.len(), streams.held_bytes()), (0, 0));
        assert!(streams.counters().doubtful > 0 && streams.counters().outside > 0);
    });
}

/// A direction of which enough was seen gives no more pieces, the other one does; a new connection of the same ends
/// begins anew.
#[test]
fn settled_directions_give_no_more_pieces() {
    let mut streams = Streams::new(Limits::default(), Policy::First);
    let mut got = Vec::new();
    let mut give = |streams: &mut Streams, one: &Segment<'_>| {
        let mut bytes = Vec::new();
        let flow = streams.segment(one, 0, &mut |piece| bytes.extend_from_slice(piece.bytes));
        got.push(String::from_utf8_lossy(&bytes).into_owned());
        flow.unwrap()
    };
    let back = |sequence, payload| {
        let one = segment(1, sequence, ACK, payload);
        Segment { source: one.destination, destination: one.source, ..one }
    };
    let flow = give(&mut streams, &segment(1, 9, SYN, b""));
    give(&mut streams, &segment(1, 10, ACK, b"one"));
    streams.settle(flow.number, flow.connection, true, 2);
    give(&mut streams, &segment(1, 13, ACK, b"two"));
    streams.settle(flow.number, flow.connection, true, 2);
    give(&mut streams, &segment(1, 16, ACK, b"three"));
    give(&mut streams, &back(70, b"back"));
    // The other end has to answer the SYN of a new connection.
    assert_eq!(give(&mut streams, &segment(1, 900, SYN, b"")), flow);
    let answer = Segment { acknowledged: Some(901), flags: SYN | ACK, ..back(7_000, b"") };
    let again = give(&mut streams, &answer);
    assert!(again.connection > flow.connection);
    // A vote about the connection before does nothing.
    streams.settle(flow.number, flow.connection, true, 1);
    give(&mut streams, &segment(1, 901, ACK, b"new"));
    assert_eq!(got, ["", "one", "two", "", "back", "", "", "new"]);
    assert_eq!(streams.counters().settled, 1);
}

#[test]
fn beginnings_are_treated_as_they_are_set() {
    let handling = Handling { midstream: false, renewal: false, ..Handling::default() };
    let mut streams = Streams::with(Limits::default(), handling);
    let mut got = Vec::new();
    let mut all = |streams: &mut Streams, one: &Segment<'_>| {
        streams.segment(one, 0, &mut |piece| got.extend_from_slice(piece.bytes)).is_some()
    };
    assert!(!all(&mut streams, &segment(1, 50, ACK, b"unknown")));
    assert!(all(&mut streams, &segment(2, 9, SYN, b"")));
    assert!(all(&mut streams, &segment(2, 10, ACK, b"known")));
    assert!(!all(&mut streams, &segment(2, 700, SYN, b"")));
    assert!(all(&mut streams, &segment(2, 15, ACK, b"!")));
    assert_eq!((&got[..], streams.counters().ignored), (&b"known!"[..], 2));
}

/// The thesis' buffer of early segments: only those that follow each other, and 64 of them.
#[test]
fn early_segments_of_the_thesis() {
    let (limits, handling) = Handling::thesis();
    assert_eq!(limits.connections, 1536);
    let mut streams = Streams::with(limits, handling);
    let mut got = Vec::new();
    let mut give = |streams: &mut Streams, sequence: u32, payload: &[u8]| {
        let flags = if payload.is_empty() { SYN } else { ACK };
        let one = segment(1, sequence, flags, payload);
        streams.segment(&one, 0, &mut |piece| got.extend_from_slice(piece.bytes));
    };
    give(&mut streams, 0, b"");
    give(&mut streams, 3, b"cc");
    // Neither this one, which leaves another gap, nor the 65th is held.
    give(&mut streams, 9, b"zz");
    for number in 1..70 {
        give(&mut streams, 3 + 2 * number, b"cc");
    }
    give(&mut streams, 1, b"ab");
    assert_eq!(got.len(), 2 + 64 * 2);
    assert_eq!(streams.counters().refused, 1 + 6);
}
