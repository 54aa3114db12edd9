//! Texts of rules: files into rules, rules into a header and options, without knowing what an option means.
//!
//! A rule is one line, or several: a line that ends with a backslash continues, and so does a rule with an open
//! parenthesis (Snort 3). A line that begins with an action always begins a rule, so a broken rule never takes the
//! next one with it. Bytes need not be UTF-8. Cost: one pass over the text; one rule is in memory at a time.

mod header;
mod options;

pub use header::{Direction, Header};
pub use options::RawOption;

use crate::error::Refused;
use std::io::{self, BufRead, Read};

/// Largest file of rules, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Most rules of a file.
pub const MAX_RULES: usize = 1 << 18;
/// Longest rule, in bytes.
pub const MAX_RULE_BYTES: usize = 1 << 16;
/// Most options of a rule.
pub const MAX_OPTIONS: usize = 1024;

/// A byte order mark in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Actions with which a rule begins.
pub const ACTIONS: [&str; 14] = [
    "alert",
    "pass",
    "drop",
    "sdrop",
    "reject",
    "rejectsrc",
    "rejectdst",
    "rejectboth",
    "log",
    "block",
    "activate",
    "dynamic",
    "react",
    "rewrite",
];

/// A rule as it is written.
#[derive(Debug, Clone)]
pub struct RawRule {
    /// Number of its first line, from 1.
    pub line: usize,
    /// Its header.
    pub header: Header,
    /// Its options, in order.
    pub options: Vec<RawOption>,
}

impl RawRule {
    /// The value of `sid`, if the rule has one that is a number.
    pub fn sid(&self) -> Option<u32> {
        let sid = self.options.iter().find(|option| option.name == "sid")?;
        std::str::from_utf8(&sid.value).ok()?.trim().parse().ok()
    }

    /// Reads one rule.
    ///
    /// # Errors
    /// If the text is no rule: the reason, with the part that is wrong.
    pub fn parse(text: &[u8], line: usize) -> Result<RawRule, Refused> {
        let refuse = |reason: String| Refused { line, sid: guess_sid(text), reason };
        if text.len() > MAX_RULE_BYTES {
            let reason = format!("longer than the {MAX_RULE_BYTES} bytes that a rule may have");
            return Err(refuse(reason));
        }
        let open = text.iter().position(|byte| *byte == b'(');
        let open = open.ok_or_else(|| refuse("no options: \"(\" is missing".to_owned()))?;
        let header = Header::parse(&text[..open]).map_err(refuse)?;
        let body = text[open + 1..].trim_ascii_end();
        let body = body
            .strip_suffix(b")")
            .ok_or_else(|| refuse("\")\" is missing at the end".to_owned()))?;
        let options = options::split(body).map_err(refuse)?;
        Ok(RawRule { line, header, options })
    }
}

/// Finds the number after `sid:` in a text that may be no rule, for the report.
fn guess_sid(text: &[u8]) -> Option<u32> {
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"sid") {
        let before = at.checked_sub(1).map(|at| rest[at]);
        rest = &rest[at + 3..];
        let value = rest.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        let Some(value) = value.filter(|_| before.is_none_or(|byte| b" ;(\t".contains(&byte)))
        else {
            continue;
        };
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if let Ok(sid) = std::str::from_utf8(&value[..digits]).unwrap_or_default().parse() {
            return Some(sid);
        }
    }
    None
}

/// The rules of a text, read line by line: the number of the first line, and the text, of each. A rule that is longer
/// than [`MAX_RULE_BYTES`] is cut after them.
///
/// # Errors
/// The error of the source, after which no rule follows.
#[derive(Debug)]
pub struct Rules<R> {
    from: R,
    /// Number of the last line.
    number: usize,
    line: Vec<u8>,
    /// The rule that is being read, and whether it continues on the next line.
    current: Option<(usize, Vec<u8>, bool)>,
}

impl<R: BufRead> Rules<R> {
    /// The rules of a source.
    pub fn new(from: R) -> Rules<R> {
        Rules { from, number: 0, line: Vec::new(), current: None }
    }

