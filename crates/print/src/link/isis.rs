//! Protocols of the OSI network layer: the header of IS-IS, ES-IS and CLNP. Source: ISO 10589,
//! 9542, 8473.

use crate::body::{Body, put};
use crate::text::{Piece, Printed, name_of};

const UNITS: &[(u8, &str)] = &[
    (15, "L1 Lan IIH"),
    (16, "L2 Lan IIH"),
    (17, "p2p IIH"),
    (18, "L1 LSP"),
    (20, "L2 LSP"),
    (24, "L1 CSNP"),
    (25, "L2 CSNP"),
    (26, "L1 PSNP"),
    (27, "L2 PSNP"),
];

/// Prints the payload of the OSI service access point.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "isoclns";
    let number = packet.u8(0)?;
    let shown = body.options.link_header;
    if shown {
        let names = [
            (0x00, "NULLNS"),
            (0x81, "CLNP"),
            (0x82, "ES-IS"),
            (0x83, "IS-IS"),
            (0x8e, "IPv6"),
            (0xcc, "IPv4"),
        ];
        let name = name_of(&names, number).unwrap_or("Unknown");
        put!(body, "OSI NLPID {name} ({number:#04x}): ");
    }
    let separator = if shown { "" } else { ", " };
    match number {
        0x83 => routing(body, packet, separator)?,
        0x82 => end_system(body, packet, separator)?,
        0x81 => put!(body, "{}", if shown { "" } else { "CLNP" }),
        0x00 => {}
        _ if shown => {}
        _ => put!(body, "OSI NLPID {number:#04x} unknown"),
    }
    if !matches!(number, 0x82 | 0x83) {
        put!(body, "{separator}length: {}", packet.wire_len);
    }
    Ok(())
}

/// Prints an identifier of `len` bytes: a system, 7 bytes with its node, 8 with the fragment.
fn identifier(body: &mut Body, packet: &Piece, at: usize, len: usize) -> Printed {
    for (number, byte) in packet.take(at, len)?.iter().enumerate() {
        put!(body, "{byte:02x}");
        put!(
            body,
            "{}",
            match number {
                1 | 3 => ".",
                5 if len > 6 => ".",
                6 if len > 7 => "-",
                _ => "",
            }
        );
    }
    Ok(())
}

fn routing(body: &mut Body, packet: &Piece, separator: &str) -> Printed {
    body.protocol = "isis";
    packet.take(0, 8)?;
    if separator == ", " {
        put!(body, "IS-IS");
    }
    let length = packet.wire_len;
    let (fixed_len, kind, areas) = (usize::from(packet.u8(1)?), packet.u8(4)?, packet.u8(7)?);
    for version in [packet.u8(2)?, packet.u8(5)?] {
        if version != 1 {
            put!(body, "version {version} packet not supported");
            return Ok(());
        }
    }
    match packet.u8(3)? {
        0 | 6 => {}
        id_len => {
            put!(body, "system ID length of {id_len} is not supported");
            return Ok(());
        }
    }
    if length < fixed_len {
        put!(body, "fixed header length {fixed_len} > packet length {length}");
        return Ok(());
    }
    if fixed_len < 8 {
        put!(body, "fixed header length {fixed_len} < minimum header size 8");
        return Ok(());
    }
    if areas == 255 {
        put!(body, "bad packet -- 255 areas");
        return Ok(());
    }
    put!(body, "{separator}");
    match name_of(UNITS, kind) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "unknown PDU-Type {kind}"),
    }
    let expected = match kind {
        15 | 16 => 27,
        17 => 20,
        18 | 20 => 27,
        24 | 25 => 33,
        26 | 27 => 17,
        _ => fixed_len,
    };
    if fixed_len != expected {
        put!(body, ", bogus fixed header length {fixed_len} should be {expected}");
        return Ok(());
    }
    origin(body, packet, kind)?;
    put!(body, ", length {length}");
    Ok(())
}

/// Prints the sender of a unit of IS-IS, and its own numbers.
fn origin(body: &mut Body, packet: &Piece, kind: u8) -> Printed {
    match kind {
        15 | 16 => {
            put!(body, ", src-id ");
            identifier(body, packet, 9, 6)?;
            put!(body, ", lan-id ");
            identifier(body, packet, 20, 7)?;
            put!(body, ", prio {}", packet.u8(19)? & 0x7f);
        }
        17 => {
            put!(body, ", src-id ");
            identifier(body, packet, 9, 6)?;
        }
        18 | 20 => {
            put!(body, ", lsp-id ");
            identifier(body, packet, 12, 8)?;
            put!(body, ", seq {:#010x}, lifetime {:5}s", packet.be32(20)?, packet.be16(10)?);
        }
        24..=27 => {
            put!(body, ", src-id ");
            identifier(body, packet, 10, 7)?;
        }
        _ => {}
    }
    Ok(())
}

fn end_system(body: &mut Body, packet: &Piece, separator: &str) -> Printed {
    const UNITS: &[(u8, &str)] = &[(6, "redirect"), (2, "ESH"), (4, "ISH")];
    body.protocol = "esis";
    if separator == ", " {
        put!(body, "ES-IS");
    }
    let length = packet.wire_len;
    if length <= 2 {
        put!(body, "{}", if body.options.quiet { "bad pkt!" } else { "no header at all!" });
        return Ok(());
    }
    packet.take(0, 8)?;
    let (indicator, version) = (usize::from(packet.u8(1)?), packet.u8(2)?);
    if version != 1 {
        put!(body, " version {version} packet not supported");
    } else if indicator > length {
        put!(body, " length indicator({indicator}) > PDU size ({length})!");
    } else {
        put!(body, "{separator}");
        match name_of(UNITS, packet.u8(4)? & 0x1f) {
            Some(name) => put!(body, "{name}"),
            None => put!(body, "unknown type ({})", packet.u8(4)? & 0x1f),
        }
        put!(body, ", length {length}");
    }
    Ok(())
}
