//! Peer-to-peer protocols: what is left without the known services, where strings confirm it.
//!
//! A peer is known once a frame at its end begins with a string of BitTorrent (handshake over TCP and uTP, DHT, UDP
//! trackers), eDonkey, Kademlia or Gnutella. Then all frames of that end are captured, encrypted ones too. A call is a
//! listening end; it ends when it is silent. Services at well-known ports are not looked at. Memory: [`Limits`]. Cost:
//! a comparison of the first bytes of each frame. Source: Deri, *High-Speed Dynamic Packet Filtering*, section 6; BEP
//! 3, 5, 15 and 29; the Gnutella and eDonkey messages as tshark reads them.

use crate::base::{Base, Follows, Offer, each_port};
use crate::segment::Content;
use crate::{Cause, Event, Limits, Protocol, TrackerKind};
use fyke_flow::Ageing;
use fyke_frame::Frame;
use std::net::SocketAddr;

/// A string of BitTorrent.
pub const BITTORRENT: Cause = Cause::new("BitTorrent string");
/// A message of BitTorrent's DHT.
pub const DHT: Cause = Cause::new("BitTorrent DHT message");
/// A message of eDonkey or Kademlia.
pub const EDONKEY: Cause = Cause::new("eDonkey message");
/// A string of Gnutella.
pub const GNUTELLA: Cause = Cause::new("Gnutella string");

/// The row of the [registry](crate::registry).
pub(crate) const KIND: TrackerKind = TrackerKind {
    name: "p2p",
    summary: "BitTorrent, eDonkey and Gnutella, confirmed by strings (port 6881 and others)",
    port: 6_881,
    causes: &[BITTORRENT, DHT, EDONKEY, GNUTELLA],
    start_filter: |ports| {
        format!("{} or (({LEFT}) and ({TCP} or {UDP}))", each_port(ports, "port #"))
    },
    held: Some(LEFT),
    make: |ports, limits| Box::new(P2p::at_ports(ports, limits)),
};

/// Ports of known services, on which no peer is looked for.
const SERVICES: &[u16] = &[
    20, 21, 22, 23, 25, 53, 67, 68, 69, 80, 88, 110, 111, 123, 135, 137, 138, 139, 143, 161, 162,
    179, 389, 443, 445, 465, 500, 514, 554, 587, 636, 853, 993, 995, 1_433, 1_521, 1_720, 1_723,
    1_812, 1_813, 1_900, 2_049, 3_306, 3_389, 5_060, 5_061, 5_353, 5_355, 5_432,
];

/// TCP and UDP without [`SERVICES`].
const LEFT: &str = "\
    (tcp or udp) and not (port 20 or port 21 or port 22 or port 23 or port 25 or port 53 or port 67 or port 68 \
    or port 69 or port 80 or port 88 or port 110 or port 111 or port 123 or port 135 or port 137 or port 138 or \
    port 139 or port 143 or port 161 or port 162 or port 179 or port 389 or port 443 or port 445 or port 465 or \
    port 500 or port 514 or port 554 or port 587 or port 636 or port 853 or port 993 or port 995 or port 1433 or \
    port 1521 or port 1720 or port 1723 or port 1812 or port 1813 or port 1900 or port 2049 or port 3306 or port \
    3389 or port 5060 or port 5061 or port 5353 or port 5355 or port 5432)";

/// Segments that may confirm a peer: `\x13BitTorr`, `GNUTELLA`, or the first message of eDonkey.
const TCP: &str = "(tcp[(tcp[12] & 0xf0) / 4:4] = 0x13426974 and tcp[(tcp[12] & 0xf0) / 4 + 4:4] = 0x546f7272) or \
    (tcp[(tcp[12] & 0xf0) / 4:4] = 0x474e5554 and tcp[(tcp[12] & 0xf0) / 4 + 4:4] = 0x454c4c41) or \
    (tcp[(tcp[12] & 0xf0) / 4] = 0xe3 and tcp[(tcp[12] & 0xf0) / 4 + 3:2] = 0 and \
     (tcp[(tcp[12] & 0xf0) / 4 + 5] = 1 or tcp[(tcp[12] & 0xf0) / 4 + 5] = 0x4c)) or \
    (ip6 proto 6 and ((ip6[40 + (ip6[52] & 0xf0) / 4:4] = 0x13426974 and \
     ip6[44 + (ip6[52] & 0xf0) / 4:4] = 0x546f7272) or (ip6[40 + (ip6[52] & 0xf0) / 4:4] = 0x474e5554 and \
     ip6[44 + (ip6[52] & 0xf0) / 4:4] = 0x454c4c41)))";

/// Datagrams that may: a dictionary of DHT, a handshake in uTP, a request to a tracker, Kademlia, eDonkey, `GND`.
const UDP: &str = "udp[8:4] = 0x64313a61 or udp[8:4] = 0x64313a72 or udp[8:4] = 0x64323a69 or \
    udp[28:4] = 0x13426974 or (udp[8:4] = 0x417 and udp[12:4] = 0x27101980) or \
    (udp[4:2] = 43 and (udp[8:2] = 0xe420 or udp[8:2] = 0xe421)) or (udp[4:2] = 14 and udp[8:2] = 0xe396) or \
    (udp[8:2] = 0x474e and udp[10] = 0x44) or (ip6 proto 17 and (ip6[48:4] = 0x64313a61 or \
    ip6[48:4] = 0x64313a72 or ip6[48:4] = 0x64323a69 or ip6[68:4] = 0x13426974))";

/// The tracker.
#[derive(Debug)]
pub struct P2p {
    base: Base,
    /// The calls of the listening ends.
    peers: Ageing<(Protocol, SocketAddr), u64>,
    count: u64,
}

