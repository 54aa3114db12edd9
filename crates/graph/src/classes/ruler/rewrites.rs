//! Class `ruler` over streams with a rule that rewrites: bytes of streams are replaced by as many others, in all frames
//! that have them.
//!
//! A frame passes as soon as all bytes of its payload are decided ([`Substitution`]): most do at once. A frame with the
//! beginning of a possible match, one that came early, and all frames after it wait, so they leave in the order of the
//! capture. Repetitions of replaced bytes are changed alike. No byte passes that was not searched: a frame with bytes
//! that the streams lack (skipped, or after the end), that are older than the last changes known here, or in a
//! fragment, is refused. Packets of other protocols are rewritten one by one.
//!
//! Memory: waiting frames and known changes at most [`Bounds::bytes`] each; for an open direction the state of an
//! automaton and the bytes that are not decided, less than those of a match. Cost: a step of an automaton per byte; a
//! copy of each frame that changes or waits.

use crate::node::{Arrival, BatchEvent, Counter, Emitted, FrameFlow, Node, NodeError, Pause};
use crate::waiting::{Bounds, Copied, is_recent};
use fyke_flow::{Fragment, clock};
use fyke_flow::streams::{Event, Piece};
use fyke_frame::{Frame, Mask, walk};
use fyke_ruler::substitution::{Open, Substitution};
use fyke_ruler::repair;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Memory of a frame that waits, besides its bytes.
const OVERHEAD_BYTES: usize = 160;
/// Memory of a change, besides its bytes.
const CHANGE_BYTES: usize = 64;

/// New bytes from an offset on; `None` for bytes that are missing.
#[derive(Debug)]
struct Change {
    start: u64,
    len: u64,
    new: Option<Box<[u8]>>,
}

impl Change {
    fn cost(&self) -> usize {
        CHANGE_BYTES + self.new.as_ref().map_or(0, |new| new.len())
    }

    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// One direction.
#[derive(Debug, Default)]
struct Side {
    open: Option<Open>,
    /// Bytes before this offset are decided.
    decided: u64,
    /// Offset after the last piece.
    next: u64,
    ended: bool,
    /// In the order of the stream.
    changes: VecDeque<Change>,
    /// Changes before this offset are not known any more.
    forgotten: u64,
}

impl Side {
    /// The changes that overlap a range.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.end() <= start);
        self.changes.range(from..).take_while(move |change| change.start < end)
    }
}

/// A connection.
#[derive(Debug, Default)]
struct Known {
    /// Backward and forward direction.
    sides: [Side; 2],
    /// Number of its frames that wait.
    waiting: u64,
    removed: bool,
}

/// Payload of a frame, as a part of a stream.
#[derive(Debug, Clone)]
struct Part {
    connection: u64,
    side: usize,
    /// Offset of its first byte in the stream.
    start: u64,
    /// Length on the wire.
    len: u64,
    /// Its captured bytes, as a place in the frame.
    place: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    Wait,
    Refuse,
}

/// A frame that waits.
#[derive(Debug)]
struct Held {
    copied: Copied,
    class: u32,
    part: Option<Part>,
}

impl Held {
    fn cost(&self) -> usize {
        self.copied.len() + OVERHEAD_BYTES
    }
}

/// Counts so far.
#[derive(Debug, Default)]
struct Counts {
    rewritten: u64,
    replaced: u64,
    refused: u64,
    copied: u64,
    let_go: u64,
}

/// The node.
pub(super) struct StreamRewriter {
    rules: Substitution,
    bounds: Bounds,
    known: HashMap<u64, Known>,
    queue: VecDeque<Held>,
    /// Bytes of the frames that wait, and of the changes.
    bytes: usize,
    change_bytes: usize,
    /// Connection and direction of each change, the oldest first; some may have gone.
    order: VecDeque<(u64, usize)>,
    /// True if the last frame was as recent as the system's clock.
    is_live: bool,
    counts: Counts,
    spare: Vec<u8>,
}

impl StreamRewriter {
    pub(super) fn new(rules: Substitution, bounds: Bounds) -> StreamRewriter {
        StreamRewriter {
            rules,
            bounds,
            known: HashMap::new(),
            queue: VecDeque::new(),
            bytes: 0,
            change_bytes: 0,
            order: VecDeque::new(),
            is_live: false,
            counts: Counts::default(),
            spare: Vec::new(),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Piece(piece) => self.piece(piece),
            Event::Removed { connection, .. } => {
                if let Some(known) = self.known.get_mut(connection) {
                    known.removed = true;
                }
                self.forget_unused(*connection);
            }
        }
    }

