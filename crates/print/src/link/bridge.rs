//! Protocols between bridges: spanning tree, Cisco's discovery, trunking and link detection, the
//! loopback test of Ethernet, Realtek's switches. Source: IEEE 802.1D, 802.1Q, RFC 5171, Ethernet
//! specification 2.0 (chapter 8).

use crate::body::{Body, put};
use crate::text::{self, Cut, Piece, Printed, name_of};
use fyke_frame::walk::view::MacAddr;

/// Shortest unit of a configuration, without the length of version 1.
const CONFIGURATION_LEN: usize = 35;
/// Shortest unit with several trees.
const SEVERAL_LEN: usize = 102;

const FLAGS: &[(u32, &str)] = &[
    (0x01, "Topology change"),
    (0x02, "Proposal"),
    (0x10, "Learn"),
    (0x20, "Forward"),
    (0x40, "Agreement"),
    (0x80, "Topology change ACK"),
];

const ROLES: [&str; 4] = ["Unknown", "Alternate", "Root", "Designated"];

fn invalid(body: &mut Body) -> Printed {
    put!(body, " (invalid)");
    Ok(())
}

/// A bridge's priority and address at an offset.
fn bridge(unit: &Piece, at: usize) -> Result<(u16, MacAddr), Cut> {
    Ok((unit.be16(at)?, MacAddr(unit.take(at + 2, 6)?.try_into().unwrap_or_default())))
}

/// Prints bridge protocol data units.
pub(super) fn spanning_tree(body: &mut Body, unit: &Piece) -> Printed {
    body.protocol = "stp";
    let length = unit.wire_len;
    if length < 4 {
        return invalid(body);
    }
    if unit.be16(0)? != 0 {
        put!(body, "unknown STP version, length {length}");
        return Ok(());
    }
    let versions = [(0, "802.1d"), (2, "802.1w"), (3, "802.1s"), (4, "802.1aq")];
    let version = unit.u8(2)?;
    let Some(name) = name_of(&versions, version) else {
        put!(body, "STP Unknown STP protocol ({version:#04x})");
        return Ok(());
    };
    put!(body, "STP {name}, ");
    let kind = unit.u8(3)?;
    let kinds = [(0x00, "Config"), (0x02, "Rapid STP"), (0x80, "Topology Change")];
    match name_of(&kinds, kind) {
        Some(name) => put!(body, "{name}"),
        None => put!(body, "Unknown BPDU Type ({kind:#04x})"),
    }
    match (kind, version) {
        (0, _) if length < CONFIGURATION_LEN => invalid(body),
        (2, 2) if length <= CONFIGURATION_LEN => invalid(body),
        (0, _) | (2, 2) => configuration(body, unit, version),
        (2, 3 | 4) => several(body, unit),
        _ => Ok(()),
    }
}

fn times(body: &mut Body, unit: &Piece) -> Printed {
    let names = ["message-age", "max-age", "hello-time", "forwarding-delay"];
    for (number, name) in names.iter().enumerate() {
        // The unit is 1/256 s.
        let hundredths = (u32::from(unit.be16(27 + 2 * number)?) * 100 + 128) / 256;
        put!(body, "{}{name} ", if number == 0 { "\n\t" } else { ", " });
        put!(body, "{}.{:02}s", hundredths / 100, hundredths % 100);
    }
    Ok(())
}

fn configuration(body: &mut Body, unit: &Piece, version: u8) -> Printed {
    let flags = unit.u8(4)?;
    put!(body, ", Flags [{}]", text::bits(FLAGS, flags.into(), ", ", "none"));
    let (priority, address) = bridge(unit, 17)?;
    put!(body, ", bridge-id {priority:04x}.{address}.{:04x}", unit.be16(25)?);
    put!(body, ", length {}", unit.wire_len);
    if body.options.verbose == 0 {
        return Ok(());
    }
    times(body, unit)?;
    let (priority, address) = bridge(unit, 5)?;
    put!(body, "\n\troot-id {priority:04x}.{address}, root-pathcost {}", unit.be32(13)?);
    if version == 2 {
        put!(body, ", port-role {}", ROLES[usize::from(flags >> 2 & 3)]);
    }
    Ok(())
}

