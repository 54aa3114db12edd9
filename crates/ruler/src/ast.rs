//! What a text says, before names are resolved.

use crate::byte_set::ByteSet;
use crate::error::Span;

/// All texts of a program together.
#[derive(Debug, Default)]
pub struct Ast {
    /// Layouts, in the order of the text.
    pub layouts: Vec<Layout>,
    /// Filters, in the order of the text.
    pub filters: Vec<Filter>,
}

/// A word and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The word.
    pub text: String,
    /// Its place.
    pub span: Span,
}

/// `layout NAME = PATTERN;`
#[derive(Debug)]
pub struct Layout {
    /// What it is called.
    pub name: Name,
    /// What it describes.
    pub pattern: Pattern,
}

/// `filter NAME [for LINK, …] RULE…`
#[derive(Debug)]
pub struct Filter {
    /// What it is called.
    pub name: Name,
    /// Link types it is for; none = all.
    pub links: Vec<Name>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// `PATTERN => ACTION;`
#[derive(Debug)]
pub struct Rule {
    /// What packets look like.
    pub pattern: Pattern,
    /// What to do with them.
    pub action: Action,
    /// From the pattern to the semicolon.
    pub span: Span,
}

/// A pattern and its place.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// What it is.
    pub kind: Kind,
    /// Its place.
    pub span: Span,
}

/// Kinds of patterns.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A set of bytes for each position.
    Sets(Vec<ByteSet>),
    /// A number without a size: the field it is for gives it one.
    Number(u64),
    /// Numbers from low to high, in as many bytes as the field has or as `~N` says.
    Range(u64, u64, Option<u32>),
    /// `*`, `**`: any number of any bytes.
    Any {
        /// Longest first.
        greedy: bool,
    },
    /// One after the other.
    Sequence(Vec<Pattern>),
    /// One or the other; the first is preferred.
    Alternation(Vec<Pattern>),
    /// Again and again.
    Repeat {
        /// What.
        pattern: Box<Pattern>,
        /// At least.
        min: u32,
        /// At most.
        max: Option<u32>,
        /// Longest first.
        greedy: bool,
    },
    /// `name:pattern`.
    Named(Name, Box<Pattern>),
    /// A layout by its name.
    Layout(Name),
    /// `pattern with [field=pattern, …]`.
    With(Box<Pattern>, Vec<(Name, Pattern)>),
    /// `bits(version:4 ihl:4)`.
    Bits(Vec<BitField>),
    /// `bytes(field * factor + offset)`, at most `max`.
    Bytes {
        /// The field that says how many.
        field: Name,
        /// Multiplied by this,
        factor: u32,
        /// plus this.
        offset: i64,
        /// No more than so many.
        max: Option<u32>,
    },
}

/// Bits with a name or a value.
#[derive(Debug, Clone)]
pub struct BitField {
    /// Name, `_` for none.
    pub name: Name,
    /// How many bits.
    pub width: u32,
    /// What they must be.
    pub value: Option<u64>,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Let it pass, with a class value.
    Accept(Option<u32>),
    /// Do not.
    Reject,
    /// Make another packet.
    Rewrite {
        /// Its parts.
        parts: Vec<Part>,
        /// Repair lengths.
        fix_lengths: bool,
        /// Repair checksums.
        fix_checksums: bool,
    },
}

/// A part of a new packet, and its place.
#[derive(Debug)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Its place.
    pub span: Span,
}

/// Kinds of parts.
#[derive(Debug)]
pub enum PartKind {
    /// These bytes.
    Literal(Vec<u8>),
    /// A number without a size.
    Number(u64),
    /// `name`, `name.field`.
    Copy(Vec<Name>),
    /// `name with [field=part, …]`.
    With(Vec<Name>, Vec<(Name, Part)>),
    /// `word(part, …)`: a function, or a filter applied to a part.
    Call(Name, Vec<Part>),
}
