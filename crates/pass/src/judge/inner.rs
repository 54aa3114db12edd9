//! Inner sets: passes that an instruction names as it may name a set of values, to ask whether one of them holds.
//!
//! Exceptions are such an instruction, negated (`lower/except.rs`). An inner set is a [`PassSet`] that is never edited:
//! its passes become rows of tables as any others do, so that ten thousand excluded pairs are one look-up. Its passes
//! belong to no filter and count nothing. A load out of bounds makes an inner pass false and the instruction stays
//! defined; frames that are too short for the outer filter never come here to be decided (`needs.rs`).
//!
//! A reader evaluates an inner set on first demand, for 64 frames or the whole batch, and keeps the answer for that
//! batch, whatever passes ask. Cost: that of a set of its own, its columns included.

use crate::isa::test::Compiled;
use crate::judge::arch::Level;
use crate::judge::reader::Reader;
use crate::plan::Sharing;
use crate::plan::snapshot::Snapshot;
use crate::writer::pass_set::PassSet;
use fyke_frame::{Batch, Frame, Mask};
use std::sync::Arc;

/// Frames asked about at once from which on the whole batch is evaluated.
const MANY: usize = 32;

/// Passes that are evaluated as one instruction.
#[derive(Debug)]
pub(crate) struct InnerSet {
    set: PassSet,
    snapshot: Arc<Snapshot>,
}

impl InnerSet {
    /// The set as it is; it has a pass, as an empty one would accept every frame.
    pub fn new(set: PassSet) -> InnerSet {
        debug_assert!(!set.is_empty());
        let snapshot = set.published();
        // Laid out here and not where frames wait.
        snapshot.plan(Sharing::All);
        InnerSet { set, snapshot }
    }

    /// Its passes, for looking at.
    pub fn passes(&self) -> &PassSet {
        &self.set
    }

    /// Whether one of the passes accepts the frame.
    pub fn accepts(&self, frame: &Frame) -> bool {
        let (loose, live) = (self.snapshot.loose(), self.snapshot.shapes());
        let state = &self.snapshot.state;
        let holds = |one: &Arc<Compiled>| one.holds(frame);
        let mut passes = loose.iter().filter_map(|&id| state.pass(id));
        passes.any(|pass| pass.body.compiled.iter().all(holds))
            || live.iter().any(|live| live.first(self.snapshot.epoch, frame).is_some())
    }
}

/// One reader's side of an inner set.
#[derive(Debug)]
pub(crate) struct InnerReader {
    pub set: Arc<InnerSet>,
    reader: Reader,
    /// Frames of the batch that were evaluated, and those of them that a pass accepts.
    known: Mask,
    truth: Mask,
}

impl InnerReader {
    pub fn new(set: &Arc<InnerSet>, level: Level) -> InnerReader {
        let mut reader = set.set.reader();
        reader.set_level(level);
        InnerReader { set: set.clone(), reader, known: Mask::EMPTY, truth: Mask::EMPTY }
    }

    pub fn set_level(&mut self, level: Level) {
        self.reader.set_level(level);
    }

    /// Another batch comes.
    #[inline]
    pub fn forget(&mut self) {
        (self.known, self.truth) = (Mask::EMPTY, Mask::EMPTY);
    }

    /// The frames for which a pass of the set holds.
    pub fn ask(&mut self, batch: &Batch, frames: Mask) -> Mask {
        let mut missing = frames.without(self.known);
        if !missing.is_empty() {
            if missing.count() >= MANY {
                missing = batch.all().without(self.known);
            }
            self.truth = self.truth | self.reader.evaluate_any_link(batch, missing);
            self.known = self.known | missing;
        }
        self.truth & frames
    }
}
