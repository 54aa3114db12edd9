//! How an entry is written while others read it.
//!
//! The writer makes the version odd, writes, makes it even again and only then lets a slot point to the entry. A reader
//! whose two looks at the version differ has met an entry that was given away in between. Its key had been removed by
//! then, so *absent* is a right answer and nobody has to try again: look-ups are wait-free. Model-checked by
//! `tests/model.rs` with these very lines.
//!
//! The version wraps after 2^31 rewrites of one entry; a reader would have to sleep through all of them inside one
//! look-up to be misled.

use super::sync::{AtomicU32, Ordering, fence};

/// Place of the version in an entry.
pub const VERSION: usize = 0;
/// Place of the value.
pub const VALUE: usize = 1;
/// Place of the first key word.
pub const KEY: usize = 2;

/// Writes an entry that no slot points to. Only the writer may call this.
#[inline]
pub fn write_entry(entry: &[AtomicU32], key: &[u32], value: u32) {
    let version = entry[VERSION].load(Ordering::Relaxed);
    entry[VERSION].store(version.wrapping_add(1), Ordering::Relaxed);
    fence(Ordering::Release);
    for (word, &part) in entry[KEY..].iter().zip(key) {
        word.store(part, Ordering::Relaxed);
    }
    entry[VALUE].store(value, Ordering::Relaxed);
    entry[VERSION].store(version.wrapping_add(2), Ordering::Release);
}

/// Changes the value of an entry in place.
#[inline]
pub fn change_value(entry: &[AtomicU32], value: u32) {
    entry[VALUE].store(value, Ordering::Release);
}

/// The value of an entry if it is the one of this key.
#[inline]
pub fn read_entry(entry: &[AtomicU32], key: &[u32]) -> Option<u32> {
    let version = entry[VERSION].load(Ordering::Acquire);
    let words = entry[KEY..].iter().zip(key);
    let differs =
        words.fold(0, |differs, (word, &part)| differs | (word.load(Ordering::Relaxed) ^ part));
    let value = entry[VALUE].load(Ordering::Acquire);
    fence(Ordering::Acquire);
    let unchanged = entry[VERSION].load(Ordering::Relaxed) == version;
    (differs == 0 && unchanged && version & 1 == 0).then_some(value)
}
