//! Patterns with names resolved: the input of the automata and of the oracle.

use crate::byte_set::ByteSet;

/// A pattern over bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// The empty pattern, which always matches.
    Empty,
    /// One byte.
    Set(ByteSet),
    /// Concatenation.
    Sequence(Vec<Node>),
    /// Alternatives: the first branch that lets the rest match.
    Alternation(Vec<Node>),
    /// Repetition.
    Repeat {
        /// Repeated pattern.
        node: Box<Node>,
        /// Minimum count.
        min: u32,
        /// Maximum count; none = unlimited.
        max: Option<u32>,
        /// Longest match first.
        greedy: bool,
    },
    /// A span that is stored in a slot.
    Capture(u32, Box<Node>),
    /// A header that contains its own length in one byte: `head` (of fixed length; its first byte is the length byte),
    /// then any bytes. `variants` maps the value of the length byte to their number.
    Variable {
        /// From the length byte up to the variable part.
        head: Vec<Node>,
        /// Sets of values of the length byte, with the number of bytes after the head.
        variants: Vec<(ByteSet, u32)>,
        /// Slot of the variable part.
        slot: Option<u32>,
    },
}

impl Node {
    /// A sequence of sets.
    pub fn sets(sets: impl IntoIterator<Item = ByteSet>) -> Node {
        let mut nodes: Vec<Node> = sets.into_iter().map(Node::Set).collect();
        match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Sequence(nodes),
        }
    }

    /// `*` or `**`.
    pub fn any(greedy: bool) -> Node {
        Node::Repeat { node: Box::new(Node::Set(ByteSet::ALL)), min: 0, max: None, greedy }
    }

    /// Returns true for `*` or `**`, with or without a name.
    pub fn is_any(&self) -> bool {
        match self {
            Node::Capture(_, node) => node.is_any(),
            Node::Repeat { node, min: 0, max: None, .. } => **node == Node::Set(ByteSet::ALL),
            _ => false,
        }
    }

    /// Length in bytes, if it is constant.
    pub fn fixed_len(&self) -> Option<u64> {
        match self {
            Node::Empty => Some(0),
            Node::Set(_) => Some(1),
            Node::Sequence(nodes) => nodes.iter().map(Node::fixed_len).sum(),
            Node::Alternation(nodes) => {
                let first = nodes.first()?.fixed_len()?;
                nodes.iter().all(|node| node.fixed_len() == Some(first)).then_some(first)
            }
            Node::Repeat { node, min, max, .. } => {
                let len = node.fixed_len()?;
                (*max == Some(*min) || len == 0).then(|| len.saturating_mul(u64::from(*min)))
            }
            Node::Capture(_, node) => node.fixed_len(),
            Node::Variable { head, variants, .. } => {
                let (_, first) = variants.first()?;
                let same = variants.iter().all(|(_, len)| len == first);
                let head: u64 = head.iter().map(Node::fixed_len).sum::<Option<u64>>()?;
                same.then_some(head + u64::from(*first))
            }
        }
    }

    /// Largest length in bytes, if there is one.
    pub fn max_len(&self) -> Option<u64> {
        match self {
            Node::Empty => Some(0),
            Node::Set(_) => Some(1),
            Node::Sequence(nodes) => nodes.iter().map(Node::max_len).sum(),
            Node::Alternation(nodes) => {
                let lens: Option<Vec<u64>> = nodes.iter().map(Node::max_len).collect();
                lens.map(|lens| lens.into_iter().max().unwrap_or(0))
            }
            Node::Repeat { node, max, .. } => {
                let len = node.max_len()?;
                if len == 0 { Some(0) } else { Some(len.saturating_mul(u64::from((*max)?))) }
            }
            Node::Capture(_, node) => node.max_len(),
            Node::Variable { head, variants, .. } => {
                let head: u64 = head.iter().map(Node::max_len).sum::<Option<u64>>()?;
                let longest = variants.iter().map(|(_, len)| u64::from(*len)).max().unwrap_or(0);
                Some(head + longest)
            }
        }
    }

    /// Returns true if it can match no bytes.
    pub fn is_nullable(&self) -> bool {
        match self {
            Node::Empty => true,
            Node::Set(_) => false,
            Node::Sequence(nodes) => nodes.iter().all(Node::is_nullable),
            Node::Alternation(nodes) => nodes.iter().any(Node::is_nullable),
            Node::Repeat { node, min, .. } => *min == 0 || node.is_nullable(),
            Node::Capture(_, node) => node.is_nullable(),
            Node::Variable { .. } => false,
        }
    }

    /// One set per byte, if the pattern is that simple; at most `limit` of them.
    pub fn as_sets(&self, limit: usize) -> Option<Vec<ByteSet>> {
        let mut sets = Vec::new();
        self.push_sets(&mut sets, limit).then_some(sets)
    }

    fn push_sets(&self, sets: &mut Vec<ByteSet>, limit: usize) -> bool {
        if sets.len() > limit {
            return false;
        }
        match self {
            Node::Empty => true,
            Node::Set(set) => {
                sets.push(*set);
                true
            }
            Node::Sequence(nodes) => nodes.iter().all(|node| node.push_sets(sets, limit)),
            Node::Repeat { node, min, max, .. } if *max == Some(*min) => {
                (0..*min).all(|_| node.push_sets(sets, limit))
            }
            Node::Capture(_, node) => node.push_sets(sets, limit),
            _ => false,
        }
    }

    /// Maximum number of automaton states: the size with repetitions expanded.
    pub fn cost(&self) -> u64 {
        let sum = |nodes: &[Node]| nodes.iter().map(Node::cost).fold(0, u64::saturating_add);
        match self {
            Node::Empty => 0,
            Node::Set(_) => 1,
            Node::Sequence(nodes) | Node::Alternation(nodes) => sum(nodes),
            Node::Repeat { node, min, max, .. } => {
                let times = u64::from(max.unwrap_or(*min).max(*min).max(1));
                node.cost().saturating_add(1).saturating_mul(times)
            }
            Node::Capture(_, node) => node.cost(),
            Node::Variable { head, variants, .. } => {
                let longest = variants.iter().map(|(_, len)| u64::from(*len)).max().unwrap_or(0);
                sum(head).saturating_mul(variants.len() as u64).saturating_add(longest)
            }
        }
    }
}
