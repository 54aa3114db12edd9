//! One direction of a connection: delivered bytes, held bytes, and its end.
//!
//! Offsets count from the first byte of the direction; held pieces do not overlap each other,
//! because the policy was applied when they arrived. A segment that is next in order needs the
//! [`Head`] of its direction alone, 13 bytes, which are in the connection's first cache line; all
//! else is in the [`Rest`]. A direction that waits has a box with the held pieces besides.

mod doubts;

use super::{Counters, Handling, Policy, Segment};
use crate::overlap::Pieces;
use doubts::{Doubts, NEAR};
use fyke_frame::walk::view::tcp_flags::{ACK, FIN, PSH, RST, SYN};

/// Largest distance of a segment from the next byte: larger than any receive window in use.
const WINDOW: i64 = 1 << 26;

/// The number of the first byte is known.
const BEGUN: u8 = 1;
/// No more bytes will be delivered.
const OVER: u8 = 2;
/// The end of the direction is known.
const FINAL: u8 = 4;
/// A second SYN had another number, and the other end has not acknowledged one of them since.
const TWO: u8 = 8;
/// It waits for bytes: the rest has a box.
const LATE: u8 = 16;
/// Bytes are missing just before the next piece.
const MISSING: u8 = 32;
/// No more pieces are wanted.
const SETTLED: u8 = 64;

/// State for a segment that is next in order. Without padding: both heads share a cache line with the key.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, packed)]
pub struct Head {
    /// Offset of the next byte to deliver.
    next: u64,
    /// Sequence number of offset 0, if the direction has begun.
    base: u32,
    flags: u8,
}

/// The rest of a direction.
#[derive(Debug, Default)]
pub struct Rest {
    late: Option<Box<Late>>,
    /// Bytes missing just before the next piece.
    missing: u32,
    /// The receiver's policy.
    policy: Policy,
    /// Votes against more pieces.
    pub votes: u8,
}

/// The direction.
#[derive(Debug)]
pub struct Direction<'c> {
    head: &'c mut Head,
    rest: &'c mut Rest,
}

/// Bytes that wait for missing ones.
#[derive(Debug, Default)]
struct Late {
    held: Pieces,
    /// Offset of the end and the time at which it became known.
    fin: Option<(u64, u64)>,
    /// Offset up to which the receiver has all bytes, if that is after the next byte.
    received: u64,
    /// Time since which bytes have been missing.
    since: Option<u64>,
    /// Segments that the receiver may have refused.
    doubts: Doubts,
}

impl Late {
    /// Offset up to which bytes, or an end, would have to be skipped.
    fn next_known(&self) -> Option<u64> {
        self.held.first().or(self.fin.map(|(end, _)| end))
    }

    /// Memory in use by the estimate.
    fn memory(&self) -> usize {
        self.held.memory() + self.doubts.memory()
    }
}

/// Receives pieces: the number of missing bytes before it, its offset, and the bytes.
type On<'g> = &'g mut dyn FnMut(u64, u64, &[u8]);

impl Head {
    /// True if a byte, or the beginning, was seen.
    pub fn has_begun(self) -> bool {
        self.flags & BEGUN != 0
    }

    /// True if no more bytes will be delivered.
    pub fn is_over(self) -> bool {
        self.flags & OVER != 0
    }

    /// True if no more pieces are wanted.
    pub fn is_settled(self) -> bool {
        self.flags & SETTLED != 0
    }

    /// True if the direction waits for bytes, or knows that its receiver has more.
    pub fn is_late(self) -> bool {
        self.flags & LATE != 0
    }

    /// Wants no more pieces.
    pub fn settle(&mut self) {
        self.flags |= SETTLED;
    }

    /// True if a SYN with this number begins another stream.
    pub fn begins_elsewhere(self, sequence: u32) -> bool {
        self.has_begun() && self.base != sequence.wrapping_add(1)
    }

    /// Number of its bytes so far, missing ones included.
    pub fn end(self) -> u64 {
        self.next
    }

    /// Offset of the byte with a sequence number, if the direction has begun; negative before the first byte.
    pub fn offset_of(self, sequence: u32) -> Option<i64> {
        self.has_begun().then(|| (self.next as i64).wrapping_add(self.distance(sequence)))
    }

