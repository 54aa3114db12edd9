//! The server side in the running fyke: accepts clients, checks their user, passes requests on.
//!
//! One thread accepts connections, one thread serves each client. None of them is on the path of a
//! packet: an edit goes through [`Controlled::handle`], which passes it to the one writer of the
//! pass set. Long answers are made at low priority ([`Controlled::is_long`]), so that clients leave
//! the processor to the packet loop.

use crate::client::Client;
use crate::edit_meter::{EditMeter, is_edit};
use crate::instances::sweep;
use crate::message::{
    Description, MAX_CHANGES, MAX_EXPLAINED, MAX_PROGRAM_CHARS, MAX_TRIED, Request, Response,
};
use crate::runtime_dir::{RuntimeDir, RuntimeDirError};
use crate::seats::{Seat, Seats};
use crate::wire::{Incoming, LineReader, Patience, write_line};
use fyke_privilege::helper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Clients of one user served at a time; root and the user of the process are the only users.
pub const MAX_CLIENTS: usize = 64;
/// Bytes of a request's line.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// A client that sends no request for this time is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(300);
/// Time limit from the first byte of a request to its line end.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for a client to read one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bounds of [`Request::Watch`]'s interval.
const WATCH_MS: std::ops::RangeInclusive<u64> = 10..=3_600_000;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The part of a program that runs a filter and can be queried and edited from outside.
pub trait Controlled: Send + Sync {
    /// Carries a request out. Called from several threads at a time; never gets [`Request::Describe`],
    /// [`Request::Hello`] and [`Request::Watch`], which the server answers from [`Controlled::describe`] and
    /// [`Request::Stats`].
    /// Must not wait for the thread that drops the [`Server`].
    fn handle(&self, request: Request) -> Response;

    /// The same, with the client that sent the request, for programs that log their edits.
    fn handle_from(&self, request: Request, _peer: &Peer) -> Response {
        self.handle(request)
    }

    /// Carries a [`Request::Save`] out: writes frames to an open file of the client. Done at low priority.
    fn save(&self, _request: Request, _file: File, _peer: &Peer) -> Response {
        let message = "this fyke keeps no frames to save; start it with `fyke dump --keep`";
        Response::Error { message: message.to_owned() }
    }

    /// Carries a [`Request::Load`] out: reads rules from an open file of the client. Done at low priority.
    fn load(&self, _file: File, _peer: &Peer) -> Response {
        let message = "this fyke has no rules of Snort and Suricata; `fyke ids` has";
        Response::Error { message: message.to_owned() }
    }

    /// True if carrying this out or writing the answer may take longer than a millisecond; it is
    /// then done at low priority. Never true of an edit, which may delay a packet loop.
    fn is_long(&self, request: &Request) -> bool {
        matches!(request, Request::Show)
    }

    /// The description of this fyke. Must be quick: `fyke ctl list` requests it from every fyke.
    fn describe(&self) -> Description;
}

/// The client at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its user, as the kernel knows it.
    pub uid: u32,
    /// Its process when it connected, as the kernel knows it; 0 if it is in a PID namespace that this process does not
    /// see.
    pub pid: u32,
    /// Its program, as the client names it ([`Request::Hello`]).
    pub program: Option<String>,
}

/// Reasons why no control socket could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No folder can hold it; the error is that of the last one tried.
    #[error("no folder for the control socket: {0}{hint}", hint = .0.hint())]
    NoPlace(#[from] RuntimeDirError),
    /// Another process answers on the socket with our process id (from another PID namespace).
    #[error("{}: another fyke answers there; set another FYKE_RUNTIME_DIR", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The socket or its thread could not be made.
    #[error("{}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// An open control socket that does not answer yet. Dropping it removes the socket.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    /// Device and inode of our socket, so that no other socket is removed.
    identity: (u64, u64),
    listener: UnixListener,
}

