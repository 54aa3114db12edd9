//! Protocols by which network devices and servers control each other: RADIUS, Kerberos, BFD, HSRP,
//! L2TP, LDP, LISP, RIPng, sFlow, Babel, a shim of Broadcom. The header of each, which tcpdump shows
//! without `-v`. Source: RFC 2865, 4120, 5880, 2281, 2661, 5036, 9301, 2080, 8966; sflow.org.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, bits, name_of};

/// Prints a name of a table, or the number in a text before and after it.
fn named<N: Copy + PartialEq + std::fmt::Display>(
    body: &mut Body,
    table: &[(N, &'static str)],
    number: N,
    unknown: (&str, &str),
) {
    match name_of(table, number) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "{}{number}{}", unknown.0, unknown.1),
    }
}

pub(super) fn radius(body: &mut Body, packet: &Piece) -> Printed {
    const CODES: &[(u8, &str)] = &[
        (1, "Access-Request"),
        (2, "Access-Accept"),
        (3, "Access-Reject"),
        (4, "Accounting-Request"),
        (5, "Accounting-Response"),
        (11, "Access-Challenge"),
        (12, "Status-Server"),
        (13, "Status-Client"),
        (40, "Disconnect-Request"),
        (41, "Disconnect-ACK"),
        (42, "Disconnect-NAK"),
        (43, "CoA-Request"),
        (44, "CoA-ACK"),
        (45, "CoA-NAK"),
        (255, "Reserved"),
    ];
    body.protocol = "radius";
    let authenticator = packet.take(4, 16)?;
    let length = usize::from(packet.be16(2)?);
    if length < 20 {
        return Err(Cut);
    }
    let length = length.min(packet.wire_len);
    let (code, id) = (packet.u8(0)?, packet.u8(1)?);
    let name = name_of(CODES, code).unwrap_or("Unknown Command");
    if body.options.verbose == 0 {
        put!(body, "RADIUS, {name} ({code}), id: {id:#04x} length: {length}");
        return Ok(());
    }
    put!(body, "RADIUS, length: {length}\n\t{name} ({code}), id: {id:#04x}, Authenticator: ");
    crate::text::hex(authenticator, body.out);
    Ok(())
}

/// Prints the version only: the messages of version 4 are not in use any more.
pub(super) fn kerberos(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "krb";
    match packet.u8(0)? {
        version @ 1..=4 => put!(body, " v{version}"),
        // The tags of a request to the key server, and of its answer.
        106 | 107 => put!(body, " v5"),
        _ => {}
    }
    Ok(())
}

pub(super) fn bfd(body: &mut Body, port: u16, packet: &Piece) -> Printed {
    const VERSION0: &[(u32, &str)] = &[
        (0x80, "I Hear You"),
        (0x40, "Demand"),
        (0x20, "Poll"),
        (0x10, "Final"),
        (0x08, "Control Plane Independent"),
        (0x04, "Authentication Present"),
        (0x02, "Reserved"),
        (0x01, "Reserved"),
    ];
    const VERSION1: &[(u32, &str)] = &[
        (0x20, "Poll"),
        (0x10, "Final"),
        (0x08, "Control Plane Independent"),
        (0x04, "Authentication Present"),
        (0x02, "Demand"),
        (0x01, "Multipoint"),
    ];
    body.protocol = "bfd";
    let length = packet.wire_len;
    if port == 3785 {
        put!(body, "BFD, Echo, length: {length}");
        return Ok(());
    }
    packet.take(0, 24)?;
    let flags = u32::from(packet.u8(1)?);
    match packet.u8(0)? >> 5 {
        0 => {
            let flags = bits(VERSION0, flags, ", ", "none");
            put!(body, "BFDv0, Control, Flags: [{flags}], length: {length}");
        }
        1 => {
            let ports = [(3784, "Control"), (4784, "Multihop"), (6784, "Lag")];
            let states = ["AdminDown", "Down", "Init", "Up"];
            put!(body, "BFDv1, ");
            named(body, &ports, port, ("unknown (", ")"));
            put!(body, ", State {}, ", states[(flags >> 6 & 3) as usize]);
            put!(body, "Flags: [{}], ", bits(VERSION1, flags & 0x3f, ", ", "none"));
            put!(body, "length: {length}");
        }
        version => put!(body, "BFDv{version}, Control, length: {length}"),
    }
    Ok(())
}

