//! Link headers and all headers before the network layer: Ethernet, LLC, tags, labels, PPPoE, PPP,
//! ARP.
//!
//! MPLS does not name its payload. The walk relies on the version nibble for IPv4 and IPv6. A zero
//! nibble is taken as a pseudowire's control word if the walk follows the EtherType of the Ethernet
//! frame after it. Ethernet pseudowires without control word cannot be distinguished from IP and
//! are not followed. Sources: IEEE 802.3, 802.1Q, 802.1ad; RFC 826, 1661, 2516, 3032, 4385, 4928.

use super::cursor::{Cursor, Next};
use super::{Numbered, Protocol, Stop, ip};
use crate::link::LLC;
use crate::{LinkType, ethertype};

/// Longest stack of tags, which is one layer; no frame has more.
const MAX_STACK_LEN: usize = u16::MAX as usize;
/// Largest 802.3 length.
const MAX_LENGTH: u16 = 1500;
/// LLC service access points of SNAP.
const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];

/// True for EtherTypes that announce a tag.
pub(super) fn is_tag(number: u16) -> bool {
    matches!(number, ethertype::VLAN | ethertype::QINQ | ethertype::QINQ_OLD)
}

/// Reads the header of any link type but Ethernet, by its description.
pub(super) fn other(cursor: &mut Cursor, link: LinkType) -> Result<Next, Stop> {
    let unknown = Stop::UnknownProtocol(Numbered::LinkType(link.0));
    let description = link.description().ok_or(unknown)?;
    let data = cursor.rest();
    let Some(next) = (description.next)(data) else {
        let header_len = (description.header_len.unwrap_or(0) as usize).max(1);
        return Err(if data.len() < header_len { cursor.cut(header_len) } else { unknown });
    };
    if next.offset > 0 {
        cursor.note(Protocol::Link, next.offset)?;
    }
    match next.ethertype {
        LLC => Ok(Next::Llc),
        number if number < ethertype::MIN_ETHERTYPE => {
            Err(Stop::UnknownProtocol(Numbered::EtherType(number)))
        }
        number => Ok(Next::EtherType(number)),
    }
}

pub(super) fn ethernet(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<14>()?;
    let number = u16::from_be_bytes([header[12], header[13]]);
    cursor.note(Protocol::Ethernet, 14)?;
    Ok(Next::EtherType(number))
}

/// Reads LLC in 802.3: the number is the length of the payload.
pub(super) fn llc_of_length(cursor: &mut Cursor, number: u16) -> Result<Next, Stop> {
    if number > MAX_LENGTH {
        return Err(Stop::UnknownProtocol(Numbered::EtherType(number)));
    }
    cursor.narrow(usize::from(number));
    llc(cursor)
}

pub(super) fn llc(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<3>()?;
    if *header != SNAP {
        // Information and supervisory frames have two control bytes, unnumbered frames have one.
        cursor.note(Protocol::Llc, if header[2] & 3 == 3 { 3 } else { 4 })?;
        let saps = u16::from_be_bytes([header[0], header[1]]);
        return Err(Stop::UnknownProtocol(Numbered::Llc(saps)));
    }
    let organisation = cursor.rest().get(3..6).map(<[u8; 3]>::try_from);
    let number = cursor.be16(6);
    cursor.note(Protocol::Llc, 8)?;
    match organisation {
        // RFC 1042, and the number that bridged AppleTalk uses in the same way.
        Some(Ok([0, 0, 0] | [0, 0, 0xf8])) => number.map(Next::EtherType),
        _ => Err(Stop::UnknownProtocol(Numbered::Llc(0xaaaa))),
    }
}

pub(super) fn vlan(cursor: &mut Cursor) -> Result<Next, Stop> {
    let mut stack_len = 0;
    let next = loop {
        let number = match cursor.be16(stack_len + 2) {
            Err(stop) if stack_len == 0 => return Err(stop),
            Err(stop) => break Err(stop),
            Ok(number) => number,
        };
        stack_len += 4;
        if !is_tag(number) || stack_len + 4 > MAX_STACK_LEN {
            break Ok(Next::EtherType(number));
        }
    };
    cursor.note(Protocol::Vlan, stack_len)?;
    next
}

pub(super) fn mpls(cursor: &mut Cursor) -> Result<Next, Stop> {
    let mut stack_len = 0;
    let bottom = loop {
        let Some(&[.., low, _ttl]) = cursor.rest().get(stack_len..stack_len + 4) else {
            break Err(cursor.cut(stack_len + 4));
        };
        stack_len += 4;
        if low & 1 == 1 {
            break Ok(());
        }
        if stack_len + 4 > MAX_STACK_LEN {
            break Err(Stop::TooDeep);
        }
    };
    if stack_len > 0 {
        cursor.note(Protocol::Mpls, stack_len)?;
    }
    bottom?;
    if cursor.fixed::<1>()?[0] >> 4 != 0 {
        return ip::by_version(cursor);
    }
    let carried = cursor.be16(4 + 12)?;
    let known =
        matches!(carried, ethertype::IPV4 | ethertype::IPV6 | ethertype::ARP | ethertype::MPLS)
            || is_tag(carried);
    if !known {
        return Err(Stop::UnknownProtocol(Numbered::Version(0)));
    }
    cursor.note(Protocol::ControlWord, 4)?;
    cursor.enter()?;
    Ok(Next::Ethernet)
}

pub(super) fn pppoe(cursor: &mut Cursor, session: bool) -> Result<Next, Stop> {
    let header = cursor.fixed::<6>()?;
    cursor.narrow(6 + usize::from(u16::from_be_bytes([header[4], header[5]])));
    cursor.note(Protocol::Pppoe, 6)?;
    if session { Ok(Next::Ppp) } else { Err(Stop::Done) }
}

/// Reads PPP. Its protocol number has two bytes, or one byte with an odd value if compression was
/// negotiated; address and control (ff 03) may come before it.
pub(super) fn ppp(cursor: &mut Cursor) -> Result<Next, Stop> {
    let skipped = if cursor.rest().starts_with(&[0xff, 0x03]) { 2 } else { 0 };
    let first = *cursor.rest().get(skipped).ok_or_else(|| cursor.cut(skipped + 1))?;
    let (number, number_len) = match first & 1 {
        1 => (u16::from(first), 1),
        _ => (cursor.be16(skipped)?, 2),
    };
    cursor.note(Protocol::Ppp, skipped + number_len)?;
    match number {
        0x0021 => Ok(Next::EtherType(ethertype::IPV4)),
        0x0057 => Ok(Next::EtherType(ethertype::IPV6)),
        0x0281 => Ok(Next::EtherType(ethertype::MPLS)),
        0x0283 => Ok(Next::EtherType(ethertype::MPLS_MULTICAST)),
        _ => Err(Stop::UnknownProtocol(Numbered::Ppp(number))),
    }
}

pub(super) fn arp(cursor: &mut Cursor) -> Result<Next, Stop> {
    let header = cursor.fixed::<8>()?;
    cursor.note(Protocol::Arp, 8 + 2 * (usize::from(header[4]) + usize::from(header[5])))?;
    Err(Stop::Done)
}
