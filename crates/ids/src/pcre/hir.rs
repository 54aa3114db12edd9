//! A syntax tree as an expression of `regex-syntax`, if it is regular.
//!
//! The tree is translated part by part, so no text is quoted and read again. `$` before a last line feed becomes the
//! end: [`super::Pattern::find`] uses the automaton only where the two are the same.

use super::ast::{Kind, Node, Place};
use fyke_ruler::byte_set::ByteSet;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, Look, Repetition};

/// Largest cost of a tree for which an automaton is tried.
const MAX_COST: u64 = 100_000;

/// Translates a tree; none if it is not regular or is too large.
pub fn translate(node: &Node) -> Option<Hir> {
    if node.cost() > MAX_COST { None } else { hir(node) }
}

fn hir(node: &Node) -> Option<Hir> {
    let all = |nodes: &[Node]| nodes.iter().map(hir).collect::<Option<Vec<Hir>>>();
    Some(match node {
        Node::Empty => Hir::empty(),
        Node::Set(set) => {
            Hir::class(Class::Bytes(ClassBytes::new(ranges(set))))
        }
        Node::Sequence(nodes) => Hir::concat(all(nodes)?),
        Node::Alternation(nodes) => Hir::alternation(all(nodes)?),
        Node::Repeat { node, min, max, kind } => {
            // An empty iteration ends a loop in PCRE, which leads to other matches than the automaton finds.
            if *kind == Kind::Possessive || node.min_len() == 0 {
                return None;
            }
            let (sub, greedy) = (Box::new(hir(node)?), *kind == Kind::Greedy);
            Hir::repetition(Repetition { min: *min, max: *max, greedy, sub })
        }
        Node::Group(_, node) => hir(node)?,
        Node::At(place) => Hir::look(match place {
            Place::Start => Look::Start,
            Place::LineStart => Look::StartLF,
            Place::End | Place::LastLine => Look::End,
            Place::LineEnd => Look::EndLF,
            Place::Boundary => Look::WordAscii,
            Place::NoBoundary => Look::WordAsciiNegate,
        }),
        Node::Back(..) | Node::Look { .. } | Node::Atomic(_) => return None,
    })
}

/// Ranges of the bytes of a set.
fn ranges(set: &ByteSet) -> Vec<ClassBytesRange> {
    let mut found: Vec<ClassBytesRange> = Vec::new();
    for byte in set.iter() {
        match found.last_mut() {
            Some(last) if last.end() + 1 == byte => *last = ClassBytesRange::new(last.start(), byte),
            _ => found.push(ClassBytesRange::new(byte, byte)),
        }
    }
    found
}
