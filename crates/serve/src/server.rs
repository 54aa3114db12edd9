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

use crate::compiling::Compiling;
use crate::message::{
    Counts, Edited, HANDED_ON, Hello, MAX_PROGRAM, Request, Response, Text, VERSIONS,
};
use crate::place::Listening;
use crate::policy::{MAX_READERS, Peer, Policy, Terms};
use crate::restore::{Restoration, Restored, peer_of};
use crate::service::{Refused, Service, Texts};
use crate::store::{Saved, Store, load, save};
use crate::table::Descriptors;
use crate::wire::{Assembler, Incoming, send_json};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::geteuid;
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
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, Arc<Connection>>>,
    compiling: Compiling,
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
        Server::start_with(socket, service, policy, None, Restoration::default())
    }

    /// Starts to answer, and continues with the readers of a process before this one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start_with(
        socket: Listening,
        service: Arc<Service>,
        policy: Policy,
        store: Option<Arc<Store>>,
        restored: Restoration,
    ) -> io::Result<Server> {
        let (stopping, connections) = (AtomicBool::new(false), Mutex::default());
        let policy = Mutex::new(policy);
        let shared = Arc::new(Shared {
            service,
            store,
            policy,
            stopping,
            connections,
            compiling: Compiling::default(),
        });
        let first = restored.len() as u64;
        shared.go_on(restored)?;
        let (listener, accepts) = (socket.as_fd().try_clone_to_owned()?, Arc::clone(&shared));
        let thread = thread::Builder::new().name("serve".to_owned());
        let acceptor = Some(thread.spawn(move || accept(&listener, &accepts, first))?);
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
        // Makes the blocked accept return; fails only if the socket no longer listens.
        let _not_listening = shutdown(&self.socket, Shutdown::Both);
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

fn accept(listener: &OwnedFd, shared: &Arc<Shared>, mut number: u64) {
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

/// One reader, from its greeting to its end.
struct Session<'s> {
    connection: &'s Connection,
    service: &'s Service,
    compiling: &'s Compiling,
    terms: &'s Terms,
    store: Option<&'s Arc<Store>>,
    greeted: bool,
    /// Version of the protocol.
    version: u32,
    snaplen: u32,
    reader: Option<u64>,
    texts: Texts,
    /// Number and text of its graph.
    graph: Option<(u64, String)>,
    /// Numbers of its files.
    files: Vec<u64>,
    /// True until the reader knows that this process continues with it: requests before that are void.
    is_moving: bool,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let kept = {
                let mut known = lock(&self.connection.known);
                known.reader = None;
                known.kept.take()
            };
            if let (Some(store), Some((slot, _))) = (self.store, kept) {
                store.forget(reader, slot);
            }
            self.remove_graph();
            self.service.leave(reader, &self.texts);
        }
        self.service.files().end(&self.files);
    }
}

