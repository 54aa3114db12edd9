//! Views of Ethernet, tags, labels, PPPoE and ARP.

use super::{be16, be32, parts};
use crate::walk::{Layer, Protocol};
use std::fmt;
use std::net::Ipv4Addr;

/// An Ethernet address, shown as `00:11:22:33:44:55`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An Ethernet header.
#[derive(Debug, Clone, Copy)]
pub struct EthernetView<'a> {
    header: &'a [u8; 14],
}

impl<'a> EthernetView<'a> {
    /// The view of an Ethernet layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Ethernet)?;
        Some(EthernetView { header: header.first_chunk()? })
    }

    /// Destination address.
    pub fn destination(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// Source address.
    pub fn source(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// EtherType, or 802.3 length below 0x600; a tag's number if tags follow.
    pub fn ethertype(&self) -> u16 {
        u16::from_be_bytes([self.header[12], self.header[13]])
    }
}

/// One VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Priority, 0–7.
    pub priority: u8,
    /// Drop eligible (formerly: canonical format indicator).
    pub drop_eligible: bool,
    /// VLAN number, 0–4095.
    pub id: u16,
    /// EtherType after the tag.
    pub ethertype: u16,
}

/// One or more VLAN tags.
#[derive(Debug, Clone, Copy)]
pub struct VlanStack<'a> {
    header: &'a [u8],
}

impl<'a> VlanStack<'a> {
    /// The view of a VLAN layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Vlan)?;
        (header.len() >= 4).then_some(VlanStack { header })
    }

    /// The tags, outermost first; at least one.
    pub fn tags(&self) -> impl DoubleEndedIterator<Item = Tag> + ExactSizeIterator + use<'a> {
        self.header.chunks_exact(4).map(|bytes| {
            let control = u16::from_be_bytes([bytes[0], bytes[1]]);
            Tag {
                priority: (control >> 13) as u8,
                drop_eligible: control & 0x1000 != 0,
                id: control & 0xfff,
                ethertype: u16::from_be_bytes([bytes[2], bytes[3]]),
            }
        })
    }

    /// Number of tags.
    pub fn depth(&self) -> usize {
        self.header.len() / 4
    }
}

/// One MPLS label stack entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Label, 20 bits.
    pub label: u32,
    /// Traffic class (formerly: EXP), 0–7.
    pub traffic_class: u8,
    /// Last entry of the stack.
    pub bottom: bool,
    /// Time to live.
    pub ttl: u8,
}

/// One or more MPLS labels.
#[derive(Debug, Clone, Copy)]
pub struct MplsStack<'a> {
    header: &'a [u8],
}

impl<'a> MplsStack<'a> {
    /// The view of an MPLS layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Mpls)?;
        (header.len() >= 4).then_some(MplsStack { header })
    }

    /// The labels, outermost first; at least one.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = Label> + ExactSizeIterator + use<'a> {
        self.header.chunks_exact(4).map(|bytes| {
            let entry = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            Label {
                label: entry >> 12,
                traffic_class: (entry >> 9 & 7) as u8,
                bottom: entry & 0x100 != 0,
                ttl: entry as u8,
            }
        })
    }

    /// Number of labels.
    pub fn depth(&self) -> usize {
        self.header.len() / 4
    }
}

/// A PPPoE header.
#[derive(Debug, Clone, Copy)]
pub struct PppoeView<'a> {
    header: &'a [u8; 6],
    payload: &'a [u8],
}

impl<'a> PppoeView<'a> {
    /// The view of a PPPoE layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, payload) = parts(data, layer, Protocol::Pppoe)?;
        Some(PppoeView { header: header.first_chunk()?, payload })
    }

    /// Version and type nibbles, 0x11.
    pub fn version_type(&self) -> u8 {
        self.header[0]
    }

    /// Code: 0 in the session stage, PADI 9, PADO 7, PADR 0x19, PADS 0x65, PADT 0xa7.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// Session number.
    pub fn session(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Length of the payload according to the header, in bytes.
    pub fn length(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The payload: tags in the discovery stage, PPP in the session stage.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An ARP or RARP packet.
#[derive(Debug, Clone, Copy)]
pub struct ArpView<'a> {
    header: &'a [u8],
}

impl<'a> ArpView<'a> {
    /// The view of an ARP layer.
    pub fn new(data: &'a [u8], layer: &Layer) -> Option<Self> {
        let (header, _) = parts(data, layer, Protocol::Arp)?;
        (header.len() >= 8).then_some(ArpView { header })
    }

    /// The captured bytes of the packet, padding not included.
    pub fn bytes(&self) -> &'a [u8] {
        self.header
    }

    /// Hardware type, 1 = Ethernet.
    pub fn hardware(&self) -> u16 {
        be16(self.header, 0).unwrap_or(0)
    }

    /// Protocol as EtherType.
    pub fn protocol(&self) -> u16 {
        be16(self.header, 2).unwrap_or(0)
    }

    /// Length of a hardware address, in bytes.
    pub fn hardware_len(&self) -> u8 {
        self.header[4]
    }

    /// Length of a protocol address, in bytes.
    pub fn protocol_len(&self) -> u8 {
        self.header[5]
    }

    /// Operation: 1 request, 2 reply, 3 and 4 RARP.
    pub fn operation(&self) -> u16 {
        be16(self.header, 6).unwrap_or(0)
    }

    /// Sender's hardware address.
    pub fn sender_hardware(&self) -> Option<&'a [u8]> {
        self.address(0, self.hardware_len())
    }

    /// Sender's protocol address.
    pub fn sender_protocol(&self) -> Option<&'a [u8]> {
        self.address(self.hardware_len().into(), self.protocol_len())
    }

    /// Target's hardware address.
    pub fn target_hardware(&self) -> Option<&'a [u8]> {
        let before = usize::from(self.hardware_len()) + usize::from(self.protocol_len());
        self.address(before, self.hardware_len())
    }

    /// Target's protocol address.
    pub fn target_protocol(&self) -> Option<&'a [u8]> {
        let before = 2 * usize::from(self.hardware_len()) + usize::from(self.protocol_len());
        self.address(before, self.protocol_len())
    }

    /// Sender's IPv4 address, if the packet resolves IPv4.
    pub fn sender_ipv4(&self) -> Option<Ipv4Addr> {
        self.ipv4(self.sender_protocol()?)
    }

    /// Target's IPv4 address, if the packet resolves IPv4.
    pub fn target_ipv4(&self) -> Option<Ipv4Addr> {
        self.ipv4(self.target_protocol()?)
    }

    fn ipv4(&self, address: &[u8]) -> Option<Ipv4Addr> {
        let about_ipv4 = self.protocol() == crate::ethertype::IPV4 && address.len() == 4;
        about_ipv4.then(|| be32(address, 0).map(Ipv4Addr::from_bits))?
    }

    fn address(&self, before: usize, len: u8) -> Option<&'a [u8]> {
        self.header.get(8 + before..8 + before + usize::from(len))
    }
}
