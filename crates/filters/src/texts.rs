//! The texts in force with their numbers, and the groups of changes that edit them; common to both spaces.
//!
//! A group is applied as a whole or not at all, and is one epoch. It is checked against the list before anything
//! changes.

use crate::error::{FilterError, GroupError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A change of the texts in force. Each change of a group sees the texts that the changes before it leave.
///
/// Texts have numbers, from 1, in the order in which they were added; a number is never used again. Within a group,
/// the changes take numbers in their order, so a later change can remove a text that an earlier one has added. The
/// edit returns the numbers, one entry for each change: `Some` for `Add` and for `Set` with a text, else `None`. An
/// error names its change by the index in the group, from 0 ([`GroupError::place`](crate::GroupError::place)).
///
/// ```
/// # mod fyke { pub(crate) use {fyke_filter as filter, fyke_filters as filters}; }
/// use fyke::filter::Options;
/// use fyke::filters::{Change, FilterSet};
///
/// let filters = FilterSet::new(Options::default());
/// let numbers = filters.edit(&[Change::Add("tcp"), Change::Add("udp"), Change::Remove(1)])?;
/// assert_eq!(numbers, [Some(1), Some(2), None]);
/// let error = filters.edit(&[Change::Add("arp"), Change::Remove(9)]).unwrap_err();
/// assert_eq!((error.place, filters.counts().len()), (1, 1)); // nothing was added
/// assert_eq!(filters.add("arp")?, 3); // a refused group uses no numbers
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Adds a text: frames that it matches are accepted, too. An empty text matches every frame.
    Add(&'a str),
    /// Replaces all texts by one; an empty text leaves none, so that every frame is accepted.
    Set(&'a str),
    /// Removes the text with this number, but not the last one of all.
    Remove(u64),
}

impl<'a> Change<'a> {
    /// The text of an added or set filter.
    pub(crate) fn text(self) -> Option<&'a str> {
        match self {
            Change::Add(text) => Some(text),
            Change::Set(text) => (!text.trim().is_empty()).then_some(text),
            Change::Remove(_) => None,
        }
    }
}

/// The texts in force.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Last number given; numbers are never reused.
    last_id: u64,
    listed: BTreeMap<u64, Arc<str>>,
}

/// The texts that a group removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removed {
    Some(BTreeSet<u64>),
    All,
}

/// A checked group of changes: texts to remove and texts to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub removed: Removed,
    /// Numbers of the new texts that stay, and the index of their change in the group.
    pub added: Vec<(u64, usize)>,
    /// The number given by each change.
    pub ids: Vec<Option<u64>>,
    last_id: u64,
}

impl Removed {
    /// The numbers of the removed texts.
    pub fn numbers(&self, texts: &Texts) -> Vec<u64> {
        match self {
            Removed::Some(removed) => removed.iter().copied().collect(),
            Removed::All => texts.listed.keys().copied().collect(),
        }
    }

    /// The values of the removed numbers.
    pub fn of<T: Copy>(&self, ids: &BTreeMap<u64, T>) -> Vec<T> {
        self.entries(ids).into_iter().map(|(_, value)| value).collect()
    }

    /// The removed numbers with their values.
    pub fn entries<T: Clone>(&self, ids: &BTreeMap<u64, T>) -> Vec<(u64, T)> {
        match self {
            Removed::Some(removed) => {
                removed.iter().filter_map(|id| Some((*id, ids.get(id)?.clone()))).collect()
            }
            Removed::All => ids.iter().map(|(&id, value)| (id, value.clone())).collect(),
        }
    }

    /// Removes their entries. If all are removed, returns the map, so that the caller can drop it without a lock.
    pub fn take_from<T>(&self, ids: &mut BTreeMap<u64, T>) -> BTreeMap<u64, T> {
        match self {
            Removed::Some(removed) => {
                removed.iter().for_each(|id| drop(ids.remove(id)));
                BTreeMap::new()
            }
            Removed::All => std::mem::take(ids),
        }
    }
}

impl Texts {
    /// The texts by number, oldest first.
    pub fn listed(&self) -> &BTreeMap<u64, Arc<str>> {
        &self.listed
    }

