//! Bloom filter with both bits of a key in one 32-bit word: one load answers "certainly absent".
//!
//! It has 11 to 21 bits per key if it grows with its table, and 4 bytes per word. Keys can be removed: the writer keeps
//! a four-bit counter per bit (16 bytes per word, never touched by readers). A counter that reaches 15 stays there, and
//! its bit stays set, until the filter is rebuilt: this causes false positives, never false negatives. Measured false
//! positives: `tests::false_positives`.

use crate::sync::{AtomicU32, Ordering};

/// Bits of the filter, shared by the writer and all readers.
#[derive(Debug)]
pub struct BlockedBloom {
    words: Box<[AtomicU32]>,
    shift: u32,
}

/// Returns the two bits of a hash within its word.
#[inline]
pub const fn bits_of(hash: u32) -> u32 {
    1 << (hash & 31) | 1 << (hash >> 5 & 31)
}

impl BlockedBloom {
    /// Creates a filter of `1 << bits` words, `bits` from 1 to 28.
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 28);
        let words = (0..1usize << bits).map(|_| AtomicU32::new(0)).collect();
        BlockedBloom { words, shift: 32 - bits }
    }

    /// True if a key with this hash may have been added.
    #[inline]
    pub fn may_contain(&self, hash: u32) -> bool {
        let bits = bits_of(hash);
        self.words[(hash >> self.shift) as usize].load(Ordering::Acquire) & bits == bits
    }

    /// Returns the words; the word of a hash is number `hash >> shift()`.
    pub fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// See [`BlockedBloom::words`].
    pub fn shift(&self) -> u32 {
        self.shift
    }
}

/// Counters of a [`BlockedBloom`], owned by the writer: four bits for each of its bits.
#[derive(Debug)]
pub struct BloomCounters {
    counters: Box<[[u64; 2]]>,
}

/// Returns the position of the counter of a bit: half and shift.
#[inline]
const fn place_of(bit: u32) -> (usize, u32) {
    ((bit >> 4 & 1) as usize, (bit & 15) * 4)
}

/// A counter that reaches this value is never decreased, because the real count may be larger.
const STICKY: u64 = 15;

impl BloomCounters {
    /// Creates the counters of an empty filter.
    pub fn new(bloom: &BlockedBloom) -> Self {
        BloomCounters { counters: vec![[0; 2]; bloom.words.len()].into() }
    }

    /// Adds a key with this hash.
    #[inline]
    pub fn insert(&mut self, bloom: &BlockedBloom, hash: u32) {
        let index = (hash >> bloom.shift) as usize;
        let counters = &mut self.counters[index];
        for bit in [hash, hash >> 5] {
            let (half, shift) = place_of(bit);
            let counter = counters[half] >> shift & STICKY;
            counters[half] += u64::from(counter != STICKY) << shift;
        }
        let word = &bloom.words[index];
        let bits = word.load(Ordering::Relaxed);
        word.store(bits | bits_of(hash), Ordering::Release);
    }

    /// Removes a key with this hash, which must have been added.
    #[inline]
    pub fn remove(&mut self, bloom: &BlockedBloom, hash: u32) {
        let index = (hash >> bloom.shift) as usize;
        let counters = &mut self.counters[index];
        let word = &bloom.words[index];
        let mut bits = word.load(Ordering::Relaxed);
        for bit in [hash, hash >> 5] {
            let (half, shift) = place_of(bit);
            let counter = counters[half] >> shift & STICKY;
            counters[half] -= u64::from(counter != STICKY && counter != 0) << shift;
            bits &= !(u32::from(counter <= 1) << (bit & 31));
        }
        word.store(bits, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{KeyHash, Seed};

    #[test]
    fn false_positives() {
        let hash = KeyHash::new(&mut Seed::fixed(3));
        let bloom = BlockedBloom::new(10);
        let mut counters = BloomCounters::new(&bloom);
        for key in 0..2048 {
            counters.insert(&bloom, hash.hash(&[key]));
        }
        assert!((0..2048).all(|key| bloom.may_contain(hash.hash(&[key]))));
        let wrong = (2048..102_048).filter(|&key| bloom.may_contain(hash.hash(&[key]))).count();
        println!("16 bits a key: {:.2} % false positives", wrong as f64 / 1000.0);
        assert!(wrong < 4_000, "{wrong} of 100,000");
    }

    /// More keys with the same bits than a counter can count: the bits stay set after the keys are removed.
    #[test]
    fn full_counters_stay() {
        let bloom = BlockedBloom::new(1);
        let mut counters = BloomCounters::new(&bloom);
        (0..40).for_each(|_| counters.insert(&bloom, 0x25));
        (0..39).for_each(|_| counters.remove(&bloom, 0x25));
        assert!(bloom.may_contain(0x25));
        (0..14).for_each(|_| counters.insert(&bloom, 0x8000_0083));
        (0..13).for_each(|_| counters.remove(&bloom, 0x8000_0083));
        assert!(bloom.may_contain(0x8000_0083));
        counters.remove(&bloom, 0x8000_0083);
        assert!(!bloom.may_contain(0x8000_0083));
    }

    #[test]
    fn removal_leaves_nothing_and_takes_nothing_else() {
        let hash = KeyHash::new(&mut Seed::fixed(4));
        let bloom = BlockedBloom::new(3);
        let mut counters = BloomCounters::new(&bloom);
        let hashes: Vec<u32> = (0..200).map(|key| hash.hash(&[key])).collect();
        hashes.iter().for_each(|&h| counters.insert(&bloom, h));
        hashes[..100].iter().for_each(|&h| counters.remove(&bloom, h));
        assert!(hashes[100..].iter().all(|&h| bloom.may_contain(h)));
        hashes[100..].iter().for_each(|&h| counters.remove(&bloom, h));
        assert!(bloom.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}
