//! The client's end: a source of frames, and the far service as the space below the client's filters.
//!
//! Before the first frame, requests are answered in the thread that makes them. From the first call of
//! [`next`](Source::next) on, a thread receives, so that decryption costs the packet loop nothing, and the relay hears
//! that this end is there while an output is slow. Frames wait in a queue of at most [`WINDOW`] bytes, which is what
//! the relay may send ahead.
//!
//! An edit is in force at the far side when [`edit`](fyke_capture::FrameServer::edit) returns; with the superset rule
//! of [`fyke_serve::lower`], it is in force here afterwards. A text that the far side refuses is judged here.

mod shared;

use crate::address::Address;
use crate::batch::Received;
use crate::link::{Link, LinkError};
use crate::message::{Counts, Origin, Request, Response, VERSION};
use crate::tls::{Files, TlsError};
use fyke_capture::{
    DROP_REASONS, Interface, LookBack, NOT_SENT, Next, ReadError, SocketFilter, Source, SourceStats,
};
use fyke_frame::{Batch, LinkType};
use shared::{MAX_MESSAGE, Shared};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of frames that the relay may send ahead.
pub const WINDOW: u64 = 8 << 20;
/// Time for a connection, its handshake and the greeting, each.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Most addresses of a host that are tried.
const MAX_ADDRESSES: usize = 4;
/// Longest wait of a call for a frame, by default.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longest wait after a stop for the frames that have arrived there.
const LAST_FRAMES: Duration = Duration::from_secs(10);
/// Number of the text that asks for every frame.
const EVERY_FRAME: u64 = u64::MAX;

/// Reason why there is no such source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no connection.
    #[error("{address}: {why}")]
    Connect {
        /// The address.
        address: Address,
        /// The reason.
        why: String,
    },
    /// The connection has ended.
    #[error("{address}: {source}")]
    Link {
        /// The address.
        address: Address,
        /// The reason.
        source: LinkError,
    },
    /// The relay refuses this client.
    #[error("{address}: {reason}")]
    Refused {
        /// The address.
        address: Address,
        /// Its reason.
        reason: String,
    },
}

/// Kind of the far source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarKind {
    /// A service, which evaluates the texts of the client.
    Service,
    /// A ring: its frames come as they are.
    Ring,
}

impl FarKind {
    /// Begin of the name of such a source.
    pub const fn prefix(self) -> &'static str {
        match self {
            FarKind::Service => "serve:",
            FarKind::Ring => "ring:",
        }
    }
}

/// Frames of a capture on another machine.
#[derive(Debug)]
pub struct RemoteSource {
    name: String,
    shared: Arc<Shared>,
    interfaces: Vec<Interface>,
    /// Frames that were taken from the queue, and the next of them.
    taken: Received,
    next: usize,
    delivered: u64,
    patience: Duration,
    /// True if the far side evaluates texts.
    filters: bool,
    restricted: bool,
    has_texts: bool,
    is_running: bool,
    /// Time after which the last frames are not waited for; `None` before a stop.
    deadline: Option<Instant>,
}

fn connect(address: &Address) -> Result<TcpStream, ConnectError> {
    let failed = |why: String| ConnectError::Connect { address: address.clone(), why };
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    let found = found.map_err(|error| failed(error.to_string()))?;
    let mut last = "the host has no address".to_owned();
    for one in found.take(MAX_ADDRESSES) {
        match TcpStream::connect_timeout(&one, CONNECT_LIMIT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error.to_string(),
        }
    }
    Err(failed(last))
}

/// Waits for the answer to the greeting.
fn greet(link: &mut Link, hello: &Request) -> Result<Response, LinkError> {
    link.handshake(CONNECT_LIMIT)?;
    link.send_json(hello)?;
    let start = Instant::now();
    loop {
        if let Some((_, body)) = link.message()? {
            let wrong = |error: serde_json::Error| LinkError::Wrong(error.to_string());
            return serde_json::from_slice(&body).map_err(wrong);
        }
        let left = CONNECT_LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(LinkError::Silent(CONNECT_LIMIT.as_secs()));
        }
        link.turn(left, &[])?;
    }
}

