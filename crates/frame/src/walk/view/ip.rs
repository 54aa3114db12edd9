//! Views of IPv4 and IPv6.

use super::parts;
use crate::walk::{FragmentInfo, Layer, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 header.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4View<'a> {
    fixed: &'a [u8; 20],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// The view of an IPv4 layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Ipv4)?;
        let (fixed, options) = header.split_first_chunk()?;
        Some(Ipv4View { fixed, options, payload })
    }

    /// Header length according to the header, in bytes; at least 20.
    pub fn header_len(&self) -> usize {
        4 * usize::from(self.fixed[0] & 0xf)
    }

    /// Type of service: six bits of DSCP, two of ECN.
    pub fn tos(&self) -> u8 {
        self.fixed[1]
    }

    /// Length of header and payload according to the header, in bytes; 0 before segmentation
    /// off-load.
    pub fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// True if the reserved bit is set.
    pub fn reserved_flag(&self) -> bool {
        self.fixed[6] & 0x80 != 0
    }

    /// True if the packet must not be fragmented.
    pub fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// True if more fragments follow.
    pub fn more_fragments(&self) -> bool {
        self.fixed[6] & 0x20 != 0
    }

    /// Offset of the payload in the whole payload, in bytes.
    pub fn fragment_offset(&self) -> u32 {
        u32::from(u16::from_be_bytes([self.fixed[6], self.fixed[7]]) & 0x1fff) * 8
    }

    /// Fragmentation data, if the packet is a fragment.
    pub fn fragment(&self) -> Option<FragmentInfo> {
        let (offset, more) = (self.fragment_offset(), self.more_fragments());
        (offset != 0 || more).then(|| FragmentInfo {
            id: self.id().into(),
            offset,
            more,
            protocol: self.protocol(),
        })
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Header checksum.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.fixed[10], self.fixed[11]])
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from([self.fixed[12], self.fixed[13], self.fixed[14], self.fixed[15]])
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from([self.fixed[16], self.fixed[17], self.fixed[18], self.fixed[19]])
    }

    /// Captured options.
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Captured payload, padding not included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An IPv6 header, without extension headers.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6View<'a> {
    fixed: &'a [u8; 40],
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// The view of an IPv6 layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Ipv6)?;
        Some(Ipv6View { fixed: header.first_chunk()?, payload })
    }

    /// Traffic class: six bits of DSCP, two of ECN.
    pub fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 0xf, self.fixed[2], self.fixed[3]])
    }

    /// Length after the header according to the header, in bytes; 0 for jumbograms.
    pub fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// Number of the next header.
    pub fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        self.address(8)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        self.address(24)
    }

    /// Captured payload, extension headers included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn address(&self, at: usize) -> Ipv6Addr {
        Ipv6Addr::from(std::array::from_fn(|index| self.fixed[at + index]))
    }
}

/// An IPv4 or IPv6 header.
#[derive(Debug, Clone, Copy)]
pub enum IpView<'a> {
    /// IPv4.
    V4(Ipv4View<'a>),
    /// IPv6.
    V6(Ipv6View<'a>),
}

impl<'a> IpView<'a> {
    /// The view of an IPv4 or IPv6 layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        match layer.protocol {
            Protocol::Ipv4 => Ipv4View::new(data, layer).map(IpView::V4),
            Protocol::Ipv6 => Ipv6View::new(data, layer).map(IpView::V6),
            _ => None,
        }
    }

    /// Source address.
    pub fn source(&self) -> IpAddr {
        match self {
            IpView::V4(ip) => ip.source().into(),
            IpView::V6(ip) => ip.source().into(),
        }
    }

    /// Destination address.
    pub fn destination(&self) -> IpAddr {
        match self {
            IpView::V4(ip) => ip.destination().into(),
            IpView::V6(ip) => ip.destination().into(),
        }
    }

    /// Time to live or hop limit.
    pub fn hop_limit(&self) -> u8 {
        match self {
            IpView::V4(ip) => ip.ttl(),
            IpView::V6(ip) => ip.hop_limit(),
        }
    }
}
