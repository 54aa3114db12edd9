//! The counters of a filter set at one moment, without the texts of passes.
//!
//! A frame that the filters accept is credited to one pass. So `credited` is the sum over the filters in force, the
//! removed ones and the passes of trackers. The count of trackers' passes is the difference: their passes exist only as
//! long as connections, and their counters are removed with them. Frames that are counted between an edit and its
//! adoption by the packet loop are counted for the tracker. Cost: O(passes), a few loads each.

use super::view::{Present, describe};
use super::{FilterSet, lock};
use crate::view::{FilterCount, FilterView};
use fyke_frame::LinkType;
use std::collections::HashSet;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

/// Counters of a filter set at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterCounts {
    /// Number of applied edits.
    pub epoch: u64,
    /// The filters, in the order they were added.
    pub filters: Vec<FilterCount>,
    /// Names of the trackers with passes of their own, and the frames that these passes accepted.
    pub tracker: Option<(String, u64)>,
    /// Frames accepted by filters that have been removed.
    pub removed: u64,
    /// All credited frames: the sum of the other counts.
    pub credited: u64,
    /// Every pass, with its link type and number.
    pub passes: Vec<(LinkType, u64, u64)>,
}

impl FilterCounts {
    /// Adds the counters of another worker's copy of the filters.
    pub fn add(&mut self, other: &FilterCounts) {
        for (all, one) in self.filters.iter_mut().zip(&other.filters) {
            all.accepted += one.accepted;
        }
        if let (Some((_, all)), Some((_, one))) = (&mut self.tracker, &other.tracker) {
            *all += one;
        }
        for (all, one) in self.passes.iter_mut().zip(&other.passes) {
            all.2 += one.2;
        }
        self.removed += other.removed;
        self.credited += other.credited;
    }
}

impl FilterSet {
    /// All current counters, for the packet loop. Returns `None`, without waiting, while an edit is being revealed.
    pub fn snapshot(&self) -> Option<FilterCounts> {
        let (present, epoch, removed, tracker) = {
            let listed = match self.shared.listed.try_lock() {
                Ok(listed) => listed,
                Err(TryLockError::Poisoned(listed)) => listed.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let tracker = (!listed.trackers.is_empty()).then(|| name(&listed.trackers));
            (Present::listed(&listed), self.epoch(), listed.removed, tracker)
        };
        let filters: Vec<FilterCount> = present.counts().collect();
        let credited = self.shared.credited.load(Ordering::Relaxed);
        let rest = credited.saturating_sub(filters.iter().map(|filter| filter.accepted).sum());
        let (tracker, removed) = match tracker {
            None => (None, rest),
            Some(name) => (Some((name, rest.saturating_sub(removed))), removed.min(rest)),
        };
        let passes = present.links.iter().flat_map(|links| {
            links.passes.passes().map(|pass| (links.link, pass.id.0, pass.accepted()))
        });
        let passes = passes.collect();
        Some(FilterCounts { epoch, filters, tracker, removed, credited, passes })
    }

    /// Records the name of a tracker that edits passes by [`FilterSet::edit_passes`].
    pub fn tracked_by(&self, name: String) {
        lock(&self.shared.listed).trackers.insert(name);
        self.shared.tracked.store(true, Ordering::Relaxed);
    }

    /// The current passes of trackers, under the number 0.
    pub fn tracked(&self) -> Option<FilterView> {
        let (present, text) = {
            let listed = lock(&self.shared.listed);
            if listed.trackers.is_empty() {
                return None;
            }
            (Present::listed(&listed), name(&listed.trackers).into())
        };
        let mut passes = Vec::new();
        for links in &present.links {
            let own: HashSet<u64> = links.ids.iter().flatten().map(|filter| filter.0).collect();
            let of_trackers = links
                .passes
                .passes()
                .filter(|pass| pass.filter.is_none_or(|filter| !own.contains(&filter.0)));
            passes.extend(of_trackers.map(|pass| describe(links.link, &pass)));
        }
        let accepted = passes.iter().map(|pass| pass.accepted).sum();
        Some(FilterView { filter: FilterCount { id: 0, text, accepted }, passes })
    }
}

fn name(trackers: &std::collections::BTreeSet<String>) -> String {
    trackers.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
