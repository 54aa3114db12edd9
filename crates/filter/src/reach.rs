//! What of a filter can be reached at all: libpcap refuses a text that no frame can match, accepts even the shortest
//! frame where all do (`ip or not ip`), and overlooks a division by zero where no frame comes by.
//!
//! The predicate becomes a graph of tests, and edges are led past tests whose outcome is known on the way: a test
//! that was made before, or that asks a value for a second number after it was found to be equal to a first. Known is
//! what every path to an edge has in common (edge dominators), which is what libpcap's optimiser knows; so `ip and
//! arp` is refused, and `(ip or ip6) and len > 60 and arp` is not, here as there. Tests of the same value are pulled
//! together where they stand in one chain, as there, since that decides what is known.
//!
//! What is refused here can never match, whatever libpcap thinks of it. The other way round there are rare texts that
//! only libpcap refuses. Cost: about the square of the number of tests, so texts with more than [`MAX_TESTS`] are not
//! looked at; most others are decided without a graph. Source: the optimiser of libpcap 1.10.3, first phase; McCanne &
//! Jacobson 1993; Begel, McCanne, Graham 1999.

use crate::ast::{Arithmetic, Comparison, Node, Primitive, PrimitiveKind};
use crate::compat::constant_value;
use fyke_frame::Condition;
use fyke_frame::condition::{Address6, Base, Compare, Expr, Load, Relation, Source, Width};
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

/// Looks at a whole predicate. `thorough` asks for the comparisons as well.
pub(crate) fn reach(root: &Node, thorough: bool) -> Reach {
    let nothing_known = Reach { never: false, always: false, comparisons: Vec::new() };
    if !thorough && can_match(root) && !has_opposites(root) {
        return nothing_known;
    }
    let Some(mut graph) = Graph::of(root) else { return nothing_known };
    for _ in 0..MAX_ROUNDS {
        if !graph.improve() {
            break;
        }
    }
    let mut comparisons = vec![false; root.primitives().count()];
    for block in graph.levels().into_iter().flatten() {
        if let Some(primitive) = graph.blocks[block].compares {
            comparisons[primitive] = true;
        }
    }
    let start = graph.start();
    Reach { never: start == REJECT, always: start == ACCEPT, comparisons }
}

/// Whether there are tests that could be each other's opposites: without one, no text matches everything.
fn has_opposites(root: &Node) -> bool {
    match root {
        Node::Not(_) => true,
        Node::All(operands) | Node::Any(operands) => operands.iter().any(has_opposites),
        Node::Primitive(primitive) => matches!(primitive.kind, PrimitiveKind::Relation { .. }),
        Node::Const(_) => false,
    }
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
}

/// There were too many tests.
struct TooMany;

type Added = Result<usize, TooMany>;

impl Graph {
    fn of(root: &Node) -> Option<Graph> {
        let end = Block {
            value: usize::MAX,
            code: Code::Equal,
            operand: Operand::Number(0),
            next: [REJECT; 2],
            compares: None,
            outcome: None,
        };
        let mut graph = Graph {
            blocks: vec![end.clone(), end],
            values: HashMap::new(),
            root: ACCEPT,
            primitive: root.primitives().take(MAX_TESTS + 1).count(),
        };
        // A tree this deep has as many tests.
        if graph.primitive > MAX_TESTS {
            return None;
        }
        graph.root = graph.node(root, [REJECT, ACCEPT]).ok()?;
        Some(graph)
    }

    /// Adds the tests of a node, last first; gives the first of them.
    fn node(&mut self, node: &Node, next: [usize; 2]) -> Added {
        match node {
            Node::Const(value) => Ok(next[usize::from(*value)]),
            Node::Not(inner) => self.node(inner, [next[1], next[0]]),
            Node::All(operands) => operands
                .iter()
                .rev()
                .try_fold(next[1], |then, operand| self.node(operand, [next[0], then])),
            Node::Any(operands) => operands
                .iter()
                .rev()
                .try_fold(next[0], |then, operand| self.node(operand, [then, next[1]])),
            Node::Primitive(primitive) => {
                self.primitive -= 1;
                match &primitive.kind {
                    PrimitiveKind::Relation { left, comparison, right } => {
                        self.relation(primitive, left, *comparison, right, next)
                    }
                    PrimitiveKind::Host { .. }
                    | PrimitiveKind::Net { .. }
                    | PrimitiveKind::Net6 { .. } => self.address(&primitive.condition, next),
                    _ => self.condition(&primitive.condition, next),
                }
            }
        }
    }

