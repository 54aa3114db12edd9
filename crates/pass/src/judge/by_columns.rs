//! The column tier, which can judge every frame.
//!
//! It judges the frames that the quicker tiers leave (`mod.rs` compares them). The steps:
//! 1. An empty set accepts all frames.
//! 2. Frames that are too short for a filter ([`Needs`](crate::lower::needs::Needs)) are deferred; those that are too
//!    short for a filter of which some passes are rows are judged apart (`by_columns/short.rs`).
//! 3. Rows of tables are looked up for all other frames at once (`by_columns/rows.rs`).
//! 4. Pass after pass, outside of tables: each instruction narrows the mask of surviving frames, until none is left.
//!    The result of an instruction is a mask, computed for the frames that need it and recorded: passes that share it
//!    pay once.
//! 5. The ordered evaluator of the filter judges the deferred frames one by one. A frame that it accepts is credited to
//!    the passes that match it as far as its bytes go.
//! 6. Counters are raised once per pass and batch, when the caller reports which verdicts are final.
//!
//! A frame that a pass accepted is not evaluated again, unless all matches are requested. Cost: one compare per frame,
//! distinct instruction and word, of up to sixteen frames at a time (`arch`); a few nanoseconds per pass and batch.
//! `reference.rs` is the twin that judges frame by frame.

pub(super) mod rows;
mod short;

use crate::isa::id::{Epoch, OrderKey, PassId};
use crate::isa::inner::InnerPasses;
use crate::isa::test::Test;
use crate::judge::arch::{Level, Vectors};
use crate::judge::columns::{Columns, Look, at_least};
use crate::judge::fused::States;
use crate::judge::inner::InnerReader;
use crate::judge::matches::Match;
use crate::judge::work::Work;
use crate::plan::MAX_PASSES;
use crate::plan::snapshot::Snapshot;
use crate::plan::{
    NO_FILTER, Op, Plan, PlanExtent, PlanNeed, PlanNeeds, PlanPass, PlanTest, Sharing,
};
use fyke_frame::{Batch, Mask};
use rows::Found as FoundRows;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The address of an inner set, which identifies it while it exists.
fn address(set: &Arc<dyn InnerPasses>) -> usize {
    Arc::as_ptr(set).cast::<()>() as usize
}

/// The recorded result of an instruction.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    stamp: u64,
    known: Mask,
    truth: Mask,
}

/// Verdicts of the ordered evaluator of a filter on the short frames of a batch.
#[derive(Debug, Clone, Copy, Default)]
struct Ordered {
    stamp: u64,
    accepted: Mask,
    /// Accepted frames that have not been credited to a pass of the filter yet.
    untaken: Mask,
}

/// A pass that accepted frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) order_key: OrderKey,
    pub(super) source: Source,
    pub(super) frames: Mask,
}

/// A row that accepted a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowHit {
    pub(super) at: u8,
    /// Index of the table in the plan.
    pub(super) shape: u32,
    pub(super) slot: u32,
}

/// Source of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Index of a table in the plan, slot.
    Row(u32, u32),
    /// Index in the plan.
    Unindexed(u32),
    /// A pass of the state.
    Pass(PassId),
}

/// A snapshot in one layout, and the epoch at which rows must be in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub snapshot: &'a Snapshot,
    pub plan: &'a Plan,
    pub epoch: Epoch,
}

impl<'a> View<'a> {
    /// A snapshot as readers see it.
    pub fn of(snapshot: &'a Snapshot, sharing: Sharing, epoch: Epoch) -> Self {
        View { snapshot, plan: snapshot.plan(sharing), epoch }
    }

    pub(super) fn matched(self, source: Source) -> Option<Match> {
        let pass = match source {
            Source::Unindexed(index) => self.plan.passes.get(index as usize)?,
            Source::Pass(pass) => return Some(self.matched_pass(pass)),
            Source::Row(shape, slot) => return self.matched_row(shape, slot),
        };
        let filter = self.plan.filters.get(pass.filter as usize).map(|filter| filter.id);
        Some(Match { pass: pass.id, filter })
    }

