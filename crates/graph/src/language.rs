//! The graph language: from text to tree. It does not know the classes.
//!
//! ```text
//! (device, expression=eth0) > [(bpf, expression="tcp port 80") | (sampler, expression=2)] > {n}(packetcount, export=y)
//! ```
//!
//! | written | means |
//! |---|---|
//! | `a > b`, `a -> b` | a feeds b |
//! | `a -80-> b` | a feeds b, but only frames to which a gave class value 80 |
//! | `a \| b` | side by side; binds tighter than `>` |
//! | `a & b` | frames that both pass; binds tighter than `\|` |
//! | `!a` | frames that a does not pass; binds tightest |
//! | `[ … ]` | grouping |
//! | `(class, name=value, …)` | a node; `(class, expression, mbufsize)` as in 2004, and bare `export` |
//! | `{tag}(…)`, `{tag}()` | names a node; refers to a node named before |
//! | `#` | a comment up to the end of the line |
//!
//! Equal nodes at equal places are one node, whatever their tags; an edit of it concerns all texts that contain it.
//!
//! Invariants: every text gives a tree or an error with its position; nesting and length are limited. Cost: one pass.
//! Source: FFPF, section 2.3 (grammar and Fig. 2.9). The arrow form is that of its first publication; class edges are
//! Streamline's.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_graph as graph; }
//! use fyke::graph::language::parse;
//!
//! let parsed = parse("(device, expression=eth0) > (packetcount)")?;
//! assert!(!parsed.mixed); // no brackets needed
//! assert!(parse("(device").is_err());
//! # Ok::<(), fyke::graph::language::TextError>(())
//! ```

mod lex;
mod parse;
mod toml_form;

pub use parse::parse;
pub use toml_form::{TomlError, from_toml};

use std::fmt;
use std::ops::Range;

/// Longest text.
pub const MAX_TEXT_BYTES: usize = 1 << 24;
/// Most nodes of a text.
pub const MAX_NODES: usize = 4096;
/// Deepest nesting of groups.
pub const MAX_DEPTH: usize = 64;
/// Longest tag, in characters.
pub const MAX_TAG: usize = 32;

/// Byte offsets in a text.
pub type Span = Range<usize>;

/// A part of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// A node.
    Node(NodeText),
    /// The left feeds the right; with a class value, only frames of that class value go over the edge.
    Chain(Box<Tree>, Option<u32>, Box<Tree>),
    /// Parts side by side.
    Parallel(Vec<Tree>),
    /// Frames that all parts pass.
    Both(Vec<Tree>),
    /// Frames that arrive at the part and that it does not pass.
    Not(Box<Tree>, Span),
}

/// A node as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeText {
    /// Tag.
    pub tag: Option<String>,
    /// Class; empty if the node refers to another node by its tag.
    pub class: String,
    /// Parameters, in the order in which they were written; names need not be unique.
    pub parameters: Vec<ParameterText>,
    /// Position of the node.
    pub span: Span,
    /// Position of the class.
    pub class_span: Span,
}

/// A parameter as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterText {
    /// Name, in lower case.
    pub name: String,
    /// Value, without quotes.
    pub value: String,
    /// Position of the name.
    pub name_span: Span,
    /// Position of the value.
    pub value_span: Span,
}

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The graph.
    pub tree: Tree,
    /// True if `>` and `|` are used side by side without brackets that show which binds tighter.
    pub mixed: bool,
}

/// An error in a graph text, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// Problem.
    pub message: String,
    /// Text that would be valid at this position.
    pub expected: Option<Box<str>>,
    /// Advice.
    pub hint: Option<Box<str>>,
    /// Complete message of the class about a parameter's value.
    pub value: Option<Box<str>>,
    /// Position.
    pub span: Span,
    line: Box<str>,
    line_number: u32,
    indent: u32,
    width: u32,
}

/// Most characters of a line that are shown around the position.
const SHOWN: usize = 100;

