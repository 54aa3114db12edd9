//! PPTP: follows control connections and expects the tunnel of their calls: GRE between the two hosts.
//!
//! Reads call requests and replies over TCP, IPv4 and IPv6. A call of ours is a control connection; GRE names its calls
//! by numbers of 16 bits that filters do not test, so all GRE between the two hosts belongs to the control connection
//! that expected it first. Clear, disconnect, stop and the end of the control connection end it. Memory: [`Limits`].
//! Source: RFC 2637, section 2.

use crate::base::{Base, Controls, Ends, Follows, Offer, each_port};
use crate::records::Record;
use crate::segment::{Content, FIN, RST, Segment};
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_frame::Frame;
use fyke_frame::walk::walk;
use std::net::{IpAddr, SocketAddr};

/// A request for a call.
pub const REQUEST: Cause = Cause::new("PPTP call request");
/// The reply that accepts a call.
pub const REPLY: Cause = Cause::new("PPTP call reply");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "pptp",
    summary: "PPTP with its tunnels in GRE (port 1723)",
    port: 1_723,
    causes: &[REQUEST, REPLY],
    start_filter: |ports| each_port(ports, "tcp port #"),
    held: Some("tcp port 1723 or ip proto 47 or ip6 proto 47"),
    make: |ports, limits| Box::new(Pptp::at_ports(ports, limits)),
};

const GRE: u8 = 47;
const COOKIE: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];
/// Most bytes of a control message.
const MOST: usize = 512;

/// The tracker.
#[derive(Debug)]
pub struct Pptp {
    base: Base,
    controls: Controls,
}

impl Default for Pptp {
    fn default() -> Self {
        Pptp::at_ports(&[KIND.port], Limits::default())
    }
}

impl Pptp {
    /// A tracker of servers at these ports.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        Pptp { base: Base::new(&KIND, ports, limits), controls: Controls::new(limits, record) }
    }

    fn control(&mut self, ends: Ends, segment: &Segment<'_>, now_ns: u64, events: &mut Vec<Event>) {
        let (call, messages) = self.controls.segment(&mut self.base, ends, segment, now_ns);
        self.base.expectations.refresh(call, now_ns);
        for message in messages {
            let cause = match (u16::from_be_bytes([message[8], message[9]]), message.get(16)) {
                (7 | 9, _) => REQUEST,
                (8 | 10, Some(1)) => REPLY,
                (3 | 12 | 13, _) => {
                    self.base.cancel(call, now_ns);
                    continue;
                }
                _ => continue,
            };
            let offer = Offer {
                end: SocketAddr::new(ends.server.ip(), 0),
                protocol: Protocol::Gre,
                client: ends.client.ip(),
                pair: true,
                label: "PPTP tunnel",
                cause,
                origin: 0,
                lifetime_ns: self.base.limits.announced_ns,
                follows_call: true,
            };
            self.base.expect(call, offer, now_ns, events);
        }
        if segment.flags & (FIN | RST) != 0 {
            self.base.cancel(call, now_ns);
        }
    }
}

/// The first message of bytes.
fn record(bytes: &[u8]) -> Record {
    let Some(head) = bytes.first_chunk::<12>() else { return Record::Incomplete };
    let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
    match head[4..8] == COOKIE && (12..=MOST).contains(&length) {
        true => Record::Whole(length),
        false => Record::Foreign,
    }
}

/// The hosts of the outermost tunnel in GRE of a frame.
fn tunnel(frame: &Frame<'_>) -> Option<(IpAddr, IpAddr)> {
    let layers = walk(frame);
    let outer = layers.levels().find(|level| level.ip_protocol() == Some(GRE))?;
    outer.ip().map(|ip| (ip.source(), ip.destination()))
}

impl Follows for Pptp {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn read(&mut self, content: Content<'_>, frame: &Frame<'_>, events: &mut Vec<Event>) {
        // The content of a tunnel is not that of a control connection.
        if let Some((source, destination)) = tunnel(frame) {
            self.base.packet(Protocol::Gre, source, destination, frame);
        } else if let Content::Tcp(segment) = content
            && let Some(ends) = self.base.ends(segment.source, segment.destination)
        {
            self.control(ends, &segment, frame.timestamp_ns, events);
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        self.controls.expire(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, Tracker};
    use fyke_frame::LinkType;
    use fyke_testkit::packet::Packet;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    fn message(kind: u8, result: u8) -> Vec<u8> {
        let mut bytes = vec![0, 32, 0, 1];
        bytes.extend(COOKIE);
        bytes.extend([0, kind, 0, 0, 0, 1, 0, 2, result]);
        bytes.resize(32, 0);
        bytes
    }

    fn gre(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        Packet::ethernet()
            .ipv4(from, to)
            .pptp(7, Some(1))
            .ppp()
            .ipv4(CLIENT, SERVER)
            .udp(1, 2)
            .build()
    }

    #[test]
    fn a_tunnel_is_expected_between_the_two_hosts_until_its_call_is_cleared() {
        let (mut pptp, mut events, mut now_ns) = (Pptp::default(), Vec::new(), 0);
        let mut frame = |pptp: &mut Pptp, bytes: &[u8]| {
            now_ns += 1_000_000;
            let frame = Frame { timestamp_ns: now_ns, ..Frame::new(LinkType::EN10MB, bytes) };
            pptp.frame(&frame, &mut events);
            pptp.call().map(|part| part.label)
        };
        let tcp = |sequence: u32, payload: &[u8]| {
            let packet = Packet::ethernet().ipv4(SERVER, CLIENT).tcp(1_723, 4_000).flags(16);
            packet.seq_ack(sequence, 1).payload(payload).build()
        };
        assert_eq!(frame(&mut pptp, &gre(CLIENT, SERVER)), None);
        // A refused call, then one that is accepted, in pieces.
        assert_eq!(frame(&mut pptp, &tcp(1, &message(8, 2))), Some(None));
        assert_eq!(frame(&mut pptp, &gre(CLIENT, SERVER)), None);
        for (at, piece) in message(8, 1).chunks(5).enumerate() {
            frame(&mut pptp, &tcp(33 + 5 * at as u32, piece));
        }
        assert_eq!(frame(&mut pptp, &gre(CLIENT, SERVER)), Some(Some("PPTP tunnel")));
        assert_eq!(frame(&mut pptp, &gre(SERVER, CLIENT)), Some(Some("PPTP tunnel")));
        assert_eq!(frame(&mut pptp, &gre([10, 0, 0, 3], CLIENT)), None);
        frame(&mut pptp, &tcp(65, &message(12, 0)));
        pptp.expire(2_000_000_000, &mut events);
        let [Event::Open(_), Event::Close(closed)] = events[..] else { panic!("{events:?}") };
        assert_eq!((closed.reason, closed.frame_count), (Reason::Finished, 2));
    }
}
