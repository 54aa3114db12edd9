//! Errors in a ruler text with their location: the line, a caret, and what was expected.
//!
//! ```text
//! www.rul:4: layout "TCP" has no field "dets"
//!   eh:Ethernet_IPv4 th:TCP with [dets=80~2] p:*
//!                                 ^^^^
//! hint: did you mean "dest"?
//! ```

use std::fmt;
use std::ops::Range;

/// Maximum number of characters shown before and after the location.
const SHOWN: usize = 60;

/// A location in one of the texts of a program: the number of the text, and a range of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Index into the list of texts.
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// End of the range, exclusive.
    pub end: u32,
}

impl Span {
    /// Range from the start of this one to the end of another.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.start), ..self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A text and its name for messages.
#[derive(Debug, Clone)]
pub struct Text {
    /// File name or other origin.
    pub name: String,
    /// The text.
    pub text: String,
}

/// A message about a location: an error, or a warning of `fyke ruler check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    message: String,
    hint: Option<String>,
    file: String,
    line: usize,
    excerpt: String,
    indent: usize,
    width: usize,
}

impl Error {
    /// Creates a message about a location.
    pub fn new(texts: &[Text], span: Span, message: impl Into<String>) -> Error {
        let mut inner = Inner {
            message: message.into(),
            hint: None,
            file: String::new(),
            line: 0,
            excerpt: String::new(),
            indent: 0,
            width: 0,
        };
        if let Some(text) = texts.get(span.file as usize) {
            inner.file.clone_from(&text.name);
            inner.place(&text.text, span.range());
        }
        Error(Box::new(inner))
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Counts lines from the one after `before`, at most `lines`.
    pub(crate) fn after_lines(mut self, before: usize, lines: usize) -> Error {
        if self.0.line > 0 {
            self.0.line = self.0.line.saturating_sub(before).clamp(1, lines);
        }
        self
    }

    /// The message in one line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Line of the location, from 1; 0 = no location.
    pub fn line(&self) -> usize {
        self.0.line
    }
}

impl Inner {
    fn place(&mut self, text: &str, range: Range<usize>) {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(range.start), floor(range.end));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        self.line = text[..start].matches('\n').count() + 1;
        let before: Vec<char> = text[line_start..start].chars().collect();
        let cut = before.len().saturating_sub(SHOWN);
        let mut shown = String::from(if cut > 0 { "…" } else { "" });
        shown.extend(&before[cut..]);
        let trimmed = shown.trim_start().len();
        let leading = shown.len() - trimmed;
        self.indent = shown.chars().count() - leading;
        shown.extend(text[start..line_end].chars().take(SHOWN));
        self.excerpt = shown[leading..].chars().map(printable).collect();
        self.width = text[start..end.clamp(start, line_end)].chars().count().clamp(1, SHOWN);
    }
}

fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{b7}',
        c => c,
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, hint, file, line, excerpt, indent, width } = &*self.0;
        if *line > 0 {
            write!(f, "{file}:{line}: {message}\n  {excerpt}\n")?;
            write!(f, "  {}{}", " ".repeat(*indent), "^".repeat(*width))?;
        } else {
            write!(f, "{message}")?;
        }
        match hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
