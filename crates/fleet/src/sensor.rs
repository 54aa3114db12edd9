//! A sensor: keeps the filters of its group in force at the fyke beside it, and answers each edit.
//!
//! The edits are read in their order; each has one answer ([`Outcome`]). After an outage, or at the start, many edits
//! are put in force as one, and the answers name the last of them. If the fyke beside the sensor ends, the filters of
//! the group are put in force again at the next one. A fyke that is silent, such as a stopped one, may carry out later
//! what it was sent; the sensor reads no further edits until it speaks, then looks what is in force there, and answers.
//!
//! Invariant: a sequence that the fyke has applied is not applied to it again, by whichever run of the sensor it was
//! ([`Held::applied`](crate::local::Held)); a repeated `clear` would remove what local users have added since.

use crate::Name;
use crate::again::again;
use crate::broker::{Broker, BrokerError, failed};
use crate::edit::{Accepted, Change, Edit, FilterId, Labels};
use crate::keys::Trusted;
use crate::local::{Edited, Held, Local, LocalError, Names};
use crate::message::{Answer, Answers, Ask, Entry, Outcome, Tried};
use crate::open::Open;
use crate::state::{State, has};
use crate::{message, snapshot, unix_ms};
use async_nats::jetstream::kv::{
    CreateError, CreateErrorKind, EntryError, EntryErrorKind, UpdateErrorKind,
};
use futures_util::StreamExt;
use fyke_control::Change as LocalChange;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

/// Time between two entries in the list of sensors, and between two comparisons with the stream.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A name is free if its entry has not changed for this time.
const SILENT: Duration = Duration::from_secs(5);
/// From this number of edits on they are put in force together.
const TOGETHER: usize = 16;
/// Most filters that are left out one after the other because the fyke refuses them.
const MAX_LEFT_OUT: usize = 100;
/// Time between two attempts at a fyke that cannot make edits; each may take it 10 s.
const AGAIN: Duration = Duration::from_secs(5);
/// Time for the last answers and the end of the entry.
const LAST: Duration = Duration::from_secs(2);
/// Most edits of one reading.
const READING: u64 = 4_096;
/// Answers of one message.
const ANSWERS: usize = 1_000;
/// Most answers that wait for the broker.
const MAX_WAITING: usize = 100_000;

/// Name, labels and trust of a sensor.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name, which no other sensor of the group has.
    pub name: Name,
    /// Its labels.
    pub labels: Labels,
    /// The authors of the edits that it accepts.
    pub trusted: Trusted,
}

/// Reason why a sensor ends.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// The broker refuses something at the start.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// Another sensor has its name.
    #[error(
        "the name {name} is that of a sensor on {host} (run {instance}): choose another one with --name"
    )]
    Taken {
        /// The name.
        name: Name,
        /// Machine of the other sensor.
        host: String,
        /// Its run.
        instance: String,
    },
}

/// Changes that make a fyke have the filters of the group.
#[derive(Debug, Default)]
struct Plan {
    changes: Vec<LocalChange>,
    /// Number of those that remove filters, which come first.
    removals: usize,
    /// Filters that stay, with their local ids.
    kept: BTreeMap<FilterId, Vec<u64>>,
    /// Filters that are added, in the order of their changes.
    added: Vec<(FilterId, String)>,
}

/// A sensor.
pub struct Sensor<L> {
    options: Options,
    broker: Broker,
    local: L,
    instance: String,
    revision: u64,
    names: Names,
    state: State,
    /// The local ids of the group's filters that are in force.
    in_force: BTreeMap<FilterId, Vec<u64>>,
    /// The process of the fyke in which they are, and its start.
    fyke: Option<(u32, u64)>,
    /// True until its end has been reported.
    is_beside: bool,
    /// True until all edits are read with which it is compared.
    is_new: bool,
    /// The last sequence that was applied to it.
    applied: u64,
    /// The local epoch that it began, if it was read from the log of the fyke.
    began: Option<u64>,
    /// False if `applied` is not known: no edit before the last one of the group clears it then.
    is_known: bool,
    /// Filters that the fyke refused, with its reasons.
    refused_filters: BTreeMap<FilterId, String>,
    /// Edits without a final outcome, and refused ones.
    open: Open,
    /// The reason while the fyke does not answer, or cannot make edits: those that follow are not read meanwhile.
    silent: Option<String>,
    /// The time of the next attempt at a fyke that cannot make edits.
    again: Option<Instant>,
    /// The last description of the fyke.
    described: Option<message::Local>,
    waiting: Vec<Answer>,
    trouble: Option<String>,
    notes: Box<dyn FnMut(String) + Send>,
}

