//! Operations of instructions on their columns.
//!
//! Chosen when a plan is laid out, O(operands): the columns that an instruction reads ([`sources_of`]) and the way to
//! compare them ([`op_of`]). Nearly everything is a comparison of whole columns; the rest (`protochain`, large sets of
//! IPv6 prefixes) is judged frame by frame by the instruction itself.

use crate::isa::layout::META_DIRECTION;
use crate::isa::test::{Addresses, Base, MaskedWord, Place, Test, Values};
use crate::lower::literal::against_constant;
use crate::plan::chunks::Column;
use crate::plan::program::Source;
use crate::plan::word_test::{WordTest, placed};
use fyke_frame::Condition;
use fyke_frame::condition::{self, Compare, Expr, Load, MetaField, Operator, Relation};
use std::sync::Arc;

/// Largest number of prefixes that are compared one after the other.
const MAX_PREFIXES: usize = 8;

/// Operation of an instruction on its columns.
#[derive(Debug)]
pub(crate) enum Op {
    /// Every column, masked, is its value.
    AllOf(Box<[(u32, u32)]>),
    /// The columns are both halves of one word; one half must be one of the values.
    Halves(Box<[u16]>),
    /// One of the columns satisfies its test.
    AnyOf(Box<[WordTest]>),
    /// The columns are several words at each of some places. At one place at least, all words, masked, are those of a
    /// run.
    AnyRun(Box<[Run]>),
    /// The first column compares to the second.
    Compare(Relation),
    /// One of the passes of an inner set of the plan accepts.
    Passes(u32),
    /// Frames are judged one by one.
    OneByOne,
}

/// Masks and values of consecutive words.
pub(crate) type Run = Box<[(u32, u32)]>;

/// The bits of a mask that fit the place.
pub(crate) fn fitting(place: &Place, mask: u32) -> u32 {
    if place.width == 2 { mask & 0xffff } else { mask }
}

/// The columns that a test reads.
pub(crate) fn sources_of(test: &Test) -> Vec<Source> {
    let value = |expr| vec![Source::Value(Arc::new(expr))];
    match test {
        Test::Run(words) => words.iter().map(|word| Source::Place(word.place)).collect(),
        Test::AnyOf { place, second, .. } | Test::Range { place, second, .. } => {
            let other = second.map(|distance| place.moved(distance));
            std::iter::once(*place).chain(other).map(Source::Place).collect()
        }
        Test::Prefix { offset, second, mask, addresses } => {
            let Some(addresses) = few(addresses, *mask) else { return Vec::new() };
            let word = |(at, mask, _): (u32, u32, u32)| Place::new(Base::Direct, at, true, mask);
            let places = [Some(*offset), second.map(|distance| offset + distance)];
            let runs = places.into_iter().flatten();
            let value = addresses.first().copied().unwrap_or(0);
            let runs = runs.flat_map(|offset| words_of(offset, *mask, value));
            runs.map(|masked| Source::Place(word(masked))).collect()
        }
        Test::Length { .. } => value(Expr::WireLen),
        Test::Meta { field: META_DIRECTION, .. } => value(Expr::Meta(MetaField::Direction)),
        Test::Meta { .. } => value(Expr::Meta(MetaField::IfIndex)),
        Test::Condition(condition) => match &**condition {
            Condition::Relation(relation, left, right) => {
                match against_constant(*relation, left, right) {
                    Some((expr, _)) => vec![Source::of(expr)],
                    None => vec![Source::of(left), Source::of(right)],
                }
            }
            Condition::Load(load) => vec![Source::of(&Arc::new(loaded(load)))],
            _ => Vec::new(),
        },
        Test::True | Test::Passes(_) => Vec::new(),
    }
}

/// The expression of a load.
fn loaded(load: &Load) -> Expr {
    match &load.source {
        condition::Source::Bytes { base, offset, width } => {
            let index = match base {
                condition::Base::Frame => Arc::new(Expr::Const(0)),
                condition::Base::IpHeaderEnd { ip } => Arc::new(Expr::Binary(
                    Operator::Add,
                    Arc::new(Expr::IpHeaderLen { ip: *ip }),
                    Arc::new(Expr::Const(*ip)),
                )),
                condition::Base::Computed(index) => index.clone(),
            };
            Expr::Load { index, offset: *offset, width: *width }
        }
        condition::Source::WireLen => Expr::WireLen,
        condition::Source::Meta(field) => Expr::Meta(*field),
    }
}

