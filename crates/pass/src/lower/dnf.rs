//! From a tree to passes: an *or* of *ands*, without the ones that cannot match.
//!
//! Alternatives are tried one after the other with what is known so far ([`Facts`]): an alternative that contradicts it
//! is never built, an *any* of which one alternative is known to hold costs nothing, an *any* with a single alternative
//! left is no choice. A branch that follows a failed guard (`not IPv4, or else …`) takes the guard along, because it
//! says a lot and costs little. The work is bounded by [`STEPS`] and [`STEPS_PER_TEST`], the result by the number of
//! tests in the text plus [`GROWTH`]; beyond that the text is refused, pointing at the choice that multiplies.

use super::facts::Facts;
use super::tree::{Join, Span, Tree};
use super::unite::unite;
use std::collections::HashMap;

/// Passes that a text may have beyond the number of its tests.
pub(super) const GROWTH: usize = 4_096;
/// Limit of work for one text, and for each of its tests besides: so lists are as long as the text.
const STEPS: usize = 1_500_000;
const STEPS_PER_TEST: usize = 64;
/// Limit of work for finding out whether a text is small.
const TRIAL_STEPS: usize = 20_000;
/// Guards reach no farther than this, as all frames must be that long to be judged without regard to order.
const MAX_GUARD_END: u32 = 40;
/// Up to this many passes, each is compared with each.
const QUADRATIC: usize = 512;

/// The passes became too many; where, and how many there may be.
#[derive(Debug)]
pub(super) struct TooMany {
    pub span: Span,
    pub limit: usize,
}

#[derive(Clone)]
struct Branch<'t> {
    facts: Facts,
    queue: Vec<&'t Tree>,
    /// Choices that are still open.
    pending: Vec<&'t Tree>,
}

struct Search {
    /// Frame length from which on the bytes of all guards are there.
    floor: u32,
    steps: usize,
    most_steps: usize,
    limit: usize,
    /// How many branches each choice was the cause of, by address.
    blame: HashMap<usize, (usize, Span)>,
}

/// All passes of the tree, in the order of the text where that is possible.
/// `floor` becomes the frame length from which on the bytes of tests that were moved ahead are there.
pub(super) fn passes(tree: &Tree, floor: &mut u32) -> Result<Vec<Facts>, TooMany> {
    let mut literals = 0;
    tree.literals(&mut |_, _| literals += 1);
    within(tree, floor, GROWTH + literals, STEPS + STEPS_PER_TEST * literals)
}

/// The same, if there are no more than `limit` and that is found out quickly.
pub(super) fn at_most(tree: &Tree, floor: &mut u32, limit: usize) -> Option<Vec<Facts>> {
    within(tree, floor, limit, TRIAL_STEPS).ok()
}

fn within(
    tree: &Tree,
    floor: &mut u32,
    limit: usize,
    most_steps: usize,
) -> Result<Vec<Facts>, TooMany> {
    let blame = HashMap::new();
    let mut search = Search { floor: *floor, steps: 0, most_steps, limit, blame };
    let root = Branch { facts: Facts::default(), queue: vec![tree], pending: Vec::new() };
    let mut stack = vec![root];
    let mut found = Vec::new();
    while let Some(mut branch) = stack.pop() {
        if search.settle(&mut branch) {
            if branch.pending.is_empty() {
                branch.facts.tidy();
                found.push(branch.facts);
            } else {
                search.split(branch, &mut stack);
            }
        }
        if found.len() > search.limit || search.steps > search.most_steps {
            return Err(search.too_many(tree));
        }
    }
    *floor = search.floor;
    if found.len() <= QUADRATIC {
        prune(&mut found);
        unite(&mut found, floor);
    }
    Ok(found)
}

