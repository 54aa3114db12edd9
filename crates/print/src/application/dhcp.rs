//! DHCP for IPv4 and IPv6: one line, and with `-v` the addresses and the common options. Sources:
//! RFC 951, 2131, 2132, 8415.

mod options;

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, escape, name_of};
use fyke_frame::walk::view::MacAddr;
use options::{OPTIONS, Shape};
use std::net::Ipv4Addr;

const MESSAGES: &[(u8, &str)] = &[
    (1, "Discover"),
    (2, "Offer"),
    (3, "Request"),
    (4, "Decline"),
    (5, "ACK"),
    (6, "NACK"),
    (7, "Release"),
    (8, "Inform"),
    (10, "LeaseQuery"),
    (11, "LeaseUnassigned"),
    (12, "LeaseUnknown"),
    (13, "LeaseActive"),
];

const COOKIE: u32 = 0x6382_5363;

pub(super) fn v4(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "bootp";
    let operation = packet.u8(0)?;
    match operation {
        1 => put!(body, "BOOTP/DHCP, Request"),
        2 => put!(body, "BOOTP/DHCP, Reply"),
        _ => put!(body, "BOOTP/DHCP, unknown ({operation:#04x})"),
    }
    let ethernet = (packet.u8(1)?, packet.u8(2)?) == (1, 6);
    if ethernet && operation == 1 {
        put!(body, " from {}", mac(packet, 28)?);
    }
    put!(body, ", length {}", packet.wire_len);
    if body.options.verbose == 0 {
        return Ok(());
    }
    let (hops, transaction, seconds) = (packet.u8(3)?, packet.be32(4)?, packet.be16(8)?);
    if hops != 0 {
        put!(body, ", hops {hops}");
    }
    if transaction != 0 {
        put!(body, ", xid {transaction:#x}");
    }
    if seconds != 0 {
        put!(body, ", secs {seconds}");
    }
    let flags = packet.be16(10)?;
    put!(body, ", Flags [{}]", if flags & 0x8000 != 0 { "Broadcast" } else { "none" });
    if body.options.verbose > 1 {
        put!(body, " ({flags:#06x})");
    }
    let places = [("Client-IP", 12), ("Your-IP", 16), ("Server-IP", 20), ("Gateway-IP", 24)];
    for (name, at) in places {
        if packet.be32(at)? != 0 {
            put!(body, "\n\t  {name} {}", packet.ipv4(at)?);
        }
    }
    if ethernet {
        put!(body, "\n\t  Client-Ethernet-Address {}", mac(packet, 28)?);
    }
    for (name, at, len) in [("sname", 44, 64), ("file", 108, 128)] {
        let field = packet.take(at, len)?;
        let text = field.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if !text.is_empty() {
            put!(body, "\n\t  {name} \"");
            escape(text, body.out);
            put!(body, "\"");
        }
    }
    if packet.be32(236)? == COOKIE {
        put!(body, "\n\t  Vendor-rfc1048 Extensions\n\t    Magic Cookie {COOKIE:#010x}");
        options(body, &packet.from(240))?;
    }
    Ok(())
}

fn mac(packet: &Piece, at: usize) -> Result<MacAddr, Cut> {
    Ok(MacAddr(packet.take(at, 6)?.try_into().map_err(|_| Cut)?))
}

fn options(body: &mut Body, all: &Piece) -> Printed {
    let mut at = 0;
    while at < all.wire_len {
        let tag = all.u8(at)?;
        match tag {
            0 => {
                at += 1;
                continue;
            }
            255 => break,
            _ => {}
        }
        let len = usize::from(all.u8(at + 1)?);
        let known = OPTIONS.iter().find(|(number, _)| *number == tag).map(|(_, known)| *known);
        let name = known.map_or("Unknown", |(name, _)| name);
        put!(body, "\n\t    {name} ({tag}), length {len}{}", if len > 0 { ": " } else { "" });
        option(body, known.map(|(_, shape)| shape), all.take(at + 2, len)?);
        at += 2 + len;
    }
    Ok(())
}

fn option(body: &mut Body, shape: Option<Shape>, value: &[u8]) {
    match (shape, value) {
        (Some(Shape::Addresses), _) => {
            let addresses = value.chunks_exact(4);
            let texts = addresses.map(|a| Ipv4Addr::new(a[0], a[1], a[2], a[3]).to_string());
            put!(body, "{}", texts.collect::<Vec<_>>().join(","));
        }
        (Some(Shape::Shorts), _) => {
            let numbers =
                value.as_chunks().0.iter().map(|two| u16::from_be_bytes(*two).to_string());
            put!(body, "{}", numbers.collect::<Vec<_>>().join(","));
        }
        (Some(Shape::Longs), _) => {
            let numbers =
                value.as_chunks().0.iter().map(|four| u32::from_be_bytes(*four).to_string());
            put!(body, "{}", numbers.collect::<Vec<_>>().join(","));
        }
        (Some(Shape::Flags), _) => {
            let texts = value.iter().map(|byte| match byte {
                0 => "N".to_string(),
                1 => "Y".to_string(),
                other => format!("{other}?"),
            });
            put!(body, "{}", texts.collect::<Vec<_>>().join(","));
        }
        (Some(Shape::Text), _) => {
            put!(body, "\"");
            escape(value, body.out);
            put!(body, "\"");
        }
        (Some(Shape::Message), [kind]) => match name_of(MESSAGES, *kind) {
            Some(name) => put!(body, "{name}"),
            None => put!(body, "Unknown ({kind})"),
        },
        (Some(Shape::Tags), _) => {
            for (number, tag) in value.iter().enumerate() {
                put!(body, "{}", if number % 4 == 0 { "\n\t      " } else { ", " });
                let known = OPTIONS.iter().find(|(known, _)| known == tag);
                put!(body, "{} ({tag})", known.map_or("Unknown", |(_, (name, _))| name));
            }
        }
        _ => {
            let numbers: Vec<_> = value.iter().map(u8::to_string).collect();
            put!(body, "{}", numbers.join("."));
        }
    }
}

const MESSAGES_6: &[(u8, &str)] = &[
    (1, "solicit"),
    (2, "advertise"),
    (3, "request"),
    (4, "confirm"),
    (5, "renew"),
    (6, "rebind"),
    (7, "reply"),
    (8, "release"),
    (9, "decline"),
    (10, "reconfigure"),
    (11, "inf-req"),
    (12, "relay-fwd"),
    (13, "relay-reply"),
    (14, "leasequery"),
    (15, "leasequery-reply"),
];

pub(super) fn v6(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "dhcp6";
    put!(body, "dhcp6");
    let word = packet.be32(0)?;
    let kind = (word >> 24) as u8;
    match name_of(MESSAGES_6, kind) {
        Some(name) => put!(body, " {name}"),
        None => put!(body, " msgtype-{kind}"),
    }
    if body.options.verbose > 0 {
        match kind {
            12 | 13 => {
                put!(body, " (linkaddr={} peeraddr=", packet.ipv6(2)?);
                put!(body, "{})", packet.ipv6(18)?);
            }
            _ => put!(body, " (xid={:x})", word & 0xff_ffff),
        }
    }
    Ok(())
}
