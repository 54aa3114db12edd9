//! Views of TCP, UDP, SCTP and ICMP.

use super::{be16, be32, parts};
use crate::walk::{Layer, Protocol};

/// Bits of [`TcpView::flags`].
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Start of a connection.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// A TCP header, of which at least the ports are captured.
#[derive(Debug, Clone, Copy)]
pub struct TcpView<'a> {
    ports: [u16; 2],
    header: &'a [u8],
    payload: &'a [u8],
    wire_payload_len: usize,
}

impl<'a> TcpView<'a> {
    /// The view of a TCP layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Tcp)?;
        let ports = [be16(header, 0)?, be16(header, 2)?];
        Some(TcpView { ports, header, payload, wire_payload_len: layer.wire_payload_len() })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        self.ports[0]
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        self.ports[1]
    }

    /// Sequence number of the first byte.
    pub fn sequence(&self) -> Option<u32> {
        be32(self.header, 4)
    }

    /// Acknowledgement number, regardless of its flag.
    pub fn acknowledgement(&self) -> Option<u32> {
        be32(self.header, 8)
    }

    /// Header length according to the header, in bytes.
    pub fn header_len(&self) -> Option<usize> {
        Some(4 * usize::from(self.header.get(12)? >> 4))
    }

    /// The captured header, as bytes.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// The flags, see [`tcp_flags`].
    pub fn flags(&self) -> Option<u8> {
        self.header.get(13).copied()
    }

    /// True if all flags of `mask` are set.
    pub fn has(&self, mask: u8) -> bool {
        self.flags().is_some_and(|flags| flags & mask == mask)
    }

    /// The four bits between header length and flags; the lowest belongs to accurate ECN.
    pub fn reserved(&self) -> Option<u8> {
        Some(self.header.get(12)? & 0xf)
    }

    /// Window, not scaled.
    pub fn window(&self) -> Option<u16> {
        be16(self.header, 14)
    }

    /// Checksum.
    pub fn checksum(&self) -> Option<u16> {
        be16(self.header, 16)
    }

    /// Urgent pointer, regardless of its flag.
    pub fn urgent(&self) -> Option<u16> {
        be16(self.header, 18)
    }

    /// Captured options as bytes.
    pub fn option_bytes(&self) -> &'a [u8] {
        self.header.get(20..).unwrap_or(&[])
    }

    /// Captured options.
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.option_bytes() }
    }

    /// Captured payload, padding not included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Payload's length on the wire, according to the IP length.
    pub fn wire_payload_len(&self) -> usize {
        self.wire_payload_len
    }
}

/// One TCP option; `data` excludes kind and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind: 2 maximum segment size, 3 window scale, 4 and 5 selective acknowledgement, 8 time stamps, …
    pub kind: u8,
    /// The option's bytes.
    pub data: &'a [u8],
}

/// Iterator over TCP options: skips padding; ends at the end-of-list option, a bad length or a cut.
#[derive(Debug, Clone)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        loop {
            let (&kind, rest) = self.rest.split_first()?;
            self.rest = rest;
            match kind {
                0 => self.rest = &[],
                1 => {}
                _ => {
                    let data_len = usize::from(*rest.first()?).checked_sub(2)?;
                    let data = rest.get(1..1 + data_len)?;
                    self.rest = &rest[1 + data_len..];
                    return Some(TcpOption { kind, data });
                }
            }
        }
    }
}

/// A UDP header, of which at least the ports are captured.
#[derive(Debug, Clone, Copy)]
pub struct UdpView<'a> {
    ports: [u16; 2],
    header: &'a [u8],
    payload: &'a [u8],
    wire_payload_len: usize,
}

impl<'a> UdpView<'a> {
    /// The view of a UDP layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Udp)?;
        let ports = [be16(header, 0)?, be16(header, 2)?];
        Some(UdpView { ports, header, payload, wire_payload_len: layer.wire_payload_len() })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        self.ports[0]
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        self.ports[1]
    }

    /// The captured header, as bytes.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// Length of header and payload according to the header, in bytes.
    pub fn length(&self) -> Option<u16> {
        be16(self.header, 4)
    }

    /// Checksum, 0 = none.
    pub fn checksum(&self) -> Option<u16> {
        be16(self.header, 6)
    }

    /// Captured payload, padding not included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Payload's length on the wire, according to the UDP and IP lengths.
    pub fn wire_payload_len(&self) -> usize {
        self.wire_payload_len
    }
}

/// An SCTP common header, of which at least the ports are captured.
#[derive(Debug, Clone, Copy)]
pub struct SctpView<'a> {
    ports: [u16; 2],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> SctpView<'a> {
    /// The view of an SCTP layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Sctp)?;
        let ports = [be16(header, 0)?, be16(header, 2)?];
        Some(SctpView { ports, header, payload })
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        self.ports[0]
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        self.ports[1]
    }

    /// Verification tag.
    pub fn verification_tag(&self) -> Option<u32> {
        be32(self.header, 4)
    }

    /// Captured chunks.
    pub fn chunks(&self) -> &'a [u8] {
        self.payload
    }
}

/// The start of an ICMP or ICMPv6 message.
#[derive(Debug, Clone, Copy)]
pub struct IcmpView<'a> {
    v6: bool,
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// The view of an ICMP or ICMPv6 layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let v6 = layer.protocol == Protocol::Icmpv6;
        let protocol = if v6 { Protocol::Icmpv6 } else { Protocol::Icmp };
        let (header, payload) = parts(data, layer, protocol)?;
        (header.len() >= 4).then_some(IcmpView { v6, header, payload })
    }

    /// True for ICMPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Type.
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Code.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The four bytes with a meaning that depends on the type, if the message has them: identifier
    /// and sequence number of an echo, the MTU, …
    pub fn rest(&self) -> Option<u32> {
        be32(self.header, 4)
    }

    /// Bytes after the first eight: for an error, the quoted packet; for an echo, its data.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// True if the message quotes the packet that caused it; read the quote with
    /// [`walk_from`](crate::walk::walk_from).
    pub fn is_error(&self) -> bool {
        match self.v6 {
            true => self.kind() < 128,
            false => matches!(self.kind(), 3 | 4 | 5 | 11 | 12),
        }
    }
}
