//! The buffer of a file source: bytes of the file, from which frames are lent in place.
//!
//! Invariant: `bytes[start..end]` is read and not yet parsed; bytes before `start` stay until the next
//! [`Buffer::fill`] needs the space. Offsets in the stream (`u64`) stay valid when bytes move. The buffer starts with
//! 1 MiB. It doubles only if a record does not fit, and only while bytes arrive, so a wrong length field costs
//! nothing.

use std::io::{self, ErrorKind, Read};

/// Initial size of the buffer, and so the size of one read.
const INITIAL: usize = 1 << 20;

/// If less space than this is left at the end, kept bytes are moved to the front before reading.
const LOW_ROOM: usize = 1 << 16;

pub(super) struct Buffer {
    input: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the stream of `bytes[0]`.
    base: u64,
}

/// Result of [`Buffer::fill`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fill {
    More,
    Idle,
    End,
}

impl Buffer {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Buffer { input, bytes: vec![0; INITIAL], start: 0, end: 0, base: 0 }
    }

    /// Bytes that are read and not yet parsed.
    pub(super) fn unparsed(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Offset of the unparsed bytes in the stream.
    pub(super) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Marks the next `count` bytes as parsed.
    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "parsed beyond what was read");
    }

    /// Bytes at a stream offset that is still kept.
    pub(super) fn slice(&self, offset: u64, len: usize) -> &[u8] {
        let at = (offset - self.base) as usize;
        &self.bytes[at..at + len]
    }

    /// The same bytes, mutable.
    pub(super) fn slice_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let at = (offset - self.base) as usize;
        &mut self.bytes[at..at + len]
    }

    /// Reads once. Keeps all bytes from stream offset `keep` on, and all unparsed ones. `want` is the number of
    /// unparsed bytes that the caller needs; the buffer grows if necessary.
    pub(super) fn fill(&mut self, keep: u64, want: usize) -> io::Result<Fill> {
        let kept = (keep.saturating_sub(self.base) as usize).min(self.start);
        if kept > 0 && self.bytes.len() - self.end < LOW_ROOM {
            self.bytes.copy_within(kept..self.end, 0);
            self.base += kept as u64;
            self.start -= kept;
            self.end -= kept;
        }
        if self.end == self.bytes.len() || want > self.bytes.len() - self.start && self.crowded() {
            let larger = self.bytes.len() * 2;
            self.bytes.resize(larger, 0);
        }
        loop {
            match self.input.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Ok(Fill::End),
                Ok(count) => {
                    self.end += count;
                    return Ok(Fill::More);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Fill::Idle),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Size of the buffer in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn crowded(&self) -> bool {
        self.bytes.len() - self.end < LOW_ROOM
    }
}