impl Listening {
    /// Opens the socket in the first usable of [`RuntimeDir::candidates`], for the current user of this process.
    ///
    /// # Errors
    /// No usable folder, or no socket in it.
    pub fn open() -> Result<Listening, StartError> {
        Listening::open_in_first(&RuntimeDir::candidates())
    }

    /// Opens the socket in the first usable folder of [`RuntimeDir::candidates_of_dropped`].
    ///
    /// # Errors
    /// No usable folder, or no socket in it.
    pub fn open_as_dropped() -> Result<Listening, StartError> {
        Listening::open_in_first(&RuntimeDir::candidates_of_dropped())
    }

    fn open_in_first(candidates: &[RuntimeDir]) -> Result<Listening, StartError> {
        let (last, others) = candidates.split_last().expect("there is always a last resort");
        let usable = others.iter().find(|dir| dir.prepare(std::process::id()).is_ok());
        Listening::open_in(usable.unwrap_or(last))
    }

    /// Opens the socket in a folder of the caller's choice.
    ///
    /// # Errors
    /// The folder is not usable, or no socket can be made in it.
    pub fn open_in(dir: &RuntimeDir) -> Result<Listening, StartError> {
        let path = dir.prepare(std::process::id())?;
        // Sockets that killed processes have left.
        sweep(dir, geteuid().as_raw());
        remove_left_over(&path)?;
        let failed = |source| StartError::Socket { path: path.clone(), source };
        let listener = private_listener(&path).map_err(failed)?;
        let identity = identity(&path).map_err(failed)?;
        // After root was given up, this process removes the socket itself.
        let _ = helper::will_remove(&path);
        Ok(Listening { path, identity, listener })
    }

    /// Path to which clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let is_ours = match identity(&self.path) {
            Ok(found) => found == self.identity,
            // This process may not look; the helper process, which has to remove it, compares the identity.
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        };
        if is_ours {
            let _gone_already = helper::remove_file(&self.path);
        }
    }
}

/// Control sockets that are being served. Dropping it removes the sockets and ends all connections.
#[derive(Debug)]
pub struct Server {
    sockets: Vec<Listening>,
    stopping: Arc<AtomicBool>,
    seats: Arc<Seats>,
    acceptors: Vec<JoinHandle<()>>,
}

impl Server {
    /// Opens the socket in the first usable of [`RuntimeDir::candidates`] and serves it.
    ///
    /// # Errors
    /// No usable folder, or no socket in it.
    pub fn start(controlled: Arc<dyn Controlled>) -> Result<Server, StartError> {
        Server::serve(vec![Listening::open()?], controlled)
    }

    /// Opens the socket in a folder that the caller chose and serves it.
    ///
    /// # Errors
    /// The folder is not usable, or no socket can be made in it.
    pub fn start_in(
        dir: &RuntimeDir,
        controlled: Arc<dyn Controlled>,
    ) -> Result<Server, StartError> {
        Server::serve(vec![Listening::open_in(dir)?], controlled)
    }

