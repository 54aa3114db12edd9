//! Edits: from the request of a reader to the filter set of the service.
//!
//! ```text
//! text ─▶ compile alone (caret errors) ─▶ add to the filter set ─▶ the table follows it ─▶ remove unused filters
//!                 refused? nothing has changed          one exchange between two batches
//! ```
//!
//! Equal texts of all readers are one filter. The filter set accepts what an edit adds before the reader follows it,
//! and rejects what it removes afterwards, so the exchange of a reader's texts is exact: it falls between two batches,
//! and the response names the first frame that is evaluated under the edit. Edits are made one after the other; the
//! packet loop waits only for the exchange.

use crate::message::{Counts, Edited, Text};
use crate::policy::Terms;
use crate::table::{Descriptors, Elsewhere, Meter, Resuming, Table};
use fyke_capture::Interface;
use fyke_filter::Options;
use fyke_filters::{Change, FilterSet, Inputs};
use fyke_graph::GraphHandle;
use fyke_graph::placement::LowerFilter;
use fyke_ring::Waker;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for frames that have arrived before a reader ends.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Reasons why a request is refused; nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A text is not in the language, with its position.
    #[error("{0}")]
    Text(String),
    /// A text is longer than the reader may have.
    #[error("text {id} has {given} bytes, and this service takes at most {limit}")]
    TooLong {
        /// Number of the text.
        id: u64,
        /// Its bytes.
        given: usize,
        /// Most bytes.
        limit: usize,
    },
    /// The reader would have more texts than it may have.
    #[error("{given} texts are more than the {limit} that this reader may have")]
    TooMany {
        /// Texts after the edit.
        given: usize,
        /// Most texts.
        limit: usize,
    },
    /// A number is not that of a text.
    #[error("there is no text {given}; the texts are: {present}")]
    NoSuchText {
        /// The number.
        given: u64,
        /// The numbers of the reader.
        present: String,
    },
    /// A number is that of another text of the reader.
    #[error("text {given} is there already; remove it in the same edit to replace it")]
    Twice {
        /// The number.
        given: u64,
    },
    /// The buffers cannot be made.
    #[error("no memory for a reader: {0}")]
    Memory(#[from] fyke_ring::RingError),
    /// The readers of the user would have too much memory.
    #[error("your readers would have {given} MiB of memory, and user {user} may have {limit} MiB")]
    Quota {
        /// The user.
        user: u32,
        /// Memory with this reader, in MiB.
        given: usize,
        /// Most memory.
        limit: usize,
    },
    /// A descriptor that came with a request.
    #[error("the descriptor is not the page of a reader: {0}")]
    Page(fyke_ring::RingError),
    /// A graph is refused.
    #[error("{0}")]
    Graph(String),
    /// The capture has not begun or has ended.
    #[error("the capture does not run")]
    NotRunning,
}

/// A text, and what is evaluated for it.
#[derive(Debug, Clone)]
struct Filter {
    text: Arc<str>,
    /// The text together with the filter of the policy.
    both: Arc<str>,
}

/// A reader's texts, by the numbers that it chose.
#[derive(Debug, Default)]
pub struct Texts(BTreeMap<u64, Filter>);

/// A text that accepts no frame, of which the language does not refuse that: frames are shorter.
const NOTHING: &str = "greater 2147483647";
/// Begin of the refusal of a text that no frame can match.
const NEVER: &str = "no frame can match this filter";

/// A text that accepts the frames that both texts accept. Each must be a text alone, so that neither leaves its
/// parentheses.
fn both(filter: &Arc<str>, text: &str) -> Arc<str> {
    match (filter.is_empty(), text.trim().is_empty()) {
        (true, _) => Arc::from(text),
        (false, true) => Arc::clone(filter),
        (false, false) => format!("({filter}) and ({text})").into(),
    }
}

