//! The fyke beside a sensor.
//!
//! The sensor keeps no file: the fyke itself knows what it has of the group, as long as it runs. A filter of the group
//! has the name `fleet/GROUP/ID` there, and the log of the fyke names the sequence of each edit that a sensor made.
//! Both come into force with the edit, so a sensor that is killed at any time finds out what it has applied.

use crate::edit::FilterId;
use crate::{Name, hex, message};
use fyke_control::{
    CallError, Change, Client, ConnectError, EditAuthor, EntryKind, Instance, Request, Response,
};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Longest wait for an answer of the fyke beside the sensor.
const LIMIT: Duration = Duration::from_secs(3);
/// The same for the answer that a silent fyke still owes.
const LATE: Duration = Duration::from_millis(100);
/// Most characters of a group in the name of a filter, which has at most 64.
const MAX_GROUP: usize = 40;

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

/// The filters of a group that a fyke has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The filters of the group that are in force, with their local ids.
    pub filters: BTreeMap<FilterId, Vec<u64>>,
    /// The last sequence that a sensor applied; 0 for none, `None` if the log of the fyke does not reach back so far.
    pub applied: Option<u64>,
    /// The epoch that it began, if the log has it.
    pub epoch: Option<u64>,
}

/// Names of a group's filters and edits at a fyke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    filter: String,
    program: String,
}

impl Names {
    /// The names of a group. One of more than 40 characters is cut, and has eight digits of its digest in their place.
    pub fn new(group: &Name) -> Names {
        let text = group.as_str();
        let short = match text.len() > MAX_GROUP {
            true => {
                let digits = hex::of(&digest(&SHA256, text.as_bytes()).as_ref()[..4]);
                format!("{}~{digits}", &text[..MAX_GROUP - 9])
            }
            false => text.to_owned(),
        };
        Names { filter: format!("fleet/{short}/"), program: format!("fyke sensor of {group}") }
    }

    /// The name of a filter.
    pub fn filter(&self, id: FilterId) -> String {
        format!("{}{id}", self.filter)
    }

    /// The filter with this name.
    pub fn filter_of(&self, name: &str) -> Option<FilterId> {
        name.strip_prefix(&self.filter)?.parse().ok()
    }

    /// The program in the log of an edit.
    pub fn edit(&self, sequence: u64) -> String {
        format!("{}, edit {sequence}", self.program)
    }

    /// The sequence of an edit by this program.
    pub fn edit_of(&self, program: &str) -> Option<u64> {
        program.strip_prefix(&self.program)?.strip_prefix(", edit ")?.parse().ok()
    }
}

/// Reason why a local call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The fyke refuses the edit, which changed nothing.
    #[error("{message}")]
    Refused {
        /// Index of the change that it refuses, if it is one.
        change: Option<usize>,
        /// The reason.
        message: String,
    },
    /// There is none, or it has ended.
    #[error("no fyke beside this sensor: {0}")]
    Gone(String),
    /// It is there and does not answer: a request that it has not answered may be carried out later, before any other.
    #[error("the fyke beside this sensor does not answer: {0}")]
    Silent(String),
    /// It answers that it cannot make the edit now, which has changed nothing; what it needs for it, such as a service,
    /// does not answer.
    #[error("the fyke beside this sensor cannot make edits now: {0}")]
    Unable(String),
}

/// A fyke that filters frames.
pub trait Local: Send {
    /// Its description and counts.
    ///
    /// # Errors
    /// It is gone, or silent.
    fn describe(&mut self) -> Result<message::Local, LocalError>;

    /// The filters of the group that it has, and the last edit of the group that was applied to it.
    ///
    /// # Errors
    /// It does not tell, is gone, or silent.
    fn held(&mut self) -> Result<Held, LocalError>;

    /// Applies changes as one edit, which the log knows as the edit with this sequence: all of them or none.
    ///
    /// # Errors
    /// It refuses them, is gone, or silent; what was sent to a silent one is carried out before later requests, or not
    /// at all.
    fn edit(&mut self, sequence: u64, changes: Vec<Change>) -> Result<Edited, LocalError>;

