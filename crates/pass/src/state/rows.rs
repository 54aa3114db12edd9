//! The rows of a shape, as its readers see them while the writer edits them.
//!
//! A row is a key in the shape's table and a *slot*: the epochs between which it is in force, its place in the order of
//! evaluation, its counter, and what is tested besides the key. A reader stays at one epoch and takes only those rows
//! that are in force then, so that an edit of many rows is one edit for every frame although its stores are not:
//!
//! ```text
//! add     slot: born = next epoch, died = never   table: key ─▶ slot      commit: epoch += 1
//! remove  slot: died = next epoch                                         commit: epoch += 1
//! later   table: key taken out, slot free         once no reader stands at an epoch between
//! ```
//!
//! Readers tell where they stand by their marks and go from there to the newest epoch only. So an ended row is kept
//! just while a reader stands between its birth and its end, and a reader that never goes on keeps at most the rows
//! that were there when it last did.
//!
//! Invariants: a row is taken out, and its slot given to another, when no reader looks at an epoch of it any more;
//! `born` is stored before `died` and loaded after it, so that a slot seen half given away is in force for nobody.
//! Slots never move. 64 bytes a row, besides the table's. The orders of loads and stores are in `protocol.rs`,
//! model-checked by `tests/model.rs`.

use crate::isa::id::{Epoch, FilterId, Turn};
use crate::isa::test::Compiled;
use crate::state::protocol::{self, GONE, MOVING, NEVER};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Items of an arena's first chunk; each further chunk has twice as many.
const FIRST: u32 = 64;
/// Chunks of an arena: room for 67 million.
const CHUNKS: usize = 20;

/// Items that never move, so that readers may look at them while more are made.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T: Default> Arena<T> {
    pub fn new() -> Arena<T> {
        Arena { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Chunk and place in it.
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

    /// The item, made when it is not there; `None` when there is no room for so many.
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
    /// Number of the further tests plus one; 0 = none.
    residual: AtomicU32,
    /// The table's entry; the writer's.
    entry: AtomicU32,
}

/// What a row is, besides its key and its epochs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub turn: Turn,
    /// The filter that the pass belongs to.
    pub filter: Option<FilterId>,
    /// Number of the further tests plus one; 0 = none.
    pub residual: u32,
}

