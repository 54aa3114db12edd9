//! TFTP: follows requests and expects the file, which comes from another port of the server to the port of the request.
//!
//! Read and write requests over UDP, IPv4 and IPv6. A transfer is between the two hosts of its request and ends when it
//! is silent: its last acknowledgement may be repeated. Cost: one hash look-up per datagram. Memory: [`Limits`].
//! Source: RFC 1350, section 4.

use crate::base::{Base, Follows, Offer, each_port};
use crate::expectations::Expected;
use crate::segment::{Content, Datagram};
use crate::{Cause, Connection, Event, Limits, Protocol, TrackerKind};
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
    start_filter: |ports| each_port(ports, "udp dst port #"),
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Tftp::at_ports(ports, limits)),
};

/// Standard port of requests.
const PORT: u16 = 69;

/// The tracker.
#[derive(Debug)]
pub struct Tftp {
    base: Base,
    transfers: u64,
}

impl Default for Tftp {
    fn default() -> Self {
        Tftp::at_ports(&[PORT], Limits::default())
    }
}

impl Tftp {
    /// A tracker of requests to these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Tftp { base: Base::new(&KIND, ports, limits), transfers: 0 }
    }

    fn request(&mut self, datagram: &Datagram<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let from: SocketAddr = datagram.source;
        // A repeated request is the same transfer while nothing has arrived.
        let same = |one: &Expected| {
            let Connection { server, port, client, .. } = one.connection;
            !one.arrived
                && (server, port, client) == (from.ip(), from.port(), datagram.destination.ip())
        };
        let known = self.base.expectations.at(Protocol::Udp, from).find(same);
        let call = known.map_or(self.transfers + 1, |known| known.connection.call);
        self.transfers = self.transfers.max(call);
        self.base.signals(call);
        let offer = Offer {
            end: from,
            protocol: Protocol::Udp,
            client: datagram.destination.ip(),
            pair: true,
            label: "TFTP data",
            cause: REQUEST,
            origin: call,
            lifetime_ns: self.base.limits.announced_ns,
            follows_call: false,
        };
        self.base.expect(call, offer, now_ns, events);
    }
}

impl Follows for Tftp {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let Content::Udp(datagram) = content else { return };
        if !self.base.is_control(datagram.destination) {
            self.base.datagram(&datagram, frame);
        } else if matches!(datagram.payload, [0, 1 | 2, _, ..]) {
            self.request(&datagram, frame.timestamp_ns, events);
        }
    }
}