    /// Evaluates frames of the past under a filter that is not in force.
    ///
    /// # Errors
    /// It refuses the text, is gone, or silent.
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
        match self {
            Beside::Process(pid) => Ok(Some(*pid)),
            Beside::Only => only(&fyke_control::list()),
            Beside::Source(source) => of_source(&fyke_control::list(), source).map(Some),
        }
    }
}

/// True for `fyke serve`: its texts are those of its readers, and a sensor is beside one of these.
fn is_service(one: &Instance) -> bool {
    let words = one.description.as_ref().map(|it| &it.command_line);
    words.and_then(|words| words.get(1)).is_some_and(|command| command == "serve")
}

/// The only live capture that is no service; `None`: there is none, or several.
fn only(all: &[Instance]) -> Result<Option<u32>, String> {
    // One that does not answer may be a live capture.
    let is_live = |one: &&Instance| one.description.as_ref().is_none_or(|it| it.live);
    let live: Vec<&Instance> = all.iter().filter(is_live).collect();
    let captures: Vec<&Instance> = live.iter().filter(|one| !is_service(one)).copied().collect();
    match (&captures[..], &live[..]) {
        ([one], _) => Ok(Some(one.pid)),
        ([], [_, ..]) => Err(
            "only a service runs on its machine, which has no filters of its own; start a reader, such as \
             `fyke dump -i serve:NAME`"
                .to_owned(),
        ),
        _ => Ok(None),
    }
}

/// The only fyke with this source that is no service.
fn of_source(all: &[Instance], source: &str) -> Result<u32, String> {
    let is_of = |one: &&Instance| one.description.as_ref().is_some_and(|it| it.source == *source);
    let found: Vec<&Instance> = all.iter().filter(is_of).collect();
    let captures: Vec<u32> =
        found.iter().filter(|one| !is_service(one)).map(|one| one.pid).collect();
    match (&captures[..], &found[..]) {
        (&[pid], _) => Ok(pid),
        ([], []) => Err(format!("no running fyke has the source {source}")),
        ([], _) => Err(format!(
            "only a service captures {source}, which has no filters of its own; name the source of a reader, such as \
             serve:{source}"
        )),
        (several, _) => Err(format!("{} running fykes have the source {source}", several.len())),
    }
}

/// A fyke by its control socket; connects again after it has been restarted.
#[derive(Debug)]
pub struct Controlled {
    beside: Beside,
    names: Names,
    client: Option<Client>,
    /// True while the fyke has not answered the last request. The connection stays, because a request in it is carried
    /// out before those that follow.
    owes: bool,
    /// True once it is known that its texts are no graphs.
    checked: bool,
}

impl Controlled {
    /// A fyke with filters of a group.
    pub fn new(beside: Beside, group: &Name) -> Controlled {
        Controlled { beside, names: Names::new(group), client: None, owes: false, checked: false }
    }

