//! The header walk: finds the headers of a frame and their offsets.
//!
//! [`walk`] follows a frame from its link header to the first byte that is not part of a header,
//! through tags, labels, sessions, extension headers and tunnels, and records every header in a
//! [`Layers`]. Trackers, flow keys, the scoped reading and the printer use it; filters over fixed
//! offsets (the pass engine's fast path) do not.
//!
//! Invariants, for every byte string and every wire length:
//! - nothing outside the captured bytes is read; a layer's fields are present or absent, never invented;
//! - a layer is recorded as soon as its fixed part is captured (for TCP, UDP, UDP-Lite, SCTP and
//!   DCCP: the two ports); options that are cut off are not counted in [`Layer::header_len`], and
//!   [`Stop`] gives the reason;
//! - a layer never ends after the one around it: padding after an IP packet is not part of any
//!   payload;
//! - a prefix of a frame gives a prefix of its layers (the last of them may be shorter);
//! - at most [`MAX_LAYERS`] headers and [`MAX_LEVELS`] nested packets are followed. A stack of VLAN
//!   tags or MPLS labels is *one* layer, so stacks may have any depth.
//!
//! A *level* is one packet of those that are nested: the outermost packet, from the link header on,
//! is level 0; the packet in a tunnel is one level deeper than the tunnel's own header. ICMP errors
//! quote packets, they do not carry them: the walk ends at the ICMP header, and [`walk_from`] reads
//! the quote on request.
//!
//! Cost: no allocation, one branch tree per header, 550 bytes on the stack. Measured in the cache:
//! an untagged TCP frame takes 16 ns with [`walk_again`] and 35 ns with [`walk`] (which initialises
//! a new [`Layers`]), TCP in VXLAN 34 and 51 ns (`cargo test --release -p fyke-frame --test
//! walk_cost -- --nocapture`).
//! Sources: IEEE 802.1Q, RFC 791, 2460/8200, 2516, 2784/2890, 2637, 3032, 4302, 4385, 7348, 8926, 3GPP TS 29.281.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_frame as frame; }
//! use fyke::frame::{Frame, LinkType, Protocol, Stop, walk};
//!
//! let mut bytes = [0; 60]; // Ethernet
//! bytes[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 28]);
//! bytes[23] = 17;
//! bytes[36..40].copy_from_slice(&[0, 53, 0, 8]);
//! let layers = walk(&Frame::new(LinkType::EN10MB, &bytes));
//! let protocols: Vec<_> = layers.iter().map(|layer| layer.protocol).collect();
//! assert_eq!(protocols, [Protocol::Ethernet, Protocol::Ipv4, Protocol::Udp]);
//! assert_eq!(layers.ports().map(|ports| ports.destination), Some(53));
//! ```

mod cursor;
mod ip;
mod layer;
mod layers;
mod link;
mod transport;
mod tunnel;
pub mod view;

use crate::{Frame, LinkType, ethertype};
use cursor::{Cursor, Next};
pub use layer::{Layer, Numbered, Protocol, Stop};
pub use layers::{FragmentInfo, Layers, Ports, Scope};

/// Most headers that are followed in one frame.
pub const MAX_LAYERS: usize = 32;
/// Most nested packets that are followed.
pub const MAX_LEVELS: u8 = 8;

/// Kind of the first header, for [`walk_from`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A link header.
    Link(LinkType),
    /// The header with this EtherType.
    EtherType(u16),
    /// IPv4 or IPv6, by the version nibble.
    Ip,
}

/// Follows the headers of a frame.
pub fn walk<'a>(frame: &Frame<'a>) -> Layers<'a> {
    walk_from(frame.data, frame.wire_len as usize, Start::Link(frame.link))
}

/// Follows the headers of a frame and overwrites `layers`: a loop over many frames saves the
/// initialisation.
pub fn walk_again<'a>(frame: &Frame<'a>, layers: &mut Layers<'a>) {
    layers.restart(frame.data);
    follow_from(layers, frame.wire_len as usize, Start::Link(frame.link));
}

