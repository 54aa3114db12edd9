//! Control socket of a running `fyke ids`: shows the rules with their matches, adds, removes and replaces them.
//!
//! A client's thread translates the text; the packet loop makes the edit between two batches, so every frame is judged
//! under exactly one set of rules, and a loop that is busy is never stopped by a translation. The id of a rule is its
//! sid; rules of other groups than 1 have the group in the upper half.

use super::super::counts::without_connection;
use super::super::snort2ruler::{dialect, variables};
use super::super::{description, edits};
use super::Failure;
use crate::cli::RuleArgs;
use fyke_capture::{Interface, SourceStats};
use fyke_control::{
    Accounting, Controlled, Description, EntryKind, FilterCount, FilterPasses, Peer, Request,
    Response, Stats,
};
use fyke_ids::engine::Armed;
use fyke_ids::rule::Test;
use fyke_ids::{Dialect, Engine, Index, Rule, Translation, Variables, files};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait of a client for the packet loop.
const WAIT: Duration = Duration::from_secs(10);

/// Most ids of an answer.
const MAX_TOLD: usize = 10_000;

/// A change of the rules.
enum Edit {
    /// Adds rules, or replaces those with the same ids.
    Add(Vec<Arc<Armed>>),
    /// Removes a rule.
    Remove(u32, u32),
    /// Replaces all.
    Set(Box<Index>, RuleList),
}

/// Rules by group and sid.
type RuleList = BTreeMap<(u32, u32), Arc<Armed>>;

/// Answer of the packet loop: whether the edit has changed something, and rules that the client frees.
type Answer = (bool, Option<Arc<Index>>);
/// An edit that a client waits for.
type Wanted = (Edit, Sender<Answer>);

/// A change that the packet loop has made, for the list of the clients.
enum Change {
    Add(Arc<Armed>),
    Remove(u32, u32),
    Set(RuleList),
}

/// The state that the packet loop and the clients share.
pub struct Live {
    description: Description,
    started: Instant,
    dialect: Option<Dialect>,
    variables: Variables,
    edits: (Sender<Wanted>, Mutex<Receiver<Wanted>>),
    /// True if there may be an edit.
    wanted: AtomicBool,
    /// Wakes the packet loop: the end of the clients, and that of the loop.
    wake: (UnixStream, UnixStream),
    shared: Mutex<Shared>,
    /// The rules as clients see them. The packet loop never waits for this lock.
    rules: Mutex<RuleList>,
}

#[derive(Default)]
struct Shared {
    /// Changes that are not in the list of the clients yet.
    changes: Vec<Change>,
    accounting: Accounting,
    epoch: u64,
    ended: bool,
}

impl Live {
    /// Shares the rules of a run on these interfaces; `live` is true for network interfaces, false for a file.
    pub fn new(
        interfaces: &[Interface],
        live: bool,
        args: &RuleArgs,
        rules: &Index,
    ) -> Result<Arc<Live>, Failure> {
        let (sender, receiver) = channel();
        let wake = UnixStream::pair()?;
        wake.0.set_nonblocking(true)?;
        wake.1.set_nonblocking(true)?;
        Ok(Arc::new(Live {
            description: description(interfaces, live),
            started: Instant::now(),
            dialect: dialect(args),
            variables: variables(args)?,
            edits: (sender, Mutex::new(receiver)),
            wanted: AtomicBool::new(false),
            wake,
            shared: Mutex::default(),
            rules: Mutex::new(list(rules)),
        }))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when an edit has arrived.
    pub fn woken(&self) -> BorrowedFd<'_> {
        self.wake.1.as_fd()
    }

    /// Makes the edits that have arrived, if there are any. Called by the packet loop between two frames.
    pub fn edit_if_wanted(&self, engine: &mut Engine) {
        if self.wanted.load(Ordering::Relaxed) {
            self.edit(engine);
        }
    }

