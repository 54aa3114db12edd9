//! A frame: captured bytes, from the link header on, and their metadata.
//!
//! A frame borrows its bytes (from a file buffer, a capture ring, a test), so it is `Copy` and
//! costs nothing to pass on. Nothing in it is trusted: `data` may be shorter than its headers
//! claim, `wire_len` may have any value.

use crate::LinkType;

/// Direction of a frame, as seen from the machine that captured it. Source: packet(7),
/// `sll_pkttype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u8)]
pub enum Direction {
    /// The source does not record it (a file without direction).
    #[default]
    Unknown = 0,
    /// Addressed to the capturing host.
    Inbound = 1,
    /// Link-layer broadcast.
    Broadcast = 2,
    /// Link-layer multicast.
    Multicast = 3,
    /// Addressed to another host and seen in promiscuous mode.
    OtherHost = 4,
    /// Sent by the capturing host.
    Outbound = 5,
}

/// Metadata of a frame that is not in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Direction, if the source knows it.
    pub direction: Direction,
    /// Interface index of the operating system; 0 = unknown.
    pub ifindex: u32,
    /// Priority and identifier of a VLAN tag that the device has removed from the bytes.
    pub vlan: Option<u16>,
    /// The device had removed a VLAN tag, and the source has reinserted it: [`Frame::without_tag`]
    /// undoes that.
    pub restored: bool,
    /// Delivered by look-back: captured before the edit that accepts it.
    pub late: bool,
    /// A device still has to compute the checksum of the transport (off-load): the one in the bytes is not final.
    pub unsummed: bool,
}

/// Captured bytes and their metadata.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The captured bytes from the link header on; at most `wire_len` of them if the source is
    /// correct.
    pub data: &'a [u8],
    /// Length of the frame on the wire, in bytes.
    pub wire_len: u32,
    /// Capture time in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp_ns: u64,
    /// Type of the link header with which `data` begins.
    pub link: LinkType,
    /// Index into the source's list of interfaces.
    pub interface: u32,
    /// Metadata that is not in the bytes.
    pub meta: Meta,
}

impl<'a> Frame<'a> {
    /// A whole frame without metadata, for tests and generators.
    #[inline]
    pub fn new(link: LinkType, data: &'a [u8]) -> Self {
        Frame {
            data,
            wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            timestamp_ns: 0,
            link,
            interface: 0,
            meta: Meta::default(),
        }
    }

    /// Appends the bytes as the device delivered them, before the source reinserted a tag, to
    /// `room`; returns priority and identifier of that tag. `None`: there was none.
    pub fn without_tag(&self, room: &mut Vec<u8>) -> Option<u16> {
        // Offset of the tag's content, and the range of bytes that the source inserted: version 2
        // of the cooked header has the protocol first, so the tag's number is in its place.
        let (content, tag) = match self.link {
            LinkType::EN10MB => (14, 12..16),
            LinkType::LINUX_SLL => (16, 14..18),
            LinkType::LINUX_SLL2 => (20, 20..24),
            _ => return None,
        };
        let (before, after) = (self.data.get(..tag.start)?, self.data.get(tag.end..)?);
        let content = self.data.get(content..content + 2).filter(|_| self.meta.restored)?;
        let start = room.len();
        room.extend_from_slice(before);
        room.extend_from_slice(after);
        if self.link == LinkType::LINUX_SLL2 {
            room[start..start + 2].copy_from_slice(&self.data[22..24]);
        }
        Some(u16::from_be_bytes([content[0], content[1]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_tag_comes_out_again() {
        let mut frame: Vec<u8> = (0..32).collect();
        frame[12..16].copy_from_slice(&[0x81, 0, 0x20, 5]);
        let restored = Meta { restored: true, ..Meta::default() };
        let tagged = Frame { meta: restored, ..Frame::new(LinkType::EN10MB, &frame) };
        let mut room = vec![0xaa];
        assert_eq!(tagged.without_tag(&mut room), Some(0x2005));
        assert_eq!(room, [&[0xaa], &frame[..12], &frame[16..]].concat());
        // Version 2 of the cooked header: number of the tag first, then its content and the
        // protocol.
        let mut cooked = vec![0x81, 0];
        cooked.extend([7; 18]);
        cooked.extend([0, 5, 8, 0, 0x45]);
        let tagged = Frame { meta: restored, ..Frame::new(LinkType::LINUX_SLL2, &cooked) };
        room.clear();
        assert_eq!(tagged.without_tag(&mut room), Some(5));
        assert_eq!(room, [&[8, 0][..], &[7; 18], &[0x45]].concat());
        // Frames without a reinserted tag, and frames that are too short for one, stay unchanged.
        assert_eq!(Frame::new(LinkType::EN10MB, &frame).without_tag(&mut room), None);
        let short = Frame { meta: restored, ..Frame::new(LinkType::EN10MB, &frame[..13]) };
        assert_eq!(short.without_tag(&mut room), None);
    }
}
