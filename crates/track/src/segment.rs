//! Content of a frame for a tracker: the TCP segment or the UDP datagram of its innermost packet, or the fact that it
//! is a fragment of one.
//!
//! Fragments are detected, not reassembled: the first fragment of a datagram is read as far as it goes. If
//! `payload_len` is larger than `payload`, the capture has cut the frame.

pub(crate) use fyke_flow::streams::Segment;
pub(crate) use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};

use crate::Protocol;
use fyke_frame::walk::{Layers, walk};
use fyke_frame::{Frame, LinkType};
use std::net::SocketAddr;

const UDP: u8 = 17;

/// A datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The payload, as far as the frame has it.
    pub(crate) payload: &'a [u8],
    /// True if it is the first fragment of several.
    pub(crate) first_fragment: bool,
}

/// Content of a frame for a tracker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    Tcp(Segment<'a>),
    /// A fragment of a TCP segment: its ports or the end of its payload are elsewhere.
    TcpFragment,
    Udp(Datagram<'a>),
    /// A fragment of a datagram other than the first.
    UdpFragment,
    Other,
}

/// Reads a frame down to the payload of TCP or UDP. Headers that are cut short or contradictory make it
/// `Other`.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Content<'a> {
    let layers = walk(frame);
    match Segment::of(&layers) {
        Some(segment) => Content::Tcp(segment),
        None if Segment::is_fragment(&layers) => Content::TcpFragment,
        None => datagram(&layers),
    }
}

/// The ends of a frame with the most common headers: Ethernet, IPv4 without options, TCP or UDP. For loading ahead;
/// other frames are read by [`read`] only.
pub(crate) fn common_ends(frame: &Frame<'_>) -> Option<(Protocol, SocketAddr, SocketAddr)> {
    let bytes: &[u8; 38] = frame.data.first_chunk()?;
    if frame.link != LinkType::EN10MB || bytes[12..15] != [8, 0, 0x45] {
        return None;
    }
    let protocol = match bytes[23] {
        6 => Protocol::Tcp,
        UDP => Protocol::Udp,
        _ => return None,
    };
    let end = |host: usize, port: usize| {
        let address = [bytes[host], bytes[host + 1], bytes[host + 2], bytes[host + 3]];
        SocketAddr::from((address, u16::from_be_bytes([bytes[port], bytes[port + 1]])))
    };
    Some((protocol, end(26, 34), end(30, 36)))
}

fn datagram<'a>(layers: &Layers<'a>) -> Content<'a> {
    let Some(scope) = layers.innermost_level() else { return Content::Other };
    if scope.ip_protocol() != Some(UDP) {
        return Content::Other;
    }
    let (Some(ip), Some(udp)) = (scope.ip(), scope.udp()) else {
        let later = scope.fragment().is_some_and(|fragment| !fragment.is_first());
        return if later { Content::UdpFragment } else { Content::Other };
    };
    Content::Udp(Datagram {
        source: SocketAddr::new(ip.source(), udp.source_port()),
        destination: SocketAddr::new(ip.destination(), udp.destination_port()),
        payload: udp.payload(),
        first_fragment: scope.fragment().is_some_and(|fragment| !fragment.is_whole()),
    })
}
