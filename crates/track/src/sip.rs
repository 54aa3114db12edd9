//! SIP: follows calls and reports the ends of their media: RTP, RTCP, T.38 fax, MSRP.
//!
//! Reads requests and responses over UDP and TCP, IPv4 and IPv6, with short names of header fields, and the session
//! descriptions in INVITE, UPDATE, PRACK, ACK and their responses, also in multipart bodies. Every end of every
//! description is expected from the frame with the description on: media may arrive before the call is answered.
//!
//! Decisions:
//! - **A call** is a `Call-ID` and the tag of its caller. All dialogues of a forked call are one call.
//! - **Other ends.** Media at an announced end may come from an announced host of the call, or from one more host,
//!   which takes over within 5 s of an announcement (address translation). See [`expectations`](crate::expectations).
//! - **Changes.** A description replaces the earlier one of the same session (`o=`); the replaced ends stay while they
//!   are in use, because the change may be refused. A medium on hold keeps its ends.
//! - **End.** A BYE of a known dialogue (both tags), once it is answered, and CANCEL or a final failure of a call that
//!   was not answered, end the expectations half a second later. A BYE without an answer does after 5 s, a refused one
//!   (401) does not. Without them, silence of signalling and media does.
//! - **RTCP** is expected on the next port, on that of `a=rtcp`, or, if an answer has `a=rtcp-mux`, on that of RTP.
//! - The first fragment of a message is read as far as it goes; its later fragments are counted. Over TCP, messages
//!   may be in pieces and out of order. TLS is not read.
//!
//! Cost: one hash look-up for a frame that is neither signalling nor at an expected end, O(bytes) for signalling.
//! Memory: [`Limits`]. Source: RFC 3261, 3262, 3311, 3264.

mod calls;
#[cfg(test)]
mod tests;

use crate::base::{Base, Follows, LINGER_NS, Offer, each_port};
use crate::messages::{Message, MessageStreams};
use crate::sdp::{self, Description};
use crate::segment::{self, Content};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use calls::{Call, Calls, Tags};
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
    start_filter: |ports| each_port(ports, "udp port # or tcp port #"),
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Sip::at_ports(ports, limits)),
};

/// Standard port.
const PORT: u16 = 5_060;

/// Longest time from a description to the first frame of its media: an INVITE may ring for three minutes (timer C).
const RINGING_NS: u64 = 200_000_000_000;
/// Time for the answer to a BYE, which may refuse it.
const BYE_NS: u64 = 5_000_000_000;
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
    /// Media and ends of descriptions beyond the limits of a description.
    pub over_limit: u64,
    /// Ends at another address than the one that announced them.
    pub other_address: u64,
    /// Later fragments of datagrams, which are not read.
    pub fragments: u64,
    /// Datagrams at expected ends from hosts that the call does not know.
    pub foreign_frames: u64,
}

/// The tracker.
pub struct Sip {
    base: Base,
    calls: Calls,
    streams: MessageStreams,
    counters: Counters,
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
            base: Base::new(&KIND, ports, limits),
            calls: Calls::new(limits),
            streams: MessageStreams::new(connections),
            counters: Counters::default(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let foreign_frames = self.base.expectations.foreign_frames();
        let malformed = self.counters.malformed + self.streams.long();
        Counters { foreign_frames, calls: self.calls.count(), malformed, ..self.counters }
    }

    /// Number of expectations.
    pub fn expectation_count(&self) -> usize {
        self.base.expectations.len()
    }

