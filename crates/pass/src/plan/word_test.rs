//! A test of one word, in a form that applies to many words at once.
//!
//! Made when a plan is laid out, never per frame. Words keep the byte order of the frame, read with the lowest address
//! as the lowest byte: loading frames swaps nothing, because masks and values are swapped when they are laid out. Only
//! intervals and large sets swap the word itself. Sets of few members get a [`RegisterSet`]: membership takes two
//! permutes and compares instead of one compare per member.

use crate::isa::value_set::ValueSet;
use fyke_table::{RegisterSet, register_set::REGISTER_SET_LIMIT};
use std::sync::Arc;

/// Test of a word.
#[derive(Debug)]
pub(crate) enum WordTest {
    /// Masked, it is this value.
    Equal { mask: u32, value: u32 },
    /// Masked, it is one of a few values.
    OneOf { mask: u32, values: Box<[u32]> },
    /// As a number, shifted right and masked, it lies in one of the intervals: lowest value, distance of the highest.
    Within { shift: u8, mask: u32, intervals: Box<[(u32, u32)]> },
    /// Masked, it is one of a small set's members.
    Few { mask: u32, set: Box<RegisterSet> },
    /// As a number, shifted right and masked, it is a member.
    Member { shift: u8, mask: u32, set: Arc<ValueSet> },
}

/// A number, shifted to its place in a word, in the byte order of the frame.
pub(crate) fn placed(number: u32, shift: u8) -> u32 {
    (number << shift).swap_bytes()
}

/// The number in a word, shifted right from its place.
pub(crate) fn number(word: u32, shift: u8) -> u32 {
    word.swap_bytes() >> shift
}

impl WordTest {
    /// Masked, the number is this value.
    pub fn equal(mask: u32, value: u32, shift: u8) -> WordTest {
        WordTest::Equal { mask: placed(mask, shift), value: placed(value, shift) }
    }

    /// One of a list.
    pub fn one_of(mask: u32, values: &[u32], shift: u8) -> WordTest {
        match *values {
            [value] => WordTest::equal(mask, value, shift),
            _ => WordTest::OneOf {
                mask: placed(mask, shift),
                values: values.iter().map(|&value| placed(value, shift)).collect(),
            },
        }
    }

    /// In one of several closed intervals.
    pub fn within(mask: u32, intervals: &[(u32, u32)], shift: u8) -> WordTest {
        let some = intervals.iter().filter(|(low, high)| low <= high);
        WordTest::Within {
            shift,
            mask,
            intervals: some.map(|&(low, high)| (low, high - low)).collect(),
        }
    }

    /// A member of a set.
    pub fn member(mask: u32, set: &Arc<ValueSet>, shift: u8) -> WordTest {
        if set.len() <= REGISTER_SET_LIMIT {
            // Members with bits outside of the mask never match.
            let members = set.members().into_iter().map(|value| value as u32);
            let members: Vec<u32> = members
                .filter(|value| value & !mask == 0)
                .map(|value| placed(value, shift))
                .collect();
            let mask = placed(mask, shift);
            if members.is_empty() {
                return WordTest::OneOf { mask, values: [].into() };
            }
            if let Some(set) = RegisterSet::new(&members) {
                return WordTest::Few { mask, set: Box::new(set) };
            }
        }
        WordTest::Member { shift, mask, set: set.clone() }
    }

    /// Tests one word.
    #[inline]
    pub fn holds(&self, word: u32) -> bool {
        match self {
            WordTest::Equal { mask, value } => word & mask == *value,
            WordTest::OneOf { mask, values } => values.contains(&(word & mask)),
            WordTest::Within { shift, mask, intervals } => {
                let number = number(word, *shift) & mask;
                intervals.iter().any(|&(low, width)| number.wrapping_sub(low) <= width)
            }
            WordTest::Few { mask, set } => set.contains(word & mask),
            WordTest::Member { shift, mask, set } => set.contains(number(word, *shift) & mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::test::within;

    #[test]
    fn intervals_are_closed_and_may_be_empty() {
        let word_test = WordTest::within(0xffff, &[(5, 9), (9, 8), (0, 0), (0xfff0, 0xffff)], 0);
        let intervals = [(5, 9), (0, 0), (0xfff0, 0xffff)];
        let expected = |word| within(&intervals, word & 0xffff);
        assert!((0..0x2_0000).all(|word| word_test.holds(placed(word, 0)) == expected(word)));
        assert!(!WordTest::within(u32::MAX, &[(9, 8)], 0).holds(placed(8, 0)));
    }

    #[test]
    fn the_upper_half_of_a_word_is_the_first_in_the_frame() {
        let word = u32::from_le_bytes([0x12, 0x34, 0x56, 0x78]);
        let set = |values: &[u32]| Arc::new(ValueSet::words(values));
        for (number, shift) in [(0x1234, 16), (0x5678, 0)] {
            assert!(WordTest::equal(0xffff, number, shift).holds(word));
            assert!(WordTest::one_of(0xffff, &[1, number], shift).holds(word));
            assert!(WordTest::within(0xffff, &[(number, number)], shift).holds(word));
            let many: Vec<u32> = (0..100).chain([number]).collect();
            for set in [set(&[7, number]), set(&many)] {
                assert!(WordTest::member(0xffff, &set, shift).holds(word));
                assert!(!WordTest::member(0xffff, &set, 16 - shift).holds(word));
            }
        }
    }
}
