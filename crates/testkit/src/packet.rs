//! Builds packets for tests: the test names headers from the outside in; the builder computes lengths, protocol numbers
//! and checksums.
//!
//! ```
//! use fyke_testkit::packet::Packet;
//! let bytes = Packet::ethernet()
//!     .vlan(5)
//!     .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
//!     .tcp(1234, 80)
//!     .flags(0x02)
//!     .payload(b"hello")
//!     .build();
//! assert_eq!(bytes.len(), 14 + 4 + 20 + 20 + 5);
//! ```
//!
//! The methods after a header set its fields (`.ttl(3)` changes the last IP header). For anything else, a test changes
//! the built bytes. A header that does not fit the previous one (TCP on Ethernet) gets protocol number 0: the builder
//! does not check for errors.

mod build;

use std::net::{Ipv4Addr, Ipv6Addr};

/// A packet under construction.
#[derive(Debug, Clone)]
pub struct Packet {
    link: u16,
    parts: Vec<Part>,
    payload: Vec<u8>,
}

/// One header and the fields that can be chosen.
#[derive(Debug, Clone)]
enum Part {
    Ethernet { destination: [u8; 6], source: [u8; 6] },
    Llc { saps: [u8; 3] },
    Snap,
    Sll,
    Sll2,
    Family { swapped: bool },
    Tag { number: u16, control: u16 },
    Mpls { label: u32 },
    ControlWord,
    Pppoe { session: u16 },
    Ppp,
    Arp { operation: u16, sender: Ipv4Addr, target: Ipv4Addr },
    Ipv4(Ipv4),
    Ipv6(Ipv6),
    Extension { number: u8, data: Vec<u8> },
    Fragment { id: u32, offset: u16, more: bool },
    Authentication,
    Raw { number: u8, data: Vec<u8> },
    Tcp(Tcp),
    Udp { number: u8, source: u16, destination: u16 },
    Sctp { source: u16, destination: u16 },
    Icmp { v6: bool, kind: u8, code: u8, rest: u32 },
    Gre { key: Option<u32>, sequence: Option<u32>, checksum: bool },
    Pptp { call: u16, sequence: Option<u32> },
    Erspan { version: u8 },
    Vxlan { vni: u32 },
    Geneve { vni: u32, options: Vec<u8> },
    Gtpu { teid: u32, sequence: Option<u16> },
    EtherIp,
}

#[derive(Debug, Clone)]
struct Ipv4 {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    tos: u8,
    id: u16,
    flags_offset: u16,
    ttl: u8,
    protocol: Option<u8>,
    options: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Ipv6 {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    next_header: Option<u8>,
}

#[derive(Debug, Clone)]
struct Tcp {
    source: u16,
    destination: u16,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
}

impl Packet {
    fn new(link: u16) -> Self {
        Packet { link, parts: Vec::new(), payload: Vec::new() }
    }

    /// Starts with an Ethernet header between two fixed addresses.
    pub fn ethernet() -> Self {
        Packet::new(1).ether()
    }

    /// Starts without a link header.
    pub fn raw() -> Self {
        Packet::new(101)
    }

    /// Starts with a Linux cooked header, version 1.
    pub fn sll() -> Self {
        Packet::new(113).with(Part::Sll)
    }

    /// Starts with a Linux cooked header, version 2.
    pub fn sll2() -> Self {
        Packet::new(276).with(Part::Sll2)
    }

    /// Starts with BSD's loopback header in little-endian byte order.
    pub fn null() -> Self {
        Packet::new(0).with(Part::Family { swapped: true })
    }

    /// Starts with OpenBSD's loopback header.
    pub fn loopback() -> Self {
        Packet::new(108).with(Part::Family { swapped: false })
    }

    /// Returns the number of the link type in files.
    pub fn link_type(&self) -> u16 {
        self.link
    }

    fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Adds an Ethernet header between two fixed addresses, also inside a tunnel.
    pub fn ether(self) -> Self {
        self.with(Part::Ethernet {
            destination: [0x02, 0, 0, 0, 0, 2],
            source: [0x02, 0, 0, 0, 0, 1],
        })
    }

