//! The packet buffer: frames in a ring of words, the newest over the oldest.
//!
//! Words: a magic number, the end of what is written or being written (in words since the start, never wrapping), then
//! a power of two of words for frames. A frame is three words (lengths; time; link type, tag and whether the source put
//! a tag back) and its bytes.
//!
//! Before the writer touches words it moves the end forward. Who has copied a frame and then sees that the end is no
//! more than a buffer ahead of its place has copied it whole: if one of the words copied were newer, so would be the
//! end (the fences pair up). Cost: one store a word.

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

/// The buffer as its writer has it.
#[derive(Debug)]
pub struct Packets {
    memory: Memory,
    /// Power of two.
    capacity: usize,
    /// Ours; what is in the memory is for the readers.
    end: u64,
}

impl Packets {
    /// An empty buffer for about so many bytes.
    ///
    /// # Errors
    /// When there is no such memory.
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

    /// Stores a frame; gives its place for [`Index::push`](crate::Index::push).
    ///
    /// # Errors
    /// When it is too large.
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

    /// What readers are handed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}

/// The buffer as a reader has it.
#[derive(Debug)]
pub(crate) struct PacketView {
    memory: Memory,
    capacity: usize,
}

/// A frame that was copied out; its bytes are where the caller wanted them.
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
    /// The device had taken a VLAN tag out, and the source has put it back.
    pub restored: bool,
}

impl PacketView {
    pub fn open(fd: OwnedFd) -> Result<PacketView, RingError> {
        let memory = Memory::open(fd)?;
        let capacity = memory.words().saturating_sub(FIRST);
        crate::index::check(&memory, MAGIC, capacity, LEAST)?;
        Ok(PacketView { memory, capacity })
    }

    /// Copies the frame at a place to the end of `into`; `None` when it was overwritten (or never was there).
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
        // Whole: written to its end, and nothing newer has been begun over it.
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
