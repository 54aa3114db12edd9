//! Text to tokens.
//!
//! The longest token wins, as in libpcap, so `80-443` is one name, `10-` a number and a minus, `len-5` a name and
//! not a subtraction, and `1.2.3.4.5` a name and not an address. Linear in the text except for IPv6 addresses, where up
//! to [`MAX_ADDRESS_LEN`] lengths are tried. Source: pcap-filter(7) and libpcap 1.10.3's token rules.

use crate::error::Error;
use crate::keywords::{self, Keyword};
use std::net::Ipv6Addr;
use std::ops::Range;

/// Longest text that is considered as an IPv6 address.
const MAX_ADDRESS_LEN: usize = 80;

/// Kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword.
    Keyword(Keyword),
    /// A number, or a named constant.
    Number(u32),
    /// Two to four numbers joined by dots; the text contains them.
    Dotted,
    /// An IPv6 address.
    Ip6(Ipv6Addr),
    /// A link-layer address of six bytes.
    Ether([u8; 6]),
    /// A link-layer address of one byte: `$7f` is 0xd7, as with libpcap.
    Arcnet(u8),
    /// Any other word; the text (without its backslash) is the name.
    Name,
    /// An operator or bracket.
    Symbol(Symbol),
    /// After the last token.
    End,
}