    /// Sets the addresses of the last Ethernet header.
    pub fn macs(mut self, new_source: [u8; 6], new_destination: [u8; 6]) -> Self {
        self.change(|part| match part {
            Part::Ethernet { destination, source } => {
                (*destination, *source) = (new_destination, new_source);
                true
            }
            _ => false,
        });
        self
    }

    /// Adds an 802.2 header (destination and source SAP, control) after an 802.3 length.
    pub fn llc(self, saps: [u8; 3]) -> Self {
        self.with(Part::Llc { saps })
    }

    /// Adds a SNAP header with Ethernet's organisation code, after an 802.3 length.
    pub fn snap(self) -> Self {
        self.with(Part::Snap)
    }

    /// 802.1Q tag.
    pub fn vlan(self, id: u16) -> Self {
        self.tag(0x8100, id)
    }

    /// 802.1ad service tag.
    pub fn qinq(self, id: u16) -> Self {
        self.tag(0x88a8, id)
    }

    /// Adds a tag with any EtherType and any control field.
    pub fn tag(self, number: u16, control: u16) -> Self {
        self.with(Part::Tag { number, control })
    }

    /// Adds an MPLS label; the last of a stack gets the bottom bit.
    pub fn mpls(self, label: u32) -> Self {
        self.with(Part::Mpls { label })
    }

    /// Control word of a pseudowire, between labels and an Ethernet header.
    pub fn control_word(self) -> Self {
        self.with(Part::ControlWord)
    }

    /// PPPoE session header; `.ppp()` follows.
    pub fn pppoe(self, session: u16) -> Self {
        self.with(Part::Pppoe { session })
    }

    /// PPP protocol number.
    pub fn ppp(self) -> Self {
        self.with(Part::Ppp)
    }

    /// Adds ARP for IPv4 over Ethernet; 1 is a request, 2 a reply.
    pub fn arp(
        self,
        operation: u16,
        sender: impl Into<Ipv4Addr>,
        target: impl Into<Ipv4Addr>,
    ) -> Self {
        self.with(Part::Arp { operation, sender: sender.into(), target: target.into() })
    }

    /// IPv4.
    pub fn ipv4(self, source: impl Into<Ipv4Addr>, destination: impl Into<Ipv4Addr>) -> Self {
        self.with(Part::Ipv4(Ipv4 {
            source: source.into(),
            destination: destination.into(),
            tos: 0,
            id: 1,
            flags_offset: 0,
            ttl: 64,
            protocol: None,
            options: Vec::new(),
        }))
    }

    /// IPv6.
    pub fn ipv6(self, source: impl Into<Ipv6Addr>, destination: impl Into<Ipv6Addr>) -> Self {
        self.with(Part::Ipv6(Ipv6 {
            source: source.into(),
            destination: destination.into(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            next_header: None,
        }))
    }

    /// Options of the last IPv4 header; padded to words.
    pub fn ip_options(mut self, options: &[u8]) -> Self {
        self.change_ipv4(|ip| ip.options = padded(options, 4));
        self
    }

    /// Time to live or hop limit of the last IP header.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.change_ip(|ip| ip.ttl = ttl, |ip| ip.hop_limit = ttl);
        self
    }

    /// Type of service or traffic class of the last IP header.
    pub fn tos(mut self, tos: u8) -> Self {
        self.change_ip(|ip| ip.tos = tos, |ip| ip.traffic_class = tos);
        self
    }

    /// Flow label of the last IPv6 header.
    pub fn flow_label(mut self, label: u32) -> Self {
        self.change_ip(|_| {}, |ip| ip.flow_label = label & 0xf_ffff);
        self
    }

    /// Sets the protocol number of the last IP header, for protocols without a method here.
    pub fn protocol(mut self, number: u8) -> Self {
        self.change_ip(|ip| ip.protocol = Some(number), |ip| ip.next_header = Some(number));
        self
    }