impl Texts {
    /// The texts, as the reader wrote them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.iter().map(|(&id, filter)| (id, &*filter.text))
    }

    fn filters(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        self.0.values().map(|filter| &filter.both)
    }

    /// The texts after an edit.
    fn after(
        &self,
        remove: &[u64],
        add: &[Text],
        terms: &Terms,
        evaluation: &Evaluation,
    ) -> Result<Texts, Refused> {
        let (mut texts, limits) = (self.0.clone(), &terms.limits);
        for &given in remove {
            if texts.remove(&given).is_none() {
                let present: Vec<_> = self.0.keys().take(16).map(u64::to_string).collect();
                return Err(Refused::NoSuchText { given, present: present.join(", ") });
            }
        }
        for Text { id, text } in add {
            let (given, limit) = (text.len(), limits.text_bytes);
            if given > limit {
                return Err(Refused::TooLong { id: *id, given, limit });
            }
            let both = evaluation.both(&terms.group.filter, text);
            if texts.insert(*id, Filter { text: text.as_str().into(), both }).is_some() {
                return Err(Refused::Twice { given: *id });
            }
        }
        match texts.len() > limits.texts {
            true => Err(Refused::TooMany { given: texts.len(), limit: limits.texts }),
            false => Ok(Texts(texts)),
        }
    }
}

/// The filters that readers follow, each once.
#[derive(Debug, Default)]
struct Filters {
    /// Number in the filter set, and number of texts of readers that are equal to it.
    by_text: HashMap<Arc<str>, (u64, usize)>,
}

/// Reading of the texts of readers.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub inputs: Inputs,
    pub options: Options,
}

impl Evaluation {
    /// Checks a text alone.
    fn check(&self, text: &str) -> Result<(), String> {
        self.inputs.check(text, &self.options).map_err(|refused| refused.error.to_string())
    }

    /// The text together with the filter of the policy. If no frame can be of both, such as `tcp` under `udp`, the
    /// reader gets none. Otherwise its text would be refused, and it would get every frame that the policy permits.
    fn both(&self, filter: &Arc<str>, text: &str) -> Arc<str> {
        let both = both(filter, text);
        let has_both = !filter.is_empty() && !text.trim().is_empty();
        let is_never = |text: &str| self.check(text).is_err_and(|why| why.contains(NEVER));
        match has_both && is_never(&both) && !is_never(text) {
            true => NOTHING.into(),
            false => both,
        }
    }
}

/// Parts that the graph gives to the service.
#[derive(Debug)]
pub(crate) struct Made {
    pub set: FilterSet,
    pub evaluation: Evaluation,
    pub interface: Interface,
}

/// A service: the texts of all readers on one capture.
#[derive(Default)]
pub struct Service {
    made: OnceLock<Made>,
    table: OnceLock<Mutex<Table>>,
    editor: Mutex<Filters>,
    running: OnceLock<(GraphHandle, Option<Arc<dyn LowerFilter>>)>,
    dropped: AtomicU64,
    /// Files of readers.
    files: Arc<crate::files::Files>,
    /// Frames that did not reach the node in processes before this one.
    before: OnceLock<Elsewhere>,
    /// The last number of a reader, of all services of the process.
    numbers: Arc<AtomicU64>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("made", &self.made).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves entries that are whole: each change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// A service without a capture; the class [`serve`](mod@crate::class) gives it one.
    pub fn new() -> Arc<Service> {
        Arc::new(Service::default())
    }

    /// A service of a further capture of the same process: no reader of it has the number of a reader of this one.
    pub fn beside(&self) -> Arc<Service> {
        let numbers = Arc::clone(&self.numbers);
        Arc::new(Service { numbers, ..Service::default() })
    }

    /// Takes the filter set of the node. Returns false if there is a node already.
    pub(crate) fn take(&self, made: Made) -> bool {
        let table = Mutex::new(Table::new(made.interface.clone(), Arc::clone(&self.numbers)));
        self.table.set(table).is_ok() && self.made.set(made).is_ok()
    }

    /// Begins to serve the graph of this handle, which must have the node of this service.
    pub fn begin(&self, handle: GraphHandle) {
        let mut lower = handle.placements().into_iter().filter_map(|placed| placed.lower.ok());
        let lower = lower.next();
        let _begun_already = self.running.set((handle, lower));
    }

    /// The captured interface.
    pub fn interface(&self) -> Option<&Interface> {
        self.made.get().map(|made| &made.interface)
    }

