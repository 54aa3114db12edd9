//! Rule sets of the ruler bench: typical search patterns, as ruler texts and as regular expressions.
//!
//! They come from a file of Snort rules if one is given (the longest content of each rule as a literal; two
//! contents of one rule, with the bytes allowed between them, as a regular pattern); otherwise they are generated
//! from a seed.

use crate::bench::BenchError;
use crate::bench::traffic::Random;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

/// Minimum length of a literal: shorter contents are in every packet.
const MIN_CONTENT: usize = 4;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal bytes.
    Bytes(Vec<u8>),
    /// Any bytes.
    Any,
    /// Bytes of a class, in a notation common to both languages, with a minimum and a maximum count.
    Class(&'static str, u32, u32),
}

/// A pattern that may be anywhere in a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(pub Vec<Piece>);

impl Pattern {
    /// Formats it as the left side of a rule.
    pub fn ruler(&self) -> String {
        let mut text = "*".to_owned();
        for piece in &self.0 {
            // A write to a string cannot fail.
            let _ = match piece {
                Piece::Any => write!(text, " *"),
                Piece::Class(set, min, max) => write!(text, " {set}{{{min},{max}}}"),
                Piece::Bytes(bytes) => {
                    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    write!(text, " x\"{digits}\"")
                }
            };
        }
        text + " *"
    }

    /// Formats it as a regular expression over bytes, in which a dot is any byte.
    pub fn regex(&self) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            let _ = match piece {
                Piece::Any => write!(text, ".*"),
                Piece::Class(set, min, max) => write!(text, "{set}{{{min},{max}}}"),
                Piece::Bytes(bytes) => {
                    bytes.iter().try_for_each(|byte| write!(text, "\\x{byte:02x}"))
                }
            };
        }
        text
    }

    /// Returns the bytes if it consists only of them.
    pub fn literal(&self) -> Option<&[u8]> {
        match &self.0[..] {
            [Piece::Bytes(bytes)] => Some(bytes),
            _ => None,
        }
    }
}

/// Formats all rules of a filter.
pub fn filter(patterns: &[Pattern]) -> String {
    let mut text = "filter all\n".to_owned();
    for (number, pattern) in patterns.iter().enumerate() {
        let _ = writeln!(text, "{} => accept {number};", pattern.ruler());
    }
    text
}

/// Contents of rules, rule by rule.
#[derive(Debug)]
pub struct Contents(Vec<Vec<Vec<u8>>>);

impl Contents {
    /// Reads the contents from a file of Snort rules, without negated ones.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_file(path: &Path) -> Result<Contents, BenchError> {
        let bytes = std::fs::read(path).map_err(|error| BenchError::File {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let rule = |line: &str| {
            let contents = line.split("content:\"").skip(1);
            contents.filter_map(content).filter(|bytes| !bytes.is_empty()).collect()
        };
        let rules = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        Ok(Contents(rules.map(rule).filter(|contents: &Vec<_>| !contents.is_empty()).collect()))
    }

    /// Generates contents: words with a number, as in names of files and parameters.
    pub fn made(random: &mut Random) -> Contents {
        const WORDS: [&str; 8] =
            ["admin", "/cgi-bin/", "User-Agent: ", ".php?", "\r\nX-", "cmd=", "\x7fELF", "union "];
        let mut one = || {
            let word = WORDS[random.below(WORDS.len())];
            let number = random.below(100_000);
            format!("{word}{number:x}").into_bytes()
        };
        Contents((0..20_000).map(|_| vec![one(), one()]).collect())
    }

    /// Returns distinct literals.
    pub fn literals(&self, count: usize) -> Vec<Pattern> {
        let mut known = HashSet::new();
        let longest = self.0.iter().filter_map(|rule| rule.iter().max_by_key(|one| one.len()));
        let new = longest.filter(|bytes| bytes.len() >= MIN_CONTENT && known.insert(*bytes));
        new.take(count).map(|bytes| Pattern(vec![Piece::Bytes(bytes.clone())])).collect()
    }

    /// Returns patterns that are not literals, of three kinds in turn.
    pub fn regular(&self, count: usize) -> Vec<Pattern> {
        let mut known = HashSet::new();
        let rules = self.0.iter().filter(|rule| rule.len() >= 2 && known.insert(&rule[..2]));
        let long = rules.filter(|rule| rule[..2].iter().any(|one| one.len() >= MIN_CONTENT));
        let pattern = |(number, rule): (usize, &Vec<Vec<u8>>)| {
            let between = match number % 3 {
                0 => Piece::Any,
                1 => Piece::Class("[a-z0-9]", 1, 16),
                _ => Piece::Class("[^\\r\\n]", 0, 24),
            };
            Pattern(vec![Piece::Bytes(rule[0].clone()), between, Piece::Bytes(rule[1].clone())])
        };
        long.enumerate().map(pattern).take(count).collect()
    }
}

/// Parses a content up to its closing quote: text, `\` before special characters, hexadecimal digits between bars.
fn content(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut characters = text.bytes();
    let mut digits: Option<Vec<u8>> = None;
    loop {
        match (characters.next()?, &mut digits) {
            (b'"', None) => return Some(bytes),
            (b'|', None) => digits = Some(Vec::new()),
            (b'|', Some(given)) => {
                for pair in given.chunks(2) {
                    bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
                }
                digits = None;
            }
            (b' ', Some(_)) => {}
            (digit, Some(given)) => given.push(digit),
            (b'\\', None) => bytes.push(characters.next()?),
            (byte, None) => bytes.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_and_both_languages() {
        assert_eq!(content(r#"GET |0d 0a|\"x"; depth:4"#).unwrap(), b"GET \r\n\"x");
        assert_eq!(content("never ends"), None);
        let pattern = Pattern(vec![
            Piece::Bytes(b"a.".to_vec()),
            Piece::Class("[0-9]", 1, 3),
            Piece::Any,
            Piece::Bytes(b"b".to_vec()),
        ]);
        assert_eq!(pattern.ruler(), "* x\"612e\" [0-9]{1,3} * x\"62\" *");
        assert_eq!(pattern.regex(), "\\x61\\x2e[0-9]{1,3}.*\\x62");
        let made = Contents::made(&mut Random::new(1));
        assert_eq!((made.literals(1000).len(), made.regular(1000).len()), (1000, 1000));
    }
}
