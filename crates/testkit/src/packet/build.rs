//! Conversion of the parts of a packet to bytes, from the inside out.

use super::{Ipv4, Ipv6, Part, Tcp, checksum, padded};

pub(super) fn build(parts: &[Part], payload: &[u8]) -> Vec<u8> {
    let mut body = payload.to_vec();
    for index in (0..parts.len()).rev() {
        let mut header = header(parts, index, &body);
        header.append(&mut body);
        body = header;
    }
    body
}

fn header(parts: &[Part], index: usize, body: &[u8]) -> Vec<u8> {
    let next = parts.get(index + 1);
    let mut bytes = Vec::new();
    match &parts[index] {
        Part::Ethernet { destination, source } => {
            bytes.extend(destination);
            bytes.extend(source);
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
        }
        Part::Llc { saps } => bytes.extend(saps),
        Part::Snap => {
            bytes.extend([0xaa, 0xaa, 3, 0, 0, 0]);
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
        }
        Part::Sll => {
            bytes.extend([0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
        }
        Part::Sll2 => {
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
        }
        Part::Family { swapped } => {
            let family: u32 = if matches!(next, Some(Part::Ipv6(_))) { 24 } else { 2 };
            bytes.extend(if *swapped { family.to_le_bytes() } else { family.to_be_bytes() });
        }
        Part::Tag { control, .. } => {
            bytes.extend(control.to_be_bytes());
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
        }
        Part::Mpls { label } => {
            let bottom = u32::from(!matches!(next, Some(Part::Mpls { .. })));
            bytes.extend((label << 12 | bottom << 8 | 64).to_be_bytes());
        }
        Part::ControlWord => bytes.extend([0; 4]),
        Part::Pppoe { session } => {
            bytes.extend([0x11, 0]);
            bytes.extend(session.to_be_bytes());
            bytes.extend((body.len() as u16).to_be_bytes());
        }
        Part::Ppp => bytes.extend(match next {
            Some(Part::Ipv6(_)) => [0x00, 0x57],
            Some(Part::Mpls { .. }) => [0x02, 0x81],
            _ => [0x00, 0x21],
        }),
        Part::Arp { operation, sender, target } => {
            bytes.extend([0, 1, 8, 0, 6, 4]);
            bytes.extend(operation.to_be_bytes());
            bytes.extend([2, 0, 0, 0, 0, 1]);
            bytes.extend(sender.octets());
            bytes.extend(if *operation == 1 { [0; 6] } else { [2, 0, 0, 0, 0, 2] });
            bytes.extend(target.octets());
        }
        Part::Ipv4(ip) => bytes = ipv4(ip, next, body),
        Part::Ipv6(ip) => bytes = ipv6(ip, next, body),
        _ => return upper(parts, index, body),
    }
    bytes
}

/// Headers above IP.
fn upper(parts: &[Part], index: usize, body: &[u8]) -> Vec<u8> {
    let next = parts.get(index + 1);
    let mut bytes = Vec::new();
    match &parts[index] {
        Part::Extension { data, .. } => {
            bytes.extend([ip_number(next), 0]);
            bytes.extend(data);
            bytes = padded(&bytes, 8);
            bytes[1] = (bytes.len() / 8 - 1) as u8;
        }
        Part::Fragment { id, offset, more } => {
            bytes.extend([ip_number(next), 0]);
            bytes.extend((offset & 0xfff8 | u16::from(*more)).to_be_bytes());
            bytes.extend(id.to_be_bytes());
        }
        Part::Authentication => {
            bytes.extend([ip_number(next), 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
            bytes.extend([0xa5; 12]);
        }
        Part::Raw { data, .. } => bytes.extend(data),
        Part::Tcp(header) => bytes = tcp(header, &parts[..index], body),
        Part::Udp { number, source, destination } => {
            bytes.extend(source.to_be_bytes());
            bytes.extend(destination.to_be_bytes());
            bytes.extend((8 + body.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
            let sum = transport_checksum(&parts[..index], *number, &bytes, body);
            bytes[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
        }
        Part::Sctp { source, destination } => {
            bytes.extend(source.to_be_bytes());
            bytes.extend(destination.to_be_bytes());
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        }
        Part::Icmp { v6, kind, code, rest } => {
            bytes.extend([*kind, *code, 0, 0]);
            bytes.extend(rest.to_be_bytes());
            let sum = match v6 {
                true => transport_checksum(&parts[..index], 58, &bytes, body),
                false => checksum(&[&bytes, body]),
            };
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        other => return tunnel(other, next, body),
    }
    bytes
}

fn tunnel(part: &Part, next: Option<&Part>, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match part {
        Part::Gre { key, sequence, checksum: with_checksum } => {
            let bit = |there: bool, bit: u8| if there { bit } else { 0 };
            let flags = bit(*with_checksum, 0x80)
                | bit(key.is_some(), 0x20)
                | bit(sequence.is_some(), 0x10);
            bytes.extend([flags, 0]);
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
            bytes.extend(if *with_checksum { vec![0; 4] } else { Vec::new() });
            bytes.extend(key.iter().chain(sequence).flat_map(|word| word.to_be_bytes()));
            if *with_checksum {
                let sum = checksum(&[&bytes, body]);
                bytes[4..6].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Part::Pptp { call, sequence } => {
            bytes.extend([if sequence.is_some() { 0x30 } else { 0x20 }, 0x01, 0x88, 0x0b]);
            bytes.extend((body.len() as u16).to_be_bytes());
            bytes.extend(call.to_be_bytes());
            bytes.extend(sequence.iter().flat_map(|word| word.to_be_bytes()));
        }
        Part::Erspan { version: 2 } => bytes.extend([0x10, 0x01, 0, 1, 0, 0, 0, 0]),
        Part::Erspan { .. } => bytes.extend([0x20, 0x01, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        Part::Vxlan { vni } => {
            bytes.extend([8, 0, 0, 0]);
            bytes.extend((vni << 8).to_be_bytes());
        }
        Part::Geneve { vni, options } => {
            bytes.extend([(options.len() / 4) as u8 & 0x3f, 0]);
            bytes.extend(ethertype(next, body.len()).to_be_bytes());
            bytes.extend((vni << 8).to_be_bytes());
            bytes.extend(options);
        }
        Part::Gtpu { teid, sequence } => {
            let optional_len = if sequence.is_some() { 4 } else { 0 };
            bytes.extend([if sequence.is_some() { 0x32 } else { 0x30 }, 255]);
            bytes.extend((body.len() as u16 + optional_len).to_be_bytes());
            bytes.extend(teid.to_be_bytes());
            bytes.extend(sequence.iter().flat_map(|number| number.to_be_bytes()));
            bytes.extend(if sequence.is_some() { &[0, 0][..] } else { &[] });
        }
        Part::EtherIp => bytes.extend([0x30, 0]),
        _ => {}
    }
    bytes
}

fn ipv4(ip: &Ipv4, next: Option<&Part>, body: &[u8]) -> Vec<u8> {
    let header_len = 20 + ip.options.len();
    let mut bytes = vec![0x40 | (header_len / 4) as u8, ip.tos];
    bytes.extend(((header_len + body.len()) as u16).to_be_bytes());
    bytes.extend(ip.id.to_be_bytes());
    bytes.extend(ip.flags_offset.to_be_bytes());
    bytes.extend([ip.ttl, ip.protocol.unwrap_or_else(|| ip_number(next)), 0, 0]);
    bytes.extend(ip.source.octets());
    bytes.extend(ip.destination.octets());
    bytes.extend(&ip.options);
    let sum = checksum(&[&bytes]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn ipv6(ip: &Ipv6, next: Option<&Part>, body: &[u8]) -> Vec<u8> {
    let first = 6u32 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label;
    let mut bytes = first.to_be_bytes().to_vec();
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend([ip.next_header.unwrap_or_else(|| ip_number(next)), ip.hop_limit]);
    bytes.extend(ip.source.octets());
    bytes.extend(ip.destination.octets());
    bytes
}

fn tcp(header: &Tcp, around: &[Part], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(header.source.to_be_bytes());
    bytes.extend(header.destination.to_be_bytes());
    bytes.extend(header.sequence.to_be_bytes());
    bytes.extend(header.acknowledgement.to_be_bytes());
    bytes.extend([(((20 + header.options.len()) / 4) << 4) as u8, header.flags]);
    bytes.extend(header.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(header.urgent.to_be_bytes());
    bytes.extend(&header.options);
    let sum = transport_checksum(around, 6, &bytes, body);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Computes the checksum with the pseudo-header of the nearest enclosing IP header; 0 if there is none.
fn transport_checksum(around: &[Part], number: u8, header: &[u8], body: &[u8]) -> u16 {
    let len = (header.len() + body.len()) as u32;
    let mut pseudo = Vec::new();
    let nearest = around.iter().rev().find(|part| matches!(part, Part::Ipv4(_) | Part::Ipv6(_)));
    match nearest {
        Some(Part::Ipv4(ip)) => {
            pseudo.extend(ip.source.octets());
            pseudo.extend(ip.destination.octets());
        }
        Some(Part::Ipv6(ip)) => {
            pseudo.extend(ip.source.octets());
            pseudo.extend(ip.destination.octets());
        }
        _ => return 0,
    }
    pseudo.extend(len.to_be_bytes());
    pseudo.extend([0, 0, 0, number]);
    checksum(&[&pseudo, header, body])
}

/// Returns the number that announces `next`; a length if `next` is an 802.2 header.
fn ethertype(next: Option<&Part>, body_len: usize) -> u16 {
    match next {
        Some(Part::Ethernet { .. }) => 0x6558,
        Some(Part::Llc { .. } | Part::Snap) => body_len as u16,
        Some(Part::Tag { number, .. }) => *number,
        Some(Part::Mpls { .. }) => 0x8847,
        Some(Part::Pppoe { .. }) => 0x8864,
        Some(Part::Ppp) => 0x880b,
        Some(Part::Arp { .. }) => 0x0806,
        Some(Part::Ipv6(_)) => 0x86dd,
        Some(Part::Erspan { version: 2 }) => 0x88be,
        Some(Part::Erspan { .. }) => 0x22eb,
        Some(Part::Ipv4(_)) => 0x0800,
        // The number for local experiments.
        _ => 0x88b5,
    }
}

fn ip_number(next: Option<&Part>) -> u8 {
    match next {
        Some(Part::Ipv4(_)) => 4,
        Some(Part::Ipv6(_)) => 41,
        Some(Part::Extension { number, .. } | Part::Raw { number, .. }) => *number,
        Some(Part::Fragment { .. }) => 44,
        Some(Part::Authentication) => 51,
        Some(Part::Tcp(_)) => 6,
        Some(Part::Udp { number, .. }) => *number,
        Some(Part::Sctp { .. }) => 132,
        Some(Part::Icmp { v6, .. }) => {
            if *v6 {
                58
            } else {
                1
            }
        }
        Some(Part::Gre { .. } | Part::Pptp { .. }) => 47,
        Some(Part::EtherIp) => 97,
        Some(Part::Mpls { .. }) => 137,
        Some(Part::Ethernet { .. }) => 143,
        _ => 253,
    }
}
