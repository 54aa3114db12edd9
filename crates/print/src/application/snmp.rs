//! SNMP: versions 1, 2c and 3. Object names are shown as numbers, because no definitions of
//! objects are loaded. Source: RFC 1157, 3416, 3412, 3414; BER: ITU-T X.690.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, escape};

/// Reason why the text of a message ends before the message.
enum End {
    /// The captured bytes end.
    Cut,
    /// The text names the error.
    Told,
}

impl From<Cut> for End {
    fn from(_: Cut) -> End {
        End::Cut
    }
}

type Told<T = ()> = Result<T, End>;

/// A value with its tag.
#[derive(Clone, Copy)]
struct Element<'a> {
    kind: Kind,
    /// Number of the tag.
    number: usize,
    content: Piece<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Object,
    Null,
    Address,
    Unsigned,
    Exception,
    Sequence,
    Unit,
    /// Any other primitive value.
    Octets,
}

const UNIVERSAL: [&str; 18] = [
    "U-0",
    "Boolean",
    "Integer",
    "Bitstring",
    "String",
    "Null",
    "ObjID",
    "ObjectDes",
    "U-8",
    "U-9",
    "U-10",
    "U-11",
    "U-12",
    "U-13",
    "U-14",
    "U-15",
    "Sequence",
    "Set",
];
const APPLICATION: [&str; 7] =
    ["IpAddress", "Counter", "Gauge", "TimeTicks", "Opaque", "C-5", "Counter64"];
const UNITS: [&str; 9] = [
    "GetRequest",
    "GetNextRequest",
    "GetResponse",
    "SetRequest",
    "Trap",
    "GetBulk",
    "Inform",
    "V2Trap",
    "Report",
];
const EXCEPTIONS: [&str; 3] = ["noSuchObject", "noSuchInstance", "endOfMibView"];
const CLASSES: [(&str, &[&str]); 4] = [
    ("Universal", &UNIVERSAL),
    ("Application", &APPLICATION),
    ("Context", &UNITS),
    ("Private", &["P-0"]),
];
const ERRORS: [&str; 19] = [
    "noError",
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
];
const TRAPS: [&str; 7] = [
    "coldStart",
    "warmStart",
    "linkDown",
    "linkUp",
    "authenticationFailure",
    "egpNeighborLoss",
    "enterpriseSpecific",
];

const GET: usize = 0;
const GET_NEXT: usize = 1;
const GET_RESPONSE: usize = 2;
const TRAP: usize = 4;
const GET_BULK: usize = 5;

/// Prints a message.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "snmp";
    put!(body, " ");
    match message(body, packet) {
        Err(End::Cut) => Err(Cut),
        Ok(()) | Err(End::Told) => Ok(()),
    }
}

fn message(body: &mut Body, packet: &Piece) -> Told {
    let mut rest = *packet;
    let outer = next_of(body, &mut rest, Kind::Sequence, "[!init SEQ]")?;
    extra(body, &rest, "iSEQ");
    let mut rest = outer.content;
    let version = next_of(body, &mut rest, Kind::Integer, "[version!=INT]")?;
    let version = integer(&version)?;
    let name = match version {
        0 => "SNMPv1",
        1 => "SNMPv2c",
        3 => "SNMPv3",
        2 => {
            put!(body, "SNMP [version = 2]");
            return Ok(());
        }
        _ => {
            put!(body, "SNMP [version = {version}]");
            return Ok(());
        }
    };
    let verbose = body.options.verbose > 0;
    if verbose {
        put!(body, "{{ {name} ");
    }
    match version {
        3 => version3(body, rest)?,
        _ => {
            let community = next_of(body, &mut rest, Kind::Text, "[comm!=STR]")?;
            if community.content.data != b"public" {
                put!(body, "C=");
                text(body, &community);
                put!(body, " ");
            }
            unit(body, rest, version)?;
        }
    }
    if verbose {
        put!(body, "}} ");
    }
    Ok(())
}

