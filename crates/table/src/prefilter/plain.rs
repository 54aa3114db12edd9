//! Fast path for most frames: Ethernet, at most one tag, and IP with a transport that carries no other packet.
//!
//! [`plain`] reads exactly what the header walk reads ([`Ends::of`](super::ends::Ends::of)). Frames for which it cannot
//! be sure (stacked tags, tunnels, extension headers, wrong lengths, truncated headers) are left to the walk. Cost:
//! some 30 instructions, with few branches that a mix of protocols could mispredict.

use super::ends::{Packet, PortsSeen};
use super::space::IpKind;
use fyke_frame::ethertype;

/// A frame with a single packet.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Both addresses in frame byte order.
    pub addresses: Addresses<'a>,
    /// The IP protocol.
    pub protocol: u8,
    /// The VLAN of its only tag.
    pub vlan: Option<u16>,
    pub ports: PortsSeen,
}

/// Source, then destination.
#[derive(Debug, Clone, Copy)]
pub enum Addresses<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

/// Result of the fast path.
#[derive(Debug, Clone, Copy)]
pub enum Plain<'a> {
    Packet(Head<'a>),
    /// The frame certainly contains nothing that rules can name.
    Nothing,
    /// The header walk must decide.
    Unclear,
}

/// Reads the bytes of an Ethernet frame.
#[inline(always)]
pub fn plain(data: &[u8]) -> Plain<'_> {
    let mut at = 14;
    let Some(mut number) = half(data, 12) else { return Plain::Unclear };
    let mut vlan = None;
    if number == ethertype::VLAN {
        let (Some(control), Some(inner)) = (half(data, 14), half(data, 16)) else {
            return Plain::Unclear;
        };
        (vlan, number, at) = (Some(control & 0xfff), inner, 18);
    }
    let read = match number {
        ethertype::IPV4 => v4(data, at),
        ethertype::IPV6 => v6(data, at),
        ethertype::ARP if vlan.is_none() => return arp(data),
        _ => None,
    };
    let Some((addresses, protocol, ports)) = read else { return Plain::Unclear };
    Plain::Packet(Head { addresses, protocol, vlan, ports })
}

type Read<'a> = Option<(Addresses<'a>, u8, PortsSeen)>;

#[inline(always)]
fn v4(data: &[u8], at: usize) -> Read<'_> {
    let header: &[u8; 20] = data.get(at..)?.first_chunk()?;
    let header_len = 4 * usize::from(header[0] & 0xf);
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A length of 0 means all of the frame.
    let end = if total_len == 0 { data.len() } else { data.len().min(at + total_len) };
    if header[0] & 0xf0 != 0x40 || header_len < 20 || at + header_len > end {
        return None;
    }
    let protocol = header[9];
    let addresses = Addresses::V4(header.last_chunk()?);
    let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let ports = match later {
        true => PortsSeen::Hidden,
        false => transport(data, at + header_len, end, protocol)?,
    };
    Some((addresses, protocol, ports))
}

#[inline(always)]
fn v6(data: &[u8], at: usize) -> Read<'_> {
    let header: &[u8; 40] = data.get(at..)?.first_chunk()?;
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = if payload_len == 0 { data.len() } else { data.len().min(at + 40 + payload_len) };
    if header[0] & 0xf0 != 0x60 {
        return None;
    }
    let ports = transport(data, at + 40, end, header[6])?;
    Some((Addresses::V6(header.last_chunk()?), header[6], ports))
}

/// Returns the ports of a transport that never carries a packet, if eight of its bytes are present.
#[inline(always)]
fn transport(data: &[u8], at: usize, end: usize, protocol: u8) -> Option<PortsSeen> {
    let header: &[u8; 8] = data.get(at..end)?.first_chunk()?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (source, destination) = (half(0), half(2));
    let (tcp, udp) = (protocol == 6, protocol == 17);
    if tcp | udp {
        // A UDP length of 0 means all of the packet.
        let lies = half(4).wrapping_sub(1) < 7;
        let unclear = lies | is_tunnel(destination.into());
        return (!(udp & unclear)).then_some(PortsSeen::Known { source, destination });
    }
    // ICMP, ICMPv6, ESP.
    matches!(protocol, 1 | 58 | 50).then_some(PortsSeen::None)
}

/// ARP with all addresses present.
#[inline(always)]
fn arp(data: &[u8]) -> Plain<'_> {
    match data.get(18..20) {
        Some(&[hardware, protocol])
            if data.len() >= 22 + 2 * (usize::from(hardware) + usize::from(protocol)) =>
        {
            Plain::Nothing
        }
        _ => Plain::Unclear,
    }
}

/// True if the walk looks for a tunnel after this UDP destination port; without branches, for loops over many frames.
#[inline(always)]
pub fn is_tunnel(port: u32) -> bool {
    (port == 2152) | (port == 4789) | (port == 4790) | (port == 6081) | (port == 8472)
}

#[inline(always)]
fn half(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2)?.first_chunk().map(|&bytes| u16::from_be_bytes(bytes))
}

impl Head<'_> {
    /// Returns the packet in the form of [`Ends`](super::ends::Ends).
    pub fn packet(&self) -> Packet {
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
        let (kind, source, destination) = match self.addresses {
            Addresses::V4(both) => {
                (IpKind::V4, [0, 0, 0, word(&both[..4])], [0, 0, 0, word(&both[4..])])
            }
            Addresses::V6(both) => {
                let words = |from: usize| std::array::from_fn(|n| word(&both[from + 4 * n..][..4]));
                (IpKind::V6, words(0), words(16))
            }
        };
        Packet { kind, source, destination, protocol: Some(self.protocol), ports: self.ports }
    }
}
