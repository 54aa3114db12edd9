//! One header of a frame, the protocols that the walk knows, and the reasons for its end. 16 bytes
//! per layer.

use std::fmt;
use std::ops::Range;

/// The protocols that the walk records as layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Protocol {
    /// Ethernet: destination, source, EtherType or length.
    #[default]
    Ethernet,
    /// The link header of another link type (Linux cooked, BSD loopback, …).
    Link,
    /// 802.2 LLC, with the SNAP header if there is one.
    Llc,
    /// A stack of 802.1Q/802.1ad tags, one or more.
    Vlan,
    /// A stack of MPLS labels, one or more.
    Mpls,
    /// The control word of a pseudowire (RFC 4385), between labels and an Ethernet frame.
    ControlWord,
    /// PPPoE, session or discovery.
    Pppoe,
    /// PPP: the protocol number, with address and control if present.
    Ppp,
    /// ARP or RARP.
    Arp,
    /// IPv4 with its options.
    Ipv4,
    /// IPv6, the fixed header only.
    Ipv6,
    /// IPv6 hop-by-hop options.
    HopByHop,
    /// IPv6 routing header.
    Routing,
    /// IPv6 fragment header.
    Fragment,
    /// IPv6 destination options.
    DestinationOptions,
    /// IPv6 mobility header.
    Mobility,
    /// Host identity protocol.
    Hip,
    /// Shim6.
    Shim6,
    /// IPsec authentication header.
    Authentication,
    /// IPsec encapsulating security payload.
    Esp,
    /// TCP with its options.
    Tcp,
    /// UDP.
    Udp,
    /// UDP-Lite.
    UdpLite,
    /// SCTP, the common header only.
    Sctp,
    /// DCCP.
    Dccp,
    /// ICMP for IPv4.
    Icmp,
    /// ICMP for IPv6.
    Icmpv6,
    /// IGMP.
    Igmp,
    /// GRE, and its enhanced form in PPTP.
    Gre,
    /// ERSPAN types II and III.
    Erspan,
    /// VXLAN and VXLAN-GPE.
    Vxlan,
    /// Geneve with its options.
    Geneve,
    /// GTP-U with its extension headers.
    Gtpu,
    /// EtherIP.
    EtherIp,
}

impl Protocol {
    /// True for IPv4 and IPv6.
    pub fn is_ip(self) -> bool {
        matches!(self, Protocol::Ipv4 | Protocol::Ipv6)
    }

    /// True for headers between the IPv6 header and its payload.
    pub fn is_ip_extension(self) -> bool {
        (Protocol::HopByHop..=Protocol::Authentication).contains(&self)
    }

    /// True for transports that begin with source and destination port, two bytes each.
    pub fn has_ports(self) -> bool {
        matches!(
            self,
            Protocol::Tcp | Protocol::Udp | Protocol::UdpLite | Protocol::Sctp | Protocol::Dccp
        )
    }
}

/// One header and its payload; all offsets count from the first captured byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layer {
    /// Offset of the header.
    pub offset: u32,
    /// End of the payload in the captured bytes, according to the length fields of this layer and
    /// those around it, at most the captured length. Never before the header's end, never after the
    /// end of the layer around.
    pub end: u32,
    /// End of the payload on the wire according to the same length fields; more than `end` if the
    /// snapshot length cut it.
    pub wire_end: u32,
    /// Captured length of the header, options included, in bytes.
    pub header_len: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Number of packets around this one: 0 before the first tunnel.
    pub level: u8,
}

impl Layer {
    /// End of the header and start of the payload.
    pub fn header_end(&self) -> usize {
        self.offset as usize + self.header_len as usize
    }

    /// The range of the header.
    pub fn header_range(&self) -> Range<usize> {
        self.offset as usize..self.header_end()
    }

    /// The range of the captured payload.
    pub fn payload_range(&self) -> Range<usize> {
        self.header_end()..self.end as usize
    }

    /// Length of the payload on the wire according to the length fields.
    pub fn wire_payload_len(&self) -> usize {
        (self.wire_end as usize).saturating_sub(self.header_end())
    }
}

/// A protocol number that the walk does not follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// Link type of the frame, or the number in its link header.
    LinkType(u16),
    /// EtherType.
    EtherType(u16),
    /// IP protocol or IPv6 next header.
    Ip(u8),
    /// PPP protocol.
    Ppp(u16),
    /// LLC destination and source service access point.
    Llc(u16),
    /// First nibble of the payload of MPLS labels or GTP-U, if it is neither 4 nor 6.
    Version(u8),
}

/// Reason why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// All headers were read; the rest is payload.
    #[default]
    Done,
    /// The snapshot length cut a header.
    Truncated,
    /// A length field contradicts itself or the length fields around it.
    LengthLies,
    /// An IP header with a version other than the announced one.
    WrongVersion(u8),
    /// There are more headers, or more nested packets, than the walk follows.
    TooDeep,
    /// The walk does not know the next header.
    UnknownProtocol(Numbered),
    /// The rest of the headers is in another fragment.
    Fragment,
    /// The rest is encrypted.
    Encrypted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Done => f.write_str("all headers read"),
            Stop::Truncated => f.write_str("a header is cut by the snapshot length"),
            Stop::LengthLies => f.write_str("a length field contradicts the packet"),
            Stop::WrongVersion(version) => {
                write!(f, "IP version {version} instead of the announced one")
            }
            Stop::TooDeep => f.write_str("too many headers"),
            Stop::UnknownProtocol(Numbered::LinkType(n)) => write!(f, "unknown link type {n}"),
            Stop::UnknownProtocol(Numbered::EtherType(n)) => {
                write!(f, "unknown EtherType {n:#06x}")
            }
            Stop::UnknownProtocol(Numbered::Ip(n)) => write!(f, "unknown IP protocol {n}"),
            Stop::UnknownProtocol(Numbered::Ppp(n)) => write!(f, "unknown PPP protocol {n:#06x}"),
            Stop::UnknownProtocol(Numbered::Llc(n)) => write!(f, "unknown LLC SAPs {n:#06x}"),
            Stop::UnknownProtocol(Numbered::Version(n)) => {
                write!(f, "unknown payload (nibble {n})")
            }
            Stop::Fragment => f.write_str("the rest is in another fragment"),
            Stop::Encrypted => f.write_str("the rest is encrypted"),
        }
    }
}
