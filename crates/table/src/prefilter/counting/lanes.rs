//! Look-up of many keys in one array, with the same answers as [`Bits::may_contain`].
//!
//! Many lanes are looked up by loops without branches, which the compiler turns into vector instructions: hashes, then
//! one load for each key, then the bits. A few lanes are looked up one by one. So the second hash is computed only for
//! keys with a hit of the first one if these are few, and for all keys if they are many.
//!
//! PERF: sixteen loads instead of a gather: `vpgatherdd` took a quarter longer on Zen 4, with an array in the cache.
//! Slower, too, where 1,000 rules took 12.3 ns for a frame of plain IPv4 with AVX-512: a summary with one bit for each
//! word, read first (13.0); loads without checks of their bounds, and a vector test of sixteen bits (13.5). No faster:
//! hashes by the multiplication of each level (`Probe::term`) in place of the compiler's; positions by a multiplication
//! of 32 bits.

use super::Bits;
use crate::arch::Probe;
use crate::hash::{KeyHash, spread};
use std::sync::atomic::Ordering;

/// Number of keys that are looked up together.
pub const LANES: usize = 64;

/// One word of each of these keys.
pub type Lanes = [u32; LANES];

/// Limit on lanes that are looked up one by one.
const FEW: u32 = 12;

/// Words of [`LANES`] keys of `2 + ADDRESS` words, in columns, and for each word the mask of its significant bits.
#[derive(Debug)]
pub struct Query<'a, const ADDRESS: usize> {
    /// The words before the address.
    pub fields: [(&'a Lanes, u32); 2],
    /// The words of the address.
    pub address: [(&'a Lanes, u32); ADDRESS],
}

impl<const ADDRESS: usize> Query<'_, ADDRESS> {
    /// Computes [`KeyHash::hash`] for the key of a lane.
    #[inline(always)]
    fn hash(&self, hash: &KeyHash, lane: usize) -> u32 {
        let words = self.fields.iter().chain(&self.address).zip(hash.multipliers);
        let sum = words.fold(hash.offset, |sum, (&(words, mask), multiplier)| {
            sum.wrapping_add(multiplier.wrapping_mul(u64::from(words[lane] & mask)))
        });
        spread((sum >> 32) as u32)
    }
}

impl Bits {
    /// Returns the lanes of `lanes` with a key that may be present.
    #[inline(always)]
    pub(crate) fn may_contain_lanes<P: Probe, const ADDRESS: usize>(
        &self,
        probe: P,
        query: &Query<'_, ADDRESS>,
        lanes: u64,
    ) -> u64 {
        let hits = self.test(probe, 1, query, self.test(probe, 0, query, lanes));
        // With one pair, this is a comparison.
        (2..self.hash_count).fold(hits, |hits, function| match hits {
            0 => 0,
            hits => self.test(probe, function, query, hits),
        })
    }

    /// Returns the lanes of `lanes` for which the bit of one hash function is set.
    #[inline(always)]
    fn test<P: Probe, const ADDRESS: usize>(
        &self,
        probe: P,
        function: usize,
        query: &Query<'_, ADDRESS>,
        lanes: u64,
    ) -> u64 {
        let (hash, words, bit_count) = (self.hashes[function], &*self.words, self.bit_count);
        let position = |lane| ((u64::from(query.hash(&hash, lane)) * bit_count) >> 32) as u32;
        let word = |position: u32| words[position as usize / 32].load(Ordering::Acquire);
        if lanes.count_ones() <= FEW {
            let (mut hits, mut rest) = (0, lanes);
            while rest != 0 {
                let lane = rest.trailing_zeros();
                let position = position(lane as usize);
                hits |= u64::from(word(position) >> (position % 32) & 1) << lane;
                rest &= rest - 1;
            }
            return hits;
        }
        let (mut positions, mut found, mut flags) = ([0; LANES], [0; LANES], [0; LANES]);
        for (lane, to) in positions.iter_mut().enumerate() {
            *to = position(lane);
        }
        for (found, &position) in found.iter_mut().zip(&positions) {
            *found = word(position);
        }
        for (flag, (found, position)) in flags.iter_mut().zip(found.iter().zip(&positions)) {
            *flag = (found >> (position % 32)) as u8 & 1;
        }
        probe.packed(&flags) & lanes
    }
}

#[cfg(test)]
mod tests {
    use super::super::CountingBloom;
    use super::*;
    use crate::Level;
    use crate::arch::Job;
    use crate::hash::Seed;

    struct Look<'a>(&'a Bits, Query<'a, 1>, u64);

    impl Job for Look<'_> {
        type Output = u64;

        fn run<P: Probe>(self, probe: P) -> u64 {
            self.0.may_contain_lanes(probe, &self.1, self.2)
        }
    }

    /// Tests every number of lanes on every instruction level, in a filter that is empty, half full and full.
    #[test]
    fn lanes_are_answered_as_keys_are() {
        let mut random = Seed::fixed(5);
        for (keys, pairs) in [(0, 1), (400, 1), (400, 2), (20_000, 1)] {
            let mut filter = CountingBloom::with_pairs(2_000, pairs, &mut Seed::fixed(6));
            (0..keys).for_each(|key| filter.add(&[key % 7, key, 0xff00 & key]));
            let words: [Lanes; 3] =
                std::array::from_fn(|_| [0; LANES].map(|_| random.next() as u32));
            let masks = [7, 0x3ff, 0xff00];
            let query = || Query {
                fields: [(&words[0], masks[0]), (&words[1], masks[1])],
                address: [(&words[2], masks[2])],
            };
            for count in 0..=LANES {
                let lanes = if count == LANES { u64::MAX } else { (1 << count) - 1 };
                let lanes = lanes & (u64::MAX << (random.next() % 8));
                let key =
                    |lane: usize| std::array::from_fn::<_, 3, _>(|n| words[n][lane] & masks[n]);
                let holds = |lane: &usize| filter.bits().may_contain(&key(*lane));
                let there = (0..LANES).filter(|lane| lanes >> lane & 1 == 1).filter(holds);
                let expected = there.fold(0, |set, lane| set | 1 << lane);
                for level in Level::all() {
                    let found = level.run(Look(filter.bits(), query(), lanes));
                    assert_eq!(found, expected, "{level} {count}");
                }
            }
        }
    }
}