/// Follows the headers of `data`, which was `wire_len` bytes long before a snapshot length cut it.
pub fn walk_from(data: &[u8], wire_len: usize, start: Start) -> Layers<'_> {
    let mut layers = Layers::new();
    layers.restart(data);
    follow_from(&mut layers, wire_len, start);
    layers
}

fn follow_from(layers: &mut Layers, wire_len: usize, start: Start) {
    let mut cursor = Cursor::new(layers, wire_len);
    let first = match start {
        Start::Link(LinkType::EN10MB) => Ok(Next::Ethernet),
        Start::Link(link) => link::other(&mut cursor, link),
        Start::EtherType(number) => Ok(Next::EtherType(number)),
        Start::Ip => Ok(Next::IpByVersion),
    };
    let stop = follow(&mut cursor, first);
    layers.set_stop(stop);
}

/// Reads one header after the other until the walk ends. Terminates: every step except the choice
/// between IPv4 and IPv6 records a layer or ends, and the number of layers is limited.
fn follow(cursor: &mut Cursor, mut next: Result<Next, Stop>) -> Stop {
    loop {
        next = match next {
            Err(stop) => return stop,
            Ok(Next::Ethernet) => link::ethernet(cursor),
            Ok(Next::Llc) => link::llc(cursor),
            Ok(Next::EtherType(number)) => by_ethertype(cursor, number),
            Ok(Next::Ppp) => link::ppp(cursor),
            Ok(Next::IpByVersion) => ip::by_version(cursor),
            Ok(Next::Ip { protocol, v6 }) => by_ip_protocol(cursor, protocol, v6),
        };
    }
}

fn by_ethertype(cursor: &mut Cursor, number: u16) -> Result<Next, Stop> {
    match number {
        ethertype::IPV4 => ip::v4(cursor),
        ethertype::IPV6 => ip::v6(cursor),
        ethertype::ARP | ethertype::REVARP => link::arp(cursor),
        _ if link::is_tag(number) => link::vlan(cursor),
        ethertype::MPLS | ethertype::MPLS_MULTICAST => link::mpls(cursor),
        ethertype::PPPOE_SESSION => link::pppoe(cursor, true),
        ethertype::PPPOE_DISCOVERY => link::pppoe(cursor, false),
        ethertype::PPP => link::ppp(cursor),
        ethertype::TRANSPARENT_ETHERNET => link::ethernet(cursor),
        _ if number < ethertype::MIN_ETHERTYPE => link::llc_of_length(cursor, number),
        _ => Err(Stop::UnknownProtocol(Numbered::EtherType(number))),
    }
}

fn by_ip_protocol(cursor: &mut Cursor, protocol: u8, v6: bool) -> Result<Next, Stop> {
    match protocol {
        6 => transport::tcp(cursor),
        17 => transport::udp(cursor),
        1 => transport::icmp(cursor, Protocol::Icmp),
        58 => transport::icmp(cursor, Protocol::Icmpv6),
        132 => transport::sctp(cursor),
        136 => transport::udp_lite(cursor),
        33 => transport::dccp(cursor),
        2 => transport::igmp(cursor),
        4 => cursor.enter().and_then(|()| ip::v4(cursor)),
        41 => cursor.enter().and_then(|()| ip::v6(cursor)),
        47 => tunnel::gre(cursor),
        97 => tunnel::ether_ip(cursor),
        137 => link::mpls(cursor),
        143 => cursor.enter().map(|()| Next::Ethernet),
        50 => ip::esp(cursor),
        51 => ip::authentication(cursor, v6),
        59 => Err(Stop::Done),
        0 | 43 | 60 | 135 | 139 | 140 if v6 => ip::extension(cursor, protocol),
        44 if v6 => ip::fragment(cursor),
        _ => Err(Stop::UnknownProtocol(Numbered::Ip(protocol))),
    }
}
