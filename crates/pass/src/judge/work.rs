//! Bounds of the tiers, and the account of their work.

use fyke_frame::{Batch, Mask};

/// Largest queue that is judged frame by frame.
pub(crate) const SMALL_BATCH: usize = 6;

/// Work of an evaluator, in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Frames that were judged.
    pub frames: u64,
    /// Instructions evaluated, times the frames they were evaluated for.
    pub instructions: u64,
    /// Instructions with a known result, times frames.
    pub skipped: u64,
    /// Evaluations by the ordered evaluator of a filter, of a frame that was too short for it.
    pub ordered: u64,
    /// Frames of another link type than the set's, which are rejected.
    pub foreign: u64,
}

/// Work for a batch.
pub(crate) struct Verdicts {
    /// Instructions evaluated, times frames, and results that were known already.
    pub instructions: u64,
    pub skipped: u64,
}

/// Evaluates the inner sets of a plan.
pub(crate) trait InnerEvaluator {
    /// The frames for which a pass of the set holds.
    fn evaluate(&mut self, set: u32, batch: &Batch, frames: Mask) -> Mask;
}
