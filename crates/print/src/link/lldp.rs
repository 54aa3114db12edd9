//! LLDP: the name of the device. Source: IEEE 802.1AB.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, until_zero};

const KINDS: &[(u16, &str)] = &[
    (0, "End"),
    (1, "Chassis ID"),
    (2, "Port ID"),
    (3, "Time to Live"),
    (4, "Port Description"),
    (5, "System Name"),
    (6, "System Description"),
    (7, "System Capabilities"),
    (8, "Management Address"),
    (127, "Organization specific"),
];
const SYSTEM_NAME: u16 = 5;

/// Prints the values' names with `-v`; without it, the name of the system.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "lldp";
    put!(body, "LLDP, length {}", packet.wire_len);
    let verbose = body.options.verbose > 0;
    let mut at = 0;
    while at + 2 <= packet.wire_len && !body.is_full() {
        let header = packet.be16(at)?;
        let (kind, len) = (header >> 9, usize::from(header & 0x1ff));
        at += 2;
        if verbose {
            let name = crate::text::name_of(KINDS, kind).unwrap_or("Unknown");
            put!(body, "\n\t{name} TLV ({kind}), length {len}");
        }
        // An empty value ends the list, as does its end mark.
        if len == 0 {
            break;
        }
        packet.take(at, len)?;
        if at + len > packet.wire_len {
            return Err(Cut);
        }
        match kind {
            3 if verbose && len >= 2 => put!(body, ": TTL {}s", packet.be16(at)?),
            4 | SYSTEM_NAME if verbose || kind == SYSTEM_NAME => {
                put!(body, ": ");
                // The text may fill its value without a zero byte.
                let _complete = until_zero(packet, at, len, body.out);
            }
            6 if verbose => {
                put!(body, "\n\t  ");
                let _complete = until_zero(packet, at, len, body.out);
            }
            _ => {}
        }
        at += len;
    }
    Ok(())
}
