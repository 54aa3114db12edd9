//! One generation of a table: slots, entries and Bloom words, which readers share.

use crate::arch::{Level, Probe, Scan};
use crate::bloom::{BlockedBloom, BloomCounters};
use crate::hash::{KeyHash, Seed, buckets};
use crate::layout::{
    BUCKET_SLOTS, Bucket, EntryLine, MAX_KEY_WORDS, entry_words, slot, slot_parts,
};
use crate::protocol::{self, KEY, VALUE};
use crate::sync::{AtomicU32, Ordering};

/// Buckets of the smallest table: `1 << MIN_BITS`.
const MIN_BITS: u32 = 4;
/// Buckets of the largest table.
const MAX_BITS: u32 = 24;
/// Of 16 slots, so many may be used: beyond, both buckets of a key are full too often.
const FILL_OF_16: usize = 11;
/// Most rows of any table.
pub const MAX_ROWS: usize = capacity(MAX_BITS);

/// Rows that a table of `1 << bits` buckets takes.
const fn capacity(bits: u32) -> usize {
    (BUCKET_SLOTS << bits) * FILL_OF_16 / 16
}

/// The size for so many rows.
pub fn bits_for(rows: usize) -> u32 {
    (MIN_BITS..MAX_BITS).find(|&bits| capacity(bits) >= rows).unwrap_or(MAX_BITS)
}

/// Where a key is or could be. Slots are counted through all buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// There.
    At { slot: usize, entry: u32, value: u32 },
    /// Not there; this slot is free for it.
    Free { slot: usize },
    /// Not there, and both buckets and the spill bucket are full.
    NoRoom,
}

/// Slots, entries and Bloom words.
#[derive(Debug)]
pub struct Rows {
    pub(super) hash: KeyHash,
    bits: u32,
    pub(super) buckets: Box<[Bucket]>,
    spilled: AtomicU32,
    lines: Box<[EntryLine]>,
    bloom: BlockedBloom,
    key_words: usize,
}

impl Rows {
    pub(super) fn new(key_words: usize, bits: u32, seed: &mut Seed) -> Self {
        let per_line = 16 / entry_words(key_words);
        let line_count = capacity(bits).div_ceil(per_line);
        Rows {
            hash: KeyHash::new(seed),
            bits,
            // The last one is the spill bucket.
            buckets: (0..(1usize << bits) + 1).map(|_| Bucket::default()).collect(),
            spilled: AtomicU32::new(0),
            lines: (0..line_count).map(|_| EntryLine::default()).collect(),
            bloom: BlockedBloom::new(bits + 1),
            key_words,
        }
    }

    #[inline]
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

    pub(super) fn slot_count(&self) -> usize {
        BUCKET_SLOTS << self.bits
    }

    pub(super) fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Acquire) as usize
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.lines) + 4 * self.bloom.words().len()
    }

    /// Numbers of all entries, the first one last.
    pub(super) fn all_entries(&self) -> Vec<u32> {
        (0..capacity(self.bits) as u32).rev().collect()
    }

    /// The words of an entry.
    #[inline]
    pub(super) fn entry(&self, entry: u32) -> &[AtomicU32] {
        let words = entry_words(self.key_words);
        let per_line = 16 / words;
        let at = entry as usize % per_line * words;
        &self.lines[entry as usize / per_line].0[at..at + words]
    }

    #[inline]
    pub(super) fn entry_line(&self, entry: u32) -> &EntryLine {
        &self.lines[entry as usize / (16 / entry_words(self.key_words))]
    }

    /// The buckets in which a key may be: its two, and the spill bucket when it is in use.
    #[inline]
    pub(super) fn homes(&self, hash: u32) -> (usize, usize) {
        buckets(hash, self.bits)
    }

    #[inline]
    fn spill(&self) -> usize {
        1 << self.bits
    }

    /// The value of a key; for readers.
    #[inline]
    pub(super) fn find<P: Probe>(&self, probe: P, key: &[u32], hash: u32) -> Option<u32> {
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

    /// Follows the slots of a scan that have the right hash.
    #[inline]
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

    /// Where a key is or could be; for the writer.
    #[inline]
    pub(super) fn look(&self, key: &[u32], hash: u32, level: Level) -> Place {
        let (first, second) = self.homes(hash);
        let one = level.scan(&self.buckets[first], hash);
        let two = level.scan(&self.buckets[second], hash);
        let mut found = None;
        if one.matches | two.matches != 0 {
            found = self.find_in(first, one.matches, key, hash);
            found = found.or_else(|| self.find_in(second, two.matches, key, hash));
        }
        let mut three = Scan { matches: 0, free: 0 };
        if found.is_none() && (self.spilled() != 0 || one.free | two.free == 0) {
            three = level.scan(&self.buckets[self.spill()], hash);
            found = self.find_in(self.spill(), three.matches, key, hash);
        }
        if let Some((slot, entry, value)) = found {
            return Place::At { slot, entry, value };
        }
        let emptier_first = one.free.count_ones() >= two.free.count_ones();
        let (bucket, free) = match (one.free, two.free, three.free) {
            (0, 0, 0) => return Place::NoRoom,
            (0, 0, free) => (self.spill(), free),
            (free, _, _) if emptier_first => (first, free),
            (_, free, _) => (second, free),
        };
        Place::Free { slot: bucket * BUCKET_SLOTS + free.trailing_zeros() as usize / 2 }
    }

    /// Writes a row into a free entry and a free slot. The Bloom bits are the caller's to set *before* they are asked
    /// for, that is in the same edit.
    #[inline]
    pub(super) fn place(&self, at: usize, entry: u32, hash: u32, key: &[u32], value: u32) {
        protocol::write_entry(self.entry(entry), key, value);
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

    /// Calls `visit` with key, value and entry of every row; only the writer may call it.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u32; MAX_KEY_WORDS], u32, u32)) {
        for slot in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            let Some((_, entry)) = slot_parts(slot.load(Ordering::Relaxed)) else { continue };
            let words = self.entry(entry);
            let mut key = [0; MAX_KEY_WORDS];
            for (part, word) in key.iter_mut().zip(&words[KEY..KEY + self.key_words]) {
                *part = word.load(Ordering::Relaxed);
            }
            visit(&key, words[VALUE].load(Ordering::Relaxed), entry);
        }
    }

    /// Takes over all rows of another generation. `None` when they find no room, which chance makes very rare.
    pub(super) fn fill_from(&self, old: &Rows, level: Level) -> Option<(BloomCounters, Vec<u32>)> {
        let mut counters = BloomCounters::new(&self.bloom);
        let mut next = 0;
        let mut room = true;
        old.for_each(|key, value, _| {
            let key = &key[..self.key_words];
            let hash = self.hash(key);
            match self.look(key, hash, level) {
                Place::Free { slot } if room => {
                    self.place(slot, next, hash, key, value);
                    counters.insert(&self.bloom, hash);
                    next += 1;
                }
                _ => room = false,
            }
        });
        let free = (next..capacity(self.bits) as u32).rev().collect();
        room.then_some((counters, free))
    }
}
