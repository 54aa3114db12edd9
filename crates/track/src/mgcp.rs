//! MGCP: follows calls that a call agent sets up at gateways, and expects their media, RTP and RTCP over UDP.
//!
//! Reads the session descriptions of CRCX and MDCX and of their responses, also if several messages share a datagram. A
//! call is a `C:`; a response belongs to the call of its transaction. DLCX ends what its endpoint has announced, and
//! the whole call once no endpoint is left; without it, silence does. Memory: [`Limits`], 16 endpoints of a call. Cost:
//! O(bytes) for signalling, one hash look-up else. Source: RFC 3435, sections 2.3, 3.1 to 3.5.

use crate::base::{Base, Follows, Offer, each_port};
use crate::messages::{line, number};
use crate::sdp::{self, Description};
use crate::segment::{Content, Datagram};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

/// The far end of a connection, which the call agent describes.
pub const COMMAND: Cause = Cause::new("MGCP command with SDP");
/// The near end, which the gateway describes.
pub const RESPONSE: Cause = Cause::new("MGCP response with SDP");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "mgcp",
    summary: "MGCP calls at gateways with RTP and RTCP (port 2427)",
    port: PORT,
    causes: &[COMMAND, RESPONSE],
    start_filter: |ports| each_port(ports, "udp port #"),
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Mgcp::at_ports(ports, limits)),
};

/// Standard port of gateways.
const PORT: u16 = 2_427;
/// Time for the response to a command, which may be repeated for 20 s.
const RESPONSE_NS: u64 = 30_000_000_000;
/// Longest time from a description to the first frame of its media: an end may ring.
const RINGING_NS: u64 = 200_000_000_000;
/// Most messages of a datagram.
const MESSAGES: usize = 16;
/// Most endpoints of a call.
const ENDPOINTS: usize = 16;
/// Most bytes of the name of a call; the standard allows 32.
const NAME: usize = 64;

/// A call.
#[derive(Debug)]
struct Call {
    number: u64,
    /// Endpoints with a connection, by [`endpoint`].
    endpoints: Vec<u64>,
}

/// A command without a response so far.
#[derive(Debug)]
struct Command {
    name: Vec<u8>,
    endpoint: u64,
    deletes: bool,
}

/// A command is known by its sender, its receiver and its number.
type Transaction = (SocketAddr, SocketAddr, u32);

/// The tracker.
#[derive(Debug)]
pub struct Mgcp {
    base: Base,
    calls: Ageing<Vec<u8>, Call>,
    commands: Ageing<Transaction, Command>,
    count: u64,
    unreadable: u64,
    over_limit: u64,
}

impl Default for Mgcp {
    fn default() -> Self {
        Mgcp::at_ports(&[PORT], Limits::default())
    }
}

impl Mgcp {
    /// A tracker of gateways at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Mgcp {
            base: Base::new(&KIND, ports, limits),
            calls: Ageing::new(limits.control_connections),
            commands: Ageing::new(limits.control_connections),
            count: 0,
            unreadable: 0,
            over_limit: 0,
        }
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        at: &Datagram<'_>,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let (command, cause) = match message.kind {
            Kind::Command { verb, endpoint } => {
                let Some(name) = message.call.filter(|name| name.len() <= NAME) else { return };
                let deletes = verb.eq_ignore_ascii_case(b"DLCX");
                let sets_up =
                    [&b"CRCX"[..], b"MDCX"].iter().any(|one| verb.eq_ignore_ascii_case(one));
                if !deletes && !sets_up {
                    return;
                }
                // A connection is at a gateway, also if the gateway itself deletes it.
                let gateway =
                    if self.base.is_control(at.destination) { at.destination } else { at.source };
                let endpoint = self::endpoint(gateway, endpoint);
                let command = || Command { name: name.to_vec(), endpoint, deletes };
                let transaction = (at.source, at.destination, message.transaction);
                let deadline = now_ns.saturating_add(RESPONSE_NS);
                self.commands.insert(transaction, command(), deadline);
                (command(), COMMAND)
            }
            Kind::Response { code } => {
                let transaction = (at.destination, at.source, message.transaction);
                if code < 200 {
                    return;
                }
                let Some(command) = self.commands.remove(&transaction) else { return };
                if !(200..300).contains(&code) {
                    return self.signals(&command.name);
                }
                (command, RESPONSE)
            }
        };
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        let number = self.enter(&command, deadline);
        let Some(number) = number else { return };
        self.base.signals(number);
        self.base.expectations.refresh(number, now_ns);
        match command.deletes {
            // Only once the other end has agreed.
            true if cause == RESPONSE => self.delete(&command, now_ns),
            true => {}
            false => self.announce(number, message, &command, (cause, at), now_ns, events),
        }
    }

    fn signals(&mut self, name: &[u8]) {
        if let Some(call) = self.calls.peek(&name.to_vec()) {
            self.base.signals(call.number);
        }
    }

    /// The number of the call of a command, which is new if it sets up one that is not known.
    fn enter(&mut self, command: &Command, deadline_ns: u64) -> Option<u64> {
        if let Some(call) = self.calls.touch(&command.name, deadline_ns) {
            let has_room = call.endpoints.len() < ENDPOINTS;
            if !command.deletes && has_room && !call.endpoints.contains(&command.endpoint) {
                call.endpoints.push(command.endpoint);
            }
            return Some(call.number);
        }
        if command.deletes {
            return None;
        }
        self.count += 1;
        let call = Call { number: self.count, endpoints: vec![command.endpoint] };
        self.calls.insert(command.name.clone(), call, deadline_ns);
        Some(self.count)
    }

    fn delete(&mut self, command: &Command, now_ns: u64) {
        let Some(call) = self.calls.peek_mut(&command.name) else { return };
        call.endpoints.retain(|one| *one != command.endpoint);
        let number = call.number;
        self.base.expectations.replace(number, command.endpoint, &[], now_ns);
        if call.endpoints.is_empty() {
            self.base.cancel(number, now_ns);
            self.calls.remove(&command.name);
        }
    }

    fn announce(
        &mut self,
        call: u64,
        message: &Message<'_>,
        command: &Command,
        (cause, at): (Cause, &Datagram<'_>),
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let Some(body) = sdp::find(message.body) else { return };
        let description = Description::of(body, cause == RESPONSE);
        self.unreadable += description.malformed;
        self.over_limit += description.over_limit;
        for end in description.ends {
            let protocol = if end.tcp { Protocol::Tcp } else { Protocol::Udp };
            // The agent repeats what the other gateway has announced: that stays of the other one.
            let known = self.base.expectations.at(protocol, end.address);
            let is_known = known.into_iter().any(|one| one.connection.call == call);
            if cause == COMMAND && is_known {
                continue;
            }
            let offer = Offer {
                end: end.address,
                protocol,
                client: at.source.ip(),
                pair: false,
                label: end.label,
                cause,
                origin: command.endpoint,
                lifetime_ns: RINGING_NS,
                follows_call: true,
            };
            self.base.expect(call, offer, now_ns, events);
        }
    }
}

