//! Visits of the parts of a condition: one description of which part contains which, for all that
//! walk over conditions (costs, uses, fields that are read, graphs of tests).
//!
//! A [`Visit`] overrides the calls for the parts that it looks at and calls `parts` where it wants
//! to go deeper. [`Condition::decide`] is the walk of those who turn a condition into decisions.
//! Cost: O(size), recursive; texts limit the depth.

use super::{Address6, Base, Compare, Condition, Expr, Load, MetaField, Source, Width};
use std::sync::Arc;

/// Calls for the parts of conditions and expressions, in order of evaluation.
pub trait Visit<'c> {
    /// A condition.
    fn condition(&mut self, condition: &'c Condition) {
        condition.parts(self);
    }

    /// An expression.
    fn expression(&mut self, expr: &'c Arc<Expr>) {
        expr.parts(self);
    }

    /// An expression that is the place of a load.
    fn place(&mut self, place: &'c Arc<Expr>) {
        self.expression(place);
    }
}

/// The ends of a decision: when it fails and when it holds.
type Next<N> = [N; 2];

impl Condition {
    /// Visits the parts of this condition, not the condition itself.
    pub fn parts<'c>(&'c self, visit: &mut (impl Visit<'c> + ?Sized)) {
        match self {
            Condition::Const(_) | Condition::Address6(_) | Condition::Chain(_) => {}
            Condition::All(operands) | Condition::Any(operands) => {
                operands.iter().for_each(|operand| visit.condition(operand));
            }
            Condition::Not(inner) => visit.condition(inner),
            Condition::Load(load) => load.source.parts(visit),
            Condition::Relation(_, left, right) => {
                visit.expression(left);
                visit.expression(right);
            }
        }
    }

    /// Builds decisions, the last one first: `test` gets every part without operands and both nodes
    /// after it, and returns the node that makes the test. Returns the first node of the whole.
    ///
    /// # Errors
    /// The first error of `test`.
    pub fn decide<N: Copy, E>(
        &self,
        next: Next<N>,
        test: &mut impl FnMut(&Condition, Next<N>) -> Result<N, E>,
    ) -> Result<N, E> {
        match self {
            Condition::Const(value) => Ok(next[usize::from(*value)]),
            Condition::Not(inner) => inner.decide([next[1], next[0]], test),
            Condition::All(operands) => operands
                .iter()
                .rev()
                .try_fold(next[1], |then, operand| operand.decide([next[0], then], test)),
            Condition::Any(operands) => operands
                .iter()
                .rev()
                .try_fold(next[0], |then, operand| operand.decide([then, next[1]], test)),
            leaf => test(leaf, next),
        }
    }

    /// True if the condition reads this metadata field anywhere. Cost: O(size of the condition).
    pub fn reads(&self, field: MetaField) -> bool {
        let mut reads = Reads { field, found: false };
        reads.condition(self);
        reads.found
    }
}

impl Expr {
    /// Visits the parts of this expression, not the expression itself.
    pub fn parts<'c>(&'c self, visit: &mut (impl Visit<'c> + ?Sized)) {
        match self {
            Expr::Const(_) | Expr::WireLen | Expr::Meta(_) | Expr::IpHeaderLen { .. } => {}
            Expr::Load { index, .. } => visit.place(index),
            Expr::Negate(inner) => visit.expression(inner),
            Expr::Binary(_, left, right) => {
                visit.expression(left);
                visit.expression(right);
            }
            Expr::Select(condition, then, otherwise) => {
                visit.condition(condition);
                visit.expression(then);
                visit.expression(otherwise);
            }
        }
    }
}

impl Source {
    /// Visits the parts of this value.
    pub fn parts<'c>(&'c self, visit: &mut (impl Visit<'c> + ?Sized)) {
        if let Source::Bytes { base: Base::Computed(place), .. } = self {
            visit.place(place);
        }
    }
}