    /// Reads a line, cut after more bytes than a rule may have; false at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut is_end = true;
        loop {
            let part = match self.from.fill_buf() {
                Ok(part) => part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if part.is_empty() {
                return Ok(!is_end);
            }
            is_end = false;
            let end = memchr::memchr(b'\n', part);
            let count = end.unwrap_or(part.len());
            let room = (MAX_RULE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..count.min(room)]);
            self.from.consume(end.map_or(count, |end| end + 1));
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl<R: BufRead> Iterator for Rules<R> {
    type Item = io::Result<(usize, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_line() {
                Ok(true) => {
                    self.number += 1;
                    // Some editors begin a file with a byte order mark.
                    if self.number == 1 && self.line.starts_with(MARK) {
                        self.line.drain(..MARK.len());
                    }
                }
                Ok(false) => {
                    return self.current.take().map(|(number, text, _)| Ok((number, text)));
                }
                Err(error) => return Some(Err(error)),
            }
            let line = self.line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let begins = begins_rule(line);
            let (part, more) = unbroken(line);
            let goes_on = |text: &[u8]| text.len() <= MAX_RULE_BYTES && (more || !is_closed(text));
            if let Some((_, text, open @ true)) = &mut self.current
                && !begins
            {
                text.push(b' ');
                text.extend_from_slice(part);
                *open = goes_on(text);
                continue;
            }
            let rule = (self.number, part.to_vec(), begins && goes_on(part));
            if let Some((number, text, _)) = self.current.replace(rule) {
                return Some(Ok((number, text)));
            }
        }
    }
}

/// True if a text has rules, and not a filter expression: its first line that is no comment begins with an action.
pub fn is_rules(text: &str) -> bool {
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(|line| line.trim().as_bytes());
    lines.find(|line| !line.is_empty() && !line.starts_with(b"#")).is_some_and(begins_rule)
}

/// The same for a file, of which only the beginning is read.
pub fn begins_with_rules(from: impl Read) -> bool {
    let from = io::BufReader::new(from.take(MAX_FILE_BYTES));
    Rules::new(from).next().is_some_and(|rule| rule.is_ok_and(|(_, text)| begins_rule(&text)))
}

/// True if a line begins with an action and a space.
fn begins_rule(line: &[u8]) -> bool {
    let word = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    line.len() > word.len() && ACTIONS.iter().any(|action| action.as_bytes() == word)
}

/// A line without the backslash that continues it, and whether there was one.
fn unbroken(line: &[u8]) -> (&[u8], bool) {
    match line.strip_suffix(b"\\") {
        Some(part) => (part.trim_ascii_end(), true),
        None => (line, false),
    }
}

/// True if the rule ends with its closing parenthesis.
fn is_closed(rule: &[u8]) -> bool {
    rule.ends_with(b")")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "alert tcp any any -> any 80 (msg:\"a\"; sid:1;)";

    #[test]
    fn a_rule_continues_until_it_is_closed_and_never_takes_the_next_one() {
        let text = format!(
            "\u{feff}# comment\n\n{PLAIN}\nalert tcp any any -> any 80 \\\n (msg:\"b\"; \\\n sid:2;)\n\
             alert http (\n  msg:\"c\";\n# inside\n  sid:3;\n)\nalert tcp broken (msg:\"d\"; sid:4;\n\
             {PLAIN}\nwhat is this\n"
        );
        let found: Vec<_> = Rules::new(text.as_bytes()).map(Result::unwrap).collect();
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 7, 12, 13, 14]);
        let sids: Vec<Option<u32>> = found
            .iter()
            .map(|(line, text)| RawRule::parse(text, *line).ok().and_then(|rule| rule.sid()))
            .collect();
        assert_eq!(sids, [Some(1), Some(2), Some(3), None, Some(1), None]);
        let refused = RawRule::parse(&found[3].1, 12).unwrap_err();
        assert_eq!((refused.line, refused.sid), (12, Some(4)));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_rule() {
        let text = format!("\u{feff}{PLAIN}\n\u{feff}{PLAIN}");
        let found: Vec<_> = Rules::new(text.as_bytes()).map(Result::unwrap).collect();
        assert!(found[0].1 == PLAIN.as_bytes() && found[1].1 != PLAIN.as_bytes());
        assert!(is_rules(&text) && begins_with_rules(text.as_bytes()));
    }

    #[test]
    fn a_rule_that_is_too_long_is_refused() {
        let text = format!(
            "alert tcp any any -> any any (msg:\"{}\"; sid:9;)",
            "x".repeat(MAX_RULE_BYTES)
        );
        let refused = RawRule::parse(text.as_bytes(), 1).unwrap_err();
        assert!(refused.reason.contains("longer"), "{refused}");
        assert_eq!(refused.sid, Some(9));
    }
}
