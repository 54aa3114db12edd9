//! Parses control lines: reply codes, and the four ways to announce a data connection.
//!
//! The parser accepts the forms that servers and clients really send: 227 has no fixed form around
//! its six numbers (RFC 1123, 4.1.2.6), so the first run of six valid numbers is taken, with or
//! without parentheses. Source: RFC 959 (PORT, 227), RFC 1123, RFC 2428 (EPRT, EPSV, 229), RFC 4217
//! (AUTH TLS, 234).

use super::{ACTIVE, EXTENDED_ACTIVE, EXTENDED_PASSIVE, PASSIVE};
use crate::Cause;
use std::net::{IpAddr, Ipv4Addr};

/// The end that will listen, as announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) cause: Cause,
    /// `None`: the address of the end that announces.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

/// The code of a server's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyCode {
    pub(super) code: u16,
    /// `NNN-`: more lines follow.
    pub(super) more: bool,
}

/// Reads the three digits at the start of a reply line.
pub(super) fn reply_code(line: &[u8]) -> Option<ReplyCode> {
    let digits = line.get(..3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    Some(ReplyCode { code, more: line.get(3) == Some(&b'-') })
}

/// Reads the text of a 227 reply (without the code).
pub(super) fn passive_reply(text: &[u8]) -> Option<Announced> {
    let (address, port) = six_numbers(text)?;
    Some(Announced { cause: PASSIVE, address, port })
}

/// Reads the text of a 229 reply: `(|||port|)`, any delimiter; some servers fill in family and address.
pub(super) fn extended_passive_reply(text: &[u8]) -> Option<Announced> {
    let mut starts = (0..text.len()).filter(|&at| is_delimiter(text[at]));
    let (_, address, port) = starts.find_map(|at| delimited(&text[at..]))?;
    Some(Announced { cause: EXTENDED_PASSIVE, address, port })
}

/// Reads a client's command. `None`: it announces nothing; `Some(None)`: it is an announcement that
/// cannot be parsed.
pub(super) fn command(line: &[u8]) -> Option<Option<Announced>> {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (verb, argument) = line.split_at(end);
    if verb.eq_ignore_ascii_case(b"PORT") {
        let found = six_numbers(argument);
        Some(found.map(|(address, port)| Announced { cause: ACTIVE, address, port }))
    } else if verb.eq_ignore_ascii_case(b"EPRT") {
        let found = delimited(argument.trim_ascii_start()).filter(|(family, ..)| family.is_some());
        let cause = EXTENDED_ACTIVE;
        Some(found.map(|(_, address, port)| Announced { cause, address, port }))
    } else {
        None
    }
}

/// Finds the first run `h1,h2,h3,h4,p1,p2` of numbers under 256, blanks allowed around the commas.
/// An unspecified address (0.0.0.0) is `None`; port 0 is invalid.
fn six_numbers(text: &[u8]) -> Option<(Option<IpAddr>, u16)> {
    let mut at = 0;
    while at < text.len() {
        if !text[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        if let Some([a, b, c, d, high, low]) = run_of_six(&text[at..]) {
            let port = u16::from_be_bytes([high, low]);
            let address = Ipv4Addr::new(a, b, c, d);
            if port != 0 {
                return Some(((!address.is_unspecified()).then_some(IpAddr::V4(address)), port));
            }
        }
        at += text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    None
}

fn run_of_six(mut text: &[u8]) -> Option<[u8; 6]> {
    let mut numbers = [0; 6];
    for (index, number) in numbers.iter_mut().enumerate() {
        if index > 0 {
            text = text.trim_ascii_start().strip_prefix(b",")?.trim_ascii_start();
        }
        let (value, rest) = decimal(text)?;
        *number = u8::try_from(value).ok()?;
        text = rest;
    }
    Some(numbers)
}

/// Parses `|family|address|port|` with the delimiter that comes first. Family and address may be
/// empty; an address of an unknown family or one that does not parse is an error.
fn delimited(text: &[u8]) -> Option<(Option<u32>, Option<IpAddr>, u16)> {
    let (&delimiter, rest) = text.split_first()?;
    if !is_delimiter(delimiter) {
        return None;
    }
    let mut fields = rest.split(|&byte| byte == delimiter);
    let (family, address, port) = (fields.next()?, fields.next()?, fields.next()?);
    fields.next()?;
    let family = match family {
        [] => None,
        digits => Some(decimal(digits).filter(|(_, rest)| rest.is_empty())?.0),
    };
    let address = match address {
        [] => None,
        text => Some(std::str::from_utf8(text).ok()?.parse::<IpAddr>().ok()?),
    };
    let family_fits = match (family, address) {
        (Some(1), Some(address)) => address.is_ipv4(),
        (Some(2), Some(address)) => address.is_ipv6(),
        (None | Some(1 | 2), None) => true,
        (None, Some(_)) => true,
        (Some(_), _) => false,
    };
    let (port, rest) = decimal(port)?;
    let port =
        u16::try_from(port).ok().filter(|&port| port != 0 && rest.is_empty() && family_fits)?;
    Some((family, address.filter(|address| !address.is_unspecified()), port))
}

/// True for delimiters of RFC 2428: any printable character; letters and digits would be ambiguous
/// here.
fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii_punctuation() && !matches!(byte, b'(' | b')' | b':' | b'.')
}

/// A number of at most five digits and the text after it.
fn decimal(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=5).contains(&digits) {
        return None;
    }
    let value = text[..digits].iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    Some((value, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passive(text: &str) -> Option<(String, u16)> {
        let found = passive_reply(text.as_bytes())?;
        Some((found.address.map_or("-".into(), |address| address.to_string()), found.port))
    }

    #[test]
    fn every_form_of_227_is_read() {
        let found = Some(("10.1.2.3".to_string(), 4 * 256 + 5));
        for text in [
            " Entering Passive Mode (10,1,2,3,4,5).",
            " Entering Passive Mode. 10,1,2,3,4,5",
            " =10,1,2,3,4,5",
            "Entering Passive Mode [10,1,2,3,4,5]",
            " ok in 3 s, 7,8 (10, 1, 2 ,3,4,5)",
        ] {
            assert_eq!(passive(text), found, "{text}");
        }
        assert_eq!(passive(" (0,0,0,0,1,1)"), Some(("-".into(), 257)));
        for text in
            ["", " (10,1,2,3,4)", " (10,1,2,3,0,0)", " (10,1,2,300,4,5)", " 123456,1,1,1,1,1"]
        {
            assert_eq!(passive(text), None, "{text}");
        }
    }

    #[test]
    fn every_form_of_229_is_read() {
        let port = |text: &str| extended_passive_reply(text.as_bytes()).map(|found| found.port);
        assert_eq!(port(" Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(port(" Entering Extended Passive Mode, ok. (!!!6446!)"), Some(6446));
        assert_eq!(port(" |||1|"), Some(1));
        assert_eq!(port(" (|2|2001:db8::1|7000|)"), Some(7000));
        for text in [" (|||0|)", " (|||65536|)", " (||6446|)", " (|||6446", " nothing"] {
            assert_eq!(port(text), None, "{text}");
        }
    }

    #[test]
    fn commands_announce_the_client() {
        let read = |line: &str| command(line.as_bytes());
        let found = read("PORT 192,168,0,1,4,1").unwrap().unwrap();
        assert_eq!((found.address, found.port), (Some([192, 168, 0, 1].into()), 1025));
        let found = read("eprt |2|2001:db8::7|5282|").unwrap().unwrap();
        assert_eq!((found.address, found.port), (Some("2001:db8::7".parse().unwrap()), 5282));
        for line in
            ["PORT 114,115", "EPRT |1|2001:db8::7|5282|", "EPRT |||7|", "EPRT |3|x|7|", "PORT"]
        {
            assert_eq!(read(line), Some(None), "{line}");
        }
        assert_eq!(read("PORTAL 1,2,3,4,5,6"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn codes() {
        assert_eq!(reply_code(b"227-x"), Some(ReplyCode { code: 227, more: true }));
        assert_eq!(reply_code(b"227Entering"), Some(ReplyCode { code: 227, more: false }));
        assert_eq!(reply_code(b" 27 x"), None);
        assert_eq!(reply_code(b"22"), None);
    }
}
