//! A TCP segment as a stream needs it.

use fyke_frame::walk::Layers;
use std::net::SocketAddr;

const TCP: u8 = 6;

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
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
        Some(Segment {
            source: SocketAddr::new(ip.source(), tcp.source_port()),
            destination: SocketAddr::new(ip.destination(), tcp.destination_port()),
            sequence: tcp.sequence()?,
            flags: tcp.flags()?,
            payload: tcp.payload(),
            payload_len: u32::try_from(tcp.wire_payload_len()).ok()?,
        })
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
