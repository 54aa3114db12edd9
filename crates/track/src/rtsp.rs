//! RTSP: follows sessions and expects the media that they set up: RTP and RTCP over UDP, unicast and multicast.
//!
//! Reads the `Transport` of SETUP in requests and responses, over TCP and UDP, IPv4 and IPv6. Media that are
//! interleaved with RTSP are frames of the control connection. A call is a control connection; TEARDOWN ends what it
//! expects, and so does silence. Cost and memory as for [`sip`](crate::sip). Source: RFC 2326, section 12.39; RFC
//! 7826.

use crate::base::{Base, ControlCalls, Ends, Follows, Offer, each_port};
use crate::messages::{Message, MessageStreams, number};
use crate::sdp;
use crate::segment::{Content, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
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
    start_filter: |ports| each_port(ports, "tcp port # or udp port #"),
    held: Some(crate::kind::HELD_MEDIA),
    make: |ports, limits| Box::new(Rtsp::at_ports(ports, limits)),
};

/// Standard port.
const PORT: u16 = 554;
/// Most control connections.
const CONNECTIONS: usize = 4_096;
/// Most transports of one header field that are read.
const TRANSPORTS: usize = 8;

/// The tracker.
#[derive(Debug)]
pub struct Rtsp {
    base: Base,
    streams: MessageStreams,
    calls: ControlCalls,
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
            base: Base::new(&KIND, ports, limits),
            streams: MessageStreams::new(connections),
            calls: ControlCalls::new(connections),
        }
    }

    /// The number of the call of a control connection.
    fn enter(&mut self, ends: Ends, now_ns: u64) -> u64 {
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        let call = self.calls.enter(ends, deadline);
        self.base.signals(call);
        call
    }

    fn segment(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let call = self.enter(ends, now_ns);
        self.base.expectations.refresh(call, now_ns);
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
            return self.base.cancel(call, now_ns);
        }
        let is_setup = message.method() == Some(b"SETUP");
        let accepted = message.status().is_some_and(|code| (200..300).contains(&code));
        if !is_setup && !accepted {
            return;
        }
        let cause = if is_setup { REQUEST } else { RESPONSE };
        let field = message.field(&["transport"]).unwrap_or_default();
        for transport in field.split(|&byte| byte == b',').take(TRANSPORTS) {
            for (end, label) in media_ends(ends, transport) {
                let offer = Offer {
                    end,
                    protocol: Protocol::Udp,
                    client: ends.sender(),
                    pair: false,
                    label,
                    cause,
                    origin: 0,
                    lifetime_ns: self.base.limits.announced_ns,
                    follows_call: true,
                };
                self.base.expect(call, offer, now_ns, events);
            }
        }
    }
}

/// The ends of the media of a transport, such as `RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257`.
fn media_ends(at: Ends, transport: &[u8]) -> Vec<(SocketAddr, &'static str)> {
    let mut parts = transport.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let kind = parts.next().unwrap_or_default().to_ascii_uppercase();
    if kind.ends_with(b"/TCP") {
        return Vec::new();
    }
    let (mut client, mut server) = (at.client.ip(), at.server.ip());
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

impl Follows for Rtsp {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        let now_ns = frame.timestamp_ns;
        match content {
            Content::Tcp(segment) => {
                if let Some(ends) = self.base.ends(segment.source, segment.destination) {
                    self.segment(ends, &segment, now_ns, events);
                }
            }
            Content::Udp(datagram) => {
                let Some(ends) = self.base.ends(datagram.source, datagram.destination) else {
                    self.base.datagram(&datagram, frame);
                    return;
                };
                let call = self.enter(ends, now_ns);
                if let Some(message) = Message::of(datagram.payload) {
                    self.message(&message, ends, call, now_ns, events);
                }
            }
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        self.calls.expire(now_ns);
        if now_ns != u64::MAX {
            self.streams.expire(now_ns);
        }
    }
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
            media_ends(ends, text.as_bytes())
                .iter()
                .map(|(end, label)| format!("{label} {end}"))
                .collect()
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
