//! Content of a frame for a tracker: the TCP segment or the UDP datagram of its innermost packet, or the fact that it
//! is a fragment of one.
//!
//! Fragments are detected, not reassembled: the first fragment of a datagram is read as far as it goes. If
//! `payload_len` is larger than `payload`, the capture has cut the frame.

pub(crate) use fyke_flow::streams::Segment;
pub(crate) use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};

use fyke_frame::Frame;
use fyke_frame::walk::{Layers, walk};
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
