//! Merging: similar alternatives become one test over a set.
//!
//! `host a or host b or …` is, below the text, an *any* of conditions that are equal but for one value, which occurs in
//! several places. If that value is only ever an alternative (no two of its places are joined by *all*), the *any* over
//! the conditions is the condition over the set of values: `(P and x = 1) or (P and x = 2)` is `P and x in {1, 2}`.
//! Under *all* the same holds for negated tests. So 10,000 hosts are one test of a set, whether they are wanted or
//! unwanted, and a product of lists stays two lists.
//!
//! Alternatives that differ in several operands, `host a and port x or host b and port y or …`, are not merged unless
//! few would be left. Such passes become rows of a table, and a list would remove its operands from the key
//! (`shapes.rs`).
//!
//! Two alternatives that test for the same values at two places become one test of either place (source or
//! destination). Last, negated tests of neighbouring bytes are fused, so that "not (TCP and not a fragment)" is one
//! instruction. Cost: expected O(literals) per round, a few rounds. The order of the text is not kept: `needs.rs`
//! explains why this is correct.

use super::THRESHOLD;
use super::literal::{Bits, Literal, SPAN, Word};
use super::tree::{Join, Span, Tree, sorted};
use crate::isa::hash::{Mix, MixMap, MixSet, digest};
use crate::isa::test::Base;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Size of a node up to which each child is compared with each.
const SMALL: usize = 8;

/// Children that are merged: all children that a node will have, or the first ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    All,
    First,
}

impl Stage {
    /// Largest number of alternatives that may remain of a group: one if they differ in one operand, otherwise fewer
    /// than a table is worth.
    fn most(self) -> usize {
        if self == Stage::All { THRESHOLD - 1 } else { 1 }
    }
}

/// Merges the children of a node; the grandchildren are merged already.
pub(super) fn merge(tree: Tree, stage: Stage) -> Tree {
    let Tree::Joined { join, mut children, span } = tree else { return tree };
    if children.iter().filter(|child| !matches!(child, Tree::Leaf { .. })).count() < 2
        && children.len() <= SMALL
    {
        merge_leaves(join, &mut children);
        return joined(join, children, span);
    }
    while merge_sets(join, &mut children, stage) | pair_places(join, &mut children) {}
    joined(join, children, span)
}

fn joined(join: Join, mut children: Vec<Tree>, span: Span) -> Tree {
    match children.len() {
        1 => children.swap_remove(0),
        _ => Tree::Joined { join, children, span },
    }
}

/// PERF: most nodes of a long list have at most this size, and comparing each child with each is faster than hash
/// tables there (10,000 hosts: 110 ms with tables everywhere, see the test of that name for today's figure).
fn merge_leaves(join: Join, children: &mut Vec<Tree>) {
    let wanted = join == Join::All;
    let mut first = 0;
    while first < children.len() {
        let mut other = first + 1;
        while other < children.len() {
            let (
                Tree::Leaf { literal: a, negated: na, .. },
                Tree::Leaf { literal: b, negated: nb, .. },
            ) = (&children[first], &children[other])
            else {
                other += 1;
                continue;
            };
            let merged = match (na == nb, *na == wanted) {
                (true, _) if a == b => Some(a.clone()),
                (true, true) => union(a, b).or_else(|| pair(a, b)),
                _ => None,
            };
            match merged {
                Some(literal) => {
                    let negated = *na;
                    let span = children[first].span().join(children[other].span());
                    children[first] = Tree::Leaf { literal, negated, span };
                    children.remove(other);
                    other = first + 1;
                }
                None => other += 1,
            }
        }
        first += 1;
    }
}

/// Two tests of one place as one.
pub(super) fn union(a: &Literal, b: &Literal) -> Option<Literal> {
    let ((frame, x), (other, y)) = (hole(a)?, hole(b)?);
    (frame == other).then(|| frame.with(&x.and(&y)))
}

