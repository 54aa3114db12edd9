//! Link types: the format of the first header of a frame.
//!
//! A link type is a row in `table.rs` and, if fyke decodes it, a header in one of the files of this
//! folder. The header walk and the printer take their facts from there; the filter language has its
//! own table of offsets, by the names of this one. Source: the registry of link types for pcap
//! files.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_frame as frame; }
//! use fyke::frame::{LinkType, link};
//!
//! let ethernet = LinkType::from_name("EN10MB").expect("a known name");
//! assert_eq!(ethernet, LinkType::EN10MB);
//! assert_eq!(ethernet.description().and_then(|known| known.header_len), Some(14));
//! assert!(link::all().count() > 10);
//! ```

mod ethernet;
mod ieee802;
mod linux_sll;
mod null;
mod other;
mod ppp;
mod raw;
mod table;
mod wlan;

use std::fmt;

/// Linux's protocol number for "802.2 LLC follows", which every link type returns for LLC.
pub const LLC: u16 = 4;

/// Number of a link type as pcap and pcapng files store it (`LINKTYPE_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// First link type for private use (DLT_USER0); it has no name.
    pub const USER0: LinkType = LinkType(147);

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

/// A link header, as far as it is the same for several link types.
struct Header {
    /// See [`Link::header_len`].
    len: Option<u32>,
    /// See [`Link::ethertype_offset`].
    ethertype_offset: Option<u32>,
    /// See [`Link::next`].
    next: fn(&[u8]) -> Option<NextLayer>,
}

impl Header {
    /// A header without fixed length and EtherType.
    const fn of(next: fn(&[u8]) -> Option<NextLayer>) -> Header {
        Header { len: None, ethertype_offset: None, next }
    }
}

/// Every link type that fyke decodes, the most common first.
pub fn decoded() -> impl Iterator<Item = &'static Link> {
    table::DECODED.iter()
}

/// Every link type with a name: first those that fyke decodes, then the others.
pub fn all() -> impl Iterator<Item = &'static Link> {
    table::DECODED.iter().chain(table::UNDECODED)
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