fn version3(body: &mut Body, mut rest: Piece) -> Told {
    let verbose = body.options.verbose > 0;
    let header = next_of(body, &mut rest, Kind::Sequence, "[!message]")?;
    if verbose {
        put!(body, "{{ ");
    }
    let mut fields = header.content;
    next_of(body, &mut fields, Kind::Integer, "[msgID!=INT]")?;
    next_of(body, &mut fields, Kind::Integer, "[msgMaxSize!=INT]")?;
    let flags = next_of(body, &mut fields, Kind::Text, "[msgFlags!=STR]")?;
    let &[flags] = flags.content.data else {
        put!(body, "[msgFlags size {}]", flags.content.data.len());
        return Err(End::Told);
    };
    if !matches!(flags, 0 | 1 | 3 | 4 | 5 | 7) {
        put!(body, "[msgFlags=0x{flags:02X}]");
        return Err(End::Told);
    }
    put!(body, "F=");
    for (bit, letter) in [(1, "a"), (2, "p"), (4, "r")] {
        put!(body, "{}", if flags & bit != 0 { letter } else { "" });
    }
    put!(body, " ");
    let model = next_of(body, &mut fields, Kind::Integer, "[msgSecurityModel!=INT]")?;
    let model = integer(&model)?;
    if verbose {
        put!(body, "}} ");
    }
    if model != 3 {
        put!(body, "[security model {model}]");
        return Err(End::Told);
    }
    if verbose {
        put!(body, "{{ USM ");
    }
    let parameters = next_of(body, &mut rest, Kind::Text, "[msgSecurityParameters!=STR]")?;
    user(body, parameters.content)?;
    if verbose {
        put!(body, "}} {{ ScopedPDU ");
    }
    scoped(body, rest)?;
    if verbose {
        put!(body, "}} ");
    }
    Ok(())
}

/// Prints the security parameters of a user.
fn user(body: &mut Body, mut rest: Piece) -> Told {
    let verbose = body.options.verbose > 0;
    let outer = next_of(body, &mut rest, Kind::Sequence, "[!usm]")?;
    let mut fields = outer.content;
    next_of(body, &mut fields, Kind::Text, "[msgAuthoritativeEngineID!=STR]")?;
    for (letter, error) in
        [('B', "[msgAuthoritativeEngineBoots!=INT]"), ('T', "[msgAuthoritativeEngineTime!=INT]")]
    {
        let number = next_of(body, &mut fields, Kind::Integer, error)?;
        if verbose {
            put!(body, "{letter}={} ", integer(&number)?);
        }
    }
    let name = next_of(body, &mut fields, Kind::Text, "[msgUserName!=STR]")?;
    put!(body, "U=");
    text(body, &name);
    put!(body, " ");
    next_of(body, &mut fields, Kind::Text, "[msgAuthenticationParameters!=STR]")?;
    next_of(body, &mut fields, Kind::Text, "[msgPrivacyParameters!=STR]")?;
    Ok(())
}

fn scoped(body: &mut Body, mut rest: Piece) -> Told {
    let outer = next_of(body, &mut rest, Kind::Sequence, "[!scoped PDU]")?;
    let mut rest = outer.content;
    let engine = next_of(body, &mut rest, Kind::Text, "[contextEngineID!=STR]")?;
    put!(body, "E=");
    octets(body, &engine);
    put!(body, " ");
    let name = next_of(body, &mut rest, Kind::Text, "[contextName!=STR]")?;
    put!(body, "C=");
    text(body, &name);
    put!(body, " ");
    unit(body, rest, 3)
}

fn unit(body: &mut Body, mut rest: Piece, version: i32) -> Told {
    let verbose = body.options.verbose > 0;
    let unit = next(body, &mut rest)?;
    if unit.kind != Kind::Unit {
        put!(body, "[no PDU]");
        return Err(End::Told);
    }
    extra(body, &rest, "PDU");
    if verbose {
        put!(body, "{{ ");
    }
    value(body, &unit)?;
    put!(body, " ");
    if version == 0 && unit.number >= GET_BULK {
        put!(body, "[v2 PDU in v1 message]");
        return Err(End::Told);
    }
    if version == 1 && unit.number == TRAP {
        put!(body, "[v1 PDU in v2 message]");
        return Err(End::Told);
    }
    match unit.number {
        TRAP => trap(body, unit.content)?,
        number => request(body, number, unit.content)?,
    }
    if verbose {
        put!(body, " }} ");
    }
    Ok(())
}

