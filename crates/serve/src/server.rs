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

mod session;

use crate::compiling::Compiling;
use crate::events::{Client, Event, Events, Report};
use crate::message::{Counts, Edited, Response};
use crate::place::Listening;
use crate::policy::{MAX_READERS, Peer, Policy, Terms};
use crate::restore::{Restoration, Restored, peer_of};
use crate::service::{Refused, Service};
use crate::store::{Saved, Store, load, save};
use crate::wire::send_json;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, accept_with, recv, shutdown,
    socketpair,
};
use rustix::process::geteuid;
use session::Session;
use std::collections::BTreeMap;
use std::fs::File;
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
/// Most packets of a refused reader that are taken from its socket; its buffer has room for some hundreds.
const MAX_UNREAD: usize = 1_024;
/// Longest wait at the end for the threads of readers.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Address space that a new thread may need: its stack of 2 MiB, that for signals, and its first requests.
const THREAD_BYTES: usize = 8 << 20;
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
    /// Frames that it has not read and can still read.
    pub unread: u64,
    /// Frames that were overwritten before it could read them, beyond `lost`.
    pub overwritten: u64,
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
    /// The reason, once the service has ended it.
    ended: Option<String>,
    /// Its place in the store: the slot of its log, and the file for its state.
    kept: Option<(usize, File)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    fn send(&self, response: &Response, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _one_message = lock(&self.sending);
        send_json(&self.socket, response, descriptors, ANSWER_LIMIT)
    }

    /// The process at its other end.
    fn client(&self) -> Client {
        let program = lock(&self.known).program.clone();
        Client { user: self.peer.user, process: self.pid, program }
    }

    /// True if another process may continue with the reader.
    fn is_kept(&self) -> bool {
        lock(&self.known).kept.is_some()
    }

    /// Tells the reader that this process stops.
    fn part(&self, service: &Service) {
        let reader = lock(&self.known).reader;
        if let Some(reader) = reader {
            let parting = Response::Parting(service.counts(reader));
            let _one_message = lock(&self.sending);
            let _peer_gone = send_json(&self.socket, &parting, &[], Duration::from_millis(1));
            service.call(reader);
        }
    }

    /// Ends the reader at the batch that is evaluated, and the connection.
    fn end(&self, service: &Service, reason: &str) {
        let reader = lock(&self.known).reader;
        if let Some(reader) = reader {
            let (counts, reason) = (service.end_now(reader), reason.to_owned());
            lock(&self.known).ended = Some(reason.clone());
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
    /// The state with which the process after this one continues.
    store: Option<Arc<Store>>,
    policy: Mutex<Policy>,
    events: Events,
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, Arc<Connection>>>,
    compiling: Compiling,
}

/// A service that answers. Dropping it ends all connections.
#[derive(Debug)]
pub struct Server {
    socket: Listening,
    /// Wakes the thread that accepts.
    waker: OwnedFd,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer at a socket. The graph of the service must have been started.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(socket: Listening, service: Arc<Service>, policy: Policy) -> io::Result<Server> {
        Server::start_with(socket, service, policy, None, Restoration::default(), None)
    }

    /// Starts to answer, and continues with the readers of a process before this one. `report` gets the events for a
    /// log.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start_with(
        socket: Listening,
        service: Arc<Service>,
        policy: Policy,
        store: Option<Arc<Store>>,
        restored: Restoration,
        report: Option<Box<Report>>,
    ) -> io::Result<Server> {
        let (stopping, connections) = (AtomicBool::new(false), Mutex::default());
        let policy = Mutex::new(policy);
        let shared = Arc::new(Shared {
            service,
            store,
            policy,
            events: Events::new(report),
            stopping,
            connections,
            compiling: Compiling::default(),
        });
        let first = restored.len() as u64;
        shared.go_on(restored)?;
        let (listener, accepts) = (socket.as_fd().try_clone_to_owned()?, Arc::clone(&shared));
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (waker, woken) = pair?;
        let thread = thread::Builder::new().name("serve".to_owned());
        let accepting = move || accept(&listener, &woken, &accepts, first);
        let acceptor = Some(thread.spawn(accepting)?);
        Ok(Server { socket, waker, shared, acceptor })
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

    /// Pauses a reader, or starts it again, in other threads; also for a process after this one. `None` if there is no
    /// reader with this number.
    pub fn pause(
        &self,
    ) -> impl Fn(u64, bool) -> Option<Result<Edited, Refused>> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |reader, is_paused| shared.pause(reader, is_paused)
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
        // Wakes the thread that accepts. The socket itself is not shut down: that of a service manager is also the next
        // process's, and connections that wait in it are for that one.
        let _woken = shutdown(&self.waker, Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _panicked = acceptor.join();
        }
        let all: Vec<_> = lock(&self.shared.connections).values().cloned().collect();
        for one in &all {
            match one.is_kept() {
                true => one.part(&self.shared.service),
                false => one.end(&self.shared.service, ""),
            }
        }
        // A thread may be inside an edit that takes long; the process does not wait for it.
        let start = Instant::now();
        let ends = |one: &Arc<Connection>| !one.is_kept();
        while lock(&self.shared.connections).values().any(ends) && start.elapsed() < END_LIMIT {
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
            let (unread, overwritten) = self.service.behind(number, known.read + known.lost);
            Some(ReaderView {
                unread,
                overwritten,
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

    fn pause(&self, reader: u64, is_paused: bool) -> Option<Result<Edited, Refused>> {
        let all: Vec<_> = lock(&self.connections).values().cloned().collect();
        let one = all.into_iter().find(|one| lock(&one.known).reader == Some(reader))?;
        let known = lock(&one.known);
        let paused = self.service.pause(reader, is_paused);
        if let (Ok(_), Some((_, file))) = (&paused, &known.kept) {
            let (is_paused, meter) = self.service.state(reader);
            let saved = load(file).map(|saved| Saved { is_paused, meter, ..saved });
            // Without memory, the process after this one has the state before.
            let _old_state = saved.and_then(|saved| save(file, &saved));
        }
        Some(paused)
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

    /// Continues with readers: first the graphs of those that have one run, then frames flow. Each reader is told.
    fn go_on(self: &Arc<Self>, restored: Restoration) -> io::Result<()> {
        let Restoration { readers, widened } = restored;
        let mut sessions = Vec::new();
        for (number, one) in (1..).zip(readers) {
            let known = Known {
                program: one.saved.program.clone(),
                reader: Some(one.number),
                kept: Some((one.saved.slot, one.file.try_clone()?)),
                ..Known::default()
            };
            let (socket, terms) = (one.link.try_clone()?, one.terms.clone());
            let (sending, known) = (Mutex::new(()), Mutex::new(known));
            let (peer, pid) = (one.peer, one.pid);
            let new = Arc::new(Connection { socket, peer, pid, terms, sending, known });
            lock(&self.connections).insert(number, Arc::clone(&new));
            sessions.push((Seat { shared: Arc::clone(self), number }, new, one));
        }
        if let (None, true) = (widened, sessions.is_empty()) {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("serve-restore".to_owned());
        thread.spawn(move || {
            for (_, connection, one) in &mut sessions {
                one.start_graph(&shared.service, connection);
            }
            if let Some(store) = &shared.store {
                store.capture().wait(false);
            }
            if let Some(widened) = widened {
                shared.service.narrow(widened);
            }
            for (seat, connection, one) in sessions {
                let thread = thread::Builder::new().name("serve-reader".to_owned());
                let run = move || Session::new(&connection, &seat.shared).go_on(one);
                // If no thread can be started, the reader finds the connection closed.
                let _no_thread = thread.spawn(run);
            }
        })?;
        Ok(())
    }

    /// Admits a connection; the reason if it is refused.
    fn admit(&self, number: u64, socket: OwnedFd) -> Result<Arc<Connection>, (OwnedFd, String)> {
        let (peer, pid) = match peer_of(&socket) {
            Ok(found) => found,
            Err(reason) => return Err((socket, reason)),
        };
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

/// Accepts connections until the service stops.
fn accept(listener: &OwnedFd, woken: &OwnedFd, shared: &Arc<Shared>, mut number: u64) {
    loop {
        let fds = [listener, woken].map(|fd| PollFd::new(fd, PollFlags::IN));
        let found = poll(&mut { fds }, None);
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        if found.is_err() {
            // Interrupted, or memory is exhausted.
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                number += 1;
                receive(number, socket, shared);
            }
            // Descriptors or memory are exhausted: try again later.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Sends the reason for a refusal before the connection is closed.
fn turn_away(socket: &OwnedFd, message: String) {
    // Never waits: the few bytes fit into a new socket's buffer.
    let refusal = Response::Error { message };
    let _peer_gone = send_json(socket, &refusal, &[], Duration::from_millis(1));
    // Unread packets at the close would reset the connection, and the reader would get that instead of the reason.
    let _closed_already = shutdown(socket, Shutdown::Read);
    let mut packet = [0; 1];
    for _ in 0..MAX_UNREAD {
        match recv(socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, 1..)) => {}
            _ => break,
        }
    }
}

/// True if there is memory for a thread and its first requests. A thread that finds none while it starts would end the
/// process.
fn has_memory() -> bool {
    let mut room = Vec::<u8>::new();
    let has_room = room.try_reserve_exact(THREAD_BYTES).is_ok();
    // Otherwise the compiler removes the allocation.
    std::hint::black_box(&room);
    has_room
}

/// Starts the thread of a new connection, or refuses it.
fn receive(number: u64, socket: OwnedFd, shared: &Arc<Shared>) {
    let new = match shared.admit(number, socket) {
        Ok(new) => new,
        Err((socket, message)) => {
            let (user, process) = peer_of(&socket).map_or((0, 0), |(peer, pid)| (peer.user, pid));
            let client = Client { user, process, program: String::new() };
            shared.events.report(&Event::Refused { client, reason: message.clone() });
            return turn_away(&socket, message);
        }
    };
    let seat = Seat { shared: Arc::clone(shared), number };
    if !has_memory() {
        let message = "the service has no memory for another reader; try again later";
        return turn_away(&new.socket, message.to_owned());
    }
    let thread = thread::Builder::new().name("serve-reader".to_owned());
    // If no thread can be started, the seat is free again, and the reader finds the connection closed.
    let _no_thread = thread.spawn(move || Session::new(&new, &seat.shared).run());
}

impl Restored {
    /// Starts the graph of a reader, once the packet loop runs. A reader is ended if its graph is refused now.
    fn start_graph(&mut self, service: &Service, connection: &Connection) {
        let Some(graph) = &self.saved.graph else { return };
        let start = Instant::now();
        while !service.runs() && start.elapsed() < GREETING_LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
        match service.put_graph(self.number, graph, &self.terms, None) {
            Ok((id, _)) => self.graph = Some(id),
            Err(refused) => connection.end(service, &refused.to_string()),
        }
    }
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