    /// Serves sockets that are open; all of them answer the same users.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve(
        sockets: Vec<Listening>,
        controlled: Arc<dyn Controlled>,
    ) -> Result<Server, StartError> {
        let (stopping, seats) =
            (Arc::new(AtomicBool::new(false)), Seats::new(MAX_CLIENTS, refuse_many));
        let turns = Arc::<Turns>::default();
        let mut server = Server { sockets, stopping, seats, acceptors: Vec::new() };
        for (number, socket) in server.sockets.iter().enumerate() {
            let failed = |source| StartError::Socket { path: socket.path.clone(), source };
            let acceptor = Acceptor {
                listener: socket.listener.try_clone().map_err(failed)?,
                first_id: (number as u64) << 32,
                stopping: Arc::clone(&server.stopping),
                seats: Arc::clone(&server.seats),
                turns: Arc::clone(&turns),
                controlled: Arc::clone(&controlled),
            };
            let thread = thread::Builder::new().name("fyke-control".into());
            server.acceptors.push(thread.spawn(move || acceptor.run()).map_err(failed)?);
        }
        Ok(server)
    }

    /// Path of the first socket to which clients connect.
    pub fn path(&self) -> &Path {
        self.sockets.first().map_or(Path::new(""), Listening::path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        for socket in self.sockets.drain(..) {
            // Makes the blocked accept return; fails only if the socket no longer listens.
            let both = rustix::net::Shutdown::Both;
            let _not_listening = rustix::net::shutdown(&socket.listener, both);
        }
        for acceptor in self.acceptors.drain(..) {
            let _panicked = acceptor.join();
        }
        // The clients' threads are not joined: one may be inside `handle`, which may wait for this
        // thread.
        self.seats.close_all();
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket of mode 0600. Linux applies the mode of the socket to the file that `bind`
/// makes, so the file is never open to others, whatever the umask.
/// The name appears when the socket already listens, so that a client that finds it is not refused:
/// the socket is bound as `N.new` and renamed to `N.sock`.
fn private_listener(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    let draft = path.with_extension("new");
    // An ended process with our process id may have left one.
    let _nothing_there = fs::remove_file(&draft);
    rustix::net::bind(&socket, &SocketAddrUnix::new(&draft)?)?;
    let named = rustix::net::listen(&socket, BACKLOG)
        .and_then(|()| renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE));
    if let Err(error) = named {
        let _gone = fs::remove_file(&draft);
        return Err(error.into());
    }
    Ok(UnixListener::from(socket))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Removes the socket of an ended process that had our process id.
fn remove_left_over(path: &Path) -> Result<(), StartError> {
    let failed = |source| StartError::Socket { path: path.to_path_buf(), source };
    match Client::connect_to(path) {
        Ok(_) => Err(StartError::Taken { path: path.to_path_buf() }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        // The queue of the socket is full, or it belongs to another user: a process listens.
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied) => {
            Err(StartError::Taken { path: path.to_path_buf() })
        }
        Err(_) => fs::remove_file(path).map_err(failed),
    }
}

struct Acceptor {
    listener: UnixListener,
    /// First id for clients; no two acceptors give the same ids.
    first_id: u64,
    stopping: Arc<AtomicBool>,
    seats: Arc<Seats>,
    turns: Arc<Turns>,
    controlled: Arc<dyn Controlled>,
}

impl Acceptor {
    fn run(self) {
        let mut id = self.first_id;
        while !self.stopping.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    id += 1;
                    self.seat(id, stream);
                }
                // File descriptors or memory are exhausted: try again later. After `shutdown` the
                // loop ends.
                Err(_) if !self.stopping.load(Ordering::Acquire) => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(_) => {}
            }
        }
    }

    fn seat(&self, id: u64, stream: UnixStream) {
        let refuse = |message: String| refuse(&stream, message);
        let peer = match check_peer(&stream) {
            Ok(peer) => peer,
            Err(message) => return refuse(message),
        };
        let Ok(second) = stream.try_clone() else { return };
        let Some(seat) = self.seats.take(id, peer.uid, second) else {
            return refuse_many(&stream);
        };
        let Ok(third) = stream.try_clone() else { return };
        let client = ClientThread {
            seat,
            turns: Arc::clone(&self.turns),
            reader: LineReader::with_files(third, MAX_REQUEST_BYTES),
            stream,
            peer,
            controlled: Arc::clone(&self.controlled),
        };
        // If no thread can be started, the connection is dropped, and the client finds it closed.
        let _no_thread =
            thread::Builder::new().name("fyke-client".into()).spawn(move || client.run());
    }
}

/// Refuses a peer process that belongs neither to our user nor to root.
fn check_peer(stream: &UnixStream) -> Result<Peer, String> {
    let peer = rustix::net::sockopt::socket_peercred(stream)
        .map_err(|e| format!("cannot read the user of the client: {e}"))?;
    let pid = rustix::process::Pid::as_raw(Some(peer.pid));
    let (uid, ours) = (peer.uid.as_raw(), geteuid().as_raw());
    if uid == ours || uid == 0 {
        return Ok(Peer { uid, pid: u32::try_from(pid).unwrap_or(0), program: None });
    }
    Err(format!("this fyke runs as user {ours} and answers that user and root, not user {uid}"))
}

