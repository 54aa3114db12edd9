//! Lexer: text to tokens. Every token has its location.
//!
//! `[` is a class (`[a-z0-9]`) except after the word `with`, where it opens a list.

use crate::byte_set::ByteSet;
use crate::error::{Error, Span, Text};

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A word.
    Word(String),
    /// A number, decimal or with `0x`.
    Number(u64),
    /// A literal of bytes: `"text"`, `"text"i`, `x"41 ?? 4?"`, `b"0100...."`, `10.0.0.0/8`.
    Sets(Vec<ByteSet>),
    /// `[a-z]`, `[^\r\n]`.
    Class(ByteSet),
    /// Everything else.
    Sign(&'static str),
    /// End of the text.
    End,
}

/// Signs, the longest first.
const SIGNS: &[&str] = &[
    "=>", "**", "..", "*", "|", "(", ")", "{", "}", "]", "[", "+", "-", "?", ",", "~", "#", ".",
    "=", ":", ";",
];

/// Splits text number `file` into tokens; the last is [`Token::End`].
pub fn lex(texts: &[Text], file: u32) -> Result<Vec<(Token, Span)>, Error> {
    let mut lexer = Lexer { texts, file, text: &texts[file as usize].text, at: 0 };
    let mut tokens: Vec<(Token, Span)> = Vec::new();
    loop {
        lexer.skip_space()?;
        let start = lexer.at;
        let opens_list =
            tokens.last().is_some_and(|(token, _)| *token == Token::Word("with".into()));
        let token = lexer.token(opens_list)?;
        let span = lexer.span(start);
        let end = token == Token::End;
        tokens.push((token, span));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    texts: &'a [Text],
    file: u32,
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn span(&self, start: usize) -> Span {
        let clip = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { file: self.file, start: clip(start), end: clip(self.at) }
    }

    fn error(&self, start: usize, message: impl Into<String>) -> Error {
        Error::new(self.texts, self.span(start), message)
    }

    fn skip_space(&mut self) -> Result<(), Error> {
        loop {
            let rest = self.rest();
            if rest.starts_with(b"//") {
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                match self.text[self.at..].find("*/") {
                    Some(len) => self.at += len + 2,
                    None => {
                        let start = self.at;
                        self.at += 2;
                        return Err(self.error(start, "this comment has no end, expected */"));
                    }
                }
            } else if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.at += 1;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self, opens_list: bool) -> Result<Token, Error> {
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.first().copied() else { return Ok(Token::End) };
        if (first == b'x' || first == b'b') && rest.get(1) == Some(&b'"') {
            self.at += 2;
            return if first == b'x' { self.hex(start) } else { self.bits(start) };
        }
        match first {
            b'"' => self.string(),
            b'[' if !opens_list => self.class(),
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                self.at += rest.iter().take_while(|byte| word(byte)).count();
                Ok(Token::Word(self.text[start..self.at].to_owned()))
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
                let Some(sign) = sign else {
                    let c = self.text[start..].chars().next().unwrap_or('?');
                    self.at += c.len_utf8();
                    return Err(self.error(start, format!("{c:?} is not part of the language")));
                };
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
        }
    }

    /// Reads `"text"` with escapes; an `i` after it folds case.
    fn string(&mut self) -> Result<Token, Error> {
        let start = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                None | Some(b'\n') => {
                    return Err(self.error(start, "this string has no end, expected \""));
                }
                Some(b'"') => break self.at += 1,
                Some(b'\\') => bytes.push(self.escape()?),
                Some(byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
        let next_is_word =
            self.rest().get(1).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let fold = self.peek() == Some(b'i') && !next_is_word;
        self.at += usize::from(fold);
        let set = if fold { ByteSet::folded } else { ByteSet::one };
        Ok(Token::Sets(bytes.into_iter().map(set).collect()))
    }

    fn escape(&mut self) -> Result<u8, Error> {
        let start = self.at;
        let escaped = self.rest().get(1).copied();
        self.at = (self.at + 2).min(self.text.len());
        Ok(match escaped {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(byte @ (b'\\' | b'"' | b']' | b'[' | b'-' | b'^')) => byte,
            Some(b'x') => {
                let digits = self.text.get(self.at..self.at + 2);
                let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let Some(value) = value else {
                    return Err(self.error(start, "expected two hexadecimal digits after \\x"));
                };
                self.at += 2;
                value
            }
            _ => {
                while !self.text.is_char_boundary(self.at) {
                    self.at += 1;
                }
                let known =
                    "unknown escape, expected \\n \\r \\t \\0 \\\\ \\\" \\] \\[ \\- \\^ or \\xHH";
                return Err(self.error(start, known));
            }
        })
    }

    /// Reads `x"47 45 ?? 4?"`: hexadecimal digits, `?` for any four bits.
    fn hex(&mut self, start: usize) -> Result<Token, Error> {
        let nibble = |digit: u8| match digit {
            b'?' => Some((0, 0)),
            _ => {
                char::from(digit).to_digit(16).map(|value| (0xf, u8::try_from(value).unwrap_or(0)))
            }
        };
        let digits =
            self.quoted(start, "hexadecimal digits or ?", |byte| nibble(byte).is_some())?;
        if digits.len() % 2 == 1 {
            return Err(self.error(start, "expected an even number of hexadecimal digits"));
        }
        let sets = digits.chunks(2).filter_map(|pair| {
            let ((high_mask, high), (low_mask, low)) = (nibble(pair[0])?, nibble(pair[1])?);
            Some(ByteSet::masked(high_mask << 4 | low_mask, high << 4 | low))
        });
        Ok(Token::Sets(sets.collect()))
    }

    /// Reads `b"0100...."`: bits, `.` for either value.
    fn bits(&mut self, start: usize) -> Result<Token, Error> {
        let digits = self.quoted(start, "0, 1 or .", |byte| matches!(byte, b'0' | b'1' | b'.'))?;
        if digits.len() % 8 != 0 {
            return Err(self.error(start, "expected whole bytes: a multiple of eight bits"));
        }
        let sets = digits.chunks(8).map(|byte| {
            let (mut mask, mut value) = (0, 0);
            for bit in byte {
                mask = mask << 1 | u8::from(*bit != b'.');
                value = value << 1 | u8::from(*bit == b'1');
            }
            ByteSet::masked(mask, value)
        });
        Ok(Token::Sets(sets.collect()))
    }

    /// Reads up to the closing quote, without spaces.
    fn quoted(
        &mut self,
        start: usize,
        expected: &str,
        allowed: impl Fn(u8) -> bool,
    ) -> Result<Vec<u8>, Error> {
        let mut found = Vec::new();
        loop {
            let at = self.at;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(found);
                }
                Some(b' ') => self.at += 1,
                Some(byte) if allowed(byte) => {
                    found.push(byte);
                    self.at += 1;
                }
                None | Some(b'\n') => return Err(self.error(start, "no closing \"")),
                Some(_) => {
                    self.at += 1;
                    return Err(self.error(at, format!("expected {expected}")));
                }
            }
        }
    }

    /// Reads `[a-z0-9_]`, `[^\r\n]`.
    fn class(&mut self) -> Result<Token, Error> {
        let start = self.at;
        self.at += 1;
        let negated = self.peek() == Some(b'^');
        self.at += usize::from(negated);
        let mut set = ByteSet::EMPTY;
        loop {
            let at = self.at;
            let Some(low) = self.class_byte(start)? else { break };
            let mut high = low;
            if self.peek() == Some(b'-') && self.rest().get(1) != Some(&b']') {
                self.at += 1;
                high = match self.class_byte(start)? {
                    Some(high) if high >= low => high,
                    _ => return Err(self.error(at, "a range goes from low to high")),
                };
            }
            set = set.or(&ByteSet::range(low, high));
        }
        let set = if negated { set.not() } else { set };
        match set.is_empty() {
            true => Err(self.error(start, "this class holds no byte and can never match")),
            false => Ok(Token::Class(set)),
        }
    }

    fn class_byte(&mut self, start: usize) -> Result<Option<u8>, Error> {
        match self.peek() {
            None | Some(b'\n') => Err(self.error(start, "this class has no end, expected ]")),
            Some(b']') => {
                self.at += 1;
                Ok(None)
            }
            Some(b'\\') => self.escape().map(Some),
            Some(byte) => {
                self.at += 1;
                Ok(Some(byte))
            }
        }
    }

    /// Reads a number, or an IPv4 address, alone or with `/prefix`.
    fn number(&mut self) -> Result<Token, Error> {
        let start = self.at;
        let rest = self.rest();
        let hex = rest.starts_with(b"0x") || rest.starts_with(b"0X");
        let mut len = if hex { 2 } else { 0 };
        let (mut dots, mut digits) = (0, 0);
        while let Some(byte) = rest.get(len) {
            let digit = if hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
            let dot = !hex && *byte == b'.' && rest.get(len + 1).is_some_and(u8::is_ascii_digit);
            if !digit && !dot {
                break;
            }
            dots += usize::from(dot);
            digits += usize::from(digit);
            len += 1;
        }
        self.at += len;
        if dots == 3 {
            return self.address(start);
        }
        let text = &self.text[start..self.at];
        let number = match hex {
            true => u64::from_str_radix(&text[2..], 16),
            false => text.parse(),
        };
        match number {
            Ok(number) if digits > 0 => Ok(Token::Number(number)),
            _ => Err(self.error(start, "expected a number below 2^64 or an address like 10.0.0.1")),
        }
    }

    fn address(&mut self, start: usize) -> Result<Token, Error> {
        let text = &self.text[start..self.at];
        let Ok(address) = text.parse::<std::net::Ipv4Addr>() else {
            return Err(self.error(start, "this is not an IPv4 address"));
        };
        let mut prefix = 32;
        if self.peek() == Some(b'/') {
            self.at += 1;
            let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
            prefix = self.text[self.at..self.at + digits].parse().unwrap_or(99);
            self.at += digits;
        }
        if prefix > 32 {
            return Err(self.error(start, "expected a prefix length from 0 to 32 after /"));
        }
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0).to_be_bytes();
        let bytes = address.octets().into_iter().zip(mask);
        Ok(Token::Sets(bytes.map(|(byte, mask)| ByteSet::masked(mask, byte)).collect()))
    }
}
