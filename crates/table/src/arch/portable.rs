//! Portable level for every processor; the reference for the other levels.

use super::{Probe, RowColumn, Scan, Sifted};
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
    fn term(self, words: &[u32; 16], multiplier: u64) -> [u64; 16] {
        words.map(|word| multiplier.wrapping_mul(u64::from(word)))
    }

    #[inline(always)]
    fn plus(self, one: [u64; 16], other: [u64; 16]) -> [u64; 16] {
        std::array::from_fn(|n| one[n].wrapping_add(other[n]))
    }

    #[inline(always)]
    fn differ(self, one: &[u32; 16], other: &[u32; 16]) -> u16 {
        let pairs = one.iter().zip(other).enumerate();
        pairs.fold(0, |differ, (n, (one, other))| differ | u16::from(one != other) << n)
    }

    #[inline(always)]
    fn sift(
        self,
        bloom: &BlockedBloom,
        sums: [u64; 16],
        requested: u16,
        tag: u32,
        out: &mut Sifted,
    ) {
        let hashes = sums.map(|sum| spread((sum >> 32) as u32));
        let lanes = hashes.iter().enumerate();
        let maybe = lanes.fold(0, |all, (n, &hash)| all | u16::from(bloom.may_contain(hash)) << n);
        out.note(&hashes, maybe & requested, tag);
    }

    #[inline(always)]
    fn transpose(self, rows: &[&[u8; 32]; 8], columns: &mut [RowColumn; 8], first: usize) {
        for (m, row) in rows.iter().enumerate() {
            for (word, column) in row.as_chunks().0.iter().zip(&mut *columns) {
                column[first + m] = u32::from_be_bytes(*word);
            }
        }
    }

    #[inline(always)]
    fn packed(self, flags: &[u8; 64]) -> u64 {
        flags.as_chunks().0.iter().rev().fold(0, |packed, eight| {
            // The multiplication moves flag n of the eight to bit 56 + n; nothing else reaches these bits.
            packed << 8 | u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
        })
    }

    #[inline(always)]
    fn prefetch<T>(self, _line: &T) {}
}
