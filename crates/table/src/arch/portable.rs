//! The level that every processor has; what the others are compared with.

use super::{Probe, Scan};
use crate::bloom::BlockedBloom;
use crate::hash::spread;
use crate::layout::{Bucket, slot_parts};
use std::sync::atomic::Ordering;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portable;

impl Probe for Portable {
    #[inline(always)]
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan {
        let mut scan = Scan { matches: 0, free: 0 };
        for (index, slot) in bucket.0.iter().enumerate() {
            match slot_parts(slot.load(Ordering::Relaxed)) {
                None => scan.free |= 1 << (2 * index),
                Some((found, _)) if found == hash => scan.matches |= 1 << (2 * index),
                Some(_) => {}
            }
        }
        scan
    }

    type Sums = [u64; 16];

    #[inline(always)]
    fn sums(self, offset: u64) -> [u64; 16] {
        [offset; 16]
    }

    #[inline(always)]
    fn add(self, sums: [u64; 16], words: &[u32; 16], multiplier: u64) -> [u64; 16] {
        let term = |n: usize| multiplier.wrapping_mul(u64::from(words[n]));
        std::array::from_fn(|n| sums[n].wrapping_add(term(n)))
    }

    #[inline(always)]
    fn may_contain(self, bloom: &BlockedBloom, sums: [u64; 16], hashes: &mut [u32; 16]) -> u16 {
        *hashes = sums.map(|sum| spread((sum >> 32) as u32));
        let lanes = hashes.iter().enumerate();
        lanes.fold(0, |mask, (n, &hash)| mask | u16::from(bloom.may_contain(hash)) << n)
    }

    #[inline(always)]
    fn prefetch<T>(self, _line: &T) {}
}
