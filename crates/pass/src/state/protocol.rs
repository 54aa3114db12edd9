//! Protocol by which rows are added and removed while readers read them: the memory orders of `rows.rs`.
//!
//! `tests/model.rs` runs this file under loom.

use super::sync::{AtomicU64, Ordering, fence};

/// `died` of a row that no edit has ended.
pub const NEVER: u64 = u64::MAX;
/// Set in a reader epoch while its reader advances to the newest epoch, whatever that is.
pub const MOVING: u64 = 1 << 63;
/// The reader epoch of a dropped reader.
pub const GONE: u64 = u64::MAX;

/// Gives an unused slot to a row in force from `epoch` on; `fill` stores the rest of the row.
#[inline]
pub fn begin(born: &AtomicU64, died: &AtomicU64, epoch: u64, fill: impl FnOnce()) {
    // `born` first: a reader that sees the new `died` sees it too and is at an earlier epoch.
    born.store(epoch, Ordering::Release);
    fill();
    died.store(NEVER, Ordering::Release);
}

/// Tests if a row is in force at an epoch. If it is, the data that `fill` stored is visible.
#[inline]
pub fn is_live(born: &AtomicU64, died: &AtomicU64, at: u64) -> bool {
    at < died.load(Ordering::Acquire) && born.load(Ordering::Acquire) <= at
}

/// Begins to advance: the reader is about to load the newest epoch.
#[inline]
pub fn advance(pinned: &AtomicU64) {
    pinned.store(pinned.load(Ordering::Relaxed) | MOVING, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Pins an epoch that the reader has loaded since [`advance`].
#[inline]
pub fn pin(pinned: &AtomicU64, epoch: u64) {
    pinned.store(epoch, Ordering::Release);
}

/// Fence of the writer between storing the newest epoch and reading reader epochs: either it sees that a reader
/// advances, or that reader sees the newest epoch.
#[inline]
pub fn scan_fence() {
    fence(Ordering::SeqCst);
}

/// First and last epoch that a reader may read; `None` if the reader was dropped.
#[inline]
pub fn range(pinned: &AtomicU64) -> Option<(u64, u64)> {
    match pinned.load(Ordering::Acquire) {
        GONE => None,
        pinned if pinned & MOVING == 0 => Some((pinned, pinned)),
        pinned => Some((pinned & !MOVING, NEVER)),
    }
}
