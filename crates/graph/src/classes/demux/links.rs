//! The filters of a demultiplexer as pass sets, one for each link type that has turned up.
//!
//! Filters with the same text are one filter of the set. A change of the list is one edit of each set: O(change) for
//! the sets, O(filters) for the numbers of their places. Cost of a frame: the pass engine's, and one look-up for each
//! filter that accepts it.

use super::Rule;
use crate::filters::FilterError;
use fyke_filter::Options;
use fyke_frame::{Batch, LinkType, Mask};
use fyke_pass::{Edit, FilterId, MatchMode, Matches, PassSet, Reader};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All link types.
pub struct Links {
    options: Options,
    filters: BTreeMap<LinkType, Filters>,
}

/// The filters for one link type.
pub struct Filters {
    reader: Reader,
    ids: HashMap<Arc<str>, FilterId>,
    /// Which filters of the list a filter of the set stands for.
    numbers: HashMap<FilterId, Vec<u32>>,
    matches: Matches,
    found: Vec<u32>,
    set: PassSet,
}

impl Links {
    /// Nothing is lowered before a link type is known.
    pub fn new(options: Options) -> Links {
        Links { options, filters: BTreeMap::new() }
    }

    /// The filters for a link type.
    pub fn of(&mut self, link: LinkType, rules: &[Rule]) -> Result<&mut Filters, FilterError> {
        use std::collections::btree_map::Entry;
        Ok(match self.filters.entry(link) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut filters = Filters::new(link);
                filters.change(rules, &Options { link, ..self.options })?;
                entry.insert(filters)
            }
        })
    }

    /// Puts another list in the place of the one before. Where it fails, sets may differ: make a new node then.
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

    fn change(&mut self, rules: &[Rule], options: &Options) -> Result<(), FilterError> {
        let mut edit = self.set.edit();
        let mut ids: HashMap<Arc<str>, FilterId> = HashMap::new();
        for rule in rules {
            if ids.contains_key(&rule.text) {
                continue;
            }
            let id = match self.ids.get(&rule.text) {
                Some(&known) => known,
                None => add(&mut edit, &rule.text, options)?,
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
            self.numbers.entry(ids[&rule.text]).or_default().push(number);
        }
        self.ids = ids;
        Ok(())
    }

    /// The frames of `within` that a filter accepts; `each` gets their numbers in the list, ascending.
    pub fn judge(
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

fn add(
    edit: &mut Edit<'_>,
    text: &str,
    options: &Options,
) -> Result<FilterId, FilterError> {
    let predicate = fyke_filter::compile(text, options)?;
    Ok(edit.add_filter(&predicate)?)
}
