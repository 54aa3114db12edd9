//! An index buffer: the places of an endpoint's frames in the packet buffer, in order.
//!
//! Words: a magic number, the number of entries pushed, a flag for the end, the link type; then a
//! power of two of places. A reader that sees a place overwritten also sees the new count: see
//! [`Index::push`]. Cost: three stores per frame.

use crate::{Memory, RingError};
use fyke_frame::LinkType;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"fykeidx1");
const PUSHED: usize = 1;
const CLOSED: usize = 2;
const LINK: usize = 3;
const FIRST: usize = 8;
/// Fewest places.
const LEAST: usize = 16;

/// Checks that memory has the magic number and room for a power of two of entries.
pub(crate) fn check(
    memory: &Memory,
    magic: u64,
    capacity: usize,
    least: usize,
) -> Result<(), RingError> {
    let given = memory.load(0, Ordering::Acquire);
    if given != magic {
        let expected = format!("{magic:#x}");
        return Err(RingError::Foreign { what: "the magic number", given, expected });
    }
    if !capacity.is_power_of_two() || capacity < least {
        let expected = format!("a power of two from {least}");
        let given = capacity as u64;
        return Err(RingError::Foreign { what: "the number of entries", given, expected });
    }
    Ok(())
}

/// The writer's side of the index.
#[derive(Debug)]
pub struct Index {
    memory: Memory,
    capacity: usize,
    pushed: u64,
}

impl Index {
    /// An empty index of about `places` entries, for frames of a link type.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(places: usize, link: LinkType) -> Result<Index, RingError> {
        let capacity = places.clamp(LEAST, crate::memory::MAX_WORDS / 4).next_power_of_two();
        let mut memory = Memory::create(FIRST + capacity)?;
        memory.store(LINK, link.0.into(), Ordering::Relaxed);
        memory.store(0, MAGIC, Ordering::Release);
        Ok(Index { memory, capacity, pushed: 0 })
    }

    /// Adds the place of a frame. A reader that sees the new place sees at least the count before
    /// it, and so knows that the old place is overwritten; a reader that sees the new count sees
    /// the new place.
    pub fn push(&mut self, place: u64) {
        fence(Ordering::Release);
        let at = FIRST + (self.pushed as usize & (self.capacity - 1));
        self.memory.store(at, place, Ordering::Relaxed);
        self.pushed += 1;
        self.memory.store(PUSHED, self.pushed, Ordering::Release);
    }

    /// Marks the end: no more entries follow.
    pub fn close(&mut self) {
        self.memory.store(CLOSED, 1, Ordering::Release);
    }

    /// Frames so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The descriptor that readers receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reader's side of the index.
#[derive(Debug)]
pub(crate) struct IndexView {
    memory: Memory,
    capacity: usize,
}

impl IndexView {
    pub fn open(fd: OwnedFd) -> Result<IndexView, RingError> {
        let memory = Memory::open(fd)?;
        let capacity = memory.words().saturating_sub(FIRST);
        check(&memory, MAGIC, capacity, LEAST)?;
        Ok(IndexView { memory, capacity })
    }

    pub fn link(&self) -> LinkType {
        LinkType(self.memory.load(LINK, Ordering::Relaxed) as u16)
    }

    /// Most entries.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// True if no more entries follow; all entries pushed before are readable.
    pub fn closed(&self) -> bool {
        self.memory.load(CLOSED, Ordering::Acquire) != 0
    }

    pub fn pushed(&self) -> u64 {
        self.memory.load(PUSHED, Ordering::Acquire)
    }

    /// The oldest entry that the writer cannot be overwriting now, if `pushed` entries were pushed.
    pub fn oldest(&self, pushed: u64) -> u64 {
        pushed.saturating_sub(self.capacity as u64 - 1)
    }

    /// A place; `None` if it was overwritten or is being overwritten.
    pub fn place(&self, entry: u64) -> Option<u64> {
        let at = FIRST + (entry as usize & (self.capacity - 1));
        let place = self.memory.load(at, Ordering::Relaxed);
        fence(Ordering::Acquire);
        let pushed = self.memory.load(PUSHED, Ordering::Relaxed);
        (entry < pushed && entry >= self.oldest(pushed)).then_some(place)
    }
}