impl<'s> Session<'s> {
    fn new(connection: &'s Connection, shared: &'s Shared) -> Session<'s> {
        Session {
            connection,
            service: &shared.service,
            compiling: &shared.compiling,
            terms: &connection.terms,
            store: shared.store.as_ref(),
            greeted: false,
            version: 0,
            snaplen: 0,
            reader: None,
            texts: Texts::default(),
            graph: None,
            files: Vec::new(),
            is_moving: false,
        }
    }

    fn remove_graph(&mut self) {
        if let Some((id, _)) = self.graph.take() {
            self.service.remove_graph(id);
        }
    }

    /// Continues with a reader of a process before this one.
    fn go_on(mut self, one: Restored) {
        let Restored { number, buffers, texts, saved, graph, from, .. } = one;
        (self.greeted, self.is_moving) = (true, true);
        (self.version, self.snaplen) = (saved.version, saved.snaplen);
        (self.reader, self.texts) = (Some(number), texts);
        self.graph = graph.zip(saved.graph);
        self.show_texts();
        let texts = self.texts.iter().map(|(id, _)| id).collect();
        let moved = Response::Moved { from, texts, epoch: self.service.epoch() };
        let descriptors: Vec<_> = buffers.iter().map(AsFd::as_fd).collect();
        if self.connection.send(&moved, &descriptors).is_err() {
            return;
        }
        drop::<Descriptors>(buffers);
        self.service.call(number);
        self.run();
    }

    /// Has the reader kept for a process after this one, if its protocol can move.
    fn keep(&mut self, reader: u64) {
        let Some(store) = self.store.filter(|_| self.version >= HANDED_ON) else { return };
        let Some(slot) = store.slot() else { return };
        let program = lock(&self.connection.known).program.clone();
        let saved = self.saved(reader, slot, program);
        let own = self.service.keep(reader, slot);
        let link = self.connection.socket.as_fd();
        match own.and_then(|own| store.keep(reader, link, &own, &saved)) {
            Ok(file) => {
                lock(&self.connection.known).kept = Some((slot, file));
                // It may have been paused meanwhile.
                self.save(reader);
            }
            Err(_) => {
                // It ends with this process.
                self.service.keep_no_more(reader);
                store.forget(reader, slot);
            }
        }
    }

    fn saved(&self, reader: u64, slot: usize, program: String) -> Saved {
        let text = |(id, text): (u64, &str)| Text { id, text: text.to_owned() };
        let (is_paused, meter) = self.service.state(reader);
        Saved {
            version: self.version,
            slot,
            program,
            snaplen: self.snaplen,
            texts: self.texts.iter().map(text).collect(),
            graph: self.graph.as_ref().map(|(_, graph)| graph.clone()),
            is_paused,
            meter,
        }
    }

    /// Writes the state of the reader for a process after this one.
    fn save(&self, reader: u64) {
        // Held throughout: another thread may pause the reader.
        let known = lock(&self.connection.known);
        if let Some((slot, file)) = &known.kept {
            let saved = self.saved(reader, *slot, known.program.clone());
            // Without memory, the process after this one has the state before.
            let _old_state = save(file, &saved);
        }
    }

    /// Answers until the reader closes, breaks a rule, or does not read its answers.
    fn run(mut self) {
        let mut assembler = Assembler::new(ENVELOPE);
        if self.greeted {
            assembler.set_limit(self.terms.limits.text_bytes * QUOTING + ENVELOPE);
        }
        loop {
            let patience = (!self.greeted).then_some(GREETING_LIMIT);
            // A reader that opens its buffers may lend a page; the kernel closes all other descriptors.
            let mut given = Vec::new();
            let into = (self.greeted && self.reader.is_none()).then_some(&mut given);
            let got = assembler.receive(&self.connection.socket, patience, into);
            let answered = match got {
                Ok(Incoming::Message(message)) => self.answer(&message, given),
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

    fn answer(&mut self, message: &[u8], mut given: Vec<OwnedFd>) -> io::Result<()> {
        let request = match Request::from_bytes(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(format!("not a request: {error}")),
        };
        if request == (Request::Resume {}) {
            self.is_moving = false;
            return Ok(());
        }
        if self.is_moving {
            return Ok(());
        }
        let response = match (request, self.reader) {
            (Request::Hello { versions, program }, _) => self.hello(&versions, &program),
            _ if !self.greeted => Err("a reader greets first".to_owned()),
            (Request::Files {}, Some(_)) => Err("send files before `open`".to_owned()),
            (Request::Files {}, None) => self.add_files(given),
            (Request::Open { .. }, Some(_)) => Err("the buffers are open already".to_owned()),
            (Request::Open { texts, graph: Some(_), .. }, None) if !texts.is_empty() => {
                Err("a reader has texts or a graph, not both".to_owned())
            }
            (Request::Open { texts, snaplen, graph }, None) => {
                return self.open(&texts, snaplen, graph, given.pop());
            }
            (_, None) => Err("no buffers are open; open them first".to_owned()),
            (Request::Graph { graph }, Some(reader)) => {
                let set = self.set_graph(reader, graph);
                self.save(reader);
                set
            }
            (Request::Edit { .. }, Some(_)) if self.graph.is_some() => {
                Err("this reader has a graph; replace it by a request `graph`".to_owned())
            }
            (Request::Edit { remove, add }, Some(reader)) => {
                let edited = self.edit(reader, &remove, &add);
                self.show_texts();
                self.save(reader);
                edited.map(Response::Edited)
            }
            (pause @ (Request::Pause {} | Request::Start {}), Some(reader)) => {
                let edited = self.service.pause(reader, pause == Request::Pause {});
                self.save(reader);
                edited.map(Response::Edited).map_err(|refused| refused.to_string())
            }
            (Request::Counts { read, lost }, Some(reader)) => {
                let mut known = lock(&self.connection.known);
                (known.read, known.lost) = (read, lost);
                drop(known);
                let failure =
                    self.graph.as_ref().and_then(|(id, _)| self.service.graph_failure(*id));
                if let Some(reason) = failure {
                    self.connection.end(self.service, &reason);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(Response::Counts(self.service.counts(reader)))
            }
            (Request::End {}, Some(reader)) => Ok(self.end(reader)),
            (Request::Resume {}, Some(_)) => return Ok(()),
        };
        match response {
            Ok(response) => self.connection.send(&response, &[]),
            Err(message) => self.refuse(message),
        }
    }

    fn end(&mut self, reader: u64) -> Response {
        let counts = match self.graph.is_some() {
            false => self.service.end(reader),
            true => {
                self.service.drain();
                self.remove_graph();
                self.service.end_now(reader)
            }
        };
        Response::Ended { counts, reason: String::new() }
    }

    fn add_files(&mut self, given: Vec<OwnedFd>) -> Result<Response, String> {
        if given.is_empty() {
            return Err("no descriptor came with the request".to_owned());
        }
        let numbers = self.service.files().add(self.connection.peer.user, given)?;
        self.files.extend(&numbers);
        Ok(Response::Files { numbers })
    }

    fn hello(&mut self, versions: &[u32], program: &str) -> Result<Response, String> {
        let version = VERSIONS.iter().copied().find(|version| versions.contains(version));
        let version = version.ok_or_else(|| {
            format!("versions {versions:?} are not spoken here; this service speaks {VERSIONS:?}")
        })?;
        let interface = self.service.interface().ok_or("the capture does not run")?;
        (self.greeted, self.version) = (true, version);
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
            restricted: !self.terms.group.filter.is_empty(),
            limits: self.terms.limits,
        }))
    }

    /// Makes the buffers and sends them. A refused text leaves none.
    fn open(
        &mut self,
        texts: &[crate::message::Text],
        snaplen: u32,
        graph: Option<String>,
        page: Option<OwnedFd>,
    ) -> io::Result<()> {
        let user = self.connection.peer.user;
        let joined = self.service.join(user, self.terms, snaplen, graph.is_some());
        let (reader, buffers) = match joined {
            Ok(joined) => joined,
            Err(refused) => return self.refuse(refused.to_string()),
        };
        (self.reader, self.snaplen) = (Some(reader), snaplen);
        // Before the first frame, so that the reader need not look once more.
        let event = page.map(|page| self.service.let_sleep(reader, page)).transpose();
        let event = match event {
            Ok(event) => event,
            Err(refused) => {
                self.reader = None;
                self.service.leave(reader, &self.texts);
                return self.refuse(refused.to_string());
            }
        };
        let opened = match graph {
            Some(graph) => self.put_graph(reader, graph),
            None => self.edit(reader, &[], texts),
        };
        match opened {
            Ok(edited) => {
                lock(&self.connection.known).reader = Some(reader);
                self.show_texts();
                self.keep(reader);
                let buffers: Vec<_> = buffers.iter().chain(&event).map(AsFd::as_fd).collect();
                self.connection.send(&Response::Opened(edited), &buffers)
            }
            Err(refused) => {
                self.reader = None;
                self.service.leave(reader, &self.texts);
                self.refuse(refused)
            }
        }
    }

    fn edit(
        &mut self,
        reader: u64,
        remove: &[u64],
        add: &[crate::message::Text],
    ) -> Result<Edited, String> {
        let (texts, terms, service) = (&mut self.texts, self.terms, self.service);
        self.compiling.time(self.connection.peer.user, terms.compile, || {
            let edited = service.edit(reader, texts, remove, add, terms);
            edited.map_err(|refused| refused.to_string())
        })
    }

    fn put_graph(&mut self, reader: u64, graph: String) -> Result<Edited, String> {
        let (old, terms) = (self.graph.as_ref().map(|(id, _)| *id), self.terms);
        let put = || self.service.put_graph(reader, &graph, terms, old);
        let (id, edited) = self
            .compiling
            .time(self.connection.peer.user, terms.compile, || put().map_err(|r| r.to_string()))?;
        self.graph = Some((id, graph));
        Ok(edited)
    }

    fn set_graph(&mut self, reader: u64, graph: String) -> Result<Response, String> {
        if self.graph.is_none() {
            return Err("this reader has texts; open a connection with a graph".to_owned());
        }
        let edited = self.put_graph(reader, graph)?;
        self.show_texts();
        Ok(Response::Edited(edited))
    }

    fn show_texts(&self) {
        let graph = self.graph.as_ref().map(|(_, graph)| graph.clone());
        let texts = self.texts.iter().map(|(_, text)| text.to_owned()).chain(graph);
        lock(&self.connection.known).texts = texts.collect();
    }
}
