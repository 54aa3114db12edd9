//! The common part of the trackers: ports, expectations, and the call of the last frame.
//!
//! A tracker implements [`Follows`]: it reads the content of frames. The rest of [`Tracker`] is the same for all.

use crate::expectations::{Announcement, Expectations, Expected, Hit, Wanted};
use crate::records::{Record, RecordStreams};
use crate::segment::{self, Content, Datagram, Segment};
use crate::{CallFrame, Cause, Connection, Event, Limits, Protocol, Tracker, TrackerKind};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use std::net::{IpAddr, SocketAddr};

/// Time for the last data after the end of a call, in nanoseconds.
pub(crate) const LINGER_NS: u64 = 500_000_000;

/// State that every tracker has.
#[derive(Debug)]
pub(crate) struct Base {
    kind: &'static TrackerKind,
    pub(crate) limits: Limits,
    ports: Vec<u16>,
    start_filter: String,
    pub(crate) expectations: Expectations,
    /// Call of the last frame.
    pub(crate) call: Option<CallFrame>,
}

/// An announced end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) end: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Sender of the announcement, or the other end.
    pub(crate) client: IpAddr,
    /// True if only frames with this client belong to it.
    pub(crate) pair: bool,
    pub(crate) label: &'static str,
    pub(crate) cause: Cause,
    /// As in [`Wanted::origin`].
    pub(crate) origin: u64,
    pub(crate) lifetime_ns: u64,
    pub(crate) follows_call: bool,
}

impl Base {
    pub(crate) fn new(kind: &'static TrackerKind, ports: &[u16], limits: Limits) -> Base {
        Base {
            kind,
            limits,
            ports: ports.to_vec(),
            start_filter: (kind.start_filter)(ports),
            expectations: Expectations::new(limits),
            call: None,
        }
    }

    /// True if a port is one of control connections.
    pub(crate) fn is_control(&self, end: SocketAddr) -> bool {
        self.ports.contains(&end.port())
    }

    /// The ends of a control connection, if one of them is a server.
    pub(crate) fn ends(&self, source: SocketAddr, destination: SocketAddr) -> Option<Ends> {
        if self.is_control(destination) {
            return Some(Ends { server: destination, client: source, from_server: false });
        }
        let from_server = self.is_control(source);
        from_server.then_some(Ends { server: source, client: destination, from_server })
    }

    /// The frame is signalling of a call.
    pub(crate) fn signals(&mut self, call: u64) {
        self.call = Some(CallFrame::signalling(call));
    }

    /// Takes a datagram that is not signalling; true if it was expected.
    pub(crate) fn datagram(&mut self, datagram: &Datagram<'_>, frame: &Frame<'_>) -> bool {
        let (source, destination) = (datagram.source, datagram.destination);
        let (len, now_ns) = (frame.wire_len, frame.timestamp_ns);
        self.arrived(|base| base.expectations.datagram(source, destination, len, now_ns))
    }

    /// Takes a packet of a protocol without ports; true if it was expected.
    pub(crate) fn packet(
        &mut self,
        protocol: Protocol,
        source: IpAddr,
        destination: IpAddr,
        frame: &Frame<'_>,
    ) -> bool {
        let (source, destination) = (SocketAddr::new(source, 0), SocketAddr::new(destination, 0));
        let (len, now_ns) = (frame.wire_len, frame.timestamp_ns);
        self.arrived(|base| base.expectations.packet(protocol, source, destination, len, now_ns))
    }

    /// Takes a segment of a connection that is not one of control; true if it was expected.
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        frame: &Frame<'_>,
        events: &mut Vec<Event>,
    ) -> bool {
        let (len, now_ns) = (frame.wire_len, frame.timestamp_ns);
        self.arrived(|base| base.expectations.segment(segment, len, now_ns, events))
    }

    fn arrived(&mut self, take: impl FnOnce(&mut Base) -> Option<Hit>) -> bool {
        let hit = take(self);
        self.call = hit.map(Hit::in_call);
        hit.is_some()
    }

    /// Expects an end for a call.
    pub(crate) fn expect(
        &mut self,
        call: u64,
        offer: Offer,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) -> Announcement {
        let Offer { end, protocol, client, pair, label, cause, .. } = offer;
        let connection = Connection {
            id: 0,
            server: end.ip(),
            port: end.port(),
            client,
            protocol,
            pair,
            call,
            label,
            cause,
            announced_ns: now_ns,
        };
        let Offer { origin, lifetime_ns, follows_call, .. } = offer;
        let wanted = Wanted { connection, origin, lifetime_ns, follows_call };
        self.expectations.expect(wanted, events)
    }

    /// Ends what a call expects after a short time for the last data.
    pub(crate) fn cancel(&mut self, call: u64, now_ns: u64) {
        self.expectations.cancel(call, now_ns, LINGER_NS.min(self.limits.linger_ns));
    }
}

