//! Keys of a table, from the columns that the fused tier has loaded.
//!
//! For each shape of the plan, 64 frames at a time: the tests that all its rows share narrow the frames; the remaining
//! frames, and the words of their keys as numbers, are appended to the lists for one look-up of the whole batch
//! (`by_columns/rows.rs`). Cost: a compressing store per word and sixteen frames.

use super::{Frames64, FusedPlan, State, States};
use crate::judge::arch::{ChunkWords, Isa, Job, Words};
use crate::judge::work::InnerEvaluator;
use crate::plan::Plan;
use crate::plan::chunks::Location;
use fyke_frame::{BATCH_CAPACITY, Batch};
use fyke_table::MAX_KEY_WORDS;

/// The numbers of all frames, in the form of a column.
const PLACES: Words = {
    let mut words = [0; BATCH_CAPACITY];
    let mut at = 0;
    while at < BATCH_CAPACITY {
        words[at] = (at as u32).swap_bytes();
        at += 1;
    }
    Words(words)
};

/// Keys of frames, without gaps.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Number of keys.
    pub count: usize,
    /// Index of the frame of each key.
    pub places: [u32; BATCH_CAPACITY],
    /// The words of a key, and those of its second places.
    pub words: [[u32; BATCH_CAPACITY]; MAX_KEY_WORDS],
    pub others: [[u32; BATCH_CAPACITY]; MAX_KEY_WORDS],
}

impl Default for Keys {
    fn default() -> Self {
        let words = [[0; BATCH_CAPACITY]; MAX_KEY_WORDS];
        Keys { count: 0, places: [0; BATCH_CAPACITY], words, others: words }
    }
}

/// Keys to be collected.
pub(crate) struct Collect<'a, 'f> {
    pub plan: &'a Plan,
    pub fused: &'a FusedPlan,
    pub batch: &'a Batch<'f>,
    pub chunk_words: &'a mut [ChunkWords],
    pub states: &'a mut States,
    /// Index of the table in the plan.
    pub shape: usize,
    pub keys: &'a mut Keys,
    pub inner: &'a mut dyn InnerEvaluator,
}

/// Collects the keys of the frames that no early pass has accepted and for which the tests that all rows share hold;
/// returns the number of evaluated instructions, times frames.
impl Job for Collect<'_, '_> {
    type Output = u64;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> u64 {
        let Collect { plan, fused, batch, chunk_words, states, shape, keys, inner } = self;
        keys.count = 0;
        let mut evaluated = 0;
        let open = states.each.iter_mut().enumerate().filter(|(_, state)| state.open != 0);
        for (index, state) in open {
            let (chunk_words, inner) = (&mut *chunk_words, &mut *inner);
            let (instructions, skipped) = (0, 0);
            let mut word = Frames64 {
                isa,
                plan,
                fused,
                batch,
                chunk_words,
                index,
                state,
                inner,
                instructions,
                skipped,
            };
            word.keys(shape, keys);
            evaluated += word.instructions;
            states.left.0[index] = word.state.left;
        }
        evaluated
    }
}

impl<I: Isa> Frames64<'_, '_, I> {
    #[inline(always)]
    fn keys(&mut self, shape: usize, keys: &mut Keys) {
        let fused = self.fused;
        let mut rest = self.state.open;
        for step in fused.common(self.plan, shape) {
            rest = self.step(step, rest);
            if rest == 0 {
                return;
            }
        }
        let shape = &fused.shapes[shape];
        let locations =
            shape.keys.iter().flat_map(|key| [Some(key.location), key.second]).flatten();
        for location in locations {
            rest = self.reach_word(location, rest);
        }
        let (isa, part, filled) = (self.isa, self.part(rest), keys.count);
        keys.count = isa.numbers((&PLACES, 0), u32::MAX, part, &mut keys.places, filled);
        for (at, key) in shape.keys.iter().enumerate().take(MAX_KEY_WORDS) {
            let words = |location: Location| (self.words(location), location.shift);
            isa.numbers(words(key.location), key.mask, part, &mut keys.words[at], filled);
            if let Some(second) = key.second {
                isa.numbers(words(second), key.mask, part, &mut keys.others[at], filled);
            }
        }
    }
}

const _: () = assert!(size_of::<State>() < 2048);
