//! Exceptions: choices of which the passes multiply, while the passes of their negations only add up.
//!
//! `not (a and b) and not (c and d) …` is an *all* of *anys*, so its passes are all combinations. Its negation is an
//! *any* of *alls*: `(a and b) or (c and d) …`, one pass each, which become rows of tables if there are many. So in an
//! *all* that would become more than [`WORTH`] passes, the choices with no fewer passes than their negation
//! become one negated literal, [`Literal::Passes`]: "none of these passes holds". The passes of the negation are found
//! in the same way, so exceptions may have exceptions. A text that is small without this stays as it is.
//!
//! Sound for complete frames (`needs.rs`): if the ordered evaluation decides a part, it has loaded a false literal of
//! each pass of that part, or all literals of one pass; if it does not, the part makes no difference. Cost: O(nodes
//! times depth) to find the parts, in addition to the cost of `dnf.rs` for them.

use super::dnf::{self, TooMany};
use super::facts::Facts;
use super::literal::{Alternatives, Literal};
use super::tree::{Join, Tree};

/// Number of passes from which on choices become exceptions where possible.
const WORTH: u64 = 16;
/// Deepest nesting of exceptions; deeper ones are lowered as choices.
const MAX_NESTING: usize = 16;

/// Number of passes of a part and of its negation; upper bounds, as contradictions are not searched for.
#[derive(Debug, Clone, Copy)]
struct Size {
    wanted: u64,
    excluded: u64,
}

impl Size {
    fn of(tree: &Tree) -> Size {
        let Tree::Joined { join, children, .. } = tree else {
            return Size { wanted: 1, excluded: 1 };
        };
        let sizes = children.iter().map(Size::of);
        let (sum, product) = (u64::saturating_add, u64::saturating_mul);
        match join {
            Join::All => sizes.fold(Size { wanted: 1, excluded: 0 }, |all, one| Size {
                wanted: product(all.wanted, one.wanted),
                excluded: sum(all.excluded, one.excluded),
            }),
            Join::Any => sizes.fold(Size { wanted: 0, excluded: 1 }, |all, one| Size {
                wanted: sum(all.wanted, one.wanted),
                excluded: product(all.excluded, one.excluded),
            }),
        }
    }

    /// True if the part is cheaper as an exception than as a choice.
    fn is_exception(self) -> bool {
        self.wanted > 1 && self.excluded <= self.wanted
    }
}

/// All passes of the tree, with exceptions where these are fewer. `floor` as for [`dnf::passes`].
pub(super) fn passes(tree: &Tree, floor: &mut u32) -> Result<Vec<Facts>, TooMany> {
    nested(tree, floor, 0)
}

fn nested(tree: &Tree, floor: &mut u32, depth: usize) -> Result<Vec<Facts>, TooMany> {
    if depth >= MAX_NESTING || !multiplies(tree) {
        return dnf::passes(tree, floor);
    }
    let mut end = *floor;
    if let Some(few) = dnf::at_most(tree, &mut end, WORTH as usize) {
        *floor = end;
        return Ok(few);
    }
    let mut end = *floor;
    let with_exceptions =
        split(tree, &mut end, depth).and_then(|tree| dnf::passes(&tree, &mut end));
    match with_exceptions {
        Ok(passes) => {
            *floor = end;
            Ok(passes)
        }
        Err(_) => dnf::passes(tree, floor),
    }
}

/// True if some *all* has too many passes and has exceptions among its choices.
fn multiplies(tree: &Tree) -> bool {
    let Tree::Joined { join, children, .. } = tree else { return false };
    match join {
        Join::Any => children.iter().any(multiplies),
        Join::All => {
            Size::of(tree).wanted > WORTH
                && children.iter().any(|child| Size::of(child).is_exception() || multiplies(child))
        }
    }
}

/// The tree with exceptions as literals.
fn split(tree: &Tree, floor: &mut u32, depth: usize) -> Result<Tree, TooMany> {
    let Tree::Joined { join, children, span } = tree else { return Ok(tree.clone()) };
    let mut parts = Vec::with_capacity(children.len());
    if *join == Join::Any || Size::of(tree).wanted <= WORTH {
        for child in children {
            parts.push(split(child, floor, depth)?);
        }
        return Ok(Tree::join(*join, parts));
    }
    let mut excluded = Vec::new();
    for child in children {
        match Size::of(child).is_exception() {
            true => excluded.push(child.negated()),
            false => parts.push(split(child, floor, depth)?),
        }
    }
    if !excluded.is_empty() {
        let excluded = nested(&Tree::join(Join::Any, excluded), floor, depth + 1)?;
        if !excluded.is_empty() {
            let literal = Literal::Passes(Alternatives::new(excluded));
            parts.push(Tree::Leaf { literal, negated: true, span: *span });
        }
    }
    Ok(Tree::join(Join::All, parts))
}
