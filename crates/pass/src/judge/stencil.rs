//! Judging a batch by stencils (`plan/stencil.rs`): the quickest way, for plans that ask about fixed places only.
//!
//! The few stencils of a plan are compared with 64 frames where their bytes lie; what is left is arithmetic with masks.
//! Frames that are too short are left to the other ways.

use super::arch::{Isa, Job, Part};
use super::work::Verdicts;
use crate::plan::stencil::{MAX_STENCILS, Stenciled};
use fyke_frame::{Batch, Mask};

/// What is to be judged.
pub(crate) struct StencilJob<'a, 'f> {
    pub stenciled: &'a Stenciled,
    pub batch: &'a Batch<'f>,
    pub within: Mask,
    /// One for each pass of the plan: the frames that it accepted are written here.
    pub found: &'a mut [Mask],
    /// Frames that must be judged by columns are written here.
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
                let accepted = pass.asks.iter().fold(open, |open, ask| {
                    let any = ask
                        .stencils
                        .iter()
                        .fold(0, |any, &at| any | there[at as usize % MAX_STENCILS]);
                    if ask.negated { open & !any } else { open & any }
                });
                found.0[index] = accepted;
                open &= !accepted;
            }
        }
        verdicts
    }
}
