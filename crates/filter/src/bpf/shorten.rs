//! Makes the graph smaller: groups the alternating tests of one value in a chain, and leads edges
//! past tests with an outcome that is already decided.
//!
//! One path to a test may decide more than another. Separating such paths saves tests on each of
//! them and duplicates the tests after it; using only the facts that all paths share
//! ([`Graph::shorten_in_common`], which is what libpcap does) duplicates nothing. Neither is always
//! shorter, so both are tried.
//!
//! A chain is a row of nodes that exit to one place on one side, such as the alternatives of `port
//! (80 or 443)`. Its tests may be made in any order. Facts are the outcomes that the path has
//! decided; only facts that a later test uses are kept, so that paths which differ in nothing else
//! share their continuation.

use super::graph::{Code, ENDS, Graph, Node, Test};
use std::collections::HashMap;

/// Most nodes that are made while facts are tracked; if there would be more, the graph stays as it
/// is.
const MAX_MADE: usize = 60_000;
/// Most tests of a program that is also shortened by the facts that all paths share.
const MAX_IN_COMMON: usize = 400;
/// Most rounds.
const MAX_ROUNDS: usize = 6;

/// A test on the path, and its outcome.
type Fact = (Test, bool);

impl Graph {
    /// Shortens until nothing changes.
    pub(super) fn shorten(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let before = self.root;
            let gathered = self.gathered();
            self.root = gathered;
            let Some(root) = self.decided() else { return };
            self.root = root;
            if root == before {
                return;
            }
        }
    }

    /// Shortens until nothing changes, by the facts that all paths to a test share; `false` if
    /// there are too many tests.
    pub(super) fn shorten_in_common(&mut self) -> bool {
        if self.len() > MAX_IN_COMMON {
            return false;
        }
        for _ in 0..MAX_ROUNDS {
            let before = self.root;
            self.root = self.gathered();
            self.root = self.decided_in_common();
            if self.root == before {
                break;
            }
        }
        true
    }

    /// The root of the graph without tests that every path to them decides.
    fn decided_in_common(&mut self) -> usize {
        let mut facts: HashMap<usize, Vec<Fact>> = HashMap::from([(self.root, Vec::new())]);
        let mut kept = Vec::new();
        for index in self.reached() {
            let (Some(node), Some(own)) = (self.node(index), facts.remove(&index)) else {
                continue;
            };
            let next = [false, true].map(|outcome| {
                let mut more = own.clone();
                more.push((node.test, outcome));
                let mut next = node.next[usize::from(outcome)];
                while let Some(below) = self.node(next) {
                    let Some(outcome) = known(below.test, &more) else { break };
                    next = below.next[usize::from(outcome)];
                }
                facts
                    .entry(next)
                    .and_modify(|all| all.retain(|fact| more.contains(fact)))
                    .or_insert(more);
                next
            });
            kept.push((index, Node { next, ..node }));
        }
        let mut new: HashMap<usize, usize> = ENDS.into_iter().map(|end| (end, end)).collect();
        for (index, node) in kept.into_iter().rev() {
            let made = self.make(Node { next: node.next.map(|next| new[&next]), ..node });
            new.insert(index, made);
        }
        new[&self.root]
    }

    /// The root of the graph in which chains make the tests of one value together.
    fn gathered(&mut self) -> usize {
        self.rebuilt(Graph::with_neighbour)
    }

    /// Moves tests of the same value from further down the chain right after a node. The chain
    /// below has been grouped already, so they are neighbours.
    fn with_neighbour(&mut self, node: Node) -> usize {
        for side in [0, 1] {
            let exit = node.next[1 - side];
            let (mut passed, mut group) = (Vec::new(), Vec::new());
            let mut at = node.next[side];
            while let Some(below) = self.node(at).filter(|below| below.next[1 - side] == exit) {
                match below.test.value == node.test.value {
                    true => group.push(below.test),
                    false if group.is_empty() => passed.push(below.test),
                    false => break,
                }
                at = below.next[side];
            }
            if group.is_empty() || passed.is_empty() {
                continue;
            }
            let rest = passed
                .into_iter()
                .rev()
                .fold(at, |on, test| self.make(chain(test, side, on, exit)));
            let on = group
                .into_iter()
                .rev()
                .fold(rest, |on, test| self.make(chain(test, side, on, exit)));
            return self.make(chain(node.test, side, on, exit));
        }
        self.make(node)
    }

    /// The root of the graph without tests that the path decides; `None` if that makes too many
    /// nodes.
    fn decided(&mut self) -> Option<usize> {
        let tests_after = self.tests_below();
        let limit = self.len() + MAX_MADE;
        let mut done: HashMap<(usize, Vec<Fact>), usize> = HashMap::new();
        let mut rest = vec![(self.root, Vec::<Fact>::new())];
        while let Some((index, facts)) = rest.last().cloned() {
            let key = (index, facts.clone());
            if done.contains_key(&key) {
                rest.pop();
                continue;
            }
            let Some(node) = self.node(index) else {
                done.insert(key, index);
                rest.pop();
                continue;
            };
            if let Some(outcome) = known(node.test, &facts) {
                let next = node.next[usize::from(outcome)];
                let key_below = (next, relevant(&facts, &tests_after, next));
                match done.get(&key_below) {
                    Some(&made) => {
                        done.insert(key, made);
                        rest.pop();
                    }
                    None => rest.push(key_below),
                }
                continue;
            }
            let below = [false, true].map(|outcome| {
                let mut more = facts.clone();
                more.push((node.test, outcome));
                let next = node.next[usize::from(outcome)];
                (next, relevant(&more, &tests_after, next))
            });
            match (done.get(&below[0]), done.get(&below[1])) {
                (Some(&failed), Some(&held)) => {
                    let made = self.make(Node { next: [failed, held], ..node });
                    done.insert(key, made);
                    rest.pop();
                }
                (None, _) => {
                    let [failed, _] = below;
                    rest.push(failed);
                }
                (_, None) => {
                    let [_, held] = below;
                    rest.push(held);
                }
            }
            if self.len() > limit || done.len() > MAX_MADE {
                return None;
            }
        }
        done.get(&(self.root, Vec::new())).copied()
    }

    /// For each node, the tests of it and of all nodes after it, sorted.
    fn tests_below(&self) -> Vec<Vec<Test>> {
        let mut tests_after: Vec<Vec<Test>> = vec![Vec::new(); self.len() + 2];
        let mut order = self.reached();
        order.reverse();
        for index in order {
            let Some(node) = self.node(index) else { continue };
            let mut tests = vec![node.test];
            for successor in node.next {
                tests.extend(tests_after[successor].iter().copied());
            }
            tests.sort_by_key(|test| order_of(*test));
            tests.dedup();
            tests_after[index] = tests;
        }
        tests_after
    }
}