    /// Raises the counter of a pass.
    fn count(self, source: Source, frames: u64) {
        let accepted = match source {
            Source::Unindexed(index) => {
                self.plan.passes.get(index as usize).map(|pass| &pass.accepted)
            }
            Source::Pass(pass) => self.snapshot.state.pass(pass).map(|row| &row.accepted),
            Source::Row(shape, slot) => return self.count_row(shape, slot, frames),
        };
        if let Some(accepted) = accepted {
            accepted.fetch_add(frames, Ordering::Relaxed);
        }
    }
}

/// Memory of one reader; nothing is allocated while the plan stays the same.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(super) level: Level,
    pub(super) stamp: u64,
    records: Vec<Record>,
    pub(super) columns: Columns,
    /// For each [`Plan::needs`]: the frames that are too short.
    pub(super) short: Vec<Mask>,
    /// For each filter: the verdicts of the ordered evaluator.
    ordered: Vec<Ordered>,
    /// Passes that accepted frames of the last batch and have not been counted yet.
    pub(super) hits: Vec<Hit>,
    /// The same for rows, if only the first match counts: many hits, each of one frame.
    pub(super) row_hits: Vec<RowHit>,
    /// For each pass of a small plan: the accepted frames.
    pub(super) found: Box<[Mask; MAX_PASSES]>,
    /// State of the frames in the fused tier.
    pub(super) states: Box<States>,
    /// Results of table look-ups.
    pub(super) rows: FoundRows,
    /// One for each inner set of the plan.
    pub(super) inner: Vec<InnerReader>,
    /// Memory for frames that are too short for filters of which some passes are rows.
    pub(super) deferred: Option<Box<Scratch>>,
}

impl Scratch {
    /// Memory for an evaluation at the given level.
    pub fn new(level: Level) -> Scratch {
        Scratch {
            level,
            stamp: 0,
            records: Vec::new(),
            columns: Columns::default(),
            short: Vec::new(),
            ordered: Vec::new(),
            hits: Vec::new(),
            row_hits: Vec::new(),
            found: Box::new([Mask::EMPTY; MAX_PASSES]),
            states: Box::default(),
            rows: FoundRows::new(),
            inner: Vec::new(),
            deferred: None,
        }
    }