pub(super) fn hsrp(body: &mut Body, packet: &Piece) -> Printed {
    const OPERATIONS: &[(u8, &str)] = &[(0, "hello"), (1, "coup"), (2, "resign")];
    const STATES: &[(u8, &str)] = &[
        (0, "initial"),
        (1, "learn"),
        (2, "listen"),
        (4, "speak"),
        (8, "standby"),
        (16, "active"),
    ];
    body.protocol = "hsrp";
    let version = packet.u8(0)?;
    put!(body, "HSRPv{version}");
    if version != 0 {
        return Ok(());
    }
    put!(body, "-");
    named(body, OPERATIONS, packet.u8(1)?, ("unknown (", ")"));
    put!(body, " {}: state=", packet.wire_len);
    named(body, STATES, packet.u8(2)?, ("Unknown (", ")"));
    put!(body, " group={} ", packet.u8(6)?);
    let reserved = packet.u8(7)?;
    if reserved != 0 {
        put!(body, "[reserved={reserved}!] ");
    }
    put!(body, "addr={}", packet.ipv4(16)?);
    if body.options.verbose > 0 {
        let (hello, hold) = (packet.u8(3)?.into(), packet.u8(4)?.into());
        put!(body, " hellotime={}", crate::text::duration(hello));
        put!(body, " holdtime={}", crate::text::duration(hold));
        put!(body, " priority={} auth=\"", packet.u8(5)?);
        crate::text::until_zero(packet, 8, 8, body.out)?;
        put!(body, "\"");
    }
    Ok(())
}

/// Prints the header; the attributes of a control message and the packet in a data message are not
/// shown.
pub(super) fn l2tp(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "l2tp";
    let flags = packet.be16(0)?;
    match flags & 0xf {
        2 => put!(body, " l2tp:"),
        1 => {
            put!(body, " l2f:");
            return Ok(());
        }
        _ => {
            put!(body, " Unknown Version, neither L2F(1) nor L2TP(2)");
            return Ok(());
        }
    }
    put!(body, "[");
    for (bit, letter) in [(0x8000, "T"), (0x4000, "L"), (0x0800, "S"), (0x0200, "O"), (0x0100, "P")]
    {
        put!(body, "{}", if flags & bit != 0 { letter } else { "" });
    }
    put!(body, "]");
    let mut at = if flags & 0x4000 != 0 { 4 } else { 2 };
    put!(body, "({}/{})", packet.be16(at)?, packet.be16(at + 2)?);
    at += 4;
    if flags & 0x0800 != 0 {
        put!(body, "Ns={},Nr={}", packet.be16(at)?, packet.be16(at + 2)?);
        at += 4;
    }
    if flags & 0x0200 != 0 {
        let padding = usize::from(packet.be16(at)?);
        packet.take(at + 2, padding)?;
        at += 2 + padding;
    }
    let length = match flags & 0x4000 {
        0 => packet.wire_len,
        _ => usize::from(packet.be16(2)?),
    };
    if packet.wire_len < length {
        put!(body, " Length {length} larger than packet");
    } else if length < at {
        put!(body, " Length {length} smaller than header length");
    } else if flags & 0x8000 != 0 && flags & 0x4000 == 0 {
        put!(body, " No length");
    } else if flags & 0x8000 != 0 && length == at {
        put!(body, " ZLB");
    }
    Ok(())
}

pub(super) fn ldp(body: &mut Body, packet: &Piece) -> Printed {
    /// Length of the header and of the shortest message.
    const SHORTEST_LEN: usize = 18;
    body.protocol = "ldp";
    if packet.wire_len <= SHORTEST_LEN {
        return Ok(());
    }
    packet.take(0, 10)?;
    let lead = if body.options.verbose > 0 { "\n\t" } else { "" };
    let (version, length) = (packet.be16(0)?, packet.be16(2)?);
    if version != 1 {
        put!(body, "{lead}LDP version {version} packet not supported");
    } else if length < 6 {
        put!(body, "{lead}LDP, pdu-length: {length} (too short, < 6)");
    } else {
        put!(body, "{lead}LDP, Label-Space-ID: {}:{}, ", packet.ipv4(4)?, packet.be16(8)?);
        put!(body, "pdu-length: {length}");
    }
    Ok(())
}

/// Prints the kind of a message, and the number of records of a registration.
pub(super) fn lisp(body: &mut Body, packet: &Piece) -> Printed {
    const KINDS: &[(u8, &str)] = &[
        (0, "LISP-Reserved"),
        (1, "LISP-Map-Request"),
        (2, "LISP-Map-Reply"),
        (3, "LISP-Map-Register"),
        (4, "LISP-Map-Notify"),
        (8, "LISP-Encapsulated-Contol-Message"),
    ];
    body.protocol = "lisp";
    packet.take(0, 16)?;
    let kind = packet.u8(0)? >> 4;
    named(body, KINDS, kind, ("unknown-type-", ""));
    put!(body, ",");
    if matches!(kind, 3 | 4) {
        put!(body, " {} record(s),", packet.u8(3)?);
        if packet.u8(3)? == 0 {
            put!(body, " (invalid)");
        }
    }
    Ok(())
}