/// Operators and brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// `(`
    Open,
    /// `)`
    Close,
    /// `[`
    OpenIndex,
    /// `]`
    CloseIndex,
    /// `:`
    Colon,
    /// `!` or `not`
    Not,
    /// `&&` or `and`
    And,
    /// `||` or `or`
    Or,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Slash,
    /// `%`
    Percent,
    /// `&`
    Ampersand,
    /// `|`
    Bar,
    /// `^`
    Caret,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `=` or `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// A token and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its position in the text, in bytes.
    pub(crate) span: Range<usize>,
}

/// Reads tokens one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    /// A lexer at the beginning of `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Lexer { text, at: 0 }
    }

    /// The next token; [`Kind::End`] for every call after the last.
    pub(crate) fn next(&mut self) -> Result<Token, Error> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            self.at += 1;
        }
        let start = self.at;
        let rest = &bytes[start..];
        let (kind, length) = match rest.first() {
            None => (Kind::End, 0),
            Some(b'\\') => self.escaped(rest)?,
            Some(b'$') => self.arcnet(rest)?,
            Some(byte) if byte.is_ascii_alphanumeric() || *byte == b':' => self.word(rest)?,
            Some(_) => self.symbol(rest)?,
        };
        self.at = start + length;
        Ok(Token { kind, span: start..self.at })
    }

    /// The text of a token, without the backslash of an escaped name.
    pub(crate) fn text_of(&self, token: &Token) -> &'t str {
        let text = &self.text[token.span.clone()];
        text.strip_prefix('\\').unwrap_or(text)
    }

    fn error(&self, length: usize, message: impl Into<String>) -> Error {
        Error::new(self.text, self.at..self.at + length, message)
    }

    /// Reads an escaped name: a backslash makes a name of all characters up to a blank, `!`, `(` or
    /// `)`.
    fn escaped(&self, rest: &[u8]) -> Result<(Kind, usize), Error> {
        let stop = |byte: &u8| b" !()\n\t".contains(byte);
        let length = rest.iter().position(stop).unwrap_or(rest.len());
        if length < 2 {
            return Err(self.error(1, "a backslash needs a name after it").expected("a name"));
        }
        Ok((Kind::Name, length))
    }

    fn arcnet(&self, rest: &[u8]) -> Result<(Kind, usize), Error> {
        let digits = rest[1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits == 0 {
            return Err(self.error(1, "\"$\" needs an ARCnet address after it"));
        }
        // Libpcap takes the "$" as a digit too, and keeps two digits.
        let digit = char::from(rest[1]).to_digit(16).unwrap_or(0) as u8;
        let value = 0xd0 | digit;
        Ok((Kind::Arcnet(value), 1 + digits))
    }

    /// A word that begins with a letter, a digit or a colon.
    fn word(&self, rest: &[u8]) -> Result<(Kind, usize), Error> {
        let length = word_length(rest);
        if rest.get(hex_length(rest)) == Some(&b':')
            && let Some(token) = self.with_colons(rest)?
        {
            return Ok(token);
        }
        if length == 0 {
            return Ok((Kind::Symbol(Symbol::Colon), 1));
        }
        let text = &self.text[self.at..self.at + length];
        let kind = if let Some(keyword) = Keyword::from_text(text) {
            match keyword {
                Keyword::And => Kind::Symbol(Symbol::And),
                Keyword::Or => Kind::Symbol(Symbol::Or),
                Keyword::Not => Kind::Symbol(Symbol::Not),
                _ => Kind::Keyword(keyword),
            }
        } else if let Some(address) = ether(text.as_bytes()) {
            Kind::Ether(address)
        } else if is_number(text.as_bytes()) {
            Kind::Number(number(text).map_err(|message| self.error(length, message))?)
        } else if is_dotted(text.as_bytes()) {
            Kind::Dotted
        } else if let Some(value) = keywords::constant(text) {
            Kind::Number(value)
        } else {
            Kind::Name
        };
        Ok((kind, length))
    }

    /// Reads the longest of: an Ethernet address, an IPv6 address, and text that resembles an
    /// Ethernet address but is invalid.
    fn with_colons(&self, rest: &[u8]) -> Result<Option<(Kind, usize)>, Error> {
        let ethernet = ether_with_colons(rest);
        let (six, bogus) = (ip6_length(rest), bogus_ether_length(rest));
        let longest = ethernet.map_or(0, |(_, length)| length).max(six).max(bogus);
        if longest == 0 {
            return Ok(None);
        }
        let text = &self.text[self.at..self.at + longest];
        if let Some((address, length)) = ethernet
            && length == longest
        {
            return Ok(Some((Kind::Ether(address), length)));
        }
        if six == longest {
            let address = text.parse().map_err(|_| {
                self.error(longest, format!("\"{text}\" is not a valid IPv6 address"))
            })?;
            return Ok(Some((Kind::Ip6(address), longest)));
        }
        Err(self
            .error(longest, format!("\"{text}\" is not a valid Ethernet address"))
            .expected("six bytes in hexadecimal, joined by \":\", or an IPv6 address"))
    }

    fn symbol(&self, rest: &[u8]) -> Result<(Kind, usize), Error> {
        let two = match rest.get(..2) {
            Some(b">=") => Some(Symbol::GreaterOrEqual),
            Some(b"<=") => Some(Symbol::LessOrEqual),
            Some(b"!=") => Some(Symbol::NotEqual),
            Some(b"==") => Some(Symbol::Equal),
            Some(b"<<") => Some(Symbol::ShiftLeft),
            Some(b">>") => Some(Symbol::ShiftRight),
            Some(b"&&") => Some(Symbol::And),
            Some(b"||") => Some(Symbol::Or),
            _ => None,
        };
        if let Some(symbol) = two {
            return Ok((Kind::Symbol(symbol), 2));
        }
        let symbol = match rest[0] {
            b'(' => Symbol::Open,
            b')' => Symbol::Close,
            b'[' => Symbol::OpenIndex,
            b']' => Symbol::CloseIndex,
            b'!' => Symbol::Not,
            b'+' => Symbol::Plus,
            b'-' => Symbol::Minus,
            b'*' => Symbol::Times,
            b'/' => Symbol::Slash,
            b'%' => Symbol::Percent,
            b'&' => Symbol::Ampersand,
            b'|' => Symbol::Bar,
            b'^' => Symbol::Caret,
            b'<' => Symbol::Less,
            b'>' => Symbol::Greater,
            b'=' => Symbol::Equal,
            _ => {
                let character = self.text[self.at..].chars().next().unwrap_or('\0');
                let shown = character.escape_default();
                let message = format!("the character \"{shown}\" is not part of the language");
                let hint = (character == ',').then_some("write \"(80 or 443)\" for one of several");
                return Err(self.error(character.len_utf8(), message).with_hint(hint));
            }
        };
        Ok((Kind::Symbol(symbol), 1))
    }
}

