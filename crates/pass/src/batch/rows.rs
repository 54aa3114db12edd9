//! Judging a batch by the rows of tables.
//!
//! Per table: what all rows share, then the words of the key, then one look-up for all frames that are left; then, for
//! found rows only, whether the row is in force at the reader's epoch and what it tests besides. Keys that have several
//! rows are asked for one by one.

use super::{Hit, Judge, Source, View};
use crate::id::{Epoch, FilterId, PassId};
use crate::matches::Match;
use crate::plan::{Plan, PlanShape};
use crate::rows::{Slot, Turn};
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
use fyke_table::{MAX_KEY_WORDS, TableReader};
use std::sync::atomic::Ordering;

/// The first row that accepts a frame.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    turn: Turn,
    shape: u32,
    slot: u32,
}

/// Memory for look-ups, and what they found.
#[derive(Debug)]
pub(super) struct Found {
    /// For each table of the plan.
    tables: Vec<TableReader>,
    /// The words of a key, those of its other places, and the slots found.
    keys: Box<[[u32; BATCH_CAPACITY]; MAX_KEY_WORDS]>,
    others: Box<[[u32; BATCH_CAPACITY]; MAX_KEY_WORDS]>,
    found: Box<[u32; BATCH_CAPACITY]>,
    first: Box<[First; BATCH_CAPACITY]>,
    /// Of frames that rows accept: how many passes outside of tables come before the first row.
    pub ranks: Box<[u32; BATCH_CAPACITY]>,
}

impl Found {
    pub fn new() -> Found {
        Found {
            tables: Vec::new(),
            keys: Box::new([[0; BATCH_CAPACITY]; MAX_KEY_WORDS]),
            others: Box::new([[0; BATCH_CAPACITY]; MAX_KEY_WORDS]),
            found: Box::new([0; BATCH_CAPACITY]),
            first: Box::new([First::default(); BATCH_CAPACITY]),
            ranks: Box::new([0; BATCH_CAPACITY]),
        }
    }

    pub fn fit(&mut self, plan: &Plan) {
        self.tables.clear();
        self.tables.extend(plan.shapes.iter().map(|shape| shape.live.table.clone()));
    }

    /// The frames of `taken` whose first row comes before this turn.
    pub fn before(&self, turn: Turn, taken: Mask) -> Mask {
        let mut before = Mask::EMPTY;
        taken.iter().filter(|&at| self.first[at].turn < turn).for_each(|at| before.set(at));
        before
    }

    /// The first rows of these frames, as hits.
    pub fn hits(&self, taken: Mask, hits: &mut Vec<Hit>) {
        for at in taken.iter() {
            let First { turn, shape, slot } = self.first[at];
            let mut frames = Mask::EMPTY;
            frames.set(at);
            hits.push(Hit { turn, source: Source::Row(shape, slot), frames });
        }
    }
}

/// All ways to choose a place for the words that have two: bit n of a choice, word n is at its second place.
fn choices(shape: &PlanShape) -> impl Iterator<Item = u32> {
    let either = shape.keys.iter().enumerate().filter(|(_, key)| key.second.is_some());
    let either = either.fold(0_u32, |all, (word, _)| all | 1 << word);
    // The next smaller subset of the bits, down to none.
    std::iter::successors(Some(either), move |&choice| {
        choice.checked_sub(1).map(|smaller| smaller & either)
    })
}

/// What a found row is asked.
struct Asked<'a, 'f> {
    shape: &'a PlanShape,
    epoch: Epoch,
    since: Option<Epoch>,
    batch: &'a Batch<'f>,
}

impl<'a> Asked<'a, '_> {
    /// The slot, if its row accepts a frame that has its key.
    #[inline]
    fn accepts(&self, slot: u32, frame: usize) -> Option<&'a Slot> {
        let live = &self.shape.live;
        let row = live.slots.get(slot)?;
        if !row.is_live(self.epoch) || self.since.is_some_and(|since| row.changed() <= since) {
            return None;
        }
        let Some(number) = row.residual().checked_sub(1) else { return Some(row) };
        let tests = live.residuals.get(number)?.get()?;
        let frame = &self.batch.frames()[frame];
        let holds = |one: &crate::state::Compiled| {
            one.test.holds(frame).is_ok_and(|holds| holds != one.negated)
        };
        tests.iter().all(|one| holds(one)).then_some(row)
    }
}