/// Refuses a client because there are too many.
fn refuse_many(stream: &UnixStream) {
    refuse(stream, format!("{MAX_CLIENTS} clients are being answered; try again"));
}

/// Sends a refusal. Never blocks: the acceptor calls it, and the few bytes fit into a new socket's
/// buffer.
fn refuse(stream: &UnixStream, message: String) {
    let _peer_gone = answer(stream, &Response::Error { message }, Duration::ZERO);
}

fn answer(stream: &UnixStream, response: &Response, limit: Duration) -> io::Result<()> {
    let line = serde_json::to_vec(response).map_err(io::Error::other)?;
    write_line(stream, &line, limit)
}

/// Locks and counts of a server, not of the process: a child after a fork, which has servers of its own, finds none
/// taken.
#[derive(Debug, Default)]
struct Turns {
    /// Taken while a long answer is made.
    answers: Mutex<()>,
    /// Taken while frames are saved, which takes longer.
    saves: Mutex<()>,
    /// The times of edits, of all clients.
    meter: EditMeter,
}

/// Makes a long answer on its own thread, at a tenth of the weight of a packet loop. A thread
/// cannot raise its own priority again, so the client's thread is not used.
fn at_low_priority(
    one_at_a_time: &Mutex<()>,
    made: impl FnOnce() -> io::Result<Vec<u8>> + Send,
) -> io::Result<Vec<u8>> {
    let _only = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|threads| {
        let at_low_priority = || {
            // On Linux each thread has its own priority; lowering it is always allowed, and the
            // answer is correct at any.
            let _ignored = rustix::process::nice(10);
            made()
        };
        let thread = thread::Builder::new().name("fyke-answer".into());
        let thread = thread.spawn_scoped(threads, at_low_priority)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the answer failed")))
    })
}

struct ClientThread {
    seat: Seat,
    turns: Arc<Turns>,
    reader: LineReader,
    stream: UnixStream,
    peer: Peer,
    controlled: Arc<dyn Controlled>,
}

/// Refusal of a [`Request::Save`] or [`Request::Load`] without a file.
const NO_FILE: &str =
    "no open file came with the request: it is sent with its first byte (SCM_RIGHTS)";

/// Refuses a request that is longer than its limits allow.
fn check_limits(request: &Request) -> Result<(), String> {
    match request {
        Request::Hello { program }
            if program.chars().count() > MAX_PROGRAM_CHARS
                || program.chars().any(char::is_control) =>
        {
            Err(format!(
                "the name of a program has at most {MAX_PROGRAM_CHARS} characters, and no control \
                 character"
            ))
        }
        Request::Try { last: Some(last), .. } if *last > MAX_TRIED => {
            Err(format!("{last} frames are more than the {MAX_TRIED} that can be tried"))
        }
        Request::Why { last: Some(last) } | Request::Frames { last: Some(last), .. }
            if *last > MAX_EXPLAINED =>
        {
            Err(format!("{last} frames are more than the {MAX_EXPLAINED} that can be explained"))
        }
        Request::Edit { changes } if changes.len() > MAX_CHANGES => Err(format!(
            "{} changes are more than the {MAX_CHANGES} of one edit; make several edits",
            changes.len()
        )),
        Request::Passes { calls, .. } if calls.len() > MAX_CHANGES => Err(format!(
            "{} calls are more than the {MAX_CHANGES} of one edit; make several edits",
            calls.len()
        )),
        _ => Ok(()),
    }
}

/// True if the client has closed its end; not if it only sends no more.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