    /// Addresses: libpcap asks for the protocol again before each end.
    fn address(&mut self, condition: &Condition, next: [usize; 2]) -> Added {
        match condition {
            Condition::Any(families) => families
                .iter()
                .rev()
                .try_fold(next[0], |then, family| self.address(family, [then, next[1]])),
            Condition::All(operands) => match operands.split_last() {
                Some((Condition::Any(ends), protocol)) => {
                    ends.iter().rev().try_fold(next[0], |then, end| {
                        let end = self.condition(end, [then, next[1]])?;
                        protocol
                            .iter()
                            .rev()
                            .try_fold(end, |and_then, one| self.condition(one, [then, and_then]))
                    })
                }
                _ => self.condition(condition, next),
            },
            other => self.condition(other, next),
        }
    }

    fn condition(&mut self, condition: &Condition, next: [usize; 2]) -> Added {
        match condition {
            Condition::Const(value) => Ok(next[usize::from(*value)]),
            Condition::Not(inner) => self.condition(inner, [next[1], next[0]]),
            Condition::All(operands) => operands
                .iter()
                .rev()
                .try_fold(next[1], |then, operand| self.condition(operand, [next[0], then])),
            Condition::Any(operands) => operands
                .iter()
                .rev()
                .try_fold(next[0], |then, operand| self.condition(operand, [then, next[1]])),
            Condition::Load(load) => self.load(load, next),
            Condition::Address6(address) => self.address6(address, next),
            Condition::Relation(relation, left, right) => {
                let code = match relation {
                    Relation::Equal => Code::Equal,
                    Relation::Greater => Code::Greater,
                    Relation::GreaterOrEqual => Code::GreaterOrEqual,
                };
                let value = self.value(Value::Expression((**left).clone()));
                let operand = self.value(Value::Expression((**right).clone()));
                self.block(value, code, Operand::Value(operand), next)
            }
        }
    }

    fn load(&mut self, load: &Load, next: [usize; 2]) -> Added {
        let Load { source, mask, compare } = load;
        let full = match source {
            Source::Bytes { width, .. } => width.full_mask(),
            _ => u32::MAX,
        };
        let bits = *mask != full;
        let value = match compare {
            Compare::Equal(0) if bits => Value::Field(source.clone(), full),
            _ => Value::Field(source.clone(), *mask),
        };
        let value = self.value(value);
        match compare {
            Compare::Equal(0) if bits => {
                let operand = Operand::Number(*mask);
                self.block(value, Code::AnyBit, operand, [next[1], next[0]])
            }
            Compare::Equal(number) => {
                self.block(value, Code::Equal, Operand::Number(*number), next)
            }
            Compare::Range(low, high) => {
                // Tests that cannot fail are tests to libpcap all the same.
                let open_end = *high == u32::MAX || *low > 0 && *high == full;
                let most = if open_end {
                    next[1]
                } else {
                    let operand = Operand::Number(*high);
                    self.block(value, Code::Greater, operand, [next[1], next[0]])?
                };
                if *low == 0 && !open_end {
                    return Ok(most);
                }
                let operand = Operand::Number(*low);
                self.block(value, Code::GreaterOrEqual, operand, [next[0], most])
            }
            Compare::OneOf(numbers) => numbers.iter().rev().try_fold(next[0], |then, number| {
                self.block(value, Code::Equal, Operand::Number(*number), [then, next[1]])
            }),
        }
    }

    /// One test a word.
    fn address6(&mut self, address: &Address6, next: [usize; 2]) -> Added {
        (0..4).rev().try_fold(next[1], |then, word| {
            let shift = 96 - 32 * word;
            let mask = (address.mask >> shift) as u32;
            if mask == 0 {
                return Ok(then);
            }
            let offset = address.offset.wrapping_add(4 * word);
            let source = Source::Bytes { base: Base::Frame, offset, width: Width::Four };
            let compare = Compare::Equal((address.value >> shift) as u32 & mask);
            self.load(&Load { source, mask, compare }, [next[0], then])
        })
    }

