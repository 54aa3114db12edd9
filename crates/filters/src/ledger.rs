//! The log of edits for texts that are no [`FilterSet`](crate::FilterSet): graphs, the expressions of a demultiplexer,
//! filters in the kernel.
//!
//! The [`Ledger`] owns the list of the texts with their numbers, names and times, and the journal of edits. A program
//! with such texts ([`Logged`]) only puts a planned edit into force, or refuses it. One edit is made at a time; views
//! of the log wait for none. [`Edits`] is what clients use, for filter sets as well.

use crate::error::{FilterError, GroupError};
use crate::journal::{Applied, Author, InForce, Journal, Reversal, UndoError};
use crate::texts::{Change, Resolved, Texts};
use crate::user::edits::{self, Edit, EditLog, Edited};
use crate::user::{CallsRefused, FilterSet, HandCalls, NO_CUTS};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Interval between two looks at the times of texts.
const PAUSE: Duration = Duration::from_millis(50);

/// Texts in force that clients edit, with a log.
pub trait Edits {
    /// Applies a group of changes as one edit of its author, all of it or nothing.
    ///
    /// # Errors
    /// The first change that is refused.
    fn edit_as(&self, edit: &Edit<'_>) -> Result<Edited, GroupError>;

    /// Takes an edit back by a new one, as [`FilterSet::undo`] does.
    ///
    /// # Errors
    /// The edit is not one of a user, or a text of it has been changed since.
    fn undo(&self, epoch: Option<u64>, author: Author) -> Result<(u64, Edited), UndoError>;

    /// The texts that the undo of this epoch has not added again, because their time was over: numbers and names.
    fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)>;

    /// The last edits, at most `last`.
    fn log(&self, last: usize) -> EditLog;

    /// Records a pause of the program (true), or its end (false).
    fn log_pause(&self, paused: bool, author: Author);

    /// Remarks on an edit that added these texts.
    fn remarks(&self, ids: &[u64]) -> Vec<String>;

    /// Edits passes one by one: those of a node, or the only ones. Returns the epoch of the edit and the passes that it
    /// has made; `None` if all passes are those of texts.
    ///
    /// # Errors
    /// There is no such node, or there are several; or a call is refused.
    fn edit_passes(
        &self,
        _node: Option<&str>,
        _calls: &mut HandCalls<'_>,
    ) -> Option<Result<(u64, Vec<u64>), CallsRefused>> {
        None
    }
}

impl Edits for FilterSet {
    fn edit_as(&self, edit: &Edit<'_>) -> Result<Edited, GroupError> {
        FilterSet::edit_as(self, edit)
    }

    fn undo(&self, epoch: Option<u64>, author: Author) -> Result<(u64, Edited), UndoError> {
        FilterSet::undo(self, epoch, author)
    }

    fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)> {
        FilterSet::left_out(self, undo)
    }

    fn log(&self, last: usize) -> EditLog {
        FilterSet::log(self, last)
    }

    fn log_pause(&self, paused: bool, author: Author) {
        FilterSet::log_pause(self, paused, author);
    }

    fn remarks(&self, ids: &[u64]) -> Vec<String> {
        let same = self.same_texts(ids).into_iter().map(|(id, older)| {
            format!("filter {id} has the same text as filter {older}, which counts its frames")
        });
        self.notes(ids).into_iter().chain(same).chain(self.remarks_below()).collect()
    }

    fn edit_passes(
        &self,
        node: Option<&str>,
        calls: &mut HandCalls<'_>,
    ) -> Option<Result<(u64, Vec<u64>), CallsRefused>> {
        Some(only(node).and_then(|()| self.edit_by_calls(calls)))
    }
}

/// Refuses the name of a node where there is one filter.
fn only(node: Option<&str>) -> Result<(), CallsRefused> {
    node.map_or(Ok(()), |name| {
        let message = format!("node {name:?}: this fyke has one filter; name no node");
        Err(CallsRefused::Whole(message))
    })
}

/// A program with texts; a [`Ledger`] logs their edits.
pub trait Logged: Send + Sync {
    /// Its ledger.
    fn ledger(&self) -> &Ledger;

    /// Puts an edit into force, all of it or nothing. Returns the frames that each removed text has accepted until
    /// then, by its number.
    ///
    /// # Errors
    /// The first change that is refused.
    fn put(&self, edit: &Planned<'_>) -> Result<HashMap<u64, u64>, GroupError>;

    /// Frames that each text has accepted, by its number.
    fn accepted(&self) -> HashMap<u64, u64>;

    /// Number of edits in force.
    fn epoch(&self) -> u64;

    /// True if every frame is accepted because there is no text.
    fn accepts_all(&self) -> bool {
        false
    }

    /// Remarks on the last edit.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Edits passes one by one, as [`Edits::edit_passes`] does; the ledger records it. No text is edited meanwhile.
    ///
    /// # Errors
    /// There is no such node, or there are several; or a call is refused.
    fn edit_passes(
        &self,
        _node: Option<&str>,
        _calls: &mut HandCalls<'_>,
    ) -> Option<Result<Vec<u64>, CallsRefused>> {
        None
    }
}

/// An edit that is to be put into force.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The changes.
    pub changes: &'a [Change<'a>],
    /// True if it takes another edit back, so that texts come back.
    pub undoes: bool,
    ledger: &'a Ledger,
    resolved: &'a Resolved,
}