    /// The vector instructions in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Chooses the vector instructions.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
        self.rows.set_level(level);
        self.inner.iter_mut().for_each(|inner| inner.set_level(level));
    }

    /// Drops all that is known or not yet counted of a batch, before another batch or epoch.
    pub fn forget(&mut self) {
        self.row_hits.clear();
        self.hits.clear();
        self.inner.iter_mut().for_each(InnerReader::forget);
    }

    /// Prepares for a plan that has not been used before.
    pub fn fit(&mut self, plan: &Plan) {
        self.records.resize(plan.records.max(self.records.len()), Record::default());
        self.columns.fit(plan);
        self.rows.fit(plan, self.level);
        self.fit_inner(plan);
        self.short.resize(plan.needs.len(), Mask::EMPTY);
        self.ordered.clear();
        self.ordered.resize(plan.filters.len(), Ordered::default());
    }

    /// Readers of inner sets are kept if their sets are kept.
    fn fit_inner(&mut self, plan: &Plan) {
        let same = |(one, set): (&InnerReader, &Arc<dyn InnerPasses>)| Arc::ptr_eq(&one.set, set);
        if self.inner.len() == plan.inner.len() && self.inner.iter().zip(&plan.inner).all(same) {
            return;
        }
        let old = self.inner.drain(..).map(|one| (address(&one.set), one));
        let mut old: HashMap<usize, InnerReader> = old.collect();
        let level = self.level;
        let known = |set: &Arc<dyn InnerPasses>| old.remove(&(address(set)));
        let sets = plan.inner.iter().zip(plan.inner.iter().map(known).collect::<Vec<_>>());
        self.inner = sets
            .map(|(set, known)| known.unwrap_or_else(|| InnerReader::new(set, level)))
            .collect();
    }

    /// Returns the accepted frames; leaves the hits in the order of evaluation if `every` hit is requested.
    pub(super) fn judge(
        &mut self,
        view: View,
        batch: &Batch,
        within: Mask,
        since: Option<Epoch>,
        every: bool,
        work: &mut Work,
    ) -> Mask {
        self.stamp += 1;
        let mut judge = Judge { plan: view.plan, view, batch, scratch: self, work };
        let look = judge.look();
        judge.scratch.columns.start(look, within);
        judge.find_short(within);
        let deferred = judge.deferred(within);
        let (taken, accepted) = judge.in_any_order(within.without(deferred), since, every);
        let late = if deferred.is_empty() {
            Mask::EMPTY
        } else {
            self.judge_deferred(view, batch, deferred, since, every, work)
        };
        if every {
            self.hits.sort_unstable_by_key(|hit| (hit.order_key, hit.source));
        } else {
            self.rows.hits(taken.without(accepted), &mut self.row_hits);
        }
        accepted | taken | late
    }

    /// Raises the counters of the passes that accepted frames of `settled` in the last evaluation, once a frame;
    /// returns the number of these frames.
    #[inline]
    pub fn count(&mut self, view: View, settled: Mask) -> u64 {
        let mut all = 0;
        for hit in &mut self.hits {
            let counted = (hit.frames & settled).count() as u64;
            hit.frames = hit.frames.without(settled);
            if counted > 0 {
                view.count(hit.source, counted);
                all += counted;
            }
        }
        let rows = self.row_hits.len();
        self.row_hits.retain(|&RowHit { at, shape, slot }| {
            let counted = settled.get(at.into());
            if counted {
                view.count_row(shape, slot, 1);
            }
            !counted
        });
        all + (rows - self.row_hits.len()) as u64
    }
}

/// Mask of one frame. Made in registers: a mask with a bit that was stored just before cannot be copied at once.
#[inline]
fn only(at: usize) -> Mask {
    Mask(std::array::from_fn(|word| if word == at / 64 { 1 << (at % 64) } else { 0 }))
}

struct Judge<'a, 'f> {
    plan: &'a Plan,
    view: View<'a>,
    batch: &'a Batch<'f>,
    scratch: &'a mut Scratch,
    work: &'a mut Work,
}

impl<'a, 'f> Judge<'a, 'f> {
    /// The frames that rows accept and those that unindexed passes accept.
    fn in_any_order(&mut self, within: Mask, since: Option<Epoch>, every: bool) -> (Mask, Mask) {
        let taken = self.rows(within, since, every);
        (taken, self.passes(within, taken, since, every))
    }

    /// Judges frames as if they were long enough for all filters; leaves every hit, in the order of evaluation.
    fn without_needs(&mut self, within: Mask, since: Option<Epoch>) {
        let look = self.look();
        self.scratch.stamp += 1;
        self.scratch.columns.start(look, within);
        self.scratch.short.fill(Mask::EMPTY);
        self.in_any_order(within, since, true);
        self.scratch.hits.sort_unstable_by_key(|hit| (hit.order_key, hit.source));
    }

    /// Judges by unindexed passes, as far as these come before the rows that accepted frames.
    fn passes(&mut self, within: Mask, taken: Mask, since: Option<Epoch>, every: bool) -> Mask {
        let plan = self.plan;
        let mut accepted = Mask::EMPTY;
        self.scratch.rows.rank(plan, taken);
        for (index, pass) in plan.passes.iter().enumerate() {
            if since.is_some_and(|since| pass.changed <= since) {
                continue;
            }
            let mut open = within;
            if !every {
                open = open.without(accepted);
                if !taken.is_empty() {
                    let Scratch { level, rows, .. } = &*self.scratch;
                    let later = level.at_least(&rows.ranks, index as u32 + 1, taken);
                    open = open.without(taken.without(later));
                }
            }
            if open.is_empty() {
                break;
            }
            let found = self.pass(pass, open);
            if !found.is_empty() {
                accepted = accepted | found;
                let source = Source::Unindexed(index as u32);
                self.scratch.hits.push(Hit { order_key: pass.order_key, source, frames: found });
            }
        }
        accepted
    }

