//! A syntax tree as an expression of `regex-syntax`, if it is regular.
//!
//! The tree is translated part by part, so no text is quoted and read again. `$` before a last line feed becomes the
//! end: [`super::Pattern::find`] uses the automaton only where the two are the same.

use super::ast::{Kind, Node, Place};
use fyke_ruler::byte_set::ByteSet;
use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, Hir, Look, Repetition};

/// Largest cost of a tree for which an automaton is tried.
const MAX_COST: u64 = 100_000;

/// Translates a tree; none if it is not regular or is too large.
pub fn translate(node: &Node) -> Option<Hir> {
    if node.cost() > MAX_COST { None } else { hir(node, &mut 0) }
}

/// The expression of a part; `groups` counts the groups so far.
fn hir(node: &Node, groups: &mut u32) -> Option<Hir> {
    let mut all =
        |nodes: &[Node]| nodes.iter().map(|node| hir(node, groups)).collect::<Option<Vec<Hir>>>();
    Some(match node {
        Node::Empty => Hir::empty(),
        Node::Set(set) => Hir::class(Class::Bytes(ClassBytes::new(ranges(set)))),
        Node::Sequence(nodes) => Hir::concat(all(nodes)?),
        Node::Alternation(nodes) => {
            // `regex-syntax` takes a common beginning out of alternatives. If its length varies, that changes which
            // match is the first: `.+a|.+b` prefers `.+a`, `.+(?:a|b)` the longest `.+`. A group prevents it.
            let branch = |node: &Node| {
                let number = *groups + 1;
                let wrap = !begins_with_one_byte(node);
                *groups += u32::from(wrap);
                let sub = Box::new(hir(node, groups)?);
                Some(if wrap {
                    Hir::capture(Capture { index: number, name: None, sub })
                } else {
                    *sub
                })
            };
            Hir::alternation(nodes.iter().map(branch).collect::<Option<Vec<Hir>>>()?)
        }
        Node::Repeat { node, min, max, kind } => {
            // An empty iteration ends a loop in PCRE, which leads to other matches than the automaton finds.
            if *kind == Kind::Possessive || node.min_len() == 0 {
                return None;
            }
            let (sub, greedy) = (Box::new(hir(node, groups)?), *kind == Kind::Greedy);
            Hir::repetition(Repetition { min: *min, max: *max, greedy, sub })
        }
        Node::Group(_, node) => hir(node, groups)?,
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

/// True if the first part of a node is one byte.
fn begins_with_one_byte(node: &Node) -> bool {
    match node {
        Node::Set(_) => true,
        Node::Sequence(nodes) => nodes.first().is_some_and(begins_with_one_byte),
        _ => false,
    }
}

/// Ranges of the bytes of a set.
fn ranges(set: &ByteSet) -> Vec<ClassBytesRange> {
    let mut found: Vec<ClassBytesRange> = Vec::new();
    for byte in set.iter() {
        match found.last_mut() {
            Some(last) if last.end() + 1 == byte => {
                *last = ClassBytesRange::new(last.start(), byte)
            }
            _ => found.push(ClassBytesRange::new(byte, byte)),
        }
    }
    found
}