/// Fuses negated tests of neighbouring bytes that are joined by *any*. `floor` becomes the shortest length of a frame
/// that contains all bytes of the fused tests.
pub(super) fn fuse(tree: Tree, floor: &mut u32) -> Tree {
    let Tree::Joined { join, mut children, span } = tree else { return tree };
    let is_guard = |child: &Tree| {
        let direct = |literal: &_| matches!(literal, Literal::Bytes { base: Base::Direct, .. });
        matches!(child, Tree::Leaf { literal, negated: true, .. } if direct(literal))
    };
    if join == Join::All || !children.iter().any(is_guard) {
        for child in &mut children {
            *child = fuse(std::mem::replace(child, Tree::Const(true)), floor);
        }
        return with_span(Tree::join(join, children), span);
    }
    let mut rest = Vec::new();
    let mut bytes: Vec<(u16, u128, u128, Span)> = Vec::new();
    for child in children {
        match child {
            Tree::Leaf {
                literal: Literal::Bytes { base: Base::Direct, at, mask, value },
                negated: true,
                span,
            } => bytes.push((at, mask.all(), value.all(), span)),
            other => rest.push(fuse(other, floor)),
        }
    }
    bytes.sort_unstable_by_key(|&(at, mask, ..)| (at, mask));
    let mut fused: Vec<(u16, u128, u128, Span, bool)> = Vec::new();
    for (at, mask, value, span) in bytes {
        let end = at + 16 - (mask.trailing_zeros() / 8) as u16;
        if let Some((start, bits, known, whole, several)) = fused.last_mut()
            && end <= *start + SPAN
        {
            let shift = 8 * (at - *start);
            let (mask, value) = (mask >> shift, value >> shift);
            if (*known ^ value) & *bits & mask != 0 {
                return Tree::Const(true);
            }
            (*bits, *known) = (*bits | mask, *known | value);
            (*whole, *several) = (whole.join(span), true);
        } else {
            fused.push((at, mask, value, span, false));
        }
    }
    let mut guards = Vec::with_capacity(fused.len() + rest.len());
    for (at, mask, value, span, several) in fused {
        let (mask, value) = (Bits::new(mask), Bits::new(value));
        let literal = Literal::Bytes { base: Base::Direct, at, mask, value };
        if several {
            *floor = (*floor).max(literal.fixed_end().unwrap_or(0));
        }
        guards.push(Tree::Leaf { literal, negated: true, span });
    }
    // First, because a branch that follows a failed guard keeps the negated guard (`dnf.rs`).
    guards.append(&mut rest);
    with_span(Tree::join(join, guards), span)
}

/// The tree with another place in the text, if it is a joined node.
fn with_span(tree: Tree, span: Span) -> Tree {
    match tree {
        Tree::Joined { join, children, .. } => Tree::Joined { join, children, span },
        other => other,
    }
}

/// The values of a test that may be merged with others: a *hole* of a shape.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Hole {
    One(u32),
    /// Two or more.
    Words(Arc<[u32]>),
    Addresses(Arc<[u128]>),
}

/// Such a test without its values.
#[derive(PartialEq, Eq, Hash)]
enum Frame {
    Word(Word, u16),
    Prefix(u16, u16, u8),
}

fn hole(literal: &Literal) -> Option<(Frame, Hole)> {
    match literal {
        Literal::Bytes { .. } => {
            let (word, value) = literal.as_equal()?;
            Some((Frame::Word(word, 0), Hole::One(value)))
        }
        Literal::OneOf { word, second, values } => {
            let hole = match values[..] {
                [value] => Hole::One(value),
                _ => Hole::Words(values.clone()),
            };
            Some((Frame::Word(*word, *second), hole))
        }
        Literal::Prefix { at, second, bits, values } => {
            Some((Frame::Prefix(*at, *second, *bits), Hole::Addresses(values.clone())))
        }
        _ => None,
    }
}

impl Hole {
    /// The values of both.
    fn and(&self, other: &Hole) -> Hole {
        let mut words = Vec::new();
        let mut addresses = Vec::new();
        for hole in [self, other] {
            hole.put(&mut words, &mut addresses);
        }
        Hole::of(words, addresses)
    }

    fn put(&self, words: &mut Vec<u32>, addresses: &mut Vec<u128>) {
        match self {
            Hole::One(value) => words.push(*value),
            Hole::Words(values) => words.extend_from_slice(values),
            Hole::Addresses(values) => addresses.extend_from_slice(values),
        }
    }

    fn of(words: Vec<u32>, addresses: Vec<u128>) -> Hole {
        let words = sorted(words);
        match words[..] {
            [] => Hole::Addresses(sorted(addresses)),
            [value] => Hole::One(value),
            _ => Hole::Words(words),
        }
    }
}