    /// Distance of a number from that of the next byte.
    fn distance(self, sequence: u32) -> i64 {
        let next = self.base.wrapping_add(self.next as u32);
        i64::from(sequence.wrapping_sub(next) as i32)
    }

    /// True if an acknowledgement is unusual: the receiver has bytes which are missing here, tells which SYN counts, or
    /// the number is none that a receiver gives.
    #[inline]
    pub fn learns_from(self, number: u32) -> bool {
        match self.flags & (BEGUN | OVER | TWO) {
            BEGUN => {
                let far = self.distance(number);
                far > 0 || far < self.oldest()
            }
            others => others & TWO != 0,
        }
    }

    /// Distance of the oldest number that a receiver acknowledges as a rule: the beginning. Connections that were first
    /// seen after their beginning may have more in flight.
    #[inline]
    fn oldest(self) -> i64 {
        -(self.next.clamp(1 << 20, WINDOW as u64) as i64)
    }

    /// Begins with a known number.
    pub fn begin(&mut self, sequence: u32) {
        self.base = sequence;
        self.flags |= BEGUN;
    }

    /// Takes a segment that is next in order while nothing waits and nothing is missing before it; returns its offset.
    #[inline]
    pub fn take_next(&mut self, segment: &Segment<'_>) -> Option<u64> {
        let is_next = self.flags == BEGUN
            && segment.flags & (SYN | FIN | RST | ACK) == ACK
            && segment.sequence == self.base.wrapping_add(self.next as u32)
            && segment.payload.len() == segment.payload_len as usize;
        if !is_next {
            return None;
        }
        let offset = self.next;
        self.next += u64::from(segment.payload_len);
        Some(offset)
    }
}

/// True if the first captured segment of a direction is a keep-alive: a byte before the next one, which the receiver
/// has. A byte of its own would be pushed.
fn is_keep_alive(segment: &Segment<'_>) -> bool {
    segment.payload == [0] && segment.payload_len == 1 && segment.flags & (PSH | FIN) == 0
}

impl Rest {
    /// Memory in use by the estimate.
    pub fn held_bytes(&self) -> usize {
        self.late.as_ref().map_or(0, |late| late.memory())
    }

    /// Time since which bytes have been missing.
    pub fn waits_since(&self) -> Option<u64> {
        self.late.as_ref().and_then(|late| late.since)
    }
}