/// Prints every unit but a trap of version 1.
fn request(body: &mut Body, kind: usize, mut rest: Piece) -> Told {
    let id = next_of(body, &mut rest, Kind::Integer, "[reqId!=INT]")?;
    if body.options.verbose > 0 {
        put!(body, "R={} ", integer(&id)?);
    }
    let status = next_of(body, &mut rest, Kind::Integer, "[errorStatus!=INT]")?;
    let status = integer(&status)?;
    let has_no_error = !matches!(kind, GET_RESPONSE | GET_BULK);
    let mut failed = false;
    match status {
        _ if kind == GET_BULK => put!(body, " N={status}"),
        0 => {}
        _ => {
            put!(body, "{}", if has_no_error { "[errorStatus(" } else { " " });
            match usize::try_from(status).ok().and_then(|status| ERRORS.get(status)) {
                Some(name) => put!(body, "{name}"),
                None => put!(body, "err={}", status as u32),
            }
            put!(body, "{}", if has_no_error { ")!=0]" } else { "" });
            failed = !has_no_error;
        }
    }
    let place = next_of(body, &mut rest, Kind::Integer, "[errorIndex!=INT]")?;
    match integer(&place)? {
        place if kind == GET_BULK => put!(body, " M={place}"),
        0 if failed => put!(body, "[errorIndex==0]"),
        0 => {}
        place if has_no_error => put!(body, "[errorIndex({place})!=0]"),
        place if failed => put!(body, "@{place}"),
        place => put!(body, "[errorIndex({place}) w/o errorStatus]"),
    }
    bindings(body, kind, rest)
}

fn trap(body: &mut Body, mut rest: Piece) -> Told {
    put!(body, " ");
    let enterprise = next_of(body, &mut rest, Kind::Object, "[enterprise!=OID]")?;
    value(body, &enterprise)?;
    put!(body, " ");
    let agent = next_of(body, &mut rest, Kind::Address, "[agent-addr!=INETADDR]")?;
    value(body, &agent)?;
    let generic = next_of(body, &mut rest, Kind::Integer, "[generic-trap!=INT]")?;
    let generic = integer(&generic)?;
    match usize::try_from(generic).ok().and_then(|generic| TRAPS.get(generic)) {
        Some(name) => put!(body, " {name}"),
        None => put!(body, " gt={generic}"),
    }
    let specific = next_of(body, &mut rest, Kind::Integer, "[specific-trap!=INT]")?;
    match integer(&specific)? {
        specific if generic == 6 => put!(body, " s={specific}"),
        0 => {}
        specific => put!(body, "[specific-trap({specific})!=0]"),
    }
    put!(body, " ");
    let time = next_of(body, &mut rest, Kind::Unsigned, "[time-stamp!=TIMETICKS]")?;
    value(body, &time)?;
    bindings(body, TRAP, rest)
}

/// Prints names of objects and their values.
fn bindings(body: &mut Body, kind: usize, mut rest: Piece) -> Told {
    let list = next_of(body, &mut rest, Kind::Sequence, "[!SEQ of varbind]")?;
    extra(body, &rest, "SEQ of varbind");
    let asks = matches!(kind, GET | GET_NEXT | GET_BULK);
    let mut rest = list.content;
    while rest.wire_len > 0 && !body.is_full() {
        put!(body, " ");
        let binding = next_of(body, &mut rest, Kind::Sequence, "[!varbind]")?;
        let mut pair = binding.content;
        let name = next_of(body, &mut pair, Kind::Object, "[objName!=OID]")?;
        value(body, &name)?;
        if !asks {
            put!(body, "=");
        }
        let content = next(body, &mut pair)?;
        if content.kind != Kind::Null {
            if asks {
                put!(body, "[objVal!=NULL]");
            }
            value(body, &content)?;
        }
    }
    Ok(())
}

fn extra(body: &mut Body, rest: &Piece, after: &str) {
    if rest.wire_len > 0 {
        put!(body, "[{} extra after {after}]", rest.wire_len);
    }
}

/// The next value, which must be of a kind; otherwise prints `error` and the value.
fn next_of<'a>(
    body: &mut Body,
    rest: &mut Piece<'a>,
    kind: Kind,
    error: &str,
) -> Told<Element<'a>> {
    let element = next(body, rest)?;
    if element.kind != kind {
        put!(body, "{error}");
        value(body, &element)?;
        return Err(End::Told);
    }
    Ok(element)
}

