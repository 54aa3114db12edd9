//! Chooses the tests of the program and how often each is emitted: the graph as units that are laid
//! out in order.
//!
//! Equal chains of tests on different places (the protocol of IPv4, of IPv6, and after a fragment
//! header) become one chain that tests the accumulator; each place is a load that leads to it. That
//! is not always shorter, since a load that is not followed by the chain needs a jump; the shorter
//! of the two programs is used.

use super::graph::{Code, ENDS, Graph, Node, Value};
use std::collections::HashMap;

/// A part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    /// Reject or accept.
    End(usize),
    /// A node of the graph: its loads and its test.
    Test(usize),
    /// The load of a node with a shared test.
    Load(usize),
    /// The test of this node and of all nodes that differ only in the place; it tests the
    /// accumulator.
    Shared(usize),
}

/// The units and their successors.
pub(super) struct Plan {
    pub(super) root: Unit,
    /// Successors of each unit when it fails and when it holds; loads have one successor.
    pub(super) next: HashMap<Unit, [Unit; 2]>,
}

/// Successor of a test, if its place is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    /// To the next test of the same chain, by the number of its kind.
    On(usize),
    /// To a node or an end.
    Out(usize),
}

impl Plan {
    /// Every node with its own test.
    pub(super) fn plain(graph: &Graph) -> Plan {
        let test =
            |index: usize| if ENDS.contains(&index) { Unit::End(index) } else { Unit::Test(index) };
        let next = graph
            .reached()
            .into_iter()
            .filter_map(|index| Some((Unit::Test(index), graph.node(index)?.next.map(test))))
            .collect();
        Plan { root: test(graph.root), next }
    }

    /// Equal chains once; `None` when there are none.
    pub(super) fn shared(graph: &Graph) -> Option<Plan> {
        let kinds = Kinds::of(graph);
        let mut plan = Plan { root: kinds.unit(graph, None, graph.root), next: HashMap::new() };
        let mut rest = vec![plan.root];
        while let Some(unit) = rest.pop() {
            let next = match unit {
                Unit::End(_) => continue,
                Unit::Test(index) => {
                    let Some(node) = graph.node(index) else { continue };
                    node.next.map(|next| kinds.unit(graph, Some(node.test.value), next))
                }
                Unit::Load(index) => [Unit::Shared(kinds.first[&kinds.of[&index]]); 2],
                Unit::Shared(index) => {
                    let Some(node) = graph.node(index) else { continue };
                    node.next.map(|next| match same_value(graph, node, next) {
                        true => Unit::Shared(kinds.first[&kinds.of[&next]]),
                        false => kinds.unit(graph, None, next),
                    })
                }
            };
            if plan.next.insert(unit, next).is_none() {
                rest.extend(next);
            }
        }
        plan.next.keys().any(|unit| matches!(unit, Unit::Shared(_))).then_some(plan)
    }
}

/// Nodes by test, regardless of the place.
struct Kinds {
    of: HashMap<usize, usize>,
    /// The first node of each kind represents all.
    first: HashMap<usize, usize>,
    /// True for kinds that test several places; the length of the chain that begins with each kind.
    several: HashMap<usize, bool>,
    length: HashMap<usize, usize>,
}

impl Kinds {
    fn of(graph: &Graph) -> Kinds {
        let mut known: HashMap<(Code, [Way; 2]), usize> = HashMap::new();
        let mut kinds = Kinds {
            of: HashMap::new(),
            first: HashMap::new(),
            several: HashMap::new(),
            length: HashMap::new(),
        };
        let mut values: HashMap<usize, usize> = HashMap::new();
        // Successors first.
        for index in graph.reached().into_iter().rev() {
            let Some(node) = graph.node(index) else { continue };
            if !matches!(graph.values[node.test.value], Value::Field(..)) {
                continue;
            }
            let on = node.next.map(|next| same_value(graph, node, next));
            let way = |side: usize| match on[side] {
                true => Way::On(kinds.of[&node.next[side]]),
                false => Way::Out(node.next[side]),
            };
            let fresh = known.len();
            let kind = *known.entry((node.test.code, [way(0), way(1)])).or_insert(fresh);
            let below = [0, 1].map(|side| match on[side] {
                true => kinds.length[&kinds.of[&node.next[side]]],
                false => 0,
            });
            kinds.of.insert(index, kind);
            kinds.first.entry(kind).or_insert(index);
            kinds.length.insert(kind, 1 + below[0].max(below[1]));
            let value = *values.entry(kind).or_insert(node.test.value);
            *kinds.several.entry(kind).or_insert(false) |= value != node.test.value;
        }
        kinds
    }

    /// The unit for a node that is reached with this value in the accumulator. A single test is not
    /// worth a jump.
    fn unit(&self, graph: &Graph, value: Option<usize>, index: usize) -> Unit {
        if ENDS.contains(&index) {
            return Unit::End(index);
        }
        let kind = self.of.get(&index).filter(|kind| self.several[kind] && self.length[kind] > 1);
        let Some(kind) = kind else { return Unit::Test(index) };
        let held = graph.node(index).map(|node| node.test.value) == value;
        if held { Unit::Shared(self.first[kind]) } else { Unit::Load(index) }
    }
}

/// True if a successor tests the same value.
fn same_value(graph: &Graph, node: Node, next: usize) -> bool {
    graph.node(next).is_some_and(|below| below.test.value == node.test.value)
}

impl Graph {
    /// The root of the graph in which runs of tests for one of several numbers have one order:
    /// tests that leave the run come first, so that the rest of equal runs is equal.
    pub(super) fn sorted(&mut self) -> usize {
        self.rebuilt(Graph::in_order_of_run)
    }

    /// Puts a test into the run after it, which is in order already.
    fn in_order_of_run(&mut self, node: Node) -> usize {
        let rank = |node: &Node| match node.test.code {
            Code::Equal(operand) => Some((std::cmp::Reverse(node.next[1]), operand)),
            _ => None,
        };
        let mut passed = Vec::new();
        let mut at = node.next[0];
        while let Some(below) = self.node(at).filter(|below| below.test.value == node.test.value) {
            // Different numbers exclude each other, so their tests may change places.
            let earlier = rank(&below) < rank(&node) && rank(&below).is_some();
            if !earlier || rank(&node).is_none() || below.test == node.test {
                break;
            }
            passed.push(below);
            at = below.next[0];
        }
        let own = self.make(Node { next: [at, node.next[1]], ..node });
        passed
            .into_iter()
            .rev()
            .fold(own, |on, one| self.make(Node { next: [on, one.next[1]], ..one }))
    }
}
