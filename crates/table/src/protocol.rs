//! Protocol for writing an entry while other threads read it.
//!
//! The writer makes the version odd, writes the entry, makes the version even again, and only then lets a slot point to
//! the entry. If a reader finds different versions before and after its read, the entry was reused in between. Its old
//! key had been removed before that, so *absent* is a correct answer and no retry is needed: look-ups are wait-free.
//! `tests/model.rs` model-checks exactly this code.
//!
//! The version wraps after 2^31 rewrites of one entry. To read a wrong value, a reader would have to sleep through all
//! of them inside one look-up.

use super::sync::{AtomicU32, Ordering, fence};

/// Index of the version in an entry.
pub const VERSION: usize = 0;
/// Index of the value.
pub const VALUE: usize = 1;
/// Index of the first key word.
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

/// Returns the value of an entry if the entry has this key.
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
