//! The syntax tree of a pattern. Flags are resolved: a letter without case is a set, `.` is a set, `^` and `$` say
//! which of their meanings they have.

use fyke_ruler::byte_set::ByteSet;

/// Flags of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `i`: letters match in both cases.
    pub caseless: bool,
    /// `s`: `.` matches a line feed.
    pub dot_all: bool,
    /// `m`: `^` and `$` match at every line.
    pub multi_line: bool,
    /// `x`: spaces and comments in the pattern are ignored.
    pub extended: bool,
    /// `A`: the match begins at the first byte.
    pub anchored: bool,
    /// `E`: `$` matches only at the end.
    pub dollar_end_only: bool,
    /// `G`: repetitions are lazy unless `?` follows.
    pub ungreedy: bool,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Nothing.
    Empty,
    /// One byte of a set.
    Set(Box<ByteSet>),
    /// One after the other.
    Sequence(Vec<Node>),
    /// The first alternative that lets the rest match.
    Alternation(Vec<Node>),
    /// A repetition.
    Repeat {
        /// The repeated part.
        node: Box<Node>,
        /// The smallest count.
        min: u32,
        /// The largest count.
        max: Option<u32>,
        /// The order in which counts are tried.
        kind: Kind,
    },
    /// A group with a number, from 1.
    Group(u32, Box<Node>),
    /// A place that has no width.
    At(Place),
    /// The bytes that a group has matched, with or without case.
    Back(u32, bool),
    /// The text after this place, or before it, matches or does not.
    Look {
        /// The text that is looked for.
        node: Box<Node>,
        /// Length of the text before this place; none looks ahead.
        behind: Option<usize>,
        /// It must not match.
        negated: bool,
    },
    /// A group that is not entered again once it has matched.
    Atomic(Box<Node>),
}

/// Order in which a repetition is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As many as possible.
    Greedy,
    /// As few as possible.
    Lazy,
    /// As many as possible, never fewer.
    Possessive,
}

/// A place without width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `^`, `\A`.
    Start,
    /// `^` with `m`.
    LineStart,
    /// `\z`.
    End,
    /// `$`, `\Z`: the end, or before a last line feed.
    LastLine,
    /// `$` with `m`.
    LineEnd,
    /// `\b`.
    Boundary,
    /// `\B`.
    NoBoundary,
}

impl Node {
    /// Most states of an automaton for it, repetitions expanded.
    pub fn cost(&self) -> u64 {
        let sum = |nodes: &[Node]| nodes.iter().map(Node::cost).fold(1, u64::saturating_add);
        match self {
            Node::Empty | Node::At(_) | Node::Set(_) | Node::Back(..) => 1,
            Node::Sequence(nodes) | Node::Alternation(nodes) => sum(nodes),
            Node::Repeat { node, min, max, .. } => {
                let times = u64::from(max.unwrap_or(*min).max(*min).max(1));
                node.cost().saturating_add(1).saturating_mul(times)
            }
            Node::Group(_, node) | Node::Look { node, .. } | Node::Atomic(node) => node.cost(),
        }
    }

    /// Length of every match, if it is the same for all.
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            Node::Empty | Node::At(_) | Node::Look { .. } => Some(0),
            Node::Set(_) => Some(1),
            Node::Sequence(nodes) => nodes.iter().map(Node::fixed_len).sum(),
            Node::Alternation(nodes) => {
                let first = nodes.first()?.fixed_len()?;
                nodes.iter().all(|node| node.fixed_len() == Some(first)).then_some(first)
            }
            Node::Repeat { node, min, max, .. } if *max == Some(*min) => {
                node.fixed_len()?.checked_mul(*min as usize)
            }
            Node::Group(_, node) | Node::Atomic(node) => node.fixed_len(),
            Node::Repeat { .. } | Node::Back(..) => None,
        }
    }

    /// Length of the shortest match, at most.
    pub fn min_len(&self) -> usize {
        match self {
            Node::Empty | Node::At(_) | Node::Look { .. } | Node::Back(..) => 0,
            Node::Set(_) => 1,
            Node::Sequence(nodes) => nodes.iter().map(Node::min_len).fold(0, usize::saturating_add),
            Node::Alternation(nodes) => nodes.iter().map(Node::min_len).min().unwrap_or(0),
            Node::Repeat { node, min, .. } => node.min_len().saturating_mul(*min as usize),
            Node::Group(_, node) | Node::Atomic(node) => node.min_len(),
        }
    }

    /// True if a place of this kind is in it.
    pub fn has(&self, place: Place) -> bool {
        match self {
            Node::At(own) => *own == place,
            Node::Empty | Node::Set(_) | Node::Back(..) => false,
            Node::Sequence(nodes) | Node::Alternation(nodes) => {
                nodes.iter().any(|node| node.has(place))
            }
            Node::Repeat { node, .. }
            | Node::Group(_, node)
            | Node::Look { node, .. }
            | Node::Atomic(node) => node.has(place),
        }
    }

    /// True if no match can have `^` of a line at the end of the text, where PCRE does not match it.
    pub fn begins_lines_before_bytes(&self) -> bool {
        match self {
            Node::Alternation(nodes) => nodes.iter().all(Node::begins_lines_before_bytes),
            Node::Sequence(nodes) => match nodes.split_first() {
                Some((Node::At(Place::LineStart), rest)) => {
                    let bytes: usize =
                        rest.iter().map(Node::min_len).fold(0, usize::saturating_add);
                    bytes > 0 && !rest.iter().any(|node| node.has(Place::LineStart))
                }
                _ => !self.has(Place::LineStart),
            },
            Node::Group(_, node) => node.begins_lines_before_bytes(),
            _ => !self.has(Place::LineStart),
        }
    }
}
