//! The journal of edits: the author, time, epoch and texts of each, so that it can be taken back.
//!
//! Invariants: entries have rising epochs, and the texts that they add have rising numbers, so both are found by
//! search. Edits by trackers that follow each other are one entry. The journal keeps the last [`MAX_ENTRIES`]
//! entries, and fewer if their texts are longer than [`MAX_BYTES`]; the last entry always stays. Cost: O(change) for an
//! edit, O(1) for one by a tracker.

use crate::error::{FilterError, GroupError};
use crate::texts::{Change, Removed, Resolved};
use fyke_privilege::user::learned_name;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Most entries.
const MAX_ENTRIES: usize = 1_000;
/// Most bytes of the texts in all entries.
const MAX_BYTES: usize = 64 << 20;
/// Most characters of the name of a filter.
pub const MAX_NAME_CHARS: usize = 64;
/// Longest time of a filter with a limited time: a year.
pub const MAX_LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);

/// Author of an edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Author {
    /// The program itself: the filter that it started with, or an edit of its graph.
    #[default]
    Program,
    /// A client of the control socket.
    Client {
        /// Its user.
        uid: u32,
        /// Its process; 0 if it is not known.
        pid: u32,
        /// Its program, as the client names it.
        program: Option<Arc<str>>,
    },
    /// `fyke resume`: the filters of a killed capture are in force again.
    Resumed,
    /// Trackers, with passes of their own.
    Tracker,
    /// The end of a filter's time.
    Expiry,
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Author::Program => f.write_str("the program itself"),
            Author::Resumed => f.write_str("fyke resume"),
            Author::Tracker => f.write_str("a tracker"),
            Author::Expiry => f.write_str("the end of its time"),
            Author::Client { uid, pid, program } => {
                match (uid, learned_name(*uid)) {
                    (0, _) => f.write_str("root")?,
                    (uid, Some(name)) => write!(f, "{name}, user {uid}")?,
                    (uid, None) => write!(f, "user {uid}")?,
                }
                match (program, pid) {
                    (Some(program), 0) => write!(f, " ({program})"),
                    (Some(program), pid) => write!(f, " ({program}, process {pid})"),
                    (None, 0) => Ok(()),
                    (None, pid) => write!(f, " (process {pid})"),
                }
            }
        }
    }
}

/// Name and time of a filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// Its name, which no other filter in force has.
    pub name: Option<Arc<str>>,
    /// Time after which it is removed.
    pub lifetime: Option<Duration>,
    /// Bytes of its frames that outputs write, from 1; [`FilterSet::allow_snap_lengths`](crate::FilterSet) first.
    pub snaplen: Option<u32>,
}

/// The label of a filter in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Time of its removal.
    pub expires: Option<SystemTime>,
    /// Bytes of its frames that outputs write.
    pub snaplen: Option<u32>,
    /// The same as `expires` on a clock that is never set.
    pub(crate) deadline: Option<Instant>,
}

impl InForce {
    pub(crate) fn new(label: &Label) -> Option<InForce> {
        let Label { name, lifetime, snaplen } = label;
        let expires = lifetime.and_then(|time| SystemTime::now().checked_add(time));
        let deadline = lifetime.and_then(|time| Instant::now().checked_add(time));
        let is_set = name.is_some() || lifetime.is_some() || snaplen.is_some();
        is_set.then(|| InForce { name: name.clone(), expires, snaplen: *snaplen, deadline })
    }
}

