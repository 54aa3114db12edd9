//! A reassembler as in textbooks: a hash map of connections, a tree of early segments per direction.
//!
//! It has what the bench needs: order, gaps that are skipped when a direction holds too much, no overlaps of held
//! segments with other contents, no ends, no limits of memory.

use fyke_flow::streams::Segment;
use fyke_frame::walk::view::tcp_flags::SYN;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// Most bytes that a direction holds, with 64 for each segment.
pub const HELD: usize = 16 << 10;

#[derive(Debug, Default)]
struct Side {
    base: Option<u32>,
    next: u64,
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
    missing: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Textbook {
    connections: HashMap<(SocketAddr, SocketAddr), [Side; 2]>,
}

/// Receives bytes, with the number of those missing before them.
type Give<'g> = &'g mut dyn FnMut(u64, &[u8]);

impl Textbook {
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
        if start > self.next {
            if !bytes.is_empty() && !self.held.contains_key(&start) {
                self.held_bytes += bytes.len() + 64;
                self.held.insert(start, bytes.to_vec());
            }
        } else {
            self.give(bytes, give);
        }
        self.drain(give);
        while self.held_bytes > HELD
            && let Some((&first, _)) = self.held.first_key_value()
        {
            self.missing += first - self.next;
            self.next = first;
            self.drain(give);
        }
    }

    fn give(&mut self, bytes: &[u8], give: Give<'_>) {
        if !bytes.is_empty() {
            give(std::mem::take(&mut self.missing), bytes);
            self.next += bytes.len() as u64;
        }
    }

    fn drain(&mut self, give: Give<'_>) {
        while let Some((&at, _)) = self.held.first_key_value()
            && at <= self.next
            && let Some(bytes) = self.held.remove(&at)
        {
            self.held_bytes -= bytes.len() + 64;
            self.give(bytes.get((self.next - at) as usize..).unwrap_or_default(), give);
        }
    }
}
