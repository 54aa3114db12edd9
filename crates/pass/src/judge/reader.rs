//! Readers, which judge frames on any thread.

use crate::isa::id::Epoch;
use crate::judge::arch::Level;
use crate::judge::by_columns::{Scratch, View};
use crate::judge::matches::Matches;
use crate::judge::reference::{self, Verdict};
use crate::judge::single::{self, Found};
use crate::judge::work::Work;
use crate::plan::Sharing;
use crate::plan::snapshot::same_link;
use crate::plan::snapshot::{Shared, Snapshot};
use crate::state::rows::ReaderEpoch;
use crate::writer::pass_set::PassSet;
use crate::writer::shapes::Layout;
use crate::writer::view::Viewer;
use fyke_frame::{Batch, Frame, LinkType, Mask};
use std::sync::Arc;

/// A view of a pass set at one epoch, with memory for evaluating it.
///
/// A reader stays at its epoch until [`Reader::refresh`]: call it between two batches. A clone stays at the same epoch
/// and is refreshed separately. Any number of readers may exist, on any threads. They never wait for each other; they
/// wait for the writer only while it copies one reference.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    epoch: Epoch,
    pinned: ReaderEpoch,
    sharing: Sharing,
    scratch: Scratch,
    /// True if the scratch memory fits the snapshot's plan.
    fits: bool,
    work: Work,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        let (shared, snapshot) = (self.shared.clone(), self.snapshot.clone());
        let (sharing, work, epoch) = (self.sharing, Work::default(), self.epoch);
        let pinned = shared.readers.join_at(epoch);
        let scratch = Scratch::new(self.scratch.level());
        Reader { shared, snapshot, epoch, pinned, sharing, scratch, fits: false, work }
    }
}

impl PassSet {
    /// A reader at the current epoch.
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }
}