/// Reason why an edit is not taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// There is nothing that could be taken back.
    #[error("the log has no edit of this user that can be taken back")]
    Nothing,
    /// No entry has this epoch.
    #[error("no edit began epoch {given}; the log has {known}")]
    NoSuchEpoch {
        /// The epoch given.
        given: u64,
        /// The epochs of the log.
        known: String,
    },
    /// Only edits of clients are taken back.
    #[error("epoch {epoch} is an edit by {by}; only edits of users can be taken back")]
    NotOfUser {
        /// The epoch given.
        epoch: u64,
        /// Its author.
        by: Author,
    },
    /// An edit of single passes is not taken back.
    #[error("epoch {epoch} edited passes by hand; only edits of filters can be taken back")]
    ByHand {
        /// The epoch given.
        epoch: u64,
    },
    /// It has been taken back already.
    #[error("epoch {epoch} has been taken back already, in epoch {since} by {by}")]
    Undone {
        /// The epoch given.
        epoch: u64,
        /// The epoch that took it back.
        since: u64,
        /// The author of that edit.
        by: Author,
    },
    /// A filter that it added has been removed since.
    #[error("filter {id} of epoch {epoch} has been removed since, in epoch {since} by {by}")]
    Touched {
        /// The epoch given.
        epoch: u64,
        /// Number of the filter.
        id: u64,
        /// The epoch that removed it.
        since: u64,
        /// The author of that edit.
        by: Author,
    },
    /// It only removed filters with a time that is over, or no other filter would remain.
    #[error("epoch {epoch} is not taken back: the time of the filters that it removed is over")]
    Over {
        /// The epoch given.
        epoch: u64,
    },
    /// The edit that would take it back is refused.
    #[error(transparent)]
    Refused(#[from] FilterError),
}

/// An entry of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub epoch: u64,
    pub last_epoch: u64,
    pub edits: u64,
    pub at: SystemTime,
    pub author: Author,
    pub added: Vec<Added>,
    pub removed: Vec<Gone>,
    pub undoes: Option<u64>,
    pub undone: Option<u64>,
    /// Numbers of the removed texts that it brings back, in the order of `added`; for an undo.
    back: Vec<u64>,
    /// No edit, but a pause (true) or its end (false).
    pub pause: Option<bool>,
    /// Number of calls on passes, if it edited passes by hand.
    pub calls: Option<u64>,
    /// True if no text was in force before.
    was_unfiltered: bool,
}

/// A text that an edit added.
#[derive(Debug, Clone)]
pub(crate) struct Added {
    pub id: u64,
    pub text: Arc<str>,
    pub label: Option<InForce>,
    /// The epoch that removed it, and the frames that it had accepted then.
    pub gone: Option<(u64, u64)>,
    /// The number with which an undo has brought it back; larger than its own.
    back: Option<u64>,
}

/// A text that an edit removed, with the frames that it had accepted.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    pub id: u64,
    pub text: Arc<str>,
    pub label: Option<InForce>,
    pub accepted: u64,
}

impl Entry {
    /// An entry without texts of this moment.
    fn new(epoch: u64, author: Author) -> Entry {
        Entry {
            epoch,
            last_epoch: epoch,
            edits: 1,
            at: SystemTime::now(),
            author,
            added: Vec::new(),
            removed: Vec::new(),
            undoes: None,
            undone: None,
            back: Vec::new(),
            pause: None,
            calls: None,
            was_unfiltered: false,
        }
    }

    fn bytes(&self) -> usize {
        let added = self.added.iter().map(|one| one.text.len());
        added.chain(self.removed.iter().map(|one| one.text.len())).sum()
    }
}

/// An edit that is being applied, for [`Journal::record`].
pub(crate) struct Applied<'a> {
    pub epoch: u64,
    pub author: &'a Author,
    pub undoes: Option<u64>,
    /// Numbers of the removed texts that an undo brings back, in the order of `added`.
    pub back: Vec<u64>,
    pub was_unfiltered: bool,
    pub added: Vec<(u64, Arc<str>, Option<InForce>)>,
    pub removed: Vec<(u64, Arc<str>, u64)>,
}

/// A change that takes a part of an edit back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reversal {
    Remove(u64),
    /// A removed text, with the number that it had.
    Add(u64, Arc<str>, Option<InForce>),
    /// No text is in force any more.
    Clear,
}

impl Reversal {
    pub fn change(&self) -> Change<'_> {
        match self {
            Reversal::Remove(id) => Change::Remove(*id),
            Reversal::Add(_, text, _) => Change::Add(text),
            Reversal::Clear => Change::Set(""),
        }
    }

    pub fn label(&self) -> Option<InForce> {
        match self {
            Reversal::Add(_, _, label) => label.clone(),
            _ => None,
        }
    }

    /// The numbers that texts had which come back.
    pub fn back(plan: &[Reversal]) -> Vec<u64> {
        let id = |one: &Reversal| match one {
            Reversal::Add(id, ..) => Some(*id),
            _ => None,
        };
        plan.iter().filter_map(id).collect()
    }
}