/// Length of a word: letters, digits, `-`, `_` and `.`, the last of them not `-` or `_`.
fn word_length(rest: &[u8]) -> usize {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let run = rest.iter().position(|byte| !inside(byte)).unwrap_or(rest.len());
    rest[..run].iter().rposition(|byte| !b"-_".contains(byte)).map_or(0, |last| last + 1)
}

/// Number of hexadecimal digits at the beginning.
fn hex_length(rest: &[u8]) -> usize {
    rest.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(rest.len())
}

/// True for a decimal, octal or (with `0x`) hexadecimal number.
fn is_number(text: &[u8]) -> bool {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => {
            !digits.is_empty() && hex_length(digits) == digits.len()
        }
        _ => !text.is_empty() && text.iter().all(u8::is_ascii_digit),
    }
}

/// True for two to four numbers joined by dots.
fn is_dotted(text: &[u8]) -> bool {
    let parts = text.iter().filter(|&&byte| byte == b'.').count() + 1;
    (2..=4).contains(&parts) && text.split(|&byte| byte == b'.').all(is_number)
}

/// The value of a number; a leading `0x` means hexadecimal, a leading `0` octal.
fn number(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if radix == 8 && digits.bytes().any(|byte| byte > b'7') {
        return Err(format!("\"{text}\" begins with 0, so it is octal, but has a digit 8 or 9"));
    }
    u32::from_str_radix(digits, radix).map_err(|_| format!("\"{text}\" is more than 4294967295"))
}

/// An Ethernet address without colons: `1-2-3-4-5-6`, `1.2.3.4.5.6`, `0001.0002.0003` or twelve digits.
fn ether(text: &[u8]) -> Option<[u8; 6]> {
    if text.len() == 12 && hex_length(text) == 12 {
        return ether_bytes(text.chunks(2));
    }
    for separator in [b'-', b'.'] {
        let mut groups = text.split(|&byte| byte == separator);
        match groups.clone().count() {
            6 => return ether_bytes(groups),
            3 if separator == b'.' && groups.all(|group| group.len() == 4) => {
                let digits: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'.').collect();
                return ether_bytes(digits.chunks(2));
            }
            _ => {}
        }
    }
    None
}

/// Six groups of one or two hexadecimal digits.
fn ether_bytes<'a>(groups: impl Iterator<Item = &'a [u8]>) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut count = 0;
    for group in groups {
        if !(1..=2).contains(&group.len()) || hex_length(group) != group.len() {
            return None;
        }
        let text = std::str::from_utf8(group).ok()?;
        *address.get_mut(count)? = u8::from_str_radix(text, 16).ok()?;
        count += 1;
    }
    (count == 6).then_some(address)
}

/// An Ethernet address with colons at the beginning of `rest`, and its length.
fn ether_with_colons(rest: &[u8]) -> Option<([u8; 6], usize)> {
    let mut length = 0;
    for group in 0..6 {
        if group > 0 {
            length += usize::from(*rest.get(length)? == b':');
        }
        let digits = hex_length(&rest[length..]);
        length += if group == 5 { digits.min(2) } else { digits };
    }
    let address = ether_bytes(rest[..length].split(|&byte| byte == b':'))?;
    Some((address, length))
}

/// Length of the longest beginning of `rest` that has the shape of an IPv6 address; 0 when there is none.
fn ip6_length(rest: &[u8]) -> usize {
    let shaped = |byte: &u8| byte.is_ascii_hexdigit() || b"xX:.".contains(byte);
    let run = rest.iter().take(MAX_ADDRESS_LEN).take_while(|byte| shaped(byte)).count();
    (2..=run).rev().find(|&length| is_ip6_shaped(&rest[..length])).unwrap_or(0)
}

