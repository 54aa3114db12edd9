//! Shapes and their rows: the writer's half.
//!
//! Passes are of one *kind* if they test the same words under the same masks and have the same number of other
//! instructions. From `THRESHOLD` passes of a kind on they become the rows of a *shape*. Instructions that all of them
//! share are tested once for all rows. Words that differ are the key of a table; this includes words at one of two
//! places, as in `host` (a frame is then looked up for each combination). Other instructions that differ are tested on
//! a frame after its key has found the row. So the cost of a frame grows with the number of shapes and of found rows,
//! not of passes, and an edit of a row is a few stores. A prefix is a word under a mask, so each prefix length is a
//! shape of its own. Passes outside of tables are *unindexed*: passes with children or deep in the forest, kinds with
//! keys that hardly differ, more than [`fyke_table::row_table::MAX_SAME`] rows of one key, and everything beyond
//! [`MAX_SHAPES`].
//!
//! A *declared* shape was declared by the caller ([`crate::PassSet::new_shape`]). Its rows are not in the state that
//! snapshots copy, so an edit of one changes only its slot, the table and the epoch.
//!
//! Cost: an edit of a row O(1); making a shape or rebuilding its table O(rows). A table is rebuilt once per doubling,
//! or if readers that do not advance keep too many ended rows of one key. Source: MPF, section 3 (collapse).

mod collapse;
mod shape;

use crate::isa::hash::MixMap;
use crate::isa::id::RowRef;
use crate::isa::id::{Epoch, PassId};
use crate::isa::layout::Instruction;
use crate::isa::test::Compiled;
use crate::plan::snapshot::Shared;
use crate::state::published::PublishedShape;
use crate::state::published::RowCounts;
use crate::state::rows::{Row, Slot};
use crate::writer::error::EditError;
use collapse::{Kind, Part};
use fyke_table::{MAX_KEY_WORDS, TableError};
pub(crate) use shape::Shape;
use shape::{Role, either_words, words_of};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of shapes of a set.
pub const MAX_SHAPES: usize = 64;
/// Largest number of rows of a shape.
pub(crate) const ROW_LIMIT: usize = 1 << 22;
/// Number of ended rows that are removed together.
const RECLAIM: usize = 64;

/// Layout of the passes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Number of tables, at most [`MAX_SHAPES`].
    pub shapes: usize,
    /// Number of passes that are rows of a table.
    pub rows: usize,
    /// Number of passes that are evaluated one by one.
    pub loose: usize,
    /// Number of those that would be rows if there were fewer than [`MAX_SHAPES`] tables.
    pub capped: usize,
}

/// All shapes of a set.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    list: Vec<Option<Shape>>,
    kinds: MixMap<Vec<Part>, Kind>,
    /// Passes outside of tables, in the order of evaluation.
    unindexed: BTreeMap<Vec<u64>, PassId>,
    /// Ended rows that are still in tables.
    dead: VecDeque<RowRef>,
    /// Number of ended rows from which on the writer tries to remove them.
    reclaim_from: usize,
    /// Passes that were moved: their counters and their former slots.
    moved: HashMap<u64, (Arc<AtomicU64>, Vec<RowRef>)>,
    /// Number of rows of declared shapes.
    declared_rows: usize,
    /// Shapes that were made of passes since the last look.
    pub made: Vec<u32>,
    /// True if data changed on which readers' plans depend.
    pub changed: bool,
}

impl RowCounts for Shapes {
    /// Frames accepted by the current row and by former ones.
    fn accepted(&self, id: PassId, row: Option<RowRef>) -> u64 {
        let count = |row: RowRef| {
            self.get(row.shape()).map_or(0, |shape| shape.published.accepted(row.slot()))
        };
        let before = self.moved.get(&id.0).filter(|_| !self.moved.is_empty());
        let before = before.map_or(0, |(_, rows)| rows.iter().copied().map(count).sum());
        row.map_or(0, count) + before
    }
}

impl Shapes {
    /// Passes outside of tables, in the order of evaluation.
    pub fn unindexed(&self) -> Arc<[PassId]> {
        self.unindexed.values().copied().collect()
    }

    /// The shapes that readers see.
    pub fn published(&self) -> Arc<[Arc<PublishedShape>]> {
        self.list.iter().flatten().map(|shape| shape.published.clone()).collect()
    }