    pub(crate) fn table(&self) -> Option<MutexGuard<'_, Table>> {
        self.table.get().map(lock)
    }

    fn running(&self) -> Result<(&Made, MutexGuard<'_, Table>), Refused> {
        let table = self.table().ok_or(Refused::NotRunning)?;
        Ok((self.made.get().ok_or(Refused::NotRunning)?, table))
    }

    pub(crate) fn set_dropped(&self, dropped: u64) {
        self.dropped.store(dropped, Ordering::Relaxed);
    }

    /// Frames so far that did not reach the node.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        let lower = self.running.get().and_then(|(_, lower)| lower.as_ref());
        let rejected = lower.map_or(Some(0), |lower| lower.rejected());
        let before = self.before.get().copied().unwrap_or_default();
        Elsewhere {
            below: before.below + rejected.unwrap_or(0),
            is_partial: before.is_partial || rejected.is_none(),
            dropped: before.dropped + self.dropped.load(Ordering::Relaxed),
        }
    }

    /// The filter before the node, if there is one.
    pub(crate) fn lower(&self) -> Option<&Arc<dyn LowerFilter>> {
        self.running.get().and_then(|(_, lower)| lower.as_ref())
    }

    /// Continues after the frames that processes before this one did not evaluate. `lost` is what this one lost with
    /// them.
    pub(crate) fn goes_on(&self, before: Elsewhere, lost: u64) {
        let _once = self.before.set(before);
        self.set_dropped(lost);
    }

    /// Adds a reader without texts.
    ///
    /// # Errors
    /// There is no memory for its buffers.
    pub fn join(
        &self,
        user: u32,
        terms: &Terms,
        snaplen: u32,
        has_graph: bool,
    ) -> Result<(u64, Descriptors), Refused> {
        let (made, mut table) = self.running()?;
        let most = made.interface.snaplen.min(terms.group.snaplen);
        let snaplen = if snaplen == 0 { most } else { snaplen.min(most) };
        let bytes = table.memory_with(user, &terms.group, terms.memory);
        if bytes > terms.user_memory {
            let (given, limit) = (bytes.div_ceil(1 << 20), terms.user_memory >> 20);
            return Err(Refused::Quota { user, given, limit });
        }
        Ok(table.join((user, &terms.group), snaplen as usize, terms.memory, has_graph)?)
    }

    /// Adds a reader that a process before this one has served, with its texts.
    ///
    /// # Errors
    /// There is no memory for its buffers, or a text is refused now.
    pub(crate) fn restore(
        &self,
        user: u32,
        terms: &Terms,
        snaplen: u32,
        has_graph: bool,
        from: Resuming,
        texts: &[Text],
    ) -> Result<(Descriptors, Texts), Refused> {
        let number = from.number;
        let evaluation = &self.made.get().ok_or(Refused::NotRunning)?.evaluation;
        let own = Texts::default().after(&[], texts, terms, evaluation)?;
        let (made, mut table) = self.running()?;
        let most = made.interface.snaplen.min(terms.group.snaplen);
        let snaplen = if snaplen == 0 { most } else { snaplen.min(most) } as usize;
        let to = (user, &terms.group);
        let descriptors = table.enter(to, snaplen, terms.memory, has_graph, from)?;
        drop(table);
        let entered = lock(&self.editor).enter(&made.set, own.filters());
        let (_, mut table) = self.running()?;
        match entered {
            Ok(numbers) => {
                table.follow(number, numbers, self.elsewhere());
                Ok((descriptors, own))
            }
            Err(refused) => {
                let gone = table.leave(number);
                drop(table);
                drop(gone);
                Err(refused)
            }
        }
    }

    /// The files of readers.
    pub(crate) fn files(&self) -> &Arc<crate::files::Files> {
        &self.files
    }

    /// Keeps a reader for a process after this one ([`Table::keep`]).
    pub(crate) fn keep(&self, reader: u64, slot: usize) -> std::io::Result<Vec<OwnedFd>> {
        self.table().map_or_else(|| Ok(Vec::new()), |mut table| table.keep(reader, slot))
    }

    /// Undoes [`keep`](Self::keep).
    pub(crate) fn keep_no_more(&self, reader: u64) {
        if let Some(mut table) = self.table() {
            table.keep_no_more(reader);
        }
    }

    /// The state of a reader that its log does not have.
    pub(crate) fn state(&self, reader: u64) -> (bool, Meter) {
        let now = self.elsewhere();
        self.table().map_or_else(Default::default, |table| table.state(reader, now))
    }

    /// Calls a reader to read a message.
    pub(crate) fn call(&self, reader: u64) {
        if let Some(table) = self.table() {
            table.call(reader);
        }
    }

    /// Number of edits in force.
    pub(crate) fn epoch(&self) -> u64 {
        self.made.get().map_or(0, |made| made.set.epoch())
    }

    /// True once the packet loop runs.
    pub(crate) fn runs(&self) -> bool {
        self.running.get().is_some_and(|(handle, _)| handle.runs())
    }

    /// Has the kernel pass every frame until [`narrow`](Self::narrow).
    pub(crate) fn widen(&self) -> Option<u64> {
        let added = self.made.get()?.set.edit(&[Change::Add("")]).ok()?;
        added.into_iter().next().flatten()
    }

    /// Undoes [`widen`](Self::widen).
    pub(crate) fn narrow(&self, widened: u64) {
        if let Some(made) = self.made.get() {
            let _there = made.set.edit(&[Change::Remove(widened)]);
        }
    }

    /// Lets a reader sleep: its page, of which the returned descriptor is the other side.
    ///
    /// # Errors
    /// It is not the page of a reader.
    pub fn let_sleep(&self, reader: u64, page: OwnedFd) -> Result<OwnedFd, Refused> {
        let (waker, event) = Waker::open(page).map_err(Refused::Page)?;
        self.running()?.1.set_waker(reader, waker);
        Ok(event)
    }

    /// Checks a text alone, as those of readers are checked.
    ///
    /// # Errors
    /// The problem, with a caret.
    pub fn check(&self, text: &str) -> Result<(), String> {
        self.made.get().map_or(Ok(()), |made| made.evaluation.check(text))
    }

    /// Changes the texts of a reader.
    ///
    /// # Errors
    /// The first text or number that is refused.
    pub fn edit(
        &self,
        reader: u64,
        texts: &mut Texts,
        remove: &[u64],
        add: &[Text],
        terms: &Terms,
    ) -> Result<Edited, Refused> {
        let made = self.made.get().ok_or(Refused::NotRunning)?;
        let after = texts.after(remove, add, terms, &made.evaluation)?;
        for Text { text, .. } in add {
            made.evaluation.check(text).map_err(Refused::Text)?;
        }
        let mut editor = lock(&self.editor);
        let numbers = editor.enter(&made.set, after.filters())?;
        let from = {
            let (_, mut table) = self.running()?;
            let now = self.elsewhere();
            table.follow(reader, numbers, now)
        };
        editor.leave(&made.set, texts.filters());
        *texts = after;
        Ok(Edited { epoch: made.set.epoch(), from })
    }

    /// Runs a graph for a reader that joined with one, in place of graph `old` if it has one. Returns its number.
    ///
    /// # Errors
    /// The graph is refused; nothing has changed.
    pub fn put_graph(
        &self,
        reader: u64,
        text: &str,
        terms: &Terms,
        old: Option<u64>,
    ) -> Result<(u64, Edited), Refused> {
        let (handle, _) = self.running.get().ok_or(Refused::NotRunning)?;
        let id = crate::graph::put(handle, reader, terms, text, old).map_err(Refused::Graph)?;
        let now = self.elsewhere();
        let (_, mut table) = self.running()?;
        if old.is_none() {
            table.start_own(reader, now);
        }
        Ok((id, Edited { epoch: handle.epoch(), from: table.evaluated_own(reader) }))
    }

    /// Removes the graph of a reader.
    pub fn remove_graph(&self, id: u64) {
        if let Some((handle, _)) = self.running.get() {
            // Fails only if the capture has ended.
            let _ended = handle.remove(id);
        }
    }

    /// Reason why a node of a graph has failed, if one has.
    pub fn graph_failure(&self, id: u64) -> Option<String> {
        let view = self.running.get()?.0.view();
        let failed = |node: &fyke_graph::runtime::NodeView| {
            let error = node.failed.as_ref().filter(|_| node.texts.contains(&id))?;
            Some(format!("node {} of the graph has failed: {error}", node.name))
        };
        view.nodes.iter().find_map(failed)
    }

    /// Pauses a reader or starts it again.
    ///
    /// # Errors
    /// The capture does not run.
    pub fn pause(&self, reader: u64, is_paused: bool) -> Result<Edited, Refused> {
        let (made, mut table) = self.running()?;
        let from = table.pause(reader, is_paused, self.elsewhere());
        Ok(Edited { epoch: made.set.epoch(), from })
    }

    /// The counts of a reader.
    pub fn counts(&self, reader: u64) -> Counts {
        let table = self.table();
        table.map_or_else(Counts::default, |table| table.counts(reader, self.elsewhere()))
    }

    /// Frames that a reader has not read, and those that it has lost without knowing it yet ([`Table::behind`]).
    pub fn behind(&self, reader: u64, told: u64) -> (u64, u64) {
        self.table().map_or((0, 0), |table| table.behind(reader, told))
    }

    /// Ends a reader: waits until the frames that have already arrived are evaluated, then closes its index.
    pub fn end(&self, reader: u64) -> Counts {
        self.drain();
        self.end_now(reader)
    }

    /// Ends a reader at the batch that is evaluated: closes its index.
    pub fn end_now(&self, reader: u64) -> Counts {
        let table = self.table();
        table.map_or_else(Counts::default, |mut table| table.close(reader, self.elsewhere()))
    }

    /// Waits until the frames are evaluated that had arrived at the time of the call.
    pub(crate) fn drain(&self) {
        let Some((handle, _)) = self.running.get() else { return };
        let start = Instant::now();
        let view = handle.snapshot();
        let arrived: u64 = view.sources.iter().map(|source| source.stats.received).sum();
        let is_done = |view: &fyke_graph::GraphView| {
            let settled = view.sources.iter().map(|source| {
                let stats = source.stats;
                stats.delivered + stats.dropped + stats.ignored + stats.unreadable
            });
            let dropped = view.sources.iter().map(|source| source.stats.dropped).sum();
            self.set_dropped(dropped);
            settled.sum::<u64>() >= arrived
        };
        let mut done = is_done(&view);
        while !done && start.elapsed() < DRAIN_LIMIT {
            done = is_done(&handle.snapshot());
        }
    }

    /// Removes a reader and its texts.
    pub fn leave(&self, reader: u64, texts: &Texts) {
        let freed = self.table().map(|mut table| table.leave(reader));
        drop(freed);
        if let Some(made) = self.made.get() {
            lock(&self.editor).leave(&made.set, texts.filters());
        }
    }
}

