//! Builds the graph of tests of a predicate: one block per comparison, in the order of libpcap's
//! code.

use super::{ACCEPT, Block, Code, Graph, MAX_TESTS, Operand, REJECT, Value};
use crate::ast::{Arithmetic, Comparison, Node, Primitive, PrimitiveKind, Side};
use crate::compat::constant_value;
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Expr, Load, Relation, Source};
use std::collections::HashMap;

/// The predicate has too many tests.
pub(super) struct TooMany;

/// The first block of the added part.
type Added = Result<usize, TooMany>;

impl Graph {
    /// The graph of a whole text; `before` is tested first.
    pub(super) fn of(root: &Node, before: Option<&Condition>) -> Option<Graph> {
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
            in_range: false,
        };
        // A tree this deep has at least as many tests.
        if graph.primitive > MAX_TESTS {
            return None;
        }
        graph.root = graph.node(root, [REJECT, ACCEPT]).ok()?;
        // A text that begins with a constant of the link type: its test has one outcome, and edges
        // lead past the rest.
        let decided = |first: &Primitive| matches!(first.condition, Condition::Const(_));
        if root.primitives().next().is_some_and(decided) {
            let value = graph.value(Value::Number(0));
            let next = [graph.root; 2];
            graph.root = graph.block(value, Code::Equal, Operand::Number(0), next).ok()?;
        }
        if let Some(before) = before {
            graph.root = graph.condition(before, [REJECT, graph.root]).ok()?;
        }
        Some(graph)
    }

    /// Adds the tests of a node, last first; returns the first of them.
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
                self.in_range = matches!(primitive.kind, PrimitiveKind::PortRange { .. });
                match &primitive.kind {
                    PrimitiveKind::Relation { left, comparison, right } => {
                        self.relation(primitive, left, *comparison, right, next)
                    }
                    PrimitiveKind::Net6 { side: Side::Either, prefix_len: 0, .. } => {
                        self.all_addresses(&primitive.condition, next)
                    }
                    PrimitiveKind::DecnetHost { .. }
                    | PrimitiveKind::Host { .. }
                    | PrimitiveKind::Net { .. }
                    | PrimitiveKind::Net6 { .. } => self.address(&primitive.condition, next),
                    _ => self.condition(&primitive.condition, next),
                }
            }
        }
    }

    /// Adds a test of addresses: libpcap tests the protocol again before each end.
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

    /// Adds a test of any address at either end: if only the protocol test remains, it is made
    /// twice.
    fn all_addresses(&mut self, condition: &Condition, next: [usize; 2]) -> Added {
        match condition {
            Condition::All(operands) if matches!(operands.last(), Some(Condition::Any(_))) => {
                self.address(condition, next)
            }
            _ => {
                let destination = self.condition(condition, next)?;
                self.condition(condition, [destination, next[1]])
            }
        }
    }

    fn condition(&mut self, condition: &Condition, next: [usize; 2]) -> Added {
        condition.decide(next, &mut |test, next| self.leaf(test, next))
    }

    /// Adds the tests of a condition without operands.
    fn leaf(&mut self, leaf: &Condition, next: [usize; 2]) -> Added {
        match leaf {
            Condition::Const(_) | Condition::All(_) | Condition::Any(_) | Condition::Not(_) => {
                self.condition(leaf, next)
            }
            Condition::Load(load) => self.load(load, next),
            // Libpcap does not optimise a text with a loop.
            Condition::Chain(_) => Err(TooMany),
            Condition::Address6(address) => {
                address.words().try_rfold(next[1], |then, word| self.load(&word, [next[0], then]))
            }
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
                // No bit of an empty mask is set.
                let any = if *mask == 0 { next[1] } else { next[0] };
                self.block(value, Code::AnyBit, Operand::Number(*mask), [next[1], any])
            }
            Compare::Equal(number) => {
                self.block(value, Code::Equal, Operand::Number(*number), next)
            }
            Compare::Range(low, high) => {
                // Libpcap treats tests that cannot fail as tests too.
                let both = self.in_range;
                let open_end = !both && (*high == u32::MAX || *low > 0 && *high == full);
                let most = if open_end {
                    next[1]
                } else {
                    let operand = Operand::Number(*high);
                    self.block(value, Code::Greater, operand, [next[1], next[0]])?
                };
                if *low == 0 && !open_end && !both {
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

    /// Adds a byte expression: the checks of its headers, then the comparison.
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
            // A check that cannot hold makes the comparison unreachable.
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
}

fn compared(code: Code, left: u32, right: u32) -> bool {
    match code {
        Code::Equal => left == right,
        Code::Greater => left > right,
        Code::GreaterOrEqual => left >= right,
        Code::AnyBit => left & right != 0,
    }
}
