//! One generation of a table: slots, entries and Bloom words, shared with readers.

use super::jobs::LookFree;
use crate::arch::{Level, Probe, Scan};
use crate::bloom::{BlockedBloom, BloomCounters};
use crate::hash::{KeyHash, buckets};
use crate::layout::{
    BUCKET_SLOTS, Bucket, EntryLine, MAX_KEY_WORDS, entry_words, slot, slot_parts,
};
use crate::protocol::{self, KEY, VALUE};
use crate::sync::{AtomicU32, Ordering};

/// Number of buckets of the smallest table: `1 << MIN_BITS`.
const MIN_BITS: u32 = 4;
/// Number of buckets of the largest table.
const MAX_BITS: u32 = 24;
/// Limit on used slots of 16; above it, both buckets of a key are full too often.
const FILL_OF_16: usize = 12;
/// Number of words of a line of entries.
const LINE_WORDS: usize = 16;
/// Limit on rows of any table.
pub const MAX_ROWS: usize = capacity(MAX_BITS);

/// Returns the number of rows that a table of `1 << bits` buckets can hold.
const fn capacity(bits: u32) -> usize {
    (BUCKET_SLOTS << bits) * FILL_OF_16 / 16
}

/// Returns the size for this number of rows.
pub fn bits_for(rows: usize) -> u32 {
    (MIN_BITS..MAX_BITS).find(|&bits| capacity(bits) >= rows).unwrap_or(MAX_BITS)
}

/// Position of a key, or a free slot for it. Slots are numbered through all buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The key is present.
    At { slot: usize, entry: u32, value: u32 },
    /// The key is absent; this slot is free for it.
    Free { slot: usize },
    /// The key is absent, and both buckets and the spill bucket are full.
    NoRoom,
}

/// Data of a generation that only the writer has.
#[derive(Debug)]
pub(super) struct Books {
    counters: BloomCounters,
    /// Slot of each entry.
    slots: Vec<u32>,
}

/// "No slot" in [`Books::slots`].
const NOWHERE: u32 = u32::MAX;

impl Books {
    /// Creates the data of an empty generation.
    pub fn new(rows: &Rows) -> Books {
        Books { counters: BloomCounters::new(&rows.bloom), slots: Vec::new() }
    }

    /// Counts a row that is about to be placed.
    #[inline]
    pub fn enter(&mut self, rows: &Rows, slot: usize, entry: u32, hash: u32) {
        self.counters.insert(&rows.bloom, hash);
        let entry = entry as usize;
        if entry >= self.slots.len() {
            self.slots.resize(entry + 1, NOWHERE);
        }
        self.slots[entry] = slot as u32;
    }

    /// Removes the row with this entry; returns false if there was none.
    #[inline]
    pub fn take(&mut self, rows: &Rows, entry: u32) -> bool {
        let Some(slot) = self.slots.get_mut(entry as usize) else { return false };
        let at = std::mem::replace(slot, NOWHERE) as usize;
        let word = rows.buckets.get(at / BUCKET_SLOTS).map(|bucket| &bucket.0[at % BUCKET_SLOTS]);
        let Some(word) = word else { return false };
        let (hash, _) = slot_parts(word.load(Ordering::Relaxed)).unwrap_or_default();
        rows.vacate(at);
        self.counters.remove(&rows.bloom, hash);
        true
    }
}

/// Slots, entries and Bloom words.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(super) hash: KeyHash,
    bits: u32,
    pub(super) buckets: Box<[Bucket]>,
    spilled: AtomicU32,
    lines: Box<[EntryLine]>,
    bloom: BlockedBloom,
    key_words: usize,
    /// An entry has `1 << entry_shift` words.
    entry_shift: u32,
}

impl Rows {
    pub(super) fn new(key_words: usize, bits: u32, hash: KeyHash) -> Self {
        let entry_shift = entry_words(key_words).trailing_zeros();
        let line_count = (capacity(bits) << entry_shift).div_ceil(LINE_WORDS);
        Rows {
            hash,
            bits,
            // The last bucket is the spill bucket.
            buckets: (0..(1usize << bits) + 1).map(|_| Bucket::default()).collect(),
            spilled: AtomicU32::new(0),
            lines: (0..line_count).map(|_| EntryLine::default()).collect(),
            // Two Bloom words per bucket, and at least as many as registers hold.
            bloom: BlockedBloom::new((bits + 1).max(6)),
            key_words,
            entry_shift,
        }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &[u32]) -> u32 {
        self.hash.hash(key)
    }

    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn bloom(&self) -> &BlockedBloom {
        &self.bloom
    }

    pub(super) fn key_words(&self) -> usize {
        self.key_words
    }

    /// Number of entries.
    pub(super) fn capacity(&self) -> u32 {
        capacity(self.bits) as u32
    }

    pub(super) fn slot_count(&self) -> usize {
        BUCKET_SLOTS << self.bits
    }

