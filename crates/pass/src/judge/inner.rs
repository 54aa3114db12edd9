//! One reader's half of inner sets (`writer/inner.rs`): the results of the passes of a set for a batch.
//!
//! A set is evaluated on first demand, for 64 frames or the whole batch, by its own reader, and the result is kept for
//! this batch and all passes. Sets may contain sets, so the modules form a circle here: reader, columns, inner sets,
//! reader.

use super::arch::Level;
use super::reader::Reader;
use super::work::InnerEvaluator;
use crate::isa::inner::InnerPasses;
use crate::writer::inner::InnerSet;
use fyke_frame::{Batch, Mask};
use std::sync::Arc;

/// Number of requested frames from which on the whole batch is evaluated.
const MANY: usize = 32;

/// One reader's half of an inner set.
#[derive(Debug)]
pub(crate) struct InnerReader {
    pub set: Arc<dyn InnerPasses>,
    reader: Reader,
    /// Frames of the batch that were evaluated, and those of them that a pass accepts.
    known: Mask,
    truth: Mask,
}

impl InnerReader {
    pub fn new(set: &Arc<dyn InnerPasses>, level: Level) -> InnerReader {
        let mut reader = InnerSet::of(&**set).passes().reader();
        reader.set_level(level);
        InnerReader { set: set.clone(), reader, known: Mask::EMPTY, truth: Mask::EMPTY }
    }

    pub fn set_level(&mut self, level: Level) {
        self.reader.set_level(level);
    }

    /// Drops the results before another batch.
    #[inline]
    pub fn forget(&mut self) {
        (self.known, self.truth) = (Mask::EMPTY, Mask::EMPTY);
    }

    /// The frames for which a pass of the set holds.
    pub fn evaluate(&mut self, batch: &Batch, frames: Mask) -> Mask {
        let mut missing = frames.without(self.known);
        if !missing.is_empty() {
            if missing.count() >= MANY {
                missing = batch.all().without(self.known);
            }
            self.truth = self.truth | self.reader.evaluate_any_link(batch, missing);
            self.known = self.known | missing;
        }
        self.truth & frames
    }
}

impl InnerEvaluator for Vec<InnerReader> {
    fn evaluate(&mut self, set: u32, batch: &Batch, frames: Mask) -> Mask {
        self[set as usize].evaluate(batch, frames)
    }
}
