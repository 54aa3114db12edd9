//! Protocols with messages of text lines: the first line, or with `-v` all lines.

use crate::body::{Body, put};
use crate::text::{Cut, Piece, Printed};

pub(super) const HTTP: &[&str] = &[
    "GET",
    "PUT",
    "COPY",
    "HEAD",
    "LOCK",
    "MOVE",
    "POLL",
    "POST",
    "BCOPY",
    "BMOVE",
    "MKCOL",
    "TRACE",
    "LABEL",
    "MERGE",
    "DELETE",
    "SEARCH",
    "UNLOCK",
    "REPORT",
    "UPDATE",
    "NOTIFY",
    "BDELETE",
    "CONNECT",
    "OPTIONS",
    "CHECKIN",
    "PROPFIND",
    "CHECKOUT",
    "CCM_POST",
    "SUBSCRIBE",
    "PROPPATCH",
    "BPROPFIND",
    "BPROPPATCH",
    "UNCHECKOUT",
    "MKACTIVITY",
    "MKWORKSPACE",
    "UNSUBSCRIBE",
    "RPC_CONNECT",
    "VERSION-CONTROL",
    "BASELINE-CONTROL",
];

pub(super) const RTSP: &[&str] = &[
    "DESCRIBE",
    "ANNOUNCE",
    "GET_PARAMETER",
    "OPTIONS",
    "PAUSE",
    "PLAY",
    "RECORD",
    "REDIRECT",
    "SETUP",
    "SET_PARAMETER",
    "TEARDOWN",
];

pub(super) const SIP: &[&str] = &[
    "ACK",
    "BYE",
    "CANCEL",
    "DO",
    "INFO",
    "INVITE",
    "MESSAGE",
    "NOTIFY",
    "OPTIONS",
    "PRACK",
    "QAUTH",
    "REFER",
    "REGISTER",
    "SPRACK",
    "SUBSCRIBE",
    "UPDATE",
    "PUBLISH",
];

/// Longest first word that is examined.
const MAX_WORD_LEN: usize = 128;

/// Prints the protocol's name and, if the payload starts like one of its messages, the text. With
/// `methods` such a message is a request that begins with one of these words, or an answer with a
/// number of three digits as second word.
pub(super) fn print(
    body: &mut Body,
    name: &'static str,
    methods: Option<&[&str]>,
    payload: &Piece,
) -> Printed {
    body.protocol = name;
    for letter in name.chars() {
        body.out.push(letter.to_ascii_uppercase());
    }
    let data = &payload.data[..payload.data.len().min(payload.wire_len)];
    if !methods.is_none_or(|methods| starts_a_message(data, methods)) {
        return Ok(());
    }
    if body.options.verbose == 0 {
        line(body, ": ", payload, 0)?;
        return Ok(());
    }
    put!(body, ", length: {}", payload.wire_len);
    let mut at = 0;
    while at < payload.wire_len {
        match line(body, "\n\t", payload, at)? {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(())
}

/// Prints the line at `at` and returns the offset of the next one; `None` if it does not end or is
/// not text.
fn line(body: &mut Body, before: &str, payload: &Piece, at: usize) -> Result<Option<usize>, Cut> {
    let mut end = at;
    let next = loop {
        if end >= payload.wire_len {
            break None;
        }
        match payload.u8(end)? {
            b'\n' => break Some(end + 1),
            b'\r' if end + 1 >= payload.wire_len => return Ok(None),
            b'\r' if payload.u8(end + 1)? == b'\n' => break Some(end + 2),
            b'\t' | b' '..=b'~' => end += 1,
            _ => return Ok(None),
        }
    };
    let text = payload.take(at, end - at)?;
    // Printable characters and tabs only, as the loop has checked.
    body.out.push_str(before);
    body.out.push_str(std::str::from_utf8(text).unwrap_or_default());
    if next.is_none() {
        put!(body, " [|{}]", body.protocol);
    }
    Ok(next)
}

fn starts_a_message(data: &[u8], methods: &[&str]) -> bool {
    let Some((first, after)) = word(data) else { return false };
    if methods.iter().any(|method| first.eq_ignore_ascii_case(method.as_bytes())) {
        return true;
    }
    word(after)
        .is_some_and(|(second, _)| second.len() == 3 && second.iter().all(u8::is_ascii_digit))
}

/// The first word and the text after the blanks that follow it.
fn word(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let len = data.iter().position(is_blank).unwrap_or(data.len());
    let word = &data[..len];
    if word.is_empty() || len > MAX_WORD_LEN || !word.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let after = &data[len..];
    let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some((word, &after[blanks..]))
}

/// The version line that opens an SSH connection.
pub(super) fn ssh(body: &mut Body, payload: &Piece) {
    let data = &payload.data[..payload.data.len().min(payload.wire_len)];
    if !data.starts_with(b"SSH-") {
        return;
    }
    let Some(end) = data.iter().position(|byte| !(b' '..=b'~').contains(byte)) else { return };
    let complete = data[end] == b'\n' || data[end..].starts_with(b"\r\n");
    if complete {
        put!(body, ": SSH: ");
        body.out.extend(data[..end].iter().map(|byte| *byte as char));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_data() {
        assert!(starts_a_message(b"get / HTTP/1.1\r\n", HTTP));
        assert!(starts_a_message(b"HTTP/1.1 200 OK\r\n", HTTP));
        assert!(!starts_a_message(b"HTTP/1.1 2000 OK\r\n", HTTP));
        assert!(!starts_a_message(b"\x16\x03\x01 200", HTTP));
        assert!(!starts_a_message(b"", SIP));
        assert!(!starts_a_message(b"word\n200 second line", SIP));
    }
}
