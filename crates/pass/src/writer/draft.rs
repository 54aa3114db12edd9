//! A pass set as an edit would leave it, for the kernel space, which may refuse the edit before it takes effect.

use crate::isa::id::{FilterId, PassId};
use crate::isa::value_set::ValueSet;
use crate::state::State;
use crate::writer::changes::Changes;
use crate::writer::describe::PassView;
use crate::writer::edit::Edit;
use crate::writer::pass_set::PassSet;
use crate::writer::view::FilterView;
use fyke_frame::LinkType;
use std::collections::BTreeSet;

/// A pass set with the changes of an uncommitted edit, or without changes.
///
/// Rows of declared shapes are those of the set, without those of the edit.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    set: &'a PassSet,
    state: &'a State,
    work: Option<&'a Changes>,
}

impl PassSet {
    /// The set as it is.
    pub fn draft(&self) -> Draft<'_> {
        Draft { set: self, state: &self.state, work: None }
    }
}

impl Edit<'_> {
    /// The set as it will be if the edit is committed now.
    pub fn draft(&self) -> Draft<'_> {
        let work = self.work.as_deref();
        Draft { set: self.set, state: work.map_or(&self.set.state, |work| &work.state), work }
    }
}

impl<'a> Draft<'a> {
    /// Link type of the frames that the set judges.
    pub fn link(&self) -> LinkType {
        self.set.link()
    }

    /// The edited set, without the changes.
    pub fn set(&self) -> &'a PassSet {
        self.set
    }

    /// True without filters and passes: every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty() && self.set.declared_rows() == 0
    }

    /// The filters, oldest first.
    pub fn filters(&self) -> impl Iterator<Item = FilterView<'a>> + use<'a> {
        let Draft { set, state, .. } = *self;
        let view = move |id| FilterView::new(id, state, &set.shapes, set.link());
        state.filters.iter().filter_map(move |(id, _)| view(FilterId(id)))
    }

    /// One filter.
    pub fn filter(&self, id: FilterId) -> Option<FilterView<'a>> {
        FilterView::new(id, self.state, &self.set.shapes, self.set.link())
    }

    /// The passes in the order of evaluation.
    pub fn passes(&self) -> impl Iterator<Item = PassView<'a>> + use<'a> {
        let draft = *self;
        draft.state.in_order().filter_map(move |(id, _)| draft.pass(id))
    }

    /// One pass.
    pub fn pass(&self, id: PassId) -> Option<PassView<'a>> {
        let Draft { set, state, work } = *self;
        let mut view = PassView::new(id, state.pass(id)?, state, &set.shapes, set.link());
        if work.is_some_and(|work| work.touched.contains(&id)) {
            view.changed = set.epoch.next();
        }
        Some(view)
    }

    /// Number of filters.
    pub fn filter_count(&self) -> usize {
        self.state.filters.len()
    }

    /// The numbers of the passes that the edit has changed, made or removed.
    pub fn touched(&self) -> impl ExactSizeIterator<Item = PassId> + use<'a> {
        const NONE: &BTreeSet<PassId> = &BTreeSet::new();
        self.work.map_or(NONE, |work| &work.touched).iter().copied()
    }

    /// The filters that the edit has made.
    pub fn new_filters(&self) -> impl Iterator<Item = FilterView<'a>> + use<'a> {
        let draft = *self;
        let numbers = draft.set.state.last_filter + 1..=draft.state.last_filter;
        numbers.filter_map(move |id| draft.filter(FilterId(id)))
    }

    /// The filters that the edit has removed; `None` if it has removed all.
    pub fn removed_filters(&self) -> Option<&'a [FilterId]> {
        self.work.map_or(Some(&[]), |work| work.removed_filters.as_deref())
    }

    /// A set that instructions name, by the number in their parameter.
    pub fn value_set(&self, number: u32) -> Option<&'a ValueSet> {
        self.state.sets.get(number.into()).map(|set| &**set)
    }
}
