//! The client's end: a source of frames, and the far service as the space below the client's filters.
//!
//! Before the first frame, requests are answered in the thread that makes them. From the first call of
//! [`next`](Source::next) on, a thread receives, so that decryption costs the packet loop nothing, and the relay hears
//! that this end is there while an output is slow. Frames wait in a queue of at most [`WINDOW`] bytes, which is what
//! the relay may send ahead.
//!
//! A lost connection is made again (`shared.rs`): the texts are sent again, and the time between is reported, because
//! the number of frames that passed there meanwhile is not known.
//!
//! An edit is in force at the far side when [`edit`](fyke_capture::FrameServer::edit) returns; with the superset rule
//! of [`fyke_serve::lower`], it is in force here afterwards. A text that the far side refuses is judged here.

mod dial;
mod shared;
mod state;

use crate::address::Address;
use crate::link::LinkError;
use crate::message::{Origin, Request};
use crate::tls::{Files, TlsError};
use dial::{Dial, Greeted};
use fyke_capture::{
    DROP_REASONS, Interface, LookBack, NOT_SENT, Next, Notice, ReadError, SocketFilter, Source,
    SourceStats,
};
use fyke_frame::{Batch, LinkType};
use shared::Shared;
use state::{Arrived, Taken};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of frames that the relay may send ahead.
pub const WINDOW: u64 = 8 << 20;
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

impl ConnectError {
    /// The reason without the address.
    fn reason(&self) -> String {
        match self {
            ConnectError::Tls(error) => error.to_string(),
            ConnectError::Connect { why, .. } => why.clone(),
            ConnectError::Link { source, .. } => source.to_string(),
            ConnectError::Refused { reason, .. } => format!("the relay: {reason}"),
        }
    }
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
    taken: Arrived,
    next: usize,
    delivered: u64,
    patience: Duration,
    /// True if the far side evaluates texts.
    filters: bool,
    has_texts: bool,
    is_running: bool,
    /// Time after which the last frames are not waited for; `None` before a stop.
    deadline: Option<Instant>,
}

impl RemoteSource {
    /// Connects to a relay; with `graph`, the far service runs its nodes for this source. A source that `reconnects`
    /// makes a lost connection again, from 0.1 s to 5 s after each attempt, until it is stopped or the relay refuses.
    ///
    /// # Errors
    /// The certificates cannot be used, the relay is not there, or it refuses.
    pub fn connect(
        kind: FarKind,
        address: &Address,
        files: &Files,
        graph: Option<&str>,
        reconnects: bool,
    ) -> Result<RemoteSource, ConnectError> {
        let dial = Dial::prepare(kind, address, files, graph)?;
        let lost = |source: LinkError| ConnectError::Link { address: address.clone(), source };
        let Greeted { mut link, filters, restricted, interfaces } =
            dial.connect().map_err(|no_link| *no_link.error)?;
        link.send_json(&Request::Credit { bytes: WINDOW }).map_err(lost)?;
        let dial = reconnects.then_some(dial);
        let shared = Shared::new(link, dial, interfaces.clone(), restricted);
        let mut source = RemoteSource {
            name: format!("{}{address}", kind.prefix()),
            shared: Arc::new(shared.map_err(|error| lost(error.into()))?),
            interfaces: Vec::new(),
            taken: Arrived::default(),
            next: 0,
            delivered: 0,
            patience: PATIENCE,
            filters,
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
}

impl Source for RemoteSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        self.begin()?;
        while self.next >= self.taken.received.len() {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.shared.close();
                self.deadline = None;
                return Err(self.failed(format!(
                    "the last frames did not come within {} s; they are not counted",
                    LAST_FRAMES.as_secs()
                )));
            }
            match self.shared.take(self.patience) {
                Taken::Frames(mut arrived) => {
                    self.add(std::mem::take(&mut arrived.more));
                    (self.taken, self.next) = (arrived, 0);
                }
                Taken::Nothing => return Ok(Next::Idle),
                Taken::End(None) => return Ok(Next::End),
                Taken::End(Some(why)) => return Err(self.failed(why)),
            }
        }
        let mut batch = Batch::new();
        while self.next < self.taken.received.len()
            && batch.push(self.taken.frame(self.next)).is_ok()
        {
            self.next += 1;
            self.delivered += 1;
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let counts = self.shared.counts();
        let (cuts, unseen_ms) = self.shared.cuts();
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
            beyond_policy: self.shared.is_restricted(),
            cuts,
            unseen_ms,
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
        filter.take_server(Arc::new(shared::Far(Arc::clone(&self.shared))))?;
        self.has_texts = true;
        Ok(())
    }

    fn take_notice(&mut self) -> Option<Notice> {
        let (state, why) = self.shared.take_notice()?;
        Some(Notice { interface: self.name.clone(), state, why })
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        self.shared.close();
    }
}
