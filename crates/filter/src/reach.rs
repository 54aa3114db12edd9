//! What of a filter can be reached at all: libpcap refuses a text that no frame can match, accepts even the shortest
//! frame where all do (`ip or not ip`), and overlooks a division by zero where no frame comes by.
//!
//! The predicate becomes a graph of tests, and edges are led past tests whose outcome is known on the way: a test
//! that was made before, or that asks a value for a second number after it was found to be equal to a first. Known is
//! what every way to an edge has in common (edge dominators), which is what libpcap's optimiser knows; so `ip and arp`
//! is refused, and `less 5 and greater 10` is not, here as there. Tests of the same value are pulled together where
//! they stand in one chain, as there, since that decides what is known.
//!
//! What is refused here can never match, whatever libpcap thinks of it. The other way round there are rare texts that
//! only libpcap refuses. Cost: about the square of the number of tests, so texts with more than [`MAX_TESTS`] are not
//! looked at; most others are decided without a graph. Source: the optimiser of libpcap 1.10.3, first phase; McCanne &
//! Jacobson 1993; Begel, McCanne, Graham 1999.

mod build;
mod improve;

use crate::ast::{Node, Primitive, PrimitiveKind};
use fyke_frame::Condition;
use fyke_frame::condition::{Expr, Source};
use std::collections::HashMap;

/// Most tests of a text that is looked at.
const MAX_TESTS: usize = 256;
/// Most rounds of improvement; nearly all texts need fewer than ten.
const MAX_ROUNDS: usize = 100;

/// What can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// No frame can match.
    pub(crate) never: bool,
    /// Every frame matches, however short: no test is left whose outcome matters, so none is made.
    pub(crate) always: bool,
    /// For each primitive in the order of the text, whether its comparison of byte expressions can be reached (false
    /// for other primitives); empty = all of them.
    pub(crate) comparisons: Vec<bool>,
}

/// Looks at a whole predicate. `thorough` asks for the comparisons as well; `before` is what is asked first of all.
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
    // What accepts every frame asks nothing only where libpcap, with its mistake, comes to the same.
    let always = start == ACCEPT
        && Graph::of(root, before).is_some_and(|mut graph| {
            graph.settle(true);
            graph.start() == ACCEPT
        });
    Reach { never: start == REJECT, always, comparisons }
}

/// Whether there are tests that could be each other's opposites: without one, no text matches everything.
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

/// Whether one operand alone shows that something can match.
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

/// The value that a test looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Value {
    /// A masked field, loaded by a primitive other than a byte expression.
    Field(Source, u32),
    /// A masked field in a byte expression: known to be the same only after libpcap has ceased to look.
    Computed(Source, u32),
    /// A byte expression.
    Expression(Expr),
    /// A number.
    Number(u32),
}

/// What a value is compared with.
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

/// A test and where it leads.
#[derive(Debug, Clone)]
struct Block {
    /// Index of the value.
    value: usize,
    code: Code,
    operand: Operand,
    /// Where it leads when it fails, and when it holds.
    next: [usize; 2],
    /// The primitive whose byte expressions it compares.
    compares: Option<usize>,
    /// Its outcome, where that is known once everything constant has been computed.
    outcome: Option<bool>,
}

/// The two ends; they are blocks without a test.
const REJECT: usize = 0;
const ACCEPT: usize = 1;

struct Graph {
    blocks: Vec<Block>,
    values: HashMap<Value, usize>,
    root: usize,
    /// How many primitives are still to come; they are added last first.
    primitive: usize,
    /// The tests of a port range are being added: libpcap makes both, also those that cannot fail.
    in_range: bool,
}
