//! Edits with an author: the log of edits, and edits that take another one back.
//!
//! An undo is planned from the journal, lowered like any edit without a lock, and planned again when the writer is
//! locked: if another edit came in between, it starts anew.

use super::{FilterSet, Listed, lock};
use crate::error::{FilterError, GroupError};
use crate::journal::{
    Author, Entry, InForce, Journal, Label, MAX_LIFETIME, MAX_NAME_CHARS, Reversal, UndoError,
};
use crate::texts::{Change, Resolved};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

/// Most changes of an edit that a view of the log lists.
const LISTED_CHANGES: usize = 20;
/// Number of times that an undo is planned anew because of edits in between.
const UNDO_TRIES: usize = 8;
/// Number of new texts from which equal ones are searched by hash.
const MANY: usize = 16;

/// A group of changes with its author.
///
/// ```
/// # mod fyke { pub(crate) use {fyke_filter as filter, fyke_filters as filters}; }
/// use fyke::filter::Options;
/// use fyke::filters::{Author, Change, Edit, FilterSet, Label};
///
/// let filters = FilterSet::new(Options::default());
/// filters.set("tcp")?;
/// let author = Author::Client { uid: 0, pid: 7, program: None };
/// let labels = [Label { name: Some("voip".into()), ..Label::default() }];
/// let changes = [Change::Add("udp port 5060")];
/// let edited = filters.edit_as(&Edit { changes: &changes, labels: &labels, author: author.clone() })?;
/// assert_eq!((edited.epoch, &edited.ids[..]), (2, &[Some(2)][..]));
/// filters.undo(None, author)?;
/// assert_eq!(filters.len(), 1);
/// assert_eq!(filters.log(10).records.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Edit<'a> {
    /// The changes.
    pub changes: &'a [Change<'a>],
    /// Labels of the filters that the changes add, one for each change; those that are missing have none.
    pub labels: &'a [Label],
    /// The author.
    pub author: Author,
}

impl<'a> Edit<'a> {
    /// Changes by the program itself, without labels.
    pub fn of(changes: &'a [Change<'a>]) -> Edit<'a> {
        Edit { changes, labels: &[], author: Author::Program }
    }
}

/// Result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The epoch that it began.
    pub epoch: u64,
    /// The number of each new text, one entry for each change.
    pub ids: Vec<Option<u64>>,
}

/// A group of changes, prepared for the writer.
pub(super) struct Group<'a> {
    pub changes: &'a [Change<'a>],
    labels: Vec<Option<InForce>>,
    pub author: Author,
    /// State of the filters for which the changes are meant.
    condition: Condition<'a>,
}

/// Condition under which a group is applied; otherwise it is planned again.
enum Condition<'a> {
    Always,
    /// The edit with this epoch is taken back by these changes.
    Undo(u64, &'a [Reversal]),
    /// This filter is the only one.
    Only(u64),
}

impl Group<'_> {
    pub fn label(&self, place: usize) -> Option<InForce> {
        self.labels.get(place).cloned().flatten()
    }

    pub fn undoes(&self) -> Option<u64> {
        match self.condition {
            Condition::Undo(epoch, _) => Some(epoch),
            _ => None,
        }
    }

    /// Numbers of the removed texts that an undo brings back.
    pub fn back(&self) -> Vec<u64> {
        match self.condition {
            Condition::Undo(_, plan) => Reversal::back(plan),
            _ => Vec::new(),
        }
    }

    /// True if one of its texts has a limited time.
    pub fn expires(&self) -> bool {
        self.labels.iter().flatten().any(|label| label.deadline.is_some())
    }

    /// Checks the condition, with the writer locked.
    pub fn still_holds(&self, listed: &Listed) -> Result<(), GroupError> {
        let texts = listed.texts.listed();
        let holds = match self.condition {
            Condition::Always => true,
            Condition::Only(id) => texts.len() == 1 && texts.contains_key(&id),
            Condition::Undo(epoch, planned) => {
                let now = listed.journal.reversal(Some(epoch), &self.author, texts.len());
                now.is_ok_and(|(_, now)| now == planned)
            }
        };
        match holds {
            true => Ok(()),
            false => Err(GroupError { place: 0, error: FilterError::Changed }),
        }
    }

    /// Checks that every name belongs to one filter.
    pub fn check_names(&self, listed: &Listed, resolved: &Resolved) -> Result<(), GroupError> {
        if self.labels.iter().flatten().all(|label| label.name.is_none()) {
            return Ok(());
        }
        listed.journal.check_names(resolved, |place| self.label(place))
    }
}

