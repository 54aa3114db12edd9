//! Judging a batch by stencils (`plan/stencil.rs`): the quickest tier, for plans that test only fixed places.
//!
//! The few stencils of a plan are compared with 64 frames in place; the rest is arithmetic with masks. Frames that are
//! too short are left to the other tiers.

use super::arch::{Isa, Job, Part};
use super::work::Verdicts;
use crate::plan::stencil::{MAX_STENCILS, Stenciled};
use fyke_frame::{Batch, Mask};

/// Input and output of the stencil tier.
pub(crate) struct StencilJob<'a, 'f> {
    pub stenciled: &'a Stenciled,
    pub batch: &'a Batch<'f>,
    pub within: Mask,
    /// One for each pass of the plan: receives the frames that it accepted.
    pub found: &'a mut [Mask],
    /// Receives the frames that columns must judge.
    pub left: &'a mut Mask,
}

impl Job for StencilJob<'_, '_> {
    type Output = Verdicts;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Verdicts {
        let StencilJob { stenciled, batch, within, found, left } = self;
        let mut verdicts = Verdicts { instructions: 0, skipped: 0 };
        found.fill(Mask::EMPTY);
        for index in 0..within.0.len() {
            let mut open = within.0[index];
            if open == 0 {
                continue;
            }
            let there = isa.stencils(batch, &stenciled.stencils, index);
            if stenciled.least > batch.shortest() {
                let part = Part { index, bits: open };
                open = isa.at_least(&batch.lengths().0, stenciled.least, part).bits;
            }
            if stenciled.enough > batch.shortest().max(stenciled.least) {
                let part = Part { index, bits: open };
                let long = isa.at_least(&batch.lengths().0, stenciled.enough, part).bits;
                left.0[index] = open & !long;
                open = long;
            }
            for (pass, found) in stenciled.passes.iter().zip(&mut *found) {
                if open == 0 {
                    break;
                }
                let frames = u64::from(open.count_ones());
                verdicts.instructions += pass.instructions * frames;
                verdicts.skipped += pass.skipped * frames;
                let accepted = pass.conditions.iter().fold(open, |open, condition| {
                    let any = condition
                        .stencils
                        .iter()
                        .fold(0, |any, &at| any | there[at as usize % MAX_STENCILS]);
                    if condition.negated { open & !any } else { open & any }
                });
                found.0[index] = accepted;
                open &= !accepted;
            }
        }
        verdicts
    }
}
