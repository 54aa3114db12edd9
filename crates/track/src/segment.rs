//! The TCP segment in a frame: addresses, ports, sequence number, flags, payload of its innermost packet.
//!
//! Fragments are told apart, not put together. Lengths come from the IP header, so link-layer padding is no payload;
//! what the capture cut off is known by `payload_len` being larger than `payload`.

pub(crate) use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};

use fyke_frame::Frame;
use fyke_frame::walk::walk;
use std::net::SocketAddr;

const TCP: u8 = 6;

/// A TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) payload_len: u32,
}

/// What a frame holds for a tracker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    Tcp(Segment<'a>),
    /// A fragment of a TCP segment: its ports or the end of its payload are elsewhere.
    TcpFragment,
    Other,
}

/// Reads a frame down to the TCP payload. Headers that are cut short or contradict themselves make it `Other`.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Content<'a> {
    let layers = walk(frame);
    let Some(scope) = layers.innermost_level() else { return Content::Other };
    if scope.fragment().is_some_and(|fragment| !fragment.is_whole()) {
        let is_tcp = scope.ip_protocol() == Some(TCP);
        return if is_tcp { Content::TcpFragment } else { Content::Other };
    }
    let segment = || {
        let (ip, tcp) = (scope.ip()?, scope.tcp()?);
        Some(Segment {
            source: SocketAddr::new(ip.source(), tcp.source_port()),
            destination: SocketAddr::new(ip.destination(), tcp.destination_port()),
            sequence: tcp.sequence()?,
            flags: tcp.flags()?,
            payload: tcp.payload(),
            payload_len: u32::try_from(tcp.wire_payload_len()).ok()?,
        })
    };
    segment().map_or(Content::Other, Content::Tcp)
}
