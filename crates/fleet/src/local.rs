//! The fyke beside a sensor.

use crate::message;
use fyke_control::{CallError, Change, Client, EntryKind, Request, Response};
use std::time::Duration;

/// Longest wait for an answer of the fyke beside the sensor.
const LIMIT: Duration = Duration::from_secs(10);

/// Outcome of a local edit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edited {
    /// The epoch that it began.
    pub epoch: u64,
    /// Frames seen when it was in force.
    pub frame: u64,
    /// Nanoseconds that it took.
    pub latency_ns: u64,
    /// Local ids of the added filters, for each added text.
    pub ids: Vec<Vec<u64>>,
}

/// Reason why a local call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The fyke refuses the edit, which changed nothing.
    #[error("{0}")]
    Refused(String),
    /// There is none, or it has ended.
    #[error("no fyke beside this sensor: {0}")]
    Gone(String),
}

/// A fyke that filters frames.
pub trait Local: Send {
    /// Its description and counts.
    ///
    /// # Errors
    /// It is gone.
    fn describe(&mut self) -> Result<message::Local, LocalError>;

    /// Applies changes as one edit: all of them or none.
    ///
    /// # Errors
    /// It refuses them, or is gone.
    fn edit(&mut self, changes: Vec<Change>) -> Result<Edited, LocalError>;

    /// Evaluates frames of the past under a filter that is not in force.
    ///
    /// # Errors
    /// It refuses the text, or is gone.
    fn try_filter(&mut self, text: &str, last: Option<u64>) -> Result<message::Tried, LocalError>;
}

/// The choice of the fyke beside a sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// The only live capture.
    Only,
    /// The one with this process id.
    Process(u32),
    /// The only one with this source, such as `serve:eth0`; also the next one, if it is started again.
    Source(String),
}

impl Beside {
    /// The process id to connect to; `None` for the only live capture.
    fn pid(&self) -> Result<Option<u32>, String> {
        let source = match self {
            Beside::Only => return Ok(None),
            Beside::Process(pid) => return Ok(Some(*pid)),
            Beside::Source(source) => source,
        };
        let all = fyke_control::list();
        let is_of = |one: &&fyke_control::Instance| {
            one.description.as_ref().is_some_and(|it| it.source == *source)
        };
        let found: Vec<u32> = all.iter().filter(is_of).map(|one| one.pid).collect();
        match found[..] {
            [pid] => Ok(Some(pid)),
            [] => Err(format!("no running fyke has the source {source}")),
            _ => Err(format!("{} running fykes have the source {source}", found.len())),
        }
    }
}

/// A fyke by its control socket; connects again after it has been restarted.
#[derive(Debug)]
pub struct Controlled {
    beside: Beside,
    program: String,
    client: Option<Client>,
    /// True once it is known that its texts are no graphs.
    checked: bool,
}

impl Controlled {
    /// A fyke. `program` is the name in its log of edits.
    pub fn new(beside: Beside, program: &str) -> Controlled {
        Controlled { beside, program: program.to_owned(), client: None, checked: false }
    }

    fn call(&mut self, request: Request) -> Result<Response, LocalError> {
        let client = match &mut self.client {
            Some(client) => client,
            None => {
                let pid = self.beside.pid().map_err(LocalError::Gone)?;
                let mut client =
                    Client::connect(pid).map_err(|error| LocalError::Gone(error.to_string()))?;
                client.set_answer_limit(LIMIT);
                client.hello(&self.program).map_err(|error| LocalError::Gone(error.to_string()))?;
                self.client.insert(client)
            }
        };
        match client.call(request) {
            Ok(Response::Refused { change, message }) => {
                Err(LocalError::Refused(format!("change {}: {message}", change + 1)))
            }
            Ok(response) => Ok(response),
            Err(CallError::Refused(message)) => Err(LocalError::Refused(message)),
            Err(error @ CallError::TooLong { .. }) => Err(LocalError::Refused(error.to_string())),
            Err(error) => {
                (self.client, self.checked) = (None, false);
                Err(LocalError::Gone(error.to_string()))
            }
        }
    }

    /// Refuses a fyke with texts that are graphs: the nodes of a graph may open files, devices and programs.
    fn check_texts(&mut self) -> Result<(), LocalError> {
        let filters = match self.call(Request::Show)? {
            Response::Passes { filters, .. } => filters,
            other => return Err(LocalError::Gone(format!("expected filters, got {other:?}"))),
        };
        let description = match self.call(Request::Describe)? {
            Response::Description(description) => description,
            other => {
                return Err(LocalError::Gone(format!("expected a description, got {other:?}")));
            }
        };
        let runs_graphs = description.command_line.get(1).is_some_and(|command| command == "run");
        match runs_graphs || filters.iter().any(|filter| filter.kind == EntryKind::Graph) {
            true => Err(LocalError::Refused(
                "its filters are flow graphs, which may open files: a group edits dump, track, demux, exec and ids"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Frames seen so far.
    fn stats(&mut self) -> Result<fyke_control::Stats, LocalError> {
        match self.call(Request::Stats)? {
            Response::Stats(stats) => Ok(stats),
            other => Err(LocalError::Gone(format!("expected counts, got {other:?}"))),
        }
    }
}

impl Local for Controlled {
    fn describe(&mut self) -> Result<message::Local, LocalError> {
        let description = match self.call(Request::Describe)? {
            Response::Description(description) => description,
            other => {
                return Err(LocalError::Gone(format!("expected a description, got {other:?}")));
            }
        };
        let stats = self.stats()?;
        Ok(message::Local {
            pid: description.pid,
            source: description.source,
            link: description.link,
            epoch: stats.epoch,
            seen: stats.accounting.seen,
            accepted: stats.accounting.delivered,
            rejected: stats.accounting.rejected,
            taken: stats.accounting.taken,
            lost: stats.accounting.lost.values().sum(),
        })
    }

    fn edit(&mut self, changes: Vec<Change>) -> Result<Edited, LocalError> {
        if !self.checked {
            self.check_texts()?;
            self.checked = true;
        }
        let added = changes.iter().filter(|change| matches!(change, Change::Add { .. })).count();
        let (epoch, ids, latency_ns) = match self.call(Request::Edit { changes })? {
            Response::Ok { epoch, ids, latency_ns, .. } => (epoch, ids, latency_ns),
            other => return Err(LocalError::Gone(format!("expected an epoch, got {other:?}"))),
        };
        // Each text gets one id; only one text of rules may get several.
        let ids = match added {
            1 => vec![ids],
            _ => ids.into_iter().map(|id| vec![id]).collect(),
        };
        let frame = self.stats()?.accounting.seen;
        Ok(Edited { epoch, frame, latency_ns, ids })
    }

    fn try_filter(&mut self, text: &str, last: Option<u64>) -> Result<message::Tried, LocalError> {
        match self.call(Request::Try { text: text.to_owned(), last })? {
            Response::Tried(tried) => Ok(message::Tried {
                frames: tried.past.frames,
                accepted: tried.accepted,
                new: tried.new,
                ..message::Tried::default()
            }),
            other => Err(LocalError::Gone(format!("expected counts, got {other:?}"))),
        }
    }
}
