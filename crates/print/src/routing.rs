//! One line each for the protocols between routers and between switches. Sources: RFC 2328, 5340,
//! 7868, 7761, 5798, 2453; IEEE 802.1AB, 802.1X.

use crate::body::{Body, put};
use crate::text::{Piece, Printed, name_of};
use fyke_frame::walk::view::IpView;

/// Prints the IP payload of one of these protocols; false for any other.
pub(crate) fn over_ip(
    body: &mut Body,
    protocol: u8,
    packet: &Piece,
) -> Result<bool, crate::text::Cut> {
    match protocol {
        88 => eigrp(body, packet)?,
        89 => ospf(body, packet)?,
        103 => pim(body, packet)?,
        112 => vrrp(body, packet)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Prints the payload of one of these EtherTypes; false for any other.
pub(crate) fn over_ethernet(
    body: &mut Body,
    number: u16,
    packet: &Piece,
) -> Result<bool, crate::text::Cut> {
    match number {
        0x888e => eapol(body, packet)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn named(body: &mut Body, table: &[(u8, &'static str)], number: u8, unknown: &str) {
    match name_of(table, number) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "{unknown} {number}"),
    }
}

fn ospf(body: &mut Body, packet: &Piece) -> Printed {
    const TYPES: &[(u8, &str)] = &[
        (1, "Hello"),
        (2, "Database Description"),
        (3, "LS-Request"),
        (4, "LS-Update"),
        (5, "LS-Ack"),
    ];
    body.protocol = "ospf";
    put!(body, "OSPFv{}, ", packet.u8(0)?);
    named(body, TYPES, packet.u8(1)?, "unknown LS-type");
    put!(body, ", length {}", packet.wire_len);
    if body.options.verbose > 0 {
        put!(body, "\n\tRouter-ID {}, Area {}", packet.ipv4(4)?, packet.ipv4(8)?);
    }
    Ok(())
}

pub(crate) fn eigrp(body: &mut Body, packet: &Piece) -> Printed {
    const OPERATIONS: &[(u8, &str)] =
        &[(1, "Update"), (3, "Query"), (4, "Reply"), (5, "Hello"), (6, "IPX SAP"), (7, "Probe")];
    body.protocol = "eigrp";
    let version = packet.u8(0)?;
    if version != 2 {
        put!(body, "EIGRP version {version} packet not supported");
        return Ok(());
    }
    put!(body, "EIGRP ");
    named(body, OPERATIONS, packet.u8(1)?, "unknown");
    put!(body, ", length: {}", packet.wire_len);
    Ok(())
}

fn pim(body: &mut Body, packet: &Piece) -> Printed {
    const TYPES: &[(u8, &str)] = &[
        (0, "Hello"),
        (1, "Register"),
        (2, "Register Stop"),
        (3, "Join / Prune"),
        (4, "Bootstrap"),
        (5, "Assert"),
        (6, "Graft"),
        (7, "Graft Acknowledgement"),
        (8, "Candidate RP Advertisement"),
        (9, "Prune Refresh"),
        (10, "DF Election"),
        (11, "ECMP Redirect"),
    ];
    body.protocol = "pim";
    let first = packet.u8(0)?;
    put!(body, "PIMv{}", first >> 4);
    if first >> 4 == 2 {
        put!(body, ", {}", name_of(TYPES, first & 0xf).unwrap_or("Unknown Type"));
    }
    put!(body, ", length {}", packet.wire_len);
    Ok(())
}

fn vrrp(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "vrrp";
    let first = packet.u8(0)?;
    let (version, kind) = (first >> 4, first & 0xf);
    put!(body, "VRRPv{version}, ");
    match kind {
        1 => put!(body, "Advertisement"),
        _ => put!(body, "unknown type ({kind})"),
    }
    let around = body.layers.innermost();
    let hops = around.and_then(|ip| IpView::new(body.layers.data(), ip)).map(|ip| ip.hop_limit());
    if let Some(hops) = hops.filter(|hops| *hops != 255) {
        put!(body, ", (ttl {hops})");
    }
    if !(2..=3).contains(&version) || kind != 1 {
        return Ok(());
    }
    put!(body, ", vrid {}, prio {}", packet.u8(1)?, packet.u8(2)?);
    if version == 2 {
        let names = [(0, "none"), (1, "simple"), (2, "ah")];
        put!(body, ", authtype {}", name_of(&names, packet.u8(4)?).unwrap_or("unknown"));
        put!(body, ", intvl {}s, length {}", packet.u8(5)?, packet.wire_len);
    } else {
        put!(body, ", intvl {}cs, length {}", packet.be16(4)? & 0xfff, packet.wire_len);
    }
    Ok(())
}

fn eapol(body: &mut Body, packet: &Piece) -> Printed {
    const TYPES: &[(u8, &str)] = &[
        (0, "EAP packet"),
        (1, "EAPOL start"),
        (2, "EAPOL logoff"),
        (3, "EAPOL key"),
        (4, "Encapsulated ASF alert"),
    ];
    body.protocol = "eap";
    let (version, kind) = (packet.u8(0)?, packet.u8(1)?);
    put!(body, "{} ({kind}) v{version}", name_of(TYPES, kind).unwrap_or("unknown"));
    put!(body, ", len {}", packet.be16(2)?);
    Ok(())
}

/// Prints RIP for IPv4, over UDP.
pub(crate) fn rip(body: &mut Body, packet: &Piece) -> Printed {
    const COMMANDS: &[(u8, &str)] = &[
        (1, "Request"),
        (2, "Response"),
        (3, "Trace on"),
        (4, "Trace off"),
        (5, "Sun"),
        (9, "Triggered Request"),
        (10, "Triggered Response"),
        (11, "Triggered ACK"),
    ];
    body.protocol = "rip";
    packet.take(0, 4)?;
    let version = packet.u8(1)?;
    put!(body, "RIPv{version}");
    if version != 0 {
        put!(body, ", ");
        named(body, COMMANDS, packet.u8(0)?, "unknown command");
        put!(body, ", length: {}", packet.wire_len);
    }
    Ok(())
}
