//! Readers: who judges frames, on whatever thread.

use crate::arch::Level;
use crate::batch::{Scratch, Work};
use crate::id::Epoch;
use crate::matches::Matches;
use crate::pass_set::{Shared, Snapshot, same_link};
use crate::plan::{Plan, Sharing};
use crate::reference::{self, Verdict};
use crate::shape::Layout;
use fyke_frame::{Batch, Frame, LinkType, Mask};
use std::sync::Arc;

/// A view of a pass set at one epoch, with memory for evaluating it.
///
/// A reader stays at its epoch until [`Reader::refresh`]: call it between two batches. A clone stays at the same
/// epoch and is refreshed on its own. Any number of readers may exist, on any threads; they never wait for each
/// other, nor for the writer beyond the copying of one reference.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    sharing: Sharing,
    scratch: Scratch,
    /// The scratch memory fits the snapshot's plan.
    fits: bool,
    work: Work,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        let (shared, snapshot) = (self.shared.clone(), self.snapshot.clone());
        let (sharing, work) = (self.sharing, Work::default());
        let scratch = Scratch::new(self.scratch.level());
        Reader { shared, snapshot, sharing, scratch, fits: false, work }
    }
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Reader {
        let snapshot = shared.current();
        let (scratch, work) = (Scratch::new(Level::best()), Work::default());
        Reader { shared, snapshot, sharing: Sharing::All, scratch, fits: false, work }
    }

    /// Goes to the newest epoch, which is at least that of any `commit` that has returned. One atomic load when
    /// nothing changed.
    pub fn refresh(&mut self) -> Epoch {
        if self.is_stale() {
            self.snapshot = self.shared.current();
            self.fits = false;
        }
        self.snapshot.epoch
    }

    /// Whether there is a newer epoch. One atomic load.
    pub fn is_stale(&self) -> bool {
        self.shared.epoch() != self.snapshot.epoch
    }

    /// The epoch under which frames are judged.
    pub fn epoch(&self) -> Epoch {
        self.snapshot.epoch
    }

    /// Link type of the frames that are judged; others are rejected, unless the set is empty.
    pub fn link(&self) -> LinkType {
        self.snapshot.link
    }

    /// Whether the set is empty at this epoch, so that every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.snapshot.state.is_empty()
    }

    /// Chooses which answers passes share; for measuring. The verdicts stay the same.
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.fits &= self.sharing == sharing;
        self.sharing = sharing;
    }

    /// Chooses which instructions of the processor are used, the fastest at first. The verdicts stay the same.
    pub fn set_level(&mut self, level: Level) {
        self.scratch.set_level(level);
    }

    /// Which instructions of the processor are used.
    pub fn level(&self) -> Level {
        self.scratch.level()
    }

    /// Judges the frames `within` of a batch and gives the accepted ones. Raises the counters of the passes that
    /// accepted them: each frame counts once, for the first pass in the order of evaluation.
    pub fn evaluate(&mut self, batch: &Batch, within: Mask) -> Mask {
        let accepted = self.judge(batch, within, None, None);
        self.count(accepted);
        accepted
    }

    /// Like [`Reader::evaluate`], but counts nothing: for callers who may judge frames again and call
    /// [`Reader::count`] for those whose verdict is final.
    pub fn evaluate_uncounted(&mut self, batch: &Batch, within: Mask) -> Mask {
        self.judge(batch, within, None, None)
    }

    /// Raises the counters of the passes for the frames of `settled` that they accepted in the last evaluation and
    /// that were not counted yet. Nothing to count is left after [`Reader::refresh`] has gone to another epoch.
    pub fn count(&mut self, settled: Mask) {
        if self.fits {
            self.scratch.count(plan_of(&self.snapshot, self.sharing), settled);
        }
    }

    /// Like [`Reader::evaluate`], and reports which passes matched. When all matches are asked for, a frame counts
    /// for every pass that matched it.
    pub fn evaluate_matches(&mut self, batch: &Batch, within: Mask, matches: &mut Matches) -> Mask {
        let accepted = self.judge(batch, within, None, Some(matches));
        self.count(accepted);
        accepted
    }

    /// Judges frames by those passes only that were made or changed after epoch `since`: for looking back at frames
    /// that an earlier epoch rejected. Counts like [`Reader::evaluate_matches`]; accepts everything when the set is
    /// empty.
    pub fn evaluate_changed(
        &mut self,
        batch: &Batch,
        within: Mask,
        since: Epoch,
        matches: Option<&mut Matches>,
    ) -> Mask {
        let accepted = self.judge(batch, within, Some(since), matches);
        self.count(accepted);
        accepted
    }

    /// Judges one frame by the reference evaluator. Slower; counts nothing.
    pub fn judge_one(&self, frame: &Frame) -> Verdict {
        if self.is_foreign(frame.link) {
            return Verdict::default();
        }
        reference::judge(self.plan(), frame, self.sharing)
    }

    /// How the passes are laid out at this epoch: tables, rows, passes on their own.
    pub fn layout(&self) -> Layout {
        self.plan().layout()
    }

    /// What this reader did since it was made.
    pub fn work(&self) -> Work {
        self.work
    }

    fn judge(
        &mut self,
        batch: &Batch,
        within: Mask,
        since: Option<Epoch>,
        matches: Option<&mut Matches>,
    ) -> Mask {
        let frames = batch.frames();
        if frames.first().is_some_and(|frame| self.is_foreign(frame.link)) {
            self.work.foreign += (within & batch.all()).count() as u64;
            if let Some(matches) = matches {
                matches.clear();
            }
            return Mask::EMPTY;
        }
        let plan = plan_of(&self.snapshot, self.sharing);
        if !self.fits {
            self.scratch.fit(plan);
            self.fits = true;
        }
        self.scratch.evaluate(plan, batch, within, since, matches, &mut self.work)
    }

    fn is_foreign(&self, link: LinkType) -> bool {
        !same_link(link, self.snapshot.link) && !self.is_empty()
    }

    fn plan(&self) -> &Plan {
        plan_of(&self.snapshot, self.sharing)
    }
}

fn plan_of(snapshot: &Snapshot, sharing: Sharing) -> &Plan {
    snapshot.plans[sharing as usize].get_or_init(|| Plan::new(&snapshot.state, sharing))
}
