//! The one buffer of a file source: bytes as they are in the file, of which frames are lent in place.
//!
//! Invariant: `bytes[start..end]` is read and not yet parsed; what lies before `start` stays until the next
//! [`Buffer::fill`] needs the room. Offsets of the stream (`u64`) stay valid when bytes move. The buffer starts with 1
//! MiB and doubles only when a record does not fit, and only while bytes keep coming, so a lying length costs nothing.

use std::io::{self, ErrorKind, Read};

/// Room at the start, and so the size of one read.
const INITIAL: usize = 1 << 20;

/// Less room than this at the end: move what is kept to the front before reading.
const LOW_ROOM: usize = 1 << 16;

pub(super) struct Buffer {
    input: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the stream of `bytes[0]`.
    base: u64,
}

/// What [`Buffer::fill`] did.
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

    /// What is read and not yet parsed.
    pub(super) fn window(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Offset in the stream of the window.
    pub(super) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Marks `count` bytes of the window as parsed.
    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "parsed beyond what was read");
    }

    /// Bytes at an offset of the stream that is still kept.
    pub(super) fn slice(&self, offset: u64, len: usize) -> &[u8] {
        let at = (offset - self.base) as usize;
        &self.bytes[at..at + len]
    }

    /// The same, to be changed.
    pub(super) fn slice_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let at = (offset - self.base) as usize;
        &mut self.bytes[at..at + len]
    }

    /// Reads once. Keeps everything from stream offset `keep` on (not after the window); `want` bytes of window are
    /// wanted, which lets the buffer grow.
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

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn crowded(&self) -> bool {
        self.bytes.len() - self.end < LOW_ROOM
    }
}