impl Filters {
    /// Adds texts that no reader has yet to the filter set, and counts the uses of all. Returns their numbers.
    fn enter<'t>(
        &mut self,
        set: &FilterSet,
        texts: impl Iterator<Item = &'t Arc<str>> + Clone,
    ) -> Result<Vec<u64>, Refused> {
        let mut seen = HashSet::new();
        let is_new = |text: &&Arc<str>| !self.by_text.contains_key(&**text);
        let new: Vec<_> =
            texts.clone().filter(is_new).filter(|text| seen.insert(&***text)).collect();
        let changes: Vec<_> = new.iter().map(|text| Change::Add(text)).collect();
        let added =
            set.edit(&changes).map_err(|refused| Refused::Text(refused.error.to_string()))?;
        for (text, number) in new.into_iter().zip(added) {
            self.by_text.insert(Arc::clone(text), (number.unwrap_or_default(), 0));
        }
        let mut numbers: Vec<u64> = texts
            .filter_map(|text| {
                let (number, uses) = self.by_text.get_mut(&**text)?;
                *uses += 1;
                Some(*number)
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Ends one use of each text; removes those that no reader has any more.
    fn leave<'t>(&mut self, set: &FilterSet, texts: impl Iterator<Item = &'t Arc<str>>) {
        let mut gone = Vec::new();
        for text in texts {
            let Some((number, uses)) = self.by_text.get_mut(&**text) else { continue };
            *uses -= 1;
            if *uses == 0 {
                gone.push(Change::Remove(*number));
                self.by_text.remove(&**text);
            }
        }
        if set.edit(&gone).is_err() {
            debug_assert!(false, "filters of the service are removed only here");
        }
    }
}