impl ClientThread {
    /// Serves requests until the client closes, breaks a rule, or does not read; an error ends it
    /// too.
    fn run(mut self) {
        let patience = Patience { first_byte: Some(IDLE_LIMIT), whole_line: REQUEST_LIMIT };
        let mut next = self.reader.next(patience);
        while let Ok(Incoming::Line(line)) = next {
            if !self.seat.busy() {
                return;
            }
            next = match self.serve(&line) {
                Ok(None) => {
                    self.seat.idle();
                    self.reader.next(patience)
                }
                Ok(Some(ended)) => Ok(ended),
                Err(e) => Err(e),
            };
        }
        let message = match next {
            Ok(Incoming::TooLong) => format!("a request has at most {MAX_REQUEST_BYTES} bytes"),
            Ok(Incoming::Broken) => {
                format!("a request ends with a line end, within {} s", REQUEST_LIMIT.as_secs())
            }
            _ => return,
        };
        refuse(&self.stream, message);
    }

    /// Answers one line. A watch returns the input that ended it.
    fn serve(&mut self, line: &[u8]) -> io::Result<Option<Incoming>> {
        let request = Request::from_line(line).map_err(|e| format!("not a request: {e}"));
        let checked = request.and_then(|request| check_limits(&request).map(|()| request));
        let response = match checked {
            Ok(Request::Describe) => Response::Description(self.controlled.describe()),
            Ok(Request::Hello { program }) => {
                self.peer.program = Some(program);
                Response::Description(self.controlled.describe())
            }
            Ok(request @ (Request::Save { .. } | Request::Load)) => match self.reader.take_file() {
                Some(file) => return self.with_file(request, file).map(|()| None),
                None => Response::Error { message: NO_FILE.to_owned() },
            },
            Ok(Request::Watch { interval_ms }) => return self.watch(interval_ms).map(Some),
            Ok(request) => return self.answer_to(request).map(|()| None),
            Err(message) => Response::Error { message },
        };
        answer(&self.stream, &response, ANSWER_LIMIT)?;
        Ok(None)
    }

    /// Carries a request out and answers it; not an edit after its client has closed the connection. A long
    /// answer is made at low priority, one at a time.
    fn answer_to(&self, request: Request) -> io::Result<()> {
        let is_long = self.controlled.is_long(&request);
        let is_edit = is_edit(&request);
        // A process that was stopped finds requests of clients that have given up, and do not learn of the edit.
        if is_edit && has_hung_up(&self.stream) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let made = || {
            let mut response = self.controlled.handle_from(request, &self.peer);
            if is_edit {
                self.turns.meter.count(&response);
            }
            if let Response::Stats(stats) = &mut response {
                stats.edits = Some(Box::new(self.turns.meter.times()));
            }
            serde_json::to_vec(&response).map_err(io::Error::other)
        };
        let line = if is_long { at_low_priority(&self.turns.answers, made)? } else { made()? };
        write_line(&self.stream, &line, ANSWER_LIMIT)
    }

    fn with_file(&self, request: Request, file: OwnedFd) -> io::Result<()> {
        let file = File::from(file);
        let line = at_low_priority(&self.turns.saves, || {
            let response = match request {
                Request::Load => {
                    let loaded = self.controlled.load(file, &self.peer);
                    self.turns.meter.count(&loaded);
                    loaded
                }
                request => self.controlled.save(request, file, &self.peer),
            };
            serde_json::to_vec(&response).map_err(io::Error::other)
        })?;
        write_line(&self.stream, &line, ANSWER_LIMIT)
    }

    /// Sends the counters every interval until input arrives; skips missed ticks.
    fn watch(&mut self, interval_ms: u64) -> io::Result<Incoming> {
        let interval_ms = interval_ms.clamp(*WATCH_MS.start(), *WATCH_MS.end());
        let interval = Duration::from_millis(interval_ms);
        let mut tick = Instant::now();
        loop {
            self.answer_to(Request::Stats)?;
            tick = (tick + interval).max(Instant::now());
            // Never zero: input of the client must be read even when answering takes longer than
            // the interval.
            let wait = tick.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
            let patience = Patience { first_byte: Some(wait), whole_line: REQUEST_LIMIT };
            match self.reader.next(patience)? {
                Incoming::Quiet => {}
                ended => return Ok(ended),
            }
        }
    }
}
