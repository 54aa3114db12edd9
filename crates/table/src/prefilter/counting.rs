//! Bloom filter with pairs of hash functions and a collision list, so that keys can be removed.
//!
//! With one pair this is exactly the paper's scheme; a second pair squares a small rate of false positives. Adding: a
//! bit that is 0 becomes 1; for a bit that is already 1, the list gets an entry *(position, counter)* with counter 2,
//! or its counter is incremented. Removing: the counter of an entry is decremented; when it reaches 1, the entry is
//! removed and the bit stays. A bit without an entry becomes 0. Adding never fails. Only the bits are shared; the list
//! belongs to the writer (here a hash map, so that an edit is O(1)).
//!
//! The bits of a key in the filter are never 0, not even briefly, while other keys are added or removed. Memory: m/8
//! bytes, plus some 16 per collision.

mod lanes;

use crate::hash::{KeyHash, Seed};
pub(super) use lanes::{LANES, Lanes, Query};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most hash functions, k: two pairs.
pub const MAX_HASHES: usize = 4;

/// Bits of the filter, shared with readers.
#[derive(Debug)]
pub struct Bits {
    words: Box<[AtomicU32]>,
    bit_count: u64,
    /// Those of the first `hash_count` entries are in use.
    hashes: [KeyHash; MAX_HASHES],
    hash_count: usize,
}

impl Bits {
    #[inline]
    fn position(&self, function: usize, key: &[u32]) -> u64 {
        (u64::from(self.hashes[function].hash(key)) * self.bit_count) >> 32
    }

    #[inline]
    fn get(&self, position: u64) -> bool {
        self.words[(position / 32) as usize].load(Ordering::Acquire) >> (position % 32) & 1 == 1
    }

    /// Sets a bit; returns the index of its word and the word.
    fn set(&self, position: u64) -> (usize, u32) {
        let index = (position / 32) as usize;
        let value = self.words[index].load(Ordering::Relaxed) | 1 << (position % 32);
        self.words[index].store(value, Ordering::Release);
        (index, value)
    }

    /// Clears a bit; returns the index of its word and the word.
    fn clear(&self, position: u64) -> (usize, u32) {
        let index = (position / 32) as usize;
        let value = self.words[index].load(Ordering::Relaxed) & !(1 << (position % 32));
        self.words[index].store(value, Ordering::Release);
        (index, value)
    }

    /// Returns the hash functions in use, k.
    pub(super) fn hashes(&self) -> &[KeyHash] {
        &self.hashes[..self.hash_count]
    }

    /// Returns the words that are not 0, with their indices.
    pub(super) fn filled(&self) -> impl Iterator<Item = (usize, u32)> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
        words.filter(|&(_, word)| word != 0)
    }

    /// True if a key may be present. A further hash is computed only if all before it hit.
    #[inline]
    pub fn may_contain(&self, key: &[u32]) -> bool {
        let holds = |function| self.get(self.position(function, key));
        holds(0) && holds(1) && (2..self.hash_count).all(holds)
    }

    /// Number of bits, m.
    pub fn bit_count(&self) -> u64 {
        self.bit_count
    }

    /// Number of set bits.
    pub fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

/// Writer of the filter.
#[derive(Debug)]
pub struct CountingBloom {
    bits: Arc<Bits>,
    collisions: HashMap<u64, u32>,
    key_count: u64,
}

impl CountingBloom {
    /// Creates an empty filter of `bit_count` bits with the paper's two hash functions; `bit_count` is clamped to 64
    /// to 2^32.
    pub fn new(bit_count: u64, seed: &mut Seed) -> Self {
        CountingBloom::with_pairs(bit_count, 1, seed)
    }

    /// The same with `pairs` pairs of hash functions, clamped to one or two.
    pub fn with_pairs(bit_count: u64, pairs: u8, seed: &mut Seed) -> Self {
        let bit_count = bit_count.clamp(64, 1 << 32);
        let words = (0..bit_count.div_ceil(32)).map(|_| AtomicU32::new(0)).collect();
        let hashes = std::array::from_fn(|_| KeyHash::new(seed));
        let hash_count = 2 * usize::from(pairs.clamp(1, MAX_HASHES as u8 / 2));
        let bits = Arc::new(Bits { words, bit_count, hashes, hash_count });
        CountingBloom { bits, collisions: HashMap::new(), key_count: 0 }
    }

    /// Returns the bits, for readers.
    pub fn bits(&self) -> &Arc<Bits> {
        &self.bits
    }

    /// Adds a key (1 to 6 words).
    pub fn add(&mut self, key: &[u32]) {
        self.add_and(key, |_, _| ());
    }

    /// Adds a key, and calls `stored` with each word that changes: its index, and its value.
    pub fn add_and(&mut self, key: &[u32], mut stored: impl FnMut(usize, u32)) {
        for function in 0..self.bits.hash_count {
            let position = self.bits.position(function, key);
            if self.bits.get(position) {
                *self.collisions.entry(position).or_insert(1) += 1;
            } else {
                let (index, word) = self.bits.set(position);
                stored(index, word);
            }
        }
        self.key_count += 1;
    }

    /// Removes a key, which must have been added.
    pub fn remove(&mut self, key: &[u32]) {
        self.remove_and(key, |_, _| ());
    }

