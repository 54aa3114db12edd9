//! RTSP: follows sessions and expects the media that they set up: RTP and RTCP over UDP, unicast and multicast.
//!
//! Reads the `Transport` of SETUP in requests and responses, over TCP and UDP, IPv4 and IPv6. Media that are
//! interleaved with RTSP are frames of the control connection. A call is a control connection; TEARDOWN ends what it
//! expects, and so does silence. Cost and memory as for [`sip`](crate::sip). Source: RFC 2326, section 12.39; RFC
//! 7826.

use crate::expectations::{Expectations, Expected, Hit, Wanted};
use crate::messages::{Message, MessageStreams, number};
use crate::sdp;
use crate::segment::{self, Content, Segment};
use crate::{CallFrame, Cause, Connection, Event, Limits, Protocol, Tracker, TrackerKind};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use std::net::{IpAddr, SocketAddr};

/// The transport that a client asks for.
pub const REQUEST: Cause = Cause::new("RTSP SETUP request");
/// The transport that a server has chosen.
pub const RESPONSE: Cause = Cause::new("RTSP SETUP response");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "rtsp",
    summary: "RTSP sessions with RTP and RTCP over UDP (port 554)",
    port: PORT,
    causes: &[REQUEST, RESPONSE],
    start_filter,
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Rtsp::at_ports(ports, limits)),
};

/// Standard port.
const PORT: u16 = 554;
/// Time for the last media after the end of a session.
const LINGER_NS: u64 = 500_000_000;
/// Most control connections.
const CONNECTIONS: usize = 4_096;
/// Most transports of one header field that are read.
const TRANSPORTS: usize = 8;

/// The tracker.
#[derive(Debug)]
pub struct Rtsp {
    limits: Limits,
    ports: Vec<u16>,
    start_filter: String,
    streams: MessageStreams,
    /// Number of the call of each pair of ends: server, client.
    calls: Ageing<(SocketAddr, SocketAddr), u64>,
    call_count: u64,
    expectations: Expectations,
    /// Call of the last frame.
    call: Option<CallFrame>,
}

/// The ends of a control connection, and the direction of a message.
#[derive(Debug, Clone, Copy)]
struct Ends {
    server: SocketAddr,
    client: SocketAddr,
    from_server: bool,
}

impl Default for Rtsp {
    fn default() -> Self {
        Rtsp::at_ports(&[PORT], Limits::default())
    }
}

impl Rtsp {
    /// A tracker of servers at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        let connections = limits.control_connections.min(CONNECTIONS);
        Rtsp {
            limits,
            ports: ports.to_vec(),
            start_filter: start_filter(ports),
            streams: MessageStreams::new(connections),
            calls: Ageing::new(connections),
            call_count: 0,
            expectations: Expectations::new(limits),
            call: None,
        }
    }

    /// The ends, if one of them is a server.
    fn ends(&self, source: SocketAddr, destination: SocketAddr) -> Option<Ends> {
        if self.ports.contains(&destination.port()) {
            return Some(Ends { server: destination, client: source, from_server: false });
        }
        let from_server = self.ports.contains(&source.port());
        from_server.then_some(Ends { server: source, client: destination, from_server })
    }

    /// The number of the call of a control connection.
    fn enter(&mut self, ends: Ends, now_ns: u64) -> u64 {
        let deadline = now_ns.saturating_add(self.limits.control_idle_ns);
        let key = (ends.server, ends.client);
        if let Some(&mut call) = self.calls.touch(&key, deadline) {
            return call;
        }
        self.call_count += 1;
        self.calls.insert(key, self.call_count, deadline);
        self.call_count
    }

    fn segment(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let call = self.enter(ends, now_ns);
        self.call = Some(CallFrame::signalling(call));
        self.expectations.refresh(call, now_ns);
        for (_, bytes) in self.streams.segment(segment, now_ns) {
            if let Some(message) = Message::of(&bytes) {
                self.message(&message, ends, call, now_ns, events);
            }
        }
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        ends: Ends,
        call: u64,
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        if message.method() == Some(b"TEARDOWN") {
            return self.expectations.cancel(call, now_ns, LINGER_NS.min(self.limits.linger_ns));
        }
        let is_setup = message.method() == Some(b"SETUP");
        let accepted = message.status().is_some_and(|code| (200..300).contains(&code));
        if !is_setup && !accepted {
            return;
        }
        let cause = if is_setup { REQUEST } else { RESPONSE };
        let field = message.field(&["transport"]).unwrap_or_default();
        for transport in field.split(|&byte| byte == b',').take(TRANSPORTS) {
            for (end, label) in ends.of(transport) {
                let connection = Connection {
                    id: 0,
                    server: end.ip(),
                    port: end.port(),
                    client: if ends.from_server { ends.server.ip() } else { ends.client.ip() },
                    protocol: Protocol::Udp,
                    pair: false,
                    call,
                    label,
                    cause,
                    announced_ns: now_ns,
                };
                let (origin, lifetime_ns) = (0, self.limits.announced_ns);
                let wanted = Wanted { connection, origin, lifetime_ns, follows_call: true };
                self.expectations.expect(wanted, events);
            }
        }
    }
}

