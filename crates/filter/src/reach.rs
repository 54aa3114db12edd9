//! Reachability of a filter's parts: libpcap refuses a text that no frame can match, accepts even
//! the shortest frame if every frame matches (`ip or not ip`), and ignores a division by zero that
//! no frame reaches.
//!
//! The predicate becomes a graph of tests, and edges are led past tests with a known outcome: a
//! repeated test, or a test of a value for a second number after it was found to be equal to a
//! first. Known facts are those that every path to an edge shares (edge dominators), as in
//! libpcap's optimiser; so `ip and arp` is refused, and `less 5 and greater 10` is not, as in
//! libpcap. Tests of the same value in one chain are moved together, also as in libpcap, since that
//! changes which facts are known.
//!
//! A text that is refused here can never match, whatever libpcap does with it. In the other
//! direction there are rare texts that only libpcap refuses. Cost: about the square of the number
//! of tests, so texts with more than [`MAX_TESTS`] are not analysed; most others are decided
//! without a graph. Source: the optimiser of libpcap 1.10.3, first phase; McCanne & Jacobson 1993;
//! Begel, McCanne, Graham 1999.

mod build;
mod improve;

use crate::ast::{Node, Primitive, PrimitiveKind};
use fyke_frame::Condition;
use fyke_frame::condition::{Expr, Source};
use std::collections::HashMap;

/// Most tests of a text that is analysed.
const MAX_TESTS: usize = 256;
/// Most rounds of improvement; nearly all texts need fewer than ten.
const MAX_ROUNDS: usize = 100;

/// Result of the analysis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// No frame can match.
    pub(crate) never: bool,
    /// Every frame matches, however short: no remaining test changes the outcome, so none is made.
    pub(crate) always: bool,
    /// For each primitive in the order of the text, whether its comparison of byte expressions can
    /// be reached (false for other primitives); empty = all of them.
    pub(crate) comparisons: Vec<bool>,
}

/// Analyses a whole predicate. `thorough` includes the comparisons; `before` is the test that comes
/// first of all.
pub(crate) fn reach(root: &Node, thorough: bool, before: Option<&Condition>) -> Reach {
    let nothing_known = Reach { never: false, always: false, comparisons: Vec::new() };
    if !thorough && can_match(root) && !has_opposites(root) {
        return nothing_known;
    }
    let Some(mut graph) = Graph::of(root, before) else { return nothing_known };
    graph.settle(false);
    let mut comparisons = vec![false; root.primitives().count()];
    for block in graph.levels().into_iter().flatten() {
        if let Some(primitive) = graph.blocks[block].compares {
            comparisons[primitive] = true;
        }
    }
    let start = graph.start();
    // A text that accepts every frame makes no test only if libpcap, with its mistake, finds the
    // same.
    let always = start == ACCEPT
        && Graph::of(root, before).is_some_and(|mut graph| {
            graph.settle(true);
            graph.start() == ACCEPT
        });
    Reach { never: start == REJECT, always, comparisons }
}

/// True if there are tests that could be opposites: without one, no text matches everything.
fn has_opposites(root: &Node) -> bool {
    let mut rest = vec![root];
    while let Some(node) = rest.pop() {
        match node {
            Node::Not(_) => return true,
            Node::Primitive(Primitive { kind: PrimitiveKind::Relation { .. }, .. }) => return true,
            _ => rest.extend(node.children()),
        }
    }
    false
}

/// True if one operand alone shows that some frame can match.
fn can_match(root: &Node) -> bool {
    match root {
        Node::Any(operands) => operands.iter().any(single_can_match),
        other => single_can_match(other),
    }
}

fn single_can_match(node: &Node) -> bool {
    let open = |primitive: &Primitive| {
        !matches!(primitive.condition, Condition::Const(_))
            && !matches!(primitive.kind, PrimitiveKind::Relation { .. })
    };
    match node {
        Node::Primitive(primitive) => open(primitive),
        Node::Not(inner) => matches!(&**inner, Node::Primitive(primitive) if open(primitive)),
        Node::Const(value) => *value,
        _ => false,
    }
}

/// The value that a test compares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    /// A masked field, loaded by a primitive other than a byte expression.
    Field(Source, u32),
    /// A masked field in a byte expression: known to be the same only after libpcap's last round.
    Computed(Source, u32),
    /// A byte expression.
    Expression(Expr),
    /// A number.
    Number(u32),
}

/// The other side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    Number(u32),
    /// Another value, by its index.
    Value(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Equal,
    Greater,
    GreaterOrEqual,
    /// Any bit of the operand is set.
    AnyBit,
}

/// A test and its successors.
#[derive(Debug, Clone)]
struct Block {
    /// Index of the value.
    value: usize,
    code: Code,
    operand: Operand,
    /// Successors when the test fails and when it holds.
    next: [usize; 2],
    /// The primitive with the byte expressions that the test compares.
    compares: Option<usize>,
    /// Its outcome, if known once all constants have been computed.
    outcome: Option<bool>,
}

/// The two ends; they are blocks without a test.
const REJECT: usize = 0;
const ACCEPT: usize = 1;

struct Graph {
    blocks: Vec<Block>,
    values: HashMap<Value, usize>,
    root: usize,
    /// Number of primitives that remain; they are added last first.
    primitive: usize,
    /// True while the tests of a port range are added: libpcap makes both, even a test that cannot
    /// fail.
    in_range: bool,
}
