//! Helper functions of all printers: reading from a payload, escaping, names of numbers, names of
//! bits.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The captured bytes end too early. `protocol` of the [`Body`](crate::body::Body) names the part
/// that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut;

/// Result of a printer: complete or cut.
pub(crate) type Printed = Result<(), Cut>;

/// Bytes of a packet: the captured bytes, and their number on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// Captured bytes.
    pub(crate) data: &'a [u8],
    /// Length on the wire; may be less than the captured length if a length field states so.
    pub(crate) wire_len: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn take(&self, at: usize, len: usize) -> Result<&'a [u8], Cut> {
        self.data.get(at..at.saturating_add(len)).ok_or(Cut)
    }

    pub(crate) fn u8(&self, at: usize) -> Result<u8, Cut> {
        self.data.get(at).copied().ok_or(Cut)
    }

    pub(crate) fn be16(&self, at: usize) -> Result<u16, Cut> {
        Ok(u16::from_be_bytes(*self.chunk(at)?))
    }

    pub(crate) fn be32(&self, at: usize) -> Result<u32, Cut> {
        Ok(u32::from_be_bytes(*self.chunk(at)?))
    }

    pub(crate) fn ipv4(&self, at: usize) -> Result<Ipv4Addr, Cut> {
        Ok(Ipv4Addr::from(*self.chunk::<4>(at)?))
    }

    pub(crate) fn ipv6(&self, at: usize) -> Result<Ipv6, Cut> {
        Ok(Ipv6(Ipv6Addr::from(*self.chunk::<16>(at)?)))
    }

    /// The rest from `at` on.
    pub(crate) fn from(&self, at: usize) -> Piece<'a> {
        Piece {
            data: self.data.get(at..).unwrap_or(&[]),
            wire_len: self.wire_len.saturating_sub(at),
        }
    }

    fn chunk<const N: usize>(&self, at: usize) -> Result<&'a [u8; N], Cut> {
        self.data.get(at..).and_then(<[u8]>::first_chunk).ok_or(Cut)
    }
}

/// An IPv6 address in the format of the C library: an IPv4 address in the last 32 bits also after
/// 96 zero bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv6(pub(crate) Ipv6Addr);

impl std::fmt::Display for Ipv6 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = self.0.to_bits();
        if bits >> 32 == 0 && bits >> 16 != 0 {
            write!(f, "::{}", Ipv4Addr::from_bits(bits as u32))
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// Appends bytes of the packet as text: printable ASCII unchanged, the rest as `^A` and `M-^A`.
pub(crate) fn escape(bytes: &[u8], out: &mut String) {
    let printable = |byte: &u8| (b' '..=b'~').contains(byte);
    let mut rest = bytes;
    while let Some(&byte) = rest.first() {
        let len = rest.iter().take_while(|byte| printable(byte)).count();
        let (run, after) = rest.split_at(len);
        out.push_str(std::str::from_utf8(run).unwrap_or_default());
        rest = after;
        if len == 0 {
            out.push_str(if byte >= 0x80 { "M-" } else { "" });
            let low = byte & 0x7f;
            match printable(&low) {
                true => out.push(low as char),
                false => out.extend(['^', (low ^ 0x40) as char]),
            }
            rest = &rest[1..];
        }
    }
}

/// Appends the text at `at`, which ends at a zero byte or after `len` bytes.
pub(crate) fn until_zero(piece: &Piece, at: usize, len: usize, out: &mut String) -> Printed {
    let rest = piece.data.get(at..).ok_or(Cut)?;
    let shown = &rest[..rest.len().min(len)];
    let end = shown.iter().position(|byte| *byte == 0);
    escape(&shown[..end.unwrap_or(shown.len())], out);
    if end.is_none() && shown.len() < len { Err(Cut) } else { Ok(()) }
}

/// The text of a number in a table.
pub(crate) fn name_of<N: Copy + PartialEq>(
    table: &[(N, &'static str)],
    number: N,
) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The names of the bits that are set, or `none`.
pub(crate) fn bits(table: &[(u32, &str)], value: u32, separator: &str, none: &str) -> String {
    let set = table.iter().filter(|(bits, _)| value & bits == *bits);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    if names.is_empty() { none.to_string() } else { names.join(separator) }
}

/// Appends bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], out: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 0xf)]);
    }
}

/// Seconds as `1d2h3m4s`.
pub(crate) fn duration(seconds: u32) -> String {
    let mut rest = seconds;
    let mut text = String::new();
    for (unit, name) in [(31_536_000, 'y'), (604_800, 'w'), (86_400, 'd'), (3600, 'h'), (60, 'm')] {
        if rest >= unit {
            let _ = write!(text, "{}{name}", rest / unit);
            rest %= unit;
        }
    }
    if rest > 0 || text.is_empty() {
        let _ = write!(text, "{rest}s");
    }
    text
}

/// The right value of a wrong checksum field: `found` is the field, `sum` the result of
/// [`fyke_frame::checksum()`] including it.
pub(crate) fn expected_checksum(found: u16, sum: u16) -> u16 {
    let folded = u32::from(sum) + u32::from(found);
    let folded = (folded & 0xffff) + (folded >> 16);
    folded as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::checksum;

    #[test]
    fn escapes_everything_that_is_not_printable() {
        let all: Vec<u8> = (0..=255).collect();
        let mut out = String::new();
        escape(&all, &mut out);
        assert!(out.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        out.clear();
        escape(b"a\x1b\n\x7f\xc1\x81", &mut out);
        assert_eq!(out, "a^[^J^?M-AM-^A");
    }

    #[test]
    fn shows_addresses_and_durations() {
        let shown = |text: &str| Ipv6(text.parse().unwrap()).to_string();
        assert_eq!(shown("::1"), "::1");
        assert_eq!(shown("::"), "::");
        assert_eq!(shown("::0102:0304"), "::1.2.3.4");
        assert_eq!(shown("::ffff:0102:0304"), "::ffff:1.2.3.4");
        assert_eq!(shown("2001:db8:0:0:1:0:0:1"), "2001:db8::1:0:0:1");
        assert_eq!([duration(0), duration(86_461)], ["0s", "1d1m1s"]);
    }

    #[test]
    fn checksums() {
        let header = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let right = checksum(&[&header]);
        assert_eq!(expected_checksum(0, right), right);
        let mut whole = header;
        whole[10..12].copy_from_slice(&right.to_be_bytes());
        assert_eq!(checksum(&[&whole]), 0);
        whole[10] ^= 0xff;
        let found = u16::from_be_bytes([whole[10], whole[11]]);
        assert_eq!(expected_checksum(found, checksum(&[&whole])), right);
    }
}