    /// Makes the edits that have arrived. Called by the packet loop between two batches.
    pub fn edit(&self, engine: &mut Engine) {
        engine.settle();
        self.wanted.store(false, Ordering::SeqCst);
        let receiver = self.edits.1.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut answers, mut changes, mut epochs) = (Vec::new(), Vec::new(), 0);
        while let Ok((edit, answer)) = receiver.try_recv() {
            let mut old = None;
            let before = changes.len();
            match edit {
                Edit::Add(rules) => {
                    for rule in rules {
                        engine.add_rule(Arc::clone(&rule));
                        changes.push(Change::Add(rule));
                    }
                }
                Edit::Remove(gid, sid) if engine.remove_rule(gid, sid) => {
                    changes.push(Change::Remove(gid, sid));
                }
                Edit::Remove(..) => {}
                Edit::Set(rules, list) => {
                    old = Some(engine.set_rules(*rules));
                    changes.push(Change::Set(list));
                }
            }
            let changed = changes.len() > before;
            epochs += u64::from(changed);
            answers.push((answer, (changed, old)));
        }
        if answers.is_empty() {
            return;
        }
        // Bytes of edits that were made; one more wake-up is harmless.
        let _ = (&self.wake.1).read(&mut [0; 64]);
        let mut shared = self.shared();
        shared.epoch += epochs;
        shared.changes.append(&mut changes);
        drop(shared);
        for (answer, made) in answers {
            // A client that has gone away does not want an answer.
            let _ = answer.send(made);
        }
    }

    /// The rules as clients see them, with the changes so far.
    fn rules(&self) -> MutexGuard<'_, RuleList> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = std::mem::take(&mut self.shared().changes);
        for change in changes {
            match change {
                Change::Add(rule) => _ = rules.insert((rule.rule.gid, rule.rule.sid), rule),
                Change::Remove(gid, sid) => _ = rules.remove(&(gid, sid)),
                Change::Set(list) => *rules = list,
            }
        }
        rules
    }

    /// Publishes the counts between two batches.
    pub fn publish(&self, engine: &Engine, source: &SourceStats) {
        let counters = engine.counters();
        let accounting = Accounting {
            seen: counters.frames + source.dropped + source.unreadable,
            delivered: counters.judged,
            rejected: counters.frames - counters.judged,
            taken: 0,
            lost: source.lost().map(|(why, count)| (why.to_owned(), count)).collect(),
            not_seen: without_connection("another machine", source),
            ..Accounting::default()
        };
        self.shared().accounting = accounting;
    }

    /// No edit is made any more.
    pub fn end(&self) {
        self.shared().ended = true;
    }

    fn filters(&self) -> Vec<FilterCount> {
        let count = |armed: &Arc<Armed>| FilterCount {
            id: id(&armed.rule),
            text: armed.rule.text.to_string(),
            kind: EntryKind::Filter,
            accepted: armed.matches.load(Ordering::Relaxed),
            label: None,
        };
        let rules: Vec<Arc<Armed>> = self.rules().values().cloned().collect();
        rules.iter().map(count).collect()
    }

    fn stats(&self) -> Stats {
        let (epoch, accounting) = {
            let shared = self.shared();
            (shared.epoch, shared.accounting.clone())
        };
        let uptime_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Stats { epoch, filters: self.filters(), accounting, uptime_ms, ..Stats::default() }
    }

    /// Translates a text; it is refused if none of its rules is judged.
    fn translation(&self, text: &str) -> Result<Translation, String> {
        checked(Translation::new(text.as_bytes(), self.dialect, &self.variables))
    }

    /// Translates a text; it is refused as a whole if one of its rules is.
    fn translate(&self, text: &str) -> Result<Vec<Rule>, String> {
        let found = self.translation(text)?;
        match found.refused.first() {
            Some(refused) => Err(format!(
                "{refused}; nothing is added; `fyke snort2ruler -o` writes the rules that are judged"
            )),
            None => Ok(found.rules),
        }
    }

    /// The rules with their counts.
    fn shown(&self) -> Response {
        let entry = |FilterCount { id, text, kind, accepted, label }| FilterPasses {
            id,
            text,
            kind,
            accepted,
            passes: Vec::new(),
            label,
        };
        let epoch = self.shared().epoch;
        Response::Passes {
            epoch,
            filters: self.filters().into_iter().map(entry).collect(),
            nodes: Vec::new(),
            own_filter: None,
            no_counts: None,
            kernel: None,
        }
    }

    /// Prepares rules. One that is in force already keeps its matches, and its memory is used again.
    fn armed(&self, rules: Vec<Rule>) -> Vec<Arc<Armed>> {
        let known = self.rules();
        let armed = |rule: Rule| match known.get(&(rule.gid, rule.sid)) {
            Some(same) if same.rule.is_same(&rule) => Arc::clone(same),
            _ => Arc::new(Armed::new(rule)),
        };
        rules.into_iter().map(armed).collect()
    }

    /// Replaces all rules by those of a file of a client.
    fn set(&self, begin: Instant, found: Translation) -> Result<Response, String> {
        let notes = left_out(&found).into_iter().collect();
        let ids = found.rules.iter().take(MAX_TOLD + 1).map(id).collect::<Vec<_>>();
        let ids = if ids.len() > MAX_TOLD { Vec::new() } else { ids };
        let index = Box::new(Index::of(self.armed(found.rules)));
        let list = list(&index);
        self.make(begin, Edit::Set(index, list), ids, notes)
    }

    fn request(&self, request: Request) -> Result<Response, String> {
        let begin = Instant::now();
        let (edit, ids) = match request {
            Request::Add { text } => {
                let rules = self.translate(&text)?;
                prepare(&rules);
                let ids = rules.iter().map(id).collect();
                (Edit::Add(self.armed(rules)), ids)
            }
            Request::Set { text } => return self.set(begin, self.translation(&text)?),
            Request::Delete { id } => {
                let (group, sid) = ((id >> 32) as u32, id as u32);
                (Edit::Remove(group.max(1), sid), Vec::new())
            }
            Request::Rules { .. } => {
                return Err("`fyke ids` has no pre-filter; `fyke dump` has one".to_owned());
            }
            Request::Show => return Ok(self.shown()),
            Request::Pause | Request::Start | Request::PauseReader { .. } => {
                return Err(edits::NO_PAUSE.to_owned());
            }
            Request::Try { .. }
            | Request::Why { .. }
            | Request::Frames { .. }
            | Request::Save { .. } => {
                return Err(edits::NO_FRAMES.to_owned());
            }
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                return Ok(Response::Stats(self.stats()));
            }
            _ => {
                let message = "rules are edited by `fyke ctl add`, `set` and `del`, one edit at a time; names, \
                               times, groups of edits and undo are for filters";
                return Err(message.to_owned());
            }
        };
        self.make(begin, edit, ids, Vec::new())
    }

    /// Passes an edit to the packet loop, and waits until it is made.
    fn make(
        &self,
        begin: Instant,
        edit: Edit,
        ids: Vec<u64>,
        notes: Vec<String>,
    ) -> Result<Response, String> {
        if self.shared().ended {
            return Err("the run has ended".to_owned());
        }
        let (answer, answered) = channel();
        self.edits.0.send((edit, answer)).map_err(|_| "the run has ended")?;
        self.wanted.store(true, Ordering::SeqCst);
        // If there is no room, the loop has been woken already.
        let _ = (&self.wake.0).write(&[1]);
        match answered.recv_timeout(WAIT) {
            Ok((true, old)) => {
                let latency_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                // Replaced rules are freed here: the packet loop does not take the time.
                drop((old, self.rules()));
                Ok(Response::Ok { epoch: self.shared().epoch, ids, latency_ns, notes })
            }
            Ok((false, _)) => {
                Err("there is no rule with this id; `fyke ctl show` lists them".to_owned())
            }
            Err(_) => Err("the packet loop does not answer".to_owned()),
        }
    }
}

