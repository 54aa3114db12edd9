//! The client side: `fyke ctl`, and programs that edit a running fyke.

use crate::instances::{self, Instance};
use crate::message::{MAX_PROGRAM_CHARS, Request, Response, Stats};
use crate::process;
use crate::runtime_dir::{RuntimeDir, RuntimeDirError};
use crate::server::MAX_REQUEST_BYTES;
use crate::wire::{Incoming, LineReader, Patience, write_line, write_line_with};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use rustix::process::geteuid;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for a fyke to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for one fyke to describe itself.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for an answer, which includes compiling a text of many thousand terms.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// The same for a fyke that has not described itself in time: it is stopped, or the machine is very busy.
const LATE_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer: a `Show` of a million passes fits.
const MAX_RESPONSE_BYTES: usize = 512 << 20;

/// A connection to a running fyke.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reader: LineReader,
    answer_limit: Duration,
    target: Option<Instance>,
    /// Reason of a refusal to describe itself; the server may have closed the connection after it.
    refusal: Option<String>,
}

/// Reasons why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No fyke of this user is running.
    #[error("no running fyke owned by you (looked in {looked_in}){}", advice(geteuid().is_root()))]
    NoneRunning {
        /// Folders, separated by commas.
        looked_in: String,
    },
    /// Several live captures are running and none was named.
    #[error("{} live captures are running, name one with --pid N:\n{}", .0.len(), table(.0))]
    Several(Vec<Instance>),
    /// None of the running fykes is a live capture, and none was named.
    #[error("no live capture is running; to reach another fyke, name it with --pid N:\n{}",
            table(.0))]
    NoneLive(Vec<Instance>),
    /// Another user could have made the folder of the socket.
    #[error("not trusted: {0}{advice}", advice = folder_advice(.0))]
    Folder(#[from] RuntimeDirError),
    /// No fyke with this process id.
    #[error("no fyke with process id {pid}{}", others(running))]
    NoSuchPid {
        /// The requested process id.
        pid: u32,
        /// The running fykes.
        running: Vec<Instance>,
    },
    /// The socket exists but cannot be reached.
    #[error("{}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Reasons why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The running fyke refused the request; its text, possibly with several lines and a caret.
    #[error("{0}")]
    Refused(String),
    /// The running fyke could not carry the request out, through no fault of the request; nothing has changed.
    #[error("{0}")]
    Failed(String),
    /// The request is longer than a line may be.
    #[error("the request has {given} bytes, the limit is {limit}")]
    TooLong {
        /// Length of the request in bytes.
        given: usize,
        /// [`MAX_REQUEST_BYTES`].
        limit: usize,
    },
    /// The connection was closed before the answer.
    #[error(
        "the running fyke closed the connection: it has ended, or more than {} clients came at once",
        crate::server::MAX_CLIENTS
    )]
    Closed,
    /// The process has ended before the answer.
    #[error("process {pid} has ended; `fyke ctl list` shows those that run")]
    Ended {
        /// Its process id.
        pid: u32,
    },
    /// No answer within the limit.
    #[error("{} did not answer within {limit:?}{}", named(*pid), process::advice(*pid))]
    Silent {
        /// The time limit.
        limit: Duration,
        /// Its process id, if it is known.
        pid: Option<u32>,
    },
    /// This version cannot parse the answer.
    #[error("cannot read the answer: {0}")]
    Unreadable(String),
    /// The error of the system.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Client {
    /// Connects to the fyke with this process id, or to the only live capture that is running. The folder of its
    /// socket must be ours and closed to others, and the process must run as this user or as root.
    ///
    /// # Errors
    /// None is running, several are and none is named, it cannot be reached, or it cannot be trusted.
    pub fn connect(pid: Option<u32>) -> Result<Client, ConnectError> {
        Client::connect_in(&RuntimeDir::candidates(), pid)
    }

    /// Like [`Client::connect`], but looks only in these folders.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn connect_in(dirs: &[RuntimeDir], pid: Option<u32>) -> Result<Client, ConnectError> {
        if let Some(pid) = pid {
            for dir in dirs {
                if let Some(client) = connect_if_there(dir, pid)? {
                    return Ok(client);
                }
            }
            return Err(ConnectError::NoSuchPid { pid, running: instances::list_in(dirs) });
        }
        let found = instances::found_in(dirs);
        let running: Vec<Instance> = found.iter().map(|(one, _)| one.clone()).collect();
        if running.is_empty() {
            let looked_in = dirs.iter().map(|dir| dir.path().display().to_string());
            let looked_in = looked_in.collect::<Vec<_>>().join(", ");
            return Err(ConnectError::NoneRunning { looked_in });
        }
        // An instance that does not answer may be a live capture, so the choice is ambiguous; alone
        // it is not chosen.
        let may_be_live = |found: &&Instance| found.description.as_ref().is_none_or(|it| it.live);
        let live: Vec<Instance> = running.iter().filter(may_be_live).cloned().collect();
        match &live[..] {
            [only] if only.description.is_some() => match Client::connect_to(&only.socket) {
                Ok(client) => Ok(Client { target: Some(only.clone()), ..client }),
                Err(source) => Err(ConnectError::Socket { path: only.socket.clone(), source }),
            },
            [only] => {
                let mut refusals = found.into_iter().filter(|(one, _)| one == only);
                Err(match refusals.next().and_then(|(_, refusal)| refusal) {
                    Some(reason) => ConnectError::Socket {
                        path: only.socket.clone(),
                        source: io::Error::other(reason),
                    },
                    None => ConnectError::NoneLive(running),
                })
            }
            [] => Err(ConnectError::NoneLive(running)),
            _ => Err(ConnectError::Several(live)),
        }
    }

    /// Connects to a socket, if a process of this user or of root listens there.
    ///
    /// # Errors
    /// The error of the system; `WouldBlock` when the fyke does not accept connections,
    /// `PermissionDenied` when the process belongs to another user.
    pub fn connect_to(socket: &Path) -> io::Result<Client> {
        // std's connect has no time limit; the kernel applies the send time-out to it.
        let descriptor = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        let limit = Some(CONNECT_LIMIT);
        sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Send, limit)?;
        rustix::net::connect(&descriptor, &SocketAddrUnix::new(socket)?)?;
        check_owner(&descriptor)?;
        let stream = UnixStream::from(descriptor);
        let reader = LineReader::new(stream.try_clone()?, MAX_RESPONSE_BYTES);
        Ok(Client { stream, reader, answer_limit: ANSWER_LIMIT, target: None, refusal: None })
    }

    /// The fyke at the other end; `None` when the connection was made by [`Client::connect_to`].
    pub fn target(&self) -> Option<&Instance> {
        self.target.as_ref()
    }

    /// Requests the description of the other end.
    pub(crate) fn introduced(mut self, pid: u32, socket: PathBuf) -> Client {
        self.answer_limit = DESCRIBE_LIMIT;
        let mut limit = ANSWER_LIMIT;
        let description = match self.call(Request::Describe) {
            Ok(Response::Description(description)) => Some(description),
            Err(CallError::Refused(message)) => {
                self.refusal = Some(message);
                None
            }
            Err(CallError::Silent { .. }) => {
                // A late answer to this request would be taken for that to the next one.
                if let Ok(Client { stream, reader, .. }) = Client::connect_to(&socket) {
                    (self.stream, self.reader) = (stream, reader);
                }
                limit = LATE_ANSWER_LIMIT;
                None
            }
            _ => None,
        };
        self.answer_limit = limit;
        Client { target: Some(Instance { pid, socket, description }), ..self }
    }

    /// The reason of a fyke that refuses to describe itself.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Sets the time limit for each answer; the default is two minutes.
    pub fn set_answer_limit(&mut self, limit: Duration) {
        self.answer_limit = limit;
    }

    /// Sends a request and waits for the answer. After an error other than `Refused`, `Failed` and
    /// `TooLong` the connection cannot be used any more, but after `Silent` see [`Client::late_answer`]. For
    /// [`Request::Watch`] use [`Client::watch`].
    ///
    /// # Errors
    /// The fyke refuses the request, or the connection breaks.
    pub fn call(&mut self, request: Request) -> Result<Response, CallError> {
        let line = serde_json::to_vec(&request).map_err(io::Error::from)?;
        if line.len() > MAX_REQUEST_BYTES {
            return Err(CallError::TooLong { given: line.len(), limit: MAX_REQUEST_BYTES });
        }
        match write_line(&self.stream, &line, self.answer_limit) {
            // A server that refuses a client sends the reason and closes, perhaps before it has
            // read the whole request.
            Err(e) if !means_closed(&e) => Err(e.into()),
            _ => self.receive(self.answer_limit, self.answer_limit),
        }
    }

    /// Waits for the answer to the last request after [`CallError::Silent`]. The connection keeps its order, so it can
    /// be used again once this has returned something else than `Silent`.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn late_answer(&mut self, limit: Duration) -> Result<Response, CallError> {
        self.receive(limit, self.answer_limit)
    }

    /// Gives this client a name for the log of edits. A fyke that keeps no names ignores it.
    ///
    /// # Errors
    /// The connection breaks.
    pub fn hello(&mut self, program: &str) -> Result<(), CallError> {
        let allowed = program.chars().filter(|letter| !letter.is_control());
        let program = allowed.take(MAX_PROGRAM_CHARS).collect();
        match self.call(Request::Hello { program }) {
            Ok(_) | Err(CallError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a request with an open file, for [`Request::Save`] and [`Request::Load`], and waits for the answer, as
    /// [`Client::call`] does.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn call_with(
        &mut self,
        request: &Request,
        file: BorrowedFd<'_>,
    ) -> Result<Response, CallError> {
        let line = serde_json::to_vec(request).map_err(io::Error::from)?;
        if line.len() > MAX_REQUEST_BYTES {
            return Err(CallError::TooLong { given: line.len(), limit: MAX_REQUEST_BYTES });
        }
        match write_line_with(&self.stream, &line, file, self.answer_limit) {
            Err(e) if !means_closed(&e) => Err(e.into()),
            _ => self.receive(self.answer_limit, self.answer_limit),
        }
    }

    /// Receives the counters every `interval_ms`; ends when the running fyke ends.
    ///
    /// # Errors
    /// The request cannot be sent.
    pub fn watch(mut self, interval_ms: u64) -> Result<Watch, CallError> {
        let request =
            serde_json::to_vec(&Request::Watch { interval_ms }).map_err(io::Error::from)?;
        match write_line(&self.stream, &request, self.answer_limit) {
            // The reason of a refusal is the first answer.
            Err(e) if !means_closed(&e) => return Err(e.into()),
            _ => {}
        }
        self.answer_limit = self.answer_limit.saturating_add(Duration::from_millis(interval_ms));
        Ok(Watch { client: self, done: false })
    }

    fn pid(&self) -> Option<u32> {
        self.target.as_ref().map(|target| target.pid)
    }

    /// Receives an answer: its first byte within `limit`, all of it within `whole`.
    fn receive(&mut self, limit: Duration, whole: Duration) -> Result<Response, CallError> {
        let patience = Patience { first_byte: Some(limit), whole_line: whole };
        let line = match self.reader.next(patience)? {
            Incoming::Line(line) => line,
            Incoming::Quiet => return Err(CallError::Silent { limit, pid: self.pid() }),
            Incoming::Closed | Incoming::Broken => {
                let closed = match self.pid() {
                    Some(pid) if process::has_ended(pid) => CallError::Ended { pid },
                    _ => CallError::Closed,
                };
                return Err(self.refusal.take().map_or(closed, CallError::Refused));
            }
            Incoming::TooLong => {
                let message = format!("longer than {MAX_RESPONSE_BYTES} bytes");
                return Err(CallError::Unreadable(message));
            }
        };
        match Response::from_line(&line) {
            Ok(Response::Error { message }) => Err(CallError::Refused(message)),
            Ok(Response::Failed { message }) => Err(CallError::Failed(message)),
            Ok(response) => Ok(response),
            Err(e) => Err(CallError::Unreadable(e.to_string())),
        }
    }
}

/// Iterator over the counters as they arrive, see [`Client::watch`].
#[derive(Debug)]
pub struct Watch {
    client: Client,
    done: bool,
}

impl Iterator for Watch {
    type Item = Result<Stats, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = match self.client.receive(self.client.answer_limit, self.client.answer_limit) {
            Ok(Response::Stats(stats)) => Ok(stats),
            Ok(other) => Err(CallError::Unreadable(format!("expected counters, got {other:?}"))),
            Err(CallError::Closed | CallError::Ended { .. }) => {
                self.done = true;
                return None;
            }
            Err(e) => Err(e),
        };
        self.done = item.is_err();
        Some(item)
    }
}

