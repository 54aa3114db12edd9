//! Inner sets: passes that an instruction names as it may name a set of values, to ask whether one of them holds.
//!
//! Exceptions are such an instruction, negated (`lower/except.rs`). An inner set is a [`PassSet`] that is never edited:
//! its passes become rows of tables as any others do, so that ten thousand excluded pairs are one look-up. Its passes
//! belong to no filter and count nothing. A load out of bounds makes an inner pass false and the instruction stays
//! defined; frames that are too short for the outer filter never come here to be decided (`needs.rs`).
//!
//! A reader evaluates an inner set on first demand, for 64 frames or the whole batch, and keeps the answer for that
//! batch, whatever passes ask (`judge/inner.rs`). Cost: that of a set of its own, its columns included.

use crate::isa::inner::InnerPasses;
use crate::isa::test::Compiled;
use crate::plan::Sharing;
use crate::plan::snapshot::Snapshot;
use crate::writer::pass_set::PassSet;
use fyke_frame::Frame;
use std::any::Any;
use std::sync::Arc;

/// A set of passes that an instruction asks.
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

    /// The set behind what an instruction holds.
    pub fn of(inner: &dyn InnerPasses) -> &InnerSet {
        inner.as_any().downcast_ref().expect("InnerSet is the only implementation")
    }

    /// Its passes, for looking at.
    pub fn passes(&self) -> &PassSet {
        &self.set
    }
}

impl InnerPasses for InnerSet {
    fn accepts(&self, frame: &Frame) -> bool {
        let (loose, live) = (self.snapshot.loose(), self.snapshot.shapes());
        let state = &self.snapshot.state;
        let holds = |one: &Arc<Compiled>| one.holds(frame);
        let mut passes = loose.iter().filter_map(|&id| state.pass(id));
        passes.any(|pass| pass.body.compiled.iter().all(holds))
            || live.iter().any(|live| live.first(self.snapshot.epoch, frame).is_some())
    }

    fn pass_count(&self) -> usize {
        self.set.pass_count()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl PassSet {
    /// The passes of which `PASSES` asks whether one accepts, by the number in its parameter.
    pub fn inner_set(&self, number: u32) -> Option<&PassSet> {
        Some(InnerSet::of(&**self.state.sets.get(number.into())?.inner()?).passes())
    }
}
