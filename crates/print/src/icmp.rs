//! ICMP for IPv4, and IGMP.

use crate::body::{Body, Flow, Step, put};
use crate::show::say;
use crate::text::{Cut, Piece, Printed, duration, expected_checksum, name_of};
use fyke_frame::walk::{Start, walk_from};
use fyke_frame::{LinkType, checksum, ethertype};

/// Most ICMP errors inside each other that are followed.
const MAX_QUOTES: u8 = 2;

const TYPES: &[(u8, &str)] = &[
    (0, "echo reply"),
    (4, "source quench"),
    (8, "echo request"),
    (10, "router solicitation"),
    (13, "time stamp request"),
    (14, "time stamp reply"),
    (15, "information request"),
    (16, "information reply"),
    (17, "address mask request"),
];

pub(crate) fn print(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    let message = body.whole(layer);
    if body.options.verbose == 0
        && let [8 | 0, _, _, _, id_high, id_low, high, low, ..] = *message.data
    {
        // PERF: most messages are echoes; their text needs no buffer of its own.
        let kind = if message.data[0] == 8 { "request" } else { "reply" };
        let [id, sequence] = [[id_high, id_low], [high, low]].map(u16::from_be_bytes);
        say!(body, "ICMP echo ", kind, ", id ", id, ", seq ", sequence);
        say!(body, ", length ", message.wire_len);
        return Ok(Flow::End);
    }
    // tcpdump forms the text before it prints it: of a cut message only the mark is printed.
    let text = describe(body, &message)?;
    put!(body, "ICMP {text}, length {}", message.wire_len);
    if body.options.verbose > 0 {
        if !body.fragmented && message.data.len() >= message.wire_len {
            let sum = checksum(&[message.take(0, message.wire_len)?]);
            if sum != 0 {
                let found = message.be16(2)?;
                let expected = expected_checksum(found, sum);
                put!(body, " (wrong icmp cksum {found:x} (->{expected:x})!)");
            }
        }
        if matches!(message.u8(0)?, 3 | 4 | 5 | 11 | 12) {
            put!(body, "\n\t");
            quote(body, &message.from(8), ethertype::IPV4);
        }
    }
    Ok(Flow::End)
}

/// Prints the packet that an error quotes.
pub(crate) fn quote(body: &mut Body, packet: &Piece, number: u16) {
    if body.quotes == MAX_QUOTES {
        return put!(body, "[quoted packet not shown]");
    }
    // The quote is as long as its own header states, not as the rest of the message.
    let layers = walk_from(packet.data, packet.wire_len, Start::EtherType(number));
    let claimed_len = match number {
        ethertype::IPV4 => packet.be16(2).map(usize::from),
        _ => packet.be16(4).map(|len| usize::from(len) + 40),
    };
    let wire_len = claimed_len.unwrap_or(packet.wire_len);
    let mut inner =
        Body::new(body.options, body.memory, &layers, LinkType::RAW, wire_len, body.out);
    inner.end = wire_len;
    inner.quotes = body.quotes + 1;
    inner.print();
}

fn describe(body: &Body, message: &Piece) -> Result<String, Cut> {
    let (kind, code) = (message.u8(0)?, message.u8(1)?);
    Ok(match kind {
        0 | 8 => {
            let what = if kind == 8 { "request" } else { "reply" };
            format!("echo {what}, id {}, seq {}", message.be16(4)?, message.be16(6)?)
        }
        3 => unreachable(body, message, code)?,
        5 => {
            let (what, to) = match code {
                0 => ("redirect".to_string(), "to net"),
                1 => ("redirect".to_string(), "to host"),
                2 => ("redirect-tos".to_string(), "to net"),
                3 => ("redirect-tos".to_string(), "to host"),
                _ => (format!("redirect-#{code}"), "to"),
            };
            format!("{what} {} {to} {}", message.ipv4(8 + 16)?, message.ipv4(4)?)
        }
        9 => advertisement(message)?,
        11 => {
            message.ipv4(8 + 16)?;
            match code {
                0 => "time exceeded in-transit".to_string(),
                1 => "ip reassembly time exceeded".to_string(),
                _ => format!("time exceeded-#{code}"),
            }
        }
        12 if code != 0 => format!("parameter problem - code {code}"),
        12 => format!("parameter problem - octet {}", message.u8(4)?),
        13 => format!("time stamp query id {} seq {}", message.be16(4)?, message.be16(6)?),
        14 => {
            let clock = |at| {
                let ms = message.be32(at)?;
                let (s, m, h) = (ms / 1000 % 60, ms / 60_000 % 60, ms / 3_600_000);
                Ok(format!("{h:02}:{m:02}:{s:02}.{:03}", ms % 1000))
            };
            let (id, sequence) = (message.be16(4)?, message.be16(6)?);
            let (sent, received, answered) = (clock(8)?, clock(12)?, clock(16)?);
            format!(
                "time stamp reply id {id} seq {sequence}: org {sent}, recv {received}, \
                 xmit {answered}"
            )
        }
        18 => format!("address mask is {:#010x}", message.be32(8)?),
        _ => match name_of(TYPES, kind) {
            Some(name) => name.to_string(),
            None => format!("type-#{kind}"),
        },
    })
}