impl Planned<'_> {
    /// True if it removes texts.
    pub fn removes(&self) -> bool {
        self.changes.iter().any(|change| !matches!(change, Change::Add(_)))
    }

    /// The texts after the edit, by number.
    pub fn after(&self) -> BTreeMap<u64, Arc<str>> {
        let mut texts = self.ledger.texts();
        self.resolved.removed.take_from(&mut texts);
        for &(id, place) in &self.resolved.added {
            texts.extend(self.changes[place].text().map(|text| (id, text.into())));
        }
        texts
    }
}

/// The texts of a program, and the log of their edits.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Held while an edit is made.
    editing: Mutex<()>,
    state: Mutex<State>,
    owner: OnceLock<Owner>,
    /// True while a thread removes texts at the end of their time.
    expires: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    texts: Texts,
    journal: Journal,
}

/// The program, for the thread that removes texts.
struct Owner(Weak<dyn Logged>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Owner").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves no partial entry: entries are recorded by plain stores.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// A ledger with the texts that a program starts with, which get the numbers from 1; the start is its first entry.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, epoch: u64) -> Ledger {
        let texts: Vec<_> = texts.into_iter().map(Change::Add).collect();
        let ledger = Ledger::default();
        let mut state = lock(&ledger.state);
        // Adding is never refused.
        if let Ok(resolved) = state.texts.resolve(&texts, true)
            && !texts.is_empty()
        {
            let entry = Applied {
                epoch,
                author: &Author::Program,
                undoes: None,
                back: Vec::new(),
                was_unfiltered: false,
                added: added(&resolved, &texts, &[]),
                removed: Vec::new(),
            };
            state.journal.record(entry);
            state.texts.apply(&resolved, &texts);
        }
        drop(state);
        ledger
    }

    /// Names the program that owns this ledger; without it, no text has a limited time.
    pub fn belongs_to(&self, owner: Weak<dyn Logged>) {
        let _first_only = self.owner.set(Owner(owner));
    }

    /// The texts in force, by number.
    pub fn texts(&self) -> BTreeMap<u64, Arc<str>> {
        lock(&self.state).texts.listed().clone()
    }

    /// Names and times of the texts that have some, by number.
    pub fn labels(&self) -> BTreeMap<u64, InForce> {
        lock(&self.state).journal.labels().clone()
    }

    /// Makes an edit; the caller holds `editing`.
    fn make(&self, owner: &dyn Logged, group: &Group<'_>) -> Result<Edited, GroupError> {
        let changes = group.changes;
        if changes.is_empty() {
            return Ok(Edited { epoch: owner.epoch(), ids: Vec::new() });
        }
        let (resolved, removed) = {
            let state = lock(&self.state);
            // The owner itself refuses to remove the last text.
            let resolved = state.texts.resolve(changes, true)?;
            let named = group.labels.iter().flatten().any(|label| label.name.is_some());
            if named {
                state.journal.check_names(&resolved, |place| group.label(place))?;
            }
            let gone = resolved.removed.entries(state.texts.listed());
            (resolved, gone)
        };
        let was_unfiltered = owner.accepts_all();
        // Only edits change the texts, and this is the one that is made.
        let undoes = group.undoes.is_some();
        let accepted =
            owner.put(&Planned { changes, undoes, ledger: self, resolved: &resolved })?;
        let mut state = lock(&self.state);
        let count = |(id, text)| (id, text, accepted.get(&id).copied().unwrap_or_default());
        let epoch = owner.epoch();
        let forgotten = state.journal.record(Applied {
            epoch,
            author: &group.author,
            undoes: group.undoes,
            back: group.back.clone(),
            was_unfiltered,
            added: added(&resolved, changes, &group.labels),
            removed: removed.into_iter().map(count).collect(),
        });
        let gone = state.texts.apply(&resolved, changes);
        drop(state);
        // Freed without the lock.
        drop((forgotten, gone));
        if group.labels.iter().flatten().any(|label| label.deadline.is_some()) {
            self.expire_later();
        }
        Ok(Edited { epoch, ids: resolved.ids })
    }

    /// Starts the thread that removes texts, if there is none.
    fn expire_later(&self) {
        let Some(Owner(owner)) = self.owner.get() else { return };
        if self.expires.swap(true, Ordering::AcqRel) {
            return;
        }
        let owner = owner.clone();
        let run = move || {
            loop {
                std::thread::sleep(PAUSE);
                let Some(owner) = owner.upgrade() else { return };
                if !owner.ledger().expire(&*owner) {
                    return;
                }
            }
        };
        if std::thread::Builder::new().name("fyke-expiry".into()).spawn(run).is_err() {
            // The next text with a limited time tries again.
            self.expires.store(false, Ordering::Release);
        }
    }

    /// Removes the texts at the end of their time. Returns false if no text has a time any more.
    fn expire(&self, owner: &dyn Logged) -> bool {
        let due = lock(&self.state).journal.expired(Instant::now());
        for id in due {
            let _one = lock(&self.editing);
            let change = [Change::Remove(id)];
            let removed = self.make(owner, &Group::by(Author::Expiry, &change));
            // The last text: every frame is accepted again if it was before; else it stays.
            let was_unfiltered = || lock(&self.state).journal.was_unfiltered_before(id);
            let last = removed.is_err() && lock(&self.state).texts.listed().contains_key(&id);
            let clear = [Change::Set("")];
            let cleared = || self.make(owner, &Group::by(Author::Expiry, &clear)).is_ok();
            if last && !(was_unfiltered() && cleared()) {
                lock(&self.state).journal.keep(id);
            }
        }
        let has_timed =
            || lock(&self.state).journal.labels().values().any(|label| label.deadline.is_some());
        if has_timed() {
            return true;
        }
        self.expires.store(false, Ordering::Release);
        // One may have come after the look.
        has_timed() && !self.expires.swap(true, Ordering::AcqRel)
    }
}

