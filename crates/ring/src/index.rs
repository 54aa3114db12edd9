//! An index: the frames of an endpoint, in order, as [entries](Entry) that name their places in
//! packet buffers.
//!
//! Words: a magic number; the number of entries pushed; a flag for the end; the link type of the
//! first frames; the generation; the heartbeat; frames that the writer refused; the number of
//! packet buffers; last place and floor of each buffer; the interfaces of each; then a power of two
//! of entries. A reader that sees an entry overwritten also sees the new count
//! ([`protocol`]). Cost: five stores per frame.

use crate::entry::{Entry, Mark, Placed};
use crate::protocol::{self, Anchor, ENTRIES, ENTRY, INTERFACES, MAGIC, MAX_BUFFERS, Reach, Words};
use crate::{Flags, Memory, Packets, RingError, sys};
use fyke_frame::LinkType;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NUMBER: u64 = u64::from_le_bytes(*b"fykeidx2");
const CLOSED: usize = 2;
const LINK: usize = 3;
const GENERATION: usize = 4;
const BEAT: usize = 5;
const REFUSED: usize = 6;
/// Fewest and most entries.
const LEAST: usize = 16;
const MOST: usize = 1 << 24;

/// Checks the magic number of memory.
pub(crate) fn check_magic(memory: &Memory, magic: u64) -> Result<(), RingError> {
    let given = memory.load(MAGIC, Ordering::Acquire);
    if given != magic {
        let expected = format!("{magic:#x}");
        return Err(RingError::Foreign { what: "the magic number", given, expected });
    }
    Ok(())
}

/// Checks that a number of entries or words is a power of two within limits.
pub(crate) fn check_size(size: usize, least: usize, most: usize) -> Result<(), RingError> {
    if !size.is_power_of_two() || !(least..=most).contains(&size) {
        let expected = format!("a power of two from {least} to {most}");
        let given = size as u64;
        return Err(RingError::Foreign { what: "the number of entries", given, expected });
    }
    Ok(())
}

/// The writer's side of the index.
#[derive(Debug)]
pub struct Index {
    memory: Arc<Memory>,
    capacity: usize,
    /// Entries before the first one.
    start: u64,
    pushed: u64,
    refused: u64,
    /// True if another writer continues where this one ends.
    is_handed_on: bool,
    anchors: [Anchor; MAX_BUFFERS],
}

impl Index {
    /// An empty index of about `places` entries, for frames that begin with those of a link type.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(places: usize, link: LinkType) -> Result<Index, RingError> {
        Index::starting_at(places, link, 0)
    }

    /// An empty index that counts entries from `start`, as the one before it ended
    /// ([`Reader::move_to`](crate::Reader::move_to)).
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn starting_at(places: usize, link: LinkType, start: u64) -> Result<Index, RingError> {
        let capacity = places.clamp(LEAST, MOST).next_power_of_two();
        let memory = Memory::create(ENTRIES + ENTRY * capacity)?;
        let generation = RandomState::new().hash_one(sys::now_ns()) | 1;
        memory.store(LINK, link.0.into(), Ordering::Relaxed);
        memory.store(GENERATION, generation, Ordering::Relaxed);
        memory.store(protocol::PUSHED, start, Ordering::Relaxed);
        memory.store(MAGIC, NUMBER, Ordering::Release);
        let (memory, anchors) = (Arc::new(memory), Default::default());
        let (pushed, is_handed_on) = (start, false);
        Ok(Index { memory, capacity, start, pushed, refused: 0, is_handed_on, anchors })
    }

    /// Adds a frame that [`Packets::put`](crate::Packets::put) has stored at this place, without
    /// further knowledge of it.
    pub fn push(&mut self, place: u64) {
        let (number, flags) = (self.pushed, Flags::default());
        self.push_as(0, &Placed { place, number, length: 0, flags }, Mark::default());
    }

    /// Adds a stored frame of a packet buffer, with what the writer knows of it.
    pub fn push_as(&mut self, buffer: u8, placed: &Placed, mark: Mark) {
        let words = Entry::new(buffer, placed, mark).to_words();
        let place = (usize::from(buffer), placed.place);
        let anchor = &mut self.anchors[usize::from(buffer) % MAX_BUFFERS];
        protocol::push(&*self.memory, self.capacity, self.pushed, words, place, anchor);
        self.pushed += 1;
    }

    /// Tells readers that frames may come from this interface of a packet buffer
    /// ([`Packets::origin`](crate::Packets::origin)); before the first such frame is pushed.
    pub fn comes_from(&mut self, buffer: u8, origin: u32) {
        let word = INTERFACES + usize::from(buffer) % MAX_BUFFERS;
        let known = self.memory.load(word, Ordering::Relaxed);
        let all = known | 1u64.checked_shl(origin).unwrap_or(0);
        if all != known {
            self.memory.store(word, all, Ordering::Release);
        }
    }

    /// Counts a frame that was not stored: it is too large, or readers held the room for it.
    pub fn refuse(&mut self) {
        self.refused += 1;
        self.memory.store(REFUSED, self.refused, Ordering::Release);
    }

    /// Marks the end: no more entries follow.
    pub fn close(&mut self) {
        self.memory.store(CLOSED, 1, Ordering::Release);
    }

    /// Leaves the index open when this process ends, because a process after it continues with another one; or closes
    /// it then, as by default.
    pub fn hand_on(&mut self, is_handed_on: bool) {
        self.is_handed_on = is_handed_on;
    }

    /// Shows readers that the writer lives. A [`Publication`](crate::Publication) does it; without
    /// one, the writer may do it about five times a second.
    pub fn beat(&self) {
        Pulse(Arc::clone(&self.memory)).beat();
    }

    pub(crate) fn pulse(&self) -> Pulse {
        Pulse(Arc::clone(&self.memory))
    }

    /// Frames so far.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Number of this ring, different for each that is made.
    pub fn generation(&self) -> u64 {
        self.memory.load(GENERATION, Ordering::Relaxed)
    }

    /// Entry `entry`, moved into the range of those that can still be read, and the place of its
    /// frame; `None` if all are read. Only this process writes the memory.
    pub(crate) fn place_of(&self, entry: u64) -> Option<(u64, u64)> {
        let first = protocol::oldest(self.pushed, self.capacity);
        let entry = entry.clamp(first, self.pushed);
        if entry == self.pushed {
            return None;
        }
        let words = protocol::entry(&*self.memory, self.capacity, entry);
        let found = Entry::from_words(words);
        let reach = Reach::load(&*self.memory, found.buffer.into());
        reach.place(entry, found.place).map(|place| (entry, place))
    }

    /// The oldest entry with a frame that is not overwritten, in a single packet buffer; their number so far, if none
    /// is. Cost: O(log n).
    pub fn oldest_held(&self, packets: &Packets) -> u64 {
        let first = protocol::oldest(self.pushed, self.capacity).max(self.start);
        let (mut low, mut high) = (first, self.pushed);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.place_of(middle).is_some_and(|(_, place)| packets.holds(place)) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// True if the next entry would overwrite this one, or the room of it.
    pub(crate) fn is_full(&self, entry: u64) -> bool {
        protocol::oldest(self.pushed + 1, self.capacity) > entry
    }

    /// The descriptor that readers receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if !self.is_handed_on {
            self.close();
        }
    }
}