impl RemoteSource {
    /// Connects to a relay; with `graph`, the far service runs its nodes for this source.
    ///
    /// # Errors
    /// The certificates cannot be used, the relay is not there, or it refuses.
    pub fn connect(
        kind: FarKind,
        address: &Address,
        files: &Files,
        graph: Option<&str>,
    ) -> Result<RemoteSource, ConnectError> {
        let tls = files.client(&address.host)?;
        let lost = |source: LinkError| ConnectError::Link { address: address.clone(), source };
        let mut link = Link::new(connect(address)?, tls.into(), MAX_MESSAGE).map_err(lost)?;
        let (name, graph) = (address.name.clone(), graph.map(str::to_owned));
        let hello = Request::Hello { version: VERSION, name, ring: kind == FarKind::Ring, graph };
        let greeted = greet(&mut link, &hello).map_err(lost)?;
        let name = format!("{}{address}", kind.prefix());
        let (filters, restricted, interfaces) = match greeted {
            Response::Hello { version: VERSION, filters, restricted, interfaces, .. }
                if !interfaces.is_empty() =>
            {
                (filters, restricted, interfaces)
            }
            Response::Refused { reason } => {
                return Err(ConnectError::Refused { address: address.clone(), reason });
            }
            other => return Err(lost(LinkError::Wrong(format!("it greets with {other:?}")))),
        };
        link.send_json(&Request::Credit { bytes: WINDOW }).map_err(lost)?;
        let shared = Shared::new(link, interfaces.len()).map_err(|error| lost(error.into()))?;
        let mut source = RemoteSource {
            name,
            shared: Arc::new(shared),
            interfaces: Vec::new(),
            taken: Received::default(),
            next: 0,
            delivered: 0,
            patience: PATIENCE,
            filters,
            restricted,
            has_texts: false,
            is_running: false,
            deadline: None,
        };
        source.add(interfaces);
        Ok(source)
    }

    fn add(&mut self, more: Vec<Origin>) {
        self.interfaces.extend(more.into_iter().map(|origin| Interface {
            description: origin.name,
            snaplen: origin.snaplen.clamp(1, fyke_capture::DEFAULT_SNAPLEN),
            nanoseconds: origin.nanoseconds,
            netmask: origin.netmask,
            ..Interface::new(&self.name, LinkType(origin.link))
        }));
    }

    fn failed(&self, why: String) -> ReadError {
        ReadError::Server { name: self.name.clone(), source: io::Error::other(why) }
    }

    /// Starts to receive, and requests every frame if no filter has requested some.
    fn begin(&mut self) -> Result<(), ReadError> {
        if !self.has_texts && self.filters {
            let edited = self.shared.edit(&[], &[(EVERY_FRAME, "")]);
            edited.map_err(|source| ReadError::Server { name: self.name.clone(), source })?;
        }
        self.has_texts = true;
        if !self.is_running {
            self.is_running = true;
            self.shared.run().map_err(|error| self.failed(error.to_string()))?;
        }
        Ok(())
    }

    /// The counts of the far side, with the reason if it has ended.
    fn counts(&self) -> Counts {
        self.shared.counts()
    }
}

impl Source for RemoteSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        self.begin()?;
        while self.next >= self.taken.len() {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.shared.close();
                self.deadline = None;
                return Err(self.failed(format!(
                    "the last frames did not come within {} s; they are not counted",
                    LAST_FRAMES.as_secs()
                )));
            }
            match self.shared.take(self.patience) {
                shared::Taken::Frames(received, more) => {
                    self.add(more);
                    (self.taken, self.next) = (received, 0);
                }
                shared::Taken::Nothing => return Ok(Next::Idle),
                shared::Taken::End(None) => return Ok(Next::End),
                shared::Taken::End(Some(why)) => return Err(self.failed(why)),
            }
        }
        let mut batch = Batch::new();
        while self.next < self.taken.len() && batch.push(self.taken.frame(self.next)).is_ok() {
            self.next += 1;
            self.delivered += 1;
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let counts = self.counts();
        let dropped = counts.dropped + counts.overrun;
        let mut dropped_by = [0; DROP_REASONS.len()];
        dropped_by[NOT_SENT] = counts.overrun;
        SourceStats {
            received: self.delivered + dropped + counts.unreadable,
            delivered: self.delivered,
            dropped,
            dropped_by,
            unreadable: counts.unreadable,
            filtered: counts.rejected,
            filtered_uncounted: counts.is_partial,
            beyond_policy: self.restricted,
            ..SourceStats::default()
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn stop(&mut self) -> bool {
        if self.deadline.is_none() {
            self.deadline = Some(Instant::now() + LAST_FRAMES);
            self.shared.ask_for_end();
        }
        true
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        if !self.filters {
            let message = "frames do not come from a packet socket";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        filter.take_server(Arc::new(shared::Far(Arc::clone(&self.shared), self.restricted)))?;
        self.has_texts = true;
        Ok(())
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        self.shared.close();
    }
}