impl Frame {
    fn with(&self, values: &Hole) -> Literal {
        match (self, values) {
            (Frame::Word(word, 0), Hole::One(value)) => Literal::equal(*word, *value),
            (Frame::Word(word, second), Hole::One(value)) => {
                Literal::OneOf { word: *word, second: *second, values: [*value].into() }
            }
            (Frame::Word(word, second), Hole::Words(values)) => {
                Literal::OneOf { word: *word, second: *second, values: values.clone() }
            }
            (Frame::Prefix(at, second, bits), Hole::Addresses(values)) => {
                let values = values.clone();
                Literal::Prefix { at: *at, second: *second, bits: *bits, values }
            }
            _ => unreachable!("a hole is filled with values of its own kind"),
        }
    }
}

/// Hashes a tree without the values of its holes, which are listed in order.
fn shape(tree: &Tree, negated_holes: bool, hasher: &mut Mix, note: &mut impl FnMut(u64)) {
    match tree {
        Tree::Const(value) => value.hash(hasher),
        Tree::Leaf { literal, negated, .. } => {
            negated.hash(hasher);
            match hole(literal).filter(|_| *negated == negated_holes) {
                Some((frame, values)) => {
                    frame.hash(hasher);
                    let kind = if let Frame::Word(word, _) = frame {
                        (word.wide, word.mask)
                    } else {
                        (true, 0)
                    };
                    note(digest(&(kind, values)));
                }
                None => literal.hash(hasher),
            }
        }
        Tree::Joined { join, children, .. } => {
            (join, children.len()).hash(hasher);
            children.iter().for_each(|child| shape(child, negated_holes, hasher, note));
        }
    }
}

/// True if two trees are equal but for the holes at the positions in `free`.
fn equal_but(
    a: &Tree,
    b: &Tree,
    negated_holes: bool,
    free: &dyn Fn(usize) -> bool,
    at: &mut usize,
) -> bool {
    match (a, b) {
        (Tree::Const(a), Tree::Const(b)) => a == b,
        (
            Tree::Leaf { literal: a, negated: na, .. },
            Tree::Leaf { literal: b, negated: nb, .. },
        ) => {
            if na != nb {
                return false;
            }
            match (hole(a), hole(b)) {
                (Some((a, av)), Some((b, bv))) if *na == negated_holes => {
                    *at += 1;
                    a == b && (free(*at - 1) || av == bv)
                }
                _ => a == b,
            }
        }
        (
            Tree::Joined { join: ja, children: ca, .. },
            Tree::Joined { join: jb, children: cb, .. },
        ) => {
            ja == jb
                && ca.len() == cb.len()
                && ca.iter().zip(cb).all(|(a, b)| equal_but(a, b, negated_holes, free, at))
        }
        _ => false,
    }
}

/// True if two of the named holes are joined by `join`; counts the holes in `at`, the named ones in the result.
fn joined_by(
    tree: &Tree,
    join: Join,
    negated_holes: bool,
    class: &[usize],
    at: &mut usize,
) -> Result<usize, ()> {
    match tree {
        Tree::Const(_) => Ok(0),
        Tree::Leaf { literal, negated, .. } => {
            if *negated != negated_holes || hole(literal).is_none() {
                return Ok(0);
            }
            *at += 1;
            Ok(usize::from(class.contains(&(*at - 1))))
        }
        Tree::Joined { join: own, children, .. } => {
            let mut inside = 0;
            for child in children {
                let found = joined_by(child, join, negated_holes, class, at)?;
                if found > 0 && inside > 0 && *own == join {
                    return Err(());
                }
                inside += found;
            }
            Ok(inside)
        }
    }
}

/// A group of children with one shape.
struct Group {
    members: Vec<usize>,
    /// Number of holes of a member.
    width: usize,
    /// The holes of all members, one member after the other.
    holes: Vec<u64>,
}

impl Group {
    fn holes(&self, member: usize) -> &[u64] {
        &self.holes[member * self.width..(member + 1) * self.width]
    }
}

/// True if no two of a few children have the same shape.
fn all_different(children: &[Tree], negated_holes: bool) -> bool {
    let mut shapes = [0; SMALL];
    for (index, child) in children.iter().enumerate() {
        let mut hasher = Mix::default();
        shape(child, negated_holes, &mut hasher, &mut |_| {});
        shapes[index] = hasher.finish();
        if shapes[..index].contains(&shapes[index]) {
            return false;
        }
    }
    true
}