/// A group of changes with its labels and author.
struct Group<'a> {
    changes: &'a [Change<'a>],
    labels: Vec<Option<InForce>>,
    author: Author,
    undoes: Option<u64>,
    /// Numbers of the removed texts that an undo brings back.
    back: Vec<u64>,
}

impl<'a> Group<'a> {
    fn by(author: Author, changes: &'a [Change<'a>]) -> Group<'a> {
        Group { changes, labels: Vec::new(), author, undoes: None, back: Vec::new() }
    }

    fn label(&self, place: usize) -> Option<InForce> {
        self.labels.get(place).cloned().flatten()
    }
}

/// The new texts of an edit with their labels.
fn added(
    resolved: &Resolved,
    changes: &[Change<'_>],
    labels: &[Option<InForce>],
) -> Vec<(u64, Arc<str>, Option<InForce>)> {
    let added = resolved.added.iter().filter_map(|&(id, place)| {
        Some((id, changes[place].text()?.into(), labels.get(place).cloned().flatten()))
    });
    added.collect()
}

impl<T: Logged> Edits for T {
    fn edit_as(&self, edit: &Edit<'_>) -> Result<Edited, GroupError> {
        for (place, label) in edit.labels.iter().enumerate() {
            edits::check(label).map_err(GroupError::at(place))?;
            if label.snaplen.is_some() {
                let error = FilterError::SnapLength(NO_CUTS.to_owned());
                return Err(GroupError { place, error });
            }
        }
        let ledger = self.ledger();
        let _one = lock(&ledger.editing);
        let labels = edit.labels.iter().map(InForce::new).collect();
        ledger.make(self, &Group { labels, ..Group::by(edit.author.clone(), edit.changes) })
    }

    fn undo(&self, epoch: Option<u64>, author: Author) -> Result<(u64, Edited), UndoError> {
        let ledger = self.ledger();
        let _one = lock(&ledger.editing);
        let (undone, plan) = {
            let state = lock(&ledger.state);
            state.journal.reversal(epoch, &author, state.texts.listed().len())?
        };
        let changes: Vec<_> = plan.iter().map(Reversal::change).collect();
        let labels = plan.iter().map(Reversal::label).collect();
        let (undoes, back) = (Some(undone), Reversal::back(&plan));
        let group = Group { labels, undoes, back, ..Group::by(author, &changes) };
        let edited = ledger.make(self, &group);
        Ok((undone, edited.map_err(|refused| UndoError::Refused(refused.error))?))
    }

    fn left_out(&self, undo: u64) -> Vec<(u64, Option<Arc<str>>)> {
        lock(&self.ledger().state).journal.left_out(undo)
    }

    fn log(&self, last: usize) -> EditLog {
        let accepted = self.accepted();
        edits::listed(&lock(&self.ledger().state).journal, last, &accepted, None)
    }

    fn log_pause(&self, paused: bool, author: Author) {
        let epoch = Logged::epoch(self);
        let forgotten = lock(&self.ledger().state).journal.paused(epoch, author, paused);
        // Freed without the lock.
        drop(forgotten);
    }

    fn remarks(&self, _: &[u64]) -> Vec<String> {
        Logged::remarks(self)
    }

    fn edit_passes(
        &self,
        node: Option<&str>,
        calls: &mut HandCalls<'_>,
    ) -> Option<Result<(u64, Vec<u64>), CallsRefused>> {
        let ledger = self.ledger();
        let _one = lock(&ledger.editing);
        let made = match Logged::edit_passes(self, node, calls)? {
            Ok(made) => made,
            Err(refused) => return Some(Err(refused)),
        };
        let (epoch, author) = (Logged::epoch(self), calls.author.clone());
        let forgotten = lock(&ledger.state).journal.by_hand(epoch, author, calls.count);
        // Freed without the lock.
        drop(forgotten);
        Some(Ok((epoch, made)))
    }
}
