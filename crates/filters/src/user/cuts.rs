//! Snap lengths of filters: the longest of those of all filters that accept a frame.
//!
//! Frames are evaluated a second time for this, by a reader of its own that counts nothing and finds all filters that
//! accept a frame. It exists only while a filter in force has a snap length.

use super::Listed;
use fyke_frame::{Batch, LinkType, Mask};
use fyke_pass::{FilterId, MatchMode, Matches, Reader};
use std::collections::HashMap;

/// The snap lengths on one link type.
#[derive(Debug)]
pub(super) struct Cuts {
    passes: Reader,
    matches: Matches,
    /// Bytes, of the filters that have a snap length.
    lengths: HashMap<FilterId, u32>,
}

impl Cuts {
    /// The lengths at the newest epoch; `None` if no filter has one. Called while no edit is being revealed. `before`
    /// is the result of the last call.
    pub fn refresh(before: Option<Cuts>, link: LinkType, listed: &Listed) -> Option<Cuts> {
        let filters = listed.links.iter().find(|one| one.link == link)?;
        let labels = listed.journal.labels();
        let lengths = labels
            .iter()
            .filter_map(|(number, label)| Some((*filters.ids.get(number)?, label.snaplen?)));
        let lengths: HashMap<_, _> = lengths.collect();
        if lengths.is_empty() {
            return None;
        }
        let (mut passes, matches) = match before {
            Some(before) => (before.passes, before.matches),
            None => (filters.viewer.reader(), Matches::new(MatchMode::All)),
        };
        passes.refresh();
        Some(Cuts { passes, matches, lengths })
    }

    /// Finds the filters that accept the frames of `within`.
    pub fn evaluate(&mut self, batch: &Batch<'_>, within: Mask) {
        self.passes.evaluate_matches_uncounted(batch, within, &mut self.matches);
    }

    /// The length of a frame of the last evaluated batch; `None` if it stays whole.
    pub fn length(&self, index: usize) -> Option<u32> {
        let mut longest = None;
        for found in self.matches.of(index) {
            // A pass without a filter is one of a tracker.
            let length = *self.lengths.get(&found.filter?)?;
            longest = longest.max(Some(length));
        }
        longest
    }
}
