//! The level that every processor has; what the others are compared with.

use super::{Probe, Scan};
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

    #[inline(always)]
    fn contains_bits(self, words: &[u32; 16], bits: &[u32; 16]) -> u16 {
        let pairs = words.iter().zip(bits).enumerate();
        pairs.fold(0, |mask, (n, (&word, &bits))| mask | u16::from(word & bits == bits) << n)
    }

    #[inline(always)]
    fn prefetch<T>(self, _line: &T) {}
}
