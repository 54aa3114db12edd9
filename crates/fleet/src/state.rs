//! The filters of a group after its edits: the same for all that have read the same edits.

use crate::edit::{Accepted, Change, FilterId, Labels};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most filters of a group.
pub const MAX_FILTERS: usize = 100_000;
/// Most bytes of their texts.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// A filter of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Its id.
    pub id: FilterId,
    /// Its text.
    pub text: String,
    /// Sensors without these labels leave it out.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub only: Labels,
    /// The author of the edit that added it.
    pub author: String,
}

/// The filters of a group after an edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The sequence of the last edit; 0 without one.
    pub sequence: u64,
    /// The last edit that removed all filters of the sensors, including their own; 0 without one.
    pub cleared: u64,
    /// The filters in the order in which they were added.
    pub filters: BTreeMap<FilterId, Filter>,
    /// Bytes of their texts.
    bytes: usize,
}

/// Reason why an edit does not fit the filters before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// It removes a filter that is not there.
    #[error("the group has no filter {0}")]
    NoFilter(FilterId),
    /// There would be too many.
    #[error(
        "the group would have more than {MAX_FILTERS} filters, or {MAX_TEXT_BYTES} bytes of text"
    )]
    TooMany,
}

impl State {
    /// The filters after an edit, as a snapshot has them.
    ///
    /// # Errors
    /// There are too many.
    pub fn of(sequence: u64, cleared: u64, filters: Vec<Filter>) -> Result<State, StateError> {
        let mut state = State { sequence, cleared, ..State::default() };
        filters.into_iter().for_each(|filter| state.insert(filter));
        match state.filters.len() > MAX_FILTERS || state.bytes > MAX_TEXT_BYTES {
            true => Err(StateError::TooMany),
            false => Ok(state),
        }
    }

    /// Applies the edit that follows; on an error only the sequence changes, because the edit has its number even if
    /// it has no effect.
    ///
    /// # Errors
    /// It does not fit.
    pub fn apply(&mut self, sequence: u64, accepted: &Accepted) -> Result<(), StateError> {
        self.sequence = sequence;
        let (cleared, mut removed, mut place) = (self.cleared, Vec::new(), 0);
        let mut outcome = Ok(());
        for change in &accepted.edit.changes {
            outcome = self.change(sequence, accepted, change, &mut place, &mut removed);
            if outcome.is_err() {
                break;
            }
        }
        if self.filters.len() > MAX_FILTERS || self.bytes > MAX_TEXT_BYTES {
            outcome = Err(StateError::TooMany);
        }
        if outcome.is_err() {
            for place in 0..place {
                self.remove(FilterId { sequence, place });
            }
            let before = removed.into_iter().filter(|filter| filter.id.sequence != sequence);
            before.for_each(|filter| self.insert(filter));
            self.cleared = cleared;
        }
        outcome
    }

    /// Applies one change; keeps what it removes in `removed`.
    fn change(
        &mut self,
        sequence: u64,
        accepted: &Accepted,
        change: &Change,
        place: &mut u32,
        removed: &mut Vec<Filter>,
    ) -> Result<(), StateError> {
        let only = &accepted.edit.only;
        match change {
            Change::Clear => {
                let gone = self.filters.values().filter(|it| only.is_empty() || it.only == *only);
                let gone: Vec<FilterId> = gone.map(|filter| filter.id).collect();
                removed.extend(gone.into_iter().filter_map(|id| self.remove(id)));
                if only.is_empty() {
                    self.cleared = sequence;
                }
            }
            Change::Add { text } => {
                let id = FilterId { sequence, place: *place };
                *place += 1;
                let (text, author) = (text.clone(), accepted.author.clone());
                self.insert(Filter { id, text, only: only.clone(), author });
            }
            Change::Delete { id } => {
                removed.push(self.remove(*id).ok_or(StateError::NoFilter(*id))?);
            }
        }
        Ok(())
    }

    fn insert(&mut self, filter: Filter) {
        self.bytes += filter.text.len();
        if let Some(before) = self.filters.insert(filter.id, filter) {
            self.bytes -= before.text.len();
        }
    }

    fn remove(&mut self, id: FilterId) -> Option<Filter> {
        let filter = self.filters.remove(&id)?;
        self.bytes -= filter.text.len();
        Some(filter)
    }

