//! MGCP: follows calls that a call agent sets up at gateways, and expects their media, RTP and RTCP over UDP.
//!
//! Reads the session descriptions of CRCX and MDCX and of their responses, also if several messages share a datagram. A
//! call is a `C:`; a response belongs to the call of its transaction. DLCX ends what its endpoint has announced, and
//! the whole call once no endpoint is left; without it, silence does. `*` in the name of its endpoint is every one of a
//! gateway, and without `C:` it ends all calls there. Memory: [`Limits`], 16 endpoints of a call. Cost: O(bytes) for
//! signalling, O(calls) for a DLCX without `C:`, one hash look-up else. Source: RFC 3435, sections 2.1.2, 2.3, 3.1 to
//! 3.5.

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
/// Most bytes of the name of an endpoint.
const ENDPOINT_NAME: usize = 255;

/// A call.
#[derive(Debug)]
struct Call {
    number: u64,
    /// Endpoints with a connection.
    endpoints: Vec<Endpoint>,
}

/// An endpoint, or several by a wildcard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Endpoint {
    gateway: SocketAddr,
    /// Its name, in lower case.
    name: Vec<u8>,
}

impl Endpoint {
    /// A number for the endpoint, as the origin of what it announces.
    fn origin(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// True if the name is that of the other one, or covers it: a term `*` is any one, and as the last one all that
    /// follow.
    fn covers(&self, other: &Endpoint) -> bool {
        let (local, domain) = parts(&self.name);
        let (other_local, other_domain) = parts(&other.name);
        if self.gateway != other.gateway || domain != other_domain {
            return false;
        }
        let mut others = other_local.split(|&byte| byte == b'/');
        let mut terms = local.split(|&byte| byte == b'/').peekable();
        while let Some(term) = terms.next() {
            let is_any = term == b"*";
            match others.next() {
                Some(_) if is_any && terms.peek().is_none() => return true,
                Some(other) if is_any || other == term => {}
                _ => return false,
            }
        }
        others.next().is_none()
    }
}

/// The local name and the domain of an endpoint.
fn parts(name: &[u8]) -> (&[u8], &[u8]) {
    let at = name.iter().position(|&byte| byte == b'@').unwrap_or(name.len());
    (&name[..at], name.get(at + 1..).unwrap_or_default())
}

/// A command without a response so far.
#[derive(Debug, Clone)]
struct Command {
    /// Name of its call; `None`: all calls of its endpoint.
    name: Option<Vec<u8>>,
    endpoint: Endpoint,
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
                let name = message.call.map(<[u8]>::to_vec);
                let is_long = name.as_ref().is_some_and(|name| name.len() > NAME);
                if is_long || endpoint.len() > ENDPOINT_NAME {
                    self.over_limit += 1;
                    return;
                }
                let deletes = verb.eq_ignore_ascii_case(b"DLCX");
                let sets_up =
                    [&b"CRCX"[..], b"MDCX"].iter().any(|one| verb.eq_ignore_ascii_case(one));
                if !deletes && (!sets_up || name.is_none()) {
                    return;
                }
                // A connection is at a gateway, also if the gateway itself deletes it.
                let gateway =
                    if self.base.is_control(at.destination) { at.destination } else { at.source };
                let endpoint = Endpoint { gateway, name: endpoint.to_ascii_lowercase() };
                let command = Command { name, endpoint, deletes };
                let transaction = (at.source, at.destination, message.transaction);
                let deadline = now_ns.saturating_add(RESPONSE_NS);
                self.commands.insert(transaction, command.clone(), deadline);
                (command, COMMAND)
            }
            Kind::Response { code } => {
                let transaction = (at.destination, at.source, message.transaction);
                if code < 200 {
                    return;
                }
                let Some(command) = self.commands.remove(&transaction) else { return };
                if !(200..300).contains(&code) {
                    return self.signals(command.name.as_ref());
                }
                (command, RESPONSE)
            }
        };
        // Only once the other end has agreed.
        let deletes = command.deletes && cause == RESPONSE;
        let Some(name) = command.name.clone() else {
            if deletes {
                self.delete_all(&command.endpoint, now_ns);
            }
            return;
        };
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        let number = self.enter(&name, &command, deadline);
        let Some(number) = number else { return };
        self.base.signals(number);
        self.base.expectations.refresh(number, now_ns);
        if deletes {
            self.delete(&name, &command.endpoint, now_ns);
        } else if !command.deletes {
            self.announce(number, message, &command, (cause, at), now_ns, events);
        }
    }

    fn signals(&mut self, name: Option<&Vec<u8>>) {
        if let Some(call) = name.and_then(|name| self.calls.peek(name)) {
            self.base.signals(call.number);
        }
    }

    /// The number of the call of a command, which is new if it sets up one that is not known.
    fn enter(&mut self, name: &Vec<u8>, command: &Command, deadline_ns: u64) -> Option<u64> {
        if let Some(call) = self.calls.touch(name, deadline_ns) {
            let has_room = call.endpoints.len() < ENDPOINTS;
            if !command.deletes && has_room && !call.endpoints.contains(&command.endpoint) {
                call.endpoints.push(command.endpoint.clone());
            }
            return Some(call.number);
        }
        if command.deletes {
            return None;
        }
        self.count += 1;
        let call = Call { number: self.count, endpoints: vec![command.endpoint.clone()] };
        self.calls.insert(name.clone(), call, deadline_ns);
        Some(self.count)
    }

    /// Ends what the endpoints of a name have announced for a call.
    fn delete(&mut self, name: &Vec<u8>, endpoint: &Endpoint, now_ns: u64) {
        let Some(call) = self.calls.peek_mut(name) else { return };
        if remove(call, &mut self.base, endpoint, now_ns) {
            self.calls.remove(name);
        }
    }

    /// The same for all calls.
    fn delete_all(&mut self, endpoint: &Endpoint, now_ns: u64) {
        let base = &mut self.base;
        self.calls.retain(|_, call| {
            let is_there = call.endpoints.iter().any(|one| endpoint.covers(one));
            if is_there {
                base.signals(call.number);
            }
            !is_there || !remove(call, base, endpoint, now_ns)
        });
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
                origin: command.endpoint.origin(),
                lifetime_ns: RINGING_NS,
                follows_call: true,
            };
            self.base.expect(call, offer, now_ns, events);
        }
    }
}

