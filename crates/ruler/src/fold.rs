//! A fast hash for tables that are used while automata are built: one multiplication per word; the two halves of the
//! product are combined.
//!
//! Every table has a new key, since rules may come from an untrusted author. The 128-bit form is two hashes with
//! different keys.

use std::hash::{BuildHasher, Hasher, RandomState};

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Key of a table; creates hashers.
#[derive(Debug, Clone, Copy)]
pub struct Fold(u64);

/// A hash in progress.
#[derive(Debug, Clone, Copy)]
pub struct Folded(u64, u64);

impl Default for Fold {
    fn default() -> Fold {
        Fold(RandomState::new().hash_one(0u8) | 1)
    }
}

impl BuildHasher for Fold {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0, self.0.rotate_left(32) ^ FACTOR)
    }
}

impl Folded {
    #[inline]
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(self.1 | 1);
        self.0 = (product as u64) ^ (product >> 64) as u64;
        self.1 = self.1.wrapping_add(FACTOR);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        let product = u128::from(self.0) * u128::from(FACTOR);
        (product as u64) ^ (product >> 64) as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }
}