fn unreachable(body: &Body, message: &Piece, code: u8) -> Result<String, Cut> {
    let to = message.ipv4(8 + 16)?;
    Ok(match code {
        0 => format!("net {to} unreachable"),
        1 => format!("host {to} unreachable"),
        2 => format!("{to} protocol {} unreachable", message.u8(8 + 9)?),
        3 => {
            let header_len = 4 * usize::from(message.u8(8)? & 0xf);
            let port = message.be16(8 + header_len + 2)?;
            let services = body.options.services.as_ref();
            let name = |name: Option<&str>| name.map_or_else(|| port.to_string(), str::to_string);
            match message.u8(8 + 9)? {
                6 => format!(
                    "{to} tcp port {} unreachable",
                    name(services.and_then(|services| services.tcp(port)))
                ),
                17 => format!(
                    "{to} udp port {} unreachable",
                    name(services.and_then(|services| services.udp(port)))
                ),
                protocol => format!("{to} protocol {protocol} port {port} unreachable"),
            }
        }
        4 => match message.be16(6)? {
            0 => format!("{to} unreachable - need to frag"),
            mtu => format!("{to} unreachable - need to frag (mtu {mtu})"),
        },
        5 => format!("{to} unreachable - source route failed"),
        6 => format!("net {to} unreachable - unknown"),
        7 => format!("host {to} unreachable - unknown"),
        8 => format!("{to} unreachable - source host isolated"),
        9 => format!("net {to} unreachable - admin prohibited"),
        10 => format!("host {to} unreachable - admin prohibited"),
        11 => format!("net {to} unreachable - tos prohibited"),
        12 => format!("host {to} unreachable - tos prohibited"),
        13 => format!("host {to} unreachable - admin prohibited filter"),
        14 => format!("host {to} unreachable - host precedence violation"),
        15 => format!("host {to} unreachable - precedence cutoff"),
        _ => format!("{to} unreachable - #{code}"),
    })
}

fn advertisement(message: &Piece) -> Result<String, Cut> {
    let (count, size, lifetime) = (message.u8(4)?, message.u8(5)?, message.be16(6)?);
    let lifetime = match lifetime {
        0..60 => lifetime.to_string(),
        60..3600 => format!("{}:{:02}", lifetime / 60, lifetime % 60),
        _ => format!("{}:{:02}:{:02}", lifetime / 3600, lifetime % 3600 / 60, lifetime % 60),
    };
    let mut text = format!("router advertisement lifetime {lifetime} {count}:");
    if size != 2 {
        return Ok(format!("{text} [size {size}]"));
    }
    for entry in 0..usize::from(count) {
        let at = 8 + 8 * entry;
        text += &format!(" {{{} {}}}", message.ipv4(at)?, message.be32(at + 4)?);
    }
    Ok(text)
}

pub(crate) fn igmp(body: &mut Body, index: usize) -> Step {
    let layer = body.at(index).ok_or(Cut)?;
    igmp_message(body, &body.whole(layer))?;
    Ok(Flow::End)
}

/// Prints an IGMP message, which may be shorter than its header.
pub(crate) fn igmp_message(body: &mut Body, message: &Piece) -> Printed {
    body.protocol = "igmp";
    if body.options.quiet {
        put!(body, "igmp");
        return Ok(());
    }
    match message.u8(0)? {
        0x11 if message.wire_len >= 12 => query3(body, message)?,
        0x11 => {
            put!(body, "igmp query");
            let tenths = message.u8(1)?;
            put!(body, " {}", if tenths == 0 { "v1" } else { "v2" });
            if tenths != 0 && tenths != 100 {
                put!(body, " [max resp time {tenths}]");
            }
            if message.be32(4)? != 0 {
                put!(body, " [gaddr {}]", message.ipv4(4)?);
            }
            odd_len(body, message);
        }
        0x12 => {
            put!(body, "igmp v1 report {}", message.ipv4(4)?);
            odd_len(body, message);
        }
        0x16 => put!(body, "igmp v2 report {}", message.ipv4(4)?),
        0x17 => put!(body, "igmp leave {}", message.ipv4(4)?),
        0x22 => report3(body, message)?,
        0x13 => put!(body, "igmp dvmrp"),
        0x14 => put!(body, "igmp pimv1"),
        kind => put!(body, "igmp-{kind}"),
    }
    if body.options.verbose > 0 && message.data.len() >= message.wire_len && message.wire_len >= 4 {
        let bytes = message.take(0, message.wire_len)?;
        if checksum(&[bytes]) != 0 {
            put!(body, " bad igmp cksum {:x}!", message.be16(2)?);
        }
    }
    Ok(())
}