fn merge_sets(join: Join, children: &mut Vec<Tree>, stage: Stage) -> bool {
    let negated_holes = join == Join::All;
    if children.len() <= SMALL && all_different(children, negated_holes) {
        return false;
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut known: MixMap<(u64, usize), usize> = MixMap::default();
    let mut holes = Vec::new();
    for (index, child) in children.iter().enumerate() {
        let mut hasher = Mix::default();
        holes.clear();
        shape(child, negated_holes, &mut hasher, &mut |hole| holes.push(hole));
        let width = holes.len();
        let group = *known.entry((hasher.finish(), width)).or_insert_with(|| {
            groups.push(Group { members: Vec::new(), width, holes: Vec::new() });
            groups.len() - 1
        });
        groups[group].members.push(index);
        groups[group].holes.extend_from_slice(&holes);
    }
    let mut gone = vec![false; children.len()];
    for group in groups.iter().filter(|group| group.members.len() > 1) {
        if group.width == 0 {
            drop_twins(children, &group.members, &mut gone);
        } else if let Some(class) = best_class(join, children, group, stage) {
            merge_group(children, group, &class, negated_holes, &mut gone);
        }
    }
    let before = children.len();
    let mut gone = gone.into_iter();
    children.retain(|_| gone.next() == Some(false));
    children.len() < before
}

/// Marks children that are equal to the first of the group.
fn drop_twins(children: &[Tree], members: &[usize], gone: &mut [bool]) {
    for &index in &members[1..] {
        gone[index] = equal_but(&children[members[0]], &children[index], true, &|_| false, &mut 0);
    }
}

/// The holes for which the most members are equal in everything else.
fn best_class(join: Join, children: &[Tree], group: &Group, stage: Stage) -> Option<Vec<usize>> {
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for holes in [group.holes(0), group.holes(1)] {
        for (index, value) in holes.iter().enumerate() {
            let class: Vec<usize> = (0..holes.len()).filter(|&i| holes[i] == *value).collect();
            if class[0] == index && !classes.contains(&class) {
                classes.push(class);
            }
        }
    }
    let negated_holes = join == Join::All;
    let example = &children[group.members[0]];
    classes.retain(|class| joined_by(example, join.dual(), negated_holes, class, &mut 0).is_ok());
    // Stop counting at the limit: the exact number does not matter.
    let kinds = |class: &Vec<usize>| {
        let mut keys: MixSet<u64> = MixSet::default();
        let members = 0..group.members.len();
        let few = members.into_iter().all(|member| {
            keys.insert(key(group, member, class));
            keys.len() <= stage.most()
        });
        few.then_some(keys.len())
    };
    let best = classes.into_iter().filter_map(|class| Some((kinds(&class)?, class))).min()?;
    (best.0 < group.members.len()).then_some(best.1)
}

/// Digest of all that a member must have in common with others to be merged with them.
fn key(group: &Group, member: usize, class: &[usize]) -> u64 {
    let holes = group.holes(member);
    let mut hasher = Mix::default();
    for (index, value) in holes.iter().enumerate() {
        if !class.contains(&index) {
            value.hash(&mut hasher);
        }
    }
    // Holes of the class differ within the member: it merges with no other.
    if class.iter().any(|&index| holes[index] != holes[class[0]]) {
        (member, holes).hash(&mut hasher);
    }
    hasher.finish()
}

fn merge_group(
    children: &mut [Tree],
    group: &Group,
    class: &[usize],
    negated_holes: bool,
    gone: &mut [bool],
) {
    let mut buckets: MixMap<u64, Vec<usize>> = MixMap::default();
    for (member, &index) in group.members.iter().enumerate() {
        let holes = group.holes(member);
        if class.iter().all(|&hole| holes[hole] == holes[class[0]]) {
            buckets.entry(key(group, member, class)).or_default().push(index);
        }
    }
    for members in buckets.into_values().filter(|members| members.len() > 1) {
        let free = |at: usize| class.contains(&at);
        let first = members[0];
        let mut words = Vec::new();
        let mut addresses = Vec::new();
        let mut merged = Vec::new();
        let mut span = Span::default();
        for &index in &members {
            let same = equal_but(&children[first], &children[index], negated_holes, &free, &mut 0);
            if same {
                match value_at(&children[index], negated_holes, class[0], &mut 0) {
                    Some(hole) => hole.put(&mut words, &mut addresses),
                    None => continue,
                }
                span = span.join(children[index].span());
                merged.push(index);
            }
        }
        let values = Hole::of(words, addresses);
        fill(&mut children[first], negated_holes, class, &values, &mut 0, span);
        merged[1..].iter().for_each(|&index| gone[index] = true);
    }
}

fn value_at(tree: &Tree, negated_holes: bool, wanted: usize, at: &mut usize) -> Option<Hole> {
    match tree {
        Tree::Const(_) => None,
        Tree::Leaf { literal, negated, .. } => {
            let (_, values) = hole(literal).filter(|_| *negated == negated_holes)?;
            *at += 1;
            (*at - 1 == wanted).then_some(values)
        }
        Tree::Joined { children, .. } => {
            children.iter().find_map(|child| value_at(child, negated_holes, wanted, at))
        }
    }
}

fn fill(
    tree: &mut Tree,
    negated_holes: bool,
    class: &[usize],
    values: &Hole,
    at: &mut usize,
    whole: Span,
) {
    match tree {
        Tree::Const(_) => {}
        Tree::Leaf { literal, negated, span } => {
            if let Some((frame, _)) = hole(literal).filter(|_| *negated == negated_holes) {
                *at += 1;
                if class.contains(&(*at - 1)) {
                    *literal = frame.with(values);
                    *span = whole;
                }
            }
        }
        Tree::Joined { children, span, .. } => {
            for child in children {
                fill(child, negated_holes, class, values, at, whole);
            }
            *span = whole;
        }
    }
}

/// Joins tests for the same values at two places into one test of either place.
fn pair_places(join: Join, children: &mut Vec<Tree>) -> bool {
    let wanted = join == Join::All;
    let mut waiting: MixMap<u64, usize> = MixMap::default();
    let mut gone = vec![false; children.len()];
    for index in 0..children.len() {
        let Tree::Leaf { literal, negated, .. } = &children[index] else { continue };
        if *negated != wanted {
            continue;
        }
        let Some(key) = place_free(literal) else { continue };
        let Some(first) = waiting.remove(&key) else {
            waiting.insert(key, index);
            continue;
        };
        let paired = match (&children[first], literal) {
            (Tree::Leaf { literal: a, .. }, b) => pair(a, b),
            _ => None,
        };
        match paired {
            Some(paired) => {
                let span = children[first].span().join(children[index].span());
                children[first] = Tree::Leaf { literal: paired, negated: wanted, span };
                gone[index] = true;
            }
            None => {
                waiting.insert(key, index);
            }
        }
    }
    let before = children.len();
    let mut gone = gone.into_iter();
    children.retain(|_| gone.next() == Some(false));
    children.len() < before
}

/// Digest of a test at one place, without the place.
fn place_free(literal: &Literal) -> Option<u64> {
    Some(match (hole(literal), literal) {
        (Some((Frame::Word(word, 0), values)), _) => {
            digest(&(word.base, word.wide, word.mask, values))
        }
        (Some((Frame::Prefix(_, 0, bits), values)), _) => digest(&(bits, values)),
        (_, Literal::Range { word, either: false, low, high }) => {
            digest(&(word.base, word.wide, word.mask, low, high))
        }
        _ => return None,
    })
}

/// Tests for the same values at two places as one test of either place.
pub(super) fn pair(a: &Literal, b: &Literal) -> Option<Literal> {
    if let (Literal::Range { word: x, low, high, .. }, Literal::Range { word: y, .. }) = (a, b) {
        let (first, last) = if x.at < y.at { (x, y) } else { (y, x) };
        let same = Word { at: 0, ..*x } == Word { at: 0, ..*y };
        let equal = matches!(b, Literal::Range { low: l, high: h, .. } if l == low && h == high);
        return (same && equal && first.at + first.width() == last.at).then_some(Literal::Range {
            word: *first,
            either: true,
            low: *low,
            high: *high,
        });
    }
    let ((fa, va), (fb, vb)) = (hole(a)?, hole(b)?);
    if va != vb {
        return None;
    }
    match (fa, fb) {
        (Frame::Word(x, 0), Frame::Word(y, 0)) if x.at != y.at => {
            let (first, last) = if x.at < y.at { (x, y) } else { (y, x) };
            let same = Word { at: 0, ..x } == Word { at: 0, ..y };
            same.then(|| Frame::Word(first, last.at - first.at).with(&va))
        }
        (Frame::Prefix(x, 0, bits), Frame::Prefix(y, 0, other)) if x != y && bits == other => {
            Some(Frame::Prefix(x.min(y), x.abs_diff(y), bits).with(&va))
        }
        _ => None,
    }
}