impl TextError {
    /// An error at `span` of `text`.
    pub fn new(text: &str, span: Span, message: impl Into<String>) -> TextError {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end.max(span.start)));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let before = text[line_start..start].chars().count();
        let skipped = before.saturating_sub(SHOWN / 2);
        let shown = text[line_start..line_end].chars().skip(skipped).take(SHOWN);
        let mut line: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let room = line.chars().count().saturating_sub(before - skipped).max(1);
        if text[line_start..line_end].chars().nth(skipped + SHOWN).is_some() {
            line.push('…');
        }
        let cut = if skipped > 0 { "…" } else { "" };
        line.insert_str(0, cut);
        let width = text[start..end.min(line_end).max(start)].chars().count().clamp(1, room);
        TextError {
            message: message.into(),
            expected: None,
            hint: None,
            value: None,
            line_number: text[..start].matches('\n').count() as u32 + 1,
            span,
            line: line.into(),
            indent: (before - skipped + cut.chars().count()) as u32,
            width: width as u32,
        }
    }

    /// Adds the text that would be valid.
    pub fn expected(mut self, expected: impl Into<Box<str>>) -> TextError {
        self.expected = Some(expected.into());
        self
    }

    /// Adds advice.
    pub fn hint(mut self, hint: impl Into<Box<str>>) -> TextError {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the name that was probably meant, if one is similar enough.
    pub fn nearest<'n>(self, given: &str, names: impl IntoIterator<Item = &'n str>) -> TextError {
        match nearest(given, names) {
            Some(name) => self.hint(format!("did you mean \"{name}\"?")),
            None => self,
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.line_number > 1 {
            format!("line {}: ", self.line_number)
        } else {
            String::new()
        };
        writeln!(f, "{place}{}", self.message)?;
        writeln!(f, "  {}", self.line)?;
        write!(f, "  {}{}", " ".repeat(self.indent as usize), "^".repeat(self.width as usize))?;
        if let Some(expected) = &self.expected {
            write!(f, "\nexpected: {expected}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TextError {}

/// Returns the name nearest to `given`, if it is similar enough.
pub fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let given: Vec<char> = given.chars().take(64).flat_map(char::to_lowercase).collect();
    let limit = given.len() / 3 + 1;
    let distances = names.into_iter().map(|name| (distance(&given, name), name));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, name)| name)
}

/// Levenshtein's distance.
fn distance(given: &[char], name: &str) -> usize {
    let mut row: Vec<usize> = (0..=given.len()).collect();
    for (i, c) in name.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, d) in given.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *d);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[given.len()]
}

/// Writes a value, quoted where this is necessary.
pub fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:*+%".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for NodeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tag) = &self.tag {
            write!(f, "{{{tag}}}")?;
        }
        write!(f, "({}", self.class)?;
        for parameter in &self.parameters {
            write!(f, ", {}={}", parameter.name, quoted(&parameter.value))?;
        }
        write!(f, ")")
    }
}

/// Writes the tree with brackets around every group of several parts.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, members: &[Tree], operator: &str| {
            write!(f, "[")?;
            for (index, member) in members.iter().enumerate() {
                let between = if index > 0 { operator } else { "" };
                write!(f, "{between}{}", Inner(member))?;
            }
            write!(f, "]")
        };
        match self {
            Tree::Node(node) => write!(f, "{node}"),
            Tree::Chain(left, None, right) => write!(f, "{left} > {}", Inner(right)),
            Tree::Chain(left, Some(class), right) => {
                write!(f, "{left} -{class}-> {}", Inner(right))
            }
            Tree::Parallel(members) => list(f, members, " | "),
            Tree::Both(members) => list(f, members, " & "),
            Tree::Not(tree, _) => write!(f, "!{}", Inner(tree)),
        }
    }
}

/// A part that, if it is a chain, needs brackets of its own.
struct Inner<'a>(&'a Tree);

impl fmt::Display for Inner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            chain @ Tree::Chain(..) => write!(f, "[{chain}]"),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests;
