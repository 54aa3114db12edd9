//! Accepts readers, checks their user, and answers them; one thread for each reader.
//!
//! | limit | value |
//! |---|---|
//! | readers of one user | that of its rule, or [`MAX_OF_USER`](crate::policy::MAX_OF_USER) |
//! | readers in all | [`MAX_READERS`] |
//! | from the connection to the greeting | [`GREETING_LIMIT`] |
//! | a message | the limits of the reader for a text, and some more |
//! | a reader that does not read its answers | [`ANSWER_LIMIT`], then it is closed |
//!
//! None of the threads is on the path of a packet.

use crate::message::{Counts, Hello, MAX_PROGRAM, Request, Response, VERSIONS};
use crate::place::Listening;
use crate::policy::{MAX_READERS, Peer, Policy, Terms};
use crate::service::{Service, Texts};
use crate::wire::{Assembler, Incoming, send_json};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown, sockopt};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit for the greeting.
pub const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a reader to read an answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait at the end for the threads of readers.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Bytes of a message beside its texts, and the factor by which quoting makes a text longer.
const ENVELOPE: usize = 16 << 10;
const QUOTING: usize = 2;

/// A reader as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderView {
    /// Number of the reader.
    pub number: u64,
    /// Its user.
    pub user: u32,
    /// Its process; 0 if it is in another PID namespace.
    pub pid: u32,
    /// The name of its program, as it told it.
    pub program: String,
    /// Its texts.
    pub texts: Vec<String>,
    /// Its counts.
    pub counts: Counts,
    /// Frames that it had read at its last request for counts.
    pub read: u64,
    /// Frames that it had lost then.
    pub lost: u64,
}

/// A connection, and what is known of its reader.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    peer: Peer,
    pid: u32,
    terms: Terms,
    /// Held while a message is sent.
    sending: Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    program: String,
    reader: Option<u64>,
    texts: Vec<String>,
    read: u64,
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    fn send(&self, response: &Response, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _one_message = lock(&self.sending);
        send_json(&self.socket, response, descriptors, ANSWER_LIMIT)
    }

    /// Ends the reader at the batch that is evaluated, and the connection.
    fn end(&self, service: &Service, reason: &str) {
        let reader = lock(&self.known).reader;
        if let Some(reader) = reader {
            let (counts, reason) = (service.end_now(reader), reason.to_owned());
            let _one_message = lock(&self.sending);
            let ended = Response::Ended { counts, reason };
            let _peer_gone = send_json(&self.socket, &ended, &[], Duration::from_millis(1));
        }
        let _closed_already = shutdown(&self.socket, Shutdown::Both);
    }
}

/// State that the threads share.
#[derive(Debug)]
struct Shared {
    service: Arc<Service>,
    policy: Mutex<Policy>,
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, Arc<Connection>>>,
}

/// A service that answers. Dropping it ends all connections.
#[derive(Debug)]
pub struct Server {
    socket: Listening,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer at a socket. The graph of the service must have been started.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(socket: Listening, service: Arc<Service>, policy: Policy) -> io::Result<Server> {
        let (stopping, connections) = (AtomicBool::new(false), Mutex::default());
        let policy = Mutex::new(policy);
        let shared = Arc::new(Shared { service, policy, stopping, connections });
        let (listener, accepts) = (socket.as_fd().try_clone_to_owned()?, Arc::clone(&shared));
        let thread = thread::Builder::new().name("serve".to_owned());
        let acceptor = Some(thread.spawn(move || accept(&listener, &accepts))?);
        Ok(Server { socket, shared, acceptor })
    }

