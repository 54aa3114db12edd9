//! ICMPv6: errors, echo, neighbour discovery, multicast listeners.

use crate::application::dns;
use crate::body::{Body, Flow, Step, put};
use crate::icmp::Membership;
use crate::text::{Cut, Piece, Printed, bits, duration, expected_checksum, hex, name_of};
use crate::udp;
use fyke_frame::ethertype;
use fyke_frame::walk::{Start, walk_from};

const TYPES: &[(u8, &str)] = &[
    (1, "destination unreachable"),
    (2, "packet too big"),
    (3, "time exceeded in-transit"),
    (4, "parameter problem"),
    (128, "echo request"),
    (129, "echo reply"),
    (130, "multicast listener query"),
    (131, "multicast listener report"),
    (132, "multicast listener done"),
    (133, "router solicitation"),
    (134, "router advertisement"),
    (135, "neighbor solicitation"),
    (136, "neighbor advertisement"),
    (137, "redirect"),
    (138, "router renumbering"),
    (139, "node information query"),
    (140, "node information reply"),
    (141, "inverse neighbor solicitation"),
    (142, "inverse neighbor advertisement"),
    (143, "multicast listener report v2"),
    (144, "ha discovery request"),
    (145, "ha discovery reply"),
    (146, "mobile router solicitation"),
    (147, "mobile router advertisement"),
    (155, "RPL"),
    (200, "mtrace response"),
    (201, "mtrace message"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let message = body.whole(layer);
    let verbose = body.options.verbose > 0;
    if verbose && !body.fragmented {
        show_checksum(body, index, &message)?;
    }
    let (kind, code) = (message.u8(0)?, message.u8(1)?);
    match name_of(TYPES, kind) {
        Some(name) => put!(body, "ICMP6, {name}"),
        None => put!(body, "ICMP6, unknown icmp6 type ({kind})"),
    }
    if verbose && matches!(kind, 133..=137 | 145 | 147) {
        put!(body, ", length {}", message.wire_len);
    }
    match kind {
        1 => unreachable(body, &message, code)?,
        2 => put!(body, ", mtu {}", message.be32(4)?),
        3 => match code {
            0 => put!(body, " for {}", message.ipv6(8 + 24)?),
            1 => put!(body, " (reassembly)"),
            _ => put!(body, ", unknown code ({code})"),
        },
        4 => parameter_problem(body, &message, code)?,
        128 | 129 => put!(body, ", id {}, seq {}", message.be16(4)?, message.be16(6)?),
        130 if message.wire_len >= 28 => listener_query(body, &message)?,
        130..=132 => listener(body, &message)?,
        133 if verbose => options(body, &message.from(8))?,
        134 if verbose => router(body, &message)?,
        135 => {
            put!(body, ", who has {}", message.ipv6(8)?);
            if verbose {
                options(body, &message.from(24))?;
            }
        }
        136 => {
            put!(body, ", tgt is {}", message.ipv6(8)?);
            if verbose {
                let flags = [(0x80, "router"), (0x40, "solicited"), (0x20, "override")];
                put!(body, ", Flags [{}]", bits(&flags, message.u8(4)?.into(), ", ", "none"));
                options(body, &message.from(24))?;
            }
        }
        137 => {
            put!(body, ", {} to {}", message.ipv6(24)?, message.ipv6(8)?);
            if verbose {
                options(body, &message.from(40))?;
            }
        }
        143 => listener_report(body, &message)?,
        _ => {}
    }
    if !verbose || name_of(TYPES, kind).is_none() {
        put!(body, ", length {}", message.wire_len);
    }
    Ok(Flow::End)
}

fn show_checksum(body: &mut Body, index: usize, message: &Piece) -> Printed {
    let Ok(bytes) = message.take(0, message.wire_len) else { return Ok(()) };
    let found = message.be16(2)?;
    match udp::transport_checksum(body, index, 58, bytes) {
        Some(0) => put!(body, "[icmp6 sum ok] "),
        Some(sum) => {
            let expected = expected_checksum(found, sum);
            put!(body, "[bad icmp6 cksum {found:#06x} -> {expected:#06x}!] ");
        }
        None => {}
    }
    Ok(())
}

fn unreachable(body: &mut Body, message: &Piece, code: u8) -> Printed {
    const CODES: &[(u8, &str)] = &[
        (0, "unreachable route"),
        (1, " unreachable prohibited"),
        (2, "beyond scope"),
        (3, "unreachable address"),
        (4, "unreachable port"),
    ];
    match name_of(CODES, code) {
        Some(name) => put!(body, ", {name}"),
        None => put!(body, ", unknown unreach code ({code})"),
    }
    match code {
        0 | 1 | 3 => put!(body, " {}", message.ipv6(8 + 24)?),
        2 => {
            put!(body, " {}, source address ", message.ipv6(8 + 24)?);
            put!(body, "{}", message.ipv6(8 + 8)?);
        }
        4 => {
            let to = message.ipv6(8 + 24)?;
            let quoted = message.from(8);
            let layers = walk_from(quoted.data, quoted.wire_len, Start::EtherType(ethertype::IPV6));
            let ports = layers.ports().ok_or(Cut)?;
            let services = body.options.services.as_ref();
            let port = ports.destination;
            let name = |name: Option<&str>| name.map_or_else(|| port.to_string(), str::to_string);
            match layers.all().ip_protocol().ok_or(Cut)? {
                6 => {
                    let port = name(services.and_then(|services| services.tcp(port)));
                    put!(body, ", {to} tcp port {port}");
                }
                17 => {
                    let port = name(services.and_then(|services| services.udp(port)));
                    put!(body, ", {to} udp port {port}");
                }
                protocol => put!(body, ", {to} protocol {protocol} port {port} unreachable"),
            }
        }
        _ => {}
    }
    Ok(())
}

fn parameter_problem(body: &mut Body, message: &Piece, code: u8) -> Printed {
    message.ipv6(8 + 24)?;
    let octet = message.be32(4)?;
    match code {
        0 => put!(body, ", erroneous - octet {octet}"),
        1 => put!(body, ", next header - octet {octet}"),
        2 => put!(body, ", option - octet {octet}"),
        3 => put!(body, ", incomplete header chain - octet {octet}"),
        _ => put!(body, ", code-#{code}"),
    }
    Ok(())
}

fn listener(body: &mut Body, message: &Piece) -> Printed {
    if message.data.len() >= 24 {
        put!(body, "max resp delay: {} addr: ", message.be16(4)?);
        put!(body, "{}", message.ipv6(8)?);
    }
    Ok(())
}

fn listener_query(body: &mut Body, message: &Piece) -> Printed {
    let code = u32::from(message.be16(4)?);
    put!(body, " v2");
    if body.options.verbose > 0 {
        let delay = match code {
            0..32_768 => code,
            _ => ((code & 0xfff) | 0x1000) << (((code & 0x7000) >> 12) + 3),
        };
        put!(body, " [max resp delay={delay}]");
    }
    put!(body, " [gaddr {}", message.ipv6(8)?);
    if body.options.verbose > 0 {
        let (flags, code) = (message.u8(24)?, u32::from(message.u8(25)?));
        put!(body, "{}", if flags & 8 != 0 { " sflag" } else { "" });
        if flags & 7 != 0 {
            put!(body, " robustness={}", flags & 7);
        }
        let interval = match code {
            0..128 => code,
            _ => ((code & 0xf) | 0x10) << (((code & 0x70) >> 4) + 3),
        };
        put!(body, " qqi={interval}");
    }
    match message.be16(26)? {
        0 => {}
        count => MLD2.sources(body, message, 28, count.into())?,
    }
    put!(body, "]");
    Ok(())
}

const MLD2: Membership = Membership {
    address_len: 16,
    unknown: "v2-report",
    address: |message, at| Ok(message.ipv6(at)?.to_string()),
};

fn listener_report(body: &mut Body, message: &Piece) -> Printed {
    if message.wire_len < 8 {
        put!(body, " [invalid len {}]", message.wire_len);
        return Ok(());
    }
    MLD2.report(body, message)
}

fn preference(flags: u8) -> &'static str {
    ["medium", "high", "rsv", "low"][usize::from(flags >> 3 & 3)]
}

