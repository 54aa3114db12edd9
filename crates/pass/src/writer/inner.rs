//! Inner sets: passes that an instruction names like a set of values; it holds if one of them accepts.
//!
//! An exception is such an instruction, negated (`lower/except.rs`). An inner set is a [`PassSet`] that is never
//! edited: its passes become rows of tables like any others, so that ten thousand excluded pairs are one look-up. Its
//! passes belong to no filter and count nothing. A load out of bounds makes an inner pass false, and the instruction
//! stays defined. Inner sets do not decide frames that are too short for the outer filter (`needs.rs`).
//!
//! A reader evaluates an inner set on first demand, for 64 frames or the whole batch, and keeps the result for all
//! passes and this batch (`judge/inner.rs`). Cost: that of a set of its own, including its columns.

use crate::isa::inner::InnerPasses;
use crate::isa::test::Compiled;
use crate::plan::Sharing;
use crate::plan::snapshot::Snapshot;
use crate::writer::pass_set::PassSet;
use fyke_frame::Frame;
use std::any::Any;
use std::sync::Arc;

/// A set of passes that an instruction evaluates.
#[derive(Debug)]
pub(crate) struct InnerSet {
    set: PassSet,
    snapshot: Arc<Snapshot>,
}

impl InnerSet {
    /// Wraps a set. It has at least one pass, as an empty set would accept every frame.
    pub fn new(set: PassSet) -> InnerSet {
        debug_assert!(!set.is_empty());
        let snapshot = set.published();
        // Lay it out now, before frames arrive.
        snapshot.plan(Sharing::All);
        InnerSet { set, snapshot }
    }

    /// The set inside an instruction's [`InnerPasses`].
    pub fn of(inner: &dyn InnerPasses) -> &InnerSet {
        inner.as_any().downcast_ref().expect("InnerSet is the only implementation")
    }

    /// Its passes.
    pub fn passes(&self) -> &PassSet {
        &self.set
    }
}

impl InnerPasses for InnerSet {
    fn accepts(&self, frame: &Frame) -> bool {
        let (unindexed, published) = (self.snapshot.unindexed(), self.snapshot.shapes());
        let state = &self.snapshot.state;
        let holds = |one: &Arc<Compiled>| one.holds(frame);
        let mut passes = unindexed.iter().filter_map(|&id| state.pass(id));
        passes.any(|pass| pass.body.compiled.iter().all(holds))
            || published
                .iter()
                .any(|published| published.first(self.snapshot.epoch, frame).is_some())
    }

    fn pass_count(&self) -> usize {
        self.set.pass_count()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl PassSet {
    /// The passes of a `PASSES` instruction, by the number in its parameter.
    pub fn inner_set(&self, number: u32) -> Option<&PassSet> {
        Some(InnerSet::of(&**self.state.sets.get(number.into())?.inner()?).passes())
    }
}