/// A number for an endpoint of a gateway, as the origin of what it announces.
fn endpoint(gateway: SocketAddr, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (gateway, name.to_ascii_lowercase()).hash(&mut hasher);
    hasher.finish()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Command { verb: &'a [u8], endpoint: &'a [u8] },
    Response { code: u32 },
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message<'a> {
    kind: Kind<'a>,
    transaction: u32,
    /// The name of its call.
    call: Option<&'a [u8]>,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message of bytes, and what follows the line with a dot after it.
    fn of(bytes: &'a [u8]) -> (Option<Message<'a>>, &'a [u8]) {
        let (start, mut rest) = line(bytes);
        let (mut call, mut body, mut in_fields) = (None, &[][..], true);
        while !rest.is_empty() {
            let (text, after) = line(rest);
            if text == b"." {
                let end = body.len().saturating_sub(rest.len());
                return (Message::with(start, call, &body[..end]), after);
            }
            if in_fields && text.is_empty() {
                (in_fields, body) = (false, after);
            } else if in_fields && let Some((b"C" | b"c", value)) = field(text) {
                call = Some(value);
            }
            rest = after;
        }
        (Message::with(start, call, body), &[])
    }

    fn with(start: &'a [u8], call: Option<&'a [u8]>, body: &'a [u8]) -> Option<Message<'a>> {
        let mut words = start.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let (first, transaction) = (words.next()?, number(words.next()?)?);
        let kind = match number(first) {
            Some(code) => Kind::Response { code },
            None => {
                let endpoint = words.next()?;
                let is_version = words.next()?.eq_ignore_ascii_case(b"MGCP");
                Kind::Command { verb: first, endpoint: is_version.then_some(endpoint)? }
            }
        };
        Some(Message { kind, transaction, call, body })
    }
}

/// The name and the value of a parameter line.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    Some((text[..colon].trim_ascii(), text[colon + 1..].trim_ascii()))
}

impl Follows for Mgcp {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let Content::Udp(datagram) = content else { return };
        if !self.base.is_control(datagram.source) && !self.base.is_control(datagram.destination) {
            self.base.datagram(&datagram, frame);
            return;
        }
        let mut rest = datagram.payload;
        for _ in 0..MESSAGES {
            if rest.is_empty() {
                return;
            }
            let (message, after) = Message::of(rest);
            rest = after;
            if let Some(message) = message {
                self.message(&message, &datagram, frame.timestamp_ns, events);
            }
        }
        self.over_limit += u64::from(!rest.is_empty());
    }

    fn tidy(&mut self, now_ns: u64) {
        while self.commands.pop_due(now_ns).is_some() {}
        while self.calls.pop_due(now_ns).is_some() {}
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        notices.extend([("unreadable", self.unreadable), ("over_limit", self.over_limit)]);
        notices.push(("calls_evicted", self.calls.evicted()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_datagram_are_read_one_after_the_other() {
        let text = b"200 1203 OK\r\nI: 1\r\n\r\nv=0\r\nc=IN IP4 10.0.0.1\r\n.\r\n\
              DLCX 9 aaln/1@gw MGCP 1.0\r\nc: A3\r\n";
        let (first, rest) = Message::of(text);
        let first = first.unwrap();
        assert_eq!((first.kind, first.transaction), (Kind::Response { code: 200 }, 1_203));
        assert_eq!(first.body, b"v=0\r\nc=IN IP4 10.0.0.1\r\n");
        let (second, rest) = Message::of(rest);
        let kind = Kind::Command { verb: b"DLCX", endpoint: b"aaln/1@gw" };
        let expected = Message { kind, transaction: 9, call: Some(b"A3"), body: b"" };
        assert_eq!((second, rest), (Some(expected), &b""[..]));
        for other in
            [&b"GET / HTTP/1.1\r\n"[..], b"200", b"CRCX x aaln/1@gw MGCP 1.0", b"CRCX 1 a SIP"]
        {
            assert_eq!(Message::of(other).0, None);
        }
        (0..=4).for_each(|len| assert_eq!(Message::of(&text[..len]).0, None, "{len}"));
    }
}