fn lifetime(seconds: u32) -> String {
    if seconds == u32::MAX { "infinity".to_string() } else { format!("{seconds}s") }
}

fn router(body: &mut Body, message: &Piece) -> Printed {
    let flags = message.u8(5)?;
    let names = [(0x80, "managed"), (0x40, "other stateful"), (0x20, "home agent")];
    put!(body, "\n\thop limit {}, Flags [", message.u8(4)?);
    put!(body, "{}], pref {}", bits(&names, flags.into(), ", ", "none"), preference(flags));
    put!(body, ", router lifetime {}s, reachable time ", message.be16(6)?);
    put!(body, "{}ms, retrans timer {}ms", message.be32(8)?, message.be32(12)?);
    options(body, &message.from(16))
}

const OPTIONS: &[(u8, &str)] = &[
    (1, "source link-address"),
    (2, "destination link-address"),
    (3, "prefix info"),
    (4, "redirected header"),
    (5, "mtu"),
    (7, "advertisement interval"),
    (8, "homeagent information"),
    (24, "route info"),
    (25, "rdnss"),
    (31, "dnssl"),
];

/// Prints neighbour discovery's options, one per line.
fn options(body: &mut Body, all: &Piece) -> Printed {
    let mut at = 0;
    while at < all.wire_len {
        let (kind, units) = (all.u8(at)?, usize::from(all.u8(at + 1)?));
        if units == 0 {
            return Err(Cut);
        }
        let bytes = all.take(at, 8 * units)?;
        let option = Piece { data: bytes, wire_len: bytes.len() };
        let name = name_of(OPTIONS, kind).unwrap_or("unknown");
        put!(body, "\n\t  {name} option ({kind}), length {} ({units}): ", 8 * units);
        option_value(body, kind, &option)?;
        at += 8 * units;
    }
    Ok(())
}

