//! The form of class `tcp` that takes frames and emits the bytes of their streams.
//!
//! Each piece is a frame of payload without headers (link type 147, which is for private use). It carries the
//! identity of its direction ([`Arrival::stream`]), which no other node changes, and the number of the direction as
//! class value. An empty frame ends a direction; then its number is free for reuse, its identity is not. An empty
//! frame also marks missing bytes, so a node with a state per stream starts anew there. Frames without TCP are
//! rejected.
//!
//! The time of a piece is that of the frame that completed it; the time of a piece emitted at the end of the graph is
//! that of the last segment of its connection. Cost: a copy of each payload.

use super::Table;
use crate::node::{Arrival, Counter, Emitted, Node, NodeError, PIECES};
use fyke_flow::Fragment;
use fyke_flow::streams::{Piece, Segment};
use fyke_frame::walk::Layers;
use fyke_frame::{Frame, Mask, walk};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that stay unused before the first of them is reused.
const FREE: usize = 1 << 16;

/// Number of streams of this process so far.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// The numbers of directions.
#[derive(Default)]
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

/// The node.
pub(super) struct Pieces {
    table: Table,
    numbers: Numbers,
    /// Source of the last frames; pieces that are emitted without an arriving frame belong to it.
    source: u32,
    pieces: Emitted,
}

impl Pieces {
    pub(super) fn new(table: Table) -> Pieces {
        Pieces { table, numbers: Numbers::default(), source: 0, pieces: Emitted::default() }
    }
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

impl Node for Pieces {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.table.note_time(arrival);
        let Pieces { table, numbers, source, pieces } = self;
        let Table { streams, reassembler, checks, .. } = table;
        let checks = *checks;
        *source = arrival.source();
        for (index, frame) in arrival.frames() {
            let mut give = |segment: &Segment<'_>, layers: &Layers<'_>| {
                if checks && Segment::is_damaged(layers) {
                    streams.ignore(segment);
                    return;
                }
                streams.segment(segment, frame.timestamp_ns, &mut |piece| {
                    put(numbers, pieces, *source, frame, &piece);
                });
            };
            let layers = walk(frame);
            if let Some(segment) = Segment::of(&layers) {
                arrival.take(index);
                give(&segment, &layers);
            } else if Fragment::of(&layers).is_some() {
                if checks && Segment::has_damaged_header(&layers) {
                    streams.ignore_fragment();
                } else if let Some(whole) = reassembler.add(frame, &layers)
                    && let layers = walk(&whole)
                    && let Some(segment) = Segment::of(&layers)
                {
                    arrival.take(index);
                    give(&segment, &layers);
                }
            }
        }
        arrival.emit_all(&mut self.pieces);
        Ok(Mask::EMPTY)
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Pieces { table, numbers, source, .. } = self;
        if table.is_live {
            let now_ns = fyke_flow::clock::system_ns();
            let frame = Frame { timestamp_ns: now_ns, ..Frame::new(PIECES, &[]) };
            table.streams.expire(now_ns, &mut |piece| {
                put(numbers, emitted, *source, &frame, &piece);
            });
        }
        Ok(())
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Pieces { table, numbers, source, .. } = self;
        table.streams.finish(&mut |timestamp_ns, piece| {
            let frame = Frame { timestamp_ns, ..Frame::new(PIECES, &[]) };
            put(numbers, emitted, *source, &frame, &piece);
        });
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        self.table.counters()
    }
}
