//! A TCP segment as a stream needs it.

use fyke_frame::checksum;
use fyke_frame::walk::view::TcpView;
use fyke_frame::walk::view::tcp_flags::ACK;
use fyke_frame::walk::{Layers, Protocol};
use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
/// Length of an IPv4 header without options.
const IPV4_HEADER: usize = 20;

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Number of the next byte that the sender expects, if it is given.
    pub acknowledged: Option<u32>,
    /// Flags of its header.
    pub flags: u8,
    /// Captured part of its payload.
    pub payload: &'a [u8],
    /// Length of its payload on the wire, in bytes.
    pub payload_len: u32,
}

impl<'a> Segment<'a> {
    /// The segment of the innermost packet; `None` if that is no TCP segment, or if it or a packet
    /// around it is a fragment. Lengths come from the IP header, so link-layer padding is not part
    /// of the payload.
    pub fn of(layers: &Layers<'a>) -> Option<Segment<'a>> {
        let scope = layers.innermost_level()?;
        if is_cut(layers) {
            return None;
        }
        let (ip, tcp) = (scope.ip()?, scope.tcp()?);
        let source = SocketAddr::new(ip.source(), tcp.source_port());
        Segment::between(source, SocketAddr::new(ip.destination(), tcp.destination_port()), &tcp)
    }

    /// A segment between two ends; `None` if its header is not complete.
    pub fn between(
        source: SocketAddr,
        destination: SocketAddr,
        tcp: &TcpView<'a>,
    ) -> Option<Segment<'a>> {
        let flags = tcp.flags()?;
        Some(Segment {
            source,
            destination,
            sequence: tcp.sequence()?,
            acknowledged: tcp.acknowledgement().filter(|_| flags & ACK != 0),
            flags,
            payload: tcp.payload(),
            payload_len: u32::try_from(tcp.wire_payload_len()).ok()?,
        })
    }

    /// True if the checksum of an IPv4 header is wrong, that of a packet around the innermost one included.
    pub fn has_damaged_header(layers: &Layers<'_>) -> bool {
        layers.iter().filter(|layer| layer.protocol == Protocol::Ipv4).any(|layer| {
            let header = layers.data().get(layer.header_range());
            header.is_some_and(|header| header.len() >= IPV4_HEADER && checksum(&[header]) != 0)
        })
    }

    /// True if the segment of the innermost packet is complete and its checksum is wrong, or that of an IPv4 header.
    pub fn is_damaged(layers: &Layers<'_>) -> bool {
        if Segment::has_damaged_header(layers) {
            return true;
        }
        let Some(scope) = layers.innermost_level() else { return false };
        let (Some(ip), Some(tcp)) = (scope.ip(), scope.tcp()) else { return false };
        let (header, payload) = (tcp.header(), tcp.payload());
        if tcp.header_len() != Some(header.len()) || payload.len() != tcp.wire_payload_len() {
            return false;
        }
        let len = (header.len() + payload.len()) as u32;
        let end = [len.to_be_bytes(), [0, 0, 0, TCP]].concat();
        let sum = |from: &[u8], to: &[u8]| checksum(&[from, to, &end, header, payload]);
        let sum = match (ip.source(), ip.destination()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => sum(&from.octets(), &to.octets()),
            (IpAddr::V6(from), IpAddr::V6(to)) => sum(&from.octets(), &to.octets()),
            _ => return false,
        };
        sum != 0
    }

    /// True if a packet is a fragment of a segment, or of a tunnel's packet around one.
    pub fn is_fragment(layers: &Layers<'_>) -> bool {
        let tcp = layers.innermost_level().and_then(|scope| scope.ip_protocol()) == Some(TCP);
        tcp && is_cut(layers)
    }
}

/// True if the packet or one around it is a fragment.
fn is_cut(layers: &Layers<'_>) -> bool {
    layers.levels().any(|level| level.fragment().is_some_and(|fragment| !fragment.is_whole()))
}
