//! Frames that are too short for a filter of which passes are rows.
//!
//! The ordered evaluator decides such a frame, O(filter). It runs only for filters that could accept the frame: those
//! of which a pass accepts the frame with zeros appended. That misses none: a text that accepts a frame has read no
//! byte after the end, so it accepts the longer frame too, and then one of its passes does.
//!
//! 1. The frames are copied and extended with zeros as far as any filter reads.
//! 2. All unindexed passes and all rows judge the copies together, like any batch.
//! 3. For a copy that a pass accepts: if the frame is long enough for the pass's filter, the pass is tested again on
//!    the frame itself; else the ordered evaluator of the filter runs, once for each filter and frame.
//! 4. The ordered evaluators of filters for which even the copy is too short run in any case.
//!
//! Cost: some hundred nanoseconds a frame, whatever the number of rows, and O(filter) for each filter that accepts the
//! copy.

use super::{Hit, Judge, Scratch, Source, View, only};
use crate::isa::id::OrderKey;
use crate::isa::id::{Epoch, FilterId, PassId};
use crate::isa::test::Compiled;
use crate::judge::work::Work;
use crate::lower::oracle::Oracle;
use crate::state::{FilterRow, PassRow};
use fyke_frame::{Batch, Frame, Mask};
use std::collections::HashMap;

/// Longest copy; filters that read farther judge the frame itself.
const LONGEST: usize = 2_048;
/// Length of copies for filters without a known bound.
const USUAL: usize = 512;

/// Verdict of a filter on a frame.
#[derive(Debug, Clone, Copy)]
struct FilterVerdict {
    accepted: bool,
    /// True if the frame was credited to one of its passes.
    taken: bool,
}

/// A pass that accepts a frame.
#[derive(Debug, Clone, Copy)]
struct Event {
    at: usize,
    order_key: OrderKey,
    source: Source,
}

/// The frames, and the results so far.
struct Late<'a, 'f> {
    view: View<'a>,
    batch: &'a Batch<'f>,
    since: Option<Epoch>,
    verdicts: HashMap<(FilterId, usize), FilterVerdict>,
    events: Vec<Event>,
    /// Number of runs of an ordered evaluator.
    runs: u64,
}

fn could_hold(one: &Compiled, frame: &Frame) -> bool {
    one.test.could_hold(one.negated, frame) == Some(true)
}

impl<'a> Late<'a, '_> {
    /// Tests if the frame of an accepted copy is accepted, too.
    fn verify(&mut self, hit: &Hit, at: usize) {
        let (view, frame) = (self.view, &self.batch.frames()[at]);
        let id = match hit.source {
            Source::Unindexed(index) => view.plan.passes.get(index as usize).map(|pass| pass.id),
            Source::Row(shape, slot) => {
                let Some(shape) = view.plan.shapes.get(shape as usize) else { return };
                if shape.published.declared {
                    let there = |key: &crate::state::published::KeyPlace| {
                        key.place.load(frame.data).is_ok()
                    };
                    let common = shape.published.common.iter().all(|one| one.holds(frame));
                    if common && shape.published.keys.iter().all(there) {
                        self.accept(hit, at);
                    }
                    return;
                }
                shape.published.slots.get(slot).map(|slot| PassId(slot.pass()))
            }
            Source::Pass(id) => Some(id),
        };
        let Some(row) = id.and_then(|id| view.snapshot.state.pass(id)) else { return };
        let tests = &row.body.compiled;
        match Self::short_for(view, row, frame) {
            None => {
                if tests.iter().all(|one| one.holds(frame)) {
                    self.accept(hit, at);
                }
            }
            Some((id, oracle)) => {
                if self.run_oracle(id, oracle, at) && tests.iter().all(|one| could_hold(one, frame))
                {
                    self.accept(hit, at);
                    self.verdicts.insert((id, at), FilterVerdict { accepted: true, taken: true });
                }
            }
        }
    }

    /// The filter of a pass, if the frame is too short for it.
    fn short_for(view: View<'a>, row: &PassRow, frame: &Frame) -> Option<(FilterId, &'a Oracle)> {
        let id = row.filter?;
        let (oracle, needs) = view.snapshot.state.filters.get(id.0)?.ordered.as_ref()?;
        (!needs.complete(frame)).then_some((id, oracle))
    }

    fn run_oracle(&mut self, id: FilterId, oracle: &Oracle, at: usize) -> bool {
        let (frame, runs) = (&self.batch.frames()[at], &mut self.runs);
        let verdict = self.verdicts.entry((id, at)).or_insert_with(|| {
            *runs += 1;
            FilterVerdict { accepted: oracle.accepts(frame), taken: false }
        });
        verdict.accepted
    }

    fn accept(&mut self, hit: &Hit, at: usize) {
        self.events.push(Event { at, order_key: hit.order_key, source: hit.source });
    }

    /// Runs the ordered evaluators of filters for which even the copy is too short.
    fn run_remaining(&mut self, at: usize, copy: &Frame) {
        let state = &self.view.snapshot.state;
        let unsure =
            |row: &&FilterRow| row.ordered.as_ref().is_some_and(|(_, needs)| !needs.complete(copy));
        for (id, row) in state.filters.iter().filter(|(_, row)| unsure(row)) {
            if let Some((oracle, _)) = &row.ordered {
                self.run_oracle(FilterId(id), oracle, at);
            }
        }
    }

    /// Credits frames that a filter accepts, but none of its passes took, to its last pass.
    fn settle(&mut self) {
        let state = &self.view.snapshot.state;
        for (&(filter, at), _) in
            self.verdicts.iter().filter(|(_, verdict)| verdict.accepted && !verdict.taken)
        {
            let passes = state.filters.get(filter.0).map(|filter| filter.passes.clone());
            let last = passes.and_then(|passes| passes.last().map(PassId));
            let row = last.and_then(|last| Some((last, state.pass(last)?)));
            let Some((last, row)) = row else { continue };
            if self.since.is_none_or(|since| row.changed > since) {
                self.events.push(Event {
                    at,
                    order_key: row.order_key(last),
                    source: Source::Pass(last),
                });
            }
        }
    }
}