    /// Marks the frames that are too short, for each of the plan's needs.
    fn find_short(&mut self, within: Mask) {
        let look = self.look();
        for (index, needs) in self.plan.needs.iter().enumerate() {
            let long = match needs.needs.bound() {
                u32::MAX => Mask::EMPTY,
                bound => at_least(look, bound, within),
            };
            let rest = within.without(long);
            self.scratch.short[index] =
                if rest.is_empty() { rest } else { self.too_short(needs, rest) };
        }
    }

    /// The frames of `among` that lack needed bytes.
    fn too_short(&mut self, needs: &PlanNeeds, among: Mask) -> Mask {
        let mut short = Mask::EMPTY;
        for need in &needs.list {
            let lacking = self.lacking(need, among.without(short));
            if matches!(need.extent, PlanExtent::Other) {
                let complete = |&at: &usize| needs.needs.complete(&self.batch.frames()[at]);
                lacking.iter().filter(|at| !complete(at)).for_each(|at| short.set(at));
            } else {
                short = short | lacking;
            }
        }
        short
    }

    /// The frames of `among` for which all guards hold and that do not contain the extent, as far as lengths decide
    /// this.
    fn lacking(&mut self, need: &PlanNeed, among: Mask) -> Mask {
        let look = self.look();
        let columns = &mut self.scratch.columns;
        let reaching = match need.extent {
            PlanExtent::Fixed(end) => at_least(look, end, among),
            PlanExtent::Behind { base, fixed } => {
                columns.reaches(look, base as usize, fixed, among)
            }
            // Test the guards first, as computing takes longer.
            PlanExtent::Computed(_) => Mask::EMPTY,
            PlanExtent::Other => Mask::EMPTY,
        };
        let mut lacking = among.without(reaching);
        for (column, word_test) in &need.guards {
            if lacking.is_empty() {
                break;
            }
            lacking = columns.select(look, column, lacking, word_test).1;
        }
        if let PlanExtent::Computed(column) = need.extent {
            let column = &look.plan.columns[column as usize];
            lacking = lacking.without(columns.prepare(look, column, lacking));
        }
        lacking
    }

    fn look(&self) -> Look<'a, 'f> {
        Look { plan: self.plan, batch: self.batch, level: self.scratch.level }
    }

    /// The frames of `open` that the pass accepts.
    fn pass(&mut self, pass: &PlanPass, open: Mask) -> Mask {
        let deferred = match pass.filter {
            NO_FILTER => Mask::EMPTY,
            filter => {
                let needs = self.plan.filters[filter as usize].needs;
                self.scratch.short[needs as usize] & open
            }
        };
        let mut rest = open.without(deferred);
        for step in self.plan.steps_of(pass) {
            if rest.is_empty() {
                break;
            }
            rest = self.step(step.test, step.record, rest);
        }
        if deferred.is_empty() { rest } else { rest | self.ordered(pass, deferred) }
    }

    /// The frames of `open` for which the instruction is true.
    fn step(&mut self, test: u32, record: u32, open: Mask) -> Mask {
        let stamp = self.scratch.stamp;
        let known = &self.scratch.records[record as usize];
        let missing = if known.stamp == stamp { open.without(known.known) } else { open };
        let evaluated = missing.count() as u64;
        self.work.instructions += evaluated;
        if known.stamp != stamp {
            let truth = self.instruction(&self.plan.tests[test as usize], open);
            self.scratch.records[record as usize] = Record { stamp, known: open, truth };
            return truth;
        }
        self.work.skipped += open.count() as u64 - evaluated;
        if !missing.is_empty() {
            let truth = self.instruction(&self.plan.tests[test as usize], missing);
            let known = &mut self.scratch.records[record as usize];
            known.known = known.known | missing;
            known.truth = known.truth | truth;
        }
        self.scratch.records[record as usize].truth & open
    }