/// Checks name and time of a filter.
pub(crate) fn check(label: &Label) -> Result<(), FilterError> {
    if let Some(name) = &label.name {
        let is_number = name.chars().all(|letter| letter.is_ascii_digit());
        let is_bad = |letter: char| letter.is_whitespace() || letter.is_control();
        let count = name.chars().count();
        if name.is_empty() || is_number || name.starts_with('-') || name.chars().any(is_bad) {
            return Err(FilterError::Name(format!(
                "{name:?} is no name for a filter: a name has no spaces, does not begin with -, and is no number"
            )));
        }
        if count > MAX_NAME_CHARS {
            let message = format!("the name has {count} characters, the limit is {MAX_NAME_CHARS}");
            return Err(FilterError::Name(message));
        }
    }
    match label.lifetime {
        Some(time) if time.is_zero() || time > MAX_LIFETIME => Err(FilterError::Time(format!(
            "the time of a filter is more than 0 and at most {} days",
            MAX_LIFETIME.as_secs() / 86_400
        ))),
        _ => Ok(()),
    }
}

/// The edits so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EditLog {
    /// The latest edits, oldest first.
    pub records: Vec<EditRecord>,
    /// Number of older edits that are no longer kept.
    pub forgotten: u64,
    /// Names of the trackers.
    pub trackers: Option<String>,
}

/// An edit in the log, or a run of edits by trackers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EditRecord {
    /// The epoch that it began; for several, the first.
    pub epoch: u64,
    /// Number of edits.
    pub edits: u64,
    /// Its time; for several, of the last.
    pub at: SystemTime,
    /// Its author.
    pub author: Author,
    /// Frames that the filters which it added have accepted so far.
    pub accepted: u64,
    /// Its first changes.
    pub changes: Vec<RecordedChange>,
    /// Number of further changes.
    pub more_changes: usize,
    /// The epoch of the edit that it took back.
    pub undoes: Option<u64>,
    /// The epoch of the edit that took it back, unless that has been taken back itself.
    pub undone: Option<u64>,
    /// No edit, but a pause (true) or its end (false).
    pub pause: Option<bool>,
    /// Number of calls on passes, if it edited passes by hand.
    pub calls: Option<u64>,
}

/// A change in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedChange {
    /// True for an added filter, false for a removed one.
    pub added: bool,
    /// Its number.
    pub id: u64,
    /// Its text.
    pub text: Arc<str>,
    /// Its name and time.
    pub label: Option<InForce>,
    /// Frames that it has accepted so far, or until it was removed.
    pub accepted: u64,
}

/// The last edits of a journal, with the frames that texts have accepted so far.
pub(crate) fn listed(
    journal: &Journal,
    last: usize,
    now: &HashMap<u64, u64>,
    trackers: Option<String>,
) -> EditLog {
    let latest = journal.entries().skip(journal.entries().len().saturating_sub(last));
    EditLog {
        records: latest.map(|one| record(one, journal.undone(one), now)).collect(),
        forgotten: journal.forgotten(),
        trackers,
    }
}

fn record(entry: &Entry, undone: Option<u64>, now: &HashMap<u64, u64>) -> EditRecord {
    let added = entry.added.iter().map(|added| RecordedChange {
        added: true,
        id: added.id,
        text: Arc::clone(&added.text),
        label: added.label.clone(),
        accepted: match added.gone {
            Some((_, accepted)) => accepted,
            None => now.get(&added.id).copied().unwrap_or_default(),
        },
    });
    let removed = entry.removed.iter().map(|gone| RecordedChange {
        added: false,
        id: gone.id,
        text: Arc::clone(&gone.text),
        label: gone.label.clone(),
        accepted: gone.accepted,
    });
    let all = entry.added.len() + entry.removed.len();
    EditRecord {
        epoch: entry.epoch,
        edits: entry.edits,
        at: entry.at,
        author: entry.author.clone(),
        accepted: added.clone().map(|change| change.accepted).sum(),
        changes: removed.chain(added).take(LISTED_CHANGES).collect(),
        more_changes: all.saturating_sub(LISTED_CHANGES),
        undoes: entry.undoes,
        undone,
        pause: entry.pause,
        calls: entry.calls,
    }
}

impl FilterSet {
    /// Applies a group of changes as one edit of its author, all of it or nothing.
    ///
    /// # Errors
    /// The first change that is refused.
    pub fn edit_as(&self, edit: &Edit<'_>) -> Result<Edited, GroupError> {
        for (place, label) in edit.labels.iter().enumerate() {
            check(label).map_err(GroupError::at(place))?;
            if label.snaplen.is_some() {
                self.check_snap_length(label.snaplen).map_err(GroupError::at(place))?;
            }
        }
        self.shared.edit(&Group {
            changes: edit.changes,
            labels: edit.labels.iter().map(InForce::new).collect(),
            author: edit.author.clone(),
            condition: Condition::Always,
        })
    }

