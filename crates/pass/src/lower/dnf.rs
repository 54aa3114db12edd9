//! From a tree to passes: an *or* of *ands*, without the ones that cannot match.
//!
//! Alternatives are tried one after the other with the facts known at that point ([`Facts`]). An alternative that
//! contradicts the facts is never built. An *any* with an alternative that is known to hold costs nothing. An *any*
//! with a single remaining alternative is no choice. A branch that follows a failed guard (`not IPv4, or else …`) keeps
//! the negated guard, because it decides many tests and costs little. The work is bounded by [`STEPS`] and
//! [`STEPS_PER_TEST`], the result by the number of tests in the text plus [`GROWTH`]. A text that needs more is
//! refused; the error names the choice that multiplies.

use super::facts::Facts;
use super::tree::{Join, Span, Tree};
use super::unite::unite;
use std::collections::HashMap;

/// Number of passes that a text may have in addition to the number of its tests.
pub(super) const GROWTH: usize = 4_096;
/// Limit of work for one text, in addition to the limit for each of its tests: so lists are as long as the text.
const STEPS: usize = 1_500_000;
const STEPS_PER_TEST: usize = 64;
/// Limit of work for the decision that a text is small.
const TRIAL_STEPS: usize = 20_000;
/// Largest end of a guard: all frames must be at least this long to be judged without regard to order.
const MAX_GUARD_END: u32 = 40;
/// Number of passes up to which each is compared with each.
const QUADRATIC: usize = 512;

/// Refusal because of too many passes: the part that multiplies, and the limit.
#[derive(Debug)]
pub(super) struct TooMany {
    pub span: Span,
    pub limit: usize,
}

#[derive(Clone)]
struct Branch<'t> {
    facts: Facts,
    queue: Vec<&'t Tree>,
    /// Choices that are still undecided.
    pending: Vec<&'t Tree>,
}

struct Search {
    /// Shortest length of a frame that contains the bytes of all guards.
    floor: u32,
    steps: usize,
    most_steps: usize,
    limit: usize,
    /// Number of branches that each choice has caused, by its address.
    blame: HashMap<usize, (usize, Span)>,
}

/// All passes of the tree, in the order of the text where that is possible. `floor` becomes the shortest length of a
/// frame that contains the bytes of all tests that were moved ahead.
pub(super) fn passes(tree: &Tree, floor: &mut u32) -> Result<Vec<Facts>, TooMany> {
    let mut literals = 0;
    tree.literals(&mut |_, _| literals += 1);
    within(tree, floor, GROWTH + literals, STEPS + STEPS_PER_TEST * literals)
}

/// The same, if there are at most `limit` passes and this takes only a little work.
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
    /// Adds the queued tests and all their consequences to the facts; false if they contradict each other.
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

    /// Follows every alternative of the choice that has the fewest.
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

    /// The value of a tree if the facts decide it.
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

/// Drops passes that accept only frames that another pass accepts.
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