    /// Waits a moment for the answer that a silent fyke owes; what it is shows in the list and the log of the fyke.
    fn settle(&mut self) -> Result<(), LocalError> {
        let Some(client) = self.client.as_mut().filter(|_| self.owes) else { return Ok(()) };
        match client.late_answer(LATE) {
            Ok(_) | Err(CallError::Refused(_)) => self.owes = false,
            Err(CallError::Failed(message)) => {
                self.owes = false;
                return Err(LocalError::Unable(message));
            }
            Err(error @ CallError::Silent { .. }) => {
                return Err(LocalError::Silent(error.to_string()));
            }
            Err(error) => {
                self.forget();
                return Err(LocalError::Gone(error.to_string()));
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        (self.client, self.owes, self.checked) = (None, false, false);
    }

    fn call(&mut self, request: Request) -> Result<Response, LocalError> {
        self.settle()?;
        let client = match &mut self.client {
            Some(client) => client,
            None => {
                let pid = self.beside.pid().map_err(LocalError::Gone)?;
                let mut client =
                    Client::connect(pid).map_err(|error| LocalError::Gone(why(&error)))?;
                client.set_answer_limit(LIMIT);
                self.client.insert(client)
            }
        };
        match client.call(request) {
            Ok(Response::Refused { change, message }) => {
                Err(LocalError::Refused { change: Some(change), message })
            }
            Ok(response) => Ok(response),
            Err(CallError::Refused(message)) => Err(refused(message)),
            Err(CallError::Failed(message)) => Err(LocalError::Unable(message)),
            Err(error @ CallError::TooLong { .. }) => Err(refused(error.to_string())),
            Err(error @ CallError::Silent { .. }) => {
                self.owes = true;
                Err(LocalError::Silent(error.to_string()))
            }
            // It takes no more bytes; a request without its end is not carried out.
            Err(CallError::Socket(error)) if is_late(&error) => {
                self.forget();
                Err(LocalError::Silent("it does not read its requests".to_owned()))
            }
            Err(error) => {
                self.forget();
                Err(LocalError::Gone(error.to_string()))
            }
        }
    }

    /// Refuses a fyke with texts that are graphs: the nodes of a graph may open files, devices and programs.
    fn check_texts(&mut self) -> Result<(), LocalError> {
        let filters = match self.call(Request::Show)? {
            Response::Passes { filters, .. } => filters,
            _ => return Err(unexpected()),
        };
        let Response::Description(description) = self.call(Request::Describe)? else {
            return Err(unexpected());
        };
        let runs_graphs = description.command_line.get(1).is_some_and(|command| command == "run");
        match runs_graphs || filters.iter().any(|filter| filter.kind == EntryKind::Graph) {
            true => Err(refused(
                "its filters are flow graphs, which may open files: a group edits dump, track, demux and exec"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Frames seen so far.
    fn stats(&mut self) -> Result<fyke_control::Stats, LocalError> {
        match self.call(Request::Stats)? {
            Response::Stats(stats) => Ok(stats),
            _ => Err(unexpected()),
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn refused(message: String) -> LocalError {
    LocalError::Refused { change: None, message }
}

/// Without the answer itself: everybody in the group reads the reason, and the answer may have command lines.
fn unexpected() -> LocalError {
    LocalError::Gone("its answer is not one to the request".to_owned())
}

/// The reason without the command lines and folders of this machine, because everybody in the group reads it.
fn why(error: &ConnectError) -> String {
    match error {
        ConnectError::NoneRunning { .. } => {
            "no fyke of the user of the sensor runs on its machine".to_owned()
        }
        ConnectError::Several(all) => format!(
            "{} live captures run on its machine; start the sensor with --pid or --beside (`fyke ctl list` shows them \
             there)",
            all.len()
        ),
        ConnectError::NoneLive(all) => format!(
            "{} fykes run on its machine, and none is a live capture; start the sensor with --pid",
            all.len()
        ),
        ConnectError::Folder(_) => {
            "another user could have made the folder of its control socket".to_owned()
        }
        ConnectError::NoSuchPid { pid, .. } => format!("no fyke with process id {pid}"),
        ConnectError::Socket { source, .. } => format!("its control socket: {source}"),
        _ => "its control socket cannot be reached".to_owned(),
    }
}

impl Local for Controlled {
    fn describe(&mut self) -> Result<message::Local, LocalError> {
        let Response::Description(description) = self.call(Request::Describe)? else {
            return Err(unexpected());
        };
        let stats = self.stats()?;
        Ok(message::Local {
            pid: description.pid,
            started_unix_ms: description.started_unix_ms,
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

    fn held(&mut self) -> Result<Held, LocalError> {
        let mut filters: BTreeMap<FilterId, Vec<u64>> = BTreeMap::new();
        for filter in self.stats()?.filters {
            let name = filter.label.and_then(|label| label.name);
            if let Some(id) = name.and_then(|name| self.names.filter_of(&name)) {
                filters.entry(id).or_default().push(filter.id);
            }
        }
        let Response::Log { entries, forgotten } = self.call(Request::Log { last: None })? else {
            return Err(unexpected());
        };
        let sequences = entries.iter().filter_map(|entry| match &entry.author {
            EditAuthor::Client { program: Some(program), .. } => {
                Some((self.names.edit_of(program)?, entry.epoch))
            }
            _ => None,
        });
        let epochs: BTreeMap<u64, u64> = sequences.collect();
        // A filter of the group was added by an edit of its sequence, or by a later one.
        let last = epochs.keys().copied().chain(filters.keys().map(|id| id.sequence)).max();
        let epoch = last.and_then(|last| epochs.get(&last).copied());
        Ok(Held { filters, applied: last.or((forgotten == 0).then_some(0)), epoch })
    }

    fn edit(&mut self, sequence: u64, changes: Vec<Change>) -> Result<Edited, LocalError> {
        if !self.checked {
            self.check_texts()?;
            self.checked = true;
        }
        let program = self.names.edit(sequence);
        match self.call(Request::Hello { program }) {
            Ok(_) | Err(LocalError::Refused { .. } | LocalError::Unable(_)) => {}
            Err(gone) => return Err(gone),
        }
        let added = changes.iter().filter(|change| matches!(change, Change::Add { .. })).count();
        let (epoch, ids, latency_ns) = match self.call(Request::Edit { changes })? {
            Response::Ok { epoch, ids, latency_ns, .. } => (epoch, ids, latency_ns),
            _ => return Err(unexpected()),
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
                rejected_in_kernel: tried.past.rejected_in_kernel,
                rejected_by: tried.past.rejected_by,
                ..message::Tried::default()
            }),
            _ => Err(unexpected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_are_those_of_their_group() {
        let long = "a".repeat(64);
        for group in ["edge", &long] {
            let names = Names::new(&Name::new(group).unwrap());
            let id = FilterId { sequence: 1_000_000, place: 9_999 };
            let name = names.filter(id);
            assert!(name.len() <= 64, "{name}");
            assert_eq!(names.filter_of(&name), Some(id));
            assert_eq!(names.edit_of(&names.edit(12)), Some(12));
            let other = Names::new(&Name::new(&format!("{}b", &group[1..])).unwrap());
            assert_eq!((other.filter_of(&name), other.edit_of(&names.edit(12))), (None, None));
        }
    }

    fn running(pid: u32, command: &str, source: &str) -> Instance {
        let mut description = fyke_control::Description::of_this_process(source, "EN10MB");
        description.command_line = vec!["fyke".into(), command.into()];
        Instance { pid, socket: "/run/x".into(), description: Some(description) }
    }

    #[test]
    fn a_service_is_no_capture_of_a_sensor() {
        let (service, dump) = (running(1, "serve", "v1"), running(2, "dump", "v1"));
        let reader = running(3, "dump", "serve:v1");
        let both = [service.clone(), dump.clone()];
        assert_eq!((of_source(&both, "v1"), only(&both)), (Ok(2), Ok(Some(2))));
        let read = [service.clone(), reader];
        assert_eq!((of_source(&read, "serve:v1"), only(&read)), (Ok(3), Ok(Some(3))));
        for why in [of_source(&read, "v1").unwrap_err(), only(&[service]).unwrap_err()] {
            assert!(why.contains("no filters of its own"), "{why}");
        }
        let several = [dump.clone(), dump];
        assert!(of_source(&several, "v1").unwrap_err().starts_with("2 running fykes"));
        assert_eq!((only(&several), only(&[])), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_reason_has_no_command_line_of_another_fyke() {
        let mut description = fyke_control::Description::of_this_process("eth0", "EN10MB");
        description.command_line = vec!["fyke".into(), "--secret".into()];
        let one = |pid| fyke_control::Instance {
            pid,
            socket: "/run/secret".into(),
            description: Some(description.clone()),
        };
        let all = || vec![one(1), one(2)];
        let errors = [
            ConnectError::Several(all()),
            ConnectError::NoneLive(all()),
            ConnectError::NoSuchPid { pid: 7, running: all() },
            ConnectError::NoneRunning { looked_in: "/run/secret".into() },
        ];
        let reasons = errors.each_ref().map(why);
        assert!(reasons.iter().all(|reason| !reason.contains("secret")), "{reasons:?}");
        assert!(reasons[0].starts_with("2 live captures"), "{reasons:?}");
        assert!(reasons[2].ends_with("process id 7"), "{reasons:?}");
    }
}
