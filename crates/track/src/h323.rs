//! H.323: follows calls, and expects their H.245 connections and their media, RTP and RTCP, T.38 and T.120.
//!
//! Call signalling (H.225.0) at its port, or at any port from a Setup on, which the filter finds by its first bytes.
//! Reads fast start, the address for H.245, H.245 in a connection of its own and tunnelled, IPv4 and IPv6. A call is a
//! call reference of a signalling connection. ReleaseComplete ends it, EndSession too, and a closed channel ends the
//! ends of that channel. Memory: [`Limits`], 64 calls of a connection, 32 ends of a message. Source: ITU-T H.225.0,
//! H.245, H.323 section 8; RFC 1006 for the framing.

mod h225;
mod h245;
mod per;

use crate::base::{Base, Ends, Follows, Offer, each_port};
use crate::records::{Record, RecordStreams};
use crate::segment::{Content, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use h245::{Media, Part};
use per::{Per, Refusal};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// A Setup at another port than that of call signalling.
pub const SETUP: Cause = Cause::new("H.225 Setup");
/// The address for H.245 in call signalling.
pub const CONTROL: Cause = Cause::new("H.225 h245Address");
/// A channel of a fast start.
pub const FAST_START: Cause = Cause::new("H.225 fastStart");
/// A channel is opened.
pub const OPEN: Cause = Cause::new("H.245 OpenLogicalChannel");
/// A channel is accepted.
pub const ACCEPTED: Cause = Cause::new("H.245 OpenLogicalChannelAck");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "h323",
    summary: "H.323 calls with H.245, RTP, RTCP, T.38 and T.120 (port 1720, or by content)",
    port: 1_720,
    causes: &[SETUP, CONTROL, FAST_START, OPEN, ACCEPTED],
    start_filter: |ports| format!("{} or {BY_CONTENT}", each_port(ports, "tcp port #")),
    held: Some(HELD),
    make: |ports, limits| Box::new(H323::at_ports(ports, limits)),
};

/// Segments that begin with a Setup: TPKT, then Q.931 with a call reference of two bytes.
const BY_CONTENT: &str = "(tcp[(tcp[12] & 0xf0) / 4:2] = 0x0300 and tcp[(tcp[12] & 0xf0) / 4 + 4:2] = 0x0802 and \
                          tcp[(tcp[12] & 0xf0) / 4 + 8] = 5) or (ip6 proto 6 and \
                          ip6[40 + (ip6[52] & 0xf0) / 4:2] = 0x0300 and \
                          ip6[40 + (ip6[52] & 0xf0) / 4 + 4:2] = 0x0802 and ip6[40 + (ip6[52] & 0xf0) / 4 + 8] = 5)";

/// An H.245 connection may be to any port, and media too.
const HELD: &str = "tcp or (udp and not (port 53 or port 67 or port 68 or port 123 or port 137 or port 138 or \
                    port 161 or port 162 or port 443 or port 500 or port 514 or port 1812 or port 1813 or \
                    port 1900 or port 5353 or port 5355))";

/// Label of a signalling connection at another port.
const SIGNALLING: &str = "H.225 signalling";
/// Label of an H.245 connection.
const H245: &str = "H.245 control";
/// Longest time from an announcement to its first frame: an end may ring.
const RINGING_NS: u64 = 200_000_000_000;
/// Time for the last data after the first EndSession of a call.
const SESSION_NS: u64 = 5_000_000_000;
/// Most calls of a signalling connection.
const CALLS: usize = 64;
/// Most ends of a message.
const ENDS: usize = 32;
/// Bytes of a TPKT header.
const HEADER: usize = 4;

/// A signalling connection.
#[derive(Debug)]
struct Signalling {
    /// The call of frames without a whole message.
    last: u64,
    /// Call references and their calls.
    calls: Vec<(u16, u64)>,
}

/// A message of a call: its call and its connection's two ends.
#[derive(Debug, Clone, Copy)]
struct At {
    call: u64,
    sender: IpAddr,
    receiver: IpAddr,
    now_ns: u64,
}

/// The tracker.
#[derive(Debug)]
pub struct H323 {
    base: Base,
    connections: Ageing<(SocketAddr, SocketAddr), Signalling>,
    signalling: RecordStreams,
    control: RecordStreams,
    /// Content of the channels, by call and origin.
    channels: Ageing<(u64, u64), Media>,
    count: u64,
    unreadable: u64,
    not_read: u64,
    over_limit: u64,
}

impl Default for H323 {
    fn default() -> Self {
        H323::at_ports(&[KIND.port], Limits::default())
    }
}