/// The entries and the refused frames of an index with which its writer has ended.
///
/// # Errors
/// The memory is no index.
pub fn ended_at(index: OwnedFd) -> Result<(u64, u64), RingError> {
    let view = IndexView::open(index)?;
    Ok((view.pushed(), view.refused()))
}

/// The heartbeat of a writer, for the thread that publishes the ring.
#[derive(Debug)]
pub(crate) struct Pulse(Arc<Memory>);

impl Pulse {
    pub fn beat(&self) {
        self.0.store(BEAT, sys::now_ns(), Ordering::Relaxed);
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
        let words = memory.words().saturating_sub(ENTRIES);
        check_magic(&memory, NUMBER)?;
        let capacity = if words.is_multiple_of(ENTRY) { words / ENTRY } else { 0 };
        check_size(capacity, LEAST, MOST)?;
        Ok(IndexView { memory, capacity })
    }

    pub fn link(&self) -> LinkType {
        LinkType(self.memory.load(LINK, Ordering::Relaxed) as u16)
    }

    pub fn generation(&self) -> u64 {
        self.memory.load(GENERATION, Ordering::Relaxed)
    }

    /// Time of the last heartbeat; 0 if the writer has none.
    pub fn beat(&self) -> u64 {
        self.memory.load(BEAT, Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.memory.load(REFUSED, Ordering::Acquire)
    }

    /// The set of interfaces of a packet buffer that frames come from.
    pub fn interfaces(&self, buffer: usize) -> u64 {
        self.memory.load(INTERFACES + buffer % MAX_BUFFERS, Ordering::Acquire)
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
        protocol::pushed(&self.memory)
    }

    /// The oldest entry that the writer cannot be overwriting now, if `pushed` entries were pushed.
    pub fn oldest(&self, pushed: u64) -> u64 {
        protocol::oldest(pushed, self.capacity)
    }

    /// Loads an entry that was pushed; to be validated by [`still`](Self::still).
    #[inline]
    pub fn entry(&self, entry: u64) -> Entry {
        Entry::from_words(protocol::entry(&self.memory, self.capacity, entry))
    }

    /// The oldest entry that was whole when the entries loaded before this call were loaded.
    pub fn still(&self) -> u64 {
        self.oldest(protocol::still_pushed(&self.memory))
    }

    /// The last place of a buffer; after the count that is to be read was loaded.
    pub fn reach(&self, buffer: u8) -> Reach {
        Reach::load(&self.memory, buffer.into())
    }
}
