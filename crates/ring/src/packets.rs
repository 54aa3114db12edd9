//! The packet buffer: frames in a ring of words; the newest overwrite the oldest.
//!
//! Words: a magic number; the intent; the number of interfaces; the table of interfaces
//! ([`Origin`]); then a power of two of words for frames. A frame is four words and its bytes:
//!
//! | word | lower half | upper half |
//! |---|---|---|
//! | 0 | captured length | length on the wire |
//! | 1 | time of capture | |
//! | 2 | link type, VLAN tag | flags |
//! | 3 | index of the interface in the operating system | its number in the table |
//!
//! The writer announces the intent, then changes words ([`protocol`]). A reader
//! copies frames, or reads them in place, and then looks at the intent: it is at most one buffer
//! ahead of the place of a frame that is whole. Cost: one store per word.

use crate::entry::{Entry, Flags, MAX_LENGTH, Placed};
use crate::origin::{self, MAX_ORIGINS, Origin};
use crate::protocol::{self, MAGIC, Words};
use crate::{Memory, RingError};
use fyke_frame::{Direction, Frame, LinkType, Meta};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

const NUMBER: u64 = u64::from_le_bytes(*b"fykepkt2");
/// Number of interfaces in the table.
const ORIGINS: usize = 2;
/// First word of the table.
const TABLE: usize = 8;
const FIRST: usize = TABLE + origin::WORDS;
const HEAD: usize = 4;
/// Smallest and largest buffer, in words for frames.
const LEAST: usize = 1 << 10;
const MOST: usize = crate::memory::MAX_WORDS / 4;
/// Words for which pages are provided together, 256 KiB.
const CHUNK: usize = 1 << 15;
/// Number of an interface that is not in the table.
const NONE: u32 = u32::MAX;

/// The frames of a packet buffer and an index that readers still need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Held {
    /// Everything may be overwritten.
    #[default]
    Nothing,
    /// Frames from this place on are needed.
    From(u64),
    /// Everything is needed: no frame can be put.
    All,
}

impl Held {
    /// Combines the needs of two readers.
    pub fn and(self, other: Held) -> Held {
        match (self, other) {
            (Held::All, _) | (_, Held::All) => Held::All,
            (Held::Nothing, one) | (one, Held::Nothing) => one,
            (Held::From(one), Held::From(other)) => Held::From(one.min(other)),
        }
    }

    /// True if words before `place` may be overwritten.
    fn permits(self, place: u64) -> bool {
        match self {
            Held::Nothing => true,
            Held::From(held) => place <= held,
            Held::All => false,
        }
    }
}

/// The writer's side of the buffer.
#[derive(Debug)]
pub struct Packets {
    memory: Memory,
    /// A power of two.
    capacity: usize,
    /// The writer's own copy of the intent; the one in the memory is for the readers.
    end: u64,
    /// Frames so far.
    count: u64,
    origins: Vec<Origin>,
    /// Words from the first one on that have their pages.
    provided: usize,
}