impl Viewer {
    /// A reader at the current epoch.
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Reader {
        let pinned = shared.readers.join(|| shared.epoch());
        let epoch = shared.epoch();
        let snapshot = shared.current();
        let epoch = epoch.max(snapshot.epoch);
        let (scratch, work) = (Scratch::new(Level::best()), Work::default());
        let sharing = Sharing::All;
        pinned.pin(epoch);
        Reader { shared, snapshot, epoch, pinned, sharing, scratch, fits: false, work }
    }

    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }

    /// Advances to the newest epoch, which is at least that of any `commit` that has returned. One atomic load if
    /// nothing changed, a few of them if only rows of declared shapes changed.
    #[inline]
    pub fn refresh(&mut self) -> Epoch {
        if self.is_stale() {
            self.pinned.advance();
            let epoch = self.shared.epoch();
            // All data of an epoch is published before the epoch is.
            if let Some(snapshot) = self.shared.newer(&self.snapshot) {
                self.fits &= snapshot.same_plan(&self.snapshot) && self.sharing == Sharing::All;
                self.snapshot = snapshot;
            }
            self.epoch = epoch.max(self.snapshot.epoch);
            self.pinned.pin(self.epoch);
            self.scratch.forget();
        }
        self.epoch
    }

    /// True if there is a newer epoch. One atomic load.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.shared.epoch() != self.epoch
    }

    /// The epoch under which frames are judged.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Link type of the frames that are judged; others are rejected, unless the set is empty.
    pub fn link(&self) -> LinkType {
        self.snapshot.link
    }

    /// True if the set is empty at this epoch, so that every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.snapshot.accept_all
    }

    /// Chooses the results that passes share; for measuring. The verdicts stay the same.
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.fits &= self.sharing == sharing;
        self.sharing = sharing;
    }

    /// Chooses the vector instructions, initially the fastest. The verdicts stay the same.
    pub fn set_level(&mut self, level: Level) {
        self.scratch.set_level(level);
    }

    /// The vector instructions in use.
    pub fn level(&self) -> Level {
        self.scratch.level()
    }

    /// Judges the frames `within` of a batch and returns the accepted ones. Raises the counters of the passes that
    /// accepted them: each frame counts once, for the first pass in the order of evaluation.
    pub fn evaluate(&mut self, batch: &Batch, within: Mask) -> Mask {
        let accepted = self.judge(batch, within, None, None);
        self.count(accepted);
        accepted
    }

    /// Like [`Reader::evaluate`], but counts nothing: for callers that may judge frames again and call
    /// [`Reader::count`] for those with a final verdict.
    pub fn evaluate_uncounted(&mut self, batch: &Batch, within: Mask) -> Mask {
        self.judge(batch, within, None, None)
    }

    /// Like [`Reader::evaluate_uncounted`], for frames of any link type.
    pub(crate) fn evaluate_any_link(&mut self, batch: &Batch, within: Mask) -> Mask {
        self.judge_any_link(batch, within, None, None)
    }

    /// Verdict on one frame where that needs no memory of the reader, so that several threads can ask one reader: small
    /// plans without tables, and frames that lack no byte which the plan asks for. `None`: evaluate a batch. Counts
    /// nothing. Costs O(instructions that are reached).
    #[inline]
    pub fn quick_verdict(&self, frame: &Frame) -> Option<bool> {
        if self.is_empty() {
            return Some(true);
        }
        if self.is_foreign(frame.link) {
            return Some(false);
        }
        let plan = self.snapshot.plan(self.sharing);
        let fused = plan.fused.as_ref().filter(|fused| fused.takes_small_batches(plan))?;
        match single::judge(plan, fused, frame, &mut Work::default()) {
            Found::Nothing => Some(false),
            Found::Pass(_) => Some(true),
            Found::Unsure => None,
        }
    }

    /// Raises the counters of the passes for the frames of `settled` that they accepted in the last evaluation and that
    /// were not counted yet, and returns the number of these frames. After [`Reader::refresh`] has advanced to another
    /// epoch nothing is left to count.
    pub fn count(&mut self, settled: Mask) -> u64 {
        if !self.fits {
            return 0;
        }
        let view = View::of(&self.snapshot, self.sharing, self.epoch);
        self.scratch.count(view, settled)
    }

    /// Like [`Reader::evaluate`], and reports the passes that matched. If all matches are requested, a frame counts for
    /// every pass that matched it.
    pub fn evaluate_matches(&mut self, batch: &Batch, within: Mask, matches: &mut Matches) -> Mask {
        let accepted = self.judge(batch, within, None, Some(matches));
        self.count(accepted);
        accepted
    }

    /// Like [`Reader::evaluate_matches`], but counts nothing.
    pub fn evaluate_matches_uncounted(
        &mut self,
        batch: &Batch,
        within: Mask,
        matches: &mut Matches,
    ) -> Mask {
        self.judge(batch, within, None, Some(matches))
    }

    /// Judges frames only by passes that were made or changed after epoch `since`: for look-back at frames that an
    /// earlier epoch rejected. Counts like [`Reader::evaluate_matches`]; accepts everything if the set is empty.
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
        reference::judge(&self.snapshot, self.epoch, frame, self.sharing)
    }

    /// Tables and unindexed passes at this epoch. Rows of declared shapes are not counted; for those and for
    /// [`Layout::capped`] see [`crate::PassSet::layout`].
    pub fn layout(&self) -> Layout {
        let plan = self.snapshot.plan(self.sharing);
        let loose = plan.passes.len();
        let rows = self.snapshot.state.passes.len() - loose;
        Layout { shapes: plan.shapes.len(), rows, loose, capped: 0 }
    }

    /// Work of this reader since it was made.
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
        self.judge_any_link(batch, within, since, matches)
    }

    fn judge_any_link(
        &mut self,
        batch: &Batch,
        within: Mask,
        since: Option<Epoch>,
        matches: Option<&mut Matches>,
    ) -> Mask {
        let view = View::of(&self.snapshot, self.sharing, self.epoch);
        if !self.fits {
            self.scratch.fit(view.plan);
            self.fits = true;
        }
        self.scratch.evaluate(view, batch, within, since, matches, &mut self.work)
    }

    fn is_foreign(&self, link: LinkType) -> bool {
        !same_link(link, self.snapshot.link) && !self.is_empty()
    }
}
