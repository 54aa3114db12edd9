//! One bit per frame of a batch.
//!
//! Fixed at 256 bits (four words, 32 bytes), so that masks fit into registers and the compiler can
//! unroll all loops over them.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_frame as frame; }
//! use fyke::frame::Mask;
//!
//! let (first, mut chosen) = (Mask::first(100), Mask::EMPTY);
//! chosen.set(7);
//! chosen.set(200);
//! assert_eq!((first & chosen).iter().collect::<Vec<_>>(), [7]);
//! assert_eq!((first.without(chosen) | chosen).count(), 101);
//! ```

use crate::BATCH_CAPACITY;
use std::ops::{BitAnd, BitOr, Not};

const WORDS: usize = BATCH_CAPACITY / 64;

/// A set of frames of one batch; bit *n* mod 64 of word *n / 64* represents frame *n*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mask(pub [u64; WORDS]);

impl Mask {
    /// No frame.
    pub const EMPTY: Mask = Mask([0; WORDS]);

    /// The first `count` frames (all 256 when `count` is larger).
    #[inline]
    pub fn first(count: usize) -> Mask {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            let bits = count.saturating_sub(index * 64).min(64);
            *word = if bits == 64 { u64::MAX } else { (1u64 << bits) - 1 };
        }
        Mask(words)
    }

    /// True if frame `index` is in the set; false if `index` is 256 or more.
    #[inline]
    pub fn get(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Adds frame `index`; does nothing if `index` is 256 or more.
    #[inline]
    pub fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Removes frame `index`.
    #[inline]
    pub fn clear(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Number of frames in the set. Words with no bit or one bit take a short path, because the
    /// code must run on processors without an instruction that counts bits.
    #[inline]
    pub fn count(&self) -> usize {
        let ones = |&word: &u64| match word & word.wrapping_sub(1) {
            0 => usize::from(word != 0),
            _ => word.count_ones() as usize,
        };
        self.0.iter().map(ones).sum()
    }

    /// True if the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The frames of `self` that are not in `other`.
    #[inline]
    pub fn without(self, other: Mask) -> Mask {
        self & !other
    }

    /// The indices of the frames in the set, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    #[inline]
    fn bitand(self, other: Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitOr for Mask {
    type Output = Mask;
    #[inline]
    fn bitor(self, other: Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl Not for Mask {
    type Output = Mask;
    #[inline]
    fn not(self) -> Mask {
        Mask(std::array::from_fn(|i| !self.0[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_counts_and_iterates() {
        for count in [0, 1, 63, 64, 65, 128, 255, 256, 300] {
            let mask = Mask::first(count);
            assert_eq!(mask.count(), count.min(256));
            assert!(mask.iter().eq(0..count.min(256)));
        }
    }

    #[test]
    fn set_clear_and_out_of_range() {
        let mut mask = Mask::EMPTY;
        mask.set(200);
        mask.set(999);
        assert!(mask.get(200) && !mask.get(199) && !mask.get(999));
        assert_eq!(Mask::first(256).without(mask).count(), 255);
        mask.clear(200);
        assert!(mask.is_empty());
    }
}
