//! Common parts of all assemblers: lines without comments, a cursor with columns, constants, errors.
//!
//! Comments are `; …` to the end of the line and `/* … */` over any number of lines. They are replaced by blanks,
//! so that columns do not change. Recursion has a limit; a text has at most [`MAX_TEXT`] bytes. Cost: O(text).

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// Maximum length of a program text in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// Maximum nesting of parentheses in a constant.
const MAX_DEPTH: usize = 32;

/// An error in a program text: its location, the problem, and the line with a caret under the location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line as written.
    pub text: String,
    /// The problem, and what was expected.
    pub problem: String,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}, column {}: {}", self.line, self.column, self.problem)?;
        writeln!(f, "  {}", self.text)?;
        let before = self.text.chars().take(self.column.saturating_sub(1));
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        write!(f, "  {indent}^")
    }
}

impl std::error::Error for SourceError {}

/// Named constants, with a record of which were read. Clones share this record.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    values: HashMap<String, (u32, Rc<Cell<bool>>)>,
}

impl Symbols {
    /// Creates symbols with these constants.
    pub fn new(constants: &[(&str, u32)]) -> Symbols {
        let mut symbols = Symbols::default();
        constants.iter().for_each(|&(name, value)| symbols.define(name, value));
        symbols
    }

    /// Defines a name; a later definition replaces an earlier one.
    pub fn define(&mut self, name: &str, value: u32) {
        self.values.insert(name.to_owned(), (value, Rc::default()));
    }

    /// Reads a definition `name=value`: the value is a number (decimal, `0x…`, `0b…`, negative), or an IPv4
    /// address.
    ///
    /// # Errors
    /// What was expected.
    pub fn define_text(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = definition(text)?;
        self.define(name, value);
        Ok(())
    }

    /// Returns true if a name has a value.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<u32> {
        let (value, read) = self.values.get(name)?;
        read.set(true);
        Some(*value)
    }

    /// Returns true if the value of this name was read.
    pub fn was_read(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|(_, read)| read.get())
    }
}

