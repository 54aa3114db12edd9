//! The service's end: accepts clients of other machines, and reads a service or a ring for each.
//!
//! A relay is a process of its own, not a part of `fyke serve`: whatever a peer in the network does reaches a process
//! without capture sockets and without a helper; the capture never waits for it; and both are started again without
//! each other. To the service it is a reader like others.
//!
//! Each client has a thread, [`MAX_CLIENTS`] at most. A client is known by the common name of its certificate. With a
//! policy file, the first rule that has the name for the interface decides what the client sees; the rules are read
//! again for each client. Without one, every client with a certificate of the authority is served.

mod session;
mod terms;

use crate::link::{Link, LinkError};
use crate::message::Response;
use crate::tls;
use rustls::{ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub use session::Sent;
pub use terms::check_policy;

/// Most clients at a time, with those that have not greeted yet.
pub const MAX_CLIENTS: usize = 64;
/// Time for the handshake and the greeting, each.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// Time between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(100);
/// Time for the last frames, and the end, to reach a client.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Time for the reason of a refusal to leave.
const LAST: Duration = Duration::from_millis(500);

/// Something that clients can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// A service, by the name that local readers use.
    Service(String),
    /// A ring: a name for clients, and the path of its socket.
    Ring(String, PathBuf),
}

impl Offer {
    /// The name for clients.
    pub fn name(&self) -> &str {
        match self {
            Offer::Service(name) | Offer::Ring(name, _) => name,
        }
    }

    fn is_ring(&self) -> bool {
        matches!(self, Offer::Ring(..))
    }
}

/// The choice of a relay's clients, and their rules.
#[derive(Debug, Clone)]
pub struct Options {
    /// Services and rings that they can read.
    pub offers: Vec<Offer>,
    /// User of the services and rings, besides root and our own.
    pub user: Option<u32>,
    /// The policy file.
    pub policy: Option<PathBuf>,
}

/// Clients that are connected, by their names.
type Names = HashMap<String, usize>;

struct Shared {
    options: Options,
    config: Arc<ServerConfig>,
    stop: AtomicBool,
    clients: AtomicUsize,
    names: Mutex<Names>,
    report: Box<dyn Fn(String) + Send + Sync>,
}

/// Accepts clients.
pub struct Relay {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// One of the clients that are counted; the count ends with it.
struct Counted<'a>(&'a Shared, Option<String>);

impl Counted<'_> {
    /// Counts the client under its name, unless there are too many of it.
    fn named(&mut self, name: &str, most: usize) -> Result<(), String> {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let count = names.entry(name.to_owned()).or_default();
        if *count >= most {
            return Err(format!("{name} has {count} connections already; at most {most}"));
        }
        *count += 1;
        self.1 = Some(name.to_owned());
        Ok(())
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
        let Some(name) = self.1.take() else { return };
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = names.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&name);
            }
        }
    }
}

impl Relay {
    /// Listens at an address.
    ///
    /// # Errors
    /// The certificates cannot be used, or the address cannot be listened at.
    pub fn bind(
        at: SocketAddr,
        files: &tls::Files,
        options: Options,
        report: impl Fn(String) + Send + Sync + 'static,
    ) -> io::Result<Relay> {
        let config = files.relay().map_err(io::Error::other)?;
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        let (clients, names, report) = (AtomicUsize::new(0), Mutex::default(), Box::new(report));
        let stop = AtomicBool::new(false);
        let shared = Shared { options, config, stop, clients, names, report };
        Ok(Relay { listener, shared: Arc::new(shared) })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves clients until the stop flag is set, and waits for their threads to end.
    pub fn run(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((socket, from)) => self.begin(socket, from),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // Too many open files, or a client that is gone already.
                Err(_) => thread::sleep(LOOK),
            }
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        while self.shared.clients.load(Ordering::Acquire) > 0 {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // A signal or a time-out: the caller looks again.
        let _looked = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&time));
    }

    fn begin(&self, socket: TcpStream, from: SocketAddr) {
        let shared = Arc::clone(&self.shared);
        let count = shared.clients.fetch_add(1, Ordering::AcqRel);
        if count >= MAX_CLIENTS {
            drop(Counted(&shared, None));
            (shared.report)(format!("{from} refused: there are {count} clients already"));
            return;
        }
        let serve = move || {
            let mut counted = Counted(&shared, None);
            if let Err(why) = serve(&shared, &mut counted, socket, from) {
                (shared.report)(format!("{from}: {why}"));
            }
        };
        // Without memory for a thread the client is closed; its count with it.
        let started = thread::Builder::new().name("client".to_owned()).spawn(serve);
        if started.is_err() {
            drop(Counted(&self.shared, None));
        }
    }
}

/// Serves one client from its handshake to its end.
fn serve(
    shared: &Shared,
    counted: &mut Counted<'_>,
    socket: TcpStream,
    from: SocketAddr,
) -> Result<(), LinkError> {
    let tls = ServerConnection::new(Arc::clone(&shared.config))?;
    let mut link = Link::new(socket, tls.into(), session::MAX_GREETING)?;
    link.handshake(GREETING_LIMIT)?;
    let rustls::Connection::Server(tls) = link.tls() else {
        return Err(LinkError::Wrong("not a server".to_owned()));
    };
    let opened = tls::name_of(tls)
        .and_then(|name| session::Session::open(shared, counted, &mut link, &name));
    let session = match opened {
        Ok(session) => session,
        Err(reason) => {
            (shared.report)(format!("{from} refused: {reason}"));
            link.send_json(&Response::Refused { reason })?;
            link.close(LAST);
            return Ok(());
        }
    };
    let (name, source) = (session.name().to_owned(), session.source().to_owned());
    (shared.report)(format!("{name} at {from} reads {source}"));
    let (sent, outcome) = session.run(&mut link, &shared.stop);
    link.close(END_LIMIT);
    let why = outcome.err().map_or_else(String::new, |why| format!(" ({why})"));
    (shared.report)(format!("{name} at {from} has left{why}: {sent}"));
    Ok(())
}
