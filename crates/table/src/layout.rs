//! Memory layout of tables: words without pointers, the same for user space and a kernel that maps them.
//!
//! ```text
//! bucket  64 bytes   8 slots of 8 bytes
//! slot     8 bytes   high 32 bits: hash of the key · low 32 bits: number of the row's entry plus 1, 0 = free
//! entry   16 bytes   version, value, key[0..2]      (keys of 1 and 2 words)
//!         32 bytes   version, value, key[0..6]      (keys of 3 to 6 words)
//! Bloom    4 bytes   one word per some 2 rows, 2 bits per row in one word
//! ```
//!
//! A row is in one of two buckets, or in the spill bucket after the last one if both are full. Rows never move within a
//! table; a larger table is a new one. An entry never crosses a cache line. The version is odd while the entry is being
//! written.

use crate::sync::AtomicU32;
use fyke_frame::BATCH_CAPACITY;
use std::sync::atomic::AtomicU64;

/// Words of the longest key.
pub const MAX_KEY_WORDS: usize = 6;
/// Slots of a bucket.
pub const BUCKET_SLOTS: usize = 8;

/// One word per frame of a batch.
pub type Column = [u32; BATCH_CAPACITY];

/// A cache line of eight slots.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bucket(pub [AtomicU64; BUCKET_SLOTS]);

/// A cache line of two or four entries.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EntryLine(pub [AtomicU32; 16]);

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);
const _: () = assert!(size_of::<EntryLine>() == 64 && align_of::<EntryLine>() == 64);

/// Number of words of an entry for keys of `key_words` words.
pub const fn entry_words(key_words: usize) -> usize {
    if key_words <= 2 { 4 } else { 8 }
}

/// Makes a slot that points to entry `entry` of a row with this hash.
pub const fn slot(hash: u32, entry: u32) -> u64 {
    (hash as u64) << 32 | (entry as u64 + 1)
}

/// Returns the hash and the entry of a slot; `None` if it is free.
pub const fn slot_parts(slot: u64) -> Option<(u32, u32)> {
    match slot as u32 {
        0 => None,
        entry => Some(((slot >> 32) as u32, entry - 1)),
    }
}
