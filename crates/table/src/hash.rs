//! Keyed hash of tables: 32 bits of a key of 1 to 6 words.
//!
//! Multilinear hashing: `(a + Σ m·x) mod 2^64`, high half, with random 64-bit `a` and `m`. Any two different keys
//! collide with probability 2⁻³² over the choice of the multipliers, so an attacker that chooses keys without knowing
//! the seed cannot fill a bucket. A fixed bijection then spreads the bits. The hash uses only additions and
//! multiplications, so it runs on vectors lane by lane. Source: Lemire and Kaser, *Strongly universal string hashing is
//! fast* (2013).

use crate::layout::MAX_KEY_WORDS;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Source of the keys of a table's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// Randomness of the operating system: for every table that others can add rows to.
    pub fn random() -> Self {
        Seed(RandomState::new().build_hasher().finish())
    }

    /// A known seed, for reproducible tests.
    pub const fn fixed(seed: u64) -> Self {
        Seed(seed)
    }

    /// Returns the next number of a sequence of seeds (SplitMix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Hash function of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    /// Added to the sum.
    pub offset: u64,
    /// One multiplier per key word.
    pub multipliers: [u64; MAX_KEY_WORDS],
}

impl KeyHash {
    /// Draws the keys of a hash function.
    pub fn new(seed: &mut Seed) -> Self {
        KeyHash { offset: seed.next(), multipliers: std::array::from_fn(|_| seed.next()) }
    }

    /// Creates a hash function that cannot be predicted.
    pub fn random() -> Self {
        KeyHash::new(&mut Seed::random())
    }

    /// Hashes a key.
    ///
    /// PERF: unrolled by length. As a loop, the code uses masked vector loads of words that were stored one by one just
    /// before; the processor cannot forward these stores: 12 ns per edit (`cargo run --release -p fyke-pass --example
    /// edits`).
    #[inline(always)]
    pub fn hash(&self, key: &[u32]) -> u32 {
        let m = &self.multipliers;
        let term = |n: usize, word: u32| m[n].wrapping_mul(u64::from(word));
        let add = |sum: u64, term: u64| sum.wrapping_add(term);
        let sum = match *key {
            [a] => term(0, a),
            [a, b] => add(term(0, a), term(1, b)),
            [a, b, c] => add(add(term(0, a), term(1, b)), term(2, c)),
            [a, b, c, d] => add(add(term(0, a), term(1, b)), add(term(2, c), term(3, d))),
            [a, b, c, d, e, f] => {
                let most = add(add(term(0, a), term(1, b)), add(term(2, c), term(3, d)));
                add(most, add(term(4, e), term(5, f)))
            }
            _ => key.iter().enumerate().fold(0, |sum, (n, &word)| add(sum, term(n, word))),
        };
        spread((add(self.offset, sum) >> 32) as u32)
    }
}

/// Multiplier of [`spread`].
pub(crate) const SPREAD: u32 = 0x2c1b_3c6d;

/// Bijection of 32 bits in which every output bit depends on many input bits.
#[inline]
pub const fn spread(mut h: u32) -> u32 {
    h ^= h >> 15;
    h = h.wrapping_mul(SPREAD);
    h ^ h >> 12
}

/// Returns the two buckets of a hash in a table of `1 << bits` buckets.
#[inline]
pub const fn buckets(hash: u32, bits: u32) -> (usize, usize) {
    let mask = (1 << bits) - 1;
    let first = hash & mask;
    let second = hash.wrapping_mul(0x9e37_79b1) >> (32 - bits);
    (first as usize, second as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_one_bit_spread_over_all_buckets() {
        let hash = KeyHash::new(&mut Seed::fixed(7));
        let mut load = [0u32; 64];
        for word in 0..64 * 64u32 {
            load[buckets(hash.hash(&[word << 8, 5]), 6).0] += 1;
            load[buckets(hash.hash(&[word << 8, 5]), 6).1] += 1;
        }
        assert!(load.iter().all(|&l| (64..=256).contains(&l)), "{load:?}");
    }

    #[test]
    fn another_seed_gives_another_hash() {
        let hashes: Vec<u32> =
            (0..100).map(|n| KeyHash::new(&mut Seed::fixed(n)).hash(&[1, 2, 3])).collect();
        let different: std::collections::HashSet<_> = hashes.iter().collect();
        assert_eq!(different.len(), hashes.len());
        assert_ne!(Seed::random(), Seed::random());
    }
}