/// Prints the unit of a bridge with several trees.
fn several(body: &mut Body, unit: &Piece) -> Printed {
    let length = unit.wire_len;
    if length < SEVERAL_LEN || unit.u8(35)? != 0 {
        return invalid(body);
    }
    if length < CONFIGURATION_LEN + 1 + 2 + usize::from(unit.be16(36)?) {
        return invalid(body);
    }
    let flags = unit.u8(4)?;
    put!(body, ", CIST Flags [{}]", text::bits(FLAGS, flags.into(), ", ", "none"));
    put!(body, ", length {length}");
    if body.options.verbose == 0 {
        return Ok(());
    }
    let (priority, address) = bridge(unit, 5)?;
    put!(body, "\n\tport-role {}, ", ROLES[usize::from(flags >> 2 & 3)]);
    put!(body, "CIST root-id {priority:04x}.{address}, ");
    put!(body, "CIST ext-pathcost {}", unit.be32(13)?);
    let (priority, address) = bridge(unit, 17)?;
    put!(body, "\n\tCIST regional-root-id {priority:04x}.{address}, ");
    put!(body, "CIST port-id {:04x},", unit.be16(25)?);
    times(body, unit)
}

const DISCOVERED: &[(u16, &str)] = &[
    (0x01, "Device-ID"),
    (0x02, "Address"),
    (0x03, "Port-ID"),
    (0x04, "Capability"),
    (0x05, "Version String"),
    (0x06, "Platform"),
    (0x07, "Prefixes"),
    (0x09, "VTP Management Domain"),
    (0x0a, "Native VLAN ID"),
    (0x0b, "Duplex"),
    (0x14, "System Name"),
    (0x16, "Management Addresses"),
];

/// Prints Cisco's discovery: the name of the device, or with `-v` the names of all values.
pub(super) fn discovery(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "cdp";
    let length = packet.wire_len;
    if length < 4 {
        put!(body, " (packet length {length} < 4)");
        return invalid(body);
    }
    put!(body, "CDPv{}, ttl: {}s", packet.u8(0)?, packet.u8(1)?);
    let verbose = body.options.verbose > 0;
    if verbose {
        let sum = packet.be16(2)?;
        put!(body, ", checksum: {sum:#06x} (unverified), length {length}");
    }
    let (mut at, mut only_name) = (4, true);
    while at < length && !body.is_full() {
        if length - at < 4 {
            put!(body, " (remaining packet length {} < 4)", length - at);
            return invalid(body);
        }
        let (kind, len) = (packet.be16(at)?, usize::from(packet.be16(at + 2)?));
        let name = name_of(DISCOVERED, kind).unwrap_or("unknown field type");
        if len < 4 {
            put!(body, ", {name} TLV length {len} too short");
            return invalid(body);
        }
        if len > length - at {
            put!(body, " (TLV length {len} > {})", length - at);
            return invalid(body);
        }
        let value = packet.take(at + 4, len - 4)?;
        only_name &= kind == 1;
        match verbose {
            true => {
                let plural = if value.len() == 1 { "" } else { "s" };
                put!(body, "\n\t{name} ({kind:#04x}), ");
                put!(body, "value length: {} byte{plural}: ", value.len());
            }
            false if kind == 1 => put!(body, ", Device-ID "),
            false => {}
        }
        match kind {
            1 | 3 | 6 | 9 | 0x14 if verbose || kind == 1 => {
                put!(body, "'");
                text::escape(value, body.out);
                put!(body, "'");
            }
            0x0a if verbose && value.len() == 2 => put!(body, "{}", packet.be16(at + 4)?),
            0x0b if verbose && value.len() == 1 => {
                put!(body, "{}", if value[0] == 0 { "half" } else { "full" });
            }
            _ => {}
        }
        at += len;
    }
    if only_name && !verbose {
        // tcpdump prints the length after its dump of the other values.
        put!(body, ", length {length}");
    }
    Ok(())
}

