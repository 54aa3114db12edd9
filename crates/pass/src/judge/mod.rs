//! Evaluation of frames. The tiers, quickest first:
//!
//! | tier | frames | caveat | cost a frame | how to switch it off |
//! |---|---|---|---|---|
//! | [`single`] | up to six, small plan, no tables | leaves short ones | O(instructions) | longer batches |
//! | [`stencil`] | passes compare fixed places | leaves short ones | 1.6 to 2.9 ns (F2 to F4) | `Sharing::Copied` |
//! | [`fused`] | up to 32 passes outside of tables | see below | 3.6 to 6.5 ns, table 8 to 50 | `MatchMode::All` |
//! | [`by_columns`] | all others | masks go through memory | O(instructions), vectors | – |
//! | `short.rs` | too short for filters with rows | allocates | hundreds of ns, O(texts) | – |
//! | the text | too short for passes, large texts | one by one | O(text) | an edit of its passes |
//! | [`reference`](mod@reference) | only those of `judge_one` | counts nothing | O(passes) | – |
//!
//! The costs are from `docs/decisions/0005-vector-evaluation.md`, with frames in the cache. A plan has at most four
//! stencils, of 32 bytes each; `Sharing::Nothing` and `SingleOperands` switch them off, too. The fused tier leaves
//! frames for which the order of a text matters: they lack bytes that the text reads. The text is `lower/oracle.rs`: it
//! also judges scoped texts and texts that are too large for passes.
//!
//! An empty set accepts every frame without any tier. A tier judges the frames that it can judge and leaves the others
//! to a later one: the stencil tier to the fused tier, the fused and the single tier to columns. The plan decides which
//! tiers it can use (`plan/stencil.rs`, `plan/fused.rs`), so the choice costs a batch only a few comparisons. Look-back
//! ([`Reader::evaluate_changed`](crate::Reader::evaluate_changed)) and requests for all matches use columns, because
//! the quicker tiers stop at the first pass. All tiers give the same verdicts: `tests/prop_oracle.rs`,
//! `tests/prop_tables.rs` and the conformance cases compare them. Every loop is compiled once for each level of vector
//! instructions ([`arch`]).

pub(crate) mod arch;
pub(crate) mod by_columns;
pub(crate) mod columns;
pub(crate) mod fused;
pub(crate) mod inner;
pub(crate) mod matches;
pub mod reader;
pub mod reference;
pub(crate) mod single;
pub(crate) mod stencil;
pub(crate) mod work;

use crate::isa::id::Epoch;
use crate::plan::Plan;
use crate::plan::fused::FusedPlan;
use crate::plan::stencil::Stenciled;
use arch::Vectors;
use by_columns::rows::LookUpContext;
use by_columns::{Hit, RowHit, Scratch, Source, View};
use fused::{Collect, FusedJob};
use fyke_frame::{Batch, Mask};
use matches::{MatchMode, Matches};
use single::Found;
use stencil::StencilJob;
use work::{SMALL_BATCH, Work};

impl Scratch {
    /// Judges the frames `within` of a batch by the passes that changed after epoch `since`, or by all of them.
    #[inline]
    pub fn evaluate(
        &mut self,
        view: View,
        batch: &Batch,
        within: Mask,
        since: Option<Epoch>,
        mut matches: Option<&mut Matches>,
        work: &mut Work,
    ) -> Mask {
        self.forget();
        if let Some(matches) = matches.as_deref_mut() {
            matches.clear();
        }
        let every = matches.as_deref().is_some_and(|found| found.mode() == MatchMode::All);
        let fused = view.plan.fused.as_ref().filter(|_| since.is_none() && !every);
        let single = fused.filter(|fused| fused.takes_small_batches(view.plan));
        let single = single.filter(|_| batch.len() <= SMALL_BATCH && !view.snapshot.accept_all);
        let (accepted, rest) = if let Some(fused) = single {
            one_by_one(view.plan, fused, batch, within, &mut self.hits, work)
        } else {
            let within = within & batch.all();
            work.frames += within.count() as u64;
            match fused {
                _ if view.snapshot.accept_all => (within, Mask::EMPTY),
                Some(fused) => self.quickly(view, fused, batch, within, work),
                None => (Mask::EMPTY, within),
            }
        };
        let accepted = match rest.is_empty() {
            true => accepted,
            false => accepted | self.judge(view, batch, rest, since, every, work),
        };
        if let Some(matches) = matches {
            for hit in &self.hits {
                let found = view.matched(hit.source);
                let found = found.iter().flat_map(|found| hit.frames.iter().map(|at| (at, *found)));
                found.for_each(|(at, found)| matches.push(at, found));
            }
            for &RowHit { at, shape, slot } in &self.row_hits {
                if let Some(found) = view.matched_row(shape, slot) {
                    matches.push(at.into(), found);
                }
            }
        }
        accepted
    }

