//! Connections to a relay: the first one, and those after a loss.
//!
//! Names are looked up and files are read before the first connection only: later, the process is in a sandbox.

use super::{ConnectError, FarKind};
use crate::address::Address;
use crate::link::{Link, LinkError};
use crate::message::{Origin, Request, Response, VERSION};
use crate::source::shared::MAX_MESSAGE;
use crate::tls::{Client, Files};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time for a connection, its handshake and the greeting, each.
const LIMIT: Duration = Duration::from_secs(10);
/// Most addresses of a host that are tried.
const MAX_ADDRESSES: usize = 4;
/// Wait before the first attempt after a loss; twice as long before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Longest wait between two attempts.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Everything that a connection needs.
#[derive(Debug)]
pub(super) struct Dial {
    address: Address,
    /// Places of the host.
    places: Vec<SocketAddr>,
    tls: Client,
    hello: Request,
}

/// A connection after its greeting.
#[derive(Debug)]
pub(super) struct Greeted {
    pub link: Link,
    /// True if the far side evaluates texts.
    pub filters: bool,
    /// True if a rule there decides, too, which frames come.
    pub restricted: bool,
    /// The interfaces so far, at least one.
    pub interfaces: Vec<Origin>,
}

/// Reason for which there is no connection.
#[derive(Debug)]
pub(super) struct NoLink {
    pub error: Box<ConnectError>,
    /// True if a later attempt may succeed.
    pub later: bool,
}

impl Dial {
    /// Reads the files, and looks up the host.
    ///
    /// # Errors
    /// The certificates cannot be used, or the host has no address.
    pub(super) fn prepare(
        kind: FarKind,
        address: &Address,
        files: &Files,
        graph: Option<&str>,
    ) -> Result<Dial, ConnectError> {
        let tls = files.client(&address.host)?;
        let failed = |why: String| ConnectError::Connect { address: address.clone(), why };
        let found = (address.host.as_str(), address.port).to_socket_addrs();
        let found = found.map_err(|error| failed(error.to_string()))?;
        let places: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
        if places.is_empty() {
            return Err(failed("the host has no address".to_owned()));
        }
        let (name, graph) = (address.name.clone(), graph.map(str::to_owned));
        let hello = Request::Hello { version: VERSION, name, ring: kind == FarKind::Ring, graph };
        Ok(Dial { address: address.clone(), places, tls, hello })
    }

    /// Connects and greets.
    ///
    /// # Errors
    /// There is no connection, or the relay refuses.
    pub(super) fn connect(&self) -> Result<Greeted, NoLink> {
        let address = || self.address.clone();
        let lost = |source: LinkError| {
            let later = source.is_loss();
            NoLink { error: Box::new(ConnectError::Link { address: address(), source }), later }
        };
        let tls = self.tls.connection().map_err(|error| lost(error.into()))?;
        let mut link = Link::new(self.socket()?, tls.into(), MAX_MESSAGE).map_err(lost)?;
        match greet(&mut link, &self.hello).map_err(lost)? {
            Response::Hello { version: VERSION, filters, restricted, interfaces, .. }
                if !interfaces.is_empty() =>
            {
                Ok(Greeted { link, filters, restricted, interfaces })
            }
            Response::Refused { reason, later } => {
                let error = Box::new(ConnectError::Refused { address: address(), reason });
                Err(NoLink { error, later })
            }
            other => Err(lost(LinkError::Wrong(format!("it greets with {other:?}")))),
        }
    }

    fn socket(&self) -> Result<TcpStream, NoLink> {
        let mut why = String::new();
        for place in &self.places {
            match TcpStream::connect_timeout(place, LIMIT) {
                Ok(socket) => return Ok(socket),
                Err(error) => why = error.to_string(),
            }
        }
        let error = Box::new(ConnectError::Connect { address: self.address.clone(), why });
        Err(NoLink { error, later: true })
    }
}

/// Waits for the answer to the greeting.
fn greet(link: &mut Link, hello: &Request) -> Result<Response, LinkError> {
    link.handshake(LIMIT)?;
    link.send_json(hello)?;
    let start = Instant::now();
    loop {
        if let Some((_, body)) = link.message()? {
            let wrong = |error: serde_json::Error| LinkError::Wrong(error.to_string());
            return serde_json::from_slice(&body).map_err(wrong);
        }
        let left = LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(LinkError::Silent(LIMIT.as_secs()));
        }
        link.turn(left, &[])?;
    }
}

/// The waits between attempts: 0.1 s, then twice as long each time, 5 s at most.
#[derive(Debug)]
pub(super) struct Waits(Duration);

impl Waits {
    pub(super) fn new() -> Waits {
        Waits(FIRST_WAIT)
    }

    /// The wait before the next attempt.
    pub(super) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(LAST_WAIT);
        now
    }

    /// Begins again after a connection that lasted longer than the longest wait: one that the relay ends at once is not
    /// made ten times a second.
    pub(super) fn lasted(&mut self, time: Duration) {
        if time > LAST_WAIT {
            *self = Waits::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds_and_begin_again_after_a_connection_that_lasted() {
        let mut waits = Waits::new();
        let all: Vec<u128> = (0..8).map(|_| waits.next().as_millis()).collect();
        assert_eq!(all, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        waits.lasted(Duration::from_secs(1));
        assert_eq!(waits.next(), LAST_WAIT);
        waits.lasted(Duration::from_secs(6));
        assert_eq!(waits.next(), FIRST_WAIT);
    }
}