/// The prefixes, if there are few of them and they are not empty.
fn few(addresses: &Addresses, mask: u128) -> Option<Vec<u128>> {
    match addresses {
        _ if mask == 0 => None,
        Addresses::One(address) => Some(vec![*address]),
        Addresses::Set(set) => (1..=MAX_PREFIXES).contains(&set.len()).then(|| set.members()),
    }
}

/// The words of an address of which the mask selects bits: place, mask, value.
fn words_of(offset: u32, mask: u128, value: u128) -> impl Iterator<Item = (u32, u32, u32)> {
    let word = move |index: u32| {
        let part = |bits: u128| (bits >> (96 - 32 * index)) as u32;
        (offset + 4 * index, part(mask), part(value))
    };
    (0..4).map(word).filter(|(_, mask, _)| *mask != 0)
}

/// Operation of an instruction on its columns, which are those of [`sources_of`].
pub(crate) fn op_of(test: &Test, indices: &[u32], columns: &[Column]) -> Op {
    let own = || indices.iter().map(|&index| &columns[index as usize]);
    let each =
        |make: &dyn Fn(u8) -> WordTest| Op::AnyOf(own().map(|one| make(one.shift())).collect());
    match test {
        Test::True => Op::AllOf([].into()),
        // The plan numbers its inner sets.
        Test::Passes(_) => Op::OneByOne,
        Test::Run(words) => {
            let term = |(word, column): (&MaskedWord, &Column)| {
                let mask = fitting(&word.place, word.mask);
                (placed(mask, column.shift()), placed(word.value, column.shift()))
            };
            Op::AllOf(words.iter().zip(own()).map(term).collect())
        }
        Test::AnyOf { place, mask, values: Values::List(list), .. } => {
            let mask = fitting(place, *mask);
            match halves(own(), mask, list) {
                Some(values) => Op::Halves(values),
                None => each(&|shift| WordTest::one_of(mask, list, shift)),
            }
        }
        Test::AnyOf { place, mask, values: Values::Set(set), .. } => {
            each(&|shift| WordTest::member(fitting(place, *mask), set, shift))
        }
        Test::Range { place, mask, intervals, .. } => {
            each(&|shift| WordTest::within(fitting(place, *mask), intervals, shift))
        }
        Test::Prefix { mask, second, addresses, .. } => {
            let run = |value| {
                let term = |(_, mask, value)| (placed(mask, 0), placed(value, 0));
                words_of(0, *mask, value).map(term).collect()
            };
            match few(addresses, *mask) {
                None => Op::OneByOne,
                Some(some) => match some[..] {
                    [one] if second.is_none() => Op::AllOf(run(one)),
                    _ => Op::AnyRun(some.into_iter().map(run).collect()),
                },
            }
        }
        Test::Length { intervals } => each(&|shift| WordTest::within(u32::MAX, intervals, shift)),
        Test::Meta { mask, values, .. } => each(&|shift| WordTest::one_of(*mask, values, shift)),
        Test::Condition(condition) => match &**condition {
            Condition::Relation(relation, left, right) => {
                match against_constant(*relation, left, right) {
                    Some((_, interval)) => {
                        let interval = interval.as_slice();
                        each(&|shift| WordTest::within(u32::MAX, interval, shift))
                    }
                    None => Op::Compare(*relation),
                }
            }
            Condition::Load(Load { mask, compare, .. }) => each(&|shift| match compare {
                Compare::Equal(value) => WordTest::equal(*mask, *value, shift),
                Compare::Range(low, high) => WordTest::within(*mask, &[(*low, *high)], shift),
                Compare::OneOf(values) => WordTest::one_of(*mask, values, shift),
            }),
            _ => Op::OneByOne,
        },
    }
}

/// The values, if the columns are both halves of one word and the mask selects all bits.
fn halves<'a>(
    mut columns: impl Iterator<Item = &'a Column>,
    mask: u32,
    values: &[u32],
) -> Option<Box<[u16]>> {
    match (columns.next()?, columns.next()?) {
        (Column::At(one), Column::At(other))
            if (one.chunk, one.word, one.base) == (other.chunk, other.word, other.base)
                && (one.shift, other.shift, mask) == (16, 0, 0xffff) =>
        {
            let half = |&value: &u32| u16::try_from(value).ok().map(u16::swap_bytes);
            values.iter().map(half).collect()
        }
        _ => None,
    }
}