impl Slot {
    /// Gives the slot to a row that is in force from `born` on.
    #[inline]
    pub fn begin(&self, born: Epoch, changed: Epoch, row: Row) {
        let Row { turn, filter, residual } = row;
        protocol::begin(&self.born, &self.died, born.0, || {
            self.changed.store(changed.0, Ordering::Relaxed);
            self.root.store(turn[0], Ordering::Relaxed);
            self.id.store(turn[1], Ordering::Relaxed);
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

    /// The row is in force until before `epoch`.
    #[inline]
    pub fn end(&self, epoch: Epoch) {
        self.died.store(epoch.0, Ordering::Release);
    }

    /// Takes [`Slot::end`] back.
    pub fn revive(&self) {
        self.died.store(NEVER, Ordering::Release);
    }

    /// Whether the row is in force at an epoch.
    #[inline]
    pub fn is_live(&self, at: Epoch) -> bool {
        protocol::is_live(&self.born, &self.died, at.0)
    }

    /// Whether no edit, committed or not, has ended it.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.died.load(Ordering::Relaxed) == NEVER
    }

    /// Whether it is in force after epoch `now`, or at it.
    pub fn outlives(&self, now: Epoch) -> bool {
        self.died.load(Ordering::Relaxed) > now.0
    }

    /// The edit that made the row, or the pass that it is.
    #[inline]
    pub fn changed(&self) -> Epoch {
        Epoch(self.changed.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn turn(&self) -> Turn {
        [self.root.load(Ordering::Relaxed), self.id.load(Ordering::Relaxed)]
    }

    /// Number of the pass.
    #[inline]
    pub fn pass(&self) -> u64 {
        match self.turn() {
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

    /// A copy in another arena, with a counter of its own.
    pub fn copy_to(&self, other: &Slot, residual: u32) {
        let (born, changed) = (self.born.load(Ordering::Relaxed), self.changed());
        let row = Row { turn: self.turn(), filter: self.filter(), residual };
        other.begin(Epoch(born), changed, row);
        other.died.store(self.died.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Tests of a row besides its key, in the order of the pass.
pub(crate) type Residual = Box<[Arc<Compiled>]>;

/// Where readers stand.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<Vec<Arc<AtomicU64>>>);

/// One reader's mark; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Mark(Arc<AtomicU64>);

/// Epochs that readers may look at: the first and the last of each reader.
pub(crate) struct Standing(Vec<(u64, u64)>);

impl Marks {
    /// The mark of a new reader that is going to the newest epoch; [`Mark::stand`] is to follow.
    pub fn enter(&self, newest: impl FnOnce() -> Epoch) -> Mark {
        self.add(|| newest().0 | MOVING)
    }

    /// The mark of a reader that stands beside another one.
    pub fn enter_at(&self, epoch: Epoch) -> Mark {
        self.add(|| epoch.0)
    }

    fn add(&self, mark: impl FnOnce() -> u64) -> Mark {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = Arc::new(AtomicU64::new(mark()));
        list.push(mark.clone());
        Mark(mark)
    }

    /// Where readers stand, and where they may go: the `newest` epoch, which is published.
    pub fn standing(&self, newest: Epoch) -> Standing {
        protocol::look_around();
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|mark| mark.load(Ordering::Acquire) != GONE);
        let ranges = list.iter().filter_map(|mark| protocol::range(mark));
        Standing(ranges.chain([(newest.0, newest.0)]).collect())
    }
}

impl Standing {
    /// Whether a reader may look at the row of this slot.
    #[inline]
    pub fn needs(&self, slot: &Slot) -> bool {
        let born = slot.born.load(Ordering::Relaxed);
        let died = slot.died.load(Ordering::Relaxed);
        self.0.iter().any(|&(first, last)| born <= last && first < died)
    }
}

impl Mark {
    /// The reader is about to look for the newest epoch.
    #[inline]
    pub fn leave(&self) {
        protocol::leave(&self.0);
    }

    /// The reader stands at `epoch` from now on.
    #[inline]
    pub fn stand(&self, epoch: Epoch) {
        protocol::stand(&self.0, epoch.0);
    }
}

impl Drop for Mark {
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
        slot.begin(Epoch(3), Epoch(3), Row { turn: [7, 0], filter: None, residual: 0 });
        assert!(!slot.is_live(Epoch(2)) && slot.is_live(Epoch(3)) && slot.is_live(Epoch(99)));
        slot.end(Epoch(5));
        assert!(slot.is_live(Epoch(4)) && !slot.is_live(Epoch(5)) && slot.outlives(Epoch(4)));
        assert_eq!((slot.pass(), slot.turn()), (7, [7, 0]));
    }

    #[test]
    fn an_ended_row_is_kept_while_a_reader_stands_in_it() {
        let (marks, slot) = (Marks::default(), Slot::default());
        slot.begin(Epoch(3), Epoch(3), Row { turn: [1, 0], filter: None, residual: 0 });
        slot.end(Epoch(6));
        let needed = || marks.standing(Epoch(7)).needs(&slot);
        assert!(!needed());
        let (before, within) = (marks.enter_at(Epoch(2)), marks.enter_at(Epoch(5)));
        assert!(needed());
        within.leave();
        assert!(needed(), "it may have seen epoch 5 and not said so");
        within.stand(Epoch(6));
        assert!(!needed());
        before.leave();
        assert!(needed());
        drop(before);
        assert!(!needed());
        let new = marks.enter(|| Epoch(4));
        assert!(needed());
        new.stand(Epoch(9));
        assert!(!needed() && marks.standing(Epoch(5)).needs(&slot), "an end not published yet");
    }
}
