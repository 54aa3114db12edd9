//! Set of up to 48 words in 64 slots, which fit four vector registers; a membership test is two permutes and two
//! compares.
//!
//! A cuckoo table of two halves of 32 slots without a mark for empty slots: free slots repeat a member. The slots of a
//! value are the top five bits of `value · multiplier` in the first half and the next five bits in the second; the
//! constructor searches for the multiplier (2 to 7 µs). The set is immutable: an edit makes a new one. The pass engine
//! may keep [`RegisterSet::slots`] in registers across instructions.

use crate::arch::Level;
use crate::layout::Column;
use fyke_frame::{BATCH_CAPACITY, Mask};

/// Limit on values of a set.
pub const REGISTER_SET_LIMIT: usize = 48;
/// Number of slots of a half.
const HALF: usize = 32;
/// Limit on multipliers that are tried before the constructor gives up.
const MAX_TRIES: u32 = 4_096;

/// A set of up to [`REGISTER_SET_LIMIT`] words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct RegisterSet {
    slots: [u32; 2 * HALF],
    multiplier: u32,
    len: u32,
}

/// Returns the slot of a value in the first half.
#[inline]
const fn first(value: u32, multiplier: u32) -> usize {
    (value.wrapping_mul(multiplier) >> 27) as usize
}

/// Returns the slot of a value in the second half, counted from its start.
#[inline]
const fn second(value: u32, multiplier: u32) -> usize {
    (value.wrapping_mul(multiplier) >> 22 & 31) as usize
}

impl RegisterSet {
    /// Makes the set of these values, without duplicates. `None` if there are too many, or if no multiplier was found
    /// (not observed with random values up to the limit): use a table then.
    pub fn new(values: &[u32]) -> Option<Self> {
        let mut values = values.to_vec();
        values.sort_unstable();
        values.dedup();
        if values.len() > REGISTER_SET_LIMIT {
            return None;
        }
        let filler = values.first().copied().unwrap_or(0);
        let mut multiplier = 0x9e37_79b1u32;
        for _ in 0..MAX_TRIES {
            if let Some(slots) = place(&values, multiplier) {
                let slots = slots.map(|slot| slot.unwrap_or(filler));
                return Some(RegisterSet { slots, multiplier, len: values.len() as u32 });
            }
            multiplier = multiplier.wrapping_mul(0x2545_f491).wrapping_add(0x1357_9bde) | 1;
        }
        None
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there is no value; the slots are meaningless then.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns both halves, for a vector kernel that keeps them in registers.
    pub fn slots(&self) -> &[u32; 64] {
        &self.slots
    }

    /// Returns the multiplier. The first slot of a value is `value * multiplier >> 27`; the second is
    /// `32 + (value * multiplier >> 22 & 31)`.
    pub fn multiplier(&self) -> u32 {
        self.multiplier
    }

    /// True if a value is in the set.
    #[inline]
    pub fn contains(&self, value: u32) -> bool {
        self.len != 0 && self.hit(value)
    }

    #[inline(always)]
    fn hit(&self, value: u32) -> bool {
        self.slots[first(value, self.multiplier)] == value
            || self.slots[HALF + second(value, self.multiplier)] == value
    }

    /// Returns the lanes of `lanes` with a word in the set.
    pub fn contains_column(&self, column: &Column, lanes: Mask, level: Level) -> Mask {
        if self.is_empty() { Mask::EMPTY } else { level.register_set(self, column) & lanes }
    }

    /// Tests all lanes of a column; compiled once for each level without its own permutes.
    #[inline(always)]
    pub(crate) fn column(&self, column: &Column) -> Mask {
        let mut mask = Mask::EMPTY;
        for (word, lanes) in mask.0.iter_mut().zip(column.chunks_exact(64)) {
            let hits = lanes.iter().map(|&value| u64::from(self.hit(value)));
            *word = hits.enumerate().fold(0, |word, (lane, hit)| word | hit << lane);
        }
        mask
    }
}

const _: () = assert!(BATCH_CAPACITY == 4 * 64);

/// Places all values by cuckoo moves; `None` if the moves form a cycle.
fn place(values: &[u32], multiplier: u32) -> Option<[Option<u32>; 2 * HALF]> {
    let mut slots = [None; 2 * HALF];
    for &value in values {
        let mut moving = value;
        let mut at = first(moving, multiplier);
        let mut steps = 0;
        while let Some(other) = slots[at].replace(moving) {
            if steps == 2 * HALF {
                return None;
            }
            steps += 1;
            moving = other;
            let (one, two) = (first(moving, multiplier), HALF + second(moving, multiplier));
            at = if at == one { two } else { one };
        }
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn every_size_up_to_the_limit() {
        let mut random = Seed::fixed(5);
        for count in 0..=REGISTER_SET_LIMIT {
            let mut made = 0;
            let start = std::time::Instant::now();
            for _ in 0..10 {
                let values: Vec<u32> = (0..count).map(|_| random.next() as u32).collect();
                let Some(set) = RegisterSet::new(&values) else { continue };
                made += 1;
                assert!(values.iter().all(|&value| set.contains(value)));
                assert!((0..1_000).all(|_| !set.contains(random.next() as u32)));
                assert!(count != 0 || !set.contains(0));
            }
            println!("{count} values: {made} of 10 made, {:?} each", start.elapsed() / 10);
            assert!(made == 10 || count > 40, "{count}: {made}");
        }
        assert_eq!(RegisterSet::new(&(0..49).collect::<Vec<_>>()), None);
        assert!(RegisterSet::new(&[7; 100]).is_some_and(|set| set.len() == 1));
    }

    #[test]
    fn levels_agree() {
        let mut random = Seed::fixed(6);
        for count in [0, 1, 2, 7, 38] {
            let values: Vec<u32> = (0..count).map(|_| random.next() as u32 % 300).collect();
            let set = RegisterSet::new(&values).unwrap();
            let column: Column = std::array::from_fn(|_| random.next() as u32 % 300);
            let lanes = Mask([random.next(), 0, u64::MAX, random.next()]);
            let mut expected = Mask::EMPTY;
            let wanted = (0..256).filter(|&n| lanes.get(n) && values.contains(&column[n]));
            wanted.for_each(|lane| expected.set(lane));
            for level in Level::all() {
                assert_eq!(set.contains_column(&column, lanes, level), expected, "{level:?}");
            }
        }
    }
}