impl Search {
    /// Takes in what is queued and whatever follows from it; false when it cannot hold.
    fn settle<'t>(&mut self, branch: &mut Branch<'t>) -> bool {
        loop {
            while let Some(tree) = branch.queue.pop() {
                self.steps += 1;
                match tree {
                    Tree::Const(true) => {}
                    Tree::Const(false) => return false,
                    Tree::Leaf { literal, negated, .. } => {
                        if branch.facts.add(literal, *negated).is_err() {
                            return false;
                        }
                    }
                    Tree::Joined { join: Join::All, children, .. } => {
                        branch.queue.extend(children.iter().rev());
                    }
                    Tree::Joined { join: Join::Any, .. } => branch.pending.push(tree),
                }
            }
            let pending = std::mem::take(&mut branch.pending);
            for choice in pending {
                let Tree::Joined { children, .. } = choice else { continue };
                let mut open = Vec::new();
                let mut holds = false;
                for child in children {
                    match self.decide(child, &branch.facts) {
                        Some(true) => holds = true,
                        Some(false) => {}
                        None => open.push(child),
                    }
                }
                match open.len() {
                    _ if holds => {}
                    0 => return false,
                    1 => branch.queue.push(open[0]),
                    _ => branch.pending.push(choice),
                }
            }
            if branch.queue.is_empty() {
                return true;
            }
            if self.steps > self.most_steps {
                return false;
            }
        }
    }

    /// Follows every alternative of the choice with the fewest of them.
    fn split<'t>(&mut self, mut branch: Branch<'t>, stack: &mut Vec<Branch<'t>>) {
        let mut best: Option<(usize, Vec<&'t Tree>)> = None;
        for (index, choice) in branch.pending.iter().enumerate() {
            let Tree::Joined { children, .. } = choice else { continue };
            let open: Vec<&Tree> = children
                .iter()
                .filter(|child| self.decide(child, &branch.facts) != Some(false))
                .collect();
            if best.as_ref().is_none_or(|(_, least)| open.len() < least.len()) {
                best = Some((index, open));
            }
        }
        let Some((index, alternatives)) = best else { return };
        let choice = branch.pending.remove(index);
        let blame = self.blame.entry(std::ptr::from_ref(choice) as usize).or_default();
        *blame = (blame.0 + alternatives.len(), choice.span());
        let first = stack.len();
        for alternative in alternatives {
            let size = branch.pending.len() + branch.facts.bytes.len() + branch.facts.tests.len();
            self.steps += size + 1;
            if self.steps > self.most_steps {
                return;
            }
            let mut next = branch.clone();
            next.queue.push(alternative);
            stack.push(next);
            if let Tree::Leaf { literal: guard, negated: true, .. } = alternative
                && let Some(end) = guard.fixed_end().filter(|&end| end <= MAX_GUARD_END)
            {
                self.floor = self.floor.max(end);
                if branch.facts.add(guard, false).is_err() {
                    break;
                }
            }
        }
        stack[first..].reverse();
    }

    /// Whether the facts decide a tree.
    fn decide(&mut self, tree: &Tree, facts: &Facts) -> Option<bool> {
        self.steps += 1;
        match tree {
            Tree::Const(value) => Some(*value),
            Tree::Leaf { literal, negated, .. } => facts.decide(literal, *negated),
            Tree::Joined { join, children, .. } => {
                let absorbing = *join == Join::Any;
                let mut open = false;
                for child in children {
                    match self.decide(child, facts) {
                        Some(value) if value == absorbing => return Some(absorbing),
                        Some(_) => {}
                        None => open = true,
                    }
                }
                if open { None } else { Some(!absorbing) }
            }
        }
    }

    fn too_many(&self, tree: &Tree) -> TooMany {
        let worst = self.blame.values().max_by_key(|(count, _)| *count);
        TooMany { span: worst.map_or(tree.span(), |(_, span)| *span), limit: self.limit }
    }
}

/// Drops passes that accept nothing that another does not.
fn prune(found: &mut Vec<Facts>) {
    let mut index = 0;
    while index < found.len() {
        let covered = (0..found.len()).any(|other| {
            other != index
                && found[index].implies(&found[other])
                && (other < index || !found[other].implies(&found[index]))
        });
        if covered {
            found.remove(index);
        } else {
            index += 1;
        }
    }
}
