//! Linux "cooked" link headers: headers in front of packets without a usable link header of their own. Source: the
//! link-type registry (LINUX_SLL, LINUX_SLL2).

use fyke_frame::Direction;

/// Bytes of a version 1 header.
pub(crate) const SLL_LEN: usize = 16;
/// Bytes of a version 2 header.
pub(crate) const SLL2_LEN: usize = 20;

/// Packet type of a frame that this host sent (packet(7)).
pub(crate) const OUTGOING: u8 = 4;

/// Origin of a packet as the kernel reports it (`sockaddr_ll`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    /// Protocol, in network byte order.
    pub(crate) protocol: [u8; 2],
    pub(crate) ifindex: u32,
    pub(crate) hardware: u16,
    pub(crate) packet_type: u8,
    pub(crate) address_len: u8,
    pub(crate) address: [u8; 8],
}

impl Sender {
    /// Bytes of a `sockaddr_ll`.
    pub(crate) const LEN: usize = 20;

    /// Reads a `sockaddr_ll`.
    pub(crate) fn read(bytes: &[u8; Self::LEN]) -> Self {
        let [_, _, p0, p1, i0, i1, i2, i3, h0, h1, packet_type, address_len, rest @ ..] = *bytes;
        Sender {
            protocol: [p0, p1],
            ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
            hardware: u16::from_ne_bytes([h0, h1]),
            packet_type,
            address_len,
            address: rest,
        }
    }

    /// Version 1 of the cooked header.
    pub(crate) fn sll(&self) -> [u8; SLL_LEN] {
        let mut header = [0; SLL_LEN];
        header[0..2].copy_from_slice(&u16::from(self.packet_type).to_be_bytes());
        header[2..4].copy_from_slice(&self.hardware.to_be_bytes());
        header[4..6].copy_from_slice(&u16::from(self.address_len).to_be_bytes());
        header[6..14].copy_from_slice(&self.address);
        header[14..16].copy_from_slice(&self.protocol);
        header
    }

    /// Version 2 of the cooked header.
    pub(crate) fn sll2(&self) -> [u8; SLL2_LEN] {
        let mut header = [0; SLL2_LEN];
        header[0..2].copy_from_slice(&self.protocol);
        header[4..8].copy_from_slice(&self.ifindex.to_be_bytes());
        header[8..10].copy_from_slice(&self.hardware.to_be_bytes());
        header[10] = self.packet_type;
        header[11] = self.address_len;
        header[12..20].copy_from_slice(&self.address);
        header
    }
}

/// Direction from the kernel's packet type (packet(7)), which cooked headers contain.
pub(crate) fn direction(packet_type: u8) -> Direction {
    match packet_type {
        0 => Direction::Inbound,
        1 => Direction::Broadcast,
        2 => Direction::Multicast,
        3 => Direction::OtherHost,
        OUTGOING => Direction::Outbound,
        _ => Direction::Unknown,
    }
}