impl Ends {
    /// The ends of the media of a transport, such as `RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257`.
    fn of(self, transport: &[u8]) -> Vec<(SocketAddr, &'static str)> {
        let mut parts = transport.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default().to_ascii_uppercase();
        if kind.ends_with(b"/TCP") {
            return Vec::new();
        }
        let (mut client, mut server) = (self.client.ip(), self.server.ip());
        let (mut at_client, mut at_server, mut group) = (None, None, None);
        let mut multicast = false;
        for part in parts {
            let (name, value) = match part.iter().position(|&byte| byte == b'=') {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            };
            match name.to_ascii_lowercase().as_slice() {
                b"client_port" => at_client = ports(value),
                b"server_port" => at_server = ports(value),
                b"port" => group = ports(value),
                b"multicast" => multicast = true,
                b"source" => server = host(value).unwrap_or(server),
                b"destination" => client = host(value).unwrap_or(client),
                b"interleaved" => return Vec::new(),
                _ => {}
            }
        }
        let at_group = group.filter(|_| multicast);
        let ends = [(client, at_client.or(at_group)), (server, at_server)];
        let both = ends.into_iter().filter_map(|(host, ports)| Some((host, ports?)));
        let labels = ["RTP", "RTCP"];
        both.filter(|(host, _)| !host.is_unspecified())
            .flat_map(|(host, (first, last))| {
                (first..=last)
                    .zip(labels)
                    .map(move |(port, label)| (SocketAddr::new(host, port), label))
            })
            .collect()
    }
}

/// Reads `4588-4589` or `4588`; at most two ports count.
fn ports(text: &[u8]) -> Option<(u16, u16)> {
    let mut numbers = text.split(|&byte| byte == b'-').map(number);
    let first = u16::try_from(numbers.next()??).ok().filter(|&port| port != 0)?;
    match numbers.next() {
        None => Some((first, first)),
        Some(last) => {
            let last = u16::try_from(last?).ok().filter(|&last| last >= first)?;
            Some((first, last.min(first.saturating_add(1))))
        }
    }
}

fn host(text: &[u8]) -> Option<IpAddr> {
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    let text = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    sdp::address(text)
}

impl Tracker for Rtsp {
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
            Content::Tcp(segment) => {
                if let Some(ends) = self.ends(segment.source, segment.destination) {
                    self.segment(ends, &segment, now_ns, events);
                }
            }
            Content::Udp(datagram) => {
                let (source, destination) = (datagram.source, datagram.destination);
                let Some(ends) = self.ends(source, destination) else {
                    let len = frame.wire_len;
                    let hit = self.expectations.datagram(source, destination, len, now_ns);
                    self.call = hit.map(Hit::in_call);
                    return;
                };
                let call = self.enter(ends, now_ns);
                self.call = Some(CallFrame::signalling(call));
                if let Some(message) = Message::of(datagram.payload) {
                    self.message(&message, ends, call, now_ns, events);
                }
            }
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.expectations.expire(now_ns, events);
        while self.calls.pop_due(now_ns).is_some() {}
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

/// The filter text for control connections at these ports.
fn start_filter(ports: &[u16]) -> String {
    let texts = ports.iter().map(|port| format!("tcp port {port} or udp port {port}"));
    texts.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_give_the_ends_of_media() {
        let ends = Ends {
            server: SocketAddr::from(([10, 0, 0, 2], 554)),
            client: SocketAddr::from(([10, 0, 0, 1], 4000)),
            from_server: true,
        };
        let of = |text: &str| -> Vec<String> {
            ends.of(text.as_bytes()).iter().map(|(end, label)| format!("{label} {end}")).collect()
        };
        assert_eq!(
            of("RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257;source=10.0.0.9"),
            ["RTP 10.0.0.1:4588", "RTCP 10.0.0.1:4589", "RTP 10.0.0.9:6256", "RTCP 10.0.0.9:6257"]
        );
        let multicast = of("RTP/AVP;multicast;destination=224.2.0.1;port=3456-3457;ttl=16");
        assert_eq!(multicast, ["RTP 224.2.0.1:3456", "RTCP 224.2.0.1:3457"]);
        assert_eq!(of("x-real-rdt/udp;client_port=6970"), ["RTP 10.0.0.1:6970"]);
        for none in [
            "RTP/AVP/TCP;unicast;interleaved=0-1",
            "RTP/AVP;interleaved=0-1;client_port=4-5",
            "RTP/AVP;client_port=0-1",
            "RTP/AVP;client_port=9-8",
            "RTP/AVP;client_port=99999",
            "RTP/AVP;client_port=1-65535;destination=0.0.0.0",
            "",
        ] {
            assert!(of(none).is_empty(), "{none}");
        }
        assert_eq!(of("RTP/AVP;client_port=1-65535").len(), 2, "a range is bounded");
    }
}
