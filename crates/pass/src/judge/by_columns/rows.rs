//! Judging a batch by the rows of tables.
//!
//! For each table: the tests that all rows share, then the words of the key, then one look-up for all remaining frames;
//! then, for found rows only, the test that the row is in force at the reader's epoch, and its residual tests. Keys
//! with several rows are tested one by one. The fused tier collects keys itself (`fused/keys.rs`); all later steps are
//! the same.

use super::{Hit, Judge, RowHit, Source, View, only};
use crate::isa::id::OrderKey;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::judge::arch::Level;
use crate::judge::fused::Keys;
use crate::judge::matches::Match;
use crate::plan::{Plan, PlanShape};
use crate::state::rows::Slot;
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
use fyke_table::row_table::{Candidate, KeyColumn};
use fyke_table::{MAX_KEY_WORDS, TableReader};
use std::sync::atomic::Ordering;

/// Number of found rows of which the slots are loaded together.
const BLOCK: usize = 64;

/// The first row that accepts a frame.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    order_key: OrderKey,
    shape: u32,
    slot: u32,
}

/// Memory for look-ups, and their results.
#[derive(Debug)]
pub(in crate::judge) struct Found {
    /// For each table of the plan.
    tables: Vec<TableReader>,
    /// The keys that are looked up.
    pub keys: Box<Keys>,
    first: Box<[First; BATCH_CAPACITY]>,
    /// For frames that rows accept: number of unindexed passes that come before the first row.
    pub ranks: Box<[u32; BATCH_CAPACITY]>,
}

impl Found {
    pub fn new() -> Found {
        Found {
            tables: Vec::new(),
            keys: Box::default(),
            first: Box::new([First::default(); BATCH_CAPACITY]),
            ranks: Box::new([0; BATCH_CAPACITY]),
        }
    }

    pub fn fit(&mut self, plan: &Plan, level: Level) {
        self.tables.clear();
        self.tables.extend(plan.shapes.iter().map(|shape| shape.published.table.clone()));
        self.set_level(level);
    }

    pub fn set_level(&mut self, level: Level) {
        self.tables.iter_mut().for_each(|table| table.set_level(level));
    }

    /// The first rows of these frames, as hits.
    pub fn hits(&self, taken: Mask, hits: &mut Vec<RowHit>) {
        for at in taken.iter() {
            let First { shape, slot, .. } = self.first[at];
            hits.push(RowHit { at: at as u8, shape, slot });
        }
    }
}

/// Context in which found rows are tested.
pub(in crate::judge) struct LookUpContext<'a, 'f> {
    pub view: View<'a>,
    pub batch: &'a Batch<'f>,
    pub since: Option<Epoch>,
    pub level: Level,
}

impl LookUpContext<'_, '_> {
    /// Tests if the row of a slot is in force and accepts a frame that has its key.
    #[inline]
    fn accepts(&self, shape: &PlanShape, row: &Slot, frame: usize) -> bool {
        if !row.is_live(self.view.epoch) || self.since.is_some_and(|since| row.changed() <= since) {
            return false;
        }
        shape.published.further(row, &self.batch.frames()[frame])
    }
}

impl Found {
    /// Looks up the keys. Adds the frames that rows accept to `taken`, notes the first row of each, and shows each
    /// found row.
    pub fn look_up(
        &mut self,
        context: &LookUpContext,
        number: usize,
        taken: &mut Mask,
        mut every: impl FnMut(Hit),
    ) {
        let shape = &context.view.plan.shapes[number];
        let Found { tables, keys, first, .. } = self;
        let mut accept = |lane: u8, slot: u32, row: &Slot| {
            let at = keys.places[usize::from(lane)] as usize % BATCH_CAPACITY;
            if !context.accepts(shape, row, at) {
                return;
            }
            let (order_key, shape) = (row.order_key(), number as u32);
            every(Hit { order_key, source: Source::Row(shape, slot), frames: only(at) });
            if !taken.get(at) || order_key < first[at].order_key {
                taken.set(at);
                first[at] = First { order_key, shape, slot };
            }
        };
        let columns: [KeyColumn; MAX_KEY_WORDS] = std::array::from_fn(|word| {
            let either = shape.keys.get(word).is_some_and(|key| key.second.is_some());
            KeyColumn { words: &keys.words[word], others: either.then_some(&keys.others[word]) }
        });
        let columns = &columns[..shape.keys.len()];
        // The width is the table's: both come from the shape.
        let Ok(found) = tables[number].find_rows(columns, Mask::first(keys.count)) else { return };
        let mut several: Vec<Candidate> = Vec::new();
        for block in found.chunks(BLOCK) {
            // Slots of many rows are in no cache: start all loads before waiting for one.
            let mut rows = [None; BLOCK];
            for (row, one) in rows.iter_mut().zip(block) {
                *row = shape.published.slots.get(one.value);
                row.iter().for_each(|row| context.level.prefetch(*row));
            }
            for (row, one) in rows.into_iter().zip(block) {
                match row {
                    _ if one.more => several.push(*one),
                    Some(row) => accept(one.lane, one.value, row),
                    None => {}
                }
            }
        }
        for one in several {
            let word = |at: usize| columns[at].word(one.lane, one.choice >> at & 1 == 1);
            let key: [u32; MAX_KEY_WORDS] =
                std::array::from_fn(|at| if at < columns.len() { word(at) } else { 0 });
            tables[number].find_each(&key[..columns.len()], |slot| {
                shape.published.slots.get(slot).iter().for_each(|row| accept(one.lane, slot, row));
            });
        }
    }

