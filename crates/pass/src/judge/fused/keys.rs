//! The keys of a table, from the columns that the short way has loaded.
//!
//! For each shape of the plan, 64 frames at a time: what all its rows share narrows the frames; those that are left,
//! and the words of their keys as numbers, are appended to the lists that one look-up for the whole batch takes
//! (`by_columns/rows.rs`). Cost: a compressing store per word and sixteen frames.

use super::{State, States, Straight, StraightStep, Word};
use crate::isa::id::Turn;
use crate::judge::arch::{Isa, Quad, Words};
use crate::judge::work::AskInner;
use crate::plan::Plan;
use crate::plan::windows::Column;
use crate::plan::windows::Spot;
use fyke_frame::{BATCH_CAPACITY, Batch};
use fyke_table::MAX_KEY_WORDS;

/// The numbers of all frames, as if frames held them.
const PLACES: Words = {
    let mut words = [0; BATCH_CAPACITY];
    let mut at = 0;
    while at < BATCH_CAPACITY {
        words[at] = (at as u32).swap_bytes();
        at += 1;
    }
    Words(words)
};

/// Keys of frames, side by side, whichever frames they are.
#[derive(Debug)]
pub(crate) struct Keys {
    /// How many.
    pub count: usize,
    /// Which frames.
    pub places: [u32; BATCH_CAPACITY],
    /// The words of a key, and those of its other places.
    pub words: [[u32; BATCH_CAPACITY]; MAX_KEY_WORDS],
    pub others: [[u32; BATCH_CAPACITY]; MAX_KEY_WORDS],
}

impl Default for Keys {
    fn default() -> Self {
        let words = [[0; BATCH_CAPACITY]; MAX_KEY_WORDS];
        Keys { count: 0, places: [0; BATCH_CAPACITY], words, others: words }
    }
}

/// A word of a key.
#[derive(Debug)]
struct StraightKey {
    spot: Spot,
    second: Option<Spot>,
    mask: u32,
}

/// A table of the plan.
#[derive(Debug)]
pub(super) struct StraightShape {
    keys: Vec<StraightKey>,
}

/// Which keys are to be collected.
pub(crate) struct Collect<'a, 'f> {
    pub plan: &'a Plan,
    pub straight: &'a Straight,
    pub batch: &'a Batch<'f>,
    pub quads: &'a mut [Quad],
    pub states: &'a mut States,
    /// Index of the table in the plan.
    pub shape: usize,
    pub keys: &'a mut Keys,
    pub inner: &'a mut dyn AskInner,
}

/// How many passes come before all rows of the plan's tables.
pub(super) fn early(plan: &Plan) -> usize {
    let first: Option<Turn> = plan.shapes.iter().map(|shape| shape.live.first).min();
    first.map_or(plan.passes.len(), |first| plan.passes.partition_point(|pass| pass.turn < first))
}

impl Straight {
    /// Finds the places of keys; `None` when one is in no window.
    pub(super) fn add_shapes(&mut self, plan: &Plan) -> Option<()> {
        let spot = |column: u32| match plan.columns[column as usize] {
            Column::At(spot) => Some(spot),
            Column::Computed { .. } => None,
        };
        for shape in &plan.shapes {
            let mut keys = Vec::with_capacity(shape.keys.len());
            for key in &shape.keys {
                self.require(plan, &[key.column])?;
                self.require(plan, key.second.as_slice())?;
                let second = match key.second {
                    Some(second) => Some(spot(second)?),
                    None => None,
                };
                keys.push(StraightKey { spot: spot(key.column)?, second, mask: key.mask });
            }
            self.shapes.push(StraightShape { keys });
        }
        Some(())
    }

    /// What all rows of a table share.
    #[inline]
    fn common(&self, plan: &Plan, shape: usize) -> &[StraightStep] {
        self.steps(plan.passes.len() + shape)
    }
}

/// Collects the keys of the frames that no early pass has accepted and for which holds what all rows share; how often
/// an instruction was evaluated for it.
#[inline(always)]
pub(crate) fn collect<I: Isa>(isa: I, collect: Collect) -> u64 {
    let Collect { plan, straight, batch, quads, states, shape, keys, inner } = collect;
    keys.count = 0;
    let mut evaluated = 0;
    let open = states.each.iter_mut().enumerate().filter(|(_, state)| state.open != 0);
    for (index, state) in open {
        let (quads, inner) = (&mut *quads, &mut *inner);
        let (instructions, skipped) = (0, 0);
        let mut word =
            Word { isa, plan, straight, batch, quads, index, state, inner, instructions, skipped };
        word.keys(shape, keys);
        evaluated += word.instructions;
        states.left.0[index] = word.state.left;
    }
    evaluated
}

impl<I: Isa> Word<'_, '_, I> {
    #[inline(always)]
    fn keys(&mut self, shape: usize, keys: &mut Keys) {
        let straight = self.straight;
        let mut rest = self.state.open;
        for step in straight.common(self.plan, shape) {
            rest = self.step(step, rest);
            if rest == 0 {
                return;
            }
        }
        let shape = &straight.shapes[shape];
        let spots = shape.keys.iter().flat_map(|key| [Some(key.spot), key.second]).flatten();
        for spot in spots {
            rest = self.reach_word(spot, rest);
        }
        let (isa, part, filled) = (self.isa, self.part(rest), keys.count);
        keys.count = isa.numbers((&PLACES, 0), u32::MAX, part, &mut keys.places, filled);
        for (at, key) in shape.keys.iter().enumerate().take(MAX_KEY_WORDS) {
            let words = |spot: Spot| (self.words(spot), spot.shift);
            isa.numbers(words(key.spot), key.mask, part, &mut keys.words[at], filled);
            if let Some(second) = key.second {
                isa.numbers(words(second), key.mask, part, &mut keys.others[at], filled);
            }
        }
    }
}

const _: () = assert!(size_of::<State>() < 2048);
