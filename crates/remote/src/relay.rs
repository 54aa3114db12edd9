//! The service's end: accepts clients of other machines, and reads a service or a ring for each.
//!
//! A relay is a process of its own, not a part of `fyke serve`: whatever a peer in the network does reaches a process
//! without capture sockets and without a helper; the capture never waits for it; and both are started again without
//! each other. To the service it is a reader like others.
//!
//! Each client has a thread; the numbers of clients and of other connections are bounded (`connections.rs`). A client
//! is known by the common name of its certificate. With a policy file, the first rule that has the name for the
//! interface decides what the client sees; the rules are read again for each client. Without one, every client with a
//! certificate of the authority is served.

mod connections;
mod session;
mod terms;

use crate::link::{Link, LinkError};
use crate::message::Response;
use crate::tls;
use connections::{Connections, Counted};
use fyke_serve::events::LogLimit;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use session::Sent;
pub use terms::check_policy;

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

struct Shared {
    options: Options,
    config: Arc<ServerConfig>,
    stop: AtomicBool,
    connections: Arc<Connections>,
    refused: LogLimit,
    report: Box<dyn Fn(String) + Send + Sync>,
}

/// Accepts clients.
pub struct Relay {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Shared {
    /// Reports a connection that does not become a client: anybody can cause any number of these.
    fn report_refused(&self, line: String) {
        if let Some(omitted) = self.refused.take(Instant::now()) {
            if omitted > 0 {
                (self.report)(format!("{omitted} refused connections were not reported"));
            }
            (self.report)(line);
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
        let (connections, refused, stop) = Default::default();
        let report = Box::new(report);
        let shared = Shared { options, config, stop, connections, refused, report };
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
        while !self.shared.connections.is_empty() {
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
        let counted = match shared.connections.enter(from.ip()) {
            Ok(counted) => counted,
            Err(why) => return shared.report_refused(format!("{from} refused: {why}")),
        };
        let serve = move || {
            if let Err(why) = serve(&shared, counted, socket, from) {
                shared.report_refused(format!("{from}: {why}"));
            }
        };
        // Without memory for a thread the connection is closed, and its count with it.
        let _started = thread::Builder::new().name("client".to_owned()).spawn(serve);
    }
}

/// Serves one client from its handshake to its end.
fn serve(
    shared: &Shared,
    mut counted: Counted,
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
        .map_err(session::Refusal::from)
        .and_then(|name| session::Session::open(shared, &mut counted, &mut link, &name));
    let session = match opened {
        Ok(session) => session,
        Err(session::Refusal { reason, later }) => {
            shared.report_refused(format!("{from} refused: {reason}"));
            link.send_json(&Response::Refused { reason, later })?;
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