    /// Decides between rows and a pass with this order key on frames that both accept: returns the frames of the pass;
    /// the others stay in `taken`.
    pub fn settle(&self, order_key: OrderKey, mut frames: Mask, taken: &mut Mask) -> Mask {
        for at in (frames & *taken).iter() {
            let loser =
                if self.first[at].order_key < order_key { &mut frames } else { &mut *taken };
            loser.clear(at);
        }
        frames
    }

    /// Finds the number of unindexed passes that come before the first row of each of these frames.
    pub fn rank(&mut self, plan: &Plan, taken: Mask) {
        for at in taken.iter() {
            let order_key = self.first[at].order_key;
            self.ranks[at] = plan.passes.partition_point(|pass| pass.order_key < order_key) as u32;
        }
    }
}

impl Judge<'_, '_> {
    /// The frames that are too short for a filter of which passes are rows.
    pub(super) fn deferred(&self, within: Mask) -> Mask {
        let needs = self.plan.shapes.iter().flat_map(|shape| &shape.needs);
        let short = needs.map(|&needs| self.scratch.short[needs as usize]);
        short.fold(Mask::EMPTY, |all, short| all | short) & within
    }

    /// The frames that rows accept; the first row of each is noted, or all of them are kept as hits if `every` hit is
    /// requested.
    pub(super) fn rows(&mut self, within: Mask, since: Option<Epoch>, every: bool) -> Mask {
        let mut taken = Mask::EMPTY;
        let (view, batch, level) = (self.view, self.batch, self.scratch.level);
        for (number, shape) in self.plan.shapes.iter().enumerate() {
            if self.keys(shape, within).is_empty() {
                continue;
            }
            let super::Scratch { rows, hits, .. } = &mut *self.scratch;
            self.work.instructions += rows.keys.count as u64;
            let context = LookUpContext { view, batch, since, level };
            rows.look_up(&context, number, &mut taken, |hit| {
                if every {
                    hits.push(hit);
                }
            });
        }
        taken
    }

    /// The frames for which the tests that all rows share hold; notes the words of their keys.
    fn keys(&mut self, shape: &PlanShape, within: Mask) -> Mask {
        let mut rest = within;
        for step in &shape.common {
            if !rest.is_empty() {
                rest = self.step(step.test, step.record, rest);
            }
        }
        let look = self.look();
        let super::Scratch { columns, rows, .. } = &mut *self.scratch;
        let keys = &mut *rows.keys;
        let column = |index: u32| &look.plan.columns[index as usize];
        for word in shape.keys.iter().flat_map(|key| [Some(key.column), key.second]).flatten() {
            if !rest.is_empty() {
                rest = columns.prepare(look, column(word), rest);
            }
        }
        if rest.is_empty() {
            return rest;
        }
        for (at, word) in shape.keys.iter().enumerate() {
            columns.gather(look, column(word.column), word.mask, rest, &mut keys.words[at]);
            if let Some(second) = word.second {
                columns.gather(look, column(second), word.mask, rest, &mut keys.others[at]);
            }
        }
        keys.count = rest.count();
        keys.places.iter_mut().zip(rest.iter()).for_each(|(place, at)| *place = at as u32);
        rest
    }
}

impl View<'_> {
    fn row(&self, shape: u32, slot: u32) -> Option<&Slot> {
        self.plan.shapes.get(shape as usize)?.published.slots.get(slot)
    }

    pub(in crate::judge) fn matched_row(self, shape: u32, slot: u32) -> Option<Match> {
        let row = self.row(shape, slot)?;
        let (pass, filter) = (PassId(row.pass()), row.filter());
        Some(Match { pass, filter: filter.filter(|&filter| self.is_written(filter)) })
    }

    pub(super) fn matched_pass(self, pass: PassId) -> Match {
        let filter = self.snapshot.state.pass(pass).and_then(|row| row.filter);
        Match { pass, filter: filter.filter(|&filter| self.is_written(filter)) }
    }

    /// True if the filter's passes equal its text. Looked up only if some filter's do not.
    fn is_written(self, filter: FilterId) -> bool {
        let state = &self.snapshot.state;
        let written = || state.filters.get(filter.0).is_some_and(|row| row.ordered.is_some());
        state.modified_filters == 0 || written()
    }

    pub(super) fn count_row(self, shape: u32, slot: u32, frames: u64) {
        if let Some(slot) = self.row(shape, slot) {
            slot.accepted.fetch_add(frames, Ordering::Relaxed);
        }
    }
}
