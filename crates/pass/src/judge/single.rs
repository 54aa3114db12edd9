//! A few frames, one at a time, over a small plan.
//!
//! Laying out columns of 64 frames is not worth it for the one or two frames in the queue of a quiet link. Here every
//! word that an instruction reads is loaded from the frame itself, at the location from the plan, and compared like a
//! column's word ([`WordTest::holds`]). Evaluation ends at the first false instruction and at the first pass that
//! holds. Exceptional frames are left to columns, exactly as in `fused.rs`.
//!
//! Cost: O(instructions that are reached); see `examples/static.rs`, "queues".

use crate::judge::columns::compares;
use crate::judge::work::Work;
use crate::plan::chunks::{Column, word_at};
use crate::plan::chunks::{Location, NO_BASE};
use crate::plan::fused::{FusedPlan, FusedStep, NOT_KEPT};
use crate::plan::{Op, Plan, PlanTest};
use fyke_frame::Frame;

/// Verdict of a small plan on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No pass holds.
    Nothing,
    /// The first pass that holds, by its place in the plan.
    Pass(usize),
    /// Columns must judge it.
    Unsure,
}

/// One frame and its state.
struct Single<'a, 'f> {
    plan: &'a Plan,
    fused: &'a FusedPlan,
    frame: &'a Frame<'f>,
    /// Kept results, a bit each: known, and true.
    known: u32,
    truth: u32,
    work: &'a mut Work,
}

impl Single<'_, '_> {
    /// The word at a location; `None` if the header before it has options and the frame is too short after the header.
    #[inline]
    fn load(&self, location: Location) -> Option<u32> {
        let data = self.frame.data;
        let chunk = self.plan.chunk_offsets[location.chunk as usize];
        let plain = i64::from(chunk) + 4 * i64::from(location.word);
        if location.base == NO_BASE {
            return Some(word_at(data, plain));
        }
        let base = &self.plan.bases[location.base as usize];
        let (end, plain_end) = (base.base.start(data).ok()?, base.plain_end as usize);
        if end != plain_end && end + self.fused.reach(location.base) > data.len() {
            return None;
        }
        Some(word_at(data, plain + end as i64 - plain_end as i64))
    }

    #[inline]
    fn holds(&self, test: &PlanTest) -> Option<bool> {
        let plan = self.plan;
        let load = |&column: &u32| match plan.columns[column as usize] {
            Column::At(location) => self.load(location),
            Column::Computed { program, .. } => {
                let value = plan.programs[program as usize].value(self.frame);
                value.ok().map(u32::swap_bytes)
            }
        };
        let holds = match &test.op {
            Op::AllOf(terms) => {
                let mut all = true;
                for (column, &(mask, value)) in test.columns.iter().zip(terms) {
                    all &= load(column)? & mask == value;
                }
                all
            }
            Op::Halves(values) => {
                let word = load(test.columns.first()?)?;
                let (low, high) = (word as u16, (word >> 16) as u16);
                values.iter().any(|&value| value == low || value == high)
            }
            Op::AnyOf(tests) => {
                let mut any = false;
                for (column, word_test) in test.columns.iter().zip(tests) {
                    any |= word_test.holds(load(column)?);
                }
                any
            }
            Op::AnyRun(runs) => {
                let words = runs.first().map_or(1, |run| run.len().max(1));
                let mut any = false;
                for place in test.columns.chunks(words) {
                    for run in runs {
                        let mut all = true;
                        for (column, &(mask, value)) in place.iter().zip(run) {
                            all &= load(column)? & mask == value;
                        }
                        any |= all;
                    }
                }
                any
            }
            Op::Compare(relation) => {
                let &[left, right] = &test.columns[..] else { return Some(false) };
                compares(*relation, [load(&left)?.swap_bytes(), load(&right)?.swap_bytes()])
            }
            Op::Passes(_) | Op::OneByOne => {
                let holds = test.compiled.test.holds(self.frame);
                return Some(holds.is_ok_and(|holds| holds != test.compiled.negated));
            }
        };
        Some(holds != test.compiled.negated)
    }

    /// The result of an instruction, which is kept if other passes share it.
    #[inline]
    fn step(&mut self, step: FusedStep) -> Option<bool> {
        let test = &self.plan.tests[step.test as usize];
        let bit = if step.kept == NOT_KEPT { 0 } else { 1 << (step.kept % 32) };
        if self.known & bit != 0 {
            self.work.skipped += 1;
            return Some(self.truth & bit != 0);
        }
        self.work.instructions += 1;
        let holds = self.holds(test)?;
        self.known |= bit;
        self.truth |= if holds { bit } else { 0 };
        Some(holds)
    }

    #[inline]
    fn judge(&mut self) -> Option<Found> {
        'passes: for pass in 0..self.plan.passes.len() {
            for &step in self.fused.steps(pass) {
                if !self.step(step)? {
                    continue 'passes;
                }
            }
            return Some(Found::Pass(pass));
        }
        Some(Found::Nothing)
    }
}

/// Judges one frame.
#[inline]
pub(crate) fn judge(plan: &Plan, fused: &FusedPlan, frame: &Frame, work: &mut Work) -> Found {
    if !fused.is_enough(plan, frame) {
        return Found::Unsure;
    }
    Single { plan, fused, frame, known: 0, truth: 0, work }.judge().unwrap_or(Found::Unsure)
}
