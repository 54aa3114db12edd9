//! Tunnels: GRE (with PPTP's form and ERSPAN), EtherIP, and those in UDP: VXLAN, VXLAN-GPE, Geneve, GTP-U.
//!
//! A tunnel in UDP is recognised by its destination port and must have a valid first byte; any
//! other payload on such a port is plain UDP payload. Sources: RFC 2784, 2890, 2637, 3378, 7348,
//! 8926, draft-ietf-nvo3-vxlan-gpe, 3GPP TS 29.281.

use super::cursor::{Cursor, Next};
use super::{Numbered, Protocol, Stop};
use crate::ethertype;

/// The assigned port, and the port that Linux used before the assignment.
const VXLAN: [u16; 2] = [4789, 8472];
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
const GTPU: u16 = 2152;
const GTPU_DATA: u8 = 255;
const ERSPAN_II: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

pub(super) fn in_udp(cursor: &mut Cursor, port: u16) -> Result<Next, Stop> {
    match port {
        _ if VXLAN.contains(&port) => vxlan(cursor, false),
        VXLAN_GPE => vxlan(cursor, true),
        GENEVE => geneve(cursor),
        GTPU => gtpu(cursor),
        _ => Err(Stop::Done),
    }
}

pub(super) fn gre(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<4>()?;
    let flags = u16::from_be_bytes([header[0], header[1]]);
    let number = u16::from_be_bytes([header[2], header[3]]);
    let (checksum, routing) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
    let (key, sequence) = (flags & 0x2000 != 0, flags & 0x1000 != 0);
    let acknowledgement = flags & 0x0080 != 0;
    let version = flags & 7;
    let optional = match version {
        0 => [checksum || routing, key, sequence, false],
        1 => [false, key, sequence, acknowledgement],
        _ => return Err(Stop::UnknownProtocol(Numbered::Ip(47))),
    };
    let header_len = 4 + 4 * optional.iter().filter(|there| **there).count();
    if version == 1 && key {
        // PPTP: the upper half of the key is the payload's length.
        if let Ok(length) = cursor.be16(4) {
            cursor.narrow(header_len + usize::from(length));
        }
    }
    cursor.note(Protocol::Gre, header_len)?;
    if routing && version == 0 {
        // Source routes were removed from GRE in 2000 (RFC 2784); receivers discard such packets.
        return Err(Stop::UnknownProtocol(Numbered::EtherType(number)));
    }
    if version == 1 && !sequence {
        return Err(Stop::Done);
    }
    match (version, number) {
        (0, ERSPAN_II) if sequence => erspan_ii(cursor),
        (0, ERSPAN_II) => cursor.enter().map(|()| Next::Ethernet),
        (0, ERSPAN_III) => erspan_iii(cursor),
        _ => cursor.enter().map(|()| Next::EtherType(number)),
    }
}

fn erspan_ii(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    if header[0] >> 4 != 1 {
        return Err(Stop::UnknownProtocol(Numbered::EtherType(ERSPAN_II)));
    }
    cursor.note(Protocol::Erspan, 8)?;
    cursor.enter()?;
    Ok(Next::Ethernet)
}

fn erspan_iii(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<12>()?;
    if header[0] >> 4 != 2 {
        return Err(Stop::UnknownProtocol(Numbered::EtherType(ERSPAN_III)));
    }
    let platform_header = header[11] & 1 == 1;
    let frame_type = header[10] >> 2 & 0x1f;
    cursor.note(Protocol::Erspan, if platform_header { 20 } else { 12 })?;
    cursor.enter()?;
    match frame_type {
        0 => Ok(Next::Ethernet),
        2 => Ok(Next::IpByVersion),
        _ => Err(Stop::UnknownProtocol(Numbered::EtherType(ERSPAN_III))),
    }
}

pub(super) fn ether_ip(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<2>()?;
    if header[0] >> 4 != 3 {
        return Err(Stop::UnknownProtocol(Numbered::Ip(97)));
    }
    cursor.note(Protocol::EtherIp, 2)?;
    cursor.enter()?;
    Ok(Next::Ethernet)
}

fn vxlan(cursor: &mut Cursor, generic: bool) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    if header[0] & 0x08 == 0 {
        return Err(Stop::Done);
    }
    cursor.note(Protocol::Vxlan, 8)?;
    cursor.enter()?;
    if !generic || header[0] & 0x04 == 0 {
        return Ok(Next::Ethernet);
    }
    match header[3] {
        1 => Ok(Next::EtherType(ethertype::IPV4)),
        2 => Ok(Next::EtherType(ethertype::IPV6)),
        3 => Ok(Next::Ethernet),
        5 => Ok(Next::EtherType(ethertype::MPLS)),
        _ => Err(Stop::Done),
    }
}

fn geneve(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    if header[0] >> 6 != 0 {
        return Err(Stop::Done);
    }
    cursor.note(Protocol::Geneve, 8 + 4 * usize::from(header[0] & 0x3f))?;
    cursor.enter()?;
    Ok(Next::EtherType(u16::from_be_bytes([header[2], header[3]])))
}

fn gtpu(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    if header[0] >> 5 != 1 || header[0] & 0x10 == 0 {
        return Err(Stop::Done);
    }
    // The length counts from the ninth byte on.
    cursor.narrow(8 + usize::from(u16::from_be_bytes([header[2], header[3]])));
    let header_len = gtpu_header_len(cursor.rest());
    cursor.note(Protocol::Gtpu, header_len)?;
    if header[1] != GTPU_DATA {
        return Err(Stop::Done);
    }
    cursor.enter()?;
    Ok(Next::IpByVersion)
}

/// The length of a GTP-U header. Any of three flags adds four bytes; one of them announces a chain
/// of extension headers: each begins with its length in words and ends with the type of the next. A
/// header that is cut counts as one byte too long.
fn gtpu_header_len(data: &[u8]) -> usize {
    let flags = data.first().copied().unwrap_or(0);
    if flags & 7 == 0 {
        return 8;
    }
    let mut header_len = 12;
    if flags & 4 == 0 {
        return header_len;
    }
    while data.get(header_len - 1).is_some_and(|next| *next != 0) {
        match data.get(header_len) {
            Some(&words) if words > 0 => header_len += 4 * usize::from(words),
            _ => return data.len() + 1,
        }
    }
    header_len
}
