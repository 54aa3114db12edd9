//! Makes edits of a group and waits for the answers of its sensors.

use crate::broker::{Broker, BrokerError};
use crate::edit::{Accepted, Change, Edit, Labels, VERSION};
use crate::keys::{Author, Trusted};
use crate::message::{Answer, Answers, Ask, Entry, Outcome, Tried};
use crate::state::{State, StateError, has, undo};
use crate::{Name, snapshot, unix_ms};
use async_nats::Subscriber;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{timeout, timeout_at};

/// Most messages of one reading.
const READING: u64 = 4_096;
/// Answers that are requested at once.
const AT_ONCE: usize = 64;
/// Time for answers to a question.
const ASKING: Duration = Duration::from_secs(2);

/// Reason why an edit was not made.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The broker refuses, or does not answer.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// Another edit came first.
    #[error(
        "{author} made edit {sequence} meanwhile ({changes}): nothing was changed; look at it (`fyke fleet log`) and \
         repeat yours"
    )]
    Conflict {
        /// Its author.
        author: String,
        /// Its sequence.
        sequence: u64,
        /// Its changes.
        changes: String,
    },
    /// Its author is not in the file of trusted authors.
    #[error(
        "{author} is not a trusted author with this key, so sensors refuse the edit; add the line that follows to the \
         file of --trust, here and at each sensor\n{line}"
    )]
    NotTrusted {
        /// Its author.
        author: String,
        /// The line for the file.
        line: String,
    },
    /// It does not fit the filters of the group.
    #[error(transparent)]
    State(#[from] StateError),
    /// It cannot be made.
    #[error("{0}")]
    Refused(String),
}

/// An edit of the group, for a log.
#[derive(Debug, Clone)]
pub struct Logged {
    /// Its sequence.
    pub sequence: u64,
    /// The edit, or the reason why it has no effect.
    pub edit: Result<Accepted, String>,
}

/// A sensor that runs.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its entry.
    pub entry: Entry,
    /// The last answer of this run of it, and the time at which the broker got it, milliseconds since 1970.
    pub last: Option<(Answer, u64)>,
}

/// The answers of sensors to an edit.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The sequence of the edit.
    pub sequence: u64,
    /// The sensors that it is for, with their answers and the time until these were here.
    pub sensors: BTreeMap<String, Option<(Outcome, Duration)>>,
}

impl Report {
    /// The time until it was in force at all sensors; `None` if it is not.
    pub fn everywhere(&self) -> Option<Duration> {
        let times = self.sensors.values().map(|answer| match answer {
            Some((outcome, time)) if outcome.is_in_force() => Some(*time),
            _ => None,
        });
        times.collect::<Option<Vec<_>>>().map(|times| times.into_iter().max().unwrap_or_default())
    }

    /// Number of sensors at which it is in force.
    pub fn in_force(&self) -> usize {
        self.sensors.values().flatten().filter(|(outcome, _)| outcome.is_in_force()).count()
    }
}

/// Reads a group, and edits it as an author.
#[derive(Debug)]
pub struct Operator {
    broker: Broker,
    trusted: Trusted,
    state: State,
    /// All edits, oldest first.
    log: Vec<Logged>,
    /// True after a snapshot that could not be stored.
    is_snapshot_due: bool,
}

/// Checks that an author may make edits.
///
/// # Errors
/// [`OperatorError::NotTrusted`].
pub fn check_author(trusted: &Trusted, author: &Author) -> Result<(), OperatorError> {
    match trusted.has(author) {
        true => Ok(()),
        false => Err(OperatorError::NotTrusted {
            author: author.name().to_string(),
            line: author.public_line(),
        }),
    }
}

