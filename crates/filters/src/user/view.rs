//! Views of the filters for users; making one delays neither edits nor readers.
//!
//! The list of filters is locked while references are copied, O(filters); counters are read and passes are formatted
//! outside of any lock, from snapshots.

use super::{FilterSet, Listed, lock};
use crate::view::{FilterCount, FilterView, PassDescription};
use fyke_frame::LinkType;
use fyke_pass::{FilterId, PassSnapshot, PassView};
use std::sync::Arc;

/// The filters at one epoch.
pub(super) struct Present {
    filters: Vec<(u64, Arc<str>)>,
    pub links: Vec<PresentLink>,
}

/// The passes of one link type.
pub(super) struct PresentLink {
    pub link: LinkType,
    pub passes: PassSnapshot,
    /// For each filter its number in the pass set.
    pub ids: Vec<Option<FilterId>>,
}

impl Present {
    fn of(set: &FilterSet) -> Present {
        Present::listed(&lock(&set.shared.listed))
    }

    pub fn listed(listed: &Listed) -> Present {
        let filters: Vec<_> =
            listed.texts.listed().iter().map(|(&id, text)| (id, text.clone())).collect();
        let links = listed.links.iter().map(|one| PresentLink {
            link: one.link,
            passes: one.viewer.snapshot(),
            ids: filters.iter().map(|(id, _)| one.ids.get(id).copied()).collect(),
        });
        Present { links: links.collect(), filters }
    }

    pub fn counts(&self) -> impl Iterator<Item = FilterCount> {
        self.filters.iter().enumerate().map(|(index, (id, text))| FilterCount {
            id: *id,
            text: text.clone(),
            accepted: self.views(index).map(|(_, view)| view.accepted()).sum(),
        })
    }

    fn note(&self, id: u64) -> Option<String> {
        let index = self.filters.binary_search_by_key(&id, |(filter, _)| *filter).ok()?;
        let reason = self.views(index).find_map(|(_, view)| Some(view.too_large()?.to_string()))?;
        Some(format!("filter {id} is evaluated frame by frame, in the order of its text: {reason}"))
    }

    fn views(&self, index: usize) -> impl Iterator<Item = (LinkType, fyke_pass::FilterView<'_>)> {
        self.links
            .iter()
            .filter_map(move |one| Some((one.link, one.passes.filter(one.ids[index]?)?)))
    }
}

impl FilterSet {
    /// Number of filters.
    pub fn len(&self) -> usize {
        lock(&self.shared.listed).texts.listed().len()
    }

    /// True if there is no filter, so that every frame is accepted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The filters with their current counts.
    pub fn counts(&self) -> Vec<FilterCount> {
        Present::of(self).counts().collect()
    }

    /// Remark about a filter that is slow to evaluate.
    pub fn note(&self, id: u64) -> Option<String> {
        Present::of(self).note(id)
    }

    /// Remarks about those of several filters that are slow to evaluate.
    pub fn notes(&self, ids: &[u64]) -> Vec<String> {
        let present = Present::of(self);
        ids.iter().filter_map(|&id| present.note(id)).collect()
    }

    /// The filters with their current counts and passes. Takes about 2 µs per pass.
    pub fn view(&self) -> Vec<FilterView> {
        let present = Present::of(self);
        let view = |(index, filter)| FilterView { filter, passes: passes_of(&present, index) };
        present.counts().enumerate().map(view).collect()
    }
}

fn passes_of(present: &Present, index: usize) -> Vec<PassDescription> {
    let described = present.views(index).flat_map(|(link, view)| {
        let in_order = view.is_in_order();
        view.passes().map(move |pass| match in_order {
            true => PassDescription { text: IN_ORDER.to_owned(), ..describe(link, &pass) },
            false => describe(link, &pass),
        })
    });
    described.collect()
}

/// Description of the pass of a text that is evaluated frame by frame.
pub(crate) const IN_ORDER: &str = "in the text's own order";

pub(super) fn describe(link: LinkType, pass: &PassView<'_>) -> PassDescription {
    PassDescription { link, id: pass.id.0, text: in_words(pass), accepted: pass.accepted() }
}

/// The instructions of a pass, joined.
pub(crate) fn in_words(pass: &PassView<'_>) -> String {
    let words: Vec<String> = pass.describe().map(|view| view.to_string()).collect();
    if words.is_empty() { "every frame".to_owned() } else { words.join(" and ") }
}
