//! Byte expressions on one packet. `None`: the packet has no such header, so the comparison does
//! not hold.

use super::packet::Packet;
use crate::ast::{Arithmetic, Header};
use fyke_frame::walk::Protocol;
use fyke_frame::{OutOfBounds, ethertype};

/// The value of a byte expression. Recursion is bounded by the parser's limit of operators on one path.
pub(super) fn value(
    packet: &Packet<'_, '_>,
    expression: &Arithmetic,
) -> Result<Option<u32>, OutOfBounds> {
    Ok(match expression {
        Arithmetic::Number(number) => Some(*number),
        Arithmetic::Length => Some(packet.frame.wire_len),
        Arithmetic::Load { header, index, width } => match value(packet, index)? {
            Some(index) => load(packet, *header, index, *width as usize)?,
            None => None,
        },
        Arithmetic::Negate(inner) => value(packet, inner)?.map(u32::wrapping_neg),
        Arithmetic::Binary(operator, left, right) => {
            match (value(packet, left)?, value(packet, right)?) {
                (Some(left), Some(right)) => Some(operator.apply(left, right)?),
                _ => None,
            }
        }
    })
}

/// Loads bytes at an offset from the start of a header, in network order.
pub(super) fn load(
    packet: &Packet<'_, '_>,
    header: Header,
    index: u32,
    width: usize,
) -> Result<Option<u32>, OutOfBounds> {
    let Some((start, end)) = place(packet, header)? else { return Ok(None) };
    let data = &packet.frame.data[..end.min(packet.frame.data.len())];
    let from = start.checked_add(index as usize).ok_or(OutOfBounds)?;
    let bytes = data.get(from..).and_then(|rest| rest.get(..width)).ok_or(OutOfBounds)?;
    Ok(Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))))
}

/// Start of a header, and end of the bytes that belong to it.
fn place(packet: &Packet<'_, '_>, header: Header) -> Result<Option<(usize, usize)>, OutOfBounds> {
    let of = |protocol| packet.headers().iter().find(|layer| layer.protocol == protocol);
    let whole = |layer: &fyke_frame::Layer| (layer.offset as usize, layer.end as usize);
    Ok(match header {
        Header::Link => {
            let end = packet.headers().first().map_or(packet.frame.data.len(), |h| h.end as usize);
            Some((packet.start(), end))
        }
        Header::Radio => None,
        Header::Network(ethertype::IPV4) => of(Protocol::Ipv4).map(whole),
        Header::Network(ethertype::IPV6) => of(Protocol::Ipv6).map(whole),
        Header::Network(number @ (ethertype::ARP | ethertype::REVARP)) => {
            of(Protocol::Arp).filter(|_| packet.carries(number)).map(whole)
        }
        Header::Network(number) => {
            packet.unknown_network(number).map(|start| (start, packet.frame.data.len()))
        }
        Header::Transport(protocol) => return transport(packet, protocol),
        Header::Icmp6 => return transport(packet, 58),
    })
}

/// The transport header: after the IP header and all its extensions.
fn transport(packet: &Packet<'_, '_>, protocol: u8) -> Result<Option<(usize, usize)>, OutOfBounds> {
    let Some((chain, start)) = packet.ip_chain() else { return Ok(None) };
    let last = chain.last().and_then(|layer| packet.announces(layer));
    if last != Some(protocol) {
        return Ok(None);
    }
    if packet.is_later_fragment() {
        return Err(OutOfBounds);
    }
    Ok(chain.first().map(|ip| (start, ip.end as usize)))
}