impl H323 {
    /// A tracker of call signalling at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        let most = limits.control_connections;
        H323 {
            base: Base::new(&KIND, ports, limits),
            connections: Ageing::new(most),
            signalling: RecordStreams::new(most, tpkt),
            control: RecordStreams::new(most, tpkt),
            channels: Ageing::new(most),
            count: 0,
            unreadable: 0,
            not_read: 0,
            over_limit: 0,
        }
    }

    /// Takes a segment of a signalling connection.
    fn signal(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let key = (ends.server, ends.client);
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        if self.connections.touch(&key, deadline).is_none() {
            self.count += 1;
            let one = Signalling { last: self.count, calls: Vec::new() };
            self.connections.insert(key, one, deadline);
        }
        let messages = self.signalling.segment(segment, now_ns);
        for bytes in &messages {
            let Some(message) = h225::Message::of(&bytes[HEADER..]) else { continue };
            let Some(call) = self.call_of(key, message.reference) else { continue };
            let (sender, receiver) = (segment.source.ip(), segment.destination.ip());
            self.message(&message, At { call, sender, receiver, now_ns }, events);
            if message.ends_call() {
                self.base.cancel(call, now_ns);
                if let Some(connection) = self.connections.peek_mut(&key) {
                    connection.calls.retain(|(reference, _)| *reference != message.reference);
                }
            }
        }
        if let Some(connection) = self.connections.peek(&key) {
            self.base.signals(connection.last);
        }
    }

    /// The call of a call reference, which is new if it is not known.
    fn call_of(&mut self, key: (SocketAddr, SocketAddr), reference: u16) -> Option<u64> {
        let connection = self.connections.peek_mut(&key)?;
        let known = connection.calls.iter().find(|(known, _)| *known == reference);
        if let Some(&(_, call)) = known {
            connection.last = call;
            return Some(call);
        }
        if connection.calls.len() >= CALLS {
            connection.calls.remove(0);
            self.over_limit += 1;
        }
        // The first call has the number of its connection.
        let is_used = self.base.expectations.has_call(connection.last);
        if !connection.calls.is_empty() || is_used {
            self.count += 1;
            connection.last = self.count;
        }
        connection.calls.push((reference, connection.last));
        Some(connection.last)
    }

    fn message(&mut self, message: &h225::Message<'_>, at: At, events: &mut Vec<Event>) {
        self.base.expectations.refresh(at.call, at.now_ns);
        let announced = match message.announced() {
            Ok(announced) => announced,
            Err(refusal) => return self.refuse(refusal),
        };
        if let Some(end) = announced.control {
            self.expect_control(end, at, events);
        }
        let mut room = ENDS;
        for element in announced.fast_start {
            match h245::open(&mut Per::new(element)) {
                Ok(channel) => self.open(channel, (FAST_START, at), &mut room, events),
                Err(refusal) => self.refuse(refusal),
            }
        }
        for bytes in announced.tunnelled {
            self.control(bytes, at, &mut room, events);
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        match refusal.is_damage() {
            true => self.unreadable += 1,
            false => self.not_read += 1,
        }
    }

    /// Expects an H.245 connection, unless it is there.
    fn expect_control(&mut self, end: SocketAddr, at: At, events: &mut Vec<Event>) {
        let known = self.base.expectations.at(Protocol::Tcp, end);
        if known.into_iter().any(|one| one.connection.call == at.call && one.arrived) {
            return;
        }
        let offer = Offer {
            end,
            protocol: Protocol::Tcp,
            client: at.sender,
            pair: false,
            label: H245,
            cause: CONTROL,
            // If both ends listen, one of them is used.
            origin: 0,
            lifetime_ns: RINGING_NS,
            follows_call: true,
        };
        self.base.expect(at.call, offer, at.now_ns, events);
    }

    /// Takes a message of H.245.
    fn control(&mut self, bytes: &[u8], at: At, room: &mut usize, events: &mut Vec<Event>) {
        match h245::message(bytes) {
            Ok(Some(h245::Message::Open(channel))) => self.open(channel, (OPEN, at), room, events),
            Ok(Some(h245::Message::Opened { number, ends })) => {
                let origin = origin(at.receiver, number);
                let media = self.channels.peek(&(at.call, origin)).copied();
                let media = media.unwrap_or(Media::Other);
                self.announce(ends, (origin, media), (ACCEPTED, at), room, events);
            }
            Ok(Some(h245::Message::Closed { number })) => {
                let origin = origin(at.sender, number);
                self.base.expectations.replace(at.call, origin, &[], at.now_ns);
                self.channels.remove(&(at.call, origin));
            }
            Ok(Some(h245::Message::EndSession)) => {
                let linger_ns = SESSION_NS.min(self.base.limits.announced_ns);
                self.base.expectations.cancel(at.call, at.now_ns, linger_ns);
            }
            Ok(None) => {}
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn open(
        &mut self,
        channel: h245::Channel,
        (cause, at): (Cause, At),
        room: &mut usize,
        events: &mut Vec<Event>,
    ) {
        let origin = origin(at.sender, channel.number);
        let deadline = at.now_ns.saturating_add(self.base.limits.control_idle_ns);
        self.channels.insert((at.call, origin), channel.media, deadline);
        self.announce(channel.ends, (origin, channel.media), (cause, at), room, events);
    }

    fn announce(
        &mut self,
        ends: h245::Ends,
        (origin, media): (u64, Media),
        (cause, at): (Cause, At),
        room: &mut usize,
        events: &mut Vec<Event>,
    ) {
        for (part, end) in ends {
            let Some(left) = room.checked_sub(1) else {
                self.over_limit += 1;
                continue;
            };
            *room = left;
            let protocol = if part == Part::Stack { Protocol::Tcp } else { Protocol::Udp };
            let offer = Offer {
                end,
                protocol,
                client: at.sender,
                pair: false,
                label: label(part, media),
                cause,
                origin,
                lifetime_ns: RINGING_NS,
                follows_call: true,
            };
            self.base.expect(at.call, offer, at.now_ns, events);
        }
    }

    /// Takes a segment of a connection that is not at a port of signalling.
    fn elsewhere(&mut self, segment: &Segment<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let now_ns = frame.timestamp_ns;
        let (source, destination) = (segment.source, segment.destination);
        if self.base.segment(segment, frame, events) {
            let Some(hit) = self.base.call else { return };
            let as_server = (destination, source);
            match hit.label {
                Some(H245) => self.control_segment(hit.call, segment, now_ns, events),
                Some(SIGNALLING) => {
                    let from_server = self.connections.peek(&as_server).is_none();
                    let (server, client) =
                        if from_server { (source, destination) } else { as_server };
                    let ends = Ends { server, client, from_server };
                    self.signal(ends, segment, now_ns, events);
                }
                _ => {}
            }
            return;
        }
        if !is_setup(segment.payload) {
            return;
        }
        let ends = Ends { server: destination, client: source, from_server: false };
        self.signal(ends, segment, now_ns, events);
        let Some(call) = self.base.call else { return };
        let offer = Offer {
            end: destination,
            protocol: Protocol::Tcp,
            client: source.ip(),
            pair: true,
            label: SIGNALLING,
            cause: SETUP,
            origin: u64::MAX,
            lifetime_ns: self.base.limits.announced_ns,
            follows_call: true,
        };
        self.base.expect(call.call, offer, now_ns, events);
    }

    fn control_segment(
        &mut self,
        call: u64,
        segment: &Segment<'_>,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        self.base.expectations.refresh(call, now_ns);
        let (sender, receiver) = (segment.source.ip(), segment.destination.ip());
        for bytes in self.control.segment(segment, now_ns) {
            let at = At { call, sender, receiver, now_ns };
            self.control(&bytes[HEADER..], at, &mut ENDS.clone(), events);
        }
    }
}

/// The first TPKT of bytes.
fn tpkt(bytes: &[u8]) -> Record {
    match *bytes {
        [3, 0, high, low, ..] => match u16::from_be_bytes([high, low]).into() {
            length @ HEADER.. => Record::Whole(length),
            _ => Record::Foreign,
        },
        [] | [3] | [3, 0] | [3, 0, _] => Record::Incomplete,
        _ => Record::Foreign,
    }
}

/// True if a segment begins with a Setup.
fn is_setup(payload: &[u8]) -> bool {
    tpkt(payload) != Record::Foreign
        && payload.get(HEADER..).and_then(h225::Message::of).is_some_and(|one| one.is_setup())
}

/// A number for a channel of the end that has opened it.
fn origin(opener: IpAddr, number: u16) -> u64 {
    let mut hasher = DefaultHasher::new();
    (opener, number).hash(&mut hasher);
    hasher.finish()
}

fn label(part: Part, media: Media) -> &'static str {
    match (part, media) {
        (Part::Stack, _) => "T.120 data",
        (Part::Media, Media::Audio) => "RTP audio",
        (Part::Control, Media::Audio) => "RTCP audio",
        (Part::Media, Media::Video) => "RTP video",
        (Part::Control, Media::Video) => "RTCP video",
        (_, Media::Fax) => "T.38 fax",
        (Part::Media, _) => "RTP",
        (Part::Control, _) => "RTCP",
    }
}

impl Follows for H323 {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        match content {
            Content::Tcp(segment) => match self.base.ends(segment.source, segment.destination) {
                Some(ends) => self.signal(ends, &segment, frame.timestamp_ns, events),
                None => self.elsewhere(&segment, frame, events),
            },
            Content::Udp(datagram) => drop(self.base.datagram(&datagram, frame)),
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        while self.connections.pop_due(now_ns).is_some() {}
        while self.channels.pop_due(now_ns).is_some() {}
        if now_ns != u64::MAX {
            self.signalling.expire(now_ns);
            self.control.expire(now_ns);
        }
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        let long = self.signalling.long() + self.control.long();
        notices.push(("unreadable", self.unreadable + long));
        notices.extend([("not_read", self.not_read), ("over_limit", self.over_limit)]);
        notices.push(("calls_evicted", self.connections.evicted()));
    }
}