fn means_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Refuses a socket on which a process of another user listens: its answers cannot be trusted.
fn check_owner(socket: &OwnedFd) -> io::Result<()> {
    let peer = sockopt::socket_peercred(socket)?.uid.as_raw();
    let ours = geteuid().as_raw();
    if peer == ours || peer == 0 {
        return Ok(());
    }
    let root = if ours == 0 { "" } else { " or 0" };
    let message = format!("not trusted: user {peer} listens there, expected user {ours}{root}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Connects if a process listens; `None` when there is no socket or no listener.
fn connect_if_there(dir: &RuntimeDir, pid: u32) -> Result<Option<Client>, ConnectError> {
    let socket = dir.socket(pid);
    if socket.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    dir.check()?;
    match Client::connect_to(&socket) {
        Ok(client) => Ok(Some(client.introduced(pid, socket))),
        Err(e) if instances::means_no_listener(&e) => Ok(None),
        Err(source) => Err(ConnectError::Socket { path: socket, source }),
    }
}

/// Names the process of a client's other end.
fn named(pid: Option<u32>) -> String {
    pid.map_or("the running fyke".to_owned(), |pid| format!("process {pid}"))
}

/// Advice if fyke may run as root.
fn advice(is_root: bool) -> &'static str {
    match is_root {
        true => "; start one, such as `fyke dump -i eth0`",
        false => "; to reach one owned by root, run as root",
    }
}

/// Advice for the folder of another user.
fn folder_advice(error: &RuntimeDirError) -> String {
    match error {
        RuntimeDirError::NotOurs { owner: 0, .. } => "; run as root to reach its fykes".to_owned(),
        RuntimeDirError::NotOurs { owner, .. } => {
            format!("; run as that user to reach its fykes (setpriv --reuid {owner}, or sudo -u)")
        }
        other => other.hint(),
    }
}

fn table(running: &[Instance]) -> String {
    let mut text = String::new();
    for instance in running {
        let _infallible = writeln!(text, "  {instance}");
    }
    text.pop();
    text
}

fn others(running: &[Instance]) -> String {
    match running {
        [] => "; none is running as this user".to_owned(),
        some => format!("; running:\n{}", table(some)),
    }
}