impl<'c> Direction<'c> {
    /// The direction with these parts. After changes, [`note`](Self::note) has to be called.
    pub fn new(head: &'c mut Head, rest: &'c mut Rest) -> Direction<'c> {
        Direction { head, rest }
    }

    /// Writes to the head what it has to tell of the rest.
    pub fn note(&mut self) {
        let late = if self.rest.late.is_some() { LATE } else { 0 };
        let missing = if self.rest.missing > 0 { MISSING } else { 0 };
        self.head.flags = self.head.flags & !(LATE | MISSING) | late | missing;
    }

    /// True if more segments are held than `most`.
    pub fn holds_more_than(&self, most: usize) -> bool {
        self.rest.late.as_ref().is_some_and(|late| late.held.len() > most)
    }

    /// Memory in use by the estimate.
    pub fn held_bytes(&self) -> usize {
        self.rest.held_bytes()
    }

    /// Time since which bytes have been missing.
    pub fn waits_since(&self) -> Option<u64> {
        self.rest.waits_since()
    }

    /// Sets the policy of the receiver.
    pub fn set_policy(&mut self, policy: Policy) {
        self.rest.policy = policy;
    }

    /// True if the receiver accepts a reset with this number.
    pub fn accepts_reset(&self, sequence: u32) -> bool {
        if !self.head.has_begun() {
            return true;
        }
        let far = self.head.distance(sequence);
        // After a FIN, the number of the FIN is valid too.
        self.rest.policy.believes_reset(far) || (self.head.flags & FINAL != 0 && far == 1)
    }

    /// Takes the number of the next byte that the receiver expects; true if it has bytes that are missing here while
    /// others wait for them.
    #[inline]
    pub fn acknowledge(&mut self, number: u32) -> bool {
        if self.head.flags & (BEGUN | OVER | TWO) != BEGUN {
            self.believe(number);
            return false;
        }
        let far = self.head.distance(number);
        let is_far = far > WINDOW || far < self.head.oldest();
        let agrees = is_far && self.note_far_acknowledgement(number);
        // Of the last held bytes, the end is beyond the window.
        let skips = (1..=WINDOW + NEAR).contains(&far) && self.note_received(far);
        agrees || skips
    }

    /// Of two SYNs with different numbers, the receiver knows which one counts.
    fn believe(&mut self, number: u32) {
        if self.head.flags & TWO != 0 && self.head.next == 0 && self.rest.late.is_none() {
            self.head.base = number;
        }
        self.head.flags &= !TWO;
    }

    fn note_received(&mut self, far: i64) -> bool {
        let late = self.rest.late.get_or_insert_default();
        late.received = late.received.max(self.head.next + far as u64);
        late.since.is_some()
    }

    /// Skips missing bytes that the receiver has: the capture lacks them, and the sender will not repeat them.
    pub fn skip_received(&mut self, now_ns: u64, counters: &mut Counters, on: On<'_>) {
        self.resume(now_ns, counters, on);
        while let Some(late) = &mut self.rest.late {
            let (received, passed) = (late.received, self.head.next);
            if received > passed && late.admit(received) {
                self.drain(on);
                self.judge(now_ns, passed, counters);
            } else if late.next_known().is_some_and(|to| to <= received) {
                self.skip(now_ns, counters, on);
            } else {
                return;
            }
        }
    }

    /// Takes a segment: bytes in order are delivered, the rest is held.
    pub fn take(
        &mut self,
        segment: &Segment<'_>,
        now_ns: u64,
        handling: &Handling,
        counters: &mut Counters,
        on: On<'_>,
    ) {
        let syn = segment.flags & SYN != 0;
        let sequence = segment.sequence.wrapping_add(u32::from(syn));
        let len = u64::from(segment.payload_len);
        if self.head.is_over() {
            // Bytes after the end are new ones, which no receiver reads.
            let before = u64::try_from(-self.head.distance(sequence)).unwrap_or(0).min(len);
            counters.repeated_bytes += before;
            counters.dropped_bytes += len - before;
            return;
        }
        if !(syn || len > 0 || segment.flags & FIN != 0) {
            self.note_sent(segment.sequence);
            return;
        }
        if !self.head.has_begun() {
            let before = !syn && is_keep_alive(segment);
            self.head.begin(sequence.wrapping_add(u32::from(before)));
        }
        if syn && self.head.next == 0 && sequence != self.head.base {
            self.head.flags |= TWO;
        }
        let far = self.head.distance(sequence);
        if !(-WINDOW..=WINDOW).contains(&far) {
            counters.outside += 1;
            self.note_far(segment);
            self.resume(now_ns, counters, on);
            return;
        }
        // Bytes before the next one were delivered already, or are before the beginning.
        let before = u64::try_from(-far).unwrap_or(0);
        let repeated = before.min(len);
        counters.repeated_bytes += repeated;
        let start = self.head.next + u64::try_from(far).unwrap_or(0);
        let bytes = segment.payload.get(repeated as usize..).unwrap_or_default();
        let rest = len - repeated;
        if segment.flags & FIN != 0 && before <= len && self.head.flags & FINAL == 0 {
            self.head.flags |= FINAL;
            self.rest.late.get_or_insert_default().fin = Some((start + rest, now_ns));
        }
        let passed = self.head.next;
        if rest > 0 {
            self.bytes(start, (bytes, rest), now_ns, handling, counters, on);
        }
        self.drain(on);
        self.judge(now_ns, passed, counters);
        self.skip_received(now_ns, counters, on);
    }

    /// Takes new bytes from `start` on; `len` bytes were on the wire, the last may not be captured.
    fn bytes(
        &mut self,
        start: u64,
        (bytes, len): (&[u8], u64),
        now_ns: u64,
        handling: &Handling,
        counters: &mut Counters,
        on: On<'_>,
    ) {
        let end = start + len;
        let first = self.rest.late.as_ref().and_then(|late| late.held.first());
        let touches = first.is_some_and(|first| first < end);
        if start > self.head.next || touches {
            if start > self.head.next && handling.contiguous && !self.continues(start, handling) {
                counters.refused += 1;
                return;
            }
            self.hold(start, bytes, now_ns, counters);
            return;
        }
        self.give(bytes, on);
        let cut = len - bytes.len() as u64;
        if cut > 0 {
            self.lose(cut, counters);
        }
    }

    /// True if nothing is held, or if `start` follows the held bytes and there is room for a segment.
    fn continues(&self, start: u64, handling: &Handling) -> bool {
        let Some(late) = &self.rest.late else { return true };
        late.held.end().is_none_or(|end| end == start)
            && late.held.len() < handling.direction_segments
    }

    fn give(&mut self, bytes: &[u8], on: On<'_>) {
        if !bytes.is_empty() {
            on(std::mem::take(&mut self.rest.missing).into(), self.head.next, bytes);
            self.head.next += bytes.len() as u64;
        }
    }

    fn lose(&mut self, count: u64, counters: &mut Counters) {
        counters.gaps += 1;
        counters.missing_bytes += count;
        self.rest.missing =
            self.rest.missing.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        self.head.next += count;
    }

    /// Holds bytes; where they overlap held bytes, one copy is dropped.
    fn hold(&mut self, start: u64, bytes: &[u8], now_ns: u64, counters: &mut Counters) {
        counters.copied_bytes += bytes.len() as u64;
        let (policy, late) = (self.rest.policy, self.rest.late.get_or_insert_default());
        let prefers = |new, old| policy.prefers_new(new, old);
        let overlap = late.held.insert(start, bytes, now_ns, prefers);
        counters.repeated_bytes += overlap.repeated;
        counters.contradicting_bytes += overlap.contradicting;
    }

    /// Delivers held bytes that are in order.
    fn drain(&mut self, on: On<'_>) {
        while let Some(late) = &mut self.rest.late
            && let Some(at) = late.held.first()
            && at <= self.head.next
            && let Some(bytes) = late.held.take(at)
        {
            let known = (self.head.next - at) as usize;
            self.give(bytes.get(known..).unwrap_or_default(), on);
        }
    }

    /// Updates whether bytes are missing, and whether this is the end; `passed` is the previous
    /// value of `next`.
    fn judge(&mut self, now_ns: u64, passed: u64, counters: &mut Counters) {
        let next = self.head.next;
        let Some(late) = &mut self.rest.late else { return };
        if late.fin.is_some() {
            self.head.flags |= FINAL;
        }
        if late.fin.is_some_and(|(end, _)| next >= end) {
            self.head.flags |= OVER;
            // Bytes held after the end are dropped.
            counters.dropped_bytes += self.abandon();
            return;
        }
        if next != passed {
            counters.repeated_bytes += late.doubts.pass(next);
        }
        if late.held.is_empty() && late.fin.is_none() && !late.doubts.wait() {
            late.since = None;
            if late.received <= next && late.doubts.are_over(next) {
                self.rest.late = None;
            }
            return;
        }
        // The bytes before the first one that waits have been missing since it arrived, not since the gap before.
        let time_ns = late.held.first_time_ns().or(late.fin.map(|(_, time_ns)| time_ns));
        let time_ns = time_ns.or(late.doubts.time_ns());
        late.since = late.since.filter(|_| next == passed).or(time_ns).or(Some(now_ns));
    }

    /// Skips the bytes that are missing before the first held piece, or before the end.
    pub fn skip(&mut self, now_ns: u64, counters: &mut Counters, on: On<'_>) {
        let Some(late) = &mut self.rest.late else { return };
        late.admit(late.next_known().unwrap_or(u64::MAX));
        let Some(to) = late.next_known() else {
            self.rest.late = None;
            return;
        };
        let passed = self.head.next;
        if to > passed {
            self.lose(to - passed, counters);
        }
        self.drain(on);
        self.judge(now_ns, passed, counters);
    }

    /// Ends the direction and drops the held bytes; returns their number.
    pub fn abandon(&mut self) -> u64 {
        self.head.flags |= OVER;
        let late = self.rest.late.take();
        late.map_or(0, |late| late.held.byte_count() + late.doubts.byte_count())
    }

    /// Drops the held bytes and waits for nothing; returns their number. The direction has not ended.
    pub fn forget(&mut self) -> u64 {
        let is_over = self.head.is_over();
        let dropped = self.abandon();
        if !is_over {
            self.head.flags &= !OVER;
        }
        dropped
    }
}