    pub(super) fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Acquire) as usize
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.lines) + 4 * self.bloom.words().len()
    }

    /// Returns the words of an entry.
    #[inline(always)]
    pub(super) fn entry(&self, entry: u32) -> &[AtomicU32] {
        let at = (entry as usize) << self.entry_shift;
        let (line, at) = (&self.lines[at / LINE_WORDS].0, at % LINE_WORDS);
        &line[at..at + (1 << self.entry_shift)]
    }

    /// Returns the words of an entry for keys of `K` words, which this table must have.
    #[inline(always)]
    pub(super) fn entry_of<const K: usize>(&self, entry: u32) -> &[AtomicU32] {
        let words = const { entry_words(K) };
        let in_line = LINE_WORDS / words;
        let at = entry as usize % in_line * words;
        &self.lines[entry as usize / in_line].0[at..at + words]
    }

    /// Returns the cache line of an entry.
    #[inline(always)]
    pub(super) fn entry_line(&self, entry: u32) -> &EntryLine {
        &self.lines[((entry as usize) << self.entry_shift) / LINE_WORDS]
    }

    /// Returns the buckets that may contain a key: its two, and the spill bucket if it is in use.
    #[inline]
    pub(super) fn homes(&self, hash: u32) -> (usize, usize) {
        buckets(hash, self.bits)
    }

    #[inline]
    fn spill(&self) -> usize {
        1 << self.bits
    }

    /// Returns the value of a key; for readers.
    #[inline(always)]
    pub(crate) fn find<P: Probe>(&self, probe: P, key: &[u32], hash: u32) -> Option<u32> {
        let (first, second) = self.homes(hash);
        let in_bucket = |index: usize| {
            let scan = probe.scan(&self.buckets[index], hash);
            self.find_in(index, scan.matches, key, hash).map(|(_, _, value)| value)
        };
        let found = in_bucket(first).or_else(|| in_bucket(second));
        if found.is_some() || self.spilled() == 0 {
            return found;
        }
        in_bucket(self.spill())
    }

    /// Checks the slots of a scan that have the right hash.
    #[inline(always)]
    pub(super) fn find_in(
        &self,
        bucket: usize,
        mut matches: u16,
        key: &[u32],
        hash: u32,
    ) -> Option<(usize, u32, u32)> {
        while matches != 0 {
            let index = matches.trailing_zeros() as usize / 2;
            matches &= matches - 1;
            let word = self.buckets[bucket].0[index].load(Ordering::Acquire);
            let Some((found, entry)) = slot_parts(word) else { continue };
            if found != hash {
                continue;
            }
            if let Some(value) = protocol::read_entry(self.entry(entry), key) {
                return Some((bucket * BUCKET_SLOTS + index, entry, value));
            }
        }
        None
    }

    /// Finds the position of a key, or a free slot for it; for the writer.
    #[inline(always)]
    pub(crate) fn look<P: Probe>(&self, probe: P, key: &[u32], hash: u32) -> Place {
        let (first, second) = self.homes(hash);
        let one = probe.scan(&self.buckets[first], hash);
        let two = probe.scan(&self.buckets[second], hash);
        let mut found = None;
        if one.matches | two.matches != 0 {
            found = self.find_in(first, one.matches, key, hash);
            found = found.or_else(|| self.find_in(second, two.matches, key, hash));
        }
        let mut three = Scan { matches: 0, free: 0 };
        if found.is_none() && (self.spilled() != 0 || one.free | two.free == 0) {
            three = probe.scan(&self.buckets[self.spill()], hash);
            found = self.find_in(self.spill(), three.matches, key, hash);
        }
        if let Some((slot, entry, value)) = found {
            return Place::At { slot, entry, value };
        }
        self.free_place((first, one), (second, two), three)
    }

    /// Finds a free slot: in the emptier of both buckets, or in the spill bucket if they are full.
    #[inline(always)]
    fn free_place(
        &self,
        (first, one): (usize, Scan),
        (second, two): (usize, Scan),
        three: Scan,
    ) -> Place {
        // Chooses the emptier bucket without a branch that could be mispredicted; if it is full, both are.
        let emptier_first = one.free.count_ones() >= two.free.count_ones();
        let mut bucket = if emptier_first { first } else { second };
        let mut free = if emptier_first { one.free } else { two.free };
        if free == 0 {
            (bucket, free) = (self.spill(), three.free);
        }
        if free == 0 {
            return Place::NoRoom;
        }
        Place::Free { slot: bucket * BUCKET_SLOTS + free.trailing_zeros() as usize / 2 }
    }

    /// Writes a row into a free entry and a free slot. The caller must set the Bloom bits *before* they are tested,
    /// that is in the same edit.
    #[inline]
    pub(super) fn place(&self, at: usize, entry: u32, hash: u32, key: &[u32], value: u32) {
        protocol::write_entry(self.entry(entry), key, value);
        self.publish(at, entry, hash);
    }

    #[inline]
    fn publish(&self, at: usize, entry: u32, hash: u32) {
        if at / BUCKET_SLOTS == self.spill() {
            self.spilled.fetch_add(1, Ordering::Release);
        }
        self.buckets[at / BUCKET_SLOTS].0[at % BUCKET_SLOTS]
            .store(slot(hash, entry), Ordering::Release);
    }

    #[inline]
    pub(super) fn change(&self, entry: u32, value: u32) {
        protocol::change_value(self.entry(entry), value);
    }

    /// Frees a slot.
    #[inline]
    pub(super) fn vacate(&self, at: usize) {
        self.buckets[at / BUCKET_SLOTS].0[at % BUCKET_SLOTS].store(0, Ordering::Release);
        if at / BUCKET_SLOTS == self.spill() {
            self.spilled.fetch_sub(1, Ordering::Release);
        }
    }

    /// Calls `visit` with key and value of every row; for the writer only.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u32; MAX_KEY_WORDS], u32)) {
        for slot in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            let Some((_, entry)) = slot_parts(slot.load(Ordering::Relaxed)) else { continue };
            visit(&self.key(entry), self.entry(entry)[VALUE].load(Ordering::Relaxed));
        }
    }

    /// Copies all rows of another generation, which has at most as many entries. If it has the same hash, the hashes
    /// need not be computed again and neighbouring rows stay close: O(rows), mostly in sequence. `None` if the rows do
    /// not fit, which is very rare.
    pub(super) fn fill_from(&self, old: &Rows, level: Level) -> Option<Books> {
        let mut books = Books::new(self);
        for (line, old) in self.lines.iter().zip(&old.lines) {
            for (word, old) in line.0.iter().zip(&old.0) {
                word.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let same_hash = self.hash == old.hash;
        for word in old.buckets.iter().flat_map(|bucket| &bucket.0) {
            let Some((mut hash, entry)) = slot_parts(word.load(Ordering::Relaxed)) else {
                continue;
            };
            if !same_hash {
                hash = self.hash(&self.key(entry)[..self.key_words]);
            }
            let Place::Free { slot } = level.run(LookFree(self, hash)) else { return None };
            self.publish(slot, entry, hash);
            books.enter(self, slot, entry, hash);
        }
        Some(books)
    }

    /// Returns the key of an entry; for the writer only.
    #[inline]
    pub(super) fn key(&self, entry: u32) -> [u32; MAX_KEY_WORDS] {
        let mut key = [0; MAX_KEY_WORDS];
        for (part, word) in key.iter_mut().zip(&self.entry(entry)[KEY..KEY + self.key_words]) {
            *part = word.load(Ordering::Relaxed);
        }
        key
    }

    /// Counts the rows with this key and finds a free slot for another one; for the writer.
    #[inline(always)]
    pub(crate) fn look_more<P: Probe>(&self, probe: P, key: &[u32], hash: u32) -> (usize, Place) {
        let (first, second) = self.homes(hash);
        let one = probe.scan(&self.buckets[first], hash);
        let two = probe.scan(&self.buckets[second], hash);
        let mut three = Scan { matches: 0, free: 0 };
        if self.spilled() != 0 || one.free | two.free == 0 {
            three = probe.scan(&self.buckets[self.spill()], hash);
        }
        let mut same = 0;
        if one.matches | two.matches | three.matches != 0 {
            self.each(probe, key, hash, |_| same += 1);
        }
        (same, self.free_place((first, one), (second, two), three))
    }

    /// Calls `visit` with the value of every row that has this key.
    #[inline(always)]
    pub(crate) fn each<P: Probe>(
        &self,
        probe: P,
        key: &[u32],
        hash: u32,
        mut visit: impl FnMut(u32),
    ) {
        let (first, second) = self.homes(hash);
        let places = [Some(first), (second != first).then_some(second), Some(self.spill())];
        let used = if self.spilled() == 0 { 2 } else { 3 };
        for index in places.into_iter().take(used).flatten() {
            let mut matches = probe.scan(&self.buckets[index], hash).matches;
            while matches != 0 {
                let at = matches.trailing_zeros() as usize / 2;
                matches &= matches - 1;
                let word = self.buckets[index].0[at].load(Ordering::Acquire);
                let Some((found, entry)) = slot_parts(word) else { continue };
                if found != hash {
                    continue;
                }
                if let Some(value) = protocol::read_entry(self.entry(entry), key) {
                    visit(value);
                }
            }
        }
    }

    /// Finds a free slot for an absent key.
    #[inline(always)]
    pub(crate) fn look_free<P: Probe>(&self, probe: P, hash: u32) -> Place {
        let (first, second) = self.homes(hash);
        let one = probe.scan(&self.buckets[first], hash);
        let two = probe.scan(&self.buckets[second], hash);
        let mut three = Scan { matches: 0, free: 0 };
        if one.free | two.free == 0 {
            three = probe.scan(&self.buckets[self.spill()], hash);
        }
        self.free_place((first, one), (second, two), three)
    }
}
