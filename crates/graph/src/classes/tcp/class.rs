//! Class `tcp`: takes TCP segments and emits the bytes of their streams, in order and once.
//!
//! Each piece is a frame of payload without headers (link type 147, which is for private use). It carries the
//! identity of its direction ([`Arrival::stream`]), which no other node changes, and the number of the direction as
//! class value. An empty frame ends a direction; then its number is free for reuse, its identity is not. An empty
//! frame also marks missing bytes, so a node with a state per stream starts anew there. Frames without TCP are
//! rejected. So are segments in fragments, including fragments within a tunnel, because without reassembly their end
//! is unknown.
//!
//! The time of a piece is that of the frame that completed it; the time of a piece emitted at the end of the graph is
//! that of the last segment of its connection.
//!
//! The wait for missing bytes uses the time of the connection's own segments, so streams depend neither on other
//! traffic nor on the number of workers, each of which has its own streams and limits. In a live capture, where
//! frames are as recent as the system's clock, that clock continues the wait if no segment arrives. Memory and
//! losses: [`fyke_flow::streams`]. Cost: a header walk and a copy of each payload. Source: MAPI's COOKING.

use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, PIECES};
use crate::node::{Parameter, Settings};
use fyke_flow::Streams;
use fyke_flow::streams::{Limits, Piece, Policy, Segment};
use fyke_frame::{Frame, Mask, walk};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Most connections at a time.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// Numbers that stay unused before the first of them is reused.
const FREE: usize = 1 << 16;
/// Largest age of a frame on arrival in a live capture.
const LIVE: Duration = Duration::from_secs(5);

/// Number of streams of this process so far.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// The numbers of directions.
struct Numbers {
    given: HashMap<(u64, bool), (u32, NonZeroU64)>,
    /// Free numbers, the longest unused first.
    free: VecDeque<u32>,
}

impl Numbers {
    /// Returns the class value and the identity of a direction.
    fn of(&mut self, direction: (u64, bool)) -> (u32, NonZeroU64) {
        if let Some(&known) = self.given.get(&direction) {
            return known;
        }
        // A number is reused only if more than `FREE` others are free.
        let number = match self.free.len() > FREE {
            true => self.free.pop_front(),
            false => None,
        };
        // Numbers in use and free numbers are all that exist, so the next one is new.
        let number = number.unwrap_or((self.given.len() + self.free.len()) as u32 + 1);
        let identity = NonZeroU64::MIN.saturating_add(STREAMS.fetch_add(1, Ordering::Relaxed));
        self.given.insert(direction, (number, identity));
        (number, identity)
    }

    fn end(&mut self, direction: (u64, bool)) {
        self.free.extend(self.given.remove(&direction).map(|(number, _)| number));
    }
}

struct Tcp {
    streams: Streams,
    numbers: Numbers,
    /// Source of the last frames; pieces that are emitted without an arriving frame belong to it.
    source: u32,
    pieces: Emitted,
    /// True if the last frames were as recent as the system's clock.
    is_live: bool,
}

/// The system's clock, in nanoseconds since 1970.
fn clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
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
    let (number, identity) = numbers.of(direction);
    let mut emit = |bytes: &[u8]| {
        let wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let made = Frame { data: bytes, wire_len, link: PIECES, ..*frame };
        pieces.push_piece(source, &made, number, identity);
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
        let Tcp { streams, numbers, source, pieces, is_live } = self;
        *source = arrival.source();
        if let Some((_, frame)) = arrival.frames().last() {
            let age = clock_ns().checked_sub(frame.timestamp_ns).map(Duration::from_nanos);
            *is_live = age.is_some_and(|age| age <= LIVE);
        }
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

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Tcp { streams, numbers, source, is_live, .. } = self;
        if *is_live {
            let now_ns = clock_ns();
            let frame = Frame { timestamp_ns: now_ns, ..Frame::new(PIECES, &[]) };
            streams.expire(now_ns, &mut |piece| put(numbers, emitted, *source, &frame, &piece));
        }
        Ok(())
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Tcp { streams, numbers, source, .. } = self;
        streams.finish(&mut |timestamp_ns, piece| {
            let frame = Frame { timestamp_ns, ..Frame::new(PIECES, &[]) };
            put(numbers, emitted, *source, &frame, &piece);
        });
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
        connections: settings.number_or("connections", 1..=MAX_CONNECTIONS, 16_384)? as usize,
        direction_bytes: bytes("held", defaults.direction_bytes)?,
        bytes: bytes("memory", defaults.bytes)?,
        gap_ns: seconds("gap", defaults.gap_ns)?,
        idle_ns: seconds("idle", defaults.idle_ns)?,
    })
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let policy = Policy::ALL[settings.choice("policy", &Policy::NAMES)?];
    let numbers = Numbers { given: HashMap::new(), free: VecDeque::new() };
    let streams = Streams::new(limits(settings)?, policy);
    Ok(Box::new(Tcp { streams, numbers, source: 0, pieces: Emitted::default(), is_live: false }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "tcp",
    aliases: &["cooking", "streams"],
    summary: "emits the bytes of TCP streams in order, with the number of the stream as class value",
    parameters: &[
        Parameter { name: "policy", summary: "bytes that count in overlaps: first (default), …" },
        Parameter { name: "connections", summary: "most connections known at a time (16384)" },
        Parameter { name: "held", summary: "most bytes held per direction (1048576)" },
        Parameter { name: "memory", summary: "most bytes held in all (67108864)" },
        Parameter { name: "gap", summary: "longest wait for missing bytes, in seconds (10)" },
        Parameter { name: "idle", summary: "seconds after which a silent connection ends (300)" },
    ],
    classifies: true,
    emits_pieces: true,
    // All segments of a connection are on one worker.
    parallel: true,
    make,
    ..Class::NODE
};