    /// Searches a piece; bytes are missing before it if it does not follow the one before.
    fn piece(&mut self, piece: &Piece<'_>) {
        let forward = usize::from(piece.forward);
        let side = &mut self.known.entry(piece.connection).or_default().sides[forward];
        let StreamRewriter { rules, change_bytes, counts, .. } = self;
        let mut changes: Vec<Change> = Vec::new();
        let mut note = |start: u64, new: &[u8]| {
            counts.replaced += 1;
            changes.push(Change { start, len: new.len() as u64, new: Some(new.into()) });
        };
        let is_gap = side.next != piece.offset;
        if (is_gap || piece.bytes.is_empty())
            && let Some(mut open) = side.open.take()
        {
            rules.end(&mut open, &mut note);
        }
        if is_gap {
            let len = piece.offset.saturating_sub(side.next);
            changes.push(Change { start: side.next, len, new: None });
        }
        side.next = piece.offset + piece.bytes.len() as u64;
        if piece.bytes.is_empty() {
            (side.decided, side.ended) = (side.next, true);
        } else {
            let open = side.open.get_or_insert_with(|| rules.begin(piece.offset));
            let mut note = |start: u64, new: &[u8]| {
                counts.replaced += 1;
                changes.push(Change { start, len: new.len() as u64, new: Some(new.into()) });
            };
            rules.feed(open, piece.bytes, &mut note);
            side.decided = open.decided();
        }
        for change in changes {
            *change_bytes += change.cost();
            side.changes.push_back(change);
            self.order.push_back((piece.connection, forward));
        }
        self.forget_oldest();
    }

    /// Forgets the oldest changes beyond the limit.
    fn forget_oldest(&mut self) {
        let most = self.bounds.bytes;
        while (self.change_bytes > most || self.order.len() > most / CHANGE_BYTES)
            && let Some((connection, side)) = self.order.pop_front()
        {
            let known = self.known.get_mut(&connection);
            if let Some(side) = known.map(|known| &mut known.sides[side])
                && let Some(oldest) = side.changes.pop_front()
            {
                self.change_bytes -= oldest.cost();
                side.forgotten = oldest.end();
            }
        }
    }

    /// Removes the state of a connection that has gone and of which no frame waits.
    fn forget_unused(&mut self, connection: u64) {
        if self.known.get(&connection).is_some_and(|known| known.removed && known.waiting == 0)
            && let Some(known) = self.known.remove(&connection)
        {
            let changes = known.sides.iter().flat_map(|side| &side.changes);
            self.change_bytes -= changes.map(Change::cost).sum::<usize>();
        }
    }

    /// Finds the part of a stream that a frame has; `Err` tells the fate of a frame that has none.
    fn part(&self, arrival: &Arrival<'_>, index: usize, frame: &Frame<'_>) -> Result<Part, Fate> {
        let layers = walk(frame);
        if Fragment::of(&layers).is_some() {
            return Err(Fate::Refuse);
        }
        let tcp = layers.innermost_level().and_then(|level| level.tcp());
        let payload = tcp.map_or(layers.payload(), |tcp| tcp.payload());
        let first = (payload.as_ptr() as usize).wrapping_sub(frame.data.as_ptr() as usize);
        let place = if payload.is_empty() { 0..0 } else { first..first + payload.len() };
        let len = tcp.map_or(payload.len(), |tcp| tcp.wire_payload_len()) as u64;
        match arrival.flow(index) {
            _ if len == 0 => Err(Fate::Pass),
            FrameFlow::Stream(flow) => {
                let start = arrival.flows().and_then(|flows| flows.offset_of(index));
                match start.map(u64::try_from) {
                    Some(Ok(start)) => {
                        let (connection, side) = (flow.connection, usize::from(flow.forward));
                        Ok(Part { connection, side, start, len, place })
                    }
                    // A keep-alive before the first byte.
                    Some(Err(_)) if len == 1 => Err(Fate::Pass),
                    _ => Err(Fate::Refuse),
                }
            }
            FrameFlow::Unknown | FrameFlow::Part(_) => Err(Fate::Refuse),
            // Searched alone: no stream has it.
            FrameFlow::None | FrameFlow::Datagram(_) => {
                Ok(Part { connection: 0, side: 0, start: 0, len, place })
            }
        }
    }

    fn fate(&self, part: &Part) -> Fate {
        if part.connection == 0 {
            return Fate::Pass;
        }
        let Some(known) = self.known.get(&part.connection) else { return Fate::Refuse };
        let (side, end) = (&known.sides[part.side], part.start + part.len);
        let is_missing = side.within(part.start, end).any(|change| change.new.is_none());
        if part.start < side.forgotten || is_missing {
            return Fate::Refuse;
        }
        match end <= side.decided {
            true => Fate::Pass,
            false if side.ended || known.removed => Fate::Refuse,
            false => Fate::Wait,
        }
    }

    /// Writes the frame with its new bytes to `spare`; false if nothing changes.
    fn rewrite(&mut self, frame: &Frame<'_>, part: &Part) -> bool {
        let StreamRewriter { rules, known, spare, .. } = self;
        spare.clear();
        spare.extend_from_slice(frame.data);
        let Some(payload) = spare.get_mut(part.place.clone()) else { return false };
        let mut has_changed = false;
        if part.connection == 0 {
            has_changed = rules.apply(payload);
        } else if let Some(known) = known.get(&part.connection) {
            let end = part.start + payload.len() as u64;
            for Change { start, new, .. } in known.sides[part.side].within(part.start, end) {
                let Some(new) = new else { continue };
                for (at, byte) in (*start..).zip(new) {
                    let at = at.checked_sub(part.start).map(|at| at as usize);
                    if let Some(place) = at.and_then(|at| payload.get_mut(at)) {
                        has_changed |= *place != *byte;
                        *place = *byte;
                    }
                }
            }
        }
        if has_changed {
            repair(spare, frame.data.len(), frame.link, false, true);
            self.counts.rewritten += 1;
        }
        has_changed
    }