impl Packets {
    /// An empty buffer for about `bytes` bytes.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn create(bytes: usize) -> Result<Packets, RingError> {
        Packets::starting_at(bytes, 0)
    }

    /// An empty buffer that counts words and frames from `start`, for tests of wrapping.
    pub(crate) fn starting_at(bytes: usize, start: u64) -> Result<Packets, RingError> {
        let capacity = (bytes / 8).clamp(LEAST, MOST).next_power_of_two();
        let memory = Memory::create(FIRST + capacity)?;
        protocol::announce(&memory, start);
        memory.store(MAGIC, NUMBER, Ordering::Release);
        let provided = start as usize & (capacity - 1);
        Ok(Packets { memory, capacity, end: start, count: start, origins: Vec::new(), provided })
    }

    /// Largest frame, in bytes: an eighth of the buffer.
    pub fn largest(&self) -> usize {
        self.capacity - HEAD
    }

    /// The buffer's size for frames, in bytes.
    pub fn bytes(&self) -> usize {
        self.capacity * 8
    }

    /// True if the frame at a place is not overwritten.
    pub fn holds(&self, place: u64) -> bool {
        self.end.saturating_sub(place) <= self.capacity as u64
    }

    /// Frames that were stored so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of an interface in the table; adds it if it is new. `None` if the table is full.
    pub fn origin(&mut self, origin: &Origin) -> Option<u32> {
        let origin = origin.clone().cut();
        if let Some(number) = self.origins.iter().position(|known| *known == origin) {
            return Some(number as u32);
        }
        let number = self.origins.len();
        if number == MAX_ORIGINS {
            return None;
        }
        origin.store(&self.memory, TABLE, number);
        self.origins.push(origin);
        self.memory.store(ORIGINS, self.origins.len() as u64, Ordering::Release);
        Some(number as u32)
    }

    /// Stores a frame of an unknown interface; returns its place for
    /// [`Index::push`](crate::Index::push).
    ///
    /// # Errors
    /// The frame is too large.
    pub fn put(&mut self, frame: &Frame<'_>) -> Result<u64, RingError> {
        Ok(self.put_from(frame, None, Held::Nothing)?.place)
    }

    /// Stores a frame of an interface of the table ([`origin`](Self::origin)), unless it would
    /// overwrite what readers need ([`Publication::held`](crate::Publication::held)).
    ///
    /// # Errors
    /// The frame is too large, or words are held that it needs.
    pub fn put_from(
        &mut self,
        frame: &Frame<'_>,
        origin: Option<u32>,
        held: Held,
    ) -> Result<Placed, RingError> {
        let given = frame.data.len();
        if given > self.largest() {
            return Err(RingError::TooLarge { given, limit: self.largest() });
        }
        let end = self.end + (HEAD + given.div_ceil(8)) as u64;
        if !held.permits(end.saturating_sub(self.capacity as u64)) {
            return Err(RingError::Held);
        }
        let (place, number) = (self.end, self.count);
        let flags = Flags::of(&frame.meta);
        self.announce(end);
        self.provide(place, end);
        self.store(place, frame, flags, origin);
        self.count += 1;
        let length = u32::try_from(given).unwrap_or(MAX_LENGTH).min(MAX_LENGTH);
        Ok(Placed { place, number, length, flags })
    }

    /// Provides the pages of a frame and of those after it, before the first round through the buffer comes to them.
    #[inline]
    fn provide(&mut self, place: u64, end: u64) {
        let first = place as usize & (self.capacity - 1);
        let last = first + (end - place) as usize;
        if last > self.provided && first <= self.provided {
            let count = (last - self.provided).next_multiple_of(CHUNK);
            self.memory.provide(FIRST + self.provided, count);
            self.provided += count;
        }
    }

    pub(crate) fn announce(&mut self, end: u64) {
        self.end = end;
        protocol::announce(&self.memory, end);
    }

    pub(crate) fn store(&self, place: u64, frame: &Frame<'_>, flags: Flags, origin: Option<u32>) {
        let lengths = frame.data.len() as u64 | u64::from(frame.wire_len) << 32;
        let tag = u64::from(frame.meta.vlan.unwrap_or(0)) << 16;
        let kind = u64::from(frame.link.0) | tag | u64::from(flags.0) << 32;
        let from = u64::from(frame.meta.ifindex) | u64::from(origin.unwrap_or(NONE)) << 32;
        for (at, word) in (place..).zip([lengths, frame.timestamp_ns, kind, from]) {
            self.memory.store(self.word(at), word, Ordering::Relaxed);
        }
        let first = self.word(place + HEAD as u64);
        let until_end = (FIRST + self.capacity - first) * 8;
        let (front, back) = frame.data.split_at(frame.data.len().min(until_end));
        self.memory.write(first, front);
        self.memory.write(FIRST, back);
    }

    fn word(&self, at: u64) -> usize {
        FIRST + (at as usize & (self.capacity - 1))
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

/// Metadata of a frame of a ring; its bytes are in the caller's buffer, or still in the ring.
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
    /// Captured before the edit that accepts it.
    pub late: bool,
    /// Direction, if the writer's source knows it.
    pub direction: Direction,
    /// Interface index of the operating system; 0 = unknown.
    pub ifindex: u32,
    /// Number of the interface in the table of its packet buffer
    /// ([`Reader::origin`](crate::Reader::origin)); `None` if the writer did not tell.
    pub origin: Option<u32>,
    /// Captured bytes.
    pub len: usize,
    /// The entry of the index.
    pub entry: Entry,
}

