//! A reader's end of the connection, and the source of its frames.
//!
//! ```text
//! connect ─▶ look at the user of the service ─▶ greet ─▶ open: two descriptors ─▶ edit texts … ─▶ end
//! ```
//!
//! The packet loop of a reader also asks for counts and for the end here. It never waits for a service that is busy
//! with an edit or stopped: it then has the last counts.

use crate::message::{Counts, Edited, Hello, Request, Response, Text, VERSIONS};
use crate::place::{self, PlaceError};
use crate::wire::{Assembler, BUFFERS, DESCRIPTORS, Incoming, send_line};
use fyke_capture::{FrameServer, Moved, ServerCounts, SharedSource, Source};
use fyke_graph::Classes;
use fyke_graph::node::{Class, MakeError, Parameter, Settings};
use fyke_ring::{Reader, RingError, Sleep};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Most bytes of a response.
const MAX_RESPONSE: usize = 4 << 20;
/// Time limit for the greeting and the buffers.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for an edit: a long text is compiled, and other readers' edits come first.
const EDIT_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait of a packet loop for counts.
const MOMENT: Duration = Duration::from_millis(50);
/// Shortest wait that the system has.
const GLANCE: Duration = Duration::from_millis(1);
/// Reason of a request that comes too late.
const ENDED: &str = "the service has ended";
/// Most remarks that wait to be taken.
const MAX_REMARKS: usize = 16;
/// Shortest time between two requests for counts.
const COUNTS_PAUSE: Duration = Duration::from_millis(20);

/// Reasons why there is no connection to a service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is not one.
    #[error(transparent)]
    Name(#[from] PlaceError),
    /// No service has this name.
    #[error(
        "no fyke serves {name:?} (looked for {looked}); start one with `fyke serve -i IF --name {name}`"
    )]
    NotThere {
        /// The name.
        name: String,
        /// The sockets.
        looked: String,
    },
    /// The service belongs to another user.
    #[error(
        "{}: user {user} serves there, and services of root and of your own user are read; --ring-user {user} \
         reads this one (in a graph: user={user})",
        path.display()
    )]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The user id of the service.
        user: u32,
    },
    /// The service does not serve this reader.
    #[error("{}: {message}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The reason that it gives.
        message: String,
    },
    /// The process at the other end does not follow the protocol.
    #[error("{}: not a service of fyke: {problem}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The received buffers are not those of a service.
    #[error("{}: {source}", path.display())]
    Ring {
        /// The socket.
        path: PathBuf,
        /// The problem.
        source: RingError,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Call {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A request that is not answered.
#[derive(Debug)]
enum Owed {
    /// Numbers of texts that it removes, and that it adds.
    Edit(Vec<u64>, Vec<u64>),
    Other,
}

impl Owed {
    fn of(request: &Request) -> Owed {
        let ids = |texts: &[Text]| texts.iter().map(|text| text.id).collect();
        match request {
            Request::Open { texts, .. } => Owed::Edit(Vec::new(), ids(texts)),
            Request::Edit { remove, add } => Owed::Edit(remove.clone(), ids(add)),
            _ => Owed::Other,
        }
    }
}

/// Requests and responses in flight. The service answers requests in their order, so an answer belongs to the oldest
/// request without one.
#[derive(Debug)]
struct Calls {
    assembler: Assembler,
    /// Requests without an answer, oldest first; those of earlier calls were not waited for long enough.
    owed: VecDeque<Owed>,
    /// Rest of a request that the service has not taken.
    unsent: Vec<u8>,
    /// Numbers of the texts that the service has, by its answers.
    there: BTreeSet<u64>,
    /// Texts by the edits that have succeeded. An edit that is answered too late makes the two differ, until the next
    /// one.
    wanted: BTreeMap<u64, String>,
    asked_end: bool,
}

impl Calls {
    fn new() -> Calls {
        Calls {
            assembler: Assembler::new(MAX_RESPONSE),
            owed: VecDeque::new(),
            unsent: Vec::new(),
            there: BTreeSet::new(),
            wanted: BTreeMap::new(),
            asked_end: false,
        }
    }

    /// Takes an answer to the oldest request.
    fn answered(&mut self, response: &Response) {
        if let (Some(Owed::Edit(remove, add)), Response::Edited(_) | Response::Opened(_)) =
            (self.owed.pop_front(), response)
        {
            self.there.retain(|id| !remove.contains(id));
            self.there.extend(add);
        }
    }

    /// Notes an edit that has succeeded for its caller.
    fn adopt<'t>(&mut self, removed: &[u64], added: impl Iterator<Item = (u64, &'t str)>) {
        removed.iter().for_each(|id| drop(self.wanted.remove(id)));
        self.wanted.extend(added.map(|(id, text)| (id, text.to_owned())));
    }

    /// The edit of the texts there that makes them those of the caller after its edit.
    fn plan(&self, removed: &[u64], added: &[(u64, &str)]) -> (Vec<u64>, Vec<Text>) {
        let stays = |id: &u64| self.wanted.contains_key(id) && !removed.contains(id);
        let is_added = |id: &u64| added.iter().any(|(new, _)| new == id);
        let gone = |id: &&u64| removed.contains(id) || !(stays(id) || is_added(id));
        let gone: Vec<u64> = self.there.iter().filter(gone).copied().collect();
        let kept = self.wanted.iter().filter(|(id, _)| stays(id) && !is_added(id));
        let all = kept.map(|(id, text)| (*id, text.as_str())).chain(added.iter().copied());
        let missing = all.filter(|(id, _)| !self.there.contains(id) || gone.contains(id));
        let missing = missing.map(|(id, text)| Text { id, text: text.to_owned() }).collect();
        (gone, missing)
    }
}