    /// Checks a group of changes. `others` is true if passes other than those of texts accept frames, so that the last
    /// text may be removed.
    pub fn resolve(&self, changes: &[Change<'_>], others: bool) -> Result<Resolved, GroupError> {
        let mut resolved = Resolved {
            removed: Removed::Some(BTreeSet::new()),
            added: Vec::new(),
            ids: Vec::with_capacity(changes.len()),
            last_id: self.last_id,
        };
        let mut emptied = None;
        for (place, change) in changes.iter().enumerate() {
            match *change {
                Change::Set(_) => {
                    resolved.removed = Removed::All;
                    resolved.added.clear();
                    emptied = None;
                }
                Change::Remove(id) => {
                    self.remove(id, &mut resolved).map_err(GroupError::at(place))?;
                    emptied = Some((place, id));
                }
                Change::Add(_) => {}
            }
            let id = change.text().map(|_| {
                resolved.last_id += 1;
                resolved.added.push((resolved.last_id, place));
                resolved.last_id
            });
            resolved.ids.push(id);
        }
        match emptied {
            Some((place, id)) if !others && self.left(&resolved) == 0 => {
                Err(GroupError { place, error: FilterError::LastFilter(id) })
            }
            _ => Ok(resolved),
        }
    }

    fn remove(&self, given: u64, resolved: &mut Resolved) -> Result<(), FilterError> {
        let of_group = resolved.added.iter().position(|(id, _)| *id == given);
        if let Some(at) = of_group {
            resolved.added.remove(at);
            return Ok(());
        }
        if let Removed::Some(removed) = &mut resolved.removed
            && self.listed.contains_key(&given)
            && removed.insert(given)
        {
            return Ok(());
        }
        let stays = |id: &u64| match &resolved.removed {
            Removed::Some(removed) => !removed.contains(id),
            Removed::All => false,
        };
        let old = self.listed.keys().copied().filter(stays);
        let present = old.chain(resolved.added.iter().map(|(id, _)| *id)).collect();
        Err(FilterError::NoSuchFilter { given, present })
    }

    /// Number of texts after a group.
    pub fn left(&self, resolved: &Resolved) -> usize {
        let old = match &resolved.removed {
            Removed::Some(removed) => self.listed.len() - removed.len(),
            Removed::All => 0,
        };
        old + resolved.added.len()
    }

    /// Applies a group. Returns the removed texts, so that the caller can drop them without a lock.
    pub fn apply(
        &mut self,
        resolved: &Resolved,
        changes: &[Change<'_>],
    ) -> BTreeMap<u64, Arc<str>> {
        let gone = resolved.removed.take_from(&mut self.listed);
        for &(id, place) in &resolved.added {
            if let Some(text) = changes.get(place).and_then(|change| change.text()) {
                self.listed.insert(id, text.into());
            }
        }
        self.last_id = resolved.last_id;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Texts {
        let mut all = Texts::default();
        edit(&mut all, &texts.iter().map(|text| Change::Add(text)).collect::<Vec<_>>()).unwrap();
        all
    }

    fn edit(texts: &mut Texts, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, GroupError> {
        let resolved = texts.resolve(changes, false)?;
        let left = texts.left(&resolved);
        texts.apply(&resolved, changes);
        assert_eq!(left, texts.listed.len());
        Ok(resolved.ids)
    }

    fn ids(texts: &Texts) -> Vec<u64> {
        texts.listed.keys().copied().collect()
    }

    #[test]
    fn a_group_is_applied_in_its_order() {
        let mut texts = of(&["arp", "icmp"]);
        let group = [Change::Remove(1), Change::Add("tcp"), Change::Add("udp"), Change::Remove(3)];
        assert_eq!(edit(&mut texts, &group).unwrap(), [None, Some(3), Some(4), None]);
        assert_eq!(ids(&texts), [2, 4]);
        let group = [Change::Add("tcp"), Change::Set("ip"), Change::Add("ip6")];
        assert_eq!(edit(&mut texts, &group).unwrap(), [Some(5), Some(6), Some(7)]);
        assert_eq!(ids(&texts), [6, 7]);
        assert_eq!(edit(&mut texts, &[Change::Set(" ")]).unwrap(), [None]);
        assert_eq!(ids(&texts), [0_u64; 0]);
    }

    #[test]
    fn a_refused_group_changes_nothing_and_names_its_change() {
        let mut texts = of(&["arp", "icmp"]);
        let refused = |texts: &mut Texts, group: &[Change<'_>]| {
            let error = edit(texts, group).unwrap_err();
            assert_eq!(ids(texts), [1, 2]);
            (error.place, error.error.to_string())
        };
        let group = [Change::Remove(1), Change::Add("tcp"), Change::Remove(1)];
        let (place, message) = refused(&mut texts, &group);
        assert_eq!((place, message.as_str()), (2, "there is no filter 1; the filters are: 2, 3"));
        let (place, message) = refused(&mut texts, &[Change::Set("ip"), Change::Remove(2)]);
        assert_eq!((place, message.as_str()), (1, "there is no filter 2; the filters are: 3"));
        let (place, message) = refused(&mut texts, &[Change::Remove(2), Change::Remove(1)]);
        assert!(place == 1 && message.starts_with("filter 1 is the last one"), "{place} {message}");
        // Numbers of refused groups are not used up.
        assert_eq!(edit(&mut texts, &[Change::Add("tcp")]).unwrap(), [Some(3)]);
    }

    #[test]
    fn the_last_text_goes_when_another_comes_or_others_judge() {
        let mut texts = of(&["arp"]);
        edit(&mut texts, &[Change::Remove(1), Change::Add("tcp")]).unwrap();
        assert_eq!(ids(&texts), [2]);
        assert!(texts.resolve(&[Change::Remove(2)], false).is_err());
        assert!(texts.resolve(&[Change::Remove(2)], true).is_ok());
        // An empty text that is added is a text; an empty text that is set is not.
        edit(&mut texts, &[Change::Add(""), Change::Remove(2)]).unwrap();
        assert_eq!(ids(&texts), [3]);
        edit(&mut texts, &[Change::Remove(3), Change::Set("")]).unwrap();
        assert!(texts.listed.is_empty());
    }
}
