//! NTP: version, mode, and with `-v` the fields. Source: RFC 5905.

use crate::body::{Body, put};
use crate::text::{Piece, Printed, escape, name_of};

const MODES: &[(u8, &str)] = &[
    (0, "unspecified"),
    (1, "symmetric active"),
    (2, "symmetric passive"),
    (3, "Client"),
    (4, "Server"),
    (5, "Broadcast"),
    (6, "Control Message"),
    (7, "Reserved"),
];

pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "ntp";
    let status = packet.u8(0)?;
    let mode = status & 7;
    put!(body, "NTPv{}", status >> 3 & 7);
    put!(body, ", {}, length {}", name_of(MODES, mode).unwrap_or("Unknown"), packet.wire_len);
    if body.options.verbose == 0 || mode > 5 {
        return Ok(());
    }
    let leap = ["", "+1s", "-1s", "clock unsynchronized"][usize::from(status >> 6)];
    put!(body, "\n\tLeap indicator: {leap} ({})", status & 0xc0);
    let stratum = packet.u8(1)?;
    let names = [(0, "unspecified"), (1, "primary reference")];
    let name = name_of(&names, stratum).unwrap_or(match stratum {
        2..16 => "secondary reference",
        _ => "reserved",
    });
    put!(body, ", Stratum {stratum} ({name})");
    let (poll, precision) = (packet.u8(2)? as i8, packet.u8(3)? as i8);
    put!(body, ", poll {poll}");
    match poll {
        0..32 => put!(body, " ({}s)", 1_u32 << poll),
        -31..0 => put!(body, " (1/{}s)", 1_u32 << -poll),
        _ => {}
    }
    put!(body, ", precision {precision}");
    for (name, at) in [("Root Delay", 4), ("Root dispersion", 8)] {
        let (seconds, fraction) = (packet.be16(at)?, u64::from(packet.be16(at + 2)?));
        let start = if at == 4 { "\n\t" } else { ", " };
        put!(body, "{start}{name}: {seconds}.{:06}", fraction * 1_000_000 / 65_536);
    }
    put!(body, ", Reference-ID: ");
    match stratum {
        0 => put!(body, "(unspec)"),
        1 => escape(packet.take(12, 4)?, body.out),
        _ => put!(body, "{:#010x}", packet.be32(12)?),
    }
    for (name, at) in [("Reference", 16), ("Originator", 24), ("Receive", 32), ("Transmit", 40)] {
        let (seconds, fraction) = (packet.be32(at)?, u64::from(packet.be32(at + 4)?));
        let nanoseconds = (fraction * 1_000_000_000) >> 32;
        let label = format!("{name} Timestamp:");
        put!(body, "\n\t  {label:<21} {seconds}.{nanoseconds:09}");
    }
    Ok(())
}