impl Default for P2p {
    fn default() -> Self {
        P2p::at_ports(&[KIND.port], Limits::default())
    }
}

impl P2p {
    /// A tracker of peers; all frames at these ports are captured, but only strings confirm a peer.
    pub fn at_ports(ports: &[u16], limits: Limits) -> Self {
        let peers = Ageing::new(limits.data_connections);
        P2p { base: Base::new(&KIND, ports, limits), peers, count: 0 }
    }

    /// Number of ends that were confirmed.
    pub fn peer_count(&self) -> u64 {
        self.count
    }

    fn confirm(
        &mut self,
        (protocol, end): (Protocol, SocketAddr),
        from: SocketAddr,
        (label, cause): (&'static str, Cause),
        now_ns: u64,
        events: &mut Vec<Event>,
    ) {
        let key = (protocol, end);
        let deadline = now_ns.saturating_add(self.base.limits.control_idle_ns);
        let known = self.peers.touch(&key, deadline).copied();
        let call = known.unwrap_or_else(|| {
            self.count += 1;
            self.peers.insert(key, self.count, deadline);
            self.count
        });
        let offer = Offer {
            end,
            protocol,
            client: from.ip(),
            pair: false,
            label,
            cause,
            origin: self.count << 16 | u64::from(from.port()),
            lifetime_ns: self.base.limits.announced_ns,
            follows_call: true,
        };
        self.base.expect(call, offer, now_ns, events);
        self.base.expectations.admit_all(call);
    }
}

/// True if a port is that of a known service, and not a control port.
fn is_service(end: SocketAddr) -> bool {
    SERVICES.contains(&end.port())
}

/// The protocol that the first bytes of a connection confirm.
fn of_stream(payload: &[u8]) -> Option<(&'static str, Cause)> {
    match payload {
        _ if payload.starts_with(b"\x13BitTorrent protocol") => Some(("BitTorrent", BITTORRENT)),
        _ if payload.starts_with(b"GNUTELLA CONNECT/") => Some(("Gnutella", GNUTELLA)),
        _ if payload.starts_with(b"GNUTELLA/0.") => Some(("Gnutella", GNUTELLA)),
        // Hello with a user hash of 16 bytes, and its answer.
        [0xe3, low, high, 0, 0, code @ (0x01 | 0x4c), rest @ ..] => {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let has_hash = *code == 0x4c || rest.first() == Some(&16) || rest.get(5) == Some(&14);
            let is_whole = rest.len() >= 16 && (20..=2_000).contains(&length);
            (has_hash && is_whole).then_some(("eDonkey", EDONKEY))
        }
        _ => None,
    }
}

/// The protocol that a datagram confirms.
fn of_datagram(payload: &[u8]) -> Option<(&'static str, Cause)> {
    let is_dht = || {
        let head = &payload[..payload.len().min(96)];
        let has = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
        payload.starts_with(b"d1:ad2:id20:")
            || payload.starts_with(b"d1:rd2:id20:")
            || (payload.starts_with(b"d2:ip") && has(b"1:rd2:id20:"))
    };
    match payload {
        [b'd', ..] if is_dht() => Some(("BitTorrent DHT", DHT)),
        [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, _, _, _, _] => {
            Some(("BitTorrent tracker", BITTORRENT))
        }
        // A datagram of uTP with data, without extensions.
        [0x01, 0, ..]
            if payload
                .get(20..)
                .is_some_and(|data| data.starts_with(b"\x13BitTorrent protocol")) =>
        {
            Some(("BitTorrent uTP", BITTORRENT))
        }
        [0xe4, 0x20 | 0x21, ..] if payload.len() == 35 => Some(("Kademlia", EDONKEY)),
        [0xe3, 0x96, _, _, _, _] => Some(("eDonkey", EDONKEY)),
        [b'G', b'N', b'D', ..] if payload.len() >= 8 => Some(("Gnutella", GNUTELLA)),
        _ => None,
    }
}

impl Follows for P2p {
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
                let (from, to) = (segment.source, segment.destination);
                if self.base.segment(&segment, frame, events) || is_service(from) || is_service(to)
                {
                    return;
                }
                if let Some(found) = of_stream(segment.payload) {
                    // The answer to a handshake that was not captured comes from the end that listens.
                    let answers = self.peers.peek(&(Protocol::Tcp, from)).is_some();
                    let (end, other) = if answers { (from, to) } else { (to, from) };
                    self.confirm((Protocol::Tcp, end), other, found, now_ns, events);
                    self.base.segment(&segment, frame, events);
                }
            }
            Content::Udp(datagram) => {
                let (from, to) = (datagram.source, datagram.destination);
                if is_service(from) || is_service(to) {
                    return;
                }
                if let Some(found) = of_datagram(datagram.payload) {
                    // Both ends listen, except that of a request to a tracker.
                    self.confirm((Protocol::Udp, to), from, found, now_ns, events);
                    if found.0 != "BitTorrent tracker" {
                        self.confirm((Protocol::Udp, from), to, found, now_ns, events);
                    }
                }
                self.base.datagram(&datagram, frame);
            }
            Content::TcpFragment | Content::UdpFragment | Content::Other => {}
        }
    }

    fn tidy(&mut self, now_ns: u64) {
        while self.peers.pop_due(now_ns).is_some() {}
    }

    fn add_notices(&self, notices: &mut Vec<(&'static str, u64)>) {
        notices.push(("calls_evicted", self.peers.evicted()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_and_the_tracker_know_the_same_services() {
        let ports: Vec<_> = SERVICES.iter().map(|port| format!("port {port}")).collect();
        assert_eq!(LEFT, format!("(tcp or udp) and not ({})", ports.join(" or ")));
    }
}
