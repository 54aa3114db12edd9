//! The limits that are left of a tag: packets, bytes and time to record.

use super::packet::Packet;
use crate::rule::Tag;

/// The limits that are left of a tag.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    packets: u32,
    bytes: u64,
    until_ns: u64,
}

impl Left {
    /// The limits of a tag that ends at this time.
    pub fn of(tag: &Tag, until_ns: u64) -> Left {
        Left { packets: tag.packets, bytes: tag.bytes, until_ns }
    }

    /// Takes a packet; false if nothing is left.
    pub fn take(&mut self, packet: &Packet<'_>) -> bool {
        let is_left = self.packets > 0 && self.bytes > 0 && packet.time_ns <= self.until_ns;
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(packet.wire_len.into());
        is_left
    }
}
