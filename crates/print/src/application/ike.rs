//! Key exchange for IPsec (ISAKMP, IKEv1, IKEv2), and ESP in UDP. The payloads of a message are not
//! shown. Source: RFC 2408, 2409, 7296, 3948.

use crate::body::{Body, put};
use crate::tcp::nearest_ip;
use crate::text::{Cut, Piece, Printed, hex};

/// Length of the header.
const HEADER_LEN: usize = 28;

const EXCHANGES: &[(u8, &str)] = &[
    (0, "none"),
    (1, "base"),
    (2, "ident"),
    (3, "auth"),
    (4, "agg"),
    (5, "inf"),
    (32, "oakley-quick"),
    (33, "oakley-newgroup"),
    (34, "ikev2_init"),
    (35, "ikev2_auth"),
    (36, "child_sa"),
    (37, "inf2"),
];

const PAYLOADS: &[(u8, &str)] = &[
    (0, "none"),
    (1, "sa"),
    (2, "p"),
    (3, "t"),
    (4, "ke"),
    (5, "id"),
    (6, "cert"),
    (7, "cr"),
    (8, "hash"),
    (9, "sig"),
    (10, "nonce"),
    (11, "n"),
    (12, "d"),
    (13, "vid"),
    (33, "v2sa"),
    (34, "v2ke"),
    (35, "v2IDi"),
    (36, "v2IDr"),
    (37, "v2cert"),
    (38, "v2cr"),
    (39, "v2auth"),
    (40, "v2nonce"),
    (41, "v2n"),
    (42, "v2d"),
    (43, "v2vid"),
    (44, "v2TSi"),
    (45, "v2TSr"),
    (46, "v2e"),
    (47, "v2cp"),
    (48, "v2eap"),
];

/// Prints a UDP payload of the port that NAT traversal uses: ESP, a key exchange after four zero
/// bytes, or one byte that keeps the translation alive.
pub(super) fn in_udp(body: &mut Body, index: usize, packet: &Piece) -> Printed {
    body.protocol = "isakmp_rfc3948";
    if packet.wire_len == 1 && packet.u8(0)? == 0xff {
        put!(body, "isakmp-nat-keep-alive");
        return Ok(());
    }
    if packet.wire_len < 4 {
        return Err(Cut);
    }
    if packet.be32(0)? == 0 {
        put!(body, "NONESP-encap: ");
        return print(body, index, &packet.from(4));
    }
    put!(body, "UDP-encap: ");
    body.protocol = "esp";
    packet.take(0, 8)?;
    put!(body, "ESP(spi={:#010x},seq={:#x})", packet.be32(0)?, packet.be32(4)?);
    put!(body, ", length {}", packet.wire_len);
    Ok(())
}

/// Prints a message over UDP; `index` is the layer of UDP.
pub(super) fn print(body: &mut Body, index: usize, packet: &Piece) -> Printed {
    body.protocol = "isakmp";
    packet.take(0, HEADER_LEN)?;
    let version = packet.u8(17)?;
    put!(body, "isakmp");
    if body.options.verbose > 0 {
        put!(body, " {}.{} msgid ", version >> 4, version & 0xf);
        hex(packet.take(20, 4)?, body.out);
    }
    if body.options.verbose > 1 {
        put!(body, " cookie ");
        hex(packet.take(0, 8)?, body.out);
        put!(body, "->");
        hex(packet.take(8, 8)?, body.out);
    }
    put!(body, ":");
    match version >> 4 {
        1 => version1(body, index, packet)?,
        2 => {
            let first = packet.be32(20)? == 0;
            put!(body, "{}", if first { " parent_sa" } else { " child_sa " });
            exchange(body, packet, &[(0x08, "I"), (0x10, "V"), (0x20, "R")])?;
        }
        _ => return Ok(()),
    }
    if body.options.verbose > 0 {
        put!(body, ":");
        let next = packet.u8(16)?;
        if packet.u8(19)? & 1 != 0 {
            put!(body, " [encrypted ");
            named(body, PAYLOADS, next);
            put!(body, "]");
        }
        if packet.be32(24)? as usize != packet.wire_len {
            put!(body, " (len mismatch: isakmp {}/ip {})", packet.be32(24)?, packet.wire_len);
        }
    }
    Ok(())
}

fn version1(body: &mut Body, index: usize, packet: &Piece) -> Printed {
    let first = packet.be32(20)? == 0;
    put!(body, "{}", if first { " phase 1" } else { " phase 2/others" });
    let cookie: [u8; 8] = packet.take(0, 8)?.try_into().unwrap_or_default();
    let ends = nearest_ip(body, index);
    let begins = packet.take(8, 8)? == [0; 8];
    let sender = body.memory.exchanges.sender(cookie, ends);
    if let (None, true, Some(ends)) = (sender, begins, ends) {
        body.memory.exchanges.begin(cookie, ends);
    }
    put!(body, " {}", sender.unwrap_or(if begins { 'I' } else { '?' }));
    exchange(body, packet, &[(0x01, "E"), (0x02, "C")])
}

/// Prints the kind of the exchange, and the known flags if any flag is set.
fn exchange(body: &mut Body, packet: &Piece, letters: &[(u8, &str)]) -> Printed {
    put!(body, " ");
    named(body, EXCHANGES, packet.u8(18)?);
    let flags = packet.u8(19)?;
    if flags != 0 {
        put!(body, "[");
        for (bit, letter) in letters {
            put!(body, "{}", if flags & bit != 0 { letter } else { "" });
        }
        put!(body, "]");
    }
    Ok(())
}

fn named(body: &mut Body, table: &[(u8, &'static str)], number: u8) {
    match crate::text::name_of(table, number) {
        Some(name) => put!(body, "{name}"),
        None if (14..33).contains(&number) && table.len() == PAYLOADS.len() => {
            put!(body, "pay{number}");
        }
        None => put!(body, "#{number}"),
    }
}
