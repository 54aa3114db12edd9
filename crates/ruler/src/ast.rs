//! Syntax tree of a program, before names are resolved.

use crate::byte_set::ByteSet;
use crate::error::Span;

/// All texts of a program, parsed into one tree.
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
    /// Name of the layout.
    pub name: Name,
    /// Pattern that it names.
    pub pattern: Pattern,
}

/// `filter NAME [for LINK, …] RULE…`
#[derive(Debug)]
pub struct Filter {
    /// Name of the filter.
    pub name: Name,
    /// Link types that it applies to; empty = all.
    pub links: Vec<Name>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// `PATTERN => ACTION;`
#[derive(Debug)]
pub struct Rule {
    /// Pattern that must match the whole packet.
    pub pattern: Pattern,
    /// Action for packets that match.
    pub action: Action,
    /// From the pattern to the semicolon.
    pub span: Span,
}

/// A pattern and its place.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Kind of the pattern.
    pub kind: Kind,
    /// Its place.
    pub span: Span,
}

/// Kinds of patterns.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A set of bytes for each position.
    Sets(Vec<ByteSet>),
    /// A number without a size; the field that it constrains gives the size.
    Number(u64),
    /// Numbers from low to high, with the size of the field or of `~N`.
    Range(u64, u64, Option<u32>),
    /// `*`, `**`: any number of any bytes.
    Any {
        /// Longest match first.
        greedy: bool,
    },
    /// Concatenation.
    Sequence(Vec<Pattern>),
    /// Alternatives; the first is preferred.
    Alternation(Vec<Pattern>),
    /// Repetition.
    Repeat {
        /// Repeated pattern.
        pattern: Box<Pattern>,
        /// Minimum count.
        min: u32,
        /// Maximum count; none = unlimited.
        max: Option<u32>,
        /// Longest match first.
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
        /// Field that contains the count.
        field: Name,
        /// Factor of the field's value.
        factor: u32,
        /// Number added to the product.
        offset: i64,
        /// Maximum length.
        max: Option<u32>,
    },
}

/// Bits with a name or a value.
#[derive(Debug, Clone)]
pub struct BitField {
    /// Name, `_` for none.
    pub name: Name,
    /// Number of bits.
    pub width: u32,
    /// Required value.
    pub value: Option<u64>,
}

/// Action of a rule.
#[derive(Debug)]
pub enum Action {
    /// Accepts the packet, with a class value if one is given.
    Accept(Option<u32>),
    /// Rejects the packet.
    Reject,
    /// Rewrites the packet.
    Rewrite {
        /// Its parts.
        parts: Vec<Part>,
        /// Recomputes lengths.
        fix_lengths: bool,
        /// Recomputes checksums.
        fix_checksums: bool,
    },
}

/// A part of a new packet, and its place.
#[derive(Debug)]
pub struct Part {
    /// Kind of the part.
    pub kind: PartKind,
    /// Its place.
    pub span: Span,
}

/// Kinds of parts.
#[derive(Debug)]
pub enum PartKind {
    /// Literal bytes.
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
