//! Commands and options of telnet. Source: RFC 854, 855, 2941, 2946.

use crate::body::{Body, put};
use crate::text::{Piece, Printed};

/// First byte of every command.
const COMMAND: u8 = 255;
/// Begin and end of a sub-negotiation.
const BEGIN: u8 = 250;
const END: u8 = 240;
/// First command with a name.
const FIRST: u8 = 236;

const COMMANDS: [&str; 20] = [
    "EOF", "SUSP", "ABORT", "EOR", "SE", "NOP", "DMARK", "BRK", "IP", "AO", "AYT", "EC", "EL",
    "GA", "SB", "WILL", "WONT", "DO", "DONT", "IAC",
];

const OPTIONS: [&str; 40] = [
    "BINARY",
    "ECHO",
    "RCP",
    "SUPPRESS GO AHEAD",
    "NAME",
    "STATUS",
    "TIMING MARK",
    "RCTE",
    "NAOL",
    "NAOP",
    "NAOCRD",
    "NAOHTS",
    "NAOHTD",
    "NAOFFD",
    "NAOVTS",
    "NAOVTD",
    "NAOLFD",
    "EXTEND ASCII",
    "LOGOUT",
    "BYTE MACRO",
    "DATA ENTRY TERMINAL",
    "SUPDUP",
    "SUPDUP OUTPUT",
    "SEND LOCATION",
    "TERMINAL TYPE",
    "END OF RECORD",
    "TACACS UID",
    "OUTPUT MARKING",
    "TTYLOC",
    "3270 REGIME",
    "X.3 PAD",
    "NAWS",
    "TSPEED",
    "LFLOW",
    "LINEMODE",
    "XDISPLOC",
    "OLD-ENVIRON",
    "AUTHENTICATION",
    "ENCRYPT",
    "NEW-ENVIRON",
];
const AUTHENTICATION: u8 = 37;
const ENCRYPT: u8 = 38;

/// Prints the commands at the start of a segment, up to the first data.
pub(super) fn print(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "telnet";
    let mut rest = *packet;
    let mut first = true;
    while rest.wire_len > 0 && rest.u8(0)? == COMMAND && !body.is_full() {
        let Some(len) = command_len(&rest)? else { break };
        put!(body, "{}", if first { " [telnet " } else { ", " });
        first = false;
        command(body, &rest, len)?;
        rest = rest.from(len);
    }
    if !first {
        put!(body, "]");
    }
    Ok(())
}

/// The length of the command; `None` if it does not end in this segment or is none.
fn command_len(rest: &Piece) -> Result<Option<usize>, crate::text::Cut> {
    let limit = rest.wire_len;
    if limit < 2 {
        return Ok(None);
    }
    let command = rest.u8(1)?;
    match command {
        COMMAND => Ok(Some(2)),
        ..FIRST => Ok(None),
        BEGIN => {
            if limit < 3 {
                return Ok(None);
            }
            rest.u8(2)?;
            let mut end = 3;
            while end + 1 < limit && (rest.u8(end)?, rest.u8(end + 1)?) != (COMMAND, END) {
                end += 1;
            }
            Ok((end < limit && rest.u8(end)? == COMMAND).then_some(end + 2))
        }
        251..=254 => {
            if limit < 3 {
                return Ok(None);
            }
            rest.u8(2)?;
            Ok(Some(3))
        }
        _ => Ok(Some(2)),
    }
}

fn command(body: &mut Body, rest: &Piece, len: usize) -> Printed {
    let command = rest.u8(1)?;
    if command == COMMAND {
        put!(body, "IAC IAC");
        return Ok(());
    }
    put!(body, "{}", COMMANDS[usize::from(command - FIRST)]);
    if len < 3 {
        return Ok(());
    }
    let option = rest.u8(2)?;
    match OPTIONS.get(usize::from(option)) {
        Some(name) => put!(body, " {name}"),
        None => put!(body, " {option:#x}"),
    }
    if command == BEGIN {
        negotiation(body, rest.take(3, len.saturating_sub(5))?, option);
    }
    Ok(())
}

fn negotiation(body: &mut Body, bytes: &[u8], option: u8) {
    let tables: &[&[&str]] = match option {
        AUTHENTICATION => &[&["IS", "SEND", "REPLY", "NAME"], &AUTHENTICATION_TYPES],
        ENCRYPT => &[&ENCRYPTION_COMMANDS, &ENCRYPTION_TYPES],
        _ => &[&["IS", "SEND", "INFO"]],
    };
    for (at, byte) in bytes.iter().enumerate() {
        let name = tables.get(at).and_then(|table| table.get(usize::from(*byte)));
        match name.filter(|name| !name.is_empty()) {
            Some(name) => put!(body, " {name}"),
            None => put!(body, " {}", Alternate(*byte)),
        }
    }
    put!(body, " SE");
}

const AUTHENTICATION_TYPES: [&str; 16] = [
    "NULL",
    "KERBEROS_V4",
    "KERBEROS_V5",
    "SPX",
    "MINK",
    "SRP",
    "RSA",
    "SSL",
    "",
    "",
    "LOKI",
    "SSA",
    "KEA_SJ",
    "KEA_SJ_INTEG",
    "DSS",
    "NTLM",
];
const ENCRYPTION_COMMANDS: [&str; 9] = [
    "IS",
    "SUPPORT",
    "REPLY",
    "START",
    "END",
    "REQUEST-START",
    "REQUEST-END",
    "END_KEYID",
    "DEC_KEYID",
];
const ENCRYPTION_TYPES: [&str; 10] = [
    "NULL",
    "DES_CFB64",
    "DES_OFB64",
    "DES3_CFB64",
    "DES3_OFB64",
    "",
    "CAST5_40_CFB64",
    "CAST5_40_OFB64",
    "CAST128_CFB64",
    "CAST128_OFB64",
];

/// A number as C's `%#x` prints it: zero without a prefix.
struct Alternate(u8);

impl std::fmt::Display for Alternate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            byte => write!(f, "{byte:#x}"),
        }
    }
}
