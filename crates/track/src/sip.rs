//! SIP: follows calls and reports the ends of their media: RTP, RTCP, T.38 fax, MSRP.
//!
//! Reads requests and responses over UDP and TCP, IPv4 and IPv6, with short names of header fields, and the session
//! descriptions in INVITE, UPDATE, PRACK, ACK and their responses, also in multipart bodies. Every end of every
//! description is expected from the frame with the description on: media may arrive before the call is answered.
//!
//! Decisions:
//! - **A call** is a `Call-ID`. All dialogues of a forked call are one call.
//! - **Other ends.** Media at an announced end may come from an announced host of the call, or from one more host,
//!   which takes over within 5 s of an announcement (address translation). See [`expectations`](crate::expectations).
//! - **Changes.** A description replaces the earlier one of the same session (`o=`); the replaced ends stay while they
//!   are in use, because the change may be refused. A medium on hold keeps its ends.
//! - **End.** BYE, and CANCEL or a final failure of a call that was not answered, end the expectations half a second
//!   later. Without them, silence of signalling and media does.
//! - **RTCP** is expected on the next port, on that of `a=rtcp`, or, if an answer has `a=rtcp-mux`, on that of RTP.
//! - The first fragment of a message is read as far as it goes; its later fragments are counted. Over TCP, messages
//!   may be in pieces and out of order. TLS is not read.
//!
//! Cost: one hash look-up for a frame that is neither signalling nor at an expected end, O(bytes) for signalling.
//! Memory: [`Limits`]. Source: RFC 3261, 3262, 3311, 3264.

mod calls;
#[cfg(test)]
mod tests;

use crate::expectations::{Expectations, Expected, Hit, Wanted};
use crate::kind::HELD_MEDIA;
use crate::messages::{Message, MessageStreams};
use crate::sdp::{self, Description};
use crate::segment::{self, Content};
use crate::{CallFrame, Cause, Connection, Event, Limits, Protocol, Tracker, TrackerKind};
use calls::{Call, Calls};
use fyke_frame::Frame;
use std::net::{IpAddr, SocketAddr};

/// A session description in a request.
pub const OFFER: Cause = Cause::new("SIP request with SDP");
/// A session description in a response.
pub const ANSWER: Cause = Cause::new("SIP response with SDP");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "sip",
    summary: "SIP calls over UDP and TCP with RTP, RTCP, T.38 and MSRP (port 5060)",
    port: PORT,
    causes: &[OFFER, ANSWER],
    start_filter,
    held: Some(HELD_MEDIA),
    make: |ports, limits| Box::new(Sip::at_ports(ports, limits)),
};

/// Standard port.
const PORT: u16 = 5_060;

/// Longest time from a description to the first frame of its media: an INVITE may ring for three minutes (timer C).
const RINGING_NS: u64 = 200_000_000_000;
/// Time for the last media after the end of a call.
const LINGER_NS: u64 = 500_000_000;
/// Most TCP connections with signalling.
const CONNECTIONS: usize = 4_096;

/// Counters of the tracker since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames with signalling.
    pub signalling_frames: u64,
    /// Frames at expected ends.
    pub media_frames: u64,
    /// Messages read.
    pub messages: u64,
    /// Calls seen.
    pub calls: u64,
    /// Calls removed to make room for others.
    pub calls_evicted: u64,
    /// Session descriptions read.
    pub descriptions: u64,
    /// Lines of descriptions that cannot be read, descriptions that are compressed, messages without `Call-ID` or too
    /// long.
    pub malformed: u64,
    /// Ends at another address than the one that announced them.
    pub other_address: u64,
    /// Later fragments of datagrams, which are not read.
    pub fragments: u64,
    /// Datagrams at expected ends from hosts that the call does not know.
    pub foreign_frames: u64,
}

/// The tracker.
pub struct Sip {
    limits: Limits,
    ports: Vec<u16>,
    start_filter: String,
    calls: Calls,
    streams: MessageStreams,
    expectations: Expectations,
    counters: Counters,
    /// Call of the last frame.
    call: Option<CallFrame>,
}

impl Default for Sip {
    fn default() -> Self {
        Sip::at_ports(&[PORT], Limits::default())
    }
}

impl Sip {
    /// A tracker of SIP at these ports, UDP and TCP.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        let connections = limits.control_connections.min(CONNECTIONS);
        Sip {
            limits,
            ports: ports.to_vec(),
            start_filter: start_filter(ports),
            calls: Calls::new(limits),
            streams: MessageStreams::new(connections),
            expectations: Expectations::new(limits),
            counters: Counters::default(),
            call: None,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let foreign_frames = self.expectations.foreign_frames();
        let malformed = self.counters.malformed + self.streams.long();
        Counters { foreign_frames, calls: self.calls.count(), malformed, ..self.counters }
    }

    /// Number of expectations.
    pub fn expectation_count(&self) -> usize {
        self.expectations.len()
    }

