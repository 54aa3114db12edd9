//! Texts as passes, ready to be added to a set.

use crate::isa::layout::Instruction;
use crate::isa::value_set::ValueSet;
use crate::lower::needs::Needs;
use crate::lower::oracle::Oracle;
use crate::lower::{LowerError, Lowered, LoweredPasses, NamedSet, References};
use crate::writer::inner::InnerSet;
use crate::writer::pass_set::PassSet;
use fyke_filter::Predicate;
use fyke_frame::{Condition, LinkType};
use std::sync::Arc;

/// A text as passes, for [`crate::Edit::add_lowered`]: lowering takes most of the time of an edit and needs no set.
#[derive(Debug)]
pub struct LoweredFilter {
    pub(super) text: Arc<str>,
    /// Link type of the text.
    pub(super) link: Option<LinkType>,
    pub(super) oracle: Oracle,
    /// The instructions of each pass; the numbers of sets and conditions count within `named`.
    pub(super) passes: Vec<Vec<Instruction>>,
    /// Frames that the passes may judge.
    pub(super) needs: Needs,
    /// The reason if the text was too large for passes, so that the ordered evaluator judges all frames.
    pub(super) too_large: Option<Arc<LowerError>>,
    pub(super) named: Named,
}

/// The sets and conditions of some passes, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub sets: Vec<ValueSet>,
    pub conditions: Vec<Arc<Condition>>,
}

impl LoweredFilter {
    /// Lowers a filter text. A text that is too large for passes becomes [`LoweredFilter::ordered`], and so does a text
    /// in the scoped reading: it tests headers at any depth.
    ///
    /// # Errors
    /// [`LowerError::Instruction`], a bug of lowering.
    pub fn new(predicate: &Predicate) -> Result<LoweredFilter, LowerError> {
        Lowered::new(predicate).map(LoweredFilter::of)
    }

    /// One pass for which the ordered evaluator judges frame by frame.
    pub fn ordered(predicate: &Predicate) -> LoweredFilter {
        LoweredFilter::of(Lowered::ordered(predicate))
    }

    /// Lowers a condition that is not part of a text, or leaves it to the ordered evaluator if it would become too many
    /// passes. Views and errors show `text`.
    ///
    /// # Errors
    /// [`LowerError::TooDeep`]: the ordered evaluator of conditions is recursive.
    pub(super) fn of_condition(
        condition: Arc<Condition>,
        text: &str,
    ) -> Result<LoweredFilter, LowerError> {
        Lowered::of_condition(condition, text).map(LoweredFilter::of)
    }

    /// Number of its passes.
    pub fn pass_count(&self) -> usize {
        self.passes.len()
    }

    fn of(lowered: Lowered) -> LoweredFilter {
        let Lowered { text, link, oracle, passes, needs, too_large, references } = lowered;
        let named = Named::of(references);
        LoweredFilter { text, link, oracle, passes, needs, too_large, named }
    }
}

impl Named {
    fn of(references: References) -> Named {
        let set = |set| match set {
            NamedSet::Values(values) => values,
            NamedSet::Passes(passes) => ValueSet::passes(Arc::new(inner_set(passes))),
        };
        Named {
            sets: references.sets.into_iter().map(set).collect(),
            conditions: references.conditions,
        }
    }
}

/// Passes that belong to no filter, as a set of their own.
fn inner_set(lowered: LoweredPasses) -> InnerSet {
    let mut set = PassSet::new(lowered.link);
    let mut edit = set.edit();
    edit.add_passes(lowered.passes, Named::of(lowered.references));
    edit.commit();
    InnerSet::new(set)
}
