//! The tree that lowering works on: negations are at the literals, chains are flattened, constants are removed.
//!
//! Nodes are merged (`merge.rs`) as soon as their children are complete, so a long list never exists as a tree of
//! all its literals.
//!
//! Every node knows its part of the text, so that an error can point there. Building is O(nodes).

use super::literal::{Leaf, Literal, from_address, from_load, from_relation};
use super::merge::{Stage, merge};
use fyke_filter::Node;
use fyke_frame::Condition;
use std::ops::Range;
use std::sync::Arc;

/// Deepest nesting of a condition; the readers of texts allow less.
pub(super) const MAX_DEPTH: usize = 1_000;

/// Number of parts of a list that are merged together.
const CHUNK: usize = 512;

/// Part of a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(range: &Range<usize>) -> Span {
        let clip = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: clip(range.start), end: clip(range.end) }
    }

    pub fn join(self, other: Span) -> Span {
        match (self.start == self.end, other.start == other.end) {
            (true, _) => other,
            (_, true) => self,
            _ => Span { start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }

    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Operator that joins the children of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Join {
    All,
    Any,
}

impl Join {
    pub fn dual(self) -> Join {
        if self == Join::All { Join::Any } else { Join::All }
    }
}

/// Position of a part of a condition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
    /// Under an odd number of negations.
    pub negated: bool,
    /// The place in the text.
    pub span: Span,
    /// The join of its parent node.
    pub under: Option<Join>,
}

/// A node.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    Const(bool),
    Leaf {
        literal: Literal,
        negated: bool,
        span: Span,
    },
    /// Two or more children; none of them is a constant or has the same join.
    Joined {
        join: Join,
        children: Vec<Tree>,
        span: Span,
    },
}

impl Tree {
    pub fn span(&self) -> Span {
        match self {
            Tree::Const(_) => Span::default(),
            Tree::Leaf { span, .. } | Tree::Joined { span, .. } => *span,
        }
    }

    /// Joins parts, flattening and dropping constants.
    pub fn join(join: Join, mut parts: Vec<Tree>) -> Tree {
        let absorbing = join == Join::Any;
        let span = parts.iter().fold(Span::default(), |span, part| span.join(part.span()));
        let plain = |part: &Tree| match part {
            Tree::Const(_) => false,
            Tree::Leaf { .. } => true,
            Tree::Joined { join: inner, .. } => *inner != join,
        };
        if !parts.iter().all(plain) {
            let mut children = Vec::with_capacity(parts.len());
            for part in parts {
                match part {
                    Tree::Const(value) if value == absorbing => return Tree::Const(absorbing),
                    Tree::Const(_) => {}
                    Tree::Joined { join: inner, children: parts, .. } if inner == join => {
                        children.extend(parts);
                    }
                    other => children.push(other),
                }
            }
            parts = children;
        }
        match parts.len() {
            0 => Tree::Const(!absorbing),
            1 => parts.swap_remove(0),
            _ => Tree::Joined { join, children: parts, span },
        }
    }

    /// Joins parts and merges them repeatedly on the way, so that a long list of one kind stays short. Nothing is
    /// merged if the node's parent has the same join (`under`), because the parent will merge. `None` as soon as a part
    /// is `None`.
    pub fn gather(
        join: Join,
        under: Option<Join>,
        parts: impl Iterator<Item = Option<Tree>>,
    ) -> Option<Tree> {
        if under == Some(join) {
            return Some(Tree::join(join, parts.collect::<Option<Vec<Tree>>>()?));
        }
        let mut gathered = Vec::with_capacity(parts.size_hint().0.min(CHUNK));
        let mut limit = CHUNK;
        for part in parts {
            gathered.push(part?);
            if gathered.len() >= limit {
                gathered = match merge(Tree::join(join, gathered), Stage::First) {
                    Tree::Joined { join: own, children, .. } if own == join => children,
                    other => vec![other],
                };
                limit = CHUNK.max(4 * gathered.len());
            }
        }
        Some(merge(Tree::join(join, gathered), Stage::All))
    }

    /// The tree of a condition, or `None` if it is nested too deeply.
    pub fn of(condition: &Condition, context: Context, depth: usize) -> Option<Tree> {
        let Context { negated, span, under } = context;
        if depth > MAX_DEPTH {
            return None;
        }
        let leaf = |leaf: Leaf| match leaf {
            Leaf::Const(value) => Tree::Const(value != negated),
            Leaf::Is(literal) => Tree::Leaf { literal, negated, span },
            Leaf::Not(literal) => Tree::Leaf { literal, negated: !negated, span },
        };
        let joined = |join: Join, operands: &[Condition]| {
            let join = if negated { join.dual() } else { join };
            let inside = Context { under: Some(join), ..context };
            let parts = operands.iter().map(|operand| Tree::of(operand, inside, depth + 1));
            Tree::gather(join, under, parts)
        };
        match condition {
            Condition::Const(value) => Some(Tree::Const(*value != negated)),
            Condition::All(operands) => joined(Join::All, operands),
            Condition::Any(operands) => joined(Join::Any, operands),
            Condition::Not(inner) => {
                Tree::of(inner, Context { negated: !negated, ..context }, depth + 1)
            }
            Condition::Load(load) => Some(leaf(from_load(load))),
            Condition::Address6(address) => Some(leaf(from_address(address))),
            Condition::Relation(relation, left, right) => {
                Some(leaf(from_relation(*relation, left, right)))
            }
            Condition::Chain(_) => {
                Some(leaf(Leaf::Is(Literal::Other(Arc::new(condition.clone())))))
            }
        }
    }

    /// The tree of a predicate's node; the predicate's depth has been checked.
    pub fn of_node(node: &Node, context: Context) -> Option<Tree> {
        let Context { negated, under, .. } = context;
        let joined = |join: Join, operands: &[Node]| {
            let join = if negated { join.dual() } else { join };
            let inside = Context { under: Some(join), ..context };
            Tree::gather(join, under, operands.iter().map(|one| Tree::of_node(one, inside)))
        };
        match node {
            Node::Const(value) => Some(Tree::Const(*value != negated)),
            Node::All(operands) => joined(Join::All, operands),
            Node::Any(operands) => joined(Join::Any, operands),
            Node::Not(inner) => Tree::of_node(inner, Context { negated: !negated, ..context }),
            Node::Primitive(primitive) => {
                let span = Span::new(&primitive.span);
                Tree::of(&primitive.condition, Context { span, ..context }, 0)
            }
        }
    }

    /// The tree of the negation.
    pub fn negated(&self) -> Tree {
        match self {
            Tree::Const(value) => Tree::Const(!value),
            Tree::Leaf { literal, negated, span } => {
                Tree::Leaf { literal: literal.clone(), negated: !negated, span: *span }
            }
            Tree::Joined { join, children, span } => {
                let children = children.iter().map(Tree::negated).collect();
                Tree::Joined { join: join.dual(), children, span: *span }
            }
        }
    }

    /// Calls `visit` for every literal.
    pub fn literals(&self, visit: &mut impl FnMut(&Literal, bool)) {
        match self {
            Tree::Const(_) => {}
            Tree::Leaf { literal, negated, .. } => visit(literal, *negated),
            Tree::Joined { children, .. } => {
                children.iter().for_each(|child| child.literals(visit));
            }
        }
    }
}

/// Values as a sorted list without duplicates.
pub(super) fn sorted<T: Ord + Copy>(mut values: Vec<T>) -> Arc<[T]> {
    // Stable: lists grow by appending sorted ones, which this sort merges in one go.
    values.sort();
    values.dedup();
    values.into()
}