/// The ends of a control connection, and the direction of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) server: SocketAddr,
    pub(crate) client: SocketAddr,
    pub(crate) from_server: bool,
}

impl Ends {
    /// The sender.
    pub(crate) fn sender(self) -> IpAddr {
        if self.from_server { self.server.ip() } else { self.client.ip() }
    }
}

/// Numbers of the control connections of protocols in which each is a call.
#[derive(Debug)]
pub(crate) struct ControlCalls {
    known: Ageing<(SocketAddr, SocketAddr), u64>,
    count: u64,
}

impl ControlCalls {
    pub(crate) fn new(most: usize) -> ControlCalls {
        ControlCalls { known: Ageing::new(most), count: 0 }
    }

    /// The number of the call of a control connection, which is new if it is not known.
    pub(crate) fn enter(&mut self, ends: Ends, deadline_ns: u64) -> u64 {
        let key = (ends.server, ends.client);
        if let Some(&mut call) = self.known.touch(&key, deadline_ns) {
            return call;
        }
        self.count += 1;
        self.known.insert(key, self.count, deadline_ns);
        self.count
    }

    pub(crate) fn expire(&mut self, now_ns: u64) {
        while self.known.pop_due(now_ns).is_some() {}
    }
}

/// Control connections of a protocol in which each is a call, and its messages are [records](crate::records).
#[derive(Debug)]
pub(crate) struct Controls {
    calls: ControlCalls,
    streams: RecordStreams,
}

impl Controls {
    /// `find` finds the end of the first message of bytes.
    pub(crate) fn new(limits: Limits, find: fn(&[u8]) -> Record) -> Controls {
        let most = limits.control_connections;
        Controls { calls: ControlCalls::new(most), streams: RecordStreams::new(most, find) }
    }

    /// Takes a segment of a control connection; returns its call, and the messages that it completes.
    pub(crate) fn segment(
        &mut self,
        base: &mut Base,
        ends: Ends,
        segment: &Segment<'_>,
        now_ns: u64,
    ) -> (u64, Vec<Vec<u8>>) {
        let call = self.calls.enter(ends, now_ns.saturating_add(base.limits.control_idle_ns));
        base.signals(call);
        (call, self.streams.segment(segment, now_ns))
    }

    /// Forgets connections that are silent.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        self.calls.expire(now_ns);
        if now_ns != u64::MAX {
            self.streams.expire(now_ns);
        }
    }

    /// Number of messages that were too long, or had no room.
    pub(crate) fn long(&self) -> u64 {
        self.streams.long()
    }
}

/// A tracker with a [`Base`].
pub(crate) trait Follows: Send {
    fn base(&self) -> &Base;

    fn base_mut(&mut self) -> &mut Base;

    /// Reads a frame; what it expects has been aged, and its call is not known yet.
    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>);

    /// Forgets state of its own that is too old.
    fn tidy(&mut self, _now_ns: u64) {}

    /// Adds numbers of what was not followed.
    fn add_notices(&self, _notices: &mut Vec<(&'static str, u64)>) {}
}

impl<T: Follows> Tracker for T {
    fn name(&self) -> &str {
        self.base().kind.name
    }

    fn start_filter(&self) -> &str {
        &self.base().start_filter
    }

    fn held(&self) -> Option<&str> {
        self.base().kind.held
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        self.expire(frame.timestamp_ns, events);
        self.base_mut().call = None;
        self.read(segment::read(frame), frame, events);
    }

    fn load(&self, frames: &mut dyn Iterator<Item = &Frame<'_>>) {
        self.base().expectations.load(frames.filter_map(segment::common_ends));
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.base_mut().expectations.expire(now_ns, events);
        self.tidy(now_ns);
    }

    fn call(&self) -> Option<CallFrame> {
        self.base().call
    }

    fn expected(&self) -> Vec<Expected> {
        self.base().expectations.list().collect()
    }

    fn notices(&self) -> Vec<(&'static str, u64)> {
        let mut notices = self.base().expectations.notices();
        self.add_notices(&mut notices);
        notices
    }
}

/// A filter text for each port, `udp port N or udp port N`; `text` has `#` in the places of the port.
pub(crate) fn each_port(ports: &[u16], text: &str) -> String {
    let texts = ports.iter().map(|port| text.replace('#', &port.to_string()));
    texts.collect::<Vec<_>>().join(" or ")
}
