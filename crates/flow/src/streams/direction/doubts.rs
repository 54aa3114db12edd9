//! Segments that the receiver may have refused, until something decides about them.
//!
//! | segment | counts if |
//! |---|---|
//! | its bytes are next, and it acknowledges what was never sent | the receiver acknowledges it, and none better came |
//! | its number is far away | an acknowledgement of the receiver is near it: the capture lacks all bytes between |
//! | SYN with another number | the other end answers it (`open` begins a new connection) |
//!
//! Bytes that are next in order decide that a far number and another SYN were none of this connection.

use super::super::{Counters, Segment};
use super::{BEGUN, Direction, FINAL, Late, OVER, On, Rest, TWO, WINDOW};
use crate::overlap::Pieces;
use fyke_frame::walk::view::tcp_flags::FIN;

/// Largest distance between a far segment and an acknowledgement that agrees with it.
pub(super) const NEAR: i64 = 1 << 24;

/// A segment far away from the next byte.
#[derive(Debug)]
struct Far {
    sequence: u32,
    bytes: Box<[u8]>,
    len: u32,
}

/// The segments.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    held: Pieces,
    fin: Option<(u64, u64)>,
    /// Offset up to which the sender has sent, by the numbers of its segments without bytes.
    sent: u64,
    far: Option<Far>,
    /// The receiver's acknowledgement of bytes far away.
    far_acknowledged: Option<u32>,
    /// Number of the first byte after a SYN that begins elsewhere.
    rival: Option<u32>,
}

impl Doubts {
    /// Memory in use by the estimate.
    pub fn memory(&self) -> usize {
        self.held.memory() + self.far.as_ref().map_or(0, |far| far.bytes.len())
    }

    /// Number of bytes that may be next.
    pub fn byte_count(&self) -> u64 {
        self.held.byte_count()
    }

    /// True if there are bytes, or an end, that may be next.
    pub fn wait(&self) -> bool {
        !self.held.is_empty() || self.fin.is_some()
    }

    /// True if there is nothing to decide when the next byte is at an offset.
    pub fn are_over(&self, next: u64) -> bool {
        !self.wait()
            && self.sent <= next
            && self.far.is_none()
            && self.far_acknowledged.is_none()
            && self.rival.is_none()
    }

    /// Time of the first bytes or of the end.
    pub fn time_ns(&self) -> Option<u64> {
        self.held.first_time_ns().or(self.fin.map(|(_, time_ns)| time_ns))
    }

    /// Decides against what contradicts delivered bytes, which end at an offset now; returns the number of bytes that
    /// were dropped.
    pub fn pass(&mut self, next: u64) -> u64 {
        (self.far, self.far_acknowledged, self.rival) = (None, None, None);
        self.fin = self.fin.filter(|(end, _)| *end >= next);
        self.held.drop_before(next)
    }

    /// True if an acknowledgement of the receiver is near the far segment.
    fn agree(&self) -> bool {
        let (Some(far), Some(number)) = (&self.far, self.far_acknowledged) else { return false };
        let apart = number.wrapping_sub(far.sequence.wrapping_add(far.len)) as i32;
        (-NEAR..=NEAR).contains(&i64::from(apart))
    }
}

impl Late {
    /// Takes doubtful bytes before an offset as others, where there are no better ones; false if there are none.
    pub(super) fn admit(&mut self, limit: u64) -> bool {
        let has_bytes = self.doubts.held.move_before(limit, &mut self.held);
        let fin = self.doubts.fin.filter(|(end, _)| *end < limit && self.fin.is_none());
        if fin.is_some() {
            (self.fin, self.doubts.fin) = (fin, None);
        }
        has_bytes || fin.is_some()
    }

    /// Offset up to which the sender is known to have sent, its end included.
    fn sent(&self) -> u64 {
        let fin = self.fin.or(self.doubts.fin).map_or(0, |(end, _)| end + 1);
        let held = self.held.end().max(self.doubts.held.end()).unwrap_or(0);
        fin.max(held).max(self.doubts.sent)
    }
}

impl Rest {
    /// Number of the first byte after a SYN that the other end has not answered.
    pub fn rival(&self) -> Option<u32> {
        self.late.as_ref().and_then(|late| late.doubts.rival)
    }
}