/// The edits so far, and the labels of the texts in force.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: VecDeque<Entry>,
    bytes: usize,
    forgotten: u64,
    labels: BTreeMap<u64, InForce>,
    /// The texts in force that have a name.
    names: HashMap<Arc<str>, u64>,
    /// Epochs of the entries that added texts, by the number of their first text.
    first_ids: BTreeMap<u64, u64>,
}

impl Journal {
    /// Records an edit. Returns the entries that are no longer kept, so that the caller can drop them without a lock.
    pub fn record(&mut self, applied: Applied<'_>) -> Vec<Entry> {
        let epoch = applied.epoch;
        let mut removed = Vec::with_capacity(applied.removed.len());
        for (id, text, accepted) in applied.removed {
            if let Some(added) = self.added_mut(id) {
                added.gone = Some((epoch, accepted));
            }
            let label = self.labels.remove(&id);
            if let Some(name) = label.as_ref().and_then(|label| label.name.as_ref()) {
                self.names.remove(name);
            }
            removed.push(Gone { id, text, label, accepted });
        }
        let added = applied.added.into_iter().map(|(id, text, label)| {
            if let Some(label) = &label {
                self.names.extend(label.name.clone().map(|name| (name, id)));
                self.labels.insert(id, label.clone());
            }
            Added { id, text, label, gone: None, back: None }
        });
        let added: Vec<_> = added.collect();
        if let Some(place) = applied.undoes.and_then(|undone| self.place(undone)) {
            self.entries[place].undone = Some(epoch);
            for (old, new) in applied.back.iter().zip(&added) {
                let last = self.last_of(*old);
                if let Some(last) = last.and_then(|last| self.added_mut(last)) {
                    last.back = Some(new.id);
                }
            }
        }
        self.push(Entry {
            added,
            removed,
            undoes: applied.undoes,
            back: applied.back,
            was_unfiltered: applied.was_unfiltered,
            ..Entry::new(epoch, applied.author.clone())
        })
    }

    /// Records a pause, or its end.
    pub fn paused(&mut self, epoch: u64, author: Author, paused: bool) -> Vec<Entry> {
        self.push(Entry { pause: Some(paused), edits: 0, ..Entry::new(epoch, author) })
    }

    /// Records an edit of passes by hand.
    pub fn by_hand(&mut self, epoch: u64, author: Author, calls: u64) -> Vec<Entry> {
        self.push(Entry { calls: Some(calls), ..Entry::new(epoch, author) })
    }

    /// Records an edit by a tracker.
    pub fn tracked(&mut self, epoch: u64) -> Vec<Entry> {
        match self.entries.back_mut() {
            Some(last) if last.author == Author::Tracker => {
                (last.last_epoch, last.at) = (epoch, SystemTime::now());
                last.edits += 1;
                Vec::new()
            }
            _ => self.push(Entry::new(epoch, Author::Tracker)),
        }
    }