/// Reads the next value.
fn next<'a>(body: &mut Body, rest: &mut Piece<'a>) -> Told<Element<'a>> {
    let told = |body: &mut Body, text: std::fmt::Arguments| {
        put!(body, "{text}");
        Err(End::Told)
    };
    let mut left = rest.wire_len;
    if left < 1 {
        return told(body, format_args!("[nothing to parse]"));
    }
    let first = rest.u8(0)?;
    let (class, constructed) = (usize::from(first >> 6), first & 0x20 != 0);
    let (mut at, mut number) = (1, usize::from(first & 0x1f));
    left -= 1;
    if number == 0x1f {
        number = 0;
        loop {
            let byte = rest.u8(at)?;
            if left < 1 {
                return told(body, format_args!("[Xtagfield?]"));
            }
            (at, left) = (at + 1, left - 1);
            number = (number << 7 | usize::from(byte & 0x7f)) & 0xffff_ffff;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    if left < 1 {
        return told(body, format_args!("[no asnlen]"));
    }
    let mut len = usize::from(rest.u8(at)?);
    (at, left) = (at + 1, left - 1);
    if len & 0x80 != 0 {
        let count = len & 0x7f;
        if left < count {
            return told(body, format_args!("[asnlen? {left}<{count}]"));
        }
        let bytes = rest.take(at, count)?;
        len = bytes.iter().fold(0, |len, byte| (len << 8 | usize::from(*byte)) & 0xffff_ffff);
        (at, left) = (at + count, left - count);
    }
    if left < len {
        return told(body, format_args!("[len{left}<asnlen{len}]"));
    }
    let form = if constructed { 'C' } else { 'P' };
    let (class_name, names) = CLASSES[class];
    let Some(name) = names.get(number) else {
        return told(body, format_args!("[id?{form}/{class_name}/{number}]"));
    };
    let data = rest.take(at, len)?;
    *rest = rest.from(at + len);
    let kind = match (class, constructed, number) {
        (0, false, 2) if len == 0 => return told(body, format_args!("[asnlen=0]")),
        (0, false, 2) => Kind::Integer,
        (0, false, 4) => Kind::Text,
        (0, false, 5) => Kind::Null,
        (0, false, 6) => Kind::Object,
        (1, false, 0) => Kind::Address,
        (1, false, 1..=3 | 6) => Kind::Unsigned,
        (2, false, 0..=2) => Kind::Exception,
        (0, true, 16) => Kind::Sequence,
        (2, true, _) => Kind::Unit,
        _ => {
            unusual(body, class_name, class < 2, constructed, name);
            Kind::Octets
        }
    };
    Ok(Element { kind, number, content: Piece { data, wire_len: len } })
}

/// Prints the class and the name of a value that SNMP does not use.
fn unusual(body: &mut Body, class: &str, short: bool, constructed: bool, name: &str) {
    let class = if short { &class[..1] } else { class };
    match constructed {
        true => put!(body, "C/{class}/{name}"),
        false => put!(body, "[P/{class}/{name}]"),
    }
}

fn integer(element: &Element) -> Told<i32> {
    let bytes = element.content.data;
    let start = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    Ok(bytes.iter().fold(start, |value: i32, byte| value << 8 | i32::from(*byte)))
}

fn value(body: &mut Body, element: &Element) -> Told {
    let bytes = element.content.data;
    match element.kind {
        Kind::Null => {}
        Kind::Octets => octets(body, element),
        Kind::Text => text(body, element),
        Kind::Object => object(body, bytes),
        Kind::Integer => put!(body, "{}", integer(element)?),
        Kind::Unsigned => {
            let number = bytes.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
            let wide = element.number == 6;
            put!(body, "{}", if wide { number } else { number & 0xffff_ffff });
        }
        Kind::Sequence => put!(body, "Seq({})", bytes.len()),
        Kind::Unit => put!(body, "{}({})", UNITS[element.number], bytes.len()),
        Kind::Exception => put!(body, "[{}]", EXCEPTIONS[element.number]),
        Kind::Address => {
            if bytes.len() != 4 {
                put!(body, "[inetaddr len!=4]");
            }
            for (at, byte) in bytes.iter().enumerate() {
                put!(body, "{}{byte}", if at > 0 { "." } else { "" });
            }
        }
    }
    Ok(())
}

fn octets(body: &mut Body, element: &Element) {
    for byte in element.content.data {
        put!(body, "_{byte:02x}");
    }
}

/// Prints a string in quotes if it is text, as hexadecimal digits otherwise.
fn text(body: &mut Body, element: &Element) {
    let bytes = element.content.data;
    if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        put!(body, "\"");
        escape(bytes, body.out);
        put!(body, "\"");
        return;
    }
    for (at, byte) in bytes.iter().enumerate() {
        put!(body, "{}{byte:02x}", if at > 0 { "_" } else { "" });
    }
}

/// Prints the numbers of an object's name. The first number of the encoding holds two of them.
fn object(body: &mut Body, bytes: &[u8]) {
    let (mut number, mut first) = (0u32, true);
    for byte in bytes {
        number = number << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if first {
            let root = (number / 40).min(2);
            put!(body, ".{root}");
            number -= 40 * root;
            first = false;
        }
        put!(body, ".{number}");
        number = 0;
    }
}