impl Judge<'_, '_> {
    /// The frames that are too short for a filter of which passes are rows.
    pub(super) fn aside(&self, within: Mask) -> Mask {
        let needs = self.plan.shapes.iter().flat_map(|shape| &shape.needs);
        let short = needs.map(|&needs| self.scratch.short[needs as usize]);
        short.fold(Mask::EMPTY, |all, short| all | short) & within
    }

    /// The frames that rows accept; the first row of each is noted, or all of them as hits when `every` one is asked
    /// for. Frames put `aside` are for declared shapes only.
    pub(super) fn rows(
        &mut self,
        within: Mask,
        aside: Mask,
        since: Option<Epoch>,
        every: bool,
    ) -> Mask {
        let plan = self.plan;
        let mut taken = Mask::EMPTY;
        for (number, shape) in plan.shapes.iter().enumerate() {
            let among = if shape.live.declared { within } else { within.without(aside) };
            let rest = self.keys(shape, among);
            if rest.is_empty() {
                continue;
            }
            self.work.instructions += rest.count() as u64;
            let epoch = self.view.epoch;
            let asked = Asked { shape, epoch, since, batch: self.batch };
            let super::Scratch { rows, hits, .. } = &mut *self.scratch;
            let Found { tables, keys, others, found, first, ranks } = rows;
            let mut accept = |at: usize, slot: u32| {
                let Some(row) = asked.accepts(slot, at) else { return };
                let (turn, shape) = (row.turn(), number as u32);
                if every {
                    let mut frames = Mask::EMPTY;
                    frames.set(at);
                    hits.push(Hit { turn, source: Source::Row(shape, slot), frames });
                }
                if !taken.get(at) || turn < first[at].turn {
                    taken.set(at);
                    first[at] = First { turn, shape, slot };
                    ranks[at] = plan.passes.partition_point(|pass| pass.turn < turn) as u32;
                }
            };
            let (width, table) = (shape.keys.len(), &mut tables[number]);
            for choice in choices(shape) {
                let second = |word: usize| choice >> word & 1 == 1;
                let columns: [&[u32; BATCH_CAPACITY]; MAX_KEY_WORDS] = std::array::from_fn(
                    |word| {
                        if second(word) { &others[word] } else { &keys[word] }
                    },
                );
                // With the same value at both places, the choice of the first has found the row.
                let again = |at: usize| {
                    (0..width).any(|word| second(word) && keys[word][at] == others[word][at])
                };
                // The width is the table's: both come from the shape.
                let Ok((there, more)) = table.find_several(&columns[..width], rest, found) else {
                    continue;
                };
                let single = there.without(more);
                single.iter().filter(|&at| !again(at)).for_each(|at| accept(at, found[at]));
                for at in more.iter().filter(|&at| !again(at)) {
                    let key: [u32; MAX_KEY_WORDS] = columns.map(|column| column[at]);
                    table.find_each(&key[..width], |slot| accept(at, slot));
                }
            }
        }
        taken
    }

    /// The frames for which holds what all rows share, with the words of their keys.
    fn keys(&mut self, shape: &PlanShape, within: Mask) -> Mask {
        let mut rest = within;
        for step in &shape.common {
            if !rest.is_empty() {
                rest = self.step(step.test, step.record, rest);
            }
        }
        let look = self.look();
        let super::Scratch { columns, rows, .. } = &mut *self.scratch;
        let Found { keys, others, .. } = rows;
        for ((word, key), other) in shape.keys.iter().zip(keys.iter_mut()).zip(others.iter_mut()) {
            let column = |index: u32| &look.plan.columns[index as usize];
            if !rest.is_empty() {
                rest = columns.gather(look, column(word.column), word.mask, rest, key);
            }
            if let (false, Some(second)) = (rest.is_empty(), word.second) {
                rest = columns.gather(look, column(second), word.mask, rest, other);
            }
        }
        rest
    }
}

impl View<'_> {
    fn row(&self, shape: u32, slot: u32) -> Option<&Slot> {
        self.plan.shapes.get(shape as usize)?.live.slots.get(slot)
    }

    pub(super) fn matched_row(self, shape: u32, slot: u32) -> Option<Match> {
        let pass = PassId(self.row(shape, slot)?.pass());
        let state = &self.snapshot.state;
        let written = |filter: &FilterId| {
            state.filters.get(filter.0).is_some_and(|filter| filter.ordered.is_some())
        };
        let filter = state.pass(pass).and_then(|row| row.filter).filter(written);
        Some(Match { pass, filter })
    }

    pub(super) fn count_row(self, shape: u32, slot: u32, frames: u64) {
        if let Some(slot) = self.row(shape, slot) {
            slot.accepted.fetch_add(frames, Ordering::Relaxed);
        }
    }
}