impl Copied {
    /// The frame with these bytes, as the writer's source delivered it; of interface 0.
    #[inline]
    pub fn frame<'a>(&self, data: &'a [u8]) -> Frame<'a> {
        let meta = Meta {
            direction: self.direction,
            ifindex: self.ifindex,
            vlan: self.vlan,
            restored: self.restored,
            late: self.late,
            unsummed: false,
        };
        let (wire_len, timestamp_ns) = (self.wire_len, self.timestamp_ns);
        Frame { wire_len, timestamp_ns, meta, ..Frame::new(self.link, data) }
    }

    /// Words that the frame takes in the packet buffer.
    pub(crate) fn words(&self) -> u64 {
        (HEAD + self.len.div_ceil(8)) as u64
    }
}

impl PacketView {
    pub fn open(fd: OwnedFd) -> Result<PacketView, RingError> {
        let memory = Memory::open(fd)?;
        let capacity = memory.words().saturating_sub(FIRST);
        crate::index::check_magic(&memory, NUMBER)?;
        crate::index::check_size(capacity, LEAST, MOST)?;
        Ok(PacketView { memory, capacity })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// The intent, after the words of frames were loaded.
    #[inline]
    pub fn intent(&self) -> u64 {
        protocol::intent(&self.memory)
    }

    /// Interfaces in the table.
    pub fn origins(&self) -> usize {
        (self.memory.load(ORIGINS, Ordering::Acquire) as usize).min(MAX_ORIGINS)
    }

    /// An interface of the table.
    pub fn origin(&self, number: u32) -> Option<Origin> {
        let number = number as usize;
        (number < self.origins()).then(|| Origin::load(&self.memory, TABLE, number))
    }

    fn word(&self, at: u64) -> usize {
        FIRST + (at as usize & (self.capacity - 1))
    }

    /// Loads the metadata of the frame at a place; to be validated. `None` if its length is
    /// impossible.
    #[inline]
    pub fn head(&self, place: u64, entry: Entry) -> Option<Copied> {
        let word = |at: u64| {
            let at = self.word(place.wrapping_add(at));
            self.memory.load(at, Ordering::Relaxed)
        };
        let (lengths, timestamp_ns, kind, from) = (word(0), word(1), word(2), word(3));
        let (len, wire_len) = (lengths as u32 as usize, (lengths >> 32) as u32);
        let flags = Flags((kind >> 32 & 0x3f) as u8);
        let origin = (from >> 32) as u32;
        (len <= self.capacity - HEAD).then(|| Copied {
            wire_len,
            timestamp_ns,
            link: LinkType(kind as u16),
            vlan: flags.is_tagged().then_some((kind >> 16) as u16),
            restored: flags.is_restored(),
            late: flags.is_late(),
            direction: flags.direction(),
            ifindex: from as u32,
            origin: (origin != NONE).then_some(origin),
            len,
            entry,
        })
    }

    /// Appends the bytes of the frame at a place; to be validated.
    #[inline]
    pub fn copy(&self, place: u64, len: usize, into: &mut Vec<u8>) {
        let first = self.word(place.wrapping_add(HEAD as u64));
        let until_end = (FIRST + self.capacity - first) * 8;
        let front = len.min(until_end);
        self.memory.read(first, front, into);
        if front < len {
            self.memory.read(FIRST, len - front, into);
        }
    }

    /// The eight bytes at a multiple of eight of the frame at a place; to be validated.
    pub fn eight(&self, place: u64, at: usize) -> [u8; 8] {
        let word = self.word(place.wrapping_add((HEAD + at / 8) as u64));
        self.memory.load(word, Ordering::Relaxed).to_le_bytes()
    }
}
