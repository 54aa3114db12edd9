//! Link types: what the first captured byte is.
//!
//! A link type is one file in this folder that fills in a [`Link`], and one line in [`LINKS`]. The header walk, the
//! filter language and the printer learn everything they need from there. Source: the registry of link types that
//! pcap files use.

mod ethernet;
mod linux_sll;
mod llc;
mod null;
mod raw;

use crate::condition::Condition;
use std::fmt;

/// Number of a link type as pcap and pcapng files store it (`LINKTYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: address family in the byte order of the capturing machine.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const EN10MB: LinkType = LinkType(1);
    /// IPv4 or IPv6, told apart by the version nibble.
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

    /// The description of this link type, when fyke knows it.
    pub fn description(self) -> Option<&'static Link> {
        LINKS.iter().copied().find(|link| link.numbers.contains(&self))
    }

    /// Finds a link type by libpcap's name without `DLT_`, in any case.
    pub fn from_name(name: &str) -> Option<LinkType> {
        LINKS.iter().find(|link| link.name.eq_ignore_ascii_case(name)).map(|link| link.numbers[0])
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

/// What a link header announces as the next layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLayer {
    /// Offset of the next header from the first captured byte.
    pub offset: usize,
    /// EtherType of the next header (for Ethernet with an 802.3 length: 0).
    pub ethertype: u16,
}

/// All that fyke knows of one link type.
#[derive(Debug)]
pub struct Link {
    /// The numbers under which files know it; the first is the one that is written.
    pub numbers: &'static [LinkType],
    /// libpcap's name without `DLT_`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Length of the link header in bytes, which is where the network layer starts in an untagged frame.
    pub header_len: u32,
    /// Frame offset of a two-byte protocol field (where a VLAN tag would follow it, the tag's own protocol field
    /// comes four bytes later); `None` when there is no such field.
    pub ethertype_offset: Option<u32>,
    /// Reads the header; `None` when it is cut short or announces nothing known.
    pub next: fn(&[u8]) -> Option<NextLayer>,
    /// The condition "the frame carries network protocol `ethertype`" (up to 1,500: the protocol with this LLC
    /// service access point), with the link header's fields moved by `shift`
    /// bytes (tags that a filter text has stepped over).
    pub carries: fn(ethertype: u16, shift: u32) -> Condition,
}

/// Every link type that fyke decodes.
pub static LINKS: &[&Link] = &[
    &ethernet::LINK,
    &raw::RAW,
    &raw::IPV4,
    &raw::IPV6,
    &linux_sll::SLL,
    &linux_sll::SLL2,
    &null::NULL,
    &null::LOOP,
];

fn be16(data: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(offset..offset + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_round_trip() {
        for link in LINKS {
            assert_eq!(LinkType::from_name(link.name), Some(link.numbers[0]));
            for number in link.numbers {
                assert_eq!(number.description().map(|found| found.name), Some(link.name));
            }
        }
        assert_eq!(LinkType::from_name("en10mb"), Some(LinkType::EN10MB));
        assert_eq!(LinkType::from_name("nonsense"), None);
    }
}