    /// A byte expression: the checks of its headers, then the comparison.
    fn relation(
        &mut self,
        primitive: &Primitive,
        left: &Arithmetic,
        comparison: Comparison,
        right: &Arithmetic,
        next: [usize; 2],
    ) -> Added {
        let (checks, last) = match &primitive.condition {
            Condition::All(operands) => match operands.split_last() {
                Some((last, checks)) => (checks, last),
                None => return Ok(next[1]),
            },
            // A check that cannot hold has cut the comparison off.
            other => (&[][..], other),
        };
        let test = match last {
            Condition::Not(inner) => &**inner,
            other => other,
        };
        let (field, [left_expr, right_expr]) = match test {
            Condition::Const(_) => return self.condition(&primitive.condition, next),
            Condition::Load(load) => (Some((load.source.clone(), load.mask)), [None, None]),
            Condition::Relation(_, left, right) => {
                (None, [Some((**left).clone()), Some((**right).clone())])
            }
            other => return self.condition(other, next),
        };
        let side = |number: &Arithmetic, expression: Option<Expr>| match (number, expression) {
            (Arithmetic::Number(number), _) => Value::Number(*number),
            (_, Some(expression)) => Value::Expression(expression),
            _ => match &field {
                Some((source, mask)) => Value::Computed(source.clone(), *mask),
                None => Value::Number(0),
            },
        };
        let (value, operand) = (side(left, left_expr), side(right, right_expr));
        let (code, holds) = match comparison {
            Comparison::Equal => (Code::Equal, true),
            Comparison::NotEqual => (Code::Equal, false),
            Comparison::Greater => (Code::Greater, true),
            Comparison::LessOrEqual => (Code::Greater, false),
            Comparison::GreaterOrEqual => (Code::GreaterOrEqual, true),
            Comparison::Less => (Code::GreaterOrEqual, false),
        };
        let ends = if holds { next } else { [next[1], next[0]] };
        let operand = match operand {
            Value::Number(number) => Operand::Number(number),
            other => Operand::Value(self.value(other)),
        };
        let first = match (&value, operand) {
            (Value::Number(left), Operand::Number(right)) => {
                ends[usize::from(compared(code, *left, right))]
            }
            _ => {
                let value = self.value(value);
                let block = self.block(value, code, operand, ends)?;
                let constants = constant_value(left).zip(constant_value(right));
                let outcome = constants.map(|(left, right)| compared(code, left, right));
                self.blocks[block].compares = Some(self.primitive);
                self.blocks[block].outcome = outcome;
                block
            }
        };
        checks.iter().rev().try_fold(first, |then, check| self.condition(check, [next[0], then]))
    }

    fn value(&mut self, value: Value) -> usize {
        let fresh = self.values.len();
        *self.values.entry(value).or_insert(fresh)
    }

    fn block(&mut self, value: usize, code: Code, operand: Operand, next: [usize; 2]) -> Added {
        if self.blocks.len() > MAX_TESTS {
            return Err(TooMany);
        }
        self.blocks.push(Block { value, code, operand, next, compares: None, outcome: None });
        Ok(self.blocks.len() - 1)
    }

    /// The first test whose outcome is open.
    fn start(&self) -> usize {
        let mut at = self.root;
        while at > ACCEPT {
            let block = &self.blocks[at];
            at = match block.outcome {
                Some(outcome) => block.next[usize::from(outcome)],
                None if block.next[0] == block.next[1] => block.next[0],
                None => break,
            };
        }
        at
    }

    /// The tests that can be reached, by the longest way to an end, which is 0 there.
    fn levels(&self) -> Vec<Vec<usize>> {
        let mut level = vec![None; self.blocks.len()];
        (level[REJECT], level[ACCEPT]) = (Some(0), Some(0));
        let mut levels: Vec<Vec<usize>> = vec![Vec::new()];
        let mut begun = vec![self.root];
        while let Some(&block) = begun.last() {
            if level[block].is_some() {
                begun.pop();
                continue;
            }
            let [on_failure, on_success] = self.blocks[block].next;
            match (level[on_success], level[on_failure]) {
                (None, _) => begun.push(on_success),
                (_, None) => begun.push(on_failure),
                (Some(left), Some(right)) => {
                    let own: usize = 1 + usize::max(left, right);
                    level[block] = Some(own);
                    if levels.len() <= own {
                        levels.resize(own + 1, Vec::new());
                    }
                    levels[own].insert(0, block);
                    begun.pop();
                }
            }
        }
        levels
    }

    /// One round; whether anything changed.
    fn improve(&mut self) -> bool {
        let levels = self.levels();
        let edges = self.edge_dominators(&levels);
        let blocks = self.block_dominators(&levels);
        let mut changed = false;
        for &block in levels.iter().flatten() {
            for side in [1, 0] {
                changed |= self.shorten(block, side, &edges[2 * block + side]);
            }
        }
        let incoming = self.incoming(&levels);
        for &block in levels.iter().flatten() {
            for side in [0, 1] {
                changed |= self.pull_up(block, side, &incoming[block], &blocks);
            }
        }
        changed
    }

    /// For each edge (twice the block, plus one when its test holds), the edges on every way to it, itself included.
    fn edge_dominators(&self, levels: &[Vec<usize>]) -> Vec<Set> {
        let mut sets = vec![Set::full(2 * self.blocks.len()); 2 * self.blocks.len()];
        for side in 0..2 {
            sets[2 * self.root + side] = Set::empty(2 * self.blocks.len());
        }
        for &block in levels.iter().rev().flatten() {
            for side in [1, 0] {
                let edge = 2 * block + side;
                sets[edge].insert(edge);
                let successor = self.blocks[block].next[side];
                if successor > ACCEPT {
                    let known = sets[edge].clone();
                    sets[2 * successor].intersect(&known);
                    sets[2 * successor + 1].intersect(&known);
                }
            }
        }
        sets
    }

