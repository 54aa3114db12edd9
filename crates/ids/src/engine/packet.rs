//! A packet as rules see it: its ends, the fields that options test, and its payload.

use crate::buffer::Buffer;
use crate::rule::{HeaderTest, PacketTest};
use fyke_frame::walk::view::tcp_flags::{FIN, SYN};
use fyke_frame::walk::{FragmentInfo, Layer, Protocol, Scope};
use std::net::IpAddr;

/// An address with a port; the port is 0 if the protocol has none.
pub type End = (IpAddr, u16);

/// Protocol numbers.
pub const TCP: u8 = 6;
const UDP: u8 = 17;
/// Protocol number of SCTP.
pub const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A packet of one level of a frame.
#[derive(Debug, Clone)]
pub struct Packet<'a> {
    /// Capture time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The sender.
    pub source: End,
    /// The receiver.
    pub destination: End,
    /// Protocol of IP.
    pub protocol: u8,
    /// The payload of the transport, or of IP.
    pub payload: &'a [u8],
    /// Length of the payload on the wire.
    pub payload_len: usize,
    /// Length of the frame on the wire.
    pub wire_len: u32,
    /// Outer VLAN tags of the frame, 12 bits each; 0 without.
    pub vlan: u32,
    /// Header of IP, with the options of IPv4 and the extension headers of IPv6.
    network: &'a [u8],
    /// Header of TCP, UDP or ICMP.
    transport: &'a [u8],
    ttl: u8,
    tos: u8,
    id: Option<u16>,
    fragment_bits: u8,
    fragment_offset: u32,
    tcp: Option<TcpFields>,
    icmp: Option<IcmpFields>,
    /// The ports are cut off.
    is_cut: bool,
}

#[derive(Debug, Clone, Copy)]
struct TcpFields {
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    window: u16,
}

#[derive(Debug, Clone, Copy)]
struct IcmpFields {
    kind: u8,
    code: u8,
    rest: Option<u32>,
    is_echo: bool,
}