/// A node of a chain that continues on `side`.
fn chain(test: Test, side: usize, on: usize, exit: usize) -> Node {
    let next = if side == 0 { [on, exit] } else { [exit, on] };
    Node { test, next }
}

fn order_of(test: Test) -> (usize, u8, u32) {
    let (kind, operand) = match test.code {
        Code::Equal(operand) => (0, operand),
        Code::Greater(operand) => (1, operand),
        Code::GreaterOrEqual(operand) => (2, operand),
        Code::AnyBit(operand) => (3, operand),
    };
    (test.value, kind, operand)
}

/// The outcome of a test, if the path has decided it.
fn known(test: Test, facts: &[Fact]) -> Option<bool> {
    facts.iter().filter(|(fact, _)| fact.value == test.value).find_map(|&(fact, held)| {
        match (fact.code, held) {
            (code, _) if code == test.code => Some(held),
            (Code::Equal(value), true) => Some(test.code.holds(value)),
            _ => None,
        }
    })
}

/// The facts that a node or a later one tests, in order.
fn relevant(facts: &[Fact], tests_after: &[Vec<Test>], node: usize) -> Vec<Fact> {
    let tests = &tests_after[node];
    let mut kept: Vec<Fact> = facts
        .iter()
        .copied()
        .filter(|(fact, held)| match (fact.code, held) {
            (Code::Equal(_), true) => tests.iter().any(|test| test.value == fact.value),
            _ => tests.contains(fact),
        })
        .collect();
    kept.sort_by_key(|(fact, held)| (order_of(*fact), *held));
    kept.dedup();
    kept
}
