//! TFTP and syslog.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed, escape, name_of};

const OPERATIONS: &[(u16, &str)] =
    &[(1, "RRQ"), (2, "WRQ"), (3, "DATA"), (4, "ACK"), (5, "ERROR"), (6, "OACK")];

const ERRORS: &[(u16, &str)] = &[
    (0, "EUNDEF"),
    (1, "ENOTFOUND"),
    (2, "EACCESS"),
    (3, "ENOSPACE"),
    (4, "EBADOP"),
    (5, "EBADID"),
    (6, "EEXISTS"),
    (7, "ENOUSER"),
];

/// Source: RFC 1350, 2347.
pub(super) fn tftp(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "tftp";
    put!(body, "TFTP, length {}", packet.wire_len);
    if packet.wire_len < 2 {
        return Err(Cut);
    }
    let operation = packet.be16(0)?;
    match name_of(OPERATIONS, operation) {
        Some(name) => put!(body, ", {name}"),
        None => put!(body, ", tftp-#{operation}"),
    }
    match operation {
        1 | 2 => {
            put!(body, " \"");
            let file = string(packet, 2);
            escape(file.unwrap_or(tail(packet, 2)), body.out);
            put!(body, "\"");
            strings(body, packet, 2 + file.ok_or(Cut)?.len() + 1)?;
        }
        3 | 4 if packet.wire_len < 4 => return Err(Cut),
        3 | 4 => put!(body, " block {}", packet.be16(2)?),
        5 => {
            let code = packet.be16(2)?;
            match name_of(ERRORS, code) {
                Some(name) => put!(body, " {name} \""),
                None => put!(body, " tftp-err-#{code} \" \""),
            }
            let text = string(packet, 4);
            escape(text.unwrap_or(tail(packet, 4)), body.out);
            put!(body, "\"");
            text.ok_or(Cut)?;
        }
        6 => strings(body, packet, 2)?,
        _ => {}
    }
    Ok(())
}

fn tail<'a>(packet: &Piece<'a>, at: usize) -> &'a [u8] {
    let end = packet.data.len().min(packet.wire_len);
    packet.data.get(at..end).unwrap_or(&[])
}

/// The bytes before the next zero; `None` when there is none.
fn string<'a>(packet: &Piece<'a>, at: usize) -> Option<&'a [u8]> {
    let rest = tail(packet, at);
    rest.iter().position(|byte| *byte == 0).map(|len| &rest[..len])
}

fn strings(body: &mut Body, packet: &Piece, mut at: usize) -> Printed {
    while at < packet.wire_len {
        let text = string(packet, at);
        if packet.u8(at)? != 0 {
            put!(body, " ");
        }
        escape(text.unwrap_or(tail(packet, at)), body.out);
        at += text.ok_or(Cut)?.len() + 1;
    }
    Ok(())
}

const FACILITIES: [&str; 24] = [
    "kernel", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
    "authpriv", "ftp", "ntp", "security", "console", "cron", "local0", "local1", "local2",
    "local3", "local4", "local5", "local6", "local7",
];

const SEVERITIES: [&str; 8] =
    ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// Source: RFC 3164, 5424.
pub(super) fn syslog(body: &mut Body, packet: &Piece) -> Printed {
    body.protocol = "syslog";
    let mut priority = 0usize;
    let mut at = 1;
    let opens = packet.u8(0)? == b'<';
    while opens && at <= 3 && packet.u8(at)?.is_ascii_digit() {
        priority = priority * 10 + usize::from(packet.u8(at)? - b'0');
        at += 1;
    }
    if !opens || packet.u8(at)? != b'>' {
        put!(body, "SYSLOG (invalid), length: {}", packet.wire_len);
        return Ok(());
    }
    let facility = FACILITIES.get(priority >> 3 & 0x7f);
    let facility =
        facility.map_or_else(|| format!("unknown ({})", priority >> 3), |f| f.to_string());
    let severity = SEVERITIES[priority & 7];
    if body.options.verbose == 0 {
        put!(body, "SYSLOG {facility}.{severity}, length: {}", packet.wire_len);
        return Ok(());
    }
    put!(body, "SYSLOG, length: {}", packet.wire_len);
    put!(body, "\n\tFacility {facility} ({}), ", priority >> 3);
    put!(body, "Severity {severity} ({})\n\tMsg: ", priority & 7);
    escape(tail(packet, at + 1), body.out);
    Ok(())
}