/// Refuses a text of which no rule is judged.
fn checked(found: Translation) -> Result<Translation, String> {
    match found.refused.first() {
        Some(refused) if found.rules.is_empty() => Err(refused.to_string()),
        None if found.rules.is_empty() => Err("the text has no rule".to_owned()),
        _ => Ok(found),
    }
}

/// Reports the number of rules of a text are not judged, if there are any.
fn left_out(found: &Translation) -> Option<String> {
    let (first, count) = (found.refused.first()?, found.refused_count());
    Some(format!(
        "{count} of {} rules are not judged (the first: {first}); `fyke snort2ruler` gives the reasons",
        found.total()
    ))
}

/// Builds the automata of the expressions; else the packet loop builds them at their first use.
fn prepare(rules: &[Rule]) {
    for test in rules.iter().flat_map(|rule| &rule.lists).flat_map(|list| &list.tests) {
        if let Test::Pcre(pcre) = test {
            pcre.pattern.is_regular();
        }
    }
}

/// The rules of an index.
fn list(index: &Index) -> RuleList {
    index.iter().map(|armed| ((armed.rule.gid, armed.rule.sid), Arc::clone(armed))).collect()
}

/// Id of a rule for clients.
fn id(rule: &Rule) -> u64 {
    let group = if rule.gid == 1 { 0 } else { u64::from(rule.gid) };
    group << 32 | u64::from(rule.sid)
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        self.request(request).unwrap_or_else(|message| Response::Error { message })
    }

    fn load(&self, file: File, _: &Peer) -> Response {
        let begin = Instant::now();
        let from = files::bounded(Box::new(file));
        let read = Translation::read(from, self.dialect, &self.variables, &mut |_| ());
        let found = read.map_err(|error| format!("cannot read the rules: {error}"));
        let made = found.and_then(checked).and_then(|found| self.set(begin, found));
        made.unwrap_or_else(|message| Response::Error { message })
    }

    fn is_long(&self, request: &Request) -> bool {
        const LONG: usize = 1 << 16;
        match request {
            Request::Set { text } | Request::Add { text } => text.len() > LONG,
            request => matches!(request, Request::Show),
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
