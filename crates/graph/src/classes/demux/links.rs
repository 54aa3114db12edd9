//! The filters of a demultiplexer as pass sets, one for each link type that has appeared.
//!
//! Filters with the same text are one filter of the set. A change of the list is one edit of each set: O(change) for
//! the sets, O(filters) for the numbers in the list. Cost of a frame: the pass engine's, and one look-up for each
//! filter that accepts it.

use super::Rule;
use fyke_filter::{Fragments, Options};
use fyke_filters::FilterError;
use fyke_filters::received;
use fyke_frame::{Batch, LinkType, Mask};
use fyke_pass::{FilterId, MatchMode, Matches, PassSet, Reader};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All link types.
pub struct Links {
    options: Options,
    filters: BTreeMap<LinkType, Filters>,
    /// Rejected frames by link type, for link types that no filter fits.
    unfit: BTreeMap<LinkType, u64>,
    /// Bytes of frames as the device delivered them.
    received: Vec<u8>,
}

/// The filters for one link type.
pub struct Filters {
    reader: Reader,
    ids: HashMap<Arc<str>, FilterId>,
    /// Numbers in the list of the filters that a filter of the set represents.
    numbers: HashMap<FilterId, Vec<u32>>,
    matches: Matches,
    found: Vec<u32>,
    set: PassSet,
}

impl Links {
    /// Creates an empty map; filters are lowered when a link type is known.
    pub fn new(options: Options) -> Links {
        let (filters, unfit, received) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Links { options, filters, unfit, received }
    }

    /// Lowers the filters for a link type, if it is new.
    pub fn prepare(&mut self, link: LinkType, rules: &[Rule]) -> Result<(), FilterError> {
        if !self.filters.contains_key(&link) {
            let mut filters = Filters::new(link);
            filters.change(rules, &Options { link, ..self.options })?;
            self.filters.insert(link, filters);
        }
        Ok(())
    }

    /// True if a filter fits one of the link types that were prepared.
    pub fn fits(&self, rule: &Rule) -> bool {
        self.filters.values().any(|filters| filters.ids.contains_key(&rule.text))
    }

    /// Returns the frames of `within` that a filter accepts; `each` receives the numbers of these filters in the
    /// list, ascending. No frame passes if its link type has not been prepared.
    pub fn judge(
        &mut self,
        batch: &Batch<'_>,
        within: Mask,
        each: impl FnMut(usize, &[u32]),
    ) -> Mask {
        let Some(first) = batch.frames().first() else { return Mask::EMPTY };
        let Some(filters) = self.filters.get_mut(&first.link) else { return Mask::EMPTY };
        if filters.ids.is_empty() {
            // The pass engine accepts every frame if a set is empty.
            *self.unfit.entry(first.link).or_default() += within.count() as u64;
            return Mask::EMPTY;
        }
        if self.options.live {
            return received::as_received(batch, &mut self.received, |batch| {
                filters.judge(batch, within, each)
            });
        }
        filters.judge(batch, within, each)
    }

    /// Frames that were rejected because no filter fits their link type.
    pub fn unfit(&self) -> &BTreeMap<LinkType, u64> {
        &self.unfit
    }

    /// Replaces the list. After an error the sets may differ, so the node must be replaced.
    pub fn change(&mut self, rules: &[Rule]) -> Result<(), FilterError> {
        let options = self.options;
        let mut all = self.filters.iter_mut();
        all.try_for_each(|(&link, filters)| filters.change(rules, &Options { link, ..options }))
    }
}

impl Filters {
    fn new(link: LinkType) -> Filters {
        let set = PassSet::new(link);
        Filters {
            reader: set.reader(),
            ids: HashMap::new(),
            numbers: HashMap::new(),
            matches: Matches::new(MatchMode::All),
            found: Vec::new(),
            set,
        }
    }

    /// Replaces the list for this link type; filters that do not fit it are left out.
    fn change(&mut self, rules: &[Rule], options: &Options) -> Result<(), FilterError> {
        let mut edit = self.set.edit();
        let mut ids: HashMap<Arc<str>, FilterId> = HashMap::new();
        for rule in rules {
            if ids.contains_key(&rule.text) {
                continue;
            }
            let id = match self.ids.get(&rule.text) {
                Some(&known) => known,
                None => {
                    let known = Fragments::default();
                    let compiled = fyke_filter::compile_with(&rule.text, options, &known);
                    let Ok(predicate) = compiled else { continue };
                    edit.add_filter(&predicate)?
                }
            };
            ids.insert(Arc::clone(&rule.text), id);
        }
        for (text, &id) in &self.ids {
            if !ids.contains_key(text) {
                edit.remove_filter(id)?;
            }
        }
        edit.commit();
        self.reader.refresh();
        self.numbers.clear();
        for (number, rule) in (0..).zip(rules) {
            if let Some(&id) = ids.get(&rule.text) {
                self.numbers.entry(id).or_default().push(number);
            }
        }
        self.ids = ids;
        Ok(())
    }

    fn judge(
        &mut self,
        batch: &Batch<'_>,
        within: Mask,
        mut each: impl FnMut(usize, &[u32]),
    ) -> Mask {
        let accepted = self.reader.evaluate_matches(batch, within, &mut self.matches);
        for index in accepted.iter() {
            self.found.clear();
            let mut filters = 0;
            let mut last = None;
            for filter in self.matches.of(index).filter_map(|found| found.filter) {
                if last.replace(filter) != Some(filter) {
                    self.found.extend(self.numbers.get(&filter).into_iter().flatten());
                    filters += 1;
                }
            }
            if filters > 1 {
                self.found.sort_unstable();
                self.found.dedup();
            }
            each(index, &self.found);
        }
        accepted
    }
}
