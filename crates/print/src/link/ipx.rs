//! IPX, with the service and routing information that NetWare sends. Source: Novell, IPX Router
//! Specification 1.20.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, escape};
use fyke_frame::walk::view::MacAddr;

/// Length of the header.
const HEADER_LEN: usize = 30;
/// Bytes of a service: kind, name, network, node, socket, distance.
const SERVICE_LEN: usize = 64;
/// Bytes of a route: network, distance, ticks.
const ROUTE_LEN: usize = 8;

fn address(body: &mut Body, packet: &Piece, at: usize) -> Printed {
    let node = packet.take(at + 4, 6)?.try_into().unwrap_or_default();
    put!(body, "{:08x}.{}", packet.be32(at)?, MacAddr(node));
    Ok(())
}

/// Prints a packet.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "ipx";
    if !body.options.link_header {
        put!(body, "IPX ");
    }
    address(body, packet, 18)?;
    put!(body, ".{:04x} > ", packet.be16(28)?);
    address(body, packet, 6)?;
    let socket = packet.be16(16)?;
    put!(body, ".{socket:04x}: ");
    let length = usize::from(packet.be16(2)?);
    if length < HEADER_LEN {
        put!(body, "[length {length} < {HEADER_LEN}] (invalid)");
        return Ok(());
    }
    let length = length - HEADER_LEN;
    let payload = Piece { wire_len: length, ..packet.from(HEADER_LEN) };
    match socket {
        0x0451 => put!(body, "ipx-ncp {length}"),
        0x0452 => services(body, &payload)?,
        0x0453 => routes(body, &payload)?,
        0x0455 => put!(body, "ipx-netbios {length}"),
        0x0456 => put!(body, "ipx-diags {length}"),
        0x0553 => put!(body, "ipx-nwlink-dgm {length}"),
        0x85be => crate::routing::eigrp(body, &payload)?,
        _ => put!(body, "ipx-#{socket:x} {length}"),
    }
    Ok(())
}

fn invalid(body: &mut Body) -> Printed {
    put!(body, " (invalid)");
    Ok(())
}

fn services(body: &mut Body, packet: &Piece) -> Printed {
    let command = packet.be16(0)?;
    if packet.wire_len < 2 {
        return invalid(body);
    }
    match command {
        1 => put!(body, "ipx-sap-req {:04x}", packet.be16(2)?),
        3 => put!(body, "ipx-sap-nearest-req {:04x}", packet.be16(2)?),
        2 | 4 => {
            put!(body, "ipx-sap-{}resp", if command == 2 { "" } else { "nearest-" });
            return list(body, packet);
        }
        _ => put!(body, "ipx-sap-?{command:x}"),
    }
    Ok(())
}

/// Prints up to eight services.
fn list(body: &mut Body, packet: &Piece) -> Printed {
    for at in (0..8).map(|service| 2 + SERVICE_LEN * service) {
        if at >= packet.wire_len {
            break;
        }
        let left = packet.wire_len - at;
        packet.take(at, 2)?;
        if left < 2 {
            return invalid(body);
        }
        put!(body, " {:04x} '", packet.be16(at)?);
        if left < 50 {
            put!(body, "'");
            return invalid(body);
        }
        name(body, packet, at + 2)?;
        put!(body, "'");
        packet.take(at + 50, 10)?;
        if left < 60 {
            return invalid(body);
        }
        put!(body, " addr ");
        address(body, packet, at + 50)?;
        packet.take(at + 60, 4)?;
        if left < SERVICE_LEN {
            return invalid(body);
        }
    }
    Ok(())
}

fn name(body: &mut Body, packet: &Piece, at: usize) -> Result<(), Cut> {
    let bytes = packet.take(at, 48)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    escape(&bytes[..end], body.out);
    Ok(())
}

fn routes(body: &mut Body, packet: &Piece) -> Printed {
    let command = packet.be16(0)?;
    let limit = match command {
        1 => 1,
        2 => 50,
        _ => {
            put!(body, "ipx-rip-?{command:x}");
            return Ok(());
        }
    };
    put!(body, "ipx-rip-{}", if command == 1 { "req" } else { "resp" });
    for at in (0..limit).map(|route| 2 + ROUTE_LEN * route) {
        if at >= packet.wire_len {
            break;
        }
        if at + ROUTE_LEN > packet.wire_len {
            return invalid(body);
        }
        let (network, distance) = (packet.be32(at)?, packet.be16(at + 4)?);
        put!(body, " {network:08x}/{distance}.{}", packet.be16(at + 6)?);
    }
    Ok(())
}
