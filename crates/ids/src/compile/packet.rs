//! Tests of the headers of a packet.

use super::Builder;
use super::number::{bound, within};
use crate::read::RawOption;
use crate::rule::{Bound, FlagsMode, PacketTest, Protocol};

/// Letters of the flags of TCP, from the lowest bit.
const FLAGS: [char; 8] = ['F', 'S', 'R', 'P', 'A', 'U', 'E', 'C'];

impl Builder {
    /// Reads an option of this file; false if it is none.
    pub(super) fn packet_option(&mut self, option: &RawOption) -> Result<bool, String> {
        let name = &*option.name;
        let known = matches!(
            name,
            "dsize"
                | "flags"
                | "tcp.flags"
                | "ttl"
                | "tos"
                | "id"
                | "ip_proto"
                | "sameip"
                | "itype"
                | "icode"
                | "icmp_id"
                | "icmp_seq"
                | "seq"
                | "tcp.seq"
                | "ack"
                | "tcp.ack"
                | "window"
                | "tcp.window"
                | "fragbits"
                | "fragoffset"
                | "ipopts"
                | "tcp.mss"
                | "icmpv6.mtu"
        );
        if !known {
            return Ok(false);
        }
        if let Some(header) = header_of(name) {
            self.check_header(header)?;
        }
        let text = option.text()?;
        let ends = self.ends();
        let word = |text: &str| within(text, 0, u16::MAX.into()).map(|value| value as u16);
        let double = |text: &str| within(text, 0, u32::MAX.into()).map(|value| value as u32);
        let test = match name {
            "dsize" => PacketTest::PayloadLen(bound(text, 65_535, ends)?),
            "flags" | "tcp.flags" => tcp_flags(text)?,
            "ttl" => PacketTest::TimeToLive(bound(text, 255, ends)?),
            "tos" => PacketTest::TypeOfService(type_of_service(text)?),
            "id" => PacketTest::Identification(word(text.trim_matches('"'))?),
            "ip_proto" => PacketTest::IpProtocol(ip_protocol(text)?),
            "sameip" => PacketTest::SameAddress,
            "itype" => PacketTest::IcmpType(bound(text, 255, ends)?),
            "icode" => PacketTest::IcmpCode(bound(text, 255, ends)?),
            "icmp_id" => PacketTest::IcmpId(word(text.trim_matches('"'))?),
            "icmp_seq" => PacketTest::IcmpSequence(word(text.trim_matches('"'))?),
            "seq" | "tcp.seq" => PacketTest::Sequence(double(text)?),
            "ack" | "tcp.ack" => PacketTest::Acknowledged(double(text)?),
            "window" | "tcp.window" => match text.strip_prefix('!') {
                Some(rest) => PacketTest::Window(word(rest)?, true),
                None => PacketTest::Window(word(text)?, false),
            },
            "fragbits" => fragment_bits(text)?,
            "ipopts" => PacketTest::IpOption(ip_option(text)?),
            "tcp.mss" => PacketTest::MaxSegment(bound(text, 65_535, ends)?),
            "icmpv6.mtu" => PacketTest::Mtu(bound(text, u32::MAX.into(), ends)?),
            _ => PacketTest::FragmentOffset(bound(text, 8191, ends)?),
        };
        self.only_packets = Some("headers");
        self.rule.packet.push(test);
        Ok(true)
    }
}

/// The protocol with the header that an option is about; `None` for IP.
fn header_of(name: &str) -> Option<Protocol> {
    match name {
        "flags" | "tcp.flags" | "seq" | "tcp.seq" | "ack" | "tcp.ack" | "window" | "tcp.window"
        | "tcp.mss" => Some(Protocol::Tcp),
        "itype" | "icode" | "icmp_id" | "icmp_seq" => Some(Protocol::Icmp),
        "icmpv6.mtu" => Some(Protocol::IcmpVersion(6)),
        _ => None,
    }
}

/// The sign before or after flags.
fn mode(text: &str) -> (FlagsMode, String) {
    let signs = [('+', FlagsMode::All), ('*', FlagsMode::Any), ('!', FlagsMode::Not)];
    let found = signs.into_iter().find(|(sign, _)| text.contains(*sign));
    let (sign, mode) = found.unwrap_or(('+', FlagsMode::Exactly));
    (mode, text.replacen(sign, "", 1))
}

/// `S`, `SA+`, `!R`, `S,12`: flags, and those that do not count.
fn tcp_flags(text: &str) -> Result<PacketTest, String> {
    let (flags, ignored) = text.split_once(',').unwrap_or((text, ""));
    let (mode, letters) = mode(flags.trim());
    let value = letters_of(&letters)?;
    let mask = !letters_of(ignored.trim().trim_start_matches(['!', '~']))?;
    if value == 0 && letters.trim() != "0" {
        return Err("no flag is given".to_owned());
    }
    if value & !mask != 0 {
        return Err("a flag is both tested and ignored".to_owned());
    }
    Ok(PacketTest::Flags { value, mask, mode })
}

fn letters_of(text: &str) -> Result<u8, String> {
    let mut value = 0;
    for letter in text.chars().filter(|letter| !letter.is_whitespace()) {
        let bit = match letter.to_ascii_uppercase() {
            '0' => continue,
            // Names of the two highest bits before they got their letters.
            '1' => 7,
            '2' => 6,
            letter => FLAGS
                .iter()
                .position(|own| *own == letter)
                .ok_or_else(|| format!("{letter} is no flag of TCP"))?,
        };
        value |= 1 << bit;
    }
    Ok(value)
}

fn fragment_bits(text: &str) -> Result<PacketTest, String> {
    let (mode, letters) = mode(text.trim());
    let mut value = 0;
    for letter in letters.chars().filter(|letter| !letter.is_whitespace()) {
        value |= match letter.to_ascii_uppercase() {
            'R' => 4,
            'D' => 2,
            'M' => 1,
            letter => return Err(format!("{letter} is no flag of fragments")),
        };
    }
    if value == 0 {
        return Err("no flag is given".to_owned());
    }
    Ok(PacketTest::FragmentBits { value, mode })
}

/// The number of an option of IPv4; none for any.
fn ip_option(text: &str) -> Result<Option<u8>, String> {
    Ok(Some(match &*text.trim().to_ascii_lowercase() {
        "any" => return Ok(None),
        "eol" => 0,
        "nop" => 1,
        "rr" => 7,
        "qs" => 25,
        "ts" => 68,
        "sec" => 130,
        "lsrr" => 131,
        "esec" => 133,
        "satid" => 136,
        "ssrr" => 137,
        "rtralt" => 148,
        "cipso" => return Err("cipso is not judged".to_owned()),
        other => return Err(format!("{other} is no option of IPv4")),
    }))
}

fn type_of_service(text: &str) -> Result<Bound, String> {
    let (negated, text) = match text.trim().strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    };
    let value = match text.strip_prefix('x') {
        Some(digits) => within(&format!("0x{digits}"), 0, 255)?,
        None => within(text, 0, 255)?,
    } as u64;
    Ok(Bound { low: value, high: value, negated })
}

fn ip_protocol(text: &str) -> Result<Bound, String> {
    let text = text.trim().trim_matches('"');
    let (sign, name) =
        text.split_at(text.find(|letter: char| letter.is_ascii_alphanumeric()).unwrap_or(0));
    let number = match &*name.to_ascii_lowercase() {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "pim" => 103,
        "sctp" => 132,
        _ => within(name, 0, 255)?,
    };
    bound(&format!("{sign}{number}"), 255, super::number::Ends::Outside)
}