    fn hold(&mut self, arrival: &Arrival<'_>, index: usize, frame: &Frame<'_>, part: Option<Part>) {
        self.is_live = is_recent(frame.timestamp_ns, self.counts.copied).unwrap_or(self.is_live);
        let known = part.as_ref().and_then(|part| self.known.get_mut(&part.connection));
        known.into_iter().for_each(|known| known.waiting += 1);
        let copied = Copied::new(arrival.source(), frame, arrival.flow(index));
        let held = Held { copied, class: arrival.class(index), part };
        self.bytes += held.cost();
        self.counts.copied += 1;
        self.queue.push_back(held);
    }

    /// Emits the decided frames at the front; lets go of undecided ones beyond the limits, or all at the end.
    fn release(&mut self, emitted: &mut Emitted, now_ns: Option<u64>, is_end: bool) {
        while let Some(held) = self.queue.pop_front() {
            let frame = held.copied.frame();
            let fate = held.part.as_ref().map_or(Fate::Pass, |part| self.fate(part));
            let is_old = now_ns
                .is_some_and(|now| now.saturating_sub(frame.timestamp_ns) > self.bounds.wait_ns);
            match fate {
                Fate::Wait if !is_end && !is_old && self.bytes <= self.bounds.bytes => {
                    return self.queue.push_front(held);
                }
                Fate::Wait => self.counts.let_go += 1,
                Fate::Refuse => self.counts.refused += 1,
                Fate::Pass => {
                    let has_changed =
                        held.part.as_ref().is_some_and(|part| self.rewrite(&frame, part));
                    let value = self.rules.class().unwrap_or(0);
                    let (data, class) = match has_changed {
                        true => (&self.spare[..], held.class),
                        false => (frame.data, value),
                    };
                    let Copied { source, flow, .. } = held.copied;
                    emitted.push_late(source, &Frame { data, ..frame }, class, flow);
                }
            }
            self.bytes -= held.cost();
            if let Some(part) = &held.part
                && let Some(known) = self.known.get_mut(&part.connection)
            {
                known.waiting -= 1;
                self.forget_unused(part.connection);
            }
        }
    }

    /// Passes a frame, or lets it wait; true if it passes now as it is.
    fn frame(&mut self, arrival: &mut Arrival<'_>, index: usize, frame: &Frame<'_>) -> bool {
        let (fate, part) = match self.part(arrival, index, frame) {
            Ok(part) => {
                if part.connection > 0 {
                    self.known.entry(part.connection).or_default();
                }
                (self.fate(&part), Some(part))
            }
            Err(fate) => (fate, None),
        };
        if fate == Fate::Refuse {
            self.counts.refused += 1;
            return false;
        }
        let waits = fate == Fate::Wait || !self.queue.is_empty() || !arrival.emitted().is_empty();
        if waits {
            self.hold(arrival, index, frame, part);
            self.release(arrival.emitted(), Some(frame.timestamp_ns), false);
            return false;
        }
        if part.is_some_and(|part| self.rewrite(frame, &part)) {
            arrival.replace(index, &Frame { data: &self.spare, ..*frame });
            return false;
        }
        arrival.classify(index, self.rules.class().unwrap_or(0));
        true
    }
}

impl Node for StreamRewriter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (flows, batch) = (arrival.flows(), arrival.batch());
        let (mut passed, mut next) = (Mask::EMPTY, 0);
        let event = |number: usize| flows.and_then(|flows| flows.event(number, batch));
        // The pieces of frames that do not arrive here are missing.
        let is_for = |one: &BatchEvent<'_>, index: Option<usize>| {
            Some(one.at) == index || !one.is_of_frame
        };
        for (index, frame) in arrival.frames() {
            while let Some(one) = event(next).filter(|one| one.at <= index) {
                if is_for(&one, Some(index)) {
                    self.event(&one.event);
                }
                next += 1;
            }
            if self.frame(arrival, index, frame) {
                passed.set(index);
            }
        }
        while let Some(one) = event(next) {
            if is_for(&one, None) {
                self.event(&one.event);
            }
            next += 1;
        }
        let is_end = arrival.pause() == Some(Pause::End);
        self.release(arrival.emitted(), None, is_end);
        Ok(passed)
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let now_ns = self.is_live.then(clock::system_ns);
        self.release(emitted, now_ns, false);
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        [
            ("rewritten", self.counts.rewritten),
            ("replaced", self.counts.replaced),
            ("refused", self.counts.refused),
            ("open_flows", self.known.len() as u64),
            ("waiting_bytes", self.bytes as u64),
            ("copied_frames", self.counts.copied),
            ("let_go", self.counts.let_go),
        ]
        .map(|(name, count)| Counter::count(name, count))
        .into()
    }
}