impl<'a> Packet<'a> {
    /// The packet of a level of a frame with these bytes; none if the level has no IP header.
    pub fn of(
        level: &Scope<'_, 'a>,
        data: &'a [u8],
        time_ns: u64,
        wire_len: u32,
    ) -> Option<Packet<'a>> {
        let ip = level.ip()?;
        let (mut tos, mut id, mut fragment_bits) = (0, None, 0);
        if let Some(four) = level.ipv4() {
            tos = four.tos();
            id = Some(four.id());
            fragment_bits = u8::from(four.reserved_flag()) << 2
                | u8::from(four.dont_fragment()) << 1
                | u8::from(four.more_fragments());
        } else if let Some(six) = level.ipv6() {
            tos = six.traffic_class();
        }
        let raw = match (level.ipv4(), level.ipv6()) {
            (Some(four), _) => four.payload(),
            (_, Some(six)) => six.payload(),
            _ => &[],
        };
        let is_network =
            |layer: &&Layer| layer.protocol.is_ip() || layer.protocol.is_ip_extension();
        let first = level.layers().iter().find(is_network).map(Layer::header_range);
        let last = level.layers().iter().rfind(is_network).map(Layer::header_range);
        let network = first.zip(last).and_then(|(first, last)| data.get(first.start..last.end));
        let transport = level.layers().iter().rev().find(|layer| {
            layer.protocol.has_ports()
                || matches!(layer.protocol, Protocol::Icmp | Protocol::Icmpv6)
        });
        let header = |layer: Option<&Layer>| {
            layer.and_then(|layer| data.get(layer.header_range())).unwrap_or_default()
        };
        let mut packet = Packet {
            network: network.unwrap_or_default(),
            transport: header(transport),
            time_ns,
            source: (ip.source(), 0),
            destination: (ip.destination(), 0),
            protocol: level.ip_protocol().unwrap_or(u8::MAX),
            payload: raw,
            payload_len: raw.len(),
            wire_len,
            vlan: 0,
            ttl: ip.hop_limit(),
            tos,
            id,
            fragment_bits,
            fragment_offset: level.fragment().map_or(0, |info: FragmentInfo| info.offset),
            tcp: None,
            icmp: None,
            is_cut: false,
        };
        packet.transport(level);
        Some(packet)
    }

    /// A packet without bytes between two ends.
    pub fn between(source: End, destination: End, protocol: u8, time_ns: u64) -> Packet<'static> {
        Packet {
            network: &[],
            transport: &[],
            time_ns,
            source,
            destination,
            protocol,
            payload: &[],
            payload_len: 0,
            wire_len: 0,
            vlan: 0,
            ttl: 0,
            tos: 0,
            id: None,
            fragment_bits: 0,
            fragment_offset: 0,
            tcp: None,
            icmp: None,
            is_cut: false,
        }
    }

    /// Adds what the header of the transport has.
    fn transport(&mut self, level: &Scope<'_, 'a>) {
        if let Some(tcp) = level.tcp() {
            (self.source.1, self.destination.1) = (tcp.source_port(), tcp.destination_port());
            (self.payload, self.payload_len) = (tcp.payload(), tcp.wire_payload_len());
            self.tcp = tcp.flags().map(|flags| TcpFields {
                flags,
                sequence: tcp.sequence().unwrap_or(0),
                acknowledged: tcp.acknowledgement().unwrap_or(0),
                window: tcp.window().unwrap_or(0),
            });
        } else if let Some(udp) = level.udp() {
            (self.source.1, self.destination.1) = (udp.source_port(), udp.destination_port());
            (self.payload, self.payload_len) = (udp.payload(), udp.wire_payload_len());
        } else if let Some(icmp) = level.icmp() {
            (self.payload, self.payload_len) = (icmp.payload(), icmp.payload().len());
            let (kind, code, rest) = (icmp.kind(), icmp.code(), icmp.rest());
            let is_echo = if icmp.is_v6() {
                matches!(kind, 128 | 129)
            } else {
                matches!(kind, 0 | 8 | 13..=18)
            };
            self.icmp = Some(IcmpFields { kind, code, rest, is_echo });
        } else if let Some(sctp) = level.sctp() {
            (self.source.1, self.destination.1) = (sctp.source_port(), sctp.destination_port());
            (self.payload, self.payload_len) = (sctp.chunks(), sctp.chunks().len());
        } else if let Some(ports) = level.ports() {
            (self.source.1, self.destination.1) = (ports.source, ports.destination);
        } else {
            self.is_cut = matches!(self.protocol, TCP | UDP);
        }
    }

    /// True if the ends fit a header. A header for certain ports does not fit a packet with cut-off ports.
    pub fn has_ends(&self, header: &HeaderTest) -> bool {
        let all_ports = || header.source_ports.is_any() && header.destination_ports.is_any();
        header.fits(self.source, self.destination) && (!self.is_cut || all_ports())
    }

    /// Sequence number of TCP, and the one after the packet.
    pub fn sequences(&self) -> Option<(u32, u32)> {
        let tcp = self.tcp?;
        let signs = (tcp.flags & SYN != 0) as u32 + (tcp.flags & FIN != 0) as u32;
        let len = u32::try_from(self.payload_len).unwrap_or(0);
        Some((tcp.sequence, tcp.sequence.wrapping_add(len).wrapping_add(signs)))
    }

    /// Flags of TCP.
    pub fn flags(&self) -> Option<u8> {
        self.tcp.map(|tcp| tcp.flags)
    }

    /// True for UDP.
    pub fn is_udp(&self) -> bool {
        self.protocol == UDP
    }

    /// True for ICMP of either version.
    pub fn is_icmp(&self) -> bool {
        self.protocol == ICMP || self.protocol == ICMPV6
    }

    /// True for ICMP of IPv4 (4) or of IPv6 (6).
    pub fn is_icmp_of(&self, version: u8) -> bool {
        self.protocol == if version == 4 { ICMP } else { ICMPV6 }
    }

    /// Type and code of ICMP.
    pub fn icmp(&self) -> Option<(u8, u8)> {
        self.icmp.map(|icmp| (icmp.kind, icmp.code))
    }

    /// The bytes of a buffer about packets; none if the packet does not have it.
    pub fn buffer(&self, buffer: Buffer) -> Option<&'a [u8]> {
        let four = self.source.0.is_ipv4();
        let (bytes, is_there) = match buffer {
            Buffer::Payload => return Some(self.payload),
            Buffer::Ipv4Header => (self.network, four),
            Buffer::Ipv6Header => (self.network, !four),
            Buffer::TcpHeader => (self.transport, self.tcp.is_some()),
            Buffer::UdpHeader => (self.transport, self.is_udp()),
            Buffer::Icmpv4Header => (self.transport, self.protocol == ICMP),
            Buffer::Icmpv6Header => (self.transport, self.protocol == ICMPV6),
            _ => return None,
        };
        Some(bytes).filter(|bytes| is_there && !bytes.is_empty())
    }

    /// Judges a test of the headers.
    pub fn fits(&self, test: &PacketTest) -> bool {
        let icmp = |fits: &dyn Fn(IcmpFields) -> bool| self.icmp.is_some_and(fits);
        let echo = |shift: u32, value: u16| {
            icmp(&|icmp| {
                icmp.is_echo && icmp.rest.is_some_and(|rest| (rest >> shift) as u16 == value)
            })
        };
        match test {
            PacketTest::PayloadLen(bound) => bound.contains(self.payload_len as u64),
            PacketTest::Flags { value, mask, mode } => {
                self.tcp.is_some_and(|tcp| mode.fits(tcp.flags & mask, *value))
            }
            PacketTest::TimeToLive(bound) => bound.contains(self.ttl.into()),
            PacketTest::TypeOfService(bound) => bound.contains(self.tos.into()),
            PacketTest::Identification(id) => self.id == Some(*id),
            PacketTest::IpProtocol(bound) => bound.contains(self.protocol.into()),
            PacketTest::SameAddress => self.source.0 == self.destination.0,
            PacketTest::IcmpType(bound) => icmp(&|icmp| bound.contains(icmp.kind.into())),
            PacketTest::IcmpCode(bound) => icmp(&|icmp| bound.contains(icmp.code.into())),
            PacketTest::IcmpId(id) => echo(16, *id),
            PacketTest::IcmpSequence(number) => echo(0, *number),
            PacketTest::Sequence(number) => self.tcp.is_some_and(|tcp| tcp.sequence == *number),
            PacketTest::Acknowledged(number) => {
                self.tcp.is_some_and(|tcp| tcp.acknowledged == *number)
            }
            PacketTest::Window(window, negated) => {
                self.tcp.is_some_and(|tcp| (tcp.window == *window) != *negated)
            }
            PacketTest::FragmentBits { value, mode } => {
                self.id.is_some() && mode.fits(self.fragment_bits, *value)
            }
            PacketTest::FragmentOffset(bound) => {
                bound.contains(u64::from(self.fragment_offset / 8))
            }
            PacketTest::IpOption(number) => {
                let options = self.network.get(20..).filter(|_| self.source.0.is_ipv4());
                options.is_some_and(|options| ip_options(options, *number))
            }
            PacketTest::MaxSegment(bound) => {
                let options = self.transport.get(20..).filter(|_| self.tcp.is_some());
                let mut options = header_options(options.unwrap_or_default());
                let segment = options.find_map(|(number, value)| match (number, value) {
                    (2, [high, low]) => Some(u64::from(u16::from_be_bytes([*high, *low]))),
                    _ => None,
                });
                segment.is_some_and(|segment| bound.contains(segment))
            }
            PacketTest::Mtu(bound) => {
                let is_too_big = |icmp: IcmpFields| self.protocol == ICMPV6 && icmp.kind == 2;
                icmp(&|icmp| {
                    is_too_big(icmp) && icmp.rest.is_some_and(|rest| bound.contains(rest.into()))
                })
            }
        }
    }
}

