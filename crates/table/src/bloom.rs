//! A Bloom filter whose two bits per key lie in one 32-bit word: one load answers "certainly not there".
//!
//! 11 to 23 bits per key when it grows with its table, 4 bytes a word. A key can be taken out: the writer alone keeps
//! a counter per bit (32 bytes a word, never touched by readers). A counter that reaches 255 stays there, and its bit
//! with it, until the filter is built again. Measured false positives: see `tests::false_positives`.

use crate::sync::{AtomicU32, Ordering};

/// The bits, shared by the writer and all readers.
#[derive(Debug)]
pub struct BlockedBloom {
    words: Box<[AtomicU32]>,
    shift: u32,
}

/// The two bits of a hash within its word.
#[inline]
pub const fn bits_of(hash: u32) -> u32 {
    1 << (hash & 31) | 1 << (hash >> 5 & 31)
}

impl BlockedBloom {
    /// A filter of `1 << bits` words, `bits` from 1 to 28.
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 28);
        let words = (0..1usize << bits).map(|_| AtomicU32::new(0)).collect();
        BlockedBloom { words, shift: 32 - bits }
    }

    /// Whether a key with this hash may have been put in.
    #[inline]
    pub fn may_contain(&self, hash: u32) -> bool {
        let bits = bits_of(hash);
        self.words[(hash >> self.shift) as usize].load(Ordering::Acquire) & bits == bits
    }

    /// The words; the word of a hash is number `hash >> shift()`.
    pub fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// See [`BlockedBloom::words`].
    pub fn shift(&self) -> u32 {
        self.shift
    }
}

/// The writer's counters of a [`BlockedBloom`].
#[derive(Debug)]
pub struct BloomCounters {
    counters: Box<[[u8; 32]]>,
}

impl BloomCounters {
    /// Counters of an empty filter.
    pub fn new(bloom: &BlockedBloom) -> Self {
        BloomCounters { counters: vec![[0; 32]; bloom.words.len()].into() }
    }

    /// Puts a key with this hash in.
    #[inline]
    pub fn insert(&mut self, bloom: &BlockedBloom, hash: u32) {
        let index = (hash >> bloom.shift) as usize;
        let counters = &mut self.counters[index];
        let (first, second) = ((hash & 31) as usize, (hash >> 5 & 31) as usize);
        counters[first] = counters[first].saturating_add(1);
        counters[second] = counters[second].saturating_add(1);
        let word = &bloom.words[index];
        let bits = word.load(Ordering::Relaxed);
        word.store(bits | bits_of(hash), Ordering::Release);
    }

    /// Takes a key with this hash out, which must have been put in.
    #[inline]
    pub fn remove(&mut self, bloom: &BlockedBloom, hash: u32) {
        let index = (hash >> bloom.shift) as usize;
        let counters = &mut self.counters[index];
        let word = &bloom.words[index];
        let mut bits = word.load(Ordering::Relaxed);
        for bit in [hash & 31, hash >> 5 & 31] {
            let counter = &mut counters[bit as usize];
            if *counter != u8::MAX {
                *counter = counter.saturating_sub(1);
            }
            if *counter == 0 {
                bits &= !(1 << bit);
            }
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
