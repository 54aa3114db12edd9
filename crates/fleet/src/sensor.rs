//! A sensor: keeps the filters of its group in force at the fyke beside it, and answers each edit.
//!
//! The edits are read in their order; each has one answer ([`Outcome`]). After an outage, or at the start, many edits
//! are put in force as one, and the answers name the last of them. If the fyke beside the sensor ends, the filters of
//! the group are put in force again at the next one.

use crate::Name;
use crate::broker::{Broker, BrokerError};
use crate::edit::{Accepted, Change, Edit, FilterId, Labels};
use crate::keys::Trusted;
use crate::local::{Local, LocalError};
use crate::message::{Answer, Answers, Ask, Entry, Outcome, Tried};
use crate::state::{State, has};
use crate::{snapshot, unix_ms};
use async_nats::jetstream::kv::{CreateErrorKind, UpdateErrorKind};
use futures_util::StreamExt;
use fyke_control::Change as LocalChange;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Time between two entries in the list of sensors, and between two comparisons with the stream.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A name is free if its entry has not changed for this time.
const SILENT: Duration = Duration::from_secs(5);
/// From this number of edits on they are put in force together.
const TOGETHER: usize = 16;
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

/// A sensor.
pub struct Sensor<L> {
    options: Options,
    broker: Broker,
    local: L,
    instance: String,
    revision: u64,
    state: State,
    /// The local ids of the group's filters that are in force.
    in_force: BTreeMap<FilterId, Vec<u64>>,
    /// The process of the fyke in which they are.
    pid: Option<u32>,
    /// Filters that the fyke refused.
    refused_filters: BTreeSet<FilterId>,
    refused: u64,
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
            options,
            broker,
            local,
            instance,
            revision: 0,
            state: State::default(),
            in_force: BTreeMap::new(),
            pid: None,
            refused_filters: BTreeSet::new(),
            refused: 0,
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
        let client = self.broker.client().clone();
        let subscribed = |error: async_nats::SubscribeError| BrokerError::Failed {
            what: "subscribing",
            why: error.to_string(),
        };
        let mut edits = client.subscribe(self.broker.subject("edits")).await.map_err(subscribed)?;
        let mut asks = client.subscribe(self.broker.subject("ask")).await.map_err(subscribed)?;
        self.take_name().await?;
        self.take_snapshot().await;
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = beat.tick() => {
                    self.check_local();
                    self.catch_up().await;
                    self.write_entry().await?;
                }
                Some(_) = edits.next() => self.follow().await,
                Some(message) = asks.next() => {
                    let answer = self.asked(&message.payload);
                    if let (Some(reply), Some(answer)) = (message.reply, answer) {
                        let _lost = client.publish(reply, answer.into()).await;
                    }
                }
                else => break,
            }
        }
        self.send_answers().await;
        let _disappears_by_itself = self.broker.sensors().delete(self.options.name.as_str()).await;
        Ok(())
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
        loop {
            let last = match self.broker.last().await {
                Ok(last) => last,
                Err(error) => return self.is_in_trouble(error.to_string()),
            };
            if last < self.state.sequence {
                let why = format!(
                    "the stream of the group ends at {last}, before {}: the broker has lost edits; the filters stay",
                    self.state.sequence
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
        let many = messages.len() >= TOGETHER;
        for (sequence, message) in messages {
            let cleared = self.state.cleared;
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
                    self.refused += 1;
                    (self.notes)(format!("edit {sequence} refused: {message}"));
                    Outcome::Refused { message }
                }
                Ok(edit) if !has(labels, &edit.edit.only) && !removes(&edit) => {
                    Outcome::NotAddressed
                }
                Ok(_) if many => {
                    together.push((sequence, self.state.cleared != cleared));
                    continue;
                }
                Ok(_) => self.put_in_force(sequence, self.state.cleared != cleared),
            };
            self.answer(Answer { sequence, outcome });
        }
        let Some(&(last, _)) = together.last() else { return };
        let clears = together.iter().any(|(_, clears)| *clears);
        let outcome = self.put_in_force(last, clears);
        for (sequence, _) in &together[..together.len() - 1] {
            self.answer(Answer { sequence: *sequence, outcome: Outcome::Superseded { by: last } });
        }
        self.answer(Answer { sequence: last, outcome });
    }

    /// Makes the fyke beside the sensor have the filters of the group; `clears`: and no others.
    fn put_in_force(&mut self, sequence: u64, clears: bool) -> Outcome {
        let wanted: Vec<(FilterId, String)> = self
            .state
            .for_labels(&self.options.labels)
            .map(|filter| (filter.id, filter.text.clone()))
            .collect();
        let mut changes = Vec::new();
        let mut kept = BTreeMap::new();
        if clears {
            changes.push(LocalChange::Set { text: String::new() });
        } else {
            let is_wanted: BTreeSet<FilterId> = wanted.iter().map(|(id, _)| *id).collect();
            for (id, own) in &self.in_force {
                match is_wanted.contains(id) {
                    true => drop(kept.insert(*id, own.clone())),
                    false => changes.extend(own.iter().map(|id| LocalChange::Delete { id: *id })),
                }
            }
        }
        let missing = wanted.into_iter().filter(|(id, _)| {
            !kept.contains_key(id) && (clears || !self.refused_filters.contains(id))
        });
        let missing: Vec<(FilterId, String)> = missing.collect();
        let add = |text: &String| LocalChange::Add {
            text: text.clone(),
            name: None,
            for_ms: None,
            snaplen: None,
        };
        changes.extend(missing.iter().map(|(_, text)| add(text)));
        let edited = match changes.is_empty() {
            true => self.local.describe().map(|local| crate::local::Edited {
                epoch: local.epoch,
                frame: local.seen,
                ..crate::local::Edited::default()
            }),
            false => self.local.edit(changes),
        };
        match edited {
            Ok(edited) => {
                kept.extend(missing.into_iter().map(|(id, _)| id).zip(edited.ids));
                self.in_force = kept;
                let (epoch, frame, latency_ns) = (edited.epoch, edited.frame, edited.latency_ns);
                Outcome::InForce { epoch, frame, latency_ns }
            }
            Err(error) => {
                if let LocalError::Gone(_) = error {
                    self.in_force.clear();
                    self.pid = None;
                } else {
                    self.refused_filters.extend(missing.into_iter().map(|(id, _)| id));
                }
                self.refused += 1;
                let message = error.to_string();
                (self.notes)(format!("edit {sequence} is not in force here: {message}"));
                Outcome::Refused { message }
            }
        }
    }

    /// Puts the filters in force again if the fyke is another one than before, or was not there.
    fn check_local(&mut self) {
        let found = self.local.describe();
        let pid = found.as_ref().ok().map(|local| local.pid);
        if pid == self.pid {
            return;
        }
        self.in_force.clear();
        self.refused_filters.clear();
        self.pid = pid;
        let Ok(local) = found else {
            (self.notes)(
                "the fyke beside this sensor has ended; waiting for another one".to_owned(),
            );
            return;
        };
        (self.notes)(format!("beside the fyke with process id {}, {}", local.pid, local.source));
        if self.state.sequence > 0 {
            let sequence = self.state.sequence;
            let outcome = self.put_in_force(sequence, self.state.cleared > 0);
            self.answer(Answer { sequence, outcome });
        }
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
        Entry {
            name: self.options.name.to_string(),
            instance: self.instance.clone(),
            host,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.options.labels.clone(),
            unix_ms: unix_ms(),
            sequence: self.state.sequence,
            refused: self.refused,
            fyke: self.local.describe().ok(),
            trouble: self.trouble.clone(),
        }
    }

    /// Takes the name: at once if it is free, or after its entry has not changed for a while.
    async fn take_name(&mut self) -> Result<(), SensorError> {
        let mut seen: Option<(u64, Instant)> = None;
        loop {
            let value = serde_json::to_vec(&self.entry()).unwrap_or_default();
            let name = self.options.name.as_str();
            match self.broker.sensors().create(name, value.into()).await {
                Ok(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = "writing the list of sensors";
                    return Err(BrokerError::Failed { what, why: error.to_string() }.into());
                }
            }
            let Some(entry) = self.other_entry().await? else { continue };
            match seen {
                Some((revision, _)) if revision != entry.0 => return Err(self.taken(entry.1)),
                Some((revision, since)) if since.elapsed() >= SILENT => {
                    self.revision = revision;
                    return self.write_entry().await;
                }
                Some(_) => {}
                None => {
                    let name = &self.options.name;
                    let host = &entry.1.host;
                    (self.notes)(format!("{name} was a sensor on {host}: waiting whether it is"));
                    seen = Some((entry.0, Instant::now()));
                }
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// The entry under this sensor's name, with its revision.
    async fn other_entry(&mut self) -> Result<Option<(u64, Entry)>, BrokerError> {
        let found = self.broker.sensors().entry(self.options.name.as_str()).await;
        let found = found.map_err(|error| BrokerError::Failed {
            what: "reading the list of sensors",
            why: error.to_string(),
        })?;
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
        let tried = self.local.try_filter(&text, last);
        let tried = tried
            .unwrap_or_else(|error| Tried { failed: Some(error.to_string()), ..Tried::default() });
        let sensor = self.options.name.to_string();
        serde_json::to_vec(&Tried { sensor, ..tried }).ok()
    }
}

/// True if an edit removes filters: they may be here, whatever labels the edit asks for.
fn removes(edit: &Accepted) -> bool {
    edit.edit.changes.iter().any(|change| matches!(change, Change::Delete { .. }))
}
