//! The reassembler of smoltcp as a peer: its list of ranges and its ring buffer, used as its TCP socket uses them.
//!
//! smoltcp is an end of connections, so it has no table of them and never gives up a gap. A map of the standard library
//! finds the direction, and a gap is skipped under the same condition as in the [textbook's](super::textbook) way.
//! Segments that are next in order are passed on without a copy, and a direction has a buffer only while it waits;
//! smoltcp's socket does neither. The list has at most 32 ranges (its default is four) and the buffer a size; a gap
//! is also skipped if a segment does not fit them, which its socket would drop.

use super::textbook::HELD;
use fyke_flow::streams::Segment;
use fyke_frame::walk::view::tcp_flags::SYN;
use smoltcp::storage::{Assembler, RingBuffer};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Bytes of a buffer: a direction holds [`HELD`] at most, and the bytes that are missing before them.
const BUFFER: usize = 4 * HELD;

struct Late {
    ranges: Assembler,
    buffer: RingBuffer<'static, u8>,
    /// Held segments: offset in the stream and length.
    held: Vec<(u64, usize)>,
}

impl Late {
    /// Held bytes, with 64 for each segment.
    fn held_bytes(&self) -> usize {
        self.held.iter().map(|(_, len)| len + 64).sum()
    }
}

#[derive(Default)]
struct Side {
    base: Option<u32>,
    next: u64,
    late: Option<Box<Late>>,
    missing: u64,
}

/// All connections.
#[derive(Default)]
pub struct Smoltcp {
    connections: HashMap<(SocketAddr, SocketAddr), [Side; 2]>,
}

/// Receives bytes, with the number of those missing before them.
type Give<'g> = &'g mut dyn FnMut(u64, &[u8]);

impl Smoltcp {
    /// Takes a segment; bytes that are now in order are passed to `give`.
    pub fn segment(&mut self, segment: &Segment<'_>, give: Give<'_>) {
        let is_low = segment.source <= segment.destination;
        let (low, high) = match is_low {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let sides = self.connections.entry((low, high)).or_default();
        sides[usize::from(!is_low)].take(segment, give);
    }
}

impl Side {
    fn take(&mut self, segment: &Segment<'_>, give: Give<'_>) {
        let syn = u32::from(segment.flags & SYN != 0);
        let sequence = segment.sequence.wrapping_add(syn);
        if segment.payload.is_empty() && syn == 0 {
            return;
        }
        let base = *self.base.get_or_insert(sequence);
        let next = base.wrapping_add(self.next as u32);
        let far = i64::from(sequence.wrapping_sub(next) as i32);
        let known = usize::try_from(-far).unwrap_or(0);
        let bytes = segment.payload.get(known..).unwrap_or_default();
        let start = self.next + u64::try_from(far).unwrap_or(0);
        if bytes.is_empty() || (self.late.is_none() && start == self.next) {
            return self.give(bytes, give);
        }
        self.hold(start, bytes, give);
        self.drain(0, give);
        while self.late.as_ref().is_some_and(|late| late.held_bytes() > HELD) {
            self.skip(give);
        }
    }

    /// Holds bytes; gaps before them are skipped until they fit.
    fn hold(&mut self, start: u64, bytes: &[u8], give: Give<'_>) {
        loop {
            let late = self.late.get_or_insert_with(|| {
                let buffer = RingBuffer::new(vec![0; BUFFER]);
                Box::new(Late { ranges: Assembler::new(), buffer, held: Vec::new() })
            });
            let offset = start.saturating_sub(self.next) as usize;
            if offset + bytes.len() <= BUFFER && late.ranges.add(offset, bytes.len()).is_ok() {
                let _whole = late.buffer.write_unallocated(offset, bytes);
                if offset > 0 {
                    late.held.push((start, bytes.len()));
                }
                return;
            }
            if late.ranges.is_empty() {
                self.late = None;
                self.missing += start - self.next;
                self.next = start;
                return self.give(bytes, give);
            }
            self.skip(give);
        }
    }

    /// Skips the gap before the first range: the missing bytes count as received, and are left out.
    fn skip(&mut self, give: Give<'_>) {
        let Some(late) = &mut self.late else { return };
        let hole = late.ranges.iter_data().next().map_or(0, |(start, _)| start);
        if late.ranges.add(0, hole).is_ok() {
            self.drain(hole, give);
        }
    }

    fn give(&mut self, bytes: &[u8], give: Give<'_>) {
        if !bytes.is_empty() {
            give(std::mem::take(&mut self.missing), bytes);
            self.next += bytes.len() as u64;
        }
    }

    /// Passes on the first range if it is next in order, without its first `missing` bytes.
    fn drain(&mut self, missing: usize, give: Give<'_>) {
        let Some(mut late) = self.late.take() else { return };
        late.buffer.enqueue_unallocated(late.ranges.remove_front());
        late.buffer.dequeue_allocated(missing);
        self.missing += missing as u64;
        self.next += missing as u64;
        while !late.buffer.is_empty() {
            late.buffer.dequeue_many_with(|bytes| (bytes.len(), self.give(bytes, give)));
        }
        late.held.retain(|(at, _)| *at >= self.next);
        if !late.ranges.is_empty() {
            self.late = Some(late);
        }
    }
}