    /// Identification of the last IPv4 header.
    pub fn id(mut self, id: u16) -> Self {
        self.change_ipv4(|ip| ip.id = id);
        self
    }

    /// Sets the do-not-fragment bit of the last IPv4 header.
    pub fn dont_fragment(mut self) -> Self {
        self.change_ipv4(|ip| ip.flags_offset |= 0x4000);
        self
    }

    /// Makes the last IPv4 header a fragment's; `offset` in bytes, a multiple of 8.
    pub fn fragment(mut self, id: u16, offset: u16, more: bool) -> Self {
        self.change_ipv4(|ip| {
            ip.id = id;
            ip.flags_offset = (offset / 8) | if more { 0x2000 } else { 0 };
        });
        self
    }

    /// IPv6 fragment header; `offset` in bytes, a multiple of 8.
    pub fn fragment6(self, id: u32, offset: u16, more: bool) -> Self {
        self.with(Part::Fragment { id, offset, more })
    }

    /// IPv6 extension header `number` with this content after its two first bytes; padded to eight-byte units.
    pub fn extension(self, number: u8, data: &[u8]) -> Self {
        self.with(Part::Extension { number, data: data.to_vec() })
    }

    /// IPv6 hop-by-hop options, padding only.
    pub fn hop_by_hop(self) -> Self {
        self.extension(0, &[1, 4, 0, 0, 0, 0])
    }

    /// IPv6 destination options, padding only.
    pub fn destination_options(self) -> Self {
        self.extension(60, &[1, 4, 0, 0, 0, 0])
    }

    /// IPv6 routing header of type 0 without segments left.
    pub fn routing(self) -> Self {
        self.extension(43, &[0, 0, 0, 0, 0, 0])
    }

    /// IPsec authentication header.
    pub fn authentication(self) -> Self {
        self.with(Part::Authentication)
    }

    /// Any IP payload by number, from its first byte on.
    pub fn ip_payload(self, number: u8, data: &[u8]) -> Self {
        self.with(Part::Raw { number, data: data.to_vec() })
    }

    /// IPsec ESP.
    pub fn esp(self, spi: u32) -> Self {
        let mut data = spi.to_be_bytes().to_vec();
        data.extend([0, 0, 0, 1]);
        self.ip_payload(50, &data)
    }

    /// Adds TCP; a SYN unless [`flags`](Self::flags) sets other flags.
    pub fn tcp(self, source: u16, destination: u16) -> Self {
        self.with(Part::Tcp(Tcp {
            source,
            destination,
            sequence: 1,
            acknowledgement: 0,
            flags: 2,
            window: 64240,
            urgent: 0,
            options: Vec::new(),
        }))
    }

    /// Flags of the last TCP header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub fn flags(mut self, flags: u8) -> Self {
        self.change_tcp(|tcp| tcp.flags = flags);
        self
    }

    /// Sequence and acknowledgement number of the last TCP header.
    pub fn seq_ack(mut self, sequence: u32, acknowledgement: u32) -> Self {
        self.change_tcp(|tcp| {
            (tcp.sequence, tcp.acknowledgement) = (sequence, acknowledgement);
        });
        self
    }

    /// Window of the last TCP header.
    pub fn window(mut self, window: u16) -> Self {
        self.change_tcp(|tcp| tcp.window = window);
        self
    }

    /// Options of the last TCP header; padded to words.
    pub fn tcp_options(mut self, options: &[u8]) -> Self {
        self.change_tcp(|tcp| tcp.options = padded(options, 4));
        self
    }

    /// UDP.
    pub fn udp(self, source: u16, destination: u16) -> Self {
        self.with(Part::Udp { number: 17, source, destination })
    }

    /// UDP-Lite, all of it covered by the checksum.
    pub fn udp_lite(self, source: u16, destination: u16) -> Self {
        self.with(Part::Udp { number: 136, source, destination })
    }