fn option_value(body: &mut Body, kind: u8, option: &Piece) -> Printed {
    match kind {
        1 | 2 => {
            let parts: Vec<_> = option.data[2..].iter().map(|b| format!("{b:02x}")).collect();
            put!(body, "{}", parts.join(":"));
        }
        3 => {
            put!(body, "{}/{}", option.ipv6(16)?, option.u8(2)?);
            let names = [(0x80, "onlink"), (0x40, "auto"), (0x20, "router")];
            put!(body, ", Flags [{}]", bits(&names, option.u8(3)?.into(), ", ", "none"));
            put!(body, ", valid time {}", lifetime(option.be32(4)?));
            put!(body, ", pref. time {}", lifetime(option.be32(8)?));
        }
        5 => put!(body, " {}", option.be32(4)?),
        7 => put!(body, " {}ms", option.be32(4)?),
        8 => put!(body, " preference {}, lifetime {}", option.be16(4)?, option.be16(6)?),
        24 => {
            let mut prefix = [0; 16];
            let there = &option.data[8..option.data.len().min(24)];
            prefix[..there.len()].copy_from_slice(there);
            let prefix = std::net::Ipv6Addr::from(prefix);
            put!(body, " {prefix}/{}, pref={}", option.u8(2)?, preference(option.u8(3)?));
            put!(body, ", lifetime={}", lifetime(option.be32(4)?));
        }
        25 => {
            put!(body, " lifetime {}s,", option.be32(4)?);
            for at in (8..option.data.len()).step_by(16) {
                put!(body, " addr: {}", option.ipv6(at)?);
            }
        }
        31 => {
            put!(body, " lifetime {}, domain(s):", duration(option.be32(4)?));
            let mut at = 8;
            while option.u8(at).is_ok_and(|byte| byte != 0) {
                put!(body, " ");
                at = dns::name(body, option, at)?;
            }
        }
        _ => {
            put!(body, "0x");
            hex(&option.data[2..], body.out);
        }
    }
    Ok(())
}
