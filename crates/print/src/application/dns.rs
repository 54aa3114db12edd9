//! DNS, over UDP, TCP and multicast: `1234+ A? example.org. (29)`, `1234 1/0/0 A 192.0.2.1 (45)`.
//!
//! Names are followed through compression pointers, which must lead towards the start of the
//! message, so that every name ends. Sources: RFC 1035, 2782, 3596, 6762, 6891.

use crate::body::{Body, put};
use crate::show::say;
use crate::text::{Cut, Piece, Printed, duration, escape, hex, name_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const OPERATIONS: [&str; 16] = [
    "",
    " inv_q",
    " stat",
    " op3",
    " notify",
    " update",
    " op6",
    " op7",
    " op8",
    " updateA",
    " updateD",
    " updateDA",
    " updateM",
    " updateMA",
    " zoneInit",
    " zoneRef",
];

const RESPONSES: [&str; 24] = [
    "",
    " FormErr",
    " ServFail",
    " NXDomain",
    " NotImp",
    " Refused",
    " YXDomain",
    " YXRRSet",
    " NXRRSet",
    " NotAuth",
    " NotZone",
    " Resp11",
    " Resp12",
    " Resp13",
    " Resp14",
    " NoChange",
    " BadVers",
    "Resp17",
    " Resp18",
    " Resp19",
    " Resp20",
    "Resp21",
    " Resp22",
    " BadCookie",
];

const TYPES: &[(u16, &str)] = &[
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAP_PTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (28, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (31, "EID"),
    (32, "NIMLOC"),
    (33, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (40, "SINK"),
    (41, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (99, "SPF"),
    (100, "UINFO"),
    (101, "UID"),
    (102, "GID"),
    (103, "UNSPEC"),
    (249, "TKEY"),
    (250, "TSIG"),
    (251, "IXFR"),
    (252, "AXFR"),
    (253, "MAILB"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
];

const CLASSES: &[(u16, &str)] = &[(1, "IN"), (3, "CHAOS"), (4, "HS"), (255, "ANY")];
const MAX_NAME_LEN: usize = 255;
/// Most pointers that are followed in one name.
const MAX_POINTERS: usize = 128;
const OPT: u16 = 41;

/// Prints a message after its length, as TCP carries it.
pub(super) fn over_tcp(body: &mut Body, payload: &Piece) -> Printed {
    body.protocol = "domain";
    if payload.wire_len < 2 {
        put!(body, " [DNS over TCP: length {} < 2] (invalid)", payload.wire_len);
        return Ok(());
    }
    let (claimed, length) = (usize::from(payload.be16(0)?), payload.wire_len - 2);
    if claimed != length {
        put!(body, " [prefix length({claimed}) != length({length})] (invalid)");
        return Ok(());
    }
    put!(body, " ");
    print(body, &payload.from(2), false)
}

/// Prints a message; `multicast` for mDNS, where one bit of the class is a flag.
pub(super) fn print(body: &mut Body, message: &Piece, multicast: bool) -> Printed {
    body.protocol = "domain";
    if message.wire_len < 12 {
        put!(body, "domain [length {} < 12] (invalid)", message.wire_len);
        return Ok(());
    }
    message.take(0, 12)?;
    let header = Header {
        id: message.be16(0)?,
        flags: message.be16(2)?,
        counts: [message.be16(4)?, message.be16(6)?, message.be16(8)?, message.be16(10)?],
    };
    let mut reader = Reader { body, message: *message, at: 12, multicast };
    if header.flags & 0x8000 != 0 {
        reader.response(&header)?
    } else {
        reader.request(&header)?
    }
    say!(body, " (", message.wire_len, ')');
    Ok(())
}

struct Header {
    id: u16,
    flags: u16,
    /// Numbers of questions, answers, authorities, additional records.
    counts: [u16; 4],
}

struct Reader<'r, 'p, 'a, 'm> {
    body: &'r mut Body<'p, 'a>,
    message: Piece<'m>,
    at: usize,
    multicast: bool,
}

impl Reader<'_, '_, '_, '_> {
    fn request(&mut self, header: &Header) -> Printed {
        let [questions, answers, authorities, additional] = header.counts;
        let operation = header.flags >> 11 & 0xf;
        let mark = |bit: u16, text| if header.flags & bit != 0 { text } else { "" };
        let name = OPERATIONS[usize::from(operation)];
        say!(self.body, header.id, name, mark(0x0100, "+"), mark(0x0010, "%"));
        if header.flags & 0x06cf != 0 {
            put!(self.body, " [b2&3={:#x}]", header.flags);
        }
        let inverse = operation == 1;
        let mut odd = |count: u16, expected: u16, letters: &str| {
            if count != expected {
                say!(self.body, " [", count, letters, ']');
            }
        };
        match inverse {
            true => {
                odd(questions, 0, "q");
                odd(answers, 1, "a");
            }
            false => {
                odd(answers, 0, "a");
                odd(questions, 1, "q");
            }
        }
        odd(authorities, 0, "n");
        odd(additional, 0, "au");
        for _ in 0..questions {
            self.question()?;
        }
        if self.body.options.verbose > 1 {
            for (count, label) in [(answers, ""), (authorities, " ns:"), (additional, " ar:")] {
                self.records(count, label)?;
            }
        }
        Ok(())
    }

    fn response(&mut self, header: &Header) -> Printed {
        let [questions, answers, authorities, additional] = header.counts;
        let mark = |bit: u16, set, clear| if header.flags & bit != 0 { set } else { clear };
        say!(self.body, header.id, OPERATIONS[usize::from(header.flags >> 11 & 0xf)]);
        let code = self.response_code(header);
        match RESPONSES.get(usize::from(code)) {
            Some(name) => say!(self.body, *name),
            None => put!(self.body, " Resp{code}"),
        }
        say!(self.body, mark(0x0400, "*", ""), mark(0x0080, "", "-"));
        say!(self.body, mark(0x0200, "|", ""), mark(0x0020, "$", ""));
        if questions != 1 {
            put!(self.body, " [{questions}q]");
        }
        for number in 0..questions {
            say!(self.body, if number > 0 { "," } else { "" });
            if self.body.options.verbose > 1 {
                put!(self.body, " q:");
                self.question()?;
            } else {
                self.at = skip(&self.message, self.at)? + 4;
            }
        }
        say!(self.body, ' ', answers, '/', authorities, '/', additional);
        self.records(answers, "")?;
        if self.body.options.verbose > 1 {
            self.records(authorities, " ns:")?;
            self.records(additional, " ar:")?;
        }
        Ok(())
    }

    /// The response code, with its upper bits from the OPT record.
    fn response_code(&self, header: &Header) -> u16 {
        let low = header.flags & 0xf;
        let [questions, answers, authorities, additional] = header.counts.map(u32::from);
        let find = || -> Result<u16, Cut> {
            let mut at = self.at;
            for _ in 0..questions {
                at = skip(&self.message, at)? + 4;
            }
            for number in 0..answers + authorities + additional {
                at = skip(&self.message, at)?;
                if number >= answers + authorities && self.message.be16(at)? == OPT {
                    return Ok(low | u16::from(self.message.u8(at + 4)?) << 4);
                }
                at += 10 + usize::from(self.message.be16(at + 8)?);
            }
            Ok(low)
        };
        find().unwrap_or(low)
    }

    fn question(&mut self) -> Printed {
        let name_at = self.at;
        let at = skip(&self.message, name_at)?;
        let (kind, class) = (self.message.be16(at)?, self.message.be16(at + 2)?);
        self.kind(kind);
        let plain = if self.multicast { class & 0x7fff } else { class };
        self.class(plain);
        if self.multicast {
            put!(self.body, "{}", if class & 0x8000 != 0 { " (QU)" } else { " (QM)" });
        }
        say!(self.body, "? ");
        self.at = name(self.body, &self.message, name_at)? + 4;
        Ok(())
    }

    fn kind(&mut self, kind: u16) {
        match name_of(TYPES, kind) {
            Some(name) => say!(self.body, ' ', name),
            None => put!(self.body, " Type{kind}"),
        }
    }

    fn class(&mut self, class: u16) {
        match name_of(CLASSES, class) {
            _ if class == 1 => {}
            Some(name) => put!(self.body, " {name}"),
            None => put!(self.body, " (Class {class})"),
        }
    }

    fn records(&mut self, count: u16, label: &str) -> Printed {
        for number in 0..count {
            say!(self.body, if number > 0 { "," } else { label });
            if self.at >= self.message.data.len() {
                return Err(Cut);
            }
            if self.body.is_full() {
                put!(self.body, " [{} more records not shown]", count - number);
                return Ok(());
            }
            self.record()?;
        }
        Ok(())
    }

    fn record(&mut self) -> Printed {
        let verbose = self.body.options.verbose;
        if verbose > 0 {
            put!(self.body, " ");
            self.at = name(self.body, &self.message, self.at)?;
        } else {
            self.at = skip(&self.message, self.at)?;
        }
        let at = self.at;
        self.message.take(at, 10)?;
        let (kind, class) = (self.message.be16(at)?, self.message.be16(at + 2)?);
        let (ttl, len) = (self.message.be32(at + 4)?, usize::from(self.message.be16(at + 8)?));
        let plain = if self.multicast { class & 0x7fff } else { class };
        if kind != OPT {
            self.class(plain);
        }
        if self.multicast && class & 0x8000 != 0 {
            put!(self.body, " (Cache flush)");
        }
        if kind != OPT && verbose > 2 {
            put!(self.body, " [{}]", duration(ttl));
        }
        self.kind(kind);
        self.message.take(at + 10, len)?;
        self.data(kind, at + 10, len)?;
        if kind == OPT {
            put!(self.body, " UDPsize={plain}");
            put!(self.body, "{}", if ttl & 0x8000 != 0 { " DO" } else { "" });
            self.edns(at + 10, len)?;
        }
        self.at = at + 10 + len;
        Ok(())
    }

    fn data(&mut self, kind: u16, at: usize, len: usize) -> Printed {
        let message = self.message;
        match kind {
            1 => say!(self.body, ' ', message.ipv4(at)?),
            28 => say!(self.body, ' ', message.ipv6(at)?),
            2 | 5 | 12 | 39 => {
                say!(self.body, ' ');
                name(self.body, &message, at)?;
            }
            6 if self.body.options.verbose > 0 => {
                put!(self.body, " ");
                let at = name(self.body, &message, at)?;
                put!(self.body, " ");
                let at = name(self.body, &message, at)?;
                for number in 0..5 {
                    put!(self.body, " {}", message.be32(at + 4 * number)?);
                }
            }
            15 => {
                say!(self.body, ' ');
                name(self.body, &message, at + 2)?;
                put!(self.body, " {}", message.be16(at)?);
            }
            16 => {
                let mut text_at = at;
                while text_at < at + len {
                    let text_len = usize::from(message.u8(text_at)?);
                    put!(self.body, " \"");
                    escape(message.take(text_at + 1, text_len)?, self.body.out);
                    put!(self.body, "\"");
                    text_at += 1 + text_len;
                }
            }
            33 => {
                say!(self.body, ' ');
                name(self.body, &message, at + 6)?;
                say!(self.body, ':', message.be16(at + 4)?, ' ', message.be16(at)?);
                say!(self.body, ' ', message.be16(at + 2)?);
            }
            256 if len >= 4 => {
                put!(self.body, " {} {} ", message.be16(at)?, message.be16(at + 2)?);
                escape(message.take(at + 4, len - 4)?, self.body.out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Prints options of the OPT record.
    fn edns(&mut self, start: usize, len: usize) -> Printed {
        if len == 0 {
            return Ok(());
        }
        put!(self.body, " [");
        let mut at = start;
        while at < start + len {
            put!(self.body, "{}", if at > start { "," } else { "" });
            let (code, value_len) = (self.message.be16(at)?, self.message.be16(at + 2)?.into());
            let value = self.message.take(at + 4, value_len)?;
            let known = [
                (1, "LLQ"),
                (2, "UL"),
                (3, "NSID"),
                (5, "DAU"),
                (6, "DHU"),
                (7, "N3U"),
                (8, "ECS"),
                (9, "EXPIRE"),
                (10, "COOKIE"),
                (11, "KEEPALIVE"),
                (12, "PADDING"),
                (13, "CHAIN"),
                (14, "KEY-TAG"),
            ];
            match name_of(&known, code) {
                Some(name) => put!(self.body, "{name}"),
                None => put!(self.body, "Opt{code}"),
            }
            if !value.is_empty() {
                put!(self.body, " ");
                self.edns_value(code, value);
            }
            at += 4 + value_len;
        }
        put!(self.body, "]");
        Ok(())
    }

    fn edns_value(&mut self, code: u16, value: &[u8]) {
        match (code, value) {
            (8, [0, family, source_len, scope_len, address @ ..]) => {
                match client_subnet(*family, *source_len, *scope_len, address) {
                    Some(address) => put!(self.body, "{address}/{source_len}/{scope_len}"),
                    None => put!(self.body, " (invalid)"),
                }
            }
            (10, _) if value.len() == 8 || (16..=40).contains(&value.len()) => {
                hex(&value[..8], self.body.out);
                put!(self.body, "{}", if value.len() > 8 { " " } else { "" });
                hex(&value[8..], self.body.out);
            }
            (8 | 10, _) => put!(self.body, " (invalid)"),
            (9, [a, b, c, d]) => put!(self.body, "{} sec", u32::from_be_bytes([*a, *b, *c, *d])),
            (11, [a, b]) => {
                let tenths = u16::from_be_bytes([*a, *b]);
                put!(self.body, "{}.{} sec", tenths / 10, tenths % 10);
            }
            (9 | 11, _) => put!(self.body, " (invalid)"),
            (12, _) => put!(self.body, "({})", value.len()),
            _ => hex(value, self.body.out),
        }
    }
}

fn client_subnet(family: u8, source_len: u8, scope_len: u8, address: &[u8]) -> Option<IpAddr> {
    let bits = if family == 1 { 32 } else { 128 };
    let fits = usize::from(source_len).div_ceil(8) == address.len();
    if !matches!(family, 1 | 2) || source_len > bits || scope_len > bits || !fits {
        return None;
    }
    let mut padded = [0; 16];
    padded[..address.len()].copy_from_slice(address);
    Some(match family {
        1 => IpAddr::from(Ipv4Addr::new(padded[0], padded[1], padded[2], padded[3])),
        _ => IpAddr::from(Ipv6Addr::from(padded)),
    })
}

/// The offset after the name at `at`.
fn skip(message: &Piece, mut at: usize) -> Result<usize, Cut> {
    loop {
        let len = message.u8(at)?;
        match len {
            0 => return Ok(at + 1),
            0xc0.. => return Ok(at + 2),
            1..64 => at += 1 + usize::from(len),
            _ => return Err(Cut),
        }
    }
}

/// Prints the name at `start` and returns the offset after it. It ends: each pointer must lead
/// nearer to the start of the message, their number is limited, and bytes after a pointer are not
/// read unless they are shown.
pub(crate) fn name(body: &mut Body, message: &Piece, start: usize) -> Result<usize, Cut> {
    let (mut at, mut end, mut limit, mut shown) = (start, None, start, 0);
    let mut pointers = 0;
    if message.u8(at)? == 0 {
        put!(body, ".");
        return Ok(at + 1);
    }
    loop {
        let len = message.u8(at)?;
        match len {
            0 => break,
            _ if end.is_some() && shown > MAX_NAME_LEN => break,
            0xc0.. => {
                end = end.or(Some(at + 2));
                let target = usize::from(message.be16(at)? & 0x3fff);
                pointers += 1;
                if target >= limit || pointers > MAX_POINTERS {
                    put!(body, "<BAD PTR>");
                    return Err(Cut);
                }
                (limit, at) = (target, target);
            }
            1..64 => {
                let label = message.take(at + 1, len.into())?;
                let room = MAX_NAME_LEN.saturating_sub(shown).min(label.len());
                escape(&label[..room], body.out);
                shown += label.len();
                if shown <= MAX_NAME_LEN {
                    body.out.push('.');
                }
                shown += 1;
                at += 1 + label.len();
            }
            _ => {
                put!(body, "<BAD LABEL TYPE>");
                return Err(Cut);
            }
        }
    }
    if shown > MAX_NAME_LEN {
        put!(body, "<DOMAIN NAME TOO LONG>");
    }
    Ok(end.unwrap_or(at + 1))
}