/// Prints the kind of a message of Cisco's VLAN trunking.
pub(super) fn trunking(body: &mut Body, packet: &Piece) -> Printed {
    const KINDS: &[(u8, &str)] = &[
        (1, "Summary advertisement"),
        (2, "Subset advertisement"),
        (3, "Advertisement request"),
        (4, "Join message"),
    ];
    body.protocol = "vtp";
    packet.take(0, 36)?;
    let kind = packet.u8(1)?;
    put!(body, "VTPv{}, Message ", packet.u8(0)?);
    put!(body, "{} ({kind:#04x}), ", name_of(KINDS, kind).unwrap_or("Unknown message type"));
    put!(body, "length {}", packet.wire_len);
    Ok(())
}

/// Prints Cisco's detection of one-way links.
pub(super) fn link_detection(body: &mut Body, packet: &Piece) -> Printed {
    const CODES: &[(u8, &str)] =
        &[(0, "Reserved"), (1, "Probe message"), (2, "Echo message"), (3, "Flush message")];
    body.protocol = "udld";
    packet.take(0, 4)?;
    let (first, flags) = (packet.u8(0)?, packet.u8(1)?);
    let code = first & 0x1f;
    put!(body, "UDLDv{}, Code ", first >> 5);
    put!(body, "{} ({code:x}), ", name_of(CODES, code).unwrap_or("Reserved"));
    let names = text::bits(&[(1, "RT"), (2, "RSY")], flags.into(), ", ", "none");
    put!(body, "Flags [{names}] ({flags:#04x}), length {}", packet.wire_len);
    Ok(())
}

/// Prints the loopback test of Ethernet.
pub(super) fn loopback(body: &mut Body, packet: &Piece) -> Printed {
    let little = |at: usize| packet.be16(at).map(u16::swap_bytes);
    body.protocol = "loopback";
    put!(body, "Loopback");
    let length = packet.wire_len;
    if length < 2 {
        return invalid(body);
    }
    let skipped = little(0)?;
    put!(body, ", skipCount {skipped}");
    if skipped % 8 != 0 {
        put!(body, " (bogus)");
    }
    let start = 2 + usize::from(skipped);
    if start > length {
        return invalid(body);
    }
    packet.take(2, skipped.into())?;
    if length < start + 2 {
        return invalid(body);
    }
    match little(start)? {
        1 if length < start + 4 => return invalid(body),
        1 => put!(body, ", Reply, receipt number {}", little(start + 2)?),
        2 if length < start + 8 => return invalid(body),
        2 => {
            let address = packet.take(start + 2, 6)?.try_into().unwrap_or_default();
            put!(body, ", Forward Data, forwarding address {}", MacAddr(address));
        }
        function => put!(body, ",  invalid ({function})"),
    }
    match little(start)? {
        1 => put!(body, ", data ({} octets)", length - start - 4),
        2 => put!(body, ", data ({} octets)", length - start - 8),
        _ => {}
    }
    packet.take(start, length - start)?;
    Ok(())
}

/// Prints the protocols of Realtek's switches.
pub(super) fn realtek(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "rtl";
    match packet.u8(0)? {
        1 => {
            let (operation, key) = (packet.u8(1)?, packet.be16(2)?);
            let little = |at| packet.be32(at).map(u32::swap_bytes);
            put!(body, "RRCP {}: ", if operation & 0x80 != 0 { "reply" } else { "query" });
            match operation & 0x7f {
                0 => put!(body, "hello"),
                1 => put!(body, "get"),
                2 => put!(body, "set"),
                other => put!(body, "unknown opcode ({other:#04x})"),
            }
            if matches!(operation & 0x7f, 1 | 2) {
                let register = packet.be16(4)?.swap_bytes();
                put!(body, " addr={register:#06x}, data={:#010x}", little(6)?);
            }
            put!(body, ", auth={key:#06x}");
        }
        2 => put!(body, "REP"),
        3 | 0x23 => put!(body, "RLDP"),
        4 => put!(body, "Realtek 8-byte DSA tag"),
        0x90..=0x9f => put!(body, "Realtek RTL8306 4-byte DSA tag"),
        0xa0..=0xaf => put!(body, "Realtek RTL8366RB 4-byte DSA tag"),
        other => put!(body, "Realtek unknown type {other:#04x}"),
    }
    Ok(())
}