    /// Judges with a small plan. Returns the accepted frames and those left to columns. Frames that the stencil tier
    /// leaves, which are short, go to the fused tier.
    fn quickly(
        &mut self,
        view: View,
        fused: &FusedPlan,
        batch: &Batch,
        within: Mask,
        work: &mut Work,
    ) -> (Mask, Mask) {
        let Some(stenciled) = &view.plan.stenciled else {
            return self.fused(view, fused, batch, within, work);
        };
        let (accepted, rest) = self.by_stencils(view.plan, stenciled, batch, within, work);
        if rest.is_empty() {
            return (accepted, rest);
        }
        let (late, rest) = self.fused(view, fused, batch, rest, work);
        (accepted | late, rest)
    }

    /// Judges in the fused tier. Returns the accepted frames and those left to columns.
    fn fused(
        &mut self,
        view: View,
        fused: &FusedPlan,
        batch: &Batch,
        within: Mask,
        work: &mut Work,
    ) -> (Mask, Mask) {
        let plan = view.plan;
        let Scratch { level, columns, found, states, rows, inner, .. } = self;
        let (chunk_words, found) = (columns.chunk_words(), &mut found[..plan.passes.len()]);
        let verdicts =
            level.run(FusedJob { plan, fused, batch, within, chunk_words, found, states, inner });
        work.instructions += verdicts.instructions;
        work.skipped += verdicts.skipped;
        let mut taken = Mask::EMPTY;
        for shape in 0..plan.shapes.len() {
            let (chunk_words, keys) = (columns.chunk_words(), &mut rows.keys);
            let collect = Collect { plan, fused, batch, chunk_words, states, shape, keys, inner };
            work.instructions += level.run(collect);
            if rows.keys.count > 0 {
                work.instructions += rows.keys.count as u64;
                let context = LookUpContext { view, batch, since: None, level: *level };
                rows.look_up(&context, shape, &mut taken, |_| {});
            }
        }
        let left = states.left;
        taken = taken.without(left);
        let mut accepted = Mask::EMPTY;
        for (index, (pass, frames)) in plan.passes.iter().zip(found).enumerate() {
            if index >= fused.early && !taken.is_empty() {
                *frames = rows.settle(pass.order_key, frames.without(left), &mut taken);
            }
            if !frames.is_empty() {
                accepted = accepted | *frames;
                let source = Source::Unindexed(index as u32);
                self.hits.push(Hit { order_key: pass.order_key, source, frames: *frames });
            }
        }
        rows.hits(taken, &mut self.row_hits);
        (accepted | taken, left)
    }

    /// Judges in the stencil tier. Returns the accepted frames and those that are too short.
    fn by_stencils(
        &mut self,
        plan: &Plan,
        stenciled: &Stenciled,
        batch: &Batch,
        within: Mask,
        work: &mut Work,
    ) -> (Mask, Mask) {
        let Scratch { level, found, hits, .. } = self;
        let (found, mut left) = (&mut found[..plan.passes.len()], Mask::EMPTY);
        let left_here = &mut left;
        let verdicts = level.run(StencilJob { stenciled, batch, within, found, left: left_here });
        work.instructions += verdicts.instructions;
        work.skipped += verdicts.skipped;
        let mut accepted = Mask::EMPTY;
        for (index, (pass, &frames)) in plan.passes.iter().zip(&*found).enumerate() {
            if !frames.is_empty() {
                accepted = accepted | frames;
                hits.push(Hit {
                    order_key: pass.order_key,
                    source: Source::Unindexed(index as u32),
                    frames,
                });
            }
        }
        (accepted, left)
    }
}

/// Judges a short queue frame by frame. Returns the accepted frames and those left to columns.
#[inline]
fn one_by_one(
    plan: &Plan,
    fused: &FusedPlan,
    batch: &Batch,
    within: Mask,
    hits: &mut Vec<Hit>,
    work: &mut Work,
) -> (Mask, Mask) {
    let (mut accepted, mut rest) = (0, 0);
    for (at, frame) in batch.frames().iter().enumerate().take(SMALL_BATCH) {
        let bit = within.0[0] & 1 << at;
        if bit == 0 {
            continue;
        }
        work.frames += 1;
        match single::judge(plan, fused, frame, work) {
            Found::Nothing => {}
            Found::Unsure => rest |= bit,
            Found::Pass(index) => {
                accepted |= bit;
                let (order_key, source) =
                    (plan.passes[index].order_key, Source::Unindexed(index as u32));
                hits.push(Hit { order_key, source, frames: Mask([bit, 0, 0, 0]) });
            }
        }
    }
    (Mask([accepted, 0, 0, 0]), Mask([rest, 0, 0, 0]))
}
