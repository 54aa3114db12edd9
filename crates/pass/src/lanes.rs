//! A test of one word, in the form that is applied to many words at once.
//!
//! Made when a plan is laid out, never per frame. Sets of few members get a *register set* besides: 64 slots that
//! fit four 512-bit registers, two places a member (cuckoo), so that membership is two permutations and compares
//! instead of one compare per member. Slots that are free repeat a member, so they need no mark.

use crate::set::ValueSet;
use std::sync::Arc;

/// Slots of a register set.
pub(crate) const SLOTS: usize = 64;
/// Most members for which a register set is tried; beyond, two places of 64 are too few.
const MOST_MEMBERS: usize = 44;
/// Pairs of hash functions that are tried.
const TRIES: u32 = 64;

/// What must hold of a word.
#[derive(Debug)]
pub(crate) enum Lanes {
    /// Masked, it is this value.
    Equal { mask: u32, value: u32 },
    /// Masked, it is one of a few values.
    OneOf { mask: u32, values: Box<[u32]> },
    /// Masked, it lies in one of the intervals: lowest value, distance of the highest from it.
    Within { mask: u32, intervals: Box<[(u32, u32)]> },
    /// Masked, it is a member.
    Member { mask: u32, set: Arc<ValueSet>, small: Option<Box<RegisterSet>> },
}

impl Lanes {
    /// One of a list.
    pub fn one_of(mask: u32, values: &[u32]) -> Lanes {
        match *values {
            [value] => Lanes::Equal { mask, value },
            _ => Lanes::OneOf { mask, values: values.into() },
        }
    }

    /// In one of several closed intervals.
    pub fn within(mask: u32, intervals: &[(u32, u32)]) -> Lanes {
        let some = intervals.iter().filter(|(low, high)| low <= high);
        Lanes::Within { mask, intervals: some.map(|&(low, high)| (low, high - low)).collect() }
    }

    /// At least this number.
    pub fn from(lowest: u32) -> Lanes {
        Lanes::within(u32::MAX, &[(lowest, u32::MAX)])
    }

    /// A member of a set.
    pub fn member(mask: u32, set: &Arc<ValueSet>) -> Lanes {
        let small = (set.len() <= MOST_MEMBERS).then(|| {
            let members: Vec<u32> = set.members().into_iter().map(|value| value as u32).collect();
            RegisterSet::new(&members).map(Box::new)
        });
        Lanes::Member { mask, set: set.clone(), small: small.flatten() }
    }

    /// Whether it holds of one word.
    #[inline]
    pub fn holds(&self, word: u32) -> bool {
        match self {
            Lanes::Equal { mask, value } => word & mask == *value,
            Lanes::OneOf { mask, values } => values.contains(&(word & mask)),
            Lanes::Within { mask, intervals } => {
                intervals.iter().any(|&(low, width)| (word & mask).wrapping_sub(low) <= width)
            }
            Lanes::Member { mask, set, .. } => set.contains(word & mask),
        }
    }
}

/// A few values in 64 slots, each at one of two places.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct RegisterSet {
    /// The values.
    pub slots: [u32; SLOTS],
    /// Odd multipliers; the six highest bits of the product are the place.
    pub multipliers: [u32; 2],
}

impl RegisterSet {
    /// Places all members, or gives up; `None` for an empty list.
    pub fn new(members: &[u32]) -> Option<RegisterSet> {
        let first = *members.first()?;
        let mut multiplier = 0x9e37_79b1_u32;
        for _ in 0..TRIES {
            let mut next = || {
                multiplier = multiplier.wrapping_mul(0x915f_77f5).wrapping_add(0x3c6e_f35e) | 1;
                multiplier
            };
            let mut set = RegisterSet { slots: [first; SLOTS], multipliers: [next(), next()] };
            if set.fill(members) {
                return Some(set);
            }
        }
        None
    }

    fn place(&self, value: u32, which: usize) -> usize {
        (value.wrapping_mul(self.multipliers[which]) >> 26) as usize
    }

    fn fill(&mut self, members: &[u32]) -> bool {
        let mut taken = [false; SLOTS];
        members.iter().all(|&member| {
            let (mut value, mut at) = (member, self.place(member, 0));
            for _ in 0..2 * SLOTS {
                if !taken[at] {
                    (taken[at], self.slots[at]) = (true, value);
                    return true;
                }
                value = std::mem::replace(&mut self.slots[at], value);
                // Whoever was displaced goes to its other place.
                at = self.place(value, usize::from(self.place(value, 0) == at));
            }
            false
        })
    }

    /// Whether a value is a member.
    #[cfg(test)]
    pub fn contains(&self, value: u32) -> bool {
        [0, 1].iter().any(|&which| self.slots[self.place(value, which)] == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::within;

    #[test]
    fn register_sets_hold_their_members_and_nothing_else() {
        let mut seed = 99_u32;
        for len in 1..=MOST_MEMBERS {
            let members: Vec<u32> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    0xc0a8_0000 | seed >> 20
                })
                .collect();
            let Some(set) = RegisterSet::new(&members) else {
                assert!(len > 32, "no place for {len} members");
                continue;
            };
            for value in (0xc0a8_0000..0xc0a8_1000).chain([0, 1, u32::MAX]) {
                assert_eq!(set.contains(value), members.contains(&value), "{len} members");
            }
        }
        assert!(RegisterSet::new(&[]).is_none());
    }

    #[test]
    fn intervals_are_closed_and_may_be_empty() {
        let lanes = Lanes::within(0xffff, &[(5, 9), (9, 8), (0, 0), (0xfff0, 0xffff)]);
        let intervals = [(5, 9), (0, 0), (0xfff0, 0xffff)];
        assert!((0..0x2_0000).all(|word| lanes.holds(word) == within(&intervals, word & 0xffff)));
        assert!(!Lanes::within(u32::MAX, &[(9, 8)]).holds(8));
    }
}
