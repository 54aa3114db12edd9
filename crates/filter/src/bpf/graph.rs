//! The graph of tests. Nodes are built from the ends backwards and never changed; equal nodes are
//! shared. So a node's successors always have smaller numbers, and there are no cycles.

use super::LowerError;
use crate::ast::Node as Predicate;
use crate::compat::masked_field;
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Expr, Load, MetaField, Operator, Relation, Source};
use std::collections::HashMap;
use std::sync::Arc;

/// Reject and accept.
pub(super) const ENDS: [usize; 2] = [0, 1];

/// The value that a test compares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// A masked field.
    Field(Source, u32),
    /// An expression, and the expression that it is compared with, unless that is a number.
    Computed(Arc<Expr>, Option<Arc<Expr>>),
}

/// The comparison; the operand is the number, unless there is a second expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Code {
    Equal(u32),
    Greater(u32),
    GreaterOrEqual(u32),
    AnyBit(u32),
}

/// A test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Test {
    /// Index of the value.
    pub(super) value: usize,
    pub(super) code: Code,
}

/// A test and its successors when it fails and when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) test: Test,
    pub(super) next: [usize; 2],
}

#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    pub(super) values: Vec<Value>,
    known_values: HashMap<Value, usize>,
    /// Node `n` is `nodes[n - 2]`; 0 and 1 are the ends.
    nodes: Vec<Node>,
    known_nodes: HashMap<Node, usize>,
    pub(super) root: usize,
    /// True if tests without effect on the outcome are kept: the bytes that they read must be
    /// there.
    in_order: bool,
}

type Made = Result<usize, LowerError>;

impl Code {
    /// The outcome for a known value.
    pub(super) fn holds(self, value: u32) -> bool {
        match self {
            Code::Equal(operand) => value == operand,
            Code::Greater(operand) => value > operand,
            Code::GreaterOrEqual(operand) => value >= operand,
            Code::AnyBit(operand) => value & operand != 0,
        }
    }
}

impl Graph {
    pub(super) fn of(root: &Predicate, in_order: bool) -> Result<Graph, LowerError> {
        let mut graph = Graph { in_order, ..Graph::default() };
        graph.root = graph.predicate(root, ENDS)?;
        Ok(graph)
    }

    pub(super) fn of_condition(condition: &Condition) -> Result<Graph, LowerError> {
        let mut graph = Graph { in_order: true, ..Graph::default() };
        graph.root = graph.condition(condition, ENDS)?;
        Ok(graph)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, index: usize) -> Option<Node> {
        self.nodes.get(index.checked_sub(2)?).copied()
    }

