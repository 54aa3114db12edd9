//! The rows of a shape, as its readers see them while the writer edits them.
//!
//! A row is a key in the shape's table and a *slot*: the epochs between which it is in force, its order key, its
//! counter, and its residual tests (those besides the key). A reader pins one epoch and takes only the rows that are in
//! force then. So an edit of many rows is one edit for every frame, although its stores happen one by one:
//!
//! ```text
//! add     slot: born = next epoch, died = never   table: key ─▶ slot      commit: epoch += 1
//! remove  slot: died = next epoch                                         commit: epoch += 1
//! later   table: key removed, slot free           once no reader pins an epoch between
//! ```
//!
//! Readers announce the epoch that they pin (their *reader epoch*) and advance from it only to the newest epoch. So an
//! ended row is kept only while a reader pins an epoch between its birth and its end. A reader that never advances
//! keeps at most the rows that existed when it last did.
//!
//! Invariants: a row is removed, and its slot reused, only when no reader reads an epoch of it any more; `born` is
//! stored before `died` and loaded after it, so that a half reused slot is in force for no reader. Slots never move. 64
//! bytes a row, besides the table's. `protocol.rs` has the memory orders, which `tests/model.rs` model-checks.

use crate::isa::id::{Epoch, FilterId, OrderKey};
use crate::isa::test::Compiled;
use crate::state::protocol::{self, GONE, MOVING, NEVER};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Number of items of an arena's first chunk; each further chunk has twice as many.
const FIRST: u32 = 64;
/// Number of chunks of an arena: room for 67 million items.
const CHUNKS: usize = 20;

/// Items that never move, so that readers may read them while more are made.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T: Default> Arena<T> {
    pub fn new() -> Arena<T> {
        Arena { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Index of the chunk and index in it.
    fn locate(index: u32) -> (usize, usize) {
        let from_first = index.saturating_add(FIRST);
        let chunk = from_first.ilog2() - FIRST.ilog2();
        (chunk as usize, (from_first - (FIRST << chunk)) as usize)
    }

    /// The item, if it was made.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        let (chunk, at) = Self::locate(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// The item, which is made if necessary; `None` if the arena is full.
    #[inline]
    pub fn make(&self, index: u32) -> Option<&T> {
        let (chunk, at) = Self::locate(index);
        let len = (FIRST as usize) << chunk;
        let items = self.chunks.get(chunk)?;
        items.get_or_init(|| (0..len).map(|_| T::default()).collect()).get(at)
    }
}

/// A row. One cache line, all of it in use.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    died: AtomicU64,
    born: AtomicU64,
    changed: AtomicU64,
    root: AtomicU64,
    id: AtomicU64,
    /// The filter that the pass belongs to; 0 = none.
    filter: AtomicU64,
    /// Frames accepted.
    pub accepted: AtomicU64,
    /// Number of the residual tests plus one; 0 = none.
    residual: AtomicU32,
    /// The table's entry; only for the writer.
    entry: AtomicU32,
}

/// Data of a row, besides its key and its epochs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub order_key: OrderKey,
    /// The filter that the pass belongs to.
    pub filter: Option<FilterId>,
    /// Number of the residual tests plus one; 0 = none.
    pub residual: u32,
}

impl Slot {
    /// Gives the slot to a row that is in force from `born` on.
    #[inline]
    pub fn begin(&self, born: Epoch, changed: Epoch, row: Row) {
        let Row { order_key, filter, residual } = row;
        protocol::begin(&self.born, &self.died, born.0, || {
            self.changed.store(changed.0, Ordering::Relaxed);
            self.root.store(order_key[0], Ordering::Relaxed);
            self.id.store(order_key[1], Ordering::Relaxed);
            self.filter.store(filter.map_or(0, |filter| filter.0), Ordering::Relaxed);
            self.accepted.store(0, Ordering::Relaxed);
            self.residual.store(residual, Ordering::Relaxed);
        });
    }

    #[inline]
    pub fn set_entry(&self, entry: u32) {
        self.entry.store(entry, Ordering::Relaxed);
    }