    /// Takes an edit back by a new one: the edit with this epoch or, without one, the last edit of the author's user
    /// that can be taken back. A filter with a time that is over is not added again ([`Self::left_out`]). Returns its
    /// epoch and the result of the new edit.
    ///
    /// # Errors
    /// The edit is not one of a user, or a filter of it has been changed since ([`UndoError`]).
    pub fn undo(&self, epoch: Option<u64>, author: Author) -> Result<(u64, Edited), UndoError> {
        for _ in 0..UNDO_TRIES {
            let (undone, plan) = {
                let listed = lock(&self.shared.listed);
                listed.journal.reversal(epoch, &author, listed.texts.listed().len())?
            };
            let changes: Vec<_> = plan.iter().map(Reversal::change).collect();
            let group = Group {
                changes: &changes,
                labels: plan.iter().map(Reversal::label).collect(),
                author: author.clone(),
                condition: Condition::Undo(undone, &plan),
            };
            match self.shared.edit(&group) {
                Err(GroupError { error: FilterError::Changed, .. }) => {}
                Err(refused) => return Err(UndoError::Refused(refused.error)),
                Ok(edited) => return Ok((undone, edited)),
            }
        }
        Err(UndoError::Refused(FilterError::Changed))
    }

    /// The filters that the undo of this epoch has not added again, because their time was over: numbers and names.
    pub fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)> {
        lock(&self.shared.listed).journal.left_out(undo)
    }

    /// Records in the log that the author has paused the program (true) or ended its pause (false).
    pub fn log_pause(&self, paused: bool, author: Author) {
        let epoch = self.epoch();
        let forgotten = lock(&self.shared.listed).journal.paused(epoch, author, paused);
        // Freed without the lock.
        drop(forgotten);
    }

    /// Removes a filter at the end of its time. The last filter stays, unless every frame was accepted before it came.
    pub(super) fn expire(&self, id: u64) {
        let edit = |changes: &[Change<'_>], condition| {
            let group = Group { changes, labels: Vec::new(), author: Author::Expiry, condition };
            self.shared.edit(&group).map_err(|refused| refused.error)
        };
        // Any other refusal: it has been removed already.
        let refused = edit(&[Change::Remove(id)], Condition::Always);
        let Err(FilterError::LastFilter(_)) = refused else { return };
        let was_unfiltered = lock(&self.shared.listed).journal.was_unfiltered_before(id);
        if !was_unfiltered {
            lock(&self.shared.listed).journal.keep(id);
        } else if let Err(error) = edit(&[Change::Set("")], Condition::Only(id))
            && !matches!(error, FilterError::Changed | FilterError::Space(_))
        {
            lock(&self.shared.listed).journal.keep(id);
        }
    }

    /// The last edits, at most `last`, with the frames that their filters have accepted so far.
    pub fn log(&self, last: usize) -> EditLog {
        let now: HashMap<u64, u64> =
            self.counts().into_iter().map(|count| (count.id, count.accepted)).collect();
        let state = lock(&self.shared.listed);
        let trackers = (!state.trackers.is_empty())
            .then(|| state.trackers.iter().cloned().collect::<Vec<_>>().join(", "));
        listed(&state.journal, last, &now, trackers)
    }

    /// The edits after an epoch, oldest first, at most `last`, without counts of frames; a run of edits by trackers is
    /// one. `None` if another thread edits at this moment and `waits` is false.
    pub fn edits_after(&self, epoch: u64, last: usize, waits: bool) -> Option<Vec<EditRecord>> {
        let listed = match waits {
            true => lock(&self.shared.listed),
            false => self.shared.listed.try_lock().ok()?,
        };
        let later = listed.journal.entries().rev().take_while(|one| one.last_epoch > epoch);
        let none = HashMap::new();
        let mut found: Vec<_> = later.take(last).map(|one| record(one, None, &none)).collect();
        found.reverse();
        Some(found)
    }

    /// Names and times of the filters that have some, by number.
    pub fn labels(&self) -> BTreeMap<u64, InForce> {
        lock(&self.shared.listed).journal.labels().clone()
    }

    /// For each of these filters with the text of an older filter: both numbers.
    pub fn same_texts(&self, ids: &[u64]) -> Vec<(u64, u64)> {
        let listed = lock(&self.shared.listed);
        let texts = listed.texts.listed();
        if ids.len() < MANY {
            let same = |&id: &u64| {
                let text = texts.get(&id)?.trim();
                let older = texts.range(..id);
                let is_same = |other: &str| other.len() >= text.len() && other.trim() == text;
                older.into_iter().find(|(_, other)| is_same(other)).map(|(&other, _)| (id, other))
            };
            return ids.iter().filter_map(same).collect();
        }
        let new: BTreeSet<u64> = ids.iter().copied().collect();
        let mut first: HashMap<&str, u64> = HashMap::with_capacity(texts.len());
        let mut same = Vec::new();
        for (&id, text) in texts {
            match first.get(text.trim()) {
                Some(&older) if new.contains(&id) => same.push((id, older)),
                Some(_) => {}
                None => drop(first.insert(text.trim(), id)),
            }
        }
        same
    }
}