/// Prints RIP for IPv6.
pub(super) fn ripng(body: &mut Body, packet: &Piece) -> Printed {
    const ENTRY_LEN: usize = 20;
    body.protocol = "ripng";
    let (command, version) = (packet.u8(0)?, packet.u8(1)?);
    if version != 1 {
        put!(body, " [vers {version}] (invalid)");
        return Ok(());
    }
    let length = packet.wire_len;
    let name = match command {
        1 => "req",
        2 => "resp",
        _ => {
            put!(body, " ripng-{command} ?? {length} (invalid)");
            return Ok(());
        }
    };
    if length < 4 {
        put!(body, " (invalid)");
        return Ok(());
    }
    let (count, odd) = ((length - 4) / ENTRY_LEN, !(length - 4).is_multiple_of(ENTRY_LEN));
    if command == 1 && count == 1 && packet.u8(23)? == 16 && packet.take(4, 16)? == [0; 16] {
        put!(body, " ripng-req dump");
        return Ok(());
    }
    match odd {
        true => put!(body, " ripng-{name} {count}[{length}]:"),
        false => put!(body, " ripng-{name} {count}:"),
    }
    for at in (0..count).map(|entry| 4 + ENTRY_LEN * entry) {
        put!(body, "{}", if body.options.verbose > 1 { "\n\t" } else { " " });
        put!(body, "{}/{}", packet.ipv6(at)?, packet.u8(at + 18)?);
        let (tag, metric) = (packet.be16(at + 16)?, packet.u8(at + 19)?);
        if tag != 0 {
            put!(body, " [{tag}]");
        }
        if metric != 0 && command == 2 {
            put!(body, " ({metric})");
        }
    }
    put!(body, "{}", if odd { " (invalid)" } else { "" });
    Ok(())
}

pub(super) fn sflow(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "sflow";
    let (version, family) = (packet.be32(0)?, packet.be32(4)?);
    if !matches!(family, 1 | 2) {
        return Ok(());
    }
    packet.take(0, 28)?;
    if version != 5 {
        put!(body, "sFlow version {version} packet not supported");
        return Ok(());
    }
    let at = if family == 1 { 12 } else { 24 };
    match family {
        1 => put!(body, "sFlowv{version}, IPv4 agent {}", packet.ipv4(8)?),
        _ => put!(body, "sFlowv{version}, IPv6 agent {}", packet.ipv6(8)?),
    }
    put!(body, ", agent-id {}", packet.be32(at)?);
    if body.options.verbose > 0 {
        put!(body, ", seqnum {}, uptime {}", packet.be32(at + 4)?, packet.be32(at + 8)?);
        put!(body, ", samples {}", packet.be32(at + 12)?);
    }
    put!(body, ", length {}", packet.wire_len);
    Ok(())
}

/// Prints the kinds of the messages of Babel.
pub(super) fn babel(body: &mut Body, packet: &Piece) -> Printed {
    const MESSAGES: &[(u8, &str)] = &[
        (1, "padN"),
        (2, "ack-req"),
        (3, "ack"),
        (4, "hello"),
        (5, "ihu"),
        (6, "router-id"),
        (7, "nh"),
        (8, "update"),
        (9, "route-request"),
        (10, "seqno-request"),
        (11, "tspc"),
        (12, "hmac"),
        (13, "ss-update"),
        (14, "ss-request"),
        (15, "ss-seqno-request"),
        (16, "mac"),
        (17, "pc"),
        (18, "challenge-request"),
        (19, "challenge-reply"),
    ];
    body.protocol = "babel";
    put!(body, "babel");
    packet.take(0, 4)?;
    if packet.u8(0)? != 42 {
        put!(body, " invalid header");
        return Ok(());
    }
    if packet.wire_len < 4 {
        put!(body, " (invalid)");
        return Ok(());
    }
    let version = packet.u8(1)?;
    put!(body, " {version}");
    if version != 2 {
        put!(body, " unknown version");
        return Ok(());
    }
    let length = usize::from(packet.be16(2)?);
    put!(body, " ({length})");
    if 4 + length > packet.wire_len {
        put!(body, " (invalid)");
        return Ok(());
    }
    let mut at = 4;
    while at < 4 + length && !body.is_full() {
        let kind = packet.u8(at)?;
        if kind == 0 {
            body.break_or(" ");
            put!(body, "pad1");
            at += 1;
            continue;
        }
        packet.take(at, 2)?;
        let len = usize::from(packet.u8(at + 1)?);
        packet.take(at + 2, len)?;
        body.break_or(" ");
        put!(body, "{}", name_of(MESSAGES, kind).unwrap_or("unknown"));
        if kind == 8 && len >= 2 {
            let flags = packet.u8(at + 3)?;
            for (mask, name) in [(0x80, "/prefix"), (0x40, "/id"), (0x3f, "/unknown")] {
                put!(body, "{}", if flags & mask != 0 { name } else { "" });
            }
        }
        at += 2 + len;
    }
    Ok(())
}

