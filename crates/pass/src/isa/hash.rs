//! A fast hash for lowering texts: folded 128-bit multiplication, fixed keys.
//!
//! A digest only proposes that two values may be equal; a comparison decides. An author of a text with colliding
//! digests slows down only the lowering of that text, within the limits of lowering.

use std::hash::{BuildHasherDefault, Hash, Hasher};

const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hasher of lowering.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mix(u64);

/// Map that uses [`Mix`].
pub(crate) type MixMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Mix>>;
/// Set that uses [`Mix`].
pub(crate) type MixSet<K> = std::collections::HashSet<K, BuildHasherDefault<Mix>>;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        fold(self.0 ^ KEY, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0.rotate_left(23) ^ value ^ KEY, 0xa076_1d64_78bd_642f | 1);
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

/// The digest of a value.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = Mix::default();
    value.hash(&mut hasher);
    hasher.finish()
}