    /// For each block, the blocks on every way to it, itself included.
    fn block_dominators(&self, levels: &[Vec<usize>]) -> Vec<Set> {
        let mut sets = vec![Set::full(self.blocks.len()); self.blocks.len()];
        sets[self.root] = Set::empty(self.blocks.len());
        for &block in levels.iter().rev().flatten() {
            sets[block].insert(block);
            let known = sets[block].clone();
            for successor in self.blocks[block].next {
                sets[successor].intersect(&known);
            }
        }
        sets
    }

    /// Leads an edge past every test whose outcome is known there.
    fn shorten(&mut self, block: usize, side: usize, dominators: &Set) -> bool {
        let successor = self.blocks[block].next[side];
        let [on_failure, on_success] = self.blocks[successor].next;
        let mut changed = successor > ACCEPT && on_failure == on_success;
        if changed {
            self.blocks[block].next[side] = on_success;
        }
        loop {
            let successor = self.blocks[block].next[side];
            if successor <= ACCEPT {
                return changed;
            }
            let Some(target) = dominators.iter().find_map(|edge| self.known(successor, edge))
            else {
                return changed;
            };
            self.blocks[block].next[side] = target;
            changed = true;
        }
    }

    /// Where a test leads after this edge, when the edge decides it.
    fn known(&self, test: usize, edge: usize) -> Option<usize> {
        let (before, after) = (&self.blocks[edge / 2], &self.blocks[test]);
        let held = edge % 2 == 1;
        if before.code != after.code || before.value != after.value {
            return None;
        }
        match (before.operand, after.operand) {
            (left, right) if left == right => Some(after.next[usize::from(held)]),
            (Operand::Number(_), Operand::Number(_)) if held && before.code == Code::Equal => {
                Some(after.next[0])
            }
            _ => None,
        }
    }

    /// For each block the edges that lead to it, the last found first.
    fn incoming(&self, levels: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut incoming = vec![Vec::new(); self.blocks.len()];
        for &block in levels.iter().rev().flatten() {
            for side in [1, 0] {
                incoming[self.blocks[block].next[side]].insert(0, block);
            }
        }
        incoming
    }

    /// In a chain of tests that all leave to the same block on one side, moves a test of the value that was looked
    /// at before the chain up to its like. `side` is the side on which the chain goes on.
    fn pull_up(&mut self, top: usize, side: usize, incoming: &[usize], dominators: &[Set]) -> bool {
        let Some((&first, others)) = incoming.split_first() else { return false };
        let value = self.blocks[first].value;
        if others.iter().any(|&other| self.blocks[other].value != value) {
            return false;
        }
        let exit = self.blocks[top].next[1 - side];
        let in_chain = |graph: &Graph, block: usize| {
            block > ACCEPT
                && graph.blocks[block].next[1 - side] == exit
                && dominators[block].contains(top)
        };
        // The first test of another value.
        let (mut above, mut differing) = (None, top);
        loop {
            if !in_chain(self, differing) {
                return false;
            }
            if self.blocks[differing].value != value {
                break;
            }
            above = Some(differing);
            differing = self.blocks[differing].next[side];
        }
        // The first test of the same value after that.
        let (mut before, mut same) = (differing, self.blocks[differing].next[side]);
        loop {
            if !in_chain(self, same) {
                return false;
            }
            if self.blocks[same].value == value {
                break;
            }
            before = same;
            same = self.blocks[same].next[side];
        }
        self.blocks[before].next[side] = self.blocks[same].next[side];
        self.blocks[same].next[side] = differing;
        match above {
            Some(above) => self.blocks[above].next[side] = same,
            None => {
                for &block in incoming {
                    for next in &mut self.blocks[block].next {
                        if *next == top {
                            *next = same;
                        }
                    }
                }
            }
        }
        true
    }
}

fn compared(code: Code, left: u32, right: u32) -> bool {
    match code {
        Code::Equal => left == right,
        Code::Greater => left > right,
        Code::GreaterOrEqual => left >= right,
        Code::AnyBit => left & right != 0,
    }
}

/// A set of small numbers.
#[derive(Debug, Clone)]
struct Set(Vec<u64>);

impl Set {
    fn empty(limit: usize) -> Set {
        Set(vec![0; limit.div_ceil(64)])
    }

    fn full(limit: usize) -> Set {
        Set(vec![u64::MAX; limit.div_ceil(64)])
    }

    fn insert(&mut self, member: usize) {
        self.0[member / 64] |= 1 << (member % 64);
    }

    fn contains(&self, member: usize) -> bool {
        self.0[member / 64] >> (member % 64) & 1 == 1
    }

    fn intersect(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        })
    }
}