impl Scratch {
    /// Judges frames that are too short for a filter of which passes are rows.
    #[cold]
    pub(super) fn judge_deferred(
        &mut self,
        view: View,
        batch: &Batch,
        deferred: Mask,
        since: Option<Epoch>,
        every: bool,
        work: &mut Work,
    ) -> Mask {
        let all = &view.plan.needs;
        let reach = all.iter().map(|needs| match needs.needs.bound() {
            u32::MAX => USUAL,
            bound => LONGEST.min(bound as usize),
        });
        let reach = reach.max().unwrap_or(0);
        let numbers: Vec<usize> = deferred.iter().collect();
        let mut bytes = vec![0; numbers.len() * reach];
        for (copy, &at) in bytes.chunks_exact_mut(reach.max(1)).zip(&numbers) {
            let data = batch.bytes()[at];
            let there = data.len().min(reach);
            copy[..there].copy_from_slice(&data[..there]);
        }
        let mut copies = Batch::new();
        for (copy, &at) in bytes.chunks_exact(reach.max(1)).zip(&numbers) {
            let frame = batch.frames()[at];
            let data = if frame.data.len() < reach { copy } else { frame.data };
            // A batch has room for as many frames of its one link type.
            let _full = copies.push(Frame { data, ..frame });
        }
        let mut own = self.deferred.take().unwrap_or_else(|| Box::new(Scratch::new(self.level)));
        own.level = self.level;
        own.fit(view.plan);
        own.forget();
        let scratch = &mut *own;
        let mut judge = Judge { plan: view.plan, view, batch: &copies, scratch, work };
        judge.without_needs(copies.all(), since);
        let (verdicts, events) = (HashMap::new(), Vec::new());
        let mut late = Late { view, batch, since, verdicts, events, runs: 0 };
        for hit in &own.hits {
            hit.frames.iter().for_each(|copy| late.verify(hit, numbers[copy]));
        }
        let complete = |copy: &Frame| all.iter().all(|needs| needs.needs.complete(copy));
        for (copy, &at) in copies.frames().iter().zip(&numbers) {
            if !complete(copy) {
                late.run_remaining(at, copy);
            }
        }
        late.settle();
        work.ordered += late.runs;
        self.deferred = Some(own);
        self.take_events(late.events, every)
    }

    /// Makes hits of the events: the first of each frame, or `every` one.
    fn take_events(&mut self, mut events: Vec<Event>, every: bool) -> Mask {
        events.sort_unstable_by_key(|event| (event.at, event.order_key, event.source));
        let mut accepted = Mask::EMPTY;
        for Event { at, order_key, source } in events {
            if every || !accepted.get(at) {
                self.hits.push(Hit { order_key, source, frames: only(at) });
                accepted.set(at);
            }
        }
        accepted
    }
}