impl Direction<'_> {
    /// Takes an acknowledgement that may be wrong; true if it is of bytes far away, and a segment agrees with it.
    pub fn hears_far(&mut self, number: u32) -> bool {
        let far = self.head.distance(number);
        (far > WINDOW || far < self.head.oldest()) && self.note_far_acknowledgement(number)
    }

    /// Keeps the number of a SYN until the other end answers it.
    pub fn note_rival(&mut self, sequence: u32) {
        self.rest.late.get_or_insert_default().doubts.rival = Some(sequence.wrapping_add(1));
    }

    /// True if an acknowledgement is of bytes that were never sent. An old one is none: Linux reads what comes with it.
    pub fn never_sent(&self, number: u32) -> bool {
        if self.head.flags & (BEGUN | OVER | TWO) != BEGUN {
            return false;
        }
        let far = self.head.distance(number);
        let sent = self.rest.late.as_ref().map_or(0, |late| late.sent());
        far > 0 && self.head.next.saturating_add_signed(far) > sent
    }

    /// Keeps the number of a segment without bytes.
    pub(super) fn note_sent(&mut self, sequence: u32) {
        if self.head.flags & (BEGUN | TWO) != BEGUN {
            return;
        }
        let far = self.head.distance(sequence);
        if (1..=WINDOW).contains(&far) {
            let doubts = &mut self.rest.late.get_or_insert_default().doubts;
            doubts.sent = doubts.sent.max(self.head.next + far as u64);
        }
    }

    /// Keeps a segment far away, if it has bytes.
    pub(super) fn note_far(&mut self, segment: &Segment<'_>) {
        if segment.payload_len > 0 {
            let doubts = &mut self.rest.late.get_or_insert_default().doubts;
            doubts.far = Some(Far {
                sequence: segment.sequence,
                bytes: segment.payload.into(),
                len: segment.payload_len,
            });
        }
    }

    /// Keeps an acknowledgement of bytes far away; true if a segment agrees with it.
    pub(super) fn note_far_acknowledgement(&mut self, number: u32) -> bool {
        let doubts = &mut self.rest.late.get_or_insert_default().doubts;
        doubts.far_acknowledged = Some(number);
        doubts.agree()
    }

    /// Continues at a far segment if the receiver acknowledges such bytes: all before them are missing.
    pub(super) fn resume(&mut self, now_ns: u64, counters: &mut Counters, on: On<'_>) {
        let agreed = |late: &mut Box<Late>| match late.doubts.agree() {
            true => late.doubts.far.take(),
            false => None,
        };
        let Some(far) = self.rest.late.as_mut().and_then(agreed) else { return };
        while self.waits_since().is_some() {
            self.skip(now_ns, counters, on);
        }
        if self.head.is_over() {
            return;
        }
        let passed = self.head.next;
        let at = self.head.base.wrapping_add(passed as u32);
        let mut gap = far.sequence.wrapping_sub(at);
        if gap > i32::MAX as u32 {
            // It may be a step back as well, of another connection: the size is unknown, and it counts as one byte.
            gap = 1;
            self.head.base = far.sequence.wrapping_sub(passed as u32).wrapping_sub(gap);
        }
        self.lose(u64::from(gap), counters);
        self.give(&far.bytes, on);
        if let Some(cut @ 1..) = u64::from(far.len).checked_sub(far.bytes.len() as u64) {
            self.lose(cut, counters);
        }
        self.judge(now_ns, passed, counters);
    }

    /// Sets a segment aside that the receiver refuses if its acknowledgement is wrong, as it seems to be.
    pub fn set_aside(&mut self, segment: &Segment<'_>, now_ns: u64, counters: &mut Counters) {
        let len = u64::from(segment.payload_len);
        counters.doubtful += 1;
        if self.head.is_over() {
            counters.dropped_bytes += len;
            return;
        }
        let far = self.head.distance(segment.sequence);
        if !(-WINDOW..=WINDOW).contains(&far) {
            counters.outside += 1;
            self.note_far(segment);
            return;
        }
        let repeated = u64::try_from(-far).unwrap_or(0).min(len);
        counters.repeated_bytes += repeated;
        let start = self.head.next + u64::try_from(far).unwrap_or(0);
        let bytes = segment.payload.get(repeated as usize..).unwrap_or_default();
        let late = self.rest.late.get_or_insert_default();
        counters.copied_bytes += bytes.len() as u64;
        let overlap = late.doubts.held.insert(start, bytes, now_ns, |_, _| false);
        counters.repeated_bytes += overlap.repeated;
        if segment.flags & FIN != 0 && self.head.flags & FINAL == 0 {
            late.doubts.fin.get_or_insert((start + len - repeated, now_ns));
        }
        if late.doubts.wait() {
            late.since.get_or_insert(now_ns);
        }
    }
}