/// Eight groups of one to four digits, at most one run of them shortened to `::`, the last two possibly dotted.
fn is_ip6_shaped(text: &[u8]) -> bool {
    let groups = |part: &[u8]| -> Option<usize> {
        if part.is_empty() {
            return Some(0);
        }
        let mut count = 0;
        let mut parts = part.split(|&byte| byte == b':').peekable();
        while let Some(group) = parts.next() {
            let last = parts.peek().is_none();
            if (1..=4).contains(&group.len()) && hex_length(group) == group.len() {
                count += 1;
            } else if last && group.contains(&b'.') {
                let four = group.iter().filter(|&&byte| byte == b'.').count() == 3;
                count += if four && is_dotted(group) { 2 } else { return None };
            } else {
                return None;
            }
        }
        Some(count)
    };
    match text.windows(2).position(|pair| pair == b"::") {
        None => groups(text) == Some(8),
        Some(at) => {
            let (before, after) = (&text[..at], &text[at + 2..]);
            let sum = groups(before).zip(groups(after)).map(|(before, after)| before + after);
            !before.contains(&b'.') && sum.is_some_and(|count| count <= 7)
        }
    }
}

/// Length of one or two digits and a colon, twice or more: text that was probably meant as an
/// Ethernet address.
fn bogus_ether_length(rest: &[u8]) -> usize {
    let (mut length, mut groups) = (0, 0);
    loop {
        let digits = hex_length(&rest[length..]);
        let colons = rest[length + digits..].iter().take_while(|&&byte| byte == b':').count();
        if !(1..=2).contains(&digits) || colons == 0 {
            return if groups >= 2 { length } else { 0 };
        }
        length += digits + colons;
        groups += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        let mut lexer = Lexer::new(text);
        let mut kinds = Vec::new();
        loop {
            match lexer.next().unwrap_or_else(|error| panic!("{error}")).kind {
                Kind::End => return kinds,
                kind => kinds.push(kind),
            }
        }
    }

    #[test]
    fn the_longest_token_wins() {
        use Kind::{Dotted, Name, Number};
        assert_eq!(
            kinds("80-443 1.2.3.4.5 10.0 0x1f 017 1.2."),
            [Name, Name, Dotted, Number(31), Number(15), Name]
        );
        assert_eq!(kinds("10-")[..], [Number(10), Kind::Symbol(Symbol::Minus)]);
        assert_eq!(kinds("len-5 tcp-syn \\tcp"), [Name, Number(2), Name]);
        assert_eq!(kinds("ip[6:2]").len(), 6);
    }

    #[test]
    fn ethernet_addresses_in_all_spellings() {
        let address = Kind::Ether([0, 0x11, 0x22, 0x33, 0x44, 0x55]);
        for text in [
            "0:11:22:33:44:55",
            "00-11-22-33-44-55",
            "0.11.22.33.44.55",
            "0011.2233.4455",
            "001122334455",
        ] {
            assert_eq!(kinds(text), std::slice::from_ref(&address), "{text}");
        }
        assert!(Lexer::new("0:11:22:").next().is_err());
        assert_eq!(kinds("00-11-22-33-44-55-66"), [Kind::Name]);
    }

    #[test]
    fn ip6_addresses() {
        let address = |text: &str| Kind::Ip6(text.parse().unwrap());
        for text in [
            "::",
            "::1",
            "1::",
            "2001:db8::1",
            "1:2:3:4:5:6:7:8",
            "::ffff:10.0.0.1",
            "1:2:3:4:5:6:7::",
        ] {
            assert_eq!(kinds(text), [address(text)], "{text}");
        }
        assert_eq!(kinds("::1/64").len(), 3);
        assert!(Lexer::new("::1.2.3.400").next().is_err());
        assert!(Lexer::new("1:2:3:4:5:6:7:8:9").next().is_err());
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(kinds("4294967295"), [Kind::Number(u32::MAX)]);
        for text in ["4294967296", "0x100000000", "08", "é", "_", "\\", "$"] {
            assert!(Lexer::new(text).next().is_err(), "{text}");
        }
    }
}