/// Removes the endpoints of a name from a call; true if none is left, and the call has ended.
fn remove(call: &mut Call, base: &mut Base, endpoint: &Endpoint, now_ns: u64) -> bool {
    let number = call.number;
    for one in call.endpoints.extract_if(.., |one| endpoint.covers(one)) {
        base.expectations.replace(number, one.origin(), &[], now_ns);
    }
    if call.endpoints.is_empty() {
        base.cancel(number, now_ns);
    }
    call.endpoints.is_empty()
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
    fn wildcards_cover_the_endpoints_of_a_gateway() {
        let endpoint = |port: u16, name: &str| {
            let gateway = SocketAddr::from(([10, 0, 0, 1], port));
            Endpoint { gateway, name: name.as_bytes().to_vec() }
        };
        let one = endpoint(2_427, "ds1/3/aaln@gw");
        for (name, expected) in [
            ("ds1/3/aaln@gw", true),
            ("*@gw", true),
            ("ds1/*@gw", true),
            ("ds1/*/aaln@gw", true),
            ("ds1/3/aaln/*@gw", false),
            ("ds1/3@gw", false),
            ("ds1/*/other@gw", false),
            ("*@other", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(endpoint(2_427, name).covers(&one), expected, "{name}");
        }
        assert!(!endpoint(2_428, "*@gw").covers(&one), "another gateway");
    }

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