fn odd_len(body: &mut Body, message: &Piece) {
    if message.wire_len != 8 {
        put!(body, " [len {}]", message.wire_len);
    }
}

fn query3(body: &mut Body, message: &Piece) -> Printed {
    put!(body, "igmp query v3");
    if !message.wire_len.is_multiple_of(4) {
        put!(body, " [invalid len {}]", message.wire_len);
        return Ok(());
    }
    let code = u32::from(message.u8(1)?);
    let tenths = match code {
        0..128 => code,
        _ => ((code & 0xf) | 0x10) << (((code & 0x70) >> 4) + 3),
    };
    if code != 100 {
        match tenths {
            0..600 => put!(body, " [max resp time {}.{}s]", tenths / 10, tenths % 10),
            _ => put!(body, " [max resp time {}]", duration(tenths / 10)),
        }
    }
    if message.be32(4)? == 0 {
        return Ok(());
    }
    put!(body, " [gaddr {}", message.ipv4(4)?);
    match message.be16(10)? {
        0 => {}
        count => IGMP3.sources(body, message, 12, count.into())?,
    }
    put!(body, "]");
    Ok(())
}

const IGMP3: Membership = Membership {
    address_len: 4,
    unknown: "v3-report",
    address: |message, at| Ok(message.ipv4(at)?.to_string()),
};

fn report3(body: &mut Body, message: &Piece) -> Printed {
    put!(body, "igmp v3 report");
    if message.wire_len < 16 || !message.wire_len.is_multiple_of(4) {
        put!(body, " [invalid len {}]", message.wire_len);
        return Ok(());
    }
    IGMP3.report(body, message)
}

/// Records of groups and their sources, which IGMPv3 (RFC 3376, 4.2) and MLDv2 (RFC 3810, 5.2) have in common but for
/// the length of an address.
pub(crate) struct Membership {
    /// Length of an address.
    pub(crate) address_len: usize,
    /// Prefix of a record of an unknown kind.
    pub(crate) unknown: &'static str,
    /// The text of the address at an offset.
    pub(crate) address: fn(&Piece, usize) -> Result<String, Cut>,
}

impl Membership {
    /// Prints the records of a report.
    pub(crate) fn report(&self, body: &mut Body, message: &Piece) -> Printed {
        const KINDS: &[(u8, &str)] =
            &[(1, "is_in"), (2, "is_ex"), (3, "to_in"), (4, "to_ex"), (5, "allow"), (6, "block")];
        let record_len = 4 + self.address_len;
        let count = message.be16(6)?;
        put!(body, ", {count} group record(s)");
        if body.options.verbose == 0 {
            return Ok(());
        }
        let mut at = 8;
        for _ in 0..count {
            if message.wire_len < at + record_len {
                put!(body, " [invalid number of groups]");
                return Ok(());
            }
            put!(body, " [gaddr {}", (self.address)(message, at + 4)?);
            let kind = message.u8(at)?;
            match name_of(KINDS, kind) {
                Some(name) => put!(body, " {name}"),
                None => put!(body, "  [{}-#{kind}]", self.unknown),
            }
            let source_count = usize::from(message.be16(at + 2)?);
            self.sources(body, message, at + record_len, source_count)?;
            put!(body, "]");
            at += record_len + self.address_len * source_count;
        }
        Ok(())
    }

    /// Prints the sources of a group.
    pub(crate) fn sources(
        &self,
        body: &mut Body,
        message: &Piece,
        at: usize,
        count: usize,
    ) -> Printed {
        if message.wire_len < at + self.address_len * count {
            put!(body, " [invalid number of sources {count}]");
        } else if body.options.verbose > 1 {
            put!(body, " {{");
            for number in 0..count {
                put!(body, " {}", (self.address)(message, at + self.address_len * number)?);
            }
            put!(body, " }}");
        } else {
            put!(body, ", {count} source(s)");
        }
        Ok(())
    }
}