    fn push(&mut self, entry: Entry) -> Vec<Entry> {
        self.bytes += entry.bytes();
        self.first_ids.extend(entry.added.first().map(|added| (added.id, entry.epoch)));
        self.entries.push_back(entry);
        let mut gone = Vec::new();
        while self.entries.len() > MAX_ENTRIES || (self.bytes > MAX_BYTES && self.entries.len() > 1)
        {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            oldest.added.first().map(|added| self.first_ids.remove(&added.id));
            self.forgotten += oldest.edits;
            gone.push(oldest);
        }
        gone
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Number of edits that are no longer kept.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The labels of the texts in force.
    pub fn labels(&self) -> &BTreeMap<u64, InForce> {
        &self.labels
    }

    /// Checks that every name belongs to one text after an edit; `label` has the label of each change.
    pub fn check_names(
        &self,
        resolved: &Resolved,
        label: impl Fn(usize) -> Option<InForce>,
    ) -> Result<(), GroupError> {
        let stays = |id: &u64| match &resolved.removed {
            Removed::Some(removed) => !removed.contains(id),
            Removed::All => false,
        };
        let mut added = HashMap::new();
        for &(id, place) in &resolved.added {
            let Some(name) = label(place).and_then(|label| label.name) else { continue };
            let other = self.names.get(&name).copied().filter(stays);
            if let Some(other) = other.or_else(|| added.get(&name).copied()) {
                let error = FilterError::Name(format!(
                    "filter {other} has the name {name:?} already; remove it first, or take another name"
                ));
                return Err(GroupError { place, error });
            }
            added.insert(name, id);
        }
        Ok(())
    }

    /// The texts at the end of their time.
    pub fn expired(&self, now: Instant) -> Vec<u64> {
        let over = |label: &InForce| label.deadline.is_some_and(|deadline| deadline <= now);
        self.labels.iter().filter(|(_, label)| over(label)).map(|(id, _)| *id).collect()
    }

    /// Lets a text stay after the end of its time.
    pub fn keep(&mut self, id: u64) {
        if let Some(label) = self.labels.get_mut(&id) {
            (label.expires, label.deadline) = (None, None);
        }
    }

    fn place(&self, epoch: u64) -> Option<usize> {
        let at = self.entries.partition_point(|entry| entry.last_epoch < epoch);
        let is_edit = |entry: &&Entry| entry.epoch <= epoch && entry.pause.is_none();
        self.entries.get(at).filter(is_edit).map(|_| at)
    }

    fn author(&self, epoch: u64) -> Author {
        self.place(epoch).map(|at| self.entries[at].author.clone()).unwrap_or_default()
    }

    /// The places of the entry that added the text with this number, and of the text in it.
    fn added_at(&self, id: u64) -> Option<(usize, usize)> {
        let (_, &epoch) = self.first_ids.range(..=id).next_back()?;
        let place = self.place(epoch)?;
        let at = self.entries[place].added.binary_search_by_key(&id, |added| added.id).ok()?;
        Some((place, at))
    }

    fn added_mut(&mut self, id: u64) -> Option<&mut Added> {
        let (place, at) = self.added_at(id)?;
        Some(&mut self.entries[place].added[at])
    }

    /// The last number of a text that undos have brought back, or its own.
    fn last_of(&self, mut id: u64) -> Option<u64> {
        loop {
            let (place, at) = self.added_at(id)?;
            match self.entries[place].added[at].back {
                Some(back) => id = back,
                None => return Some(id),
            }
        }
    }

    /// The number with which a text of an entry is in force, or the epoch that removed it.
    fn in_force(&self, added: &Added) -> Result<u64, u64> {
        let (Some((epoch, _)), Some(back)) = (added.gone, added.back) else {
            return added.gone.map_or(Ok(added.id), |(epoch, _)| Err(epoch));
        };
        let last = self.last_of(back).and_then(|last| self.added_at(last)).ok_or(epoch)?;
        let last = &self.entries[last.0].added[last.1];
        last.gone.map_or(Ok(last.id), |(epoch, _)| Err(epoch))
    }

    /// The epoch that took an entry back, unless that edit has been taken back itself.
    pub fn undone(&self, entry: &Entry) -> Option<u64> {
        let undone = entry.undone?;
        let (mut last, mut is_undone) = (undone, true);
        while let Some(next) = self.place(last).and_then(|place| self.entries[place].undone) {
            (last, is_undone) = (next, !is_undone);
        }
        is_undone.then_some(undone)
    }

    /// The texts that an undo has not brought back because their time was over: numbers and names.
    pub fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)> {
        let Some(undo) = self.place(undo).map(|place| &self.entries[place]) else {
            return Vec::new();
        };
        let undone = undo.undoes.and_then(|epoch| self.place(epoch));
        let removed = undone.map(|place| self.entries[place].removed.as_slice());
        let gone = removed.unwrap_or_default().iter();
        let name = |gone: &Gone| gone.label.as_ref().and_then(|label| label.name.clone());
        let gone = gone.filter(|gone| gone.label.is_some() && !undo.back.contains(&gone.id));
        gone.map(|gone| (gone.id, name(gone))).collect()
    }