impl<L: Local> Sensor<L> {
    /// A sensor that has not started. `notes` gets lines for its user.
    pub fn new(
        options: Options,
        broker: Broker,
        local: L,
        notes: impl FnMut(String) + Send + 'static,
    ) -> Sensor<L> {
        let instance = format!("{}-{:x}", std::process::id(), unix_ms());
        Sensor {
            names: Names::new(broker.group()),
            options,
            broker,
            local,
            instance,
            revision: 0,
            state: State::default(),
            in_force: BTreeMap::new(),
            fyke: None,
            is_beside: false,
            is_new: false,
            applied: 0,
            began: None,
            is_known: true,
            refused_filters: BTreeMap::new(),
            open: Open::default(),
            silent: None,
            again: None,
            described: None,
            waiting: Vec::new(),
            trouble: None,
            notes: Box::new(notes),
        }
    }

    /// Runs until `stop` is ready.
    ///
    /// # Errors
    /// The name is taken, now or later, or the broker refuses something at the start.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), SensorError> {
        let ended = tokio::select! {
            biased;
            () = stop => Ok(()),
            ended = self.work() => ended,
        };
        ended?;
        // Without a broker both are lost: the last edit is answered again, and the entry disappears by itself.
        let farewell = async {
            self.send_answers().await;
            if self.revision > 0 {
                let _lost = self.broker.sensors().delete(self.options.name.as_str()).await;
            }
        };
        let _lost = timeout(LAST, farewell).await;
        Ok(())
    }

    /// Follows the edits and answers questions, until the connection ends.
    async fn work(&mut self) -> Result<(), SensorError> {
        let client = self.broker.client().clone();
        let subscribed = |error: async_nats::SubscribeError| BrokerError::Failed {
            what: "subscribing",
            why: error.to_string(),
        };
        let mut edits = client.subscribe(self.broker.subject("edits")).await.map_err(subscribed)?;
        let mut asks = client.subscribe(self.broker.subject("ask")).await.map_err(subscribed)?;
        self.take_name().await?;
        self.take_snapshot().await;
        // Before the first edit that comes: it is known then what the fyke has already.
        self.compare().await?;
        let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => self.compare().await?,
                Some(_) = edits.next() => self.follow().await,
                Some(message) = asks.next() => {
                    let answer = self.asked(&message.payload);
                    if let (Some(reply), Some(answer)) = (message.reply, answer) {
                        let _lost = client.publish(reply, answer.into()).await;
                    }
                }
                else => return Ok(()),
            }
        }
    }

    /// Compares with the fyke and with the stream, and writes the entry.
    async fn compare(&mut self) -> Result<(), SensorError> {
        self.check_local();
        self.catch_up().await;
        self.write_entry().await
    }

    /// Begins with the last snapshot of the group; if there is none that it takes, all edits are read.
    async fn take_snapshot(&mut self) {
        match snapshot::load(&self.broker, &self.options.trusted).await {
            Ok(Some(state)) => {
                self.state = state;
                (self.notes)(format!(
                    "begins with the snapshot after edit {}",
                    self.state.sequence
                ));
            }
            Ok(None) => {}
            Err(error) => (self.notes)(format!("{error}; all edits are read")),
        }
    }

    /// Reads the next edits after a sign that there is one; the broker may store it a moment later.
    async fn follow(&mut self) {
        if self.silent.is_some() {
            return;
        }
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        let known = self.state.sequence;
        loop {
            match self.broker.edit(known + 1).await {
                Ok(Some(message)) => {
                    self.apply(vec![(known + 1, message)]);
                    break;
                }
                Ok(None) if start.elapsed() < Duration::from_millis(100) => {
                    sleep(pause).await;
                    pause *= 2;
                }
                // The next comparison with the stream finds it.
                _ => return,
            }
        }
        self.send_answers().await;
    }

    /// Compares with the stream, and reads what is missing.
    async fn catch_up(&mut self) {
        while self.silent.is_none() {
            let last = match self.broker.last().await {
                Ok(last) => last,
                Err(error) => return self.is_in_trouble(error.to_string()),
            };
            let known = self.state.sequence.max(self.applied);
            if last < known {
                let why = format!(
                    "the stream of the group ends at {last}, before {known}: the broker has lost edits; filters stay"
                );
                return self.is_in_trouble(why);
            }
            if last == self.state.sequence {
                break;
            }
            let first = self.state.sequence + 1;
            match self.broker.range(first, last.min(first + READING - 1)).await {
                Ok(messages) => self.apply(messages),
                Err(error) => return self.is_in_trouble(error.to_string()),
            }
            self.send_answers().await;
        }
        if std::mem::take(&mut self.is_new)
            && self.fyke.is_some()
            && !self.plan().changes.is_empty()
        {
            // Such as a filter of an author that an earlier run of the sensor trusted.
            let reached = self.put_in_force(self.state.sequence, true);
            let _noted = reached.map_err(|error| self.is_unreached(&error));
        }
        if let Some(why) = &self.silent {
            self.trouble = Some(format!("{why}; edits wait for it"));
            return self.send_answers().await;
        }
        if !self.is_known {
            (self.is_known, self.applied) = (true, self.state.sequence);
        }
        self.trouble = None;
        self.send_answers().await;
    }

    fn is_in_trouble(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            (self.notes)(format!("{why}; trying again"));
        }
        self.trouble = Some(why);
    }

    /// Applies messages in their order: one by one, or many as one local edit.
    fn apply(&mut self, messages: Vec<(u64, Vec<u8>)>) {
        let mut together = Vec::new();
        let many = messages.len() >= TOGETHER || !self.is_known;
        for (sequence, message) in messages {
            let (group, labels) = (self.broker.group(), &self.options.labels);
            let read = Edit::read(&message, &self.options.trusted, group, self.state.sequence);
            let fits = read.and_then(|edit| {
                self.state.apply(sequence, &edit).map_err(|error| error.to_string())?;
                Ok(edit)
            });
            // An edit that is refused has its number, too.
            self.state.sequence = sequence;
            let outcome = match fits {
                Err(message) => {
                    self.open.refuse(sequence);
                    (self.notes)(format!("edit {sequence} refused: {message}"));
                    Outcome::Refused { message, is_void: true }
                }
                Ok(edit) if !has(labels, &edit.edit.only) && !removes(&edit) => {
                    Outcome::NotAddressed
                }
                Ok(_) if sequence < self.applied => Outcome::Superseded { by: self.applied },
                Ok(_) if many => {
                    together.push(sequence);
                    continue;
                }
                Ok(_) => {
                    self.settle(sequence, [sequence], false);
                    if self.silent.is_some() {
                        // Those that follow are read again once it answers.
                        return;
                    }
                    continue;
                }
            };
            self.answer(Answer { sequence, outcome });
        }
        if let Some(last) = together.last().copied() {
            self.settle(last, together, true);
        }
    }

    /// Puts the filters of the group after an edit in force, and answers it, the edits that come into force with it,
    /// and all open ones.
    fn settle(&mut self, last: u64, edits: impl IntoIterator<Item = u64>, leaves_out: bool) {
        self.open.begin(edits);
        match self.put_in_force(last, leaves_out) {
            Ok(outcome) => {
                for sequence in self.open.take() {
                    let by = Outcome::Superseded { by: last };
                    let outcome = match sequence == last {
                        true => outcome.clone(),
                        false => self.refused_of(sequence).unwrap_or(by),
                    };
                    if let Outcome::Refused { .. } = outcome {
                        self.open.refuse(sequence);
                    }
                    self.answer(Answer { sequence, outcome });
                }
                if outcome.is_in_force() {
                    self.forget_refusals(last);
                }
            }
            Err(error) => self.is_unreached(&error),
        }
    }

    /// Forgets what was refused before an edit that is in force, but for filters that the group still has.
    fn forget_refusals(&mut self, by: u64) {
        let filters = &self.state.filters;
        self.refused_filters.retain(|id, _| filters.contains_key(id));
        let refused = &self.refused_filters;
        self.open.supersede(by, |sequence| refused.keys().any(|id| id.sequence == sequence));
    }

    /// After a call to a fyke that is silent or not there.
    fn is_unreached(&mut self, error: &LocalError) {
        if let LocalError::Silent(_) | LocalError::Unable(_) = error {
            if self.silent.is_none() {
                (self.notes)(format!("{error}; edits wait for it"));
            }
            self.silent = Some(error.to_string());
            let is_unable = matches!(error, LocalError::Unable(_));
            self.again = is_unable.then(|| Instant::now() + AGAIN);
            return;
        }
        (self.silent, self.again) = (None, None);
        self.has_ended();
        let message = error.to_string();
        for sequence in self.open.tell() {
            (self.notes)(format!("edit {sequence} is not in force here: {message}"));
            let outcome = Outcome::Refused { message: message.clone(), is_void: false };
            self.answer(Answer { sequence, outcome });
        }
    }

    /// The outcome of an edit with a filter that the fyke refused.
    fn refused_of(&self, sequence: u64) -> Option<Outcome> {
        let first = FilterId { sequence, place: 0 }..=FilterId { sequence, place: u32::MAX };
        let (_, message) = self.refused_filters.range(first).next()?;
        Some(Outcome::Refused { message: message.clone(), is_void: false })
    }

    /// Makes the fyke beside the sensor have the filters of the group, and no others after a `clear` that it has not
    /// applied yet. `leaves_out`: filters that it refuses are left out; else it has all or nothing of the change.
    /// An error: the fyke is silent or not there.
    fn put_in_force(&mut self, sequence: u64, leaves_out: bool) -> Result<Outcome, LocalError> {
        let is_new = self.fyke.is_none();
        if is_new {
            self.meet()?;
        }
        let leaves_out = leaves_out || is_new;
        let mut compared = false;
        for _ in 0..=MAX_LEFT_OUT {
            let mut plan = self.plan();
            let error = match self.change(sequence, &mut plan) {
                Ok(edited) => {
                    let added = plan.added.into_iter().map(|(id, _)| id).zip(edited.ids);
                    self.in_force = plan.kept.into_iter().chain(added).collect();
                    self.applied = self.applied.max(sequence);
                    let (epoch, frame, latency_ns) =
                        (edited.epoch, edited.frame, edited.latency_ns);
                    self.began = Some(epoch);
                    let in_force = Outcome::InForce { epoch, frame, latency_ns };
                    return Ok(self.refused_of(sequence).unwrap_or(in_force));
                }
                Err(error) => error,
            };
            let LocalError::Refused { change, message } = &error else { return Err(error) };
            // A local user may have removed a filter of the group, or another sensor of it added one.
            if !std::mem::replace(&mut compared, true) && self.has_changed() {
                continue;
            }
            let wrong = change.and_then(|at| at.checked_sub(plan.removals));
            let wrong = wrong.and_then(|at| plan.added.get(at)).map(|(id, _)| *id);
            let others = plan.kept.len() + plan.added.len() > 1;
            match wrong.filter(|_| leaves_out && others) {
                Some(id) => {
                    let _new = self.is_refused(id.sequence, &error);
                    self.refused_filters.insert(id, message.clone());
                }
                None => {
                    let all = plan.added.into_iter().map(|(id, _)| (id, message.clone()));
                    self.refused_filters.extend(all);
                    // A part of it, such as its `clear`, does not come into force by a later edit.
                    self.applied = self.applied.max(sequence);
                    return Ok(self.is_refused(sequence, &error));
                }
            }
        }
        let why = format!("the fyke refuses more than {MAX_LEFT_OUT} filters of the group");
        Ok(self.is_refused(sequence, &LocalError::Refused { change: None, message: why }))
    }

    /// Counts and reports an edit that is not in force.
    fn is_refused(&mut self, sequence: u64, error: &LocalError) -> Outcome {
        self.open.refuse(sequence);
        let message = error.to_string();
        (self.notes)(format!("edit {sequence} is not in force here: {message}"));
        Outcome::Refused { message, is_void: false }
    }

    /// The changes from the filters in force to those of the group.
    fn plan(&self) -> Plan {
        let clears = self.is_known && self.state.cleared > self.applied;
        let wanted = self.state.for_labels(&self.options.labels);
        let wanted: BTreeMap<FilterId, &str> =
            wanted.map(|filter| (filter.id, &filter.text[..])).collect();
        let mut plan = Plan::default();
        if clears {
            plan.changes.push(LocalChange::Set { text: String::new() });
        } else {
            for (id, own) in &self.in_force {
                match wanted.contains_key(id) {
                    true => drop(plan.kept.insert(*id, own.clone())),
                    false => {
                        plan.changes.extend(own.iter().map(|id| LocalChange::Delete { id: *id }));
                    }
                }
            }
        }
        for (id, text) in wanted {
            if !plan.kept.contains_key(&id) && !self.refused_filters.contains_key(&id) {
                plan.added.push((id, text.to_owned()));
            }
        }
        plan.removals = plan.changes.len();
        plan.changes.extend(plan.added.iter().map(|(id, text)| LocalChange::Add {
            text: text.clone(),
            name: Some(self.names.filter(*id)),
            for_ms: None,
            snaplen: None,
        }));
        plan
    }

    /// Makes the changes of a plan; without any, requests the epoch of the fyke.
    fn change(&mut self, sequence: u64, plan: &mut Plan) -> Result<Edited, LocalError> {
        if !plan.changes.is_empty() {
            return self.local.edit(sequence, std::mem::take(&mut plan.changes));
        }
        let local = self.local.describe()?;
        let began = self.began.filter(|_| sequence == self.applied);
        Ok(Edited { epoch: began.unwrap_or(local.epoch), frame: local.seen, ..Edited::default() })
    }

    /// Reads what the fyke has of the group again; true if it is not what it was.
    fn has_changed(&mut self) -> bool {
        let Ok(Held { filters, .. }) = self.local.held() else { return false };
        let before = std::mem::replace(&mut self.in_force, filters);
        before != self.in_force
    }

    /// Gets to know a fyke, and what it has of the group.
    fn meet(&mut self) -> Result<(), LocalError> {
        let local = self.local.describe()?;
        let held = match self.local.held() {
            Ok(held) => held,
            // It keeps no log, and refuses the edits of a group, too.
            Err(LocalError::Refused { .. }) => Held { applied: Some(0), ..Held::default() },
            Err(gone) => return Err(gone),
        };
        self.refused_filters.clear();
        (self.fyke, self.is_beside) = (Some((local.pid, local.started_unix_ms)), true);
        self.in_force = held.filters;
        (self.applied, self.is_known) = (held.applied.unwrap_or_default(), held.applied.is_some());
        self.began = held.epoch;
        (self.notes)(format!("beside the fyke with process id {}, {}", local.pid, local.source));
        if !self.is_known {
            (self.notes)(
                "its log does not reach back to the edits of a sensor: filters besides those of the group stay until \
                 the next edit that removes them"
                    .to_owned(),
            );
        }
        self.is_new = true;
        Ok(())
    }

    /// Puts the filters in force again if the fyke is another one than before, was not there, or has been silent in
    /// the middle of an edit.
    fn check_local(&mut self) {
        self.described = None;
        let found = match self.local.describe() {
            Ok(local) => {
                let found = (local.pid, local.started_unix_ms);
                self.described = Some(local);
                found
            }
            Err(error) => return self.is_unreached(&error),
        };
        let is_late = |again: Instant| Instant::now() < again;
        if self.fyke == Some(found) && self.again.is_some_and(is_late) {
            return;
        }
        let was_silent = self.silent.take().is_some();
        if was_silent && self.again.take().is_none() {
            (self.notes)("the fyke beside this sensor answers again".to_owned());
        }
        if self.fyke == Some(found) && self.open.is_empty() {
            return;
        }
        self.fyke = None;
        let sequence = self.state.sequence;
        match self.meet() {
            Err(error) => self.is_unreached(&error),
            Ok(()) if sequence > 0 && sequence >= self.applied => {
                self.settle(sequence, [sequence], true);
            }
            Ok(()) => {
                let by = self.applied;
                for sequence in self.open.take() {
                    self.answer(Answer { sequence, outcome: Outcome::Superseded { by } });
                }
            }
        }
    }

    /// Forgets the fyke, which does not answer.
    fn has_ended(&mut self) {
        if std::mem::take(&mut self.is_beside) {
            (self.notes)(
                "the fyke beside this sensor has ended; waiting for another one".to_owned(),
            );
        }
        self.fyke = None;
    }

    fn answer(&mut self, answer: Answer) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push(answer);
        }
    }

    /// Sends the answers that wait; those that the broker does not take wait on.
    async fn send_answers(&mut self) {
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(ANSWERS);
            let answers = Answers {
                sensor: self.options.name.to_string(),
                instance: self.instance.clone(),
                answers: self.waiting[..count].to_vec(),
            };
            let Ok(bytes) = serde_json::to_vec(&answers) else { return };
            match self.broker.answer(self.options.name.as_str(), bytes).await {
                Ok(()) => drop(self.waiting.drain(..count)),
                Err(error) => return self.is_in_trouble(error.to_string()),
            }
        }
    }

    fn entry(&mut self) -> Entry {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // A silent one has got this request just before.
        let fyke = match self.silent {
            Some(_) => self.described.clone(),
            None => self.local.describe().map_err(|error| self.is_unreached(&error)).ok(),
        };
        Entry {
            name: self.options.name.to_string(),
            instance: self.instance.clone(),
            host,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.options.labels.clone(),
            unix_ms: unix_ms(),
            sequence: self.open.answered(self.state.sequence),
            refused: self.open.refused(),
            fyke,
            trouble: self.trouble.clone(),
        }
    }

    /// Takes the name: at once if it is free, or after its entry has not changed for a while.
    async fn take_name(&mut self) -> Result<(), SensorError> {
        let mut seen: Option<(u64, Instant)> = None;
        loop {
            let value = serde_json::to_vec(&self.entry()).unwrap_or_default();
            let name = self.options.name.as_str();
            let what = "writing the list of sensors";
            let is_silence = |error: &CreateError| {
                !matches!(
                    error.kind(),
                    CreateErrorKind::AlreadyExists | CreateErrorKind::InvalidKey
                )
            };
            let create = || self.broker.sensors().create(name, value.clone().into());
            match again(what, is_silence, create).await? {
                Ok(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(what)(error).into()),
            }
            let Some(entry) = self.other_entry().await? else { continue };
            match seen {
                // The answer to an earlier attempt was lost.
                None if entry.1.instance == self.instance => {
                    self.revision = entry.0;
                    return Ok(());
                }
                Some((revision, _)) if revision != entry.0 => return Err(self.taken(entry.1)),
                Some((revision, since)) if since.elapsed() >= SILENT => {
                    self.revision = revision;
                    return self.write_entry().await;
                }
                Some(_) => {}
                None => {
                    let name = &self.options.name;
                    let host = &entry.1.host;
                    (self.notes)(format!(
                        "{name} is the name of a sensor on {host}: waiting to see if that one has ended"
                    ));
                    seen = Some((entry.0, Instant::now()));
                }
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// The entry under this sensor's name, with its revision.
    async fn other_entry(&mut self) -> Result<Option<(u64, Entry)>, BrokerError> {
        let what = "reading the list of sensors";
        let is_silence = |error: &EntryError| error.kind() != EntryErrorKind::InvalidKey;
        let read = || self.broker.sensors().entry(self.options.name.as_str());
        let found = again(what, is_silence, read).await?.map_err(failed(what))?;
        Ok(found.map(|found| {
            (found.revision, serde_json::from_slice(&found.value).unwrap_or_default())
        }))
    }

    fn taken(&self, by: Entry) -> SensorError {
        let name = self.options.name.clone();
        SensorError::Taken { name, host: by.host, instance: by.instance }
    }

    /// Writes this sensor's entry again. While the broker is away nothing happens.
    async fn write_entry(&mut self) -> Result<(), SensorError> {
        let value = serde_json::to_vec(&self.entry()).unwrap_or_default();
        let name = self.options.name.as_str().to_owned();
        let sensors = self.broker.sensors().clone();
        match sensors.update(&name, value.clone().into(), self.revision).await {
            Ok(revision) => self.revision = revision,
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {
                match self.other_entry().await {
                    Ok(Some((revision, entry))) if entry.instance == self.instance => {
                        self.revision = revision;
                    }
                    Ok(Some((_, entry))) if !entry.instance.is_empty() => {
                        return Err(self.taken(entry));
                    }
                    Ok(_) => {
                        // It had disappeared: the broker was away for longer than it keeps entries.
                        if let Ok(revision) = sensors.create(&name, value.into()).await {
                            self.revision = revision;
                        }
                    }
                    Err(error) => self.is_in_trouble(error.to_string()),
                }
            }
            Err(error) => self.is_in_trouble(format!("the broker: writing the list: {error}")),
        }
        Ok(())
    }

    /// Answers a question; `None` for one that this version does not know, or that is for others.
    fn asked(&mut self, question: &[u8]) -> Option<Vec<u8>> {
        let Ask::Try { text, last, only } = serde_json::from_slice(question).ok()?;
        if !has(&self.options.labels, &only) {
            return None;
        }
        let tried = self.local.try_filter(&text, last).unwrap_or_else(|error| {
            let is_refused = matches!(error, LocalError::Refused { .. });
            if !is_refused {
                self.is_unreached(&error);
            }
            Tried { failed: Some(error.to_string()), is_refused, ..Tried::default() }
        });
        let sensor = self.options.name.to_string();
        serde_json::to_vec(&Tried { sensor, ..tried }).ok()
    }
}

/// True if an edit removes filters: they may be here, whatever labels the edit asks for.
fn removes(edit: &Accepted) -> bool {
    edit.edit.changes.iter().any(|change| matches!(change, Change::Delete { .. }))
}