/// The options of a header of TCP, with their values, up to the end or the first that is damaged.
fn header_options(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let number = *rest.first()?;
        let len = match number {
            0 | 1 => 1,
            _ => rest.get(1).copied().map(usize::from).filter(|len| *len >= 2)?,
        };
        let value = rest.get(2.min(len)..len)?;
        rest = if number == 0 { &[] } else { &rest[len..] };
        Some((number, value))
    })
}

/// True if the options of a header of IPv4 have a valid one with this number, or with any.
///
/// As in Suricata, an option with a wrong length or pointer is not there, and a list with a length that leads nowhere
/// (below 2, or beyond the header) has no option at all: Suricata does not decode such a packet.
fn ip_options(bytes: &[u8], wanted: Option<u8>) -> bool {
    let (mut rest, mut found) = (bytes, false);
    while let Some(&number) = rest.first() {
        let len = match (number, rest.get(1)) {
            (0 | 1, _) => 1,
            (_, Some(len)) => usize::from(*len),
            // The last byte cannot be an option, but what precedes it is intact.
            (_, None) => return found,
        };
        let Some((option, next)) = rest.split_at_checked(len).filter(|_| number <= 1 || len >= 2)
        else {
            return false;
        };
        let wants = wanted.is_none_or(|wanted| wanted == number);
        found |= wants && is_valid_ip_option(option);
        rest = if number == 0 { &[] } else { next };
    }
    found
}

/// True if an option of IPv4 has the length and the pointer that its kind has. Source: RFC 791, 1108, 2113, 4782.
fn is_valid_ip_option(option: &[u8]) -> bool {
    let is_pointer = |pointer: u8, first: u8, step: u8| {
        let within = usize::from(pointer) <= option.len() + 1;
        within && pointer.checked_sub(first).is_some_and(|offset| offset.is_multiple_of(step))
    };
    match option {
        // Record route, loose and strict source route.
        [7 | 131 | 137, _, pointer, ..] => is_pointer(*pointer, 4, 4),
        // Timestamp: a record may have an address, too.
        [68, _, pointer, flags, _, ..] => {
            is_pointer(*pointer, 5, if matches!(flags & 15, 1 | 3) { 8 } else { 4 })
        }
        // Security, of both kinds.
        [130 | 133, _, _, ..] => true,
        // Quick start.
        [25, ..] => option.len() >= 8,
        // Stream identifier, router alert.
        [136 | 148, ..] => option.len() == 4,
        [7 | 68 | 130 | 131 | 133 | 137, ..] => false,
        _ => true,
    }
}