/// Prints the shim of Broadcom's switches for intercepted packets.
pub(super) fn broadcom(body: &mut Body, packet: &Piece) -> Printed {
    const KINDS: &[(u32, &str)] = &[(4, "undecided"), (5, "ipv4"), (6, "ipv6"), (7, "ethernet")];
    const SUBTYPES: &[(u32, &str)] =
        &[(1, "single VLAN tag"), (2, "double VLAN tag"), (3, "untagged")];
    body.protocol = "bcm_li";
    if packet.wire_len < 4 {
        put!(body, " (length {} < 4) (invalid)", packet.wire_len);
        return Ok(());
    }
    let shim = packet.be32(0)?;
    let directions = [(1, "unused"), (2, "egress"), (3, "ingress")];
    let direction = name_of(&directions, shim >> 29).unwrap_or("unknown");
    let kind = name_of(KINDS, shim >> 25 & 0xf);
    put!(body, "{}", if body.options.verbose > 0 { "\n    " } else { "" });
    put!(body, "BCM-LI-SHIM: direction {direction}, ");
    put!(body, "pkt-type {}, ", kind.unwrap_or("unknown"));
    put!(body, "pkt-subtype {}, ", name_of(SUBTYPES, shim >> 22 & 7).unwrap_or("unknown"));
    put!(body, "li-id {}", shim & 0x3f_ffff);
    if body.options.verbose > 0 && kind.is_none() {
        put!(body, "\n     (invalid)");
        return Ok(());
    }
    packet.take(4, packet.wire_len - 4)?;
    Ok(())
}

/// Prints Rx, the remote calls of AFS; the calls themselves are not shown.
pub(super) fn rx(body: &mut Body, packet: &Piece) -> Printed {
    const HEADER_LEN: usize = 28;
    const TYPES: &[(u8, &str)] = &[
        (1, "data"),
        (2, "ack"),
        (3, "busy"),
        (4, "abort"),
        (5, "ackall"),
        (6, "challenge"),
        (7, "response"),
        (8, "debug"),
        (9, "params"),
        (13, "version"),
    ];
    body.protocol = "rx";
    let length = packet.wire_len;
    if packet.data.len() < HEADER_LEN {
        put!(body, " [|rx] ({length})");
        return Ok(());
    }
    put!(body, " rx ");
    let kind = packet.u8(20)?;
    named(body, TYPES, kind, ("type ", ""));
    if body.options.verbose > 0 {
        if body.options.verbose > 1 {
            put!(body, " cid {:08x} call# {}", packet.be32(4)?, packet.be32(8)?);
        }
        put!(body, " seq {} ser {}", packet.be32(12)?, packet.be32(16)?);
    }
    if kind == RX_ACK && rx_acknowledgement(body, &packet.from(HEADER_LEN)).is_err() {
        put!(body, " [|rx]");
    }
    put!(body, " ({length})");
    Ok(())
}

const RX_ACK: u8 = 2;

fn rx_acknowledgement(body: &mut Body, packet: &Piece) -> Printed {
    const REASONS: &[(u8, &str)] = &[
        (1, "ack requested"),
        (2, "duplicate packet"),
        (3, "out of sequence"),
        (4, "exceeds window"),
        (5, "no buffer space"),
        (6, "ping"),
        (7, "ping response"),
        (8, "delay"),
        (9, "idle"),
    ];
    packet.take(0, 18)?;
    let first = packet.be32(4)?;
    put!(body, " first {first} serial {} reason ", packet.be32(12)?);
    named(body, REASONS, packet.u8(16)?, ("#", ""));
    let count = usize::from(packet.u8(17)?);
    let states = packet.take(18, count)?;
    for (name, state) in [("acked", 1), ("nacked", 0)] {
        let mut started = false;
        let mut at = 0;
        while at < count {
            if states[at] != state {
                at += 1;
                continue;
            }
            let run = states[at..].iter().take_while(|each| **each == state).count();
            let number = |at: usize| first.wrapping_add(at as u32);
            match started {
                true => put!(body, ",{}", number(at)),
                false => put!(body, " {name} {}", number(at)),
            }
            if run > 1 {
                put!(body, "-{}", number(at + run - 1));
            }
            started = true;
            at += run;
        }
    }
    Ok(())
}