    /// Number of calls that are known, with those that have ended a short time ago.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    fn is_signalling(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        self.base.is_control(source) || self.base.is_control(destination)
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        from: IpAddr,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        self.counters.messages += 1;
        let Some(tags) = self.calls.tags(message) else {
            self.counters.malformed += 1;
            return;
        };
        let sequence = message.field(&["cseq"]).unwrap_or_default();
        let method = match sequence.split(u8::is_ascii_whitespace).next_back() {
            // A first fragment may end before this field.
            None | Some(b"") => message.method().unwrap_or_default(),
            Some(method) => method,
        };
        let negotiates = [&b"INVITE"[..], b"UPDATE", b"PRACK", b"ACK"].contains(&method);
        let opens = method == b"INVITE" || method == b"UPDATE";
        // Registrations and the like are no calls.
        if !opens && !self.calls.knows(&tags) {
            return;
        }
        if let Some(gone) = self.calls.enter(&tags, now_ns) {
            self.counters.calls_evicted += 1;
            self.base.expectations.cancel(gone, now_ns, 0);
        }
        let Some(call) = self.calls.touch(&tags, now_ns) else { return };
        let number = call.number;
        self.base.signals(number);
        let change = change(call, message.status(), method, &tags);
        if call.answered {
            self.calls.answer(&tags, now_ns);
        }
        self.base.expectations.refresh(number, now_ns);
        let linger_ns = LINGER_NS.min(self.base.limits.linger_ns);
        match change {
            Change::Over => self.base.expectations.cancel(number, now_ns, linger_ns),
            Change::Leaves => self.base.expectations.cancel(number, now_ns, BYE_NS),
            Change::Stays => self.base.expectations.resume(number, now_ns),
            Change::None if negotiates => {
                if let Some(description) = self.description(message) {
                    self.announce(number, &description, message, from, now_ns, events);
                }
            }
            Change::None => {}
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
        self.counters.over_limit += description.over_limit;
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
            let offer = Offer {
                end: end.address,
                protocol: if end.tcp { Protocol::Tcp } else { Protocol::Udp },
                client: from,
                pair: false,
                label: end.label,
                cause,
                origin: description.origin,
                lifetime_ns: RINGING_NS,
                follows_call: true,
            };
            kept.extend(self.base.expect(call, offer, now_ns, events).id());
        }
        if !description.on_hold {
            self.base.expectations.replace(call, description.origin, &kept, now_ns);
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

/// Result of a message for its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// A BYE, which may be refused.
    Leaves,
    /// The BYE has been refused.
    Stays,
    Over,
}

/// The change by a message; records whether the call is answered.
fn change(call: &mut Call, status: Option<u16>, method: &[u8], tags: &Tags) -> Change {
    match (status, method) {
        (_, b"BYE") if !call.has_dialogue(tags) => Change::None,
        (None, b"BYE") => {
            call.leaving = true;
            Change::Leaves
        }
        (Some(200..=299 | 408 | 481), b"BYE") => Change::Over,
        (Some(300..), b"BYE") if call.leaving => {
            call.leaving = false;
            Change::Stays
        }
        (None, b"CANCEL") if !call.answered => Change::Over,
        (Some(101..=299), b"INVITE") => {
            call.answered |= status >= Some(200);
            call.learn(tags);
            Change::None
        }
        (Some(300..=699), b"INVITE") if !call.answered => Change::Over,
        _ => Change::None,
    }
}

impl Follows for Sip {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let now_ns = frame.timestamp_ns;
        match content {
            Content::Udp(datagram) if self.is_signalling(datagram.source, datagram.destination) => {
                self.counters.signalling_frames += 1;
                let is_part = datagram.first_fragment;
                // The last line may be cut.
                let payload =
                    if is_part { whole_lines(datagram.payload) } else { datagram.payload };
                // The call of a first fragment is known if it has the fields that name it.
                let names_call = |message: &Message<'_>| message.field(&["from", "f"]).is_some();
                if let Some(message) = Message::of(payload)
                    && (!is_part || names_call(&message))
                {
                    self.message(&message, datagram.source.ip(), now_ns, events);
                }
            }
            Content::Udp(datagram) => {
                self.counters.media_frames += u64::from(self.base.datagram(&datagram, frame));
            }
            Content::Tcp(segment) if self.is_signalling(segment.source, segment.destination) => {
                self.counters.signalling_frames += 1;
                self.segment(&segment, now_ns, events);
            }
            Content::Tcp(segment) => {
                let is_media = self.base.segment(&segment, frame, events);
                self.counters.media_frames += u64::from(is_media);
            }
            Content::UdpFragment => self.counters.fragments += 1,
            Content::TcpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        let expectations = &self.base.expectations;
        self.calls.expire(now_ns, |call| expectations.has_call(call));
        if now_ns != u64::MAX {
            self.streams.expire(now_ns);
        }
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        let Counters { calls_evicted, other_address, malformed, over_limit, .. } = self.counters();
        notices.extend([
            ("calls_evicted", calls_evicted),
            ("other_address", other_address),
            ("unreadable", malformed),
            ("over_limit", over_limit),
        ]);
    }
}

/// The bytes up to the end of the last line.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &bytes[..end]
}
