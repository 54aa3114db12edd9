//! Errors in filter texts, with their position.
//!
//! The display form shows the line, a caret line under the position, and the expected input:
//!
//! ```text
//! "prot" is not a word of the filter language
//!   tcp prot 80
//!       ^^^^
//! expected: "and", "or" or the end
//! hint: did you mean "port"?
//! ```

use std::fmt;
use std::ops::Range;

/// Most characters of a line that are shown; a longer line is cut around the place.
const SHOWN: usize = 100;

/// A filter text was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    message: String,
    expected: Option<String>,
    hint: Option<String>,
    span: Range<usize>,
    excerpt: Excerpt,
}

/// The part of the text that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Excerpt {
    line: String,
    /// Characters before the caret.
    indent: usize,
    /// Carets.
    width: usize,
}

impl Error {
    /// An error at `span` (byte offsets) of `text`.
    pub fn new(text: &str, span: Range<usize>, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            message: message.into(),
            expected: None,
            hint: None,
            excerpt: Excerpt::new(text, &span),
            span,
        }))
    }

    /// Adds the input that is expected at the position.
    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Error {
        self.0.expected = Some(expected.into());
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<impl Into<String>>) -> Error {
        self.0.hint = hint.map(Into::into);
        self
    }

    /// The position, as byte offsets into the text.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// The error in one line without the text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The input that is expected at the position, if known.
    pub fn expectation(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// Advice, if there is any.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, expected, hint, excerpt, .. } = &*self.0;
        write!(f, "{message}\n  {}\n", excerpt.line)?;
        write!(f, "  {}{}", " ".repeat(excerpt.indent), "^".repeat(excerpt.width))?;
        if let Some(expected) = expected {
            write!(f, "\nexpected: {expected}")?;
        }
        if let Some(hint) = hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl Excerpt {
    fn new(text: &str, span: &Range<usize>) -> Excerpt {
        let start = floor(text, span.start);
        let end = floor(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let before: Vec<char> = text[line_start..start].chars().rev().take(SHOWN / 2).collect();
        let cut_before = text[line_start..start].chars().nth(SHOWN / 2).is_some();
        let after: String = text[start..line_end].chars().take(SHOWN / 2).collect();
        let cut_after = text[start..line_end].chars().nth(SHOWN / 2).is_some();
        let mut line = String::from(if cut_before { "…" } else { "" });
        let indent = before.len() + usize::from(cut_before);
        line.extend(before.into_iter().rev().chain(after.chars()).map(printable));
        line.push_str(if cut_after { "…" } else { "" });
        let marked = text[start..end.min(line_end)].chars().count();
        Excerpt { line, indent, width: marked.clamp(1, SHOWN / 2) }
    }
}

/// Replaces a character by one that takes one column and does not move the terminal's cursor.
fn printable(character: char) -> char {
    match character {
        '\t' | '\r' => ' ',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    }
}

/// The nearest character boundary at or before `index`.
fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_line_caret_expectation_and_hint() {
        let text = "ip and\ntcp prot 80";
        let error = Error::new(text, 11..15, "wrong").expected("x").with_hint(Some("y"));
        let shown = error.to_string();
        assert_eq!(shown, "wrong\n  tcp prot 80\n      ^^^^\nexpected: x\nhint: y");
    }

    #[test]
    fn long_lines_are_cut_around_the_place_and_odd_places_do_not_panic() {
        let text = format!("{} prot {}", "é".repeat(500), "b".repeat(500));
        let shown = Error::new(&text, 1001..1005, "wrong").to_string();
        let line = shown.lines().nth(1).unwrap().trim_start();
        assert!(line.chars().count() <= SHOWN + 2 && line.contains("prot"), "{line}");
        for start in 0..20 {
            let _ = Error::new("é\u{7}", start..start + 3, "m").to_string();
        }
    }
}
