//! The buffer of a file source: bytes of the file, from which frames are lent in place.
//!
//! Invariant: `bytes[start..end]` is read and not yet parsed; bytes from `origin` to `start` stay until the next
//! [`Buffer::fill`] needs the space. Offsets in the stream (`u64`) stay valid when bytes move. The buffer starts with
//! 256 KiB. It doubles only if a record does not fit, and only while bytes arrive, so a wrong length field costs
//! nothing. Once blocks are [read ahead](super::ahead), each becomes the buffer in turn, after the bytes that are kept
//! have been copied into the room before it.

use super::ahead::{Ahead, Block, Got, ROOM};
use super::input::Input;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Initial size of the buffer, and so the size of one read.
const INITIAL: usize = 1 << 18;

/// If less space than this is left at the end, kept bytes are moved to the front before reading.
const LOW_ROOM: usize = 1 << 16;

pub(super) struct Buffer {
    input: Source,
    bytes: Vec<u8>,
    origin: usize,
    start: usize,
    end: usize,
    /// Offset in the stream of `bytes[origin]`.
    base: u64,
}

/// Origin of the bytes.
enum Source {
    Direct(Input),
    Ahead(Ahead),
    Gone,
}

/// Result of [`Buffer::fill`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fill {
    More,
    Idle,
    End,
}

impl Buffer {
    pub(super) fn new(input: Input) -> Self {
        let input = Source::Direct(input);
        Buffer { input, bytes: vec![0; INITIAL], origin: 0, start: 0, end: 0, base: 0 }
    }

    /// Reads ahead from now on, if the input allows it. Starts a thread.
    pub(super) fn read_ahead(&mut self) {
        let read = self.base + (self.end - self.origin) as u64;
        self.input = match std::mem::replace(&mut self.input, Source::Gone) {
            Source::Direct(Input::File { file, start }) => {
                Source::Ahead(Ahead::of_file(file, start + read))
            }
            Source::Direct(Input::Packed(reader)) => match Ahead::of_reader(reader) {
                Ok(ahead) => Source::Ahead(ahead),
                Err(reader) => Source::Direct(Input::Packed(reader)),
            },
            other => other,
        };
    }

    /// Frees the memory and the input; there is nothing more to read.
    pub(super) fn close(&mut self) {
        self.base = self.position();
        (self.input, self.bytes) = (Source::Gone, Vec::new());
        (self.origin, self.start, self.end) = (0, 0, 0);
    }

    /// Bytes that are read and not yet parsed.
    pub(super) fn unparsed(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Offset of the unparsed bytes in the stream.
    pub(super) fn position(&self) -> u64 {
        self.base + (self.start - self.origin) as u64
    }

    /// Marks the next `count` bytes as parsed.
    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "parsed beyond what was read");
    }

    /// Bytes at a stream offset that is still kept.
    pub(super) fn slice(&self, offset: u64, len: usize) -> &[u8] {
        let at = (offset - self.base) as usize + self.origin;
        &self.bytes[at..at + len]
    }

    /// All bytes that have been read, from a stream offset that is still kept.
    pub(super) fn from(&self, offset: u64) -> &[u8] {
        &self.bytes[(offset - self.base) as usize + self.origin..self.end]
    }

    /// Some bytes, mutable.
    pub(super) fn slice_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let at = (offset - self.base) as usize + self.origin;
        &mut self.bytes[at..at + len]
    }

    /// Reads once. Keeps all bytes from stream offset `keep` on, and all unparsed ones. `want` is the number of
    /// unparsed bytes that the caller needs; the buffer grows if necessary. Waits at most `patience` for blocks of a
    /// reader that are read ahead.
    pub(super) fn fill(&mut self, keep: u64, want: usize, patience: Duration) -> io::Result<Fill> {
        let kept = self.origin + keep.saturating_sub(self.base) as usize;
        let kept = kept.min(self.start);
        let got = match &mut self.input {
            Source::Ahead(ahead) => ahead.next(patience)?,
            _ => return self.fill_directly(kept, want),
        };
        match got {
            Got::Block(block) => self.adopt(kept, block),
            Got::Idle => return Ok(Fill::Idle),
            Got::End => return Ok(Fill::End),
        }
        Ok(Fill::More)
    }

    fn fill_directly(&mut self, kept: usize, want: usize) -> io::Result<Fill> {
        if kept > 0 && self.bytes.len() - self.end < LOW_ROOM {
            self.move_to_front(kept);
        }
        if self.end == self.bytes.len() || want > self.bytes.len() - self.start && self.crowded() {
            let larger = self.bytes.len() * 2;
            self.bytes.resize(larger, 0);
        }
        let offset = self.base + (self.end - self.origin) as u64;
        loop {
            let free = &mut self.bytes[self.end..];
            let read = match &mut self.input {
                Source::Direct(Input::File { file, start }) => file.read_at(free, *start + offset),
                Source::Direct(Input::Stream(reader) | Input::Packed(reader)) => reader.read(free),
                Source::Ahead(_) | Source::Gone => Ok(0),
            };
            match read {
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

    /// Continues with a block, after the bytes from `kept` on.
    fn adopt(&mut self, kept: usize, mut block: Block) {
        let rest = self.end - kept;
        let returned = if rest <= ROOM {
            let origin = ROOM - rest;
            block.bytes[origin..ROOM].copy_from_slice(&self.bytes[kept..self.end]);
            self.base += (kept - self.origin) as u64;
            self.start = origin + (self.start - kept);
            (self.origin, self.end) = (origin, ROOM + block.len);
            std::mem::replace(&mut self.bytes, block.bytes)
        } else {
            if self.bytes.len() - self.end < block.len {
                self.move_to_front(kept);
            }
            if self.bytes.len() - self.end < block.len {
                let larger = (self.bytes.len() * 2).max(self.end + block.len);
                self.bytes.resize(larger, 0);
            }
            let data = &block.bytes[ROOM..ROOM + block.len];
            self.bytes[self.end..self.end + block.len].copy_from_slice(data);
            self.end += block.len;
            block.bytes
        };
        if let Source::Ahead(ahead) = &mut self.input {
            ahead.give_back(returned);
        }
    }

    fn move_to_front(&mut self, kept: usize) {
        self.bytes.copy_within(kept..self.end, 0);
        self.base += (kept - self.origin) as u64;
        self.origin = 0;
        self.start -= kept;
        self.end -= kept;
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
