//! Bytes at offsets that do not overlap each other: where new ones overlap old ones, a policy decides which are kept.
//!
//! Used for segments of a stream and for fragments of a packet. Memory: the bytes and an estimate for each piece.
//! Cost: O(log n) per piece, and a copy of its bytes.

use std::collections::BTreeMap;

/// Memory of a piece besides its bytes (an upper estimate).
const OVERHEAD_BYTES: usize = 72;

/// Bytes in a row, and the time of their arrival.
#[derive(Debug)]
struct Piece {
    bytes: Box<[u8]>,
    time_ns: u64,
}

/// The bytes.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: BTreeMap<u64, Piece>,
    bytes: usize,
}

/// Bytes of a piece that were there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub repeated: u64,
    /// Part of `repeated` with other values.
    pub contradicting: u64,
}

/// First offset and end.
pub(crate) type Range = (u64, u64);

impl Pieces {
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Memory by the estimate.
    pub fn memory(&self) -> usize {
        self.bytes + self.pieces.len() * OVERHEAD_BYTES
    }

    /// Number of bytes.
    pub fn byte_count(&self) -> u64 {
        self.bytes as u64
    }

    /// Offset of the first byte.
    pub fn first(&self) -> Option<u64> {
        self.pieces.first_key_value().map(|(&at, _)| at)
    }

    /// Offset after the last byte.
    pub fn end(&self) -> Option<u64> {
        self.pieces.last_key_value().map(|(at, piece)| at + piece.bytes.len() as u64)
    }

    /// Time at which the first piece arrived.
    pub fn first_time_ns(&self) -> Option<u64> {
        self.pieces.first_key_value().map(|(_, piece)| piece.time_ns)
    }

    /// Removes the piece at an offset.
    pub fn take(&mut self, at: u64) -> Option<Box<[u8]>> {
        self.remove(at).map(|piece| piece.bytes)
    }

    fn remove(&mut self, at: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&at)?;
        self.bytes -= piece.bytes.len();
        Some(piece)
    }

    fn put(&mut self, at: u64, bytes: &[u8], time_ns: u64) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.pieces.insert(at, Piece { bytes: bytes.into(), time_ns });
        }
    }

    /// Adds bytes that arrived at a time; where they overlap others, `prefers_new` gets both ranges and decides.
    pub fn insert(
        &mut self,
        start: u64,
        bytes: &[u8],
        time_ns: u64,
        prefers_new: impl Fn(Range, Range) -> bool,
    ) -> Overlap {
        let end = start + bytes.len() as u64;
        let before = self.pieces.range(..start).next_back();
        let from =
            before.filter(|(at, old)| *at + old.bytes.len() as u64 > start).map(|(&at, _)| at);
        let within = self.pieces.range(start..end).map(|(&at, _)| at);
        let overlapping: Vec<u64> = from.into_iter().chain(within).collect();
        let mut overlap = Overlap::default();
        let mut at = start;
        for old_start in overlapping {
            let Some(Piece { bytes: old, time_ns: old_ns }) = self.remove(old_start) else {
                continue;
            };
            let old_end = old_start + old.len() as u64;
            let (low, high) = (start.max(old_start), end.min(old_end));
            let same = bytes[(low - start) as usize..(high - start) as usize]
                .iter()
                .zip(&old[(low - old_start) as usize..]);
            overlap.repeated += high - low;
            overlap.contradicting += same.filter(|(new, old)| new != old).count() as u64;
            if prefers_new((start, end), (old_start, old_end)) {
                self.put(old_start, &old[..(low - old_start) as usize], old_ns);
                self.put(high, &old[(high - old_start) as usize..], old_ns);
            } else {
                if old_start > at {
                    let new = &bytes[(at - start) as usize..(old_start - start) as usize];
                    self.put(at, new, time_ns);
                }
                self.put(old_start, &old, old_ns);
                at = at.max(old_end);
            }
        }
        if at < end {
            self.put(at, &bytes[(at - start) as usize..], time_ns);
        }
        overlap
    }

    /// Number of bytes that are there with another value.
    pub fn contradicting(&self, start: u64, bytes: &[u8]) -> u64 {
        let end = start + bytes.len() as u64;
        let mut count = 0;
        for (&at, piece) in self.pieces.range(..end).rev() {
            let piece_end = at + piece.bytes.len() as u64;
            if piece_end <= start {
                break;
            }
            let (low, high) = (at.max(start), piece_end.min(end));
            let new = &bytes[(low - start) as usize..(high - start) as usize];
            let old = &piece.bytes[(low - at) as usize..];
            count += new.iter().zip(old).filter(|(new, old)| new != old).count() as u64;
        }
        count
    }

    /// Moves the pieces that begin before an offset to others, which keep their own bytes; true if there are any.
    pub fn move_before(&mut self, limit: u64, to: &mut Pieces) -> bool {
        let mut has_moved = false;
        while let Some(at) = self.first().filter(|at| *at < limit)
            && let Some(Piece { bytes, time_ns }) = self.remove(at)
        {
            to.insert(at, &bytes, time_ns, |_, _| false);
            has_moved = true;
        }
        has_moved
    }

    /// Removes the pieces that end at an offset or before it; returns their number of bytes.
    pub fn drop_before(&mut self, limit: u64) -> u64 {
        let mut dropped = 0;
        while let Some((&at, piece)) = self.pieces.first_key_value()
            && at + piece.bytes.len() as u64 <= limit
        {
            dropped += piece.bytes.len() as u64;
            self.remove(at);
        }
        dropped
    }

    /// Appends all bytes from offset 0 to `len` if none is missing; false else.
    pub fn join(&self, len: u64, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        for (&at, Piece { bytes, .. }) in &self.pieces {
            if at != (out.len() - start) as u64 {
                break;
            }
            out.extend_from_slice(bytes);
        }
        if ((out.len() - start) as u64) < len {
            out.truncate(start);
            return false;
        }
        out.truncate(start + len as usize);
        true
    }
}