    /// True if no text was in force before the edit that added this one.
    pub fn was_unfiltered_before(&self, id: u64) -> bool {
        let epoch = self.first_ids.range(..=id).next_back().map(|(_, epoch)| *epoch);
        let place = epoch.and_then(|epoch| self.place(epoch));
        place.is_some_and(|place| self.entries[place].was_unfiltered)
    }

    /// The changes that take an edit back, and its epoch: the given one, or the last of this user that can be taken
    /// back. `in_force` is the number of texts.
    pub fn reversal(
        &self,
        given: Option<u64>,
        user: &Author,
        in_force: usize,
    ) -> Result<(u64, Vec<Reversal>), UndoError> {
        if let Some(epoch) = given {
            let place = self.place(epoch).ok_or_else(|| self.no_such(epoch))?;
            return self.reversal_of(&self.entries[place], in_force);
        }
        // The reason of the last one tells more than that there is none.
        let mut refusal = None;
        for entry in self.entries.iter().rev() {
            let is_edit = entry.pause.is_none() && entry.calls.is_none() && entry.undoes.is_none();
            if !is_edit || !same_user(&entry.author, user) || self.undone(entry).is_some() {
                continue;
            }
            match self.reversal_of(entry, in_force) {
                Ok(reversal) => return Ok(reversal),
                Err(refused) => drop(refusal.get_or_insert(refused)),
            }
        }
        Err(refusal.unwrap_or(UndoError::Nothing))
    }

    fn reversal_of(
        &self,
        entry: &Entry,
        in_force: usize,
    ) -> Result<(u64, Vec<Reversal>), UndoError> {
        let epoch = entry.epoch;
        if !matches!(entry.author, Author::Client { .. }) {
            return Err(UndoError::NotOfUser { epoch, by: entry.author.clone() });
        }
        if entry.calls.is_some() {
            return Err(UndoError::ByHand { epoch });
        }
        if let Some(since) = self.undone(entry) {
            return Err(UndoError::Undone { epoch, since, by: self.author(since) });
        }
        let mut ids = Vec::with_capacity(entry.added.len());
        for added in &entry.added {
            match self.in_force(added) {
                Ok(id) => ids.push(id),
                Err(since) => {
                    let (id, by) = (added.id, self.author(since));
                    return Err(UndoError::Touched { epoch, id, since, by });
                }
            }
        }
        let others = in_force > ids.len();
        let reversals = reversals(entry, ids, in_force);
        let only_removes = reversals.iter().all(|one| matches!(one, Reversal::Remove(_)));
        let is_over = reversals.is_empty() || (only_removes && !others);
        match is_over && !entry.removed.is_empty() {
            true => Err(UndoError::Over { epoch }),
            false => Ok((epoch, reversals)),
        }
    }

    fn no_such(&self, given: u64) -> UndoError {
        let ends = self.entries.front().zip(self.entries.back());
        let known = ends.map_or("no edit".to_owned(), |(first, last)| {
            format!("epochs {} to {}", first.epoch, last.last_epoch)
        });
        UndoError::NoSuchEpoch { given, known }
    }
}

/// The texts that come back go in first, so that the set never has none in between; those with a time that is over stay
/// away. Without any text left, every frame is accepted again if it was before the edit.
fn reversals(entry: &Entry, added: Vec<u64>, in_force: usize) -> Vec<Reversal> {
    if entry.was_unfiltered && in_force <= added.len() {
        return vec![Reversal::Clear];
    }
    let now = Instant::now();
    let back = entry.removed.iter().filter(|gone| {
        let deadline = gone.label.as_ref().and_then(|label| label.deadline);
        deadline.is_none_or(|deadline| deadline > now)
    });
    let back = back.map(|gone| Reversal::Add(gone.id, Arc::clone(&gone.text), gone.label.clone()));
    back.chain(added.into_iter().map(Reversal::Remove)).collect()
}

/// True if both are clients of the same user.
fn same_user(one: &Author, other: &Author) -> bool {
    match (one, other) {
        (Author::Client { uid: one, .. }, Author::Client { uid: other, .. }) => one == other,
        _ => false,
    }
}
