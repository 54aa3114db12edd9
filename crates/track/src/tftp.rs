//! TFTP: follows requests and expects the file, which comes from another port of the server to the port of the request.
//!
//! Read and write requests over UDP, IPv4 and IPv6. A transfer is between the two hosts of its request and ends when it
//! is silent: its last acknowledgement may be repeated. Cost: one hash look-up per datagram. Memory: [`Limits`].
//! Source: RFC 1350, section 4.

use crate::expectations::{Expectations, Expected, Hit, Wanted};
use crate::segment::{self, Content, Datagram};
use crate::{CallFrame, Cause, Connection, Event, Limits, Protocol, Tracker, TrackerKind};
use fyke_frame::Frame;
use std::net::SocketAddr;

/// A request to read or to write a file.
pub const REQUEST: Cause = Cause::new("TFTP request");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "tftp",
    summary: "TFTP with its transfers (port 69)",
    port: PORT,
    causes: &[REQUEST],
    start_filter,
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Tftp::at_ports(ports, limits)),
};

/// Standard port of requests.
const PORT: u16 = 69;

/// The tracker.
#[derive(Debug)]
pub struct Tftp {
    limits: Limits,
    ports: Vec<u16>,
    start_filter: String,
    expectations: Expectations,
    transfers: u64,
    /// Transfer of the last frame.
    call: Option<CallFrame>,
}

impl Default for Tftp {
    fn default() -> Self {
        Tftp::at_ports(&[PORT], Limits::default())
    }
}

impl Tftp {
    /// A tracker of requests to these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Tftp {
            limits,
            ports: ports.to_vec(),
            start_filter: start_filter(ports),
            expectations: Expectations::new(limits),
            transfers: 0,
            call: None,
        }
    }

    fn request(&mut self, datagram: &Datagram<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let from: SocketAddr = datagram.source;
        // A repeated request is the same transfer while nothing has arrived.
        let same = |one: &Expected| {
            let Connection { server, port, client, .. } = one.connection;
            !one.arrived
                && (server, port, client) == (from.ip(), from.port(), datagram.destination.ip())
        };
        let known = self.expectations.at(Protocol::Udp, from).find(same);
        let call = known.map_or(self.transfers + 1, |known| known.connection.call);
        self.transfers = self.transfers.max(call);
        self.call = Some(CallFrame::signalling(call));
        let connection = Connection {
            id: 0,
            server: from.ip(),
            port: from.port(),
            client: datagram.destination.ip(),
            protocol: Protocol::Udp,
            pair: true,
            call,
            label: "TFTP data",
            cause: REQUEST,
            announced_ns: now_ns,
        };
        let lifetime_ns = self.limits.announced_ns;
        let wanted = Wanted { connection, origin: call, lifetime_ns, follows_call: false };
        self.expectations.expect(wanted, events);
    }
}

impl Tracker for Tftp {
    fn name(&self) -> &str {
        KIND.name
    }

    fn start_filter(&self) -> &str {
        &self.start_filter
    }

    fn held(&self) -> Option<&str> {
        KIND.held
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        let now_ns = frame.timestamp_ns;
        self.expire(now_ns, events);
        self.call = None;
        let Content::Udp(datagram) = segment::read(frame) else { return };
        let (source, destination) = (datagram.source, datagram.destination);
        if !self.ports.contains(&destination.port()) {
            let hit = self.expectations.datagram(source, destination, frame.wire_len, now_ns);
            self.call = hit.map(Hit::in_call);
        } else if matches!(datagram.payload, [0, 1 | 2, _, ..]) {
            self.request(&datagram, now_ns, events);
        }
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.expectations.expire(now_ns, events);
    }

    fn call(&self) -> Option<CallFrame> {
        self.call
    }

    fn expected(&self) -> Vec<Expected> {
        self.expectations.list().collect()
    }
}

/// The filter text for requests to these ports.
fn start_filter(ports: &[u16]) -> String {
    let texts = ports.iter().map(|port| format!("udp dst port {port}"));
    texts.collect::<Vec<_>>().join(" or ")
}