impl Operator {
    /// Reads the edits of the group.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn new(broker: Broker, trusted: Trusted) -> Result<Operator, BrokerError> {
        let mut operator = Operator {
            broker,
            trusted,
            state: State::default(),
            log: Vec::new(),
            is_snapshot_due: false,
        };
        operator.read().await?;
        Ok(operator)
    }

    /// Reads the last snapshot of the group, and the edits after it: [`log`](Self::log) has only these.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn from_snapshot(broker: Broker, trusted: Trusted) -> Result<Operator, BrokerError> {
        // One that is not taken costs time, nothing else.
        let state = snapshot::load(&broker, &trusted).await.ok().flatten().unwrap_or_default();
        let log = Vec::new();
        let mut operator = Operator { broker, trusted, state, log, is_snapshot_due: false };
        operator.read().await?;
        Ok(operator)
    }

    /// Reads edits that are new; returns their number.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn read(&mut self) -> Result<usize, BrokerError> {
        let before = self.log.len();
        let last = self.broker.last().await?;
        while self.state.sequence < last {
            let first = self.state.sequence + 1;
            for (sequence, message) in
                self.broker.range(first, last.min(first + READING - 1)).await?
            {
                let group = self.broker.group();
                let edit = Edit::read(&message, &self.trusted, group, self.state.sequence);
                let edit = edit.and_then(|edit| {
                    self.state.apply(sequence, &edit).map_err(|error| error.to_string())?;
                    Ok(edit)
                });
                self.state.sequence = sequence;
                self.log.push(Logged { sequence, edit });
            }
        }
        Ok(self.log.len() - before)
    }

    /// The filters of the group.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// All edits.
    pub fn log(&self) -> &[Logged] {
        &self.log
    }

    /// The broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The sensors that run.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn sensors(&self) -> Result<Vec<Entry>, BrokerError> {
        let entries = self.broker.entries().await?;
        let entries = entries.iter().filter_map(|entry| serde_json::from_slice(entry).ok());
        let mut entries: Vec<Entry> = entries.collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// The sensors that run, each with its last answer; entries without a proper name are left out.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn standings(&self) -> Result<Vec<Standing>, BrokerError> {
        let entries = self.sensors().await?.into_iter();
        // Another text could name the subjects of several sensors.
        let named = entries.filter_map(|entry| Name::new(&entry.name).ok().zip(Some(entry)));
        stream::iter(named)
            .map(|(name, entry)| async move {
                let last = self.broker.last_answers(&name).await?;
                let last = last.and_then(|(message, unix_ms)| {
                    let told: Answers = serde_json::from_slice(&message).ok()?;
                    let is_own = told.instance == entry.instance;
                    told.answers.into_iter().next_back().filter(|_| is_own).zip(Some(unix_ms))
                });
                Ok(Standing { entry, last })
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Forgets the edits that were read, and keeps the filters: for a reader that runs for long and undoes nothing.
    pub fn forget_log(&mut self) {
        self.log.clear();
    }

    /// The changes that take back an edit; `None`: the last one that `author` made and that is in force.
    ///
    /// # Errors
    /// There is none, or later edits depend on it.
    pub fn undo(
        &self,
        author: &Author,
        sequence: Option<u64>,
    ) -> Result<(u64, Labels, Vec<Change>), OperatorError> {
        let undone = |sequence| {
            self.log.iter().any(|logged| {
                logged.edit.as_ref().is_ok_and(|edit| edit.edit.undoes == Some(sequence))
            })
        };
        let own = |logged: &&Logged| match (&logged.edit, sequence) {
            (Ok(edit), None) => {
                edit.author == author.name().as_str()
                    && edit.edit.undoes.is_none()
                    && !undone(logged.sequence)
            }
            (_, Some(sequence)) => logged.sequence == sequence,
            (Err(_), None) => false,
        };
        let refused = |why: String| OperatorError::Refused(why);
        let found = self.log.iter().rev().find(own);
        let found =
            found.ok_or_else(|| refused("there is no such edit to take back".to_owned()))?;
        let sequence = found.sequence;
        let edit = match &found.edit {
            Ok(edit) if undone(sequence) => {
                let author = &edit.author;
                return Err(refused(format!("edit {sequence} of {author} is taken back already")));
            }
            Ok(edit) => edit,
            Err(why) => return Err(refused(format!("edit {sequence} had no effect: {why}"))),
        };
        let mut before = State::default();
        for logged in self.log.iter().take_while(|logged| logged.sequence < sequence) {
            if let Ok(edit) = &logged.edit {
                before.apply(logged.sequence, edit)?;
            }
        }
        let changes = undo(&before, edit, sequence, &self.state).map_err(refused)?;
        Ok((sequence, edit.edit.only.clone(), changes))
    }

    /// Makes an edit after the last one that this operator has read, and waits for the answers of the sensors that run.
    ///
    /// # Errors
    /// Another edit came first, its author is not trusted, it does not fit, or the broker does not take it.
    pub async fn edit(
        &mut self,
        author: &Author,
        only: &Labels,
        changes: Vec<Change>,
        undoes: Option<u64>,
        wait: Duration,
    ) -> Result<Report, OperatorError> {
        let edit = Edit {
            version: VERSION,
            group: self.broker.group().to_string(),
            after: self.state.sequence,
            unix_ms: unix_ms(),
            only: only.clone(),
            changes,
            undoes,
        };
        check_author(&self.trusted, author)?;
        let message = edit.signed(author).map_err(OperatorError::Refused)?;
        let accepted = Accepted { edit, author: author.name().to_string() };
        self.state.clone().apply(self.state.sequence + 1, &accepted)?;
        let removes =
            accepted.edit.changes.iter().any(|change| matches!(change, Change::Delete { .. }));
        let sensors = self.sensors().await?.into_iter();
        let sensors = sensors.filter(|sensor| removes || has(&sensor.labels, only));
        let sensors: Vec<String> = sensors.map(|sensor| sensor.name).collect();
        let mut answers = self.answers().await?;
        let start = Instant::now();
        let after = accepted.edit.after;
        let sequence = match self.broker.publish(message.clone(), after).await {
            Ok(sequence) => sequence,
            Err(error) => self.after_failure(error, &message).await?,
        };
        self.read().await?;
        let mut report = Report { sequence, sensors: BTreeMap::new() };
        report.sensors.extend(sensors.into_iter().map(|name| (name, None)));
        if sequence % snapshot::EVERY == 0 || self.is_snapshot_due {
            // The edit is made; without a snapshot sensors read more edits. The next edit tries again.
            let stored = snapshot::store(&self.broker, &self.state, author, &self.trusted).await;
            self.is_snapshot_due = stored.is_err();
        }
        let deadline = tokio::time::Instant::now() + wait;
        while report.sensors.values().any(Option::is_none) {
            let Ok(Some(message)) = timeout_at(deadline, answers.next()).await else { break };
            let Ok(told) = serde_json::from_slice::<Answers>(&message.payload) else { continue };
            // The subject, not the message, tells the sensor: the broker may limit what each can send.
            let name = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
            for answer in told.answers.into_iter().filter(|answer| answer.sequence == sequence) {
                if let Some(place) = report.sensors.get_mut(&name) {
                    *place = Some((answer.outcome, start.elapsed()));
                }
            }
        }
        report.sensors.retain(|_, told| {
            told.as_ref().is_none_or(|(outcome, _)| *outcome != Outcome::NotAddressed)
        });
        Ok(report)
    }

    /// After a failed publish: the broker may have taken the edit all the same.
    async fn after_failure(
        &mut self,
        error: BrokerError,
        message: &[u8],
    ) -> Result<u64, OperatorError> {
        let next = self.state.sequence + 1;
        match self.broker.edit(next).await? {
            Some(there) if there == message => Ok(next),
            Some(there) => {
                let group = self.broker.group();
                let other = Edit::read(&there, &self.trusted, group, self.state.sequence);
                let (author, changes) = other.map_or_else(
                    |why| ("an unknown author".to_owned(), format!("refused: {why}")),
                    |other| (other.author, shown(&other.edit.changes)),
                );
                Err(OperatorError::Conflict { author, sequence: next, changes })
            }
            None => Err(error.into()),
        }
    }

    /// Answers as they arrive from now on.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn answers(&self) -> Result<Subscriber, BrokerError> {
        let failed = |why: String| BrokerError::Failed { what: "subscribing", why };
        let client = self.broker.client();
        let answers = client.subscribe(self.broker.subject("answers.*")).await;
        let answers = answers.map_err(|error| failed(error.to_string()))?;
        // The broker knows of the subscription before it gets the edit.
        client.flush().await.map_err(|error| failed(error.to_string()))?;
        Ok(answers)
    }

    /// Asks all sensors how many of their latest frames a filter would accept; a sensor without an answer has failed.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn try_filter(
        &self,
        text: &str,
        last: Option<u64>,
        only: &Labels,
    ) -> Result<Vec<Tried>, BrokerError> {
        let failed = |why: String| BrokerError::Failed { what: "asking the sensors", why };
        let mut silent = self.sensors().await?;
        silent.retain(|sensor| has(&sensor.labels, only));
        let client = self.broker.client();
        let inbox = client.new_inbox();
        let mut replies =
            client.subscribe(inbox.clone()).await.map_err(|error| failed(error.to_string()))?;
        let ask = Ask::Try { text: text.to_owned(), last, only: only.clone() };
        let ask = serde_json::to_vec(&ask).map_err(|error| failed(error.to_string()))?;
        let sent = client.publish_with_reply(self.broker.subject("ask"), inbox, ask.into()).await;
        sent.map_err(|error| failed(error.to_string()))?;
        let mut told: Vec<Tried> = Vec::new();
        let deadline = tokio::time::Instant::now() + ASKING;
        while !silent.is_empty() {
            let Ok(Some(reply)) = timeout_at(deadline, replies.next()).await else { break };
            let Ok(tried) = serde_json::from_slice::<Tried>(&reply.payload) else { continue };
            silent.retain(|sensor| sensor.name != tried.sensor);
            told.push(tried);
        }
        let _ended = timeout(ASKING, replies.unsubscribe()).await;
        let failed = Some(format!("no answer within {} s", ASKING.as_secs()));
        told.extend(silent.into_iter().map(|sensor| Tried {
            sensor: sensor.name,
            failed: failed.clone(),
            ..Tried::default()
        }));
        told.sort_by(|one, other| one.sensor.cmp(&other.sensor));
        Ok(told)
    }
}

/// The next answers of a sensor; messages that are none are left out. `None` at the end of the connection.
pub async fn next(answers: &mut Subscriber) -> Option<Answers> {
    loop {
        if let Ok(told) = serde_json::from_slice(&answers.next().await?.payload) {
            return Some(told);
        }
    }
}

/// Changes as a line.
pub fn shown(changes: &[Change]) -> String {
    let shown = changes.iter().take(3).map(|change| match change {
        Change::Clear => "clear".to_owned(),
        Change::Add { text } => format!("add {}", text.escape_debug()),
        Change::Delete { id } => format!("del {id}"),
    });
    let mut line = shown.collect::<Vec<_>>().join("; ");
    if changes.len() > 3 {
        line += &format!("; and {} more", changes.len() - 3);
    }
    line
}