    /// The filters for a sensor with these labels.
    pub fn for_labels<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a Filter> {
        self.filters.values().filter(|filter| has(labels, &filter.only))
    }
}

/// True if a sensor has all wanted labels.
pub fn has(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The changes that take an edit back.
///
/// # Errors
/// A later edit has removed what it added, or it removed everything that sensors had besides the group's filters.
pub fn undo(
    before: &State,
    edit: &Accepted,
    sequence: u64,
    now: &State,
) -> Result<Vec<Change>, String> {
    let mut after = before.clone();
    after
        .apply(sequence, edit)
        .map_err(|error| format!("edit {sequence} had no effect: {error}"))?;
    if after.cleared != before.cleared {
        return Err(format!(
            "edit {sequence} removed what the sensors had besides the group's filters, which the group does not know"
        ));
    }
    let mut changes = Vec::new();
    for id in after.filters.keys().filter(|id| !before.filters.contains_key(id)) {
        if !now.filters.contains_key(id) {
            return Err(format!(
                "a later edit has removed filter {id}, which edit {sequence} added"
            ));
        }
        changes.push(Change::Delete { id: *id });
    }
    for filter in before.filters.values().filter(|filter| !after.filters.contains_key(&filter.id)) {
        if filter.only != edit.edit.only {
            return Err(format!("filter {} had other labels than edit {sequence}", filter.id));
        }
        changes.push(Change::Add { text: filter.text.clone() });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::{Edit, VERSION};

    fn edit(only: &[(&str, &str)], changes: &[Change]) -> Accepted {
        let only = only.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let (group, changes) = ("edge".to_owned(), changes.to_vec());
        let edit =
            Edit { version: VERSION, group, after: 0, unix_ms: 0, only, changes, undoes: None };
        Accepted { edit, author: "anna".to_owned() }
    }

    fn add(text: &str) -> Change {
        Change::Add { text: text.to_owned() }
    }

    fn texts(state: &State) -> Vec<&str> {
        state.filters.values().map(|filter| &filter.text[..]).collect()
    }

    #[test]
    fn edits_add_remove_and_replace() {
        let mut state = State::default();
        state.apply(3, &edit(&[], &[add("a"), add("b")])).unwrap();
        state.apply(4, &edit(&[("site", "berlin")], &[add("c")])).unwrap();
        assert_eq!(texts(&state), ["a", "b", "c"]);
        let here = Labels::from([("site".to_owned(), "oslo".to_owned())]);
        assert_eq!(state.for_labels(&here).count(), 2);
        let id = "3.1".parse().unwrap();
        state.apply(5, &edit(&[], &[Change::Delete { id }])).unwrap();
        // All or nothing.
        let wrong = edit(&[], &[add("d"), Change::Delete { id }]);
        assert_eq!(state.apply(6, &wrong), Err(StateError::NoFilter(id)));
        assert_eq!((state.sequence, texts(&state)), (6, vec!["a", "c"]));
        state.apply(7, &edit(&[("site", "berlin")], &[Change::Clear, add("e")])).unwrap();
        assert_eq!((state.cleared, texts(&state)), (0, vec!["a", "e"]));
        state.apply(8, &edit(&[], &[Change::Clear, add("f")])).unwrap();
        assert_eq!((state.cleared, texts(&state)), (8, vec!["f"]));
    }

    #[test]
    fn an_undo_takes_back_what_is_untouched() {
        let mut before = State::default();
        before.apply(1, &edit(&[], &[add("a"), add("b")])).unwrap();
        let id = "1".parse().unwrap();
        let second = edit(&[], &[Change::Delete { id }, add("c")]);
        let mut now = before.clone();
        now.apply(2, &second).unwrap();
        let changes = undo(&before, &second, 2, &now).unwrap();
        now.apply(3, &edit(&[], &changes)).unwrap();
        assert_eq!(texts(&now), ["b", "a"]);
        assert!(
            undo(&before, &second, 2, &now).unwrap_err().contains("filter 2, which edit 2 added")
        );
        let all = edit(&[], &[Change::Clear]);
        assert!(undo(&before, &all, 2, &State::default()).is_err());
    }
}
