//! Judging frame by frame, as the papers do: the reference for all faster tiers.
//!
//! Passes are visited depth first without recursion. Every pass on the path to the current one has an *execution
//! record*: one bit for each of its instructions that is known, and one for each that was true. A copied instruction
//! that was true in the parent is not evaluated again; one that was false there fails the child at once; one that the
//! parent did not reach is evaluated. Evaluation ends at the first pass that succeeds. Source: Swift, section 3.3.2;
//! NPF, chapters III and IV iii. DEPARTURE: the texts do not define the effect of a copied instruction that failed in
//! the parent on the child.

use crate::isa::id::{Epoch, PassId};
use crate::plan::snapshot::Snapshot;
use crate::plan::{NO_FILTER, Plan, PlanPass, Sharing};
use fyke_frame::Frame;

/// The judgement of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// True if the frame is accepted.
    pub accepted: bool,
    /// The first pass that matched; `None` for a rejected frame, and if an empty set accepted it.
    pub pass: Option<PassId>,
    /// Instructions that were evaluated.
    pub evaluated: u32,
    /// Instructions of which the result was in the parent's record.
    pub skipped: u32,
}

/// Known results of a pass's instructions, a bit each.
#[derive(Clone, Copy, Default)]
struct Record {
    /// Index of the pass in the plan, plus one.
    pass: u32,
    known: u64,
    truth: u64,
}

/// Judges a frame at an epoch of a snapshot, or later while only rows of declared shapes changed.
pub(crate) fn judge(snapshot: &Snapshot, epoch: Epoch, frame: &Frame, sharing: Sharing) -> Verdict {
    if snapshot.accept_all {
        return Verdict { accepted: true, ..Verdict::default() };
    }
    let mut verdict = by_passes(snapshot.passes_one_by_one(sharing), frame, sharing);
    let rows = snapshot.declared().filter_map(|published| published.first(epoch, frame));
    if let Some(order_key) = rows.min() {
        let earlier =
            verdict.pass.and_then(|pass| Some(snapshot.state.pass(pass)?.order_key(pass)));
        if earlier.is_none_or(|earlier| order_key < earlier) {
            (verdict.accepted, verdict.pass) = (true, Some(PassId(order_key[0])));
        }
    }
    verdict
}

fn by_passes(plan: &Plan, frame: &Frame, sharing: Sharing) -> Verdict {
    let mut verdict = Verdict::default();
    let hierarchy = sharing != Sharing::Nothing;
    let mut path: Vec<Record> = Vec::new();
    for (index, pass) in plan.passes.iter().enumerate() {
        while path.last().is_some_and(|record| record.pass != pass.parent) {
            path.pop();
        }
        let parent = path.last().copied().unwrap_or_default();
        let mut record = Record { pass: index as u32 + 1, ..Record::default() };
        let matched = if in_order(plan, pass, frame) {
            ordered(plan, index, frame)
        } else {
            let copied = if hierarchy { pass.copied & parent.known } else { 0 };
            succeeds(plan, pass, frame, copied, parent.truth, &mut record, &mut verdict)
        };
        if matched {
            (verdict.accepted, verdict.pass) = (true, Some(pass.id));
            return verdict;
        }
        path.push(record);
    }
    verdict
}

/// Evaluates the instructions of a pass up to the first that is false.
fn succeeds(
    plan: &Plan,
    pass: &PlanPass,
    frame: &Frame,
    copied: u64,
    parents_truth: u64,
    record: &mut Record,
    verdict: &mut Verdict,
) -> bool {
    for (index, step) in plan.steps_of(pass).iter().enumerate() {
        let bit = 1 << index;
        let holds = if copied & bit != 0 {
            verdict.skipped += 1;
            parents_truth & bit != 0
        } else {
            verdict.evaluated += 1;
            let compiled = &plan.tests[step.test as usize].compiled;
            compiled.test.holds(frame).is_ok_and(|holds| holds != compiled.negated)
        };
        record.known |= bit;
        if !holds {
            return false;
        }
        record.truth |= bit;
    }
    true
}

/// True if the frame is too short for the pass's filter, so that the filter's order matters.
fn in_order(plan: &Plan, pass: &PlanPass, frame: &Frame) -> bool {
    pass.filter != NO_FILTER && {
        let filter = &plan.filters[pass.filter as usize];
        !plan.needs[filter.needs as usize].needs.complete(frame)
    }
}

/// True if the ordered evaluator accepts the frame and credits it to this pass.
fn ordered(plan: &Plan, index: usize, frame: &Frame) -> bool {
    let pass = &plan.passes[index];
    if !plan.filters[pass.filter as usize].oracle.accepts(frame) {
        return false;
    }
    pass.last_of_filter
        || plan.steps_of(pass).iter().all(|step| {
            let compiled = &plan.tests[step.test as usize].compiled;
            compiled.test.could_hold(compiled.negated, frame) == Some(true)
        })
}