    /// The path to which readers connect.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Takes a new policy in other threads. Readers with the same terms under it lose nothing; all others are ended.
    /// Returns the number of those that stay and of those that are ended.
    pub fn set_policy(&self) -> impl Fn(Policy) -> (usize, usize) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |policy| shared.set_policy(policy)
    }

    /// A view of the readers that works in other threads.
    pub fn readers(&self) -> impl Fn() -> Vec<ReaderView> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.readers()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Makes the blocked accept return; fails only if the socket no longer listens.
        let _not_listening = shutdown(&self.socket, Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _panicked = acceptor.join();
        }
        let all: Vec<_> = lock(&self.shared.connections).values().cloned().collect();
        all.iter().for_each(|one| one.end(&self.shared.service, ""));
        // A thread may be inside an edit that takes long; the process does not wait for it.
        let start = Instant::now();
        while !lock(&self.shared.connections).is_empty() && start.elapsed() < END_LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Shared {
    fn readers(&self) -> Vec<ReaderView> {
        let all: Vec<_> = lock(&self.connections).values().cloned().collect();
        let view = |one: Arc<Connection>| {
            let known = lock(&one.known);
            let number = known.reader?;
            Some(ReaderView {
                number,
                user: one.peer.user,
                pid: one.pid,
                program: known.program.clone(),
                texts: known.texts.clone(),
                counts: self.service.counts(number),
                read: known.read,
                lost: known.lost,
            })
        };
        all.into_iter().filter_map(view).collect()
    }

    /// The terms of a process under the policy in force.
    fn terms(&self, peer: Peer) -> Result<Terms, String> {
        let interface = self.service.interface().map_or("", |interface| &interface.name);
        lock(&self.policy).terms(peer, geteuid().as_raw(), interface)
    }

    fn set_policy(&self, policy: Policy) -> (usize, usize) {
        // Under this lock no connection is admitted, so each has the old terms and is seen, or the new ones.
        let connections = lock(&self.connections);
        *lock(&self.policy) = policy;
        let all: Vec<_> = connections.values().cloned().collect();
        drop(connections);
        let differs = |one: &Arc<Connection>| self.terms(one.peer).as_ref() != Ok(&one.terms);
        let (ended, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(differs);
        for one in &ended {
            let reason = self.terms(one.peer).err();
            let reason = reason.as_deref().unwrap_or("the policy of the service has changed");
            one.end(&self.service, reason);
        }
        (stay.len(), ended.len())
    }

    /// Admits a connection; the reason if it is refused.
    fn admit(&self, number: u64, socket: OwnedFd) -> Result<Arc<Connection>, (OwnedFd, String)> {
        let peer = match sockopt::socket_peercred(&socket) {
            Ok(peer) => peer,
            Err(error) => return Err((socket, format!("cannot read your user: {error}"))),
        };
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        let peer = Peer { user: peer.uid.as_raw(), group: peer.gid.as_raw() };
        let mut connections = lock(&self.connections);
        let terms = match self.terms(peer) {
            Ok(terms) => terms,
            Err(reason) => return Err((socket, reason)),
        };
        let of_user = connections.values().filter(|one| one.peer.user == peer.user).count();
        if connections.len() >= MAX_READERS || of_user >= terms.readers {
            let readers = match connections.len() >= MAX_READERS {
                true => format!("{MAX_READERS} readers"),
                false => format!("{of_user} readers of user {}", peer.user),
            };
            let reason = format!("{readers} are served, and no more are; end one, or try again");
            return Err((socket, reason));
        }
        let (sending, known) = (Mutex::new(()), Mutex::default());
        let new = Arc::new(Connection { socket, peer, pid, terms, sending, known });
        connections.insert(number, Arc::clone(&new));
        Ok(new)
    }
}

fn accept(listener: &OwnedFd, shared: &Arc<Shared>) {
    let mut number = 0;
    while !shared.stopping.load(Ordering::Acquire) {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                number += 1;
                receive(number, socket, shared);
            }
            // Descriptors or memory are exhausted: try again later.
            Err(_) if !shared.stopping.load(Ordering::Acquire) => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(_) => return,
        }
    }
}

/// Starts the thread of a new connection, or refuses it.
fn receive(number: u64, socket: OwnedFd, shared: &Arc<Shared>) {
    let new = match shared.admit(number, socket) {
        Ok(new) => new,
        Err((socket, message)) => {
            // Never waits: the few bytes fit into a new socket's buffer.
            let refusal = Response::Error { message };
            let _peer_gone = send_json(&socket, &refusal, &[], Duration::from_millis(1));
            return;
        }
    };
    let seat = Seat { shared: Arc::clone(shared), number };
    let thread = thread::Builder::new().name("serve-reader".to_owned());
    // If no thread can be started, the seat is free again, and the reader finds the connection closed.
    let _no_thread = thread.spawn(move || Session::new(&new, &seat.shared.service).run());
}

/// The entry of a connection, which ends with its thread, also by a panic.
struct Seat {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.shared.connections).remove(&self.number);
    }
}

/// One reader, from its greeting to its end.
struct Session<'s> {
    connection: &'s Connection,
    service: &'s Service,
    terms: &'s Terms,
    greeted: bool,
    reader: Option<u64>,
    texts: Texts,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            lock(&self.connection.known).reader = None;
            self.service.leave(reader, &self.texts);
        }
    }
}