    /// Evaluates an instruction. Out of bounds is false, negated or not.
    fn instruction(&mut self, test: &PlanTest, frames: Mask) -> Mask {
        let look = self.look();
        let columns = &mut self.scratch.columns;
        let column = |index: u32| &look.plan.columns[index as usize];
        let (inside, truth) = match &test.op {
            Op::AllOf(terms) => columns.all_of(look, &test.columns, terms, frames),
            Op::Halves(values) => {
                let prepare = |inside, &index: &u32| columns.prepare(look, column(index), inside);
                let inside = test.columns.iter().fold(frames, prepare);
                let words = columns.words(column(test.columns[0]));
                (inside, look.level.halves(words, inside, values))
            }
            Op::AnyOf(tests) => {
                let (mut inside, mut truth) = (frames, Mask::EMPTY);
                for (&index, word_test) in test.columns.iter().zip(tests) {
                    let (there, found) = columns.select(look, column(index), inside, word_test);
                    inside = inside & there;
                    truth = truth | found;
                }
                (inside, truth)
            }
            Op::AnyRun(runs) => {
                let (mut inside, mut truth) = (frames, Mask::EMPTY);
                let words = runs.first().map_or(1, |run| run.len().max(1));
                for place in test.columns.chunks(words) {
                    for run in runs {
                        let (there, found) = columns.all_of(look, place, run, inside);
                        inside = there;
                        truth = truth | found;
                    }
                }
                (inside, truth)
            }
            Op::Compare(relation) => columns.compare(look, *relation, &test.columns, frames),
            Op::Passes(set) => {
                (frames, self.scratch.inner[*set as usize].evaluate(self.batch, frames))
            }
            Op::OneByOne => self.one_by_one(&test.compiled.test, frames),
        };
        if test.compiled.negated { inside.without(truth) } else { inside & truth }
    }

    fn one_by_one(&mut self, test: &Test, frames: Mask) -> (Mask, Mask) {
        let (mut inside, mut truth) = (Mask::EMPTY, Mask::EMPTY);
        for frame in frames.iter() {
            if let Ok(holds) = test.holds(&self.batch.frames()[frame]) {
                inside.set(frame);
                if holds {
                    truth.set(frame);
                }
            }
        }
        (inside, truth)
    }

    /// The frames of `deferred` that the pass's filter accepts and that are credited to this pass: those with bytes
    /// that make it true, and, at the filter's last pass, those that no other pass of it took.
    fn ordered(&mut self, pass: &PlanPass, deferred: Mask) -> Mask {
        let plan = self.plan;
        let filter = &plan.filters[pass.filter as usize];
        let mut verdicts = self.scratch.ordered[pass.filter as usize];
        if verdicts.stamp != self.scratch.stamp {
            let mut accepted = Mask::EMPTY;
            for frame in
                deferred.iter().filter(|&at| filter.oracle.accepts(&self.batch.frames()[at]))
            {
                accepted.set(frame);
            }
            self.work.ordered += deferred.count() as u64;
            verdicts = Ordered { stamp: self.scratch.stamp, accepted, untaken: accepted };
        }
        let mut found = Mask::EMPTY;
        for frame in (verdicts.accepted & deferred).iter() {
            let could = plan.steps_of(pass).iter().all(|step| {
                let compiled = &plan.tests[step.test as usize].compiled;
                compiled.test.could_hold(compiled.negated, &self.batch.frames()[frame])
                    == Some(true)
            });
            if could {
                found.set(frame);
            }
        }
        if pass.last_of_filter {
            found = found | (verdicts.untaken & deferred);
        }
        verdicts.untaken = verdicts.untaken.without(found);
        self.scratch.ordered[pass.filter as usize] = verdicts;
        found
    }
}
