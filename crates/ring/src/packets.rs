//! The packet buffer: frames in a ring of words; the newest overwrite the oldest.
//!
//! Words: a magic number, the end of the words that are written or being written (counted since the
//! start, never wrapping), then a power of two of words for frames. A frame is three words
//! (lengths; time; link type, tag and whether the source reinserted a tag) and its bytes.
//!
//! The writer moves the end forward before it changes words. A reader copies a frame and then reads
//! the end: if the end is at most one buffer ahead of the frame's place, the copy is whole, since a
//! newer word in it would imply a newer end (the fences pair up). Cost: one store per word.

use crate::{Memory, RingError};
use fyke_frame::{Frame, LinkType};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"fykepkt1");
const END: usize = 1;
const FIRST: usize = 8;
const HEAD: usize = 3;
/// Smallest buffer, in words for frames.
const LEAST: usize = 1 << 10;

/// The writer's side of the buffer.
#[derive(Debug)]
pub struct Packets {
    memory: Memory,
    /// A power of two.
    capacity: usize,
    /// The writer's own copy; the one in the memory is for the readers.
    end: u64,
}

impl Packets {
    /// An empty buffer for about `bytes` bytes.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(bytes: usize) -> Result<Packets, RingError> {
        let words = (bytes / 8).clamp(LEAST, crate::memory::MAX_WORDS / 4);
        let capacity = words.next_power_of_two();
        let mut memory = Memory::create(FIRST + capacity)?;
        memory.store(0, MAGIC, Ordering::Release);
        Ok(Packets { memory, capacity, end: 0 })
    }

    /// Largest frame, in bytes: an eighth of the buffer.
    pub fn largest(&self) -> usize {
        self.capacity - HEAD
    }

    /// Stores a frame; returns its place for [`Index::push`](crate::Index::push).
    ///
    /// # Errors
    /// The frame is too large.
    pub fn put(&mut self, frame: &Frame<'_>) -> Result<u64, RingError> {
        let given = frame.data.len();
        if given > self.largest() {
            return Err(RingError::TooLarge { given, limit: self.largest() });
        }
        let place = self.end;
        self.end += (HEAD + given.div_ceil(8)) as u64;
        self.memory.store(END, self.end, Ordering::Relaxed);
        fence(Ordering::Release);
        let lengths = given as u64 | u64::from(frame.wire_len) << 32;
        let tag = frame.meta.vlan.map_or(0, |tag| 1 << 32 | u64::from(tag) << 16);
        let restored = u64::from(frame.meta.restored) << 33;
        let head = [lengths, frame.timestamp_ns, u64::from(frame.link.0) | tag | restored];
        let data = frame.data.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for (at, word) in (place..).zip(head.into_iter().chain(data)) {
            let at = FIRST + (at as usize & (self.capacity - 1));
            self.memory.store(at, word, Ordering::Relaxed);
        }
        Ok(place)
    }

    /// The descriptor that readers receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}

/// The reader's side of the buffer.
#[derive(Debug)]
pub(crate) struct PacketView {
    memory: Memory,
    capacity: usize,
}

/// Metadata of a frame that was copied; its bytes are in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Length on the wire.
    pub wire_len: u32,
    /// Time of capture.
    pub timestamp_ns: u64,
    /// Link type.
    pub link: LinkType,
    /// VLAN tag that is not in the bytes.
    pub vlan: Option<u16>,
    /// The device had removed a VLAN tag, and the source has reinserted it.
    pub restored: bool,
}

impl PacketView {
    pub fn open(fd: OwnedFd) -> Result<PacketView, RingError> {
        let memory = Memory::open(fd)?;
        let capacity = memory.words().saturating_sub(FIRST);
        crate::index::check(&memory, MAGIC, capacity, LEAST)?;
        Ok(PacketView { memory, capacity })
    }

    /// Appends the frame at a place to `into`; `None` if it was overwritten or never existed.
    pub fn copy(&self, place: u64, into: &mut Vec<u8>) -> Option<Copied> {
        let word = |at: u64| {
            let at = place.wrapping_add(at) as usize & (self.capacity - 1);
            self.memory.load(FIRST + at, Ordering::Relaxed)
        };
        let (lengths, timestamp_ns, link) = (word(0), word(1), word(2));
        let (len, wire_len) = (lengths as u32 as usize, (lengths >> 32) as u32);
        if len > self.capacity - HEAD {
            return None;
        }
        let before = into.len();
        for at in 0..len.div_ceil(8) as u64 {
            into.extend_from_slice(&word(HEAD as u64 + at).to_le_bytes());
        }
        into.truncate(before + len);
        fence(Ordering::Acquire);
        let end = self.memory.load(END, Ordering::Relaxed);
        let words = (HEAD + len.div_ceil(8)) as u64;
        // The copy is whole: the frame was written to its end, and nothing newer has been begun
        // over it.
        let age = end.wrapping_sub(place);
        if age < words || age > self.capacity as u64 {
            into.truncate(before);
            return None;
        }
        let vlan = (link >> 32 & 1 != 0).then_some((link >> 16) as u16);
        let restored = link >> 33 & 1 != 0;
        Some(Copied { wire_len, timestamp_ns, link: LinkType(link as u16), vlan, restored })
    }
}
