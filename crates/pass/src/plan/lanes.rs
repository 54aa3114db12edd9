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
pub(crate) enum Lanes {
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

impl Lanes {
    /// Masked, the number is this value.
    pub fn equal(mask: u32, value: u32, shift: u8) -> Lanes {
        Lanes::Equal { mask: placed(mask, shift), value: placed(value, shift) }
    }

    /// One of a list.
    pub fn one_of(mask: u32, values: &[u32], shift: u8) -> Lanes {
        match *values {
            [value] => Lanes::equal(mask, value, shift),
            _ => Lanes::OneOf {
                mask: placed(mask, shift),
                values: values.iter().map(|&value| placed(value, shift)).collect(),
            },
        }
    }

    /// In one of several closed intervals.
    pub fn within(mask: u32, intervals: &[(u32, u32)], shift: u8) -> Lanes {
        let some = intervals.iter().filter(|(low, high)| low <= high);
        Lanes::Within {
            shift,
            mask,
            intervals: some.map(|&(low, high)| (low, high - low)).collect(),
        }
    }

    /// A member of a set.
    pub fn member(mask: u32, set: &Arc<ValueSet>, shift: u8) -> Lanes {
        if set.len() <= REGISTER_SET_LIMIT {
            // Members with bits outside of the mask never match.
            let members = set.members().into_iter().map(|value| value as u32);
            let members: Vec<u32> = members
                .filter(|value| value & !mask == 0)
                .map(|value| placed(value, shift))
                .collect();
            let mask = placed(mask, shift);
            if members.is_empty() {
                return Lanes::OneOf { mask, values: [].into() };
            }
            if let Some(set) = RegisterSet::new(&members) {
                return Lanes::Few { mask, set: Box::new(set) };
            }
        }
        Lanes::Member { shift, mask, set: set.clone() }
    }

    /// Tests one word.
    #[inline]
    pub fn holds(&self, word: u32) -> bool {
        match self {
            Lanes::Equal { mask, value } => word & mask == *value,
            Lanes::OneOf { mask, values } => values.contains(&(word & mask)),
            Lanes::Within { shift, mask, intervals } => {
                let number = number(word, *shift) & mask;
                intervals.iter().any(|&(low, width)| number.wrapping_sub(low) <= width)
            }
            Lanes::Few { mask, set } => set.contains(word & mask),
            Lanes::Member { shift, mask, set } => set.contains(number(word, *shift) & mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::test::within;

    #[test]
    fn intervals_are_closed_and_may_be_empty() {
        let lanes = Lanes::within(0xffff, &[(5, 9), (9, 8), (0, 0), (0xfff0, 0xffff)], 0);
        let intervals = [(5, 9), (0, 0), (0xfff0, 0xffff)];
        let expected = |word| within(&intervals, word & 0xffff);
        assert!((0..0x2_0000).all(|word| lanes.holds(placed(word, 0)) == expected(word)));
        assert!(!Lanes::within(u32::MAX, &[(9, 8)], 0).holds(placed(8, 0)));
    }

    #[test]
    fn the_upper_half_of_a_word_is_the_first_in_the_frame() {
        let word = u32::from_le_bytes([0x12, 0x34, 0x56, 0x78]);
        let set = |values: &[u32]| Arc::new(ValueSet::words(values));
        for (number, shift) in [(0x1234, 16), (0x5678, 0)] {
            assert!(Lanes::equal(0xffff, number, shift).holds(word));
            assert!(Lanes::one_of(0xffff, &[1, number], shift).holds(word));
            assert!(Lanes::within(0xffff, &[(number, number)], shift).holds(word));
            let many: Vec<u32> = (0..100).chain([number]).collect();
            for set in [set(&[7, number]), set(&many)] {
                assert!(Lanes::member(0xffff, &set, shift).holds(word));
                assert!(!Lanes::member(0xffff, &set, 16 - shift).holds(word));
            }
        }
    }
}
