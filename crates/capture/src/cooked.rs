//! Linux "cooked" link headers: what stands in front of a packet whose real link header is missing or useless.

use fyke_frame::Direction;

/// Direction from the packet type of the kernel (packet(7)), which cooked headers carry.
pub(crate) fn direction(packet_type: u8) -> Direction {
    match packet_type {
        0 => Direction::Inbound,
        1 => Direction::Broadcast,
        2 => Direction::Multicast,
        3 => Direction::OtherHost,
        4 => Direction::Outbound,
        _ => Direction::Unknown,
    }
}