    pub fn get(&self, number: u32) -> Option<&Shape> {
        self.list.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Shape> {
        self.list.get_mut(number as usize)?.as_mut()
    }

    /// Number of rows of declared shapes.
    pub fn declared_rows(&self) -> usize {
        self.declared_rows
    }

    pub fn declared(&self) -> impl Iterator<Item = (u32, &Shape)> {
        let all = self.list.iter().enumerate();
        let there = all.filter_map(|(number, shape)| Some((number as u32, shape.as_ref()?)));
        there.filter(|(_, shape)| shape.declared)
    }

    /// Layout of the passes.
    pub fn layout(&self) -> Layout {
        let shapes = self.list.iter().flatten();
        let rows = shapes.clone().map(|shape| shape.rows).sum();
        let capped = self.kinds.values().map(Kind::capped).sum();
        Layout { shapes: shapes.count(), rows, loose: self.unindexed.len(), capped }
    }

    /// Adds a shape and returns its number, or `None` if there are [`MAX_SHAPES`] already.
    fn push(&mut self, mut shape: Shape) -> Option<u32> {
        if self.list.iter().flatten().count() >= MAX_SHAPES {
            return None;
        }
        self.changed = true;
        let number = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        if number == self.list.len() {
            self.list.push(None);
        }
        Arc::make_mut(&mut shape.published).number = number as u32;
        self.list[number] = Some(shape);
        Some(number as u32)
    }

    /// Adds a declared shape. Its instructions at `varying` differ from row to row. The number of its first row is at
    /// least `next_pass`.
    pub fn declare(
        &mut self,
        instructions: &[Instruction],
        compiled: &[Arc<Compiled>],
        varying: &[usize],
        next_pass: u64,
    ) -> Result<u32, EditError> {
        let mut roles: Vec<Role> = instructions.iter().copied().map(Role::Common).collect();
        let length = instructions.len();
        for &given in varying {
            let absent = EditError::NoInstruction { given, length };
            *roles.get_mut(given).ok_or(absent)? = Role::Key;
        }
        for (given, (role, compiled)) in roles.iter().zip(compiled).enumerate() {
            let exact = words_of(compiled).is_some_and(|words| either_words(&words) == 0);
            if *role == Role::Key && !exact {
                return Err(EditError::NotExact { given });
            }
        }
        let shape = Shape::new(roles, instructions.to_vec(), compiled, true, [next_pass, 0]);
        let shape = shape.ok_or(EditError::KeyWidth { limit: MAX_KEY_WORDS })?;
        self.push(shape).ok_or(EditError::TooManyShapes { limit: MAX_SHAPES })
    }

    /// Removes a declared shape without rows.
    pub fn undeclare(&mut self, number: u32) -> Result<Shape, EditError> {
        let absent = EditError::NoShape { given: number };
        let shape = self.get(number).filter(|shape| shape.declared).ok_or(absent)?;
        if shape.rows > 0 {
            return Err(EditError::ShapeInUse { given: number, rows: shape.rows });
        }
        self.dead.retain(|row| row.shape() != number);
        self.changed = true;
        self.list[number as usize].take().ok_or(absent)
    }

    /// Makes room for rows of a declared shape.
    pub fn reserve(&mut self, number: u32, rows: usize) -> Result<(), EditError> {
        let shape = self.get_mut(number).filter(|shape| shape.declared);
        shape.ok_or(EditError::NoShape { given: number })?.reserve(rows);
        Ok(())
    }

    /// Adds a row to a declared shape, in force from `born` on.
    #[inline]
    pub fn add_declared(
        &mut self,
        number: u32,
        operands: &[u32],
        id: u64,
        born: Epoch,
        readers: &Shared,
    ) -> Result<RowRef, EditError> {
        let absent = EditError::NoShape { given: number };
        let shape = self.list.get_mut(number as usize).and_then(Option::as_mut).ok_or(absent)?;
        if !shape.declared {
            return Err(absent);
        }
        let expected = shape.width;
        if operands.len() != expected {
            return Err(EditError::Operands { given: operands.len(), expected });
        }
        let key = shape.key(operands);
        let key = &key[..expected];
        let row = Row { order_key: [id, 0], filter: None, residual: 0 };
        let mut added = shape.add(key, row, born, born);
        if matches!(added, Err(TableError::SameKey { .. })) && shape.dead > 0 {
            added = self.make_way(number, born, readers, |shape| shape.add(key, row, born, born));
        }
        let slot = added.map_err(|error| match error {
            TableError::SameKey { limit } => EditError::SameRow { limit },
            _ => EditError::Full { limit: ROW_LIMIT },
        })?;
        self.declared_rows += 1;
        Ok(RowRef::new(number, slot))
    }

    /// Removes ended rows that block a key, or rebuilds the table without them, and tries once more to add the row.
    #[cold]
    fn make_way(
        &mut self,
        number: u32,
        born: Epoch,
        readers: &Shared,
        again: impl Fn(&mut Shape) -> Result<u32, TableError>,
    ) -> Result<u32, TableError> {
        self.reclaim_now(readers);
        let absent = TableError::Full { limit: 0 };
        let added = again(self.get_mut(number).ok_or(absent)?);
        if added.is_ok() {
            return added;
        }
        self.rebuild(number, Epoch(born.0 - 1));
        again(self.get_mut(number).ok_or(absent)?)
    }

    /// Rebuilds a shape's table. Readers that still use the old one may count frames for passes that are no longer its
    /// rows; these counts are no longer added to the passes.
    fn rebuild(&mut self, number: u32, now: Epoch) {
        let Some(shape) = self.list.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let of_it = |row: &RowRef| row.shape() == number;
        for (counter, rows) in self.moved.values() {
            let late =
                rows.iter().filter(|row| of_it(row)).map(|row| shape.take_accepted(row.slot()));
            counter.fetch_add(late.sum(), Ordering::Relaxed);
        }
        if shape.rebuild(now) {
            self.changed = true;
            self.dead.retain(|row| !of_it(row));
            self.moved.retain(|_, (_, rows)| {
                rows.retain(|row| !of_it(row));
                !rows.is_empty()
            });
        }
    }

    /// Ends a row of a declared shape at `epoch`.
    #[inline]
    pub fn end_declared(&mut self, row: RowRef, pass: PassId, epoch: Epoch) -> bool {
        let shape = self.list.get_mut(row.shape() as usize).and_then(Option::as_mut);
        let Some(shape) = shape.filter(|shape| shape.declared) else { return false };
        let slot = shape.slot(row.slot()).filter(|slot| slot.is_kept());
        if slot.is_none_or(|slot| slot.pass() != pass.0) {
            return false;
        }
        shape.end(row.slot(), epoch);
        self.declared_rows -= 1;
        true
    }

    /// Ends all rows of declared shapes at `epoch`.
    pub fn end_all_declared(&mut self, epoch: Epoch) -> Vec<RowRef> {
        let mut ended = Vec::new();
        for (number, shape) in self.list.iter_mut().enumerate() {
            if let Some(shape) = shape.as_mut().filter(|shape| shape.declared) {
                let slots: Vec<u32> = shape.kept().map(|(slot, _)| slot).collect();
                slots.iter().for_each(|&slot| shape.end(slot, epoch));
                let shape = number as u32;
                ended.extend(slots.into_iter().map(|slot| RowRef::new(shape, slot)));
            }
        }
        self.declared_rows -= ended.len();
        ended
    }

    /// Undoes [`Shapes::add_declared`] before its epoch is published.
    pub fn undo_add(&mut self, row: RowRef) {
        if let Some(shape) = self.get_mut(row.shape()) {
            // The same edit may have ended it as well.
            if shape.slot(row.slot()).is_some_and(Slot::is_kept) {
                shape.rows -= 1;
                self.declared_rows -= 1;
            }
            if let Some(shape) = self.get_mut(row.shape()) {
                shape.release(row.slot());
            }
        }
    }

    /// Undoes [`Shapes::end_declared`] before its epoch is published.
    pub fn undo_end(&mut self, row: RowRef) {
        if let Some(shape) = self.get_mut(row.shape())
            && let Some(slot) = shape.slot(row.slot())
        {
            slot.undelete();
            shape.rows += 1;
            self.declared_rows += 1;
        }
    }

    /// Retires an ended row; it is removed when no reader reads it any more.
    #[inline]
    pub fn retire(&mut self, row: RowRef) {
        if let Some(shape) = self.list.get_mut(row.shape() as usize).and_then(Option::as_mut) {
            shape.dead += 1;
            self.dead.push_back(row);
        }
    }

    /// Removes ended rows if there are enough of them.
    #[inline]
    pub fn reclaim(&mut self, readers: &Shared) {
        if self.dead.len() >= self.reclaim_from.max(RECLAIM) {
            self.reclaim_now(readers);
        }
    }

    #[inline(never)]
    fn reclaim_now(&mut self, readers: &Shared) {
        let pinned_epochs = readers.pinned_epochs();
        for _ in 0..self.dead.len() {
            let Some(row) = self.dead.pop_front() else { break };
            let Some(shape) = self.list.get_mut(row.shape() as usize).and_then(Option::as_mut)
            else {
                continue;
            };
            let Some(slot) = shape.slot(row.slot()) else { continue };
            if pinned_epochs.includes(slot) {
                self.dead.push_back(row);
                continue;
            }
            if !self.moved.is_empty()
                && let Some((counter, rows)) = self.moved.get_mut(&slot.pass())
            {
                let late = slot.accepted.swap(0, Ordering::Relaxed);
                counter.fetch_add(late, Ordering::Relaxed);
                rows.retain(|old| *old != row);
                if rows.is_empty() {
                    self.moved.remove(&slot.pass());
                }
            }
            shape.dead -= 1;
            shape.release(row.slot());
        }
        // The remaining rows are pinned by readers that do not advance: try again when there are many more.
        self.reclaim_from = 2 * self.dead.len();
        for shape in self.list.iter_mut().flatten().filter(|shape| !shape.retired.is_empty()) {
            shape.fold_retired();
        }
    }
}
