//! How rows come and go while readers look at them: the orders of loads and stores behind `rows.rs`.
//!
//! `tests/model.rs` runs these very lines under loom.

use super::sync::{AtomicU64, Ordering, fence};

/// `died` of a row that no edit has ended.
pub const NEVER: u64 = u64::MAX;
/// Set in a mark whose reader is going on to the newest epoch, wherever that may be.
pub const MOVING: u64 = 1 << 63;
/// The mark of a reader that is gone.
pub const GONE: u64 = u64::MAX;

/// Gives a slot that nobody needs to a row in force from `epoch` on; `fill` stores what else there is.
#[inline]
pub fn begin(born: &AtomicU64, died: &AtomicU64, epoch: u64, fill: impl FnOnce()) {
    // `born` first: whoever sees the new `died` sees it too and is at an earlier epoch.
    born.store(epoch, Ordering::Release);
    fill();
    died.store(NEVER, Ordering::Release);
}

/// Whether a row is in force at an epoch. What `fill` stored is there when it is.
#[inline]
pub fn is_live(born: &AtomicU64, died: &AtomicU64, at: u64) -> bool {
    at < died.load(Ordering::Acquire) && born.load(Ordering::Acquire) <= at
}

/// The reader of this mark is about to load the newest epoch.
#[inline]
pub fn leave(mark: &AtomicU64) {
    mark.store(mark.load(Ordering::Relaxed) | MOVING, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// The reader of this mark stands at an epoch that it loaded since [`leave`].
#[inline]
pub fn stand(mark: &AtomicU64, epoch: u64) {
    mark.store(epoch, Ordering::Release);
}

/// The writer is about to look at marks, after it stored the newest epoch: either it sees that a reader is moving, or
/// that reader sees the newest epoch.
#[inline]
pub fn look_around() {
    fence(Ordering::SeqCst);
}

/// First and last epoch that a reader may look at; `None` when it is gone.
#[inline]
pub fn range(mark: &AtomicU64) -> Option<(u64, u64)> {
    match mark.load(Ordering::Acquire) {
        GONE => None,
        mark if mark & MOVING == 0 => Some((mark, mark)),
        mark => Some((mark & !MOVING, NEVER)),
    }
}