    #[inline]
    pub fn entry(&self) -> u32 {
        self.entry.load(Ordering::Relaxed)
    }

    /// Ends the row: it is in force before `epoch` only.
    #[inline]
    pub fn end(&self, epoch: Epoch) {
        self.died.store(epoch.0, Ordering::Release);
    }

    /// Undoes [`Slot::end`].
    pub fn undelete(&self) {
        self.died.store(NEVER, Ordering::Release);
    }

    /// Tests if the row is in force at an epoch.
    #[inline]
    pub fn is_live(&self, at: Epoch) -> bool {
        protocol::is_live(&self.born, &self.died, at.0)
    }

    /// True if no edit, committed or not, has ended it.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.died.load(Ordering::Relaxed) == NEVER
    }

    /// Tests if the row is in force at epoch `now` or after it.
    pub fn outlives(&self, now: Epoch) -> bool {
        self.died.load(Ordering::Relaxed) > now.0
    }

    /// The edit that made the row, or that made or changed its pass.
    #[inline]
    pub fn changed(&self) -> Epoch {
        Epoch(self.changed.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn order_key(&self) -> OrderKey {
        [self.root.load(Ordering::Relaxed), self.id.load(Ordering::Relaxed)]
    }

    /// Number of the pass.
    #[inline]
    pub fn pass(&self) -> u64 {
        match self.order_key() {
            [root, 0] => root,
            [_, id] => id,
        }
    }

    /// The filter that the pass belongs to.
    #[inline]
    pub fn filter(&self) -> Option<FilterId> {
        let number = self.filter.load(Ordering::Relaxed);
        (number > 0).then_some(FilterId(number))
    }

    #[inline]
    pub fn residual(&self) -> u32 {
        self.residual.load(Ordering::Relaxed)
    }

    /// Copies the slot to one of another arena, with its own counter.
    pub fn copy_to(&self, other: &Slot, residual: u32) {
        let (born, changed) = (self.born.load(Ordering::Relaxed), self.changed());
        let row = Row { order_key: self.order_key(), filter: self.filter(), residual };
        other.begin(Epoch(born), changed, row);
        other.died.store(self.died.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Tests of a row besides its key, in the order of the pass.
pub(crate) type Residual = Box<[Arc<Compiled>]>;

/// Epochs of all readers.
#[derive(Debug, Default)]
pub(crate) struct ReaderEpochs(Mutex<Readers>);

/// Those that have joined since the last sweep, and the others that have not left.
#[derive(Debug, Default)]
struct Readers {
    list: Vec<Arc<AtomicU64>>,
    /// Entries that the last sweep left.
    swept: usize,
}

/// Most readers that may have left since the last sweep, besides as many as have not. Every view of a set joins, and
/// edits, which sweep, may be days apart.
const LEFT: usize = 64;

impl Readers {
    /// Removes those that have left.
    fn sweep(&mut self) {
        self.list.retain(|pinned| pinned.load(Ordering::Acquire) != GONE);
        self.swept = self.list.len();
    }
}

/// Epoch of one reader; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ReaderEpoch(Arc<AtomicU64>);

/// Epochs that readers may read: the first and the last of each reader.
pub(crate) struct PinnedEpochs(Vec<(u64, u64)>);

impl ReaderEpochs {
    /// Adds a reader that advances to the newest epoch; [`ReaderEpoch::pin`] must follow.
    pub fn join(&self, newest: impl FnOnce() -> Epoch) -> ReaderEpoch {
        self.add(|| newest().0 | MOVING)
    }

    /// Adds a reader that pins the same epoch as another one.
    pub fn join_at(&self, epoch: Epoch) -> ReaderEpoch {
        self.add(|| epoch.0)
    }

    fn add(&self, pinned: impl FnOnce() -> u64) -> ReaderEpoch {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.list.len() >= 2 * readers.swept + LEFT {
            readers.sweep();
        }
        let pinned = Arc::new(AtomicU64::new(pinned()));
        readers.list.push(pinned.clone());
        ReaderEpoch(pinned)
    }

    /// The epochs that readers pin or may advance to; `newest` is the published epoch.
    pub fn pinned_epochs(&self, newest: Epoch) -> PinnedEpochs {
        protocol::scan_fence();
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.sweep();
        let ranges = readers.list.iter().filter_map(|pinned| protocol::range(pinned));
        PinnedEpochs(ranges.chain([(newest.0, newest.0)]).collect())
    }
}

impl PinnedEpochs {
    /// Tests if a reader may read the row of this slot.
    #[inline]
    pub fn includes(&self, slot: &Slot) -> bool {
        let born = slot.born.load(Ordering::Relaxed);
        let died = slot.died.load(Ordering::Relaxed);
        self.0.iter().any(|&(first, last)| born <= last && first < died)
    }
}

impl ReaderEpoch {
    /// Begins to advance: the reader is about to look for the newest epoch.
    #[inline]
    pub fn advance(&self) {
        protocol::advance(&self.0);
    }

    /// Pins `epoch` from now on.
    #[inline]
    pub fn pin(&self, epoch: Epoch) {
        protocol::pin(&self.0, epoch.0);
    }
}

impl Drop for ReaderEpoch {
    fn drop(&mut self) {
        self.0.store(GONE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_an_arena_are_all_different_and_stay() {
        let arena: Arena<AtomicU32> = Arena::new();
        assert!(arena.get(0).is_none() && arena.make(u32::MAX).is_none());
        for index in (0..5_000).rev() {
            arena.make(index).unwrap().store(index, Ordering::Relaxed);
        }
        assert!((0..5_000).all(|n| arena.get(n).unwrap().load(Ordering::Relaxed) == n));
    }

    #[test]
    fn a_row_is_in_force_from_its_birth_to_before_its_death() {
        let slot = Slot::default();
        assert!(!slot.is_live(Epoch(0)) && !slot.is_kept());
        slot.begin(Epoch(3), Epoch(3), Row { order_key: [7, 0], filter: None, residual: 0 });
        assert!(!slot.is_live(Epoch(2)) && slot.is_live(Epoch(3)) && slot.is_live(Epoch(99)));
        slot.end(Epoch(5));
        assert!(slot.is_live(Epoch(4)) && !slot.is_live(Epoch(5)) && slot.outlives(Epoch(4)));
        assert_eq!((slot.pass(), slot.order_key()), (7, [7, 0]));
    }

    #[test]
    fn readers_that_have_left_take_no_memory() {
        let readers = ReaderEpochs::default();
        let stay: Vec<_> = (0..100).map(|epoch| readers.join_at(Epoch(epoch))).collect();
        for _ in 0..10_000 {
            drop(readers.join(|| Epoch(200)));
        }
        let len = readers.0.lock().unwrap().list.len();
        assert!((stay.len()..=2 * stay.len() + LEFT).contains(&len), "{len} entries");
        assert_eq!(readers.pinned_epochs(Epoch(300)).0.len(), stay.len() + 1);
        drop(stay);
        assert_eq!(readers.pinned_epochs(Epoch(300)).0, [(300, 300)]);
    }

    #[test]
    fn an_ended_row_is_kept_while_a_reader_stands_in_it() {
        let (readers, slot) = (ReaderEpochs::default(), Slot::default());
        slot.begin(Epoch(3), Epoch(3), Row { order_key: [1, 0], filter: None, residual: 0 });
        slot.end(Epoch(6));
        let needed = || readers.pinned_epochs(Epoch(7)).includes(&slot);
        assert!(!needed());
        let (before, within) = (readers.join_at(Epoch(2)), readers.join_at(Epoch(5)));
        assert!(needed());
        within.advance();
        assert!(needed(), "it may have seen epoch 5 and not said so");
        within.pin(Epoch(6));
        assert!(!needed());
        before.advance();
        assert!(needed());
        drop(before);
        assert!(!needed());
        let new = readers.join(|| Epoch(4));
        assert!(needed());
        new.pin(Epoch(9));
        assert!(
            !needed() && readers.pinned_epochs(Epoch(5)).includes(&slot),
            "an end not published yet"
        );
    }
}