/// The error of a request that is not answered in time.
fn late(limit: Duration) -> io::Error {
    let why = format!("the service does not answer within {} s", limit.as_secs());
    io::Error::new(ErrorKind::TimedOut, why)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Last counts of the service.
#[derive(Debug, Default)]
struct Last {
    counts: Counts,
    at: Option<Instant>,
    ended: bool,
    /// True if the process of the service stops; if the connection is closed then, the service has ended.
    parts: bool,
    /// Reason why the service has ended this reader alone.
    reason: Option<String>,
}

/// A connection to a service.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    path: PathBuf,
    hello: Hello,
    calls: Mutex<Calls>,
    last: Mutex<Last>,
    /// Rings of further processes of the service, which continue where the ones before them ended.
    moved: Mutex<VecDeque<Moved>>,
    /// The graph that decides in the service, which takes no texts then.
    graph: OnceLock<String>,
    /// Remarks for the user of the source.
    remarks: Mutex<VecDeque<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the service of a name or path, of root, of our own user, or of `user`.
fn reach(name: &str, user: Option<u32>) -> Result<(OwnedFd, PathBuf), ConnectError> {
    let paths = place::candidates(name)?;
    for path in &paths {
        let call = |error: Errno| ConnectError::Call { path: path.clone(), source: error.into() };
        let socket = match place::connect(path) {
            Ok(socket) => socket,
            Err(Errno::NOENT | Errno::CONNREFUSED) => continue,
            Err(error) => return Err(call(error)),
        };
        let peer = sockopt::socket_peercred(&socket).map_err(call)?.uid.as_raw();
        let ours = rustix::process::geteuid().as_raw();
        let trusted = [Some(0), Some(ours), fyke_privilege::user::owner_of_new_files(), user];
        if !trusted.contains(&Some(peer)) {
            return Err(ConnectError::Stranger { path: path.clone(), user: peer });
        }
        return Ok((socket, path.clone()));
    }
    let looked: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    Err(ConnectError::NotThere { name: name.to_owned(), looked: looked.join(", ") })
}

impl Connection {
    /// Connects and greets.
    ///
    /// # Errors
    /// There is no such service, or it refuses this process.
    pub fn open(name: &str, user: Option<u32>) -> Result<Connection, ConnectError> {
        let (socket, path) = reach(name, user)?;
        let program = std::env::args().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let (calls, last) = (Mutex::new(Calls::new()), Mutex::default());
        let (hello, graph) = (Hello::default(), OnceLock::new());
        let (moved, remarks) = (Mutex::default(), Mutex::default());
        let mut new = Connection { socket, path, hello, calls, last, moved, graph, remarks };
        let greeting =
            Request::Hello { versions: VERSIONS.to_vec(), program: program.into_owned() };
        match new.greet(&greeting, &[], None)? {
            Response::Hello(hello) if VERSIONS.contains(&hello.version) => new.hello = hello,
            other => return Err(new.foreign(format!("it answers the greeting with {other:?}"))),
        }
        Ok(new)
    }

    /// The greeting of the service.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Opens the buffers; frames are stored once there are texts.
    ///
    /// # Errors
    /// The service refuses, or what it sends are not the buffers of a reader.
    pub fn buffers(&self, texts: Vec<Text>, snaplen: u32) -> Result<Reader, ConnectError> {
        let open = Request::Open { texts, snaplen, graph: None };
        let reader = self.open_buffers(&open)?;
        if let Request::Open { texts, .. } = &open {
            lock(&self.calls).adopt(&[], texts.iter().map(|text| (text.id, text.text.as_str())));
        }
        Ok(reader)
    }

    /// Opens the buffers for the frames that a graph in the service passes.
    ///
    /// # Errors
    /// As for [`buffers`](Self::buffers).
    pub fn graph(&self, graph: &str, snaplen: u32) -> Result<Reader, ConnectError> {
        let text = Some(graph.to_owned());
        let open = Request::Open { texts: Vec::new(), snaplen, graph: text };
        let reader = self.open_buffers(&open)?;
        let _first = self.graph.set(graph.to_owned());
        Ok(reader)
    }

    fn open_buffers(&self, open: &Request) -> Result<Reader, ConnectError> {
        let mut buffers = Vec::new();
        // Without a page the reader polls, and so it does if the service does not answer it.
        let page = Sleep::create().ok();
        let lent: Vec<_> = page.iter().map(Sleep::fd).collect();
        match self.greet(open, &lent, Some(&mut buffers))? {
            Response::Opened(_) if (BUFFERS..=DESCRIPTORS).contains(&buffers.len()) => {}
            other => {
                let count = buffers.len();
                return Err(self.foreign(format!("{other:?} with {count} buffers")));
            }
        }
        let mut buffers = buffers.into_iter();
        let (Some(packets), Some(index)) = (buffers.next(), buffers.next()) else {
            return Err(self.foreign("buffers are missing".to_owned()));
        };
        let opened = Reader::open(packets, index);
        let mut reader =
            opened.map_err(|source| ConnectError::Ring { path: self.path.clone(), source })?;
        if let (Some(page), Some(event)) = (page, buffers.next()) {
            reader.sleeps(page, event);
        }
        Ok(reader)
    }

    fn foreign(&self, problem: String) -> ConnectError {
        ConnectError::Foreign { path: self.path.clone(), problem }
    }

    /// A request before the frames flow.
    fn greet(
        &self,
        request: &Request,
        lent: &[BorrowedFd<'_>],
        descriptors: Option<&mut Vec<OwnedFd>>,
    ) -> Result<Response, ConnectError> {
        let calls = &mut lock(&self.calls);
        let answer = self.call(calls, (request, lent), GREETING_LIMIT, descriptors);
        let path = self.path.clone();
        match answer {
            Ok(Response::Error { message }) => Err(ConnectError::Refused { path, message }),
            Ok(response) => Ok(response),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(self.foreign(error.to_string()))
            }
            Err(source) if is_late(&source) => {
                Err(ConnectError::Call { path, source: late(GREETING_LIMIT) })
            }
            Err(source) => Err(ConnectError::Call { path, source }),
        }
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// `InvalidInput` if the service refuses it, with the reason; else the error of the system.
    pub fn request(&self, request: &Request) -> io::Result<Response> {
        let calls = &mut *lock(&self.calls);
        match self.call(calls, (request, &[]), EDIT_LIMIT, None) {
            Ok(Response::Error { message }) => {
                Err(io::Error::new(ErrorKind::InvalidInput, message))
            }
            Ok(response) => {
                if let Request::Edit { remove, add } = request {
                    calls.adopt(remove, add.iter().map(|text| (text.id, text.text.as_str())));
                }
                Ok(response)
            }
            Err(error) if is_late(&error) => Err(late(EDIT_LIMIT)),
            Err(error) => Err(error),
        }
    }

    /// Sends what is left of an earlier request.
    fn flush(&self, calls: &mut Calls, patience: Duration) -> io::Result<()> {
        if calls.unsent.is_empty() {
            return Ok(());
        }
        let (count, sent) = send_line(self.socket.as_fd(), &calls.unsent, &[], patience);
        calls.unsent.drain(..count);
        sent
    }

    /// Sends a request. One that the service takes in part is sent in whole before the next one.
    fn send(
        &self,
        calls: &mut Calls,
        (request, lent): (&Request, &[BorrowedFd<'_>]),
        patience: Duration,
    ) -> io::Result<()> {
        self.flush(calls, patience)?;
        let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
        line.push(b'\n');
        let (count, sent) = send_line(self.socket.as_fd(), &line, lent, patience);
        if count > 0 && *request != (Request::Resume {}) {
            calls.owed.push_back(Owed::of(request));
            calls.unsent = line.split_off(count);
        }
        sent
    }

    /// Waits for the answers to all earlier requests.
    fn settle(&self, calls: &mut Calls, patience: Duration) -> io::Result<()> {
        let start = Instant::now();
        self.flush(calls, patience)?;
        while !calls.owed.is_empty() {
            let left = patience.saturating_sub(start.elapsed()).max(GLANCE);
            if self.receive(calls, left, None)?.is_none() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Makes an edit. If an answer to an earlier one is late, the texts there are brought in order, too.
    fn make_edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        let (calls, start) = (&mut *lock(&self.calls), Instant::now());
        let is_only_look = removed.is_empty() && added.is_empty();
        self.settle(calls, if is_only_look { GLANCE } else { EDIT_LIMIT })?;
        let (remove, add) = calls.plan(removed, added);
        if !remove.is_empty() || !add.is_empty() {
            let patience = EDIT_LIMIT.saturating_sub(start.elapsed()).max(GLANCE);
            let edit = Request::Edit { remove, add };
            match self.call(calls, (&edit, &[]), patience, None)? {
                Response::Edited(_) => {}
                Response::Error { message } => {
                    return Err(io::Error::new(ErrorKind::InvalidInput, message));
                }
                Response::Ended { reason, .. } => {
                    let why = if reason.is_empty() { ENDED.to_owned() } else { reason };
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
                }
                other => return Err(io::Error::new(ErrorKind::InvalidData, format!("{other:?}"))),
            }
        }
        calls.adopt(removed, added.iter().copied());
        Ok(())
    }

    fn call(
        &self,
        calls: &mut Calls,
        (request, lent): (&Request, &[BorrowedFd<'_>]),
        patience: Duration,
        mut descriptors: Option<&mut Vec<OwnedFd>>,
    ) -> io::Result<Response> {
        // A service that has ended cannot be written to, but its last message may be here.
        let mut sent = self.send(calls, (request, lent), patience);
        loop {
            let patience = if sent.is_ok() { patience } else { GLANCE };
            let response = self.receive(calls, patience, descriptors.as_deref_mut())?;
            match response {
                Some(Response::Moved { from, texts, epoch }) => {
                    // Another process of the service continues. Has the one before it carried out the request?
                    if request.is_in_force(&texts) {
                        return Ok(Response::Edited(Edited { epoch, from }));
                    }
                    sent = self.send(calls, (request, lent), patience);
                }
                Some(Response::Parting(_)) => {}
                Some(response) if calls.owed.is_empty() => return Ok(response),
                Some(_) => {}
                None => return Err(sent.err().unwrap_or(ErrorKind::TimedOut.into())),
            }
        }
    }

    /// Waits for a message; `None` if none arrives in time.
    fn receive(
        &self,
        calls: &mut Calls,
        patience: Duration,
        descriptors: Option<&mut Vec<OwnedFd>>,
    ) -> io::Result<Option<Response>> {
        let mut given = Vec::new();
        let got = calls.assembler.receive(&self.socket, Some(patience), Some(&mut given))?;
        let message = match got {
            Incoming::Message(message) => message,
            Incoming::Quiet | Incoming::More => return Ok(None),
            Incoming::Closed => {
                let mut last = lock(&self.last);
                last.ended |= last.parts;
                return Err(io::Error::new(ErrorKind::UnexpectedEof, ENDED));
            }
            Incoming::TooLong => {
                return Err(io::Error::new(ErrorKind::InvalidData, "its answer is too long"));
            }
        };
        let response: Response = serde_json::from_slice(&message)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        if let Response::Moved { from, texts, .. } = &response {
            calls.there = texts.iter().copied().collect();
            self.go_on(calls, given, *from)?;
            return Ok(Some(response));
        }
        descriptors.into_iter().for_each(|all| all.append(&mut given));
        let mut last = lock(&self.last);
        match &response {
            Response::Parting(counts) => {
                let at = Some(Instant::now());
                *last = Last { counts: *counts, at, parts: true, ..Last::default() };
            }
            Response::Ended { counts, reason } => {
                // Nothing follows it, so no other response is owed.
                calls.owed.clear();
                let reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
                let at = Some(Instant::now());
                *last = Last { counts: *counts, at, ended: true, reason, ..Last::default() };
            }
            Response::Counts(counts) => {
                calls.answered(&response);
                (last.counts, last.at) = (*counts, Some(Instant::now()));
            }
            _ => calls.answered(&response),
        }
        Ok(Some(response))
    }

    /// Continues with another process of the service, in its ring.
    fn go_on(&self, calls: &mut Calls, given: Vec<OwnedFd>, from: u64) -> io::Result<()> {
        let mut given = given.into_iter();
        let (Some(packets), Some(index)) = (given.next(), given.next()) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "buffers are missing"));
        };
        lock(&self.moved).push_back(Moved { packets, index, from });
        lock(&self.last).parts = false;
        // What the process before has not answered is void.
        calls.owed.clear();
        calls.unsent.clear();
        self.send(calls, (&Request::Resume {}, &[]), MOMENT)?;
        if calls.asked_end {
            self.send(calls, (&Request::End {}, &[]), MOMENT)?;
        }
        Ok(())
    }

    /// The calls, unless another thread has one in flight.
    fn try_calls(&self) -> Option<MutexGuard<'_, Calls>> {
        match self.calls.try_lock() {
            Ok(calls) => Some(calls),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Asks for new counts unless the last ones are new or the service is busy.
    fn look(&self, read: u64, lost: u64) {
        let is_new =
            |last: &Last| last.ended || last.at.is_some_and(|at| at.elapsed() < COUNTS_PAUSE);
        if is_new(&lock(&self.last)) {
            return;
        }
        let Some(mut calls) = self.try_calls() else { return };
        if self.settle(&mut calls, GLANCE).is_err() {
            return;
        }
        // If it does not answer in time, the counts are those before.
        let counts = Request::Counts { read, lost };
        let _late = self.call(&mut calls, (&counts, &[]), MOMENT, None);
    }
}

impl FrameServer for Connection {
    fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        if self.graph.get().is_some() {
            let passes_all = added.iter().all(|(_, text)| text.is_empty());
            let why = "the graph of this reader decides in the service";
            return passes_all
                .then_some(())
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, why));
        }
        // What the service makes of it later is known by the order of its answers, so the connection stays.
        self.make_edit(removed, added)
            .map_err(|error| if is_late(&error) { late(EDIT_LIMIT) } else { error })
    }

    fn counts(&self, read: u64, lost: u64) -> ServerCounts {
        self.look(read, lost);
        // The index tells the reader how many frames were refused.
        let Counts { rejected, dropped, is_partial, .. } = lock(&self.last).counts;
        ServerCounts { rejected, dropped, is_partial }
    }

    fn end(&self) -> bool {
        if lock(&self.last).ended {
            return true;
        }
        let Some(mut calls) = self.try_calls() else { return false };
        if !calls.asked_end {
            calls.asked_end = true;
            let _gone_or_busy = self.send(&mut calls, (&Request::End {}, &[]), MOMENT);
        }
        let _none_yet = self.receive(&mut calls, GLANCE, None);
        lock(&self.last).ended
    }

    fn moved(&self) -> Option<Moved> {
        lock(&self.moved).pop_front()
    }

    fn is_over(&self) -> bool {
        lock(&self.last).ended && lock(&self.moved).is_empty()
    }

    fn end_reason(&self) -> Option<String> {
        if !lock(&self.last).ended {
            let calls = self.try_calls();
            let _none_came = calls.map(|mut calls| self.receive(&mut calls, MOMENT, None));
        }
        lock(&self.last).reason.take()
    }

    fn is_cut(&self) -> bool {
        self.is_gone() && !self.is_over()
    }

    fn graph(&self) -> Option<&str> {
        self.graph.get().map(String::as_str)
    }

    fn is_restricted(&self) -> bool {
        self.hello.restricted
    }

    fn tell(&self, remark: String) {
        let mut remarks = lock(&self.remarks);
        if remarks.len() < MAX_REMARKS {
            remarks.push_back(remark);
        }
    }

    fn take_remark(&self) -> Option<String> {
        lock(&self.remarks).pop_front()
    }

    fn is_gone(&self) -> bool {
        let mut byte = [0_u8; 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let mut got = recv(&self.socket, &mut byte[..], flags);
        if matches!(got, Err(Errno::CONNRESET)) {
            // Reported once if the service has left requests unread; what it sent before follows.
            got = recv(&self.socket, &mut byte[..], flags);
        }
        match got {
            Ok((_, 0)) => {
                let mut last = lock(&self.last);
                last.ended |= last.parts;
                true
            }
            // A message that was not waited for, perhaps the last one.
            Ok(_) => {
                let calls = self.try_calls();
                let got = calls.map(|mut calls| self.receive(&mut calls, GLANCE, None));
                matches!(got, Some(Err(_)))
            }
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The class `device` that also opens services by `serve:NAME`; for
/// [`Classes::register`](fyke_graph::Classes::register).
pub fn device() -> Class {
    Class { open: open_device, parameters: parameters(), ..built_in() }
}

/// The parameters of a device, and those of a service.
fn parameters() -> &'static [Parameter] {
    static ALL: OnceLock<Vec<Parameter>> = OnceLock::new();
    let graph = Parameter { name: "graph", summary: "nodes that a service runs for this reader" };
    ALL.get_or_init(|| built_in().parameters.iter().copied().chain([graph]).collect())
}

fn built_in() -> Class {
    Classes::new().find("device").expect("device is a built-in class")
}

fn open_device(settings: &Settings) -> Result<Box<dyn Source>, MakeError> {
    let Some(name) = settings.required("expression")?.strip_prefix("serve:") else {
        if settings.text("graph").is_some() {
            return Err(MakeError::new("graph", "only a service runs a graph for its reader"));
        }
        return (built_in().open)(settings);
    };
    let user = match settings.text("user") {
        None => None,
        Some(user) => match user.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                let found = fyke_privilege::user::User::named(user);
                Some(found.map_err(|error| MakeError::new("user", error))?.uid)
            }
        },
    };
    match connect_source(name, user, settings.text("graph")) {
        Ok(source) => Ok(Box::new(source)),
        Err(error @ ConnectError::Name(_)) => Err(MakeError::new("expression", error)),
        Err(ConnectError::Refused { message, .. }) if is_of_a_text(&message) => {
            Err(MakeError::new("graph", message))
        }
        Err(error) => Err(MakeError::refused("expression", error)),
    }
}

/// True if a refusal is about a place of a text, which it shows with a caret.
pub fn is_of_a_text(refusal: &str) -> bool {
    refusal.lines().skip(1).any(|line| line.trim_start().starts_with('^'))
}

/// Connects to a service as the source `serve:NAME`, which runs `graph` for it if it is given.
///
/// # Errors
/// There is no such service, or it refuses this process.
pub fn connect_source(
    name: &str,
    user: Option<u32>,
    graph: Option<&str>,
) -> Result<SharedSource, ConnectError> {
    let connection = Connection::open(name, user)?;
    let reader = match graph {
        None => connection.buffers(Vec::new(), 0)?,
        Some(graph) => connection.graph(graph, 0)?,
    };
    let name = format!("serve:{name}");
    Ok(SharedSource::served(&name, reader, std::sync::Arc::new(connection)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: u64, text: &str) -> Text {
        Text { id, text: text.to_owned() }
    }

    #[test]
    fn the_edit_after_a_late_one_brings_the_texts_in_order() {
        let mut calls = Calls::new();
        let first = Request::Edit { remove: Vec::new(), add: vec![text(1, "udp")] };
        calls.owed.push_back(Owed::of(&first));
        calls.answered(&Response::Edited(Edited::default()));
        calls.adopt(&[], [(1, "udp")].into_iter());
        // Given up by its caller, and made later.
        let late = Request::Edit { remove: vec![1], add: vec![text(2, "tcp")] };
        calls.owed.push_back(Owed::of(&late));
        assert_eq!(calls.plan(&[], &[(3, "arp")]), (Vec::new(), vec![text(3, "arp")]));
        calls.answered(&Response::Edited(Edited::default()));
        let (gone, missing) = calls.plan(&[], &[(3, "arp")]);
        assert_eq!((gone, missing), (vec![2], vec![text(1, "udp"), text(3, "arp")]));
        // One that is refused late has changed nothing.
        calls.owed.push_back(Owed::of(&first));
        calls.answered(&Response::Error { message: String::new() });
        assert_eq!(calls.plan(&[], &[]), (vec![2], vec![text(1, "udp")]));
    }
}