    /// Removes a key, which must have been added, and calls `stored` with each word that changes.
    pub fn remove_and(&mut self, key: &[u32], mut stored: impl FnMut(usize, u32)) {
        for function in 0..self.bits.hash_count {
            let position = self.bits.position(function, key);
            match self.collisions.get_mut(&position) {
                None => {
                    let (index, word) = self.bits.clear(position);
                    stored(index, word);
                }
                Some(counter) => {
                    *counter -= 1;
                    if *counter == 1 {
                        self.collisions.remove(&position);
                    }
                }
            }
        }
        self.key_count = self.key_count.saturating_sub(1);
    }

    /// Number of keys in the filter, n.
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Number of entries of the collision list.
    pub fn collision_count(&self) -> usize {
        self.collisions.len()
    }

    /// False positives per look-up by the paper's formula: (1 − e^(−nk/m))^k.
    pub fn expected_false_positives(&self) -> f64 {
        expected_rate(self.key_count, self.bits.bit_count, self.bits.hash_count as u32)
    }

    /// False positives per look-up, computed from the number of set bits.
    pub fn filled_false_positives(&self) -> f64 {
        (self.bits.ones() as f64 / self.bits.bit_count as f64).powi(self.bits.hash_count as i32)
    }
}

/// False positives per look-up by the paper's formula, (1 − e^(−nk/m))^k, for `keys` (n) in `bits` (m) with `hashes`
/// (k) hash functions.
pub fn expected_rate(keys: u64, bits: u64, hashes: u32) -> f64 {
    let load = keys as f64 * f64::from(hashes) / bits.max(1) as f64;
    (1.0 - (-load).exp()).powi(hashes as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example: the counter of a shared bit goes 2, 3, 2; then the entry is removed and the bit stays; then
    /// the bit is cleared.
    #[test]
    fn the_collision_list_counts_as_in_the_paper() {
        let mut filter = CountingBloom::new(1 << 16, &mut Seed::fixed(1));
        let key = [6, 80, 0x0a00_0001];
        let position = filter.bits.position(0, &key);
        assert_ne!(position, filter.bits.position(1, &key));
        let counter = |filter: &CountingBloom| filter.collisions.get(&position).copied();
        filter.add(&key);
        assert_eq!(counter(&filter), None);
        filter.add(&key);
        assert_eq!(counter(&filter), Some(2));
        filter.add(&key);
        assert_eq!(counter(&filter), Some(3));
        filter.remove(&key);
        assert_eq!(counter(&filter), Some(2));
        filter.remove(&key);
        assert_eq!(counter(&filter), None);
        assert!(filter.bits.may_contain(&key));
        filter.remove(&key);
        assert!(!filter.bits.get(position) && filter.bits.ones() == 0);
    }

    /// Any order of additions and removals leaves exactly the bits that the remaining keys would have set.
    #[test]
    fn bits_are_those_of_the_keys_that_are_there() {
        let mut random = Seed::fixed(2);
        let mut filter = CountingBloom::new(700, &mut Seed::fixed(3));
        let mut there: Vec<[u32; 2]> = Vec::new();
        for _ in 0..5_000 {
            let draw = random.next();
            if draw & 1 == 0 && !there.is_empty() {
                let key = there.swap_remove((draw >> 8) as usize % there.len());
                filter.remove(&key);
            } else if there.len() < 300 {
                let key = [(draw >> 32) as u32 % 1_000, 7];
                there.push(key);
                filter.add(&key);
            }
            assert!(there.iter().all(|key| filter.bits.may_contain(key)));
        }
        let mut again = CountingBloom::new(700, &mut Seed::fixed(3));
        there.iter().for_each(|key| again.add(key));
        let words = |filter: &CountingBloom| -> Vec<u32> {
            filter.bits.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(words(&again), words(&filter));
        there.iter().for_each(|key| filter.remove(key));
        assert_eq!((filter.bits.ones(), filter.collision_count(), filter.key_count()), (0, 0, 0));
    }

    /// The measured rate equals the formula's with one pair of hash functions and with two, and 1,000 keys at 10^-6
    /// take 244 KB.
    #[test]
    fn false_positives_follow_the_formula() {
        let sizes =
            [(1_000u32, 20_000, 1), (1_000, 100_000, 1), (10_000, 100_000, 1), (1_000, 20_000, 2)];
        for (keys, bit_count, pairs) in sizes {
            let mut filter = CountingBloom::with_pairs(bit_count, pairs, &mut Seed::fixed(8));
            (0..keys).for_each(|key| filter.add(&[6, key, 99]));
            let probes = 1_000_000u32;
            let wrong = (keys..keys + probes).filter(|&k| filter.bits.may_contain(&[6, k, 99]));
            let measured = wrong.count() as f64 / f64::from(probes);
            let expected = filter.expected_false_positives();
            println!(
                "n={keys} m={bit_count} k={pairs}*2: measured {measured:.6}, formula {expected:.6}"
            );
            assert!((measured / expected - 1.0).abs() < 0.25, "{measured} {expected}");
        }
        let mut filter = CountingBloom::new(1_999_000, &mut Seed::fixed(9));
        (0..1_000).for_each(|key| filter.add(&[key, 1]));
        assert!(filter.expected_false_positives() < 1.01e-6);
        assert_eq!(filter.bits().bit_count() / 8, 249_875);
    }
}