impl<'s> Session<'s> {
    fn new(connection: &'s Connection, service: &'s Service) -> Session<'s> {
        Session {
            connection,
            service,
            terms: &connection.terms,
            greeted: false,
            reader: None,
            texts: Texts::default(),
        }
    }

    /// Answers until the reader closes, breaks a rule, or does not read its answers.
    fn run(mut self) {
        let mut assembler = Assembler::new(ENVELOPE);
        loop {
            let patience = (!self.greeted).then_some(GREETING_LIMIT);
            let got = assembler.receive(&self.connection.socket, patience, None);
            let answered = match got {
                Ok(Incoming::Message(message)) => self.answer(&message),
                Ok(Incoming::TooLong) => {
                    let limit = self.terms.limits.text_bytes;
                    let _gone = self.refuse(format!(
                        "the request is too long: a text has at most {limit} bytes, and a packet \
                         {} bytes",
                        crate::wire::MAX_PACKET
                    ));
                    return;
                }
                Ok(Incoming::Quiet | Incoming::More) => {
                    let seconds = GREETING_LIMIT.as_secs();
                    let _gone = self.refuse(format!("no greeting within {seconds} seconds"));
                    return;
                }
                Ok(Incoming::Closed) | Err(_) => return,
            };
            if answered.is_err() {
                return;
            }
            if self.greeted {
                assembler.set_limit(self.terms.limits.text_bytes * QUOTING + ENVELOPE);
            }
        }
    }

    fn refuse(&self, message: String) -> io::Result<()> {
        self.connection.send(&Response::Error { message }, &[])
    }

    fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let request = match Request::from_bytes(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(format!("not a request: {error}")),
        };
        let response = match (request, self.reader) {
            (Request::Hello { versions, program }, _) => self.hello(&versions, &program),
            _ if !self.greeted => Err("a reader greets first".to_owned()),
            (Request::Open { .. }, Some(_)) => Err("the buffers are open already".to_owned()),
            (Request::Open { texts, snaplen }, None) => return self.open(&texts, snaplen),
            (_, None) => Err("no buffers are open; open them first".to_owned()),
            (Request::Edit { remove, add }, Some(reader)) => {
                let (texts, terms) = (&mut self.texts, self.terms);
                let edited = self.service.edit(reader, texts, &remove, &add, terms);
                self.show_texts();
                edited.map(Response::Edited).map_err(|refused| refused.to_string())
            }
            (pause @ (Request::Pause {} | Request::Start {}), Some(reader)) => {
                let edited = self.service.pause(reader, pause == Request::Pause {});
                edited.map(Response::Edited).map_err(|refused| refused.to_string())
            }
            (Request::Counts { read, lost }, Some(reader)) => {
                let mut known = lock(&self.connection.known);
                (known.read, known.lost) = (read, lost);
                drop(known);
                Ok(Response::Counts(self.service.counts(reader)))
            }
            (Request::End {}, Some(reader)) => {
                let (counts, reason) = (self.service.end(reader), String::new());
                Ok(Response::Ended { counts, reason })
            }
        };
        match response {
            Ok(response) => self.connection.send(&response, &[]),
            Err(message) => self.refuse(message),
        }
    }

    fn hello(&mut self, versions: &[u32], program: &str) -> Result<Response, String> {
        let version = VERSIONS.iter().copied().find(|version| versions.contains(version));
        let version = version.ok_or_else(|| {
            format!("versions {versions:?} are not spoken here; this service speaks {VERSIONS:?}")
        })?;
        let interface = self.service.interface().ok_or("the capture does not run")?;
        self.greeted = true;
        let is_shown = |letter: &char| !letter.is_control();
        let program = program.chars().filter(is_shown).take(MAX_PROGRAM).collect();
        lock(&self.connection.known).program = program;
        Ok(Response::Hello(Hello {
            version,
            interface: interface.name.clone(),
            link: interface.link.0,
            netmask: interface.netmask,
            snaplen: interface.snaplen.min(self.terms.group.snaplen),
            group: self.terms.group.to_string(),
            limits: self.terms.limits,
        }))
    }

    /// Makes the buffers and sends them. A refused text leaves none.
    fn open(&mut self, texts: &[crate::message::Text], snaplen: u32) -> io::Result<()> {
        let (reader, buffers) = match self.service.join(self.terms, snaplen) {
            Ok(joined) => joined,
            Err(refused) => return self.refuse(refused.to_string()),
        };
        self.reader = Some(reader);
        let edited = self.service.edit(reader, &mut self.texts, &[], texts, self.terms);
        match edited {
            Ok(edited) => {
                lock(&self.connection.known).reader = Some(reader);
                self.show_texts();
                let buffers = [buffers[0].as_fd(), buffers[1].as_fd()];
                self.connection.send(&Response::Opened(edited), &buffers)
            }
            Err(refused) => {
                self.reader = None;
                self.service.leave(reader, &self.texts);
                self.refuse(refused.to_string())
            }
        }
    }

    fn show_texts(&self) {
        let texts = self.texts.iter().map(|(_, text)| text.to_owned());
        lock(&self.connection.known).texts = texts.collect();
    }
}
