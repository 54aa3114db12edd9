//! Corrections after a rewrite: lengths of the outermost IP packet and of its transport header, and checksums of
//! all nested IP packets and of their transport headers, the innermost first.
//!
//! Lengths change by as much as the rewrite changed the packet: padding after the packet remains padding, and a
//! packet truncated at capture keeps its length on the wire. Checksums are recomputed over the bytes present. If a
//! checksum cannot be recomputed (a fragment, a truncated packet), it becomes 0, so that it reveals nothing about
//! hidden bytes.
//!
//! Sources: RFC 791, 792, 768, 1071, 4443, 8200, 9293.

use fyke_frame::{Frame, LinkType, Protocol, checksum, walk};

/// Maximum number of nested IP packets that are corrected.
const MAX_IP: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Corrects `packet`, which was rewritten from one of `given_len` bytes.
pub fn fix(packet: &mut [u8], given_len: usize, link: LinkType, lengths: bool, checksums: bool) {
    let grown = packet.len() as i64 - given_len as i64;
    let mut places = [None; MAX_IP];
    ip_packets(packet, link, &mut places);
    if let (true, Some((at, v6))) = (lengths && grown != 0, places[0]) {
        fix_lengths(&mut packet[at..], grown, v6);
    }
    for (at, v6) in places.iter().rev().flatten().filter(|_| checksums) {
        fix_checksums(&mut packet[*at..], *v6);
    }
}

/// Finds where IP packets begin, and if they are IPv6, from the outermost inwards.
fn ip_packets(packet: &[u8], link: LinkType, places: &mut [Option<(usize, bool)>; MAX_IP]) {
    // Fast path for most packets: no walk over headers is needed.
    if link == LinkType::EN10MB
        && packet.len() >= 34
        && packet[12..14] == [8, 0]
        && packet[14] >> 4 == 4
        && matches!(packet[23], TCP | ICMP)
    {
        places[0] = Some((14, false));
        return;
    }
    let frame = Frame::new(link, packet);
    let layers = walk(&frame);
    let ip = layers.iter().filter_map(|layer| {
        let v6 = layer.protocol == Protocol::Ipv6;
        let at = layer.offset as usize;
        let is_ip = v6 || layer.protocol == Protocol::Ipv4;
        (is_ip && packet.len() >= at + if v6 { 40 } else { 20 }).then_some((at, v6))
    });
    places.iter_mut().zip(ip).for_each(|(place, found)| *place = Some(found));
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn put(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn fix_lengths(ip: &mut [u8], grown: i64, v6: bool) {
    let (field, base) = if v6 { (4, 40) } else { (2, 0) };
    let told = (word(ip, field) + base) as i64;
    let there = ip.len() as i64;
    let was_there = there - grown;
    let total = match told.cmp(&was_there) {
        std::cmp::Ordering::Equal => there,
        // The packet was truncated at capture, or it grew into the padding.
        std::cmp::Ordering::Greater => told + grown,
        std::cmp::Ordering::Less if grown > 0 => told + grown,
        std::cmp::Ordering::Less => told.min(there),
    };
    let total = usize::try_from(total).unwrap_or(0).max(if v6 { 40 } else { 20 });
    put(ip, field, total - base);
    let Some((protocol, header, whole)) = transport(ip, v6) else { return };
    if protocol == UDP && whole.is_some() && header + 6 <= ip.len() && total >= header {
        put(ip, header + 4, total - header);
    }
}

/// Protocol, start of its header, and its end if it is complete and not fragmented.
fn transport(ip: &[u8], v6: bool) -> Option<(u8, usize, Option<usize>)> {
    if v6 {
        let end = 40 + word(ip, 4);
        let (protocol, header, fragment) = after_extensions(ip)?;
        let whole = !fragment && (header..=ip.len()).contains(&end);
        return Some((protocol, header, whole.then_some(end)));
    }
    let header = usize::from(ip[0] & 0xf) * 4;
    let end = word(ip, 2);
    let fragment = word(ip, 6) & 0x3fff != 0;
    if header < 20 || header > ip.len() || word(ip, 6) & 0x1fff != 0 {
        return None;
    }
    Some((ip[9], header, (!fragment && end >= header && end <= ip.len()).then_some(end)))
}

/// Protocol after the extension headers of an IPv6 packet, the start of its header, and if this is a first
/// fragment; none for later fragments and for headers without an end.
fn after_extensions(ip: &[u8]) -> Option<(u8, usize, bool)> {
    let (mut next, mut at, mut fragment) = (ip[6], 40, false);
    while let HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION = next {
        let header = ip.get(at..at + 8)?;
        if next == FRAGMENT {
            if word(header, 2) & 0xfff8 != 0 {
                return None;
            }
            fragment |= header[3] & 1 != 0;
        }
        at += if next == FRAGMENT { 8 } else { 8 + usize::from(header[1]) * 8 };
        next = header[0];
    }
    Some((next, at, fragment))
}

fn fix_checksums(ip: &mut [u8], v6: bool) {
    if !v6 {
        let header = usize::from(ip[0] & 0xf) * 4;
        if (20..=ip.len()).contains(&header) {
            put(ip, 10, 0);
            let sum = checksum(&[&ip[..header]]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let Some((protocol, header, end)) = transport(ip, v6) else { return };
    let at = header
        + match protocol {
            TCP => 16,
            UDP => 6,
            ICMP if !v6 => 2,
            ICMPV6 if v6 => 2,
            _ => return,
        };
    if at + 2 > ip.len().min(end.unwrap_or(usize::MAX))
        || (protocol == UDP && !v6 && word(ip, at) == 0)
    {
        return;
    }
    put(ip, at, 0);
    let Some(end) = end else { return };
    let addresses = if v6 { 8..40 } else { 12..20 };
    let len = u32::try_from(end - header).unwrap_or(0).to_be_bytes();
    let pseudo = [0, 0, 0, protocol];
    let body = &ip[header..end];
    let sum = match protocol {
        ICMP => checksum(&[body]),
        _ => checksum(&[&ip[addresses], &len, &pseudo, body]),
    };
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    ip[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