    /// Number of calls that are known, with those that have ended a short time ago.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    fn is_signalling(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        self.ports.contains(&source.port()) || self.ports.contains(&destination.port())
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        from: IpAddr,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        self.counters.messages += 1;
        let Some(id) = message.field(&["call-id", "i"]).filter(|id| Calls::is_valid(id)) else {
            self.counters.malformed += 1;
            return;
        };
        let sequence = message.field(&["cseq"]).unwrap_or_default();
        let method = sequence.split(u8::is_ascii_whitespace).next_back().unwrap_or_default();
        let negotiates = [&b"INVITE"[..], b"UPDATE", b"PRACK", b"ACK"].contains(&method);
        // Registrations and the like are no calls.
        let ends = [&b"BYE"[..], b"CANCEL"].contains(&method);
        if !negotiates && !ends && !self.calls.knows(&id) {
            return;
        }
        let opens = method == b"INVITE" || method == b"UPDATE";
        if !opens && !self.calls.knows(&id) {
            return;
        }
        if let Some(gone) = self.calls.enter(&id, now_ns) {
            self.counters.calls_evicted += 1;
            self.expectations.cancel(gone, now_ns, 0);
        }
        let Some(call) = self.calls.touch(&id, now_ns) else { return };
        let number = call.number;
        self.call = Some(CallFrame::signalling(number));
        let over = Sip::is_over(call, message, method);
        self.expectations.refresh(number, now_ns);
        if over {
            self.expectations.cancel(number, now_ns, LINGER_NS.min(self.limits.linger_ns));
        } else if negotiates && let Some(description) = self.description(message) {
            self.announce(number, &description, message, from, now_ns, events);
        }
    }

    /// True if a message ends its call; records whether the call is answered.
    fn is_over(call: &mut Call, message: &Message<'_>, method: &[u8]) -> bool {
        match (message.status(), method) {
            (None, b"BYE") => true,
            (None, b"CANCEL") => !call.answered,
            (Some(200..=299), b"INVITE") => {
                call.answered = true;
                false
            }
            (Some(300..=699), b"INVITE") => !call.answered,
            _ => false,
        }
    }

    fn description(&mut self, message: &Message<'_>) -> Option<Description> {
        let kind = message.field(&["content-type", "c"]).unwrap_or_default().to_ascii_lowercase();
        if !(kind.starts_with(b"application/sdp") || kind.starts_with(b"multipart/")) {
            return None;
        }
        if message.field(&["content-encoding", "e"]).is_some() {
            self.counters.malformed += 1;
            return None;
        }
        let body = sdp::find(message.body)?;
        let description = Description::of(body, message.status().is_some());
        self.counters.descriptions += 1;
        self.counters.malformed += description.malformed;
        Some(description)
    }

    fn announce(
        &mut self,
        call: u64,
        description: &Description,
        message: &Message<'_>,
        from: IpAddr,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let cause = if message.status().is_some() { ANSWER } else { OFFER };
        let mut kept = Vec::new();
        for end in &description.ends {
            self.counters.other_address += u64::from(end.address.ip() != from);
            let connection = Connection {
                id: 0,
                server: end.address.ip(),
                port: end.address.port(),
                client: from,
                protocol: if end.tcp { Protocol::Tcp } else { Protocol::Udp },
                pair: false,
                call,
                label: end.label,
                cause,
                announced_ns: now_ns,
            };
            let wanted = Wanted {
                connection,
                origin: description.origin,
                lifetime_ns: RINGING_NS,
                follows_call: true,
            };
            kept.push(self.expectations.expect(wanted, events).id());
        }
        if !description.on_hold {
            self.expectations.replace(call, description.origin, &kept, now_ns);
        }
    }

    fn segment(&mut self, segment: &segment::Segment, now_ns: u64, events: &mut Vec<Event>) {
        for (_, bytes) in self.streams.segment(segment, now_ns) {
            if let Some(message) = Message::of(&bytes) {
                self.message(&message, segment.source.ip(), now_ns, events);
            }
        }
    }
}

impl Tracker for Sip {
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
        match segment::read(frame) {
            Content::Udp(datagram) if self.is_signalling(datagram.source, datagram.destination) => {
                self.counters.signalling_frames += 1;
                let payload = match datagram.first_fragment {
                    // The last line may be cut.
                    true => whole_lines(datagram.payload),
                    false => datagram.payload,
                };
                if let Some(message) = Message::of(payload) {
                    self.message(&message, datagram.source.ip(), now_ns, events);
                }
            }
            Content::Udp(datagram) => {
                let (source, destination) = (datagram.source, datagram.destination);
                let hit = self.expectations.datagram(source, destination, frame.wire_len, now_ns);
                self.call = hit.map(Hit::in_call);
                self.counters.media_frames += u64::from(hit.is_some());
            }
            Content::Tcp(segment) if self.is_signalling(segment.source, segment.destination) => {
                self.counters.signalling_frames += 1;
                self.segment(&segment, now_ns, events);
            }
            Content::Tcp(segment) => {
                let hit = self.expectations.segment(&segment, frame.wire_len, now_ns, events);
                self.call = hit.map(Hit::in_call);
                self.counters.media_frames += u64::from(hit.is_some());
            }
            Content::UdpFragment => self.counters.fragments += 1,
            Content::TcpFragment | Content::Other => {}
        }
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.expectations.expire(now_ns, events);
        let expectations = &self.expectations;
        self.calls.expire(now_ns, |call| expectations.has_call(call));
        if now_ns != u64::MAX {
            self.streams.expire(now_ns);
        }
    }

    fn call(&self) -> Option<CallFrame> {
        self.call
    }

    fn expected(&self) -> Vec<Expected> {
        self.expectations.list().collect()
    }
}

/// The bytes up to the end of the last line.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &bytes[..end]
}

/// The filter text for signalling at these ports.
fn start_filter(ports: &[u16]) -> String {
    let texts = ports.iter().map(|port| format!("udp port {port} or tcp port {port}"));
    texts.collect::<Vec<_>>().join(" or ")
}