impl Address6 {
    /// The words that are compared, as tests, in order.
    pub fn words(self) -> impl DoubleEndedIterator<Item = Load> {
        (0..4).filter_map(move |word| {
            let shift = 96 - 32 * word;
            let mask = (self.mask >> shift) as u32;
            let compare = Compare::Equal((self.value >> shift) as u32 & mask);
            let offset = self.offset.wrapping_add(4 * word);
            (mask != 0).then(|| Load::at(Base::Frame, offset, Width::Four, mask, compare))
        })
    }
}

struct Reads {
    field: MetaField,
    found: bool,
}

impl<'c> Visit<'c> for Reads {
    fn condition(&mut self, condition: &'c Condition) {
        if let Condition::Load(Load { source: Source::Meta(read), .. }) = condition {
            self.found |= *read == self.field;
        }
        if !self.found {
            condition.parts(self);
        }
    }

    fn expression(&mut self, expr: &'c Arc<Expr>) {
        if let Expr::Meta(read) = **expr {
            self.found |= read == self.field;
        }
        if !self.found {
            expr.parts(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{Operator, Relation};

    fn meta(field: MetaField) -> Arc<Expr> {
        Arc::new(Expr::Meta(field))
    }

    #[test]
    fn fields_are_found_in_every_kind_of_part() {
        let field = MetaField::VlanTag;
        let sum = |other| Arc::new(Expr::Binary(Operator::Add, Arc::new(Expr::WireLen), other));
        let relation = |expr| Condition::Relation(Relation::Equal, Arc::new(Expr::Const(1)), expr);
        let load = |source| Condition::Load(Load { source, mask: 1, compare: Compare::Equal(1) });
        let at =
            |place| Source::Bytes { base: Base::Computed(place), offset: 0, width: Width::One };
        let by_value = |index| Arc::new(Expr::Load { index, offset: 0, width: Width::One });
        let select = |choice: Condition| {
            let number = Arc::new(Expr::Const(0));
            Arc::new(Expr::Select(Arc::new(choice), number.clone(), number))
        };
        let each = |field: MetaField| {
            [
                load(Source::Meta(field)),
                load(at(meta(field))),
                relation(sum(Arc::new(Expr::Negate(meta(field))))),
                relation(by_value(meta(field))),
                relation(select(load(Source::Meta(field)))),
                Condition::Not(Box::new(Condition::Any(vec![relation(meta(field))]))),
            ]
        };
        for (number, condition) in each(field).iter().enumerate() {
            assert!(condition.reads(field), "{number}");
            assert!(!condition.reads(MetaField::IfIndex), "{number}");
        }
        assert!(Condition::All(each(field).into()).reads(field));
        assert!(!Condition::All(each(MetaField::IfIndex).into()).reads(field));
    }

    #[test]
    fn decisions_are_made_from_the_last_to_the_first() {
        let word = |offset| Condition::Load(Load::equal(offset, Width::One, 0xff, 1));
        let either = Condition::Any(vec![word(1), Condition::Not(Box::new(word(2)))]);
        let whole = Condition::All(vec![word(0), either, Condition::Const(true)]);
        let mut made = Vec::new();
        let first = whole.decide([100, 101], &mut |test, next| {
            made.push((test.clone(), next));
            Ok::<_, ()>(made.len() - 1)
        });
        // The second operand's last test comes first: it holds when word 2 does not.
        let expected = [(word(2), [101, 100]), (word(1), [0, 101]), (word(0), [100, 1])];
        assert_eq!((first, made), (Ok(2), expected.to_vec()));
    }

    #[test]
    fn an_address_has_a_test_for_each_word_with_a_mask() {
        let address = Address6 { offset: 38, mask: u128::MAX << 48, value: 0x20 << 120 };
        let offset = |load: Load| match load.source {
            Source::Bytes { offset, .. } => (offset, load.mask, load.compare),
            other => panic!("{other:?}"),
        };
        let words: Vec<_> = address.words().map(offset).collect();
        let first = (38, u32::MAX, Compare::Equal(0x2000_0000));
        let rest =
            [(42, u32::MAX), (46, 0xffff_0000)].map(|(at, mask)| (at, mask, Compare::Equal(0)));
        assert_eq!(words, [first, rest[0].clone(), rest[1].clone()]);
    }
}
