//! Words of the graph language, outside and inside a node's parentheses.
//!
//! Between nodes a text has operators; inside `( )` it has names and values, where a value without quotes ends at the
//! next comma or parenthesis. So there are two ways to read, and the parser chooses. Cost: each byte once.

use super::{Span, TextError};

/// A word between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// `(`
    Open,
    /// `{`
    Tag,
    /// `[`
    Group,
    /// `]`
    GroupEnd,
    /// `>` or `->`, or `-80->`.
    Feeds(Option<u32>),
    /// `|`
    Beside,
    /// `&`
    Both,
    /// `!`
    Not,
    /// The end of the text.
    End,
}

/// Reads a text from left to right.
pub struct Lexer<'t> {
    pub text: &'t str,
    pub at: usize,
}

impl<'t> Lexer<'t> {
    pub fn error(&self, span: Span, message: impl Into<String>) -> TextError {
        TextError::new(self.text, span, message)
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips blanks and comments.
    pub fn skip(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            if !self.rest().starts_with('#') {
                return;
            }
            let comment = self.rest();
            self.at += comment.find('\n').unwrap_or(comment.len());
        }
    }

    /// Returns the next word between nodes and its position, and does not consume it.
    pub fn peek(&mut self) -> Result<(Token, Span), TextError> {
        self.skip();
        let Some(first) = self.rest().chars().next() else {
            return Ok((Token::End, self.at..self.at));
        };
        let one = self.at..self.at + first.len_utf8();
        let token = match first {
            '(' => Token::Open,
            '{' => Token::Tag,
            '[' => Token::Group,
            ']' => Token::GroupEnd,
            '>' => Token::Feeds(None),
            '|' => Token::Beside,
            '&' => Token::Both,
            '!' => Token::Not,
            '-' => return self.arrow(),
            ')' => {
                let error = self.error(one, "this `)` closes nothing");
                return Err(error.expected("`>`, `|`, `&`, `]` or the end"));
            }
            '“' | '”' | '‘' | '’' => {
                return Err(self.error(one, "typographic quotes are not quotes").hint("use \""));
            }
            _ => {
                let word = self.rest().split(|c: char| !c.is_alphanumeric()).next();
                let end = self.at + word.unwrap_or_default().len().max(one.len());
                let error = self.error(self.at..end, "this is not a node");
                return Err(error.expected("a node in parentheses, `(class, name=value)`"));
            }
        };
        Ok((token, one))
    }

    /// `->` or `-80->`.
    fn arrow(&self) -> Result<(Token, Span), TextError> {
        let rest = &self.rest()[1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let arrow = if digits == 0 { ">" } else { "->" };
        let end = self.at + 1 + digits;
        if !after.starts_with(arrow) {
            let error = self.error(self.at..end, "this edge has no end");
            return Err(error.expected("`->`, or `-80->` for the class value 80"));
        }
        let span = self.at..end + arrow.len();
        if digits == 0 {
            return Ok((Token::Feeds(None), span));
        }
        let Ok(class) = number.parse() else {
            let error = self.error(self.at + 1..end, format!("{number} is not a class value"));
            return Err(error.expected("a number from 0 to 4294967295"));
        };
        Ok((Token::Feeds(Some(class)), span))
    }

    /// Consumes one character if it is next.
    pub fn take(&mut self, wanted: char) -> bool {
        self.skip();
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Reads the text up to the next delimiter, or in quotes; returns it with its position. Empty if there is
    /// nothing.
    pub fn value(&mut self, delimiters: &[char]) -> Result<(String, Span), TextError> {
        self.skip();
        let start = self.at;
        match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => return self.in_quotes(quote),
            Some(c @ ('“' | '”' | '‘' | '’')) => {
                let span = start..start + c.len_utf8();
                return Err(self.error(span, "typographic quotes are not quotes").hint("use \""));
            }
            _ => {}
        }
        let rest = self.rest();
        let end = rest.find(delimiters).unwrap_or(rest.len());
        let value = rest[..end].trim_end();
        if let Some(at) = value.find(['"', '(', '[', ']', '{', '}', '>', '|', '\n']) {
            let at = start + at;
            let error = self.error(at..at + 1, "this character is not allowed here without quotes");
            return Err(error.expected("`,` or `)`").hint("put the whole value in \"quotes\""));
        }
        self.at += end;
        Ok((value.to_owned(), start..start + value.len()))
    }

    fn in_quotes(&mut self, quote: char) -> Result<(String, Span), TextError> {
        let start = self.at;
        let mut value = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at = start + 1 + at + 1;
                    return Ok((value, start + 1..start + 1 + at));
                }
                '\\' => match chars.next() {
                    Some((_, next)) if next == quote || next == '\\' => value.push(next),
                    Some((_, next)) => value.extend(['\\', next]),
                    None => break,
                },
                c => value.push(c),
            }
        }
        Err(self
            .error(start..start + 1, "these quotes are never closed")
            .expected(quote.to_string()))
    }
}