/// Splits `name=value`.
pub(crate) fn definition(text: &str) -> Result<(&str, u32), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}`: expected NAME=VALUE"))?;
    let name = name.trim();
    if name.is_empty() || !name.chars().all(is_word) || name.starts_with(char::is_numeric) {
        return Err(format!("`{name}` is not a name"));
    }
    let value = value.trim();
    let address = value.parse::<std::net::Ipv4Addr>().ok().map(u32::from);
    let value = address
        .or_else(|| signed_number(value))
        .ok_or_else(|| format!("`{value}`: expected a 32-bit number or an IPv4 address"))?;
    Ok((name, value))
}

/// A line without its comments.
#[derive(Debug, Clone)]
pub(crate) struct Line<'a> {
    pub number: usize,
    pub original: &'a str,
    /// Characters of the line, with comments replaced by blanks.
    pub code: Vec<char>,
}

impl Line<'_> {
    pub fn is_blank(&self) -> bool {
        self.code.iter().all(|c| c.is_whitespace())
    }

    /// Creates an error at a character of this line, counted from 0.
    pub fn error(&self, at: usize, problem: impl Into<String>) -> SourceError {
        SourceError {
            line: self.number,
            column: at + 1,
            text: self.original.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Returns the lines that have more than comments.
pub(crate) fn lines(source: &str) -> Result<Vec<Line<'_>>, SourceError> {
    lines_with(source, true)
}

/// Does the same; `semicolons` tells if `;` starts a comment.
pub(crate) fn lines_with(source: &str, semicolons: bool) -> Result<Vec<Line<'_>>, SourceError> {
    if source.len() > MAX_TEXT {
        return Err(SourceError {
            line: 1,
            column: 1,
            text: String::new(),
            problem: format!("the text has {} bytes; at most {MAX_TEXT} are read", source.len()),
        });
    }
    let mut found = Vec::new();
    let mut in_comment = None;
    for (index, original) in source.lines().enumerate() {
        let mut code: Vec<char> = original.chars().collect();
        let mut at = 0;
        while at < code.len() {
            let pair = (code[at], code.get(at + 1).copied());
            if in_comment.is_some() {
                code[at] = ' ';
                if pair == ('*', Some('/')) {
                    code[at + 1] = ' ';
                    in_comment = None;
                    at += 1;
                }
            } else if pair == ('/', Some('*')) {
                code[at] = ' ';
                code[at + 1] = ' ';
                in_comment = Some((index + 1, at, original));
                at += 1;
            } else if semicolons && code[at] == ';' {
                code[at..].fill(' ');
                break;
            }
            at += 1;
        }
        let line = Line { number: index + 1, original, code };
        if !line.is_blank() {
            found.push(line);
        }
    }
    match in_comment {
        None => Ok(found),
        Some((number, at, original)) => {
            let line = Line { number, original, code: Vec::new() };
            Err(line.error(at, "this comment does not end: expected `*/`"))
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// Parses a number as in C, or `0b…`.
pub(crate) fn number(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    u32::from_str_radix(digits, radix).ok()
}

fn signed_number(text: &str) -> Option<u32> {
    match text.strip_prefix('-') {
        Some(rest) => number(rest).map(u32::wrapping_neg),
        None => number(text),
    }
}

/// A position in a line.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    pub line: &'a Line<'a>,
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(line: &'a Line<'a>) -> Self {
        Cursor { line, at: 0 }
    }

    pub fn error(&self, problem: impl Into<String>) -> SourceError {
        self.line.error(self.at, problem)
    }

    /// Creates an error that names what was expected and the word found here.
    pub fn expected(&mut self, what: &str) -> SourceError {
        self.skip_blank();
        let rest: String = self.line.code[self.at..].iter().collect();
        let found = rest.split_whitespace().next();
        match found {
            None => self.error(format!("expected {what}, found the end of the line")),
            Some(found) => self.error(format!("expected {what}, found `{found}`")),
        }
    }

    pub fn skip_blank(&mut self) {
        while self.line.code.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    /// Returns the next character that is not blank.
    pub fn peek(&mut self) -> Option<char> {
        self.skip_blank();
        self.line.code.get(self.at).copied()
    }

    pub fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Consumes a character if it is next.
    pub fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub fn need(&mut self, wanted: char) -> Result<(), SourceError> {
        if self.eat(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    /// Returns the next word (letters, digits, `_`, `.`) without consuming it.
    pub fn peek_word(&mut self) -> String {
        self.skip_blank();
        self.line.code[self.at..].iter().take_while(|&&c| is_word(c)).collect()
    }

    pub fn word(&mut self) -> Option<String> {
        let word = self.peek_word();
        self.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    /// Consumes a word if it is next, in any case.
    pub fn eat_word(&mut self, wanted: &str) -> bool {
        let word = self.peek_word();
        let found = word.eq_ignore_ascii_case(wanted);
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Consumes a word that this character directly follows, as in `P[`, and the character.
    pub fn eat_prefix(&mut self, word: &str, after: char) -> bool {
        let start = self.at;
        if self.eat_word(word) && self.eat(after) {
            return true;
        }
        self.at = start;
        false
    }

    pub fn need_end(&mut self) -> Result<(), SourceError> {
        if self.at_end() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    /// Parses a constant: numbers, names, `+`, `-`, `*`, `&`, `|`, `<<`, `>>`, `!` or `~` (all bits inverted),
    /// parentheses. Binary operators are evaluated from left to right, without precedence, except that `*` comes
    /// first.
    pub fn constant(&mut self, symbols: &Symbols) -> Result<u32, SourceError> {
        self.sum(symbols, 0)
    }

    /// Parses a number or a name, with its sign.
    pub fn primary(&mut self, symbols: &Symbols) -> Result<u32, SourceError> {
        self.unary(symbols, 0)
    }

    fn sum(&mut self, symbols: &Symbols, depth: usize) -> Result<u32, SourceError> {
        let mut value = self.product(symbols, depth)?;
        loop {
            let next = self.peek();
            let second = self.line.code.get(self.at + 1).copied();
            let operator = match (next, second) {
                (Some(c @ ('+' | '-' | '&' | '|')), _) => c,
                (Some(c @ ('<' | '>')), Some(d)) if c == d => c,
                _ => return Ok(value),
            };
            self.at += if matches!(operator, '<' | '>') { 2 } else { 1 };
            let right = self.product(symbols, depth)?;
            value = match operator {
                '+' => value.wrapping_add(right),
                '-' => value.wrapping_sub(right),
                '&' => value & right,
                '|' => value | right,
                '<' => value.checked_shl(right).unwrap_or(0),
                _ => value.checked_shr(right).unwrap_or(0),
            };
        }
    }

    fn product(&mut self, symbols: &Symbols, depth: usize) -> Result<u32, SourceError> {
        let mut value = self.unary(symbols, depth)?;
        while self.peek() == Some('*') {
            self.at += 1;
            value = value.wrapping_mul(self.unary(symbols, depth)?);
        }
        Ok(value)
    }

    fn unary(&mut self, symbols: &Symbols, depth: usize) -> Result<u32, SourceError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        if self.eat('-') {
            return Ok(self.unary(symbols, depth + 1)?.wrapping_neg());
        }
        if self.eat('!') || self.eat('~') {
            return Ok(!self.unary(symbols, depth + 1)?);
        }
        if self.eat('(') {
            let value = self.sum(symbols, depth + 1)?;
            self.need(')')?;
            return Ok(value);
        }
        let start = self.at;
        let Some(word) = self.word() else { return Err(self.expected("a number or a name")) };
        let value = if word.starts_with(|c: char| c.is_ascii_digit()) {
            match word.parse::<std::net::Ipv4Addr>() {
                Ok(address) => Some(address.into()),
                Err(_) => number(&word),
            }
            .ok_or("is not a 32-bit number")
        } else {
            symbols.get(&word).ok_or("has no value: give it one with -D NAME=VALUE")
        };
        value.map_err(|problem| {
            self.at = start;
            self.skip_blank();
            self.error(format!("`{word}` {problem}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(text: &str) -> Result<u32, SourceError> {
        let symbols = Symbols::new(&[("BIT", 0x4000), ("OFF", 14)]);
        let lines = lines(text)?;
        let mut cursor = Cursor::new(&lines[0]);
        let value = cursor.constant(&symbols)?;
        cursor.need_end().map(|()| value)
    }

    #[test]
    fn constants_are_read_as_written() {
        assert_eq!(constant("!BIT"), Ok(!0x4000));
        assert_eq!(constant("OFF + 2*3 /* six */ - 1 ; rest"), Ok(19));
        assert_eq!(constant("-1"), Ok(u32::MAX));
        assert_eq!(constant("10.0.0.1"), Ok(0x0a00_0001));
        assert_eq!(constant("(1 << 4) | 0b11 & 0x1f"), Ok(19));
        assert_eq!(constant("017"), Ok(15));
    }

    #[test]
    fn a_mistake_is_shown_with_a_caret() {
        let error = constant("  OFF + nothing").unwrap_err();
        assert_eq!((error.line, error.column), (1, 9));
        assert!(error.to_string().ends_with("          ^"), "{error}");
        assert!(constant("4294967296").is_err());
        assert!(constant("1 1").is_err());
        assert!(constant(&"(".repeat(1000)).is_err());
        assert!(lines("ld [1] /* never\nends").is_err());
        assert!(lines(&" ".repeat(MAX_TEXT + 1)).is_err());
    }

    #[test]
    fn definitions_take_numbers_and_addresses() {
        let mut symbols = Symbols::default();
        symbols.define_text("a=10.1.2.3").unwrap();
        symbols.define_text("b = 0xff").unwrap();
        symbols.define_text("c=-1").unwrap();
        assert_eq!([symbols.get("a"), symbols.get("b")], [Some(0x0a01_0203), Some(255)]);
        assert_eq!(symbols.get("c"), Some(u32::MAX));
        for wrong in ["x", "1=2", "=3", "a=", "a=ten", "a b=1"] {
            assert!(symbols.define_text(wrong).is_err(), "{wrong}");
        }
    }
}