    /// SCTP common header; chunks are payload. The checksum stays 0.
    pub fn sctp(self, source: u16, destination: u16) -> Self {
        self.with(Part::Sctp { source, destination })
    }

    /// ICMP message; `rest` is the second word (identifier and sequence number of an echo).
    pub fn icmp(self, kind: u8, code: u8, rest: u32) -> Self {
        self.with(Part::Icmp { v6: false, kind, code, rest })
    }

    /// ICMPv6 message.
    pub fn icmpv6(self, kind: u8, code: u8, rest: u32) -> Self {
        self.with(Part::Icmp { v6: true, kind, code, rest })
    }

    /// GRE without options.
    pub fn gre(self) -> Self {
        self.gre_with(None, None, false)
    }

    /// GRE with key, sequence number, checksum.
    pub fn gre_with(self, key: Option<u32>, sequence: Option<u32>, checksum: bool) -> Self {
        self.with(Part::Gre { key, sequence, checksum })
    }

    /// Adds GRE in the form of PPTP; `.ppp()` follows if there is a sequence number.
    pub fn pptp(self, call: u16, sequence: Option<u32>) -> Self {
        self.with(Part::Pptp { call, sequence })
    }

    /// Adds ERSPAN, type II or III; call it after a GRE header with a sequence number, and `.ether()` after it.
    pub fn erspan(self, version: u8) -> Self {
        self.with(Part::Erspan { version })
    }

    /// VXLAN, with a UDP header of its own.
    pub fn vxlan(self, vni: u32) -> Self {
        self.udp(50_000, 4789).with(Part::Vxlan { vni })
    }

    /// Geneve, with a UDP header of its own; options are padded to words.
    pub fn geneve(self, vni: u32, options: &[u8]) -> Self {
        self.udp(50_000, 6081).with(Part::Geneve { vni, options: padded(options, 4) })
    }

    /// GTP-U user data, with a UDP header of its own.
    pub fn gtpu(self, teid: u32) -> Self {
        self.udp(2152, 2152).with(Part::Gtpu { teid, sequence: None })
    }

    /// GTP-U user data with a sequence number, with a UDP header of its own.
    pub fn gtpu_numbered(self, teid: u32, sequence: u16) -> Self {
        self.udp(2152, 2152).with(Part::Gtpu { teid, sequence: Some(sequence) })
    }

    /// EtherIP; `.ether()` follows.
    pub fn ether_ip(self) -> Self {
        self.with(Part::EtherIp)
    }

    /// Adds bytes after the last header.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Builds the packet's bytes.
    pub fn build(&self) -> Vec<u8> {
        build::build(&self.parts, &self.payload)
    }

    /// Changes the last part for which `change` returns true.
    fn change(&mut self, change: impl FnMut(&mut Part) -> bool) {
        let changed = self.parts.iter_mut().rev().any(change);
        assert!(changed, "no header that this method can change precedes it");
    }

    fn change_ipv4(&mut self, change: impl Fn(&mut Ipv4)) {
        self.change(|part| match part {
            Part::Ipv4(ip) => {
                change(ip);
                true
            }
            _ => false,
        });
    }

    fn change_ip(&mut self, v4: impl Fn(&mut Ipv4), v6: impl Fn(&mut Ipv6)) {
        self.change(|part| match part {
            Part::Ipv4(ip) => {
                v4(ip);
                true
            }
            Part::Ipv6(ip) => {
                v6(ip);
                true
            }
            _ => false,
        });
    }

    fn change_tcp(&mut self, change: impl Fn(&mut Tcp)) {
        self.change(|part| match part {
            Part::Tcp(tcp) => {
                change(tcp);
                true
            }
            _ => false,
        });
    }
}

fn padded(bytes: &[u8], unit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
    bytes
}

/// Computes the Internet checksum (RFC 1071) of the concatenated pieces; all but the last must have an even length.
/// It sums word by word, independently of `fyke_frame::checksum`, which is compared with it.
pub fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for pair in pieces.iter().flat_map(|piece| piece.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