    /// The node with this test and these successors.
    pub(super) fn make(&mut self, node: Node) -> usize {
        if node.next[0] == node.next[1] && !self.in_order {
            return node.next[0];
        }
        *self.known_nodes.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() + 1
        })
    }

    /// Adds a predicate that leads to `next`; without recursion over chains that nest on the left.
    fn predicate(&mut self, root: &Predicate, next: [usize; 2]) -> Made {
        /// Work that remains; a result replaces one of the successors of the entry below it.
        enum Rest<'p> {
            Enter(&'p Predicate, [Option<usize>; 2]),
            Operands(&'p [Predicate], bool, [usize; 2]),
        }
        let mut rest = vec![Rest::Enter(root, next.map(Some))];
        let mut made = next[0];
        while let Some(step) = rest.pop() {
            match step {
                Rest::Enter(node, next) => {
                    let next = next.map(|known| known.unwrap_or(made));
                    match node {
                        Predicate::Const(value) => made = next[usize::from(*value)],
                        Predicate::Not(inner) => {
                            rest.push(Rest::Enter(inner, [next[1], next[0]].map(Some)));
                        }
                        Predicate::Primitive(primitive) => {
                            made = self.condition(&primitive.condition, next)?;
                        }
                        Predicate::All(operands) | Predicate::Any(operands) => {
                            let all = matches!(node, Predicate::All(_));
                            made = next[usize::from(all)];
                            rest.push(Rest::Operands(operands, all, next));
                        }
                    }
                }
                // From the last operand to the first, each leading to the one after it.
                Rest::Operands(operands, all, next) => {
                    let Some((last, before)) = operands.split_last() else { continue };
                    rest.push(Rest::Operands(before, all, next));
                    let ends = match all {
                        true => [Some(next[0]), None],
                        false => [None, Some(next[1])],
                    };
                    rest.push(Rest::Enter(last, ends));
                }
            }
        }
        Ok(made)
    }

    fn condition(&mut self, condition: &Condition, next: [usize; 2]) -> Made {
        condition.decide(next, &mut |test, next| self.leaf(test, next))
    }

    /// Adds the tests of a condition without operands.
    fn leaf(&mut self, leaf: &Condition, next: [usize; 2]) -> Made {
        match leaf {
            Condition::Const(_) | Condition::All(_) | Condition::Any(_) | Condition::Not(_) => {
                self.condition(leaf, next)
            }
            Condition::Load(load) => self.load(load, next),
            Condition::Address6(address) => {
                address.words().try_rfold(next[1], |then, word| self.load(&word, [next[0], then]))
            }
            Condition::Chain(_) => Err(LowerError::Loop),
            Condition::Relation(relation, left, right) => {
                let (value, number) = match constant(right) {
                    Some(number) => match field_of(left) {
                        Some((source, mask)) if *relation == Relation::Equal => {
                            let compare = Compare::Equal(number);
                            return self.load(&Load { source, mask, compare }, next);
                        }
                        Some((source, mask)) => (Value::Field(source, mask), number),
                        None => (Value::Computed(left.clone(), None), number),
                    },
                    None => (Value::Computed(left.clone(), Some(right.clone())), 0),
                };
                let code = match relation {
                    Relation::Equal => Code::Equal(number),
                    Relation::Greater => Code::Greater(number),
                    Relation::GreaterOrEqual => Code::GreaterOrEqual(number),
                };
                Ok(self.test(value, code, next))
            }
        }
    }

    fn load(&mut self, load: &Load, next: [usize; 2]) -> Made {
        let Load { source, mask, compare } = load;
        if let (Source::Meta(MetaField::Direction), Compare::Equal(number)) = (source, compare) {
            let source = Source::Meta(MetaField::PacketType);
            let code = Code::Equal(number.wrapping_sub(1));
            return Ok(self.test(Value::Field(source, u32::MAX), code, next));
        }
        let full = full_mask(source);
        let mask = mask & full;
        let field = |mask| Value::Field(source.clone(), mask);
        Ok(match compare {
            Compare::Equal(0) if mask != full => {
                self.test(field(full), Code::AnyBit(mask), [next[1], next[0]])
            }
            Compare::Equal(number) => self.test(field(mask), Code::Equal(*number), next),
            Compare::Range(0, high) if self.in_order && *high >= mask => {
                self.test(field(mask), Code::Equal(0), [next[1], next[1]])
            }
            Compare::OneOf(numbers) if self.in_order && numbers.is_empty() => {
                self.test(field(mask), Code::Equal(0), [next[0], next[0]])
            }
            Compare::Range(low, high) => {
                let most = match *high >= mask {
                    true => next[1],
                    false => self.test(field(mask), Code::Greater(*high), [next[1], next[0]]),
                };
                match low {
                    0 => most,
                    _ => self.test(field(mask), Code::GreaterOrEqual(*low), [next[0], most]),
                }
            }
            Compare::OneOf(numbers) => numbers.iter().rev().fold(next[0], |then, number| {
                self.test(field(mask), Code::Equal(*number), [then, next[1]])
            }),
        })
    }

    fn test(&mut self, value: Value, code: Code, next: [usize; 2]) -> usize {
        let fresh = self.values.len();
        let index = *self.known_values.entry(value.clone()).or_insert(fresh);
        if index == fresh {
            self.values.push(value);
        }
        self.make(Node { test: Test { value: index, code }, next })
    }

    /// The root of the graph after every node was rebuilt, from the ends upwards: `made` gets each
    /// node with its new successors.
    pub(super) fn rebuilt(&mut self, made: impl Fn(&mut Graph, Node) -> usize) -> usize {
        let mut order = self.reached();
        order.reverse();
        let mut new: HashMap<usize, usize> = ENDS.into_iter().map(|end| (end, end)).collect();
        for index in order {
            let Some(node) = self.node(index) else { continue };
            let next = node.next.map(|successor| new.get(&successor).copied().unwrap_or(successor));
            let made = made(self, Node { next, ..node });
            new.insert(index, made);
        }
        new.get(&self.root).copied().unwrap_or(self.root)
    }

    /// The nodes that can be reached from the root, each before its successors.
    pub(super) fn reached(&self) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len() + 2];
        let mut rest = vec![self.root];
        while let Some(index) = rest.pop() {
            let Some(node) = self.node(index) else { continue };
            if !std::mem::replace(&mut seen[index], true) {
                rest.extend(node.next);
            }
        }
        (2..seen.len()).rev().filter(|index| seen[*index]).collect()
    }
}

/// A field with the bits that are compared, also if a computation gives them.
fn field_of(expr: &Expr) -> Option<(Source, u32)> {
    match expr {
        Expr::Binary(Operator::And, inner, mask) => {
            let (source, known) = field_of(inner)?;
            Some((source, known & constant(mask)?))
        }
        other => masked_field(other),
    }
}

/// The bits that a load can set.
pub(super) fn full_mask(source: &Source) -> u32 {
    match source {
        Source::Bytes { width, .. } => width.full_mask(),
        Source::WireLen | Source::Meta(_) => u32::MAX,
    }
}

/// The value of an expression that reads no bytes.
pub(super) fn constant(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Const(value) => Some(*value),
        Expr::Negate(inner) => Some(constant(inner)?.wrapping_neg()),
        Expr::Binary(operator, left, right) => {
            operator.apply(constant(left)?, constant(right)?).ok()
        }
        _ => None,
    }
}
