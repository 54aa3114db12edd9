//! Class `tcp`: takes TCP segments and emits the bytes of their streams, in order and once.
//!
//! Each piece is a frame of payload without headers (link type 147, which means nothing) whose class value is the
//! number of its direction. A number means one direction until an empty frame with it ends it; then another one may get
//! it. An empty frame also comes where bytes are missing, so whoever keeps something per number begins anew there. What
//! is no TCP is rejected. Memory and losses: [`fyke_flow::streams`]. Cost: a header walk and a copy of each payload.
//! Source: MAPI's COOKING; DESIGN 6 (A11).

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError};
use crate::node::{Parameter, Settings};
use fyke_flow::Streams;
use fyke_flow::streams::{Limits, Piece, Policy, Segment};
use fyke_frame::{Frame, LinkType, Mask, walk};
use std::collections::{HashMap, VecDeque};

/// The first of the link types that are left to everybody's own use.
const PAYLOAD: LinkType = LinkType(147);

/// Which number stands for which direction.
struct Numbers {
    given: HashMap<(u64, bool), u16>,
    /// Those that are free, the longest unused one first.
    free: VecDeque<u16>,
}

impl Numbers {
    fn of(&mut self, direction: (u64, bool)) -> u16 {
        if let Some(&number) = self.given.get(&direction) {
            return number;
        }
        // There are two for each connection that may be known at a time.
        let number = self.free.pop_front().unwrap_or(0);
        self.given.insert(direction, number);
        number
    }

    fn end(&mut self, direction: (u64, bool)) {
        self.free.extend(self.given.remove(&direction));
    }
}

struct Tcp {
    streams: Streams,
    numbers: Numbers,
    /// Frames that bring a piece: what is emitted when no frame is at hand belongs to the last source.
    source: u32,
    pieces: Emitted,
}

/// Emits a piece as a frame like `frame`.
fn put(
    numbers: &mut Numbers,
    pieces: &mut Emitted,
    source: u32,
    frame: &Frame<'_>,
    piece: &Piece<'_>,
) {
    let direction = (piece.connection, piece.forward);
    if piece.bytes.is_empty() && !numbers.given.contains_key(&direction) {
        return;
    }
    let number = numbers.of(direction);
    let mut emit = |bytes: &[u8]| {
        let wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let made = Frame { data: bytes, wire_len, link: PAYLOAD, ..*frame };
        pieces.push_classified(source, &made, &[number]);
    };
    if piece.missing > 0 && !piece.bytes.is_empty() {
        emit(&[]);
    }
    emit(piece.bytes);
    if piece.bytes.is_empty() {
        numbers.end(direction);
    }
}

impl Node for Tcp {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let Tcp { streams, numbers, source, pieces } = self;
        *source = arrival.source();
        for (index, frame) in arrival.frames() {
            let layers = walk(frame);
            let Some(segment) = Segment::of(&layers) else {
                if Segment::is_fragment(&layers) {
                    streams.fragment();
                }
                continue;
            };
            arrival.take(index);
            streams.segment(&segment, frame.timestamp_ns, &mut |piece| {
                put(numbers, pieces, *source, frame, &piece);
            });
        }
        arrival.emit_all(&mut self.pieces);
        Ok(Mask::EMPTY)
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Tcp { streams, numbers, source, .. } = self;
        let frame = Frame::new(PAYLOAD, &[]);
        streams.finish(&mut |piece| put(numbers, emitted, *source, &frame, &piece));
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let counters = self.streams.counters();
        [
            ("connections", counters.connections),
            ("midstream", counters.midstream),
            ("evicted", counters.evicted),
            ("delivered_bytes", counters.delivered_bytes),
            ("repeated_bytes", counters.repeated_bytes),
            ("contradicting_bytes", counters.contradicting_bytes),
            ("gaps", counters.gaps),
            ("missing_bytes", counters.missing_bytes),
            ("dropped_bytes", counters.dropped_bytes),
            ("outside", counters.outside),
            ("fragments", counters.fragments),
            ("held_bytes", self.streams.held_bytes() as u64),
        ]
        .map(|(name, count)| Counter::count(name, count))
        .into()
    }
}

fn limits(settings: &Settings) -> Result<Limits, MakeError> {
    let defaults = Limits::default();
    let bytes = |name, default: usize| {
        let number = settings.number_or(name, 1..=1 << 32, default as u64)?;
        Ok::<_, MakeError>(number as usize)
    };
    let seconds = |name, default_ns: u64| {
        let number = settings.number_or(name, 0..=86_400, default_ns / 1_000_000_000)?;
        Ok::<_, MakeError>(number * 1_000_000_000)
    };
    Ok(Limits {
        connections: settings.number_or("connections", 1..=32_000, 16_384)? as usize,
        direction_bytes: bytes("held", defaults.direction_bytes)?,
        bytes: bytes("memory", defaults.bytes)?,
        gap_ns: seconds("gap", defaults.gap_ns)?,
        idle_ns: seconds("idle", defaults.idle_ns)?,
    })
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let policy = Policy::ALL[settings.choice("policy", &Policy::NAMES)?];
    let numbers = Numbers { given: HashMap::new(), free: (1..=u16::MAX).collect() };
    let streams = Streams::new(limits(settings)?, policy);
    Ok(Box::new(Tcp { streams, numbers, source: 0, pieces: Emitted::default() }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "tcp",
    aliases: &["cooking", "streams"],
    summary: "emits the bytes of TCP streams in order, with the number of the stream as class value",
    parameters: &[
        Parameter { name: "policy", summary: "whose bytes count in overlaps: first (default), …" },
        Parameter { name: "connections", summary: "most that are known at a time (16384)" },
        Parameter { name: "held", summary: "bytes that a direction holds (1048576)" },
        Parameter { name: "memory", summary: "bytes that all of them hold (67108864)" },
        Parameter { name: "gap", summary: "seconds that missing bytes are waited for (10)" },
        Parameter { name: "idle", summary: "seconds that a silent connection is known (300)" },
    ],
    classifies: true,
    make,
    ..Class::NODE
};
