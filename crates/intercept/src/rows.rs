//! The rows of the filter: one for each place of a user with a valid warrant.

use crate::facts::Place;
use fyke_filter::Options;
use fyke_filters::{FilterError, FilterSet, Row};
use fyke_frame::LinkType;
use fyke_pass::FilterId;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one link type.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) link: LinkType,
    /// Filter of the pass set, and number among the rows of lower spaces, of each place.
    held: BTreeMap<Place, (FilterId, u64)>,
}

impl Rows {
    pub(crate) fn new(link: LinkType) -> Rows {
        Rows { link, held: BTreeMap::new() }
    }

    /// Makes the rows equal to `wanted` by one edit, which is in force at once. Returns true if something changed, and
    /// the messages about rows that the filter refuses: for a link type that has no such frames.
    pub(crate) fn sync(
        &mut self,
        wanted: &BTreeSet<Place>,
        filters: &FilterSet,
    ) -> Result<(bool, Vec<String>), FilterError> {
        let (mut added, mut failures) = (Vec::new(), Vec::new());
        let (options, fragments) = filters.reading();
        let options = Options { link: self.link, ..options };
        for place in wanted.iter().filter(|place| !self.held.contains_key(place)) {
            match fyke_filter::compile_with(&place.text(), &options, &fragments) {
                Ok(predicate) => added.push((*place, predicate)),
                Err(error) => failures.push(format!("{place}: {error}")),
            }
        }
        let old: Vec<Place> =
            self.held.keys().filter(|place| !wanted.contains(place)).copied().collect();
        if added.is_empty() && old.is_empty() {
            return Ok((false, failures));
        }
        let removed: Vec<(FilterId, u64)> =
            old.iter().filter_map(|place| self.held.remove(place)).collect();
        let rows: Vec<Row> =
            added.iter().map(|(place, _)| Row { text: place.text(), port: None }).collect();
        let numbers: Vec<u64> = removed.iter().map(|(_, number)| *number).collect();
        let (made, numbers) = filters.edit_rows(self.link, &rows, &numbers, |passes| {
            let mut edit = passes.edit();
            for (filter, _) in &removed {
                // Another client may have removed the filter; the result is the same.
                let _ = edit.remove_filter(*filter);
            }
            let made: Vec<_> =
                added.iter().map(|(_, predicate)| edit.add_filter(predicate)).collect();
            edit.commit();
            made
        })?;
        for (((place, _), filter), number) in added.into_iter().zip(made).zip(numbers) {
            match filter {
                Ok(filter) => {
                    self.held.insert(place, (filter, number));
                }
                Err(error) => failures.push(format!("{place}: {error}")),
            }
        }
        Ok((true, failures))
    }
}
