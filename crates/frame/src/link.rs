//! Link types: the format of the first header of a frame.
//!
//! A link type is a [`Link`] in one of the files of this folder, and one line in [`LINKS`]. The
//! header walk and the printer take their facts from there; the filter language has its own table
//! of offsets. Link types with headers that fyke does not decode are known by name and number
//! (`opaque.rs`). Source: the registry of link types for pcap files.

mod ethernet;
mod ieee802;
mod linux_sll;
mod null;
mod opaque;
mod other;
mod ppp;
mod raw;
mod wlan;

use std::fmt;

/// Linux's protocol number for "802.2 LLC follows", which every link type returns for LLC.
pub const LLC: u16 = 4;

/// Number of a link type as pcap and pcapng files store it (`LINKTYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: address family in the byte order of the capturing machine.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const EN10MB: LinkType = LinkType(1);
    /// IPv4 or IPv6, distinguished by the version nibble.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// The description of this link type, if fyke knows it.
    pub fn description(self) -> Option<&'static Link> {
        all().find(|link| link.numbers.contains(&self))
    }

    /// Finds a link type by libpcap's name without `DLT_`, ignoring case.
    pub fn from_name(name: &str) -> Option<LinkType> {
        all().find(|link| link.name.eq_ignore_ascii_case(name)).map(|link| link.numbers[0])
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.description() {
            Some(link) => f.write_str(link.name),
            None => write!(f, "link type {}", self.0),
        }
    }
}

/// The next layer after a link header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLayer {
    /// Offset of the next header from the first captured byte.
    pub offset: usize,
    /// EtherType of the next header (for Ethernet with an 802.3 length: 0; [`LLC`] if LLC follows).
    pub ethertype: u16,
}

/// Description of one link type.
#[derive(Debug)]
pub struct Link {
    /// The numbers used in files; the first is the one that is written.
    pub numbers: &'static [LinkType],
    /// libpcap's name without `DLT_`.
    pub name: &'static str,
    /// Name for users.
    pub title: &'static str,
    /// Length of the link header in bytes, at which the network layer starts in an untagged frame;
    /// `None` if it differs between frames.
    pub header_len: Option<u32>,
    /// Frame offset of a two-byte protocol field (if a VLAN tag follows it, the tag's own protocol
    /// field is four bytes later); `None` if there is no such field.
    pub ethertype_offset: Option<u32>,
    /// Reads the header; `None` if it is cut short or names no known protocol.
    pub next: fn(&[u8]) -> Option<NextLayer>,
}

/// Every link type that fyke decodes, the most common first.
pub static LINKS: &[&Link] = &[
    &ethernet::LINK,
    &raw::RAW,
    &raw::IPV4,
    &raw::IPV6,
    &linux_sll::SLL,
    &linux_sll::SLL2,
    &null::NULL,
    &null::LOOP,
    &wlan::BARE,
    &wlan::RADIOTAP,
    &wlan::AVS,
    &wlan::PRISM,
    &wlan::PPI,
    &ppp::PPP,
    &ppp::PPP_SERIAL,
    &ppp::PPP_ETHER,
    &ppp::PPP_BSDOS,
    &ppp::PPP_PPPD,
    &ppp::C_HDLC,
    &ppp::FRELAY,
    &ieee802::TOKEN_RING,
    &ieee802::FDDI,
    &ieee802::ATM_RFC1483,
    &ieee802::ATM_CLIP,
    &ieee802::IP_OVER_FC,
    &other::SLIP,
    &other::SLIP_BSDOS,
    &other::ENC,
    &other::SYMANTEC_FIREWALL,
    &other::IEEE1394,
    &other::PFLOG,
    &other::IPNET,
    &other::ARCNET,
    &other::ARCNET_LINUX,
    &other::SUNATM,
    &other::NETANALYZER,
    &other::NETANALYZER_TRANSPARENT,
];

/// Every link type with a name: first those of [`LINKS`], then those that are not decoded.
pub fn all() -> impl Iterator<Item = &'static Link> {
    LINKS.iter().chain(opaque::LINKS).copied()
}

fn be16(data: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(offset..offset + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_round_trip() {
        for link in all() {
            assert_eq!(LinkType::from_name(link.name), Some(link.numbers[0]));
            for number in link.numbers {
                assert_eq!(number.description().map(|found| found.name), Some(link.name));
            }
        }
        assert_eq!(LinkType::from_name("en10mb"), Some(LinkType::EN10MB));
        assert_eq!(LinkType::from_name("nonsense"), None);
    }
}
