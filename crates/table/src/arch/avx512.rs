//! AVX-512: a bucket is one register.

use super::{Job, Probe, RowColumn, Scan, Sifted};
use crate::bloom::BlockedBloom;
use crate::hash::SPREAD;
use crate::layout::{Bucket, Column};
use crate::register_set::RegisterSet;
use crate::sync::AtomicU32;
use fyke_frame::Mask;
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512(());

impl Avx512 {
    /// The proof, if the processor has them.
    pub fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        present.then_some(Avx512(()))
    }

    #[inline]
    pub(super) fn run<J: Job>(self, job: J) -> J::Output {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { run(self, job) }
    }

    pub(super) fn register_set(self, set: &RegisterSet, column: &Column) -> Mask {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { register_set(set, column) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn run<J: Job>(probe: Avx512, job: J) -> J::Output {
    job.run(probe)
}

impl Probe for Avx512 {
    #[inline(always)]
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { scan(bucket, hash) }
    }

    type Sums = [__m512i; 2];

    #[inline(always)]
    fn sums(self, offset: u64) -> [__m512i; 2] {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { [_mm512_set1_epi64(offset as i64); 2] }
    }

    #[inline(always)]
    fn term(self, words: &[u32; 16], multiplier: u64) -> [__m512i; 2] {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { term(words, multiplier) }
    }

    #[inline(always)]
    fn plus(self, one: [__m512i; 2], other: [__m512i; 2]) -> [__m512i; 2] {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { [_mm512_add_epi64(one[0], other[0]), _mm512_add_epi64(one[1], other[1])] }
    }

    #[inline(always)]
    fn differ(self, one: &[u32; 16], other: &[u32; 16]) -> u16 {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { differ(one, other) }
    }

    #[inline(always)]
    fn sift(
        self,
        bloom: &BlockedBloom,
        sums: [__m512i; 2],
        requested: u16,
        tag: u32,
        out: &mut Sifted,
    ) {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { sift(bloom, sums, requested, tag, out) }
    }

    #[inline(always)]
    fn transpose(self, rows: &[&[u8; 32]; 8], columns: &mut [RowColumn; 8], first: usize) {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { super::avx2::transpose(rows, columns, first) }
    }

    #[inline(always)]
    fn packed(self, flags: &[u8; 64]) -> u64 {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { packed(flags) }
    }

    #[inline(always)]
    fn prefetch<T>(self, line: &T) {
        // SAFETY: prefetching has no effect but on caches; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn scan(bucket: &Bucket, hash: u32) -> Scan {
    let slots: __m512i;
    // SAFETY: reads the 64 aligned bytes that the reference lends, which the writer may store into at the same time.
    unsafe {
        asm!(
            "vmovdqa64 {slots}, [{bucket}]",
            slots = lateout(zmm_reg) slots,
            bucket = in(reg) bucket,
            options(nostack, readonly, preserves_flags)
        );
    }
    const LOW: u16 = 0x5555;
    let same = _mm512_cmpeq_epi32_mask(slots, _mm512_set1_epi32(hash as i32)) >> 1;
    let free = _mm512_testn_epi32_mask(slots, slots) & LOW;
    Scan { matches: same & LOW & !free, free }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn sixteen(words: &[u32; 16]) -> __m512i {
    // SAFETY: the reference lends 64 bytes; unaligned load.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn packed(flags: &[u8; 64]) -> u64 {
    // SAFETY: the reference lends 64 bytes; unaligned load.
    let flags = unsafe { _mm512_loadu_si512(flags.as_ptr().cast()) };
    _mm512_test_epi8_mask(flags, flags)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn term(words: &[u32; 16], multiplier: u64) -> [__m512i; 2] {
    let words = sixteen(words);
    let multiplier = _mm512_set1_epi64(multiplier as i64);
    let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(words));
    let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(words));
    [_mm512_mullo_epi64(low, multiplier), _mm512_mullo_epi64(high, multiplier)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn differ(one: &[u32; 16], other: &[u32; 16]) -> u16 {
    _mm512_cmpneq_epi32_mask(sixteen(one), sixteen(other))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn sift(bloom: &BlockedBloom, sums: [__m512i; 2], requested: u16, tag: u32, out: &mut Sifted) {
    // The upper halves of both, in order, after the spread.
    let upper = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let hashes = _mm512_permutex2var_epi32(sums[0], upper, sums[1]);
    let hashes = _mm512_xor_si512(hashes, _mm512_srli_epi32::<15>(hashes));
    let hashes = _mm512_mullo_epi32(hashes, _mm512_set1_epi32(SPREAD as i32));
    let hashes = _mm512_xor_si512(hashes, _mm512_srli_epi32::<12>(hashes));
    let maybe = may_contain(bloom, hashes, requested);
    let steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let tags = _mm512_add_epi32(_mm512_set1_epi32(tag as i32), steps);
    let first = out.count;
    for (list, column) in [(&mut out.hashes, hashes), (&mut out.tags, tags)] {
        let part: &mut [u32] = &mut list[first..first + 16];
        // SAFETY: `part` is sixteen words; unaligned store.
        unsafe {
            let packed = _mm512_maskz_compress_epi32(maybe, column);
            _mm512_storeu_si512(part.as_mut_ptr().cast(), packed);
        }
    }
    out.count += maybe.count_ones() as usize;
}

/// Keeps bit *n* of the requested keys if both bits of hash *n* are set in its word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn may_contain(bloom: &BlockedBloom, hashes: __m512i, requested: u16) -> u16 {
    let shift = _mm_cvtsi32_si128(bloom.shift() as i32);
    let index = _mm512_srl_epi32(hashes, shift);
    let words = match bloom.words().as_chunks::<64>() {
        ([all], []) => permuted(all, index),
        ([low, high], []) => {
            let upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(64));
            _mm512_mask_blend_epi32(upper, permuted(low, index), permuted(high, index))
        }
        _ => gathered(bloom.words(), index, requested),
    };
    let (one, low) = (_mm512_set1_epi32(1), _mm512_set1_epi32(31));
    let first = _mm512_sllv_epi32(one, _mm512_and_si512(hashes, low));
    let second = _mm512_and_si512(_mm512_srli_epi32::<5>(hashes), low);
    let bits = _mm512_or_si512(first, _mm512_sllv_epi32(one, second));
    requested & _mm512_cmpeq_epi32_mask(_mm512_and_si512(words, bits), bits)
}

/// Loads the words at these indices, which must all be less than the number of words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn gathered(words: &[AtomicU32], index: __m512i, mask: u16) -> __m512i {
    let mut found = _mm512_setzero_si512();
    // SAFETY: the caller's indices are less than the number of words, so the load stays within them. The writer may
    // store into them at the same time; each lane is a value that was stored.
    unsafe {
        asm!(
            "vpgatherdd {found}{{{mask}}}, [{base} + {index} * 4]",
            found = inout(zmm_reg) found,
            mask = inout(kreg) mask => _,
            base = in(reg) words.as_ptr(),
            index = in(zmm_reg) index,
            options(nostack, readonly, preserves_flags)
        );
    }
    found
}

/// Loads from 64 words, which are four registers; this saves some fifteen cycles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn permuted(words: &[AtomicU32; 64], index: __m512i) -> __m512i {
    let (a, b, c, d): (__m512i, __m512i, __m512i, __m512i);
    // SAFETY: reads the 64 words, which the writer may store into at the same time. Words are aligned, so each lane of
    // each load is a value that was stored.
    unsafe {
        asm!(
            "vmovdqu32 {a}, [{base}]",
            "vmovdqu32 {b}, [{base} + 64]",
            "vmovdqu32 {c}, [{base} + 128]",
            "vmovdqu32 {d}, [{base} + 192]",
            a = out(zmm_reg) a,
            b = out(zmm_reg) b,
            c = out(zmm_reg) c,
            d = lateout(zmm_reg) d,
            base = in(reg) words.as_ptr(),
            options(nostack, readonly, preserves_flags)
        );
    }
    // A permute uses only the low five bits of each index.
    let (low, high) =
        (_mm512_permutex2var_epi32(a, index, b), _mm512_permutex2var_epi32(c, index, d));
    let upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32));
    _mm512_mask_blend_epi32(upper, low, high)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn register_set(set: &RegisterSet, column: &Column) -> Mask {
    // SAFETY: each load reads 16 of the 64 slots that the reference lends; unaligned loads.
    let slots: [__m512i; 4] = std::array::from_fn(|quarter| unsafe {
        _mm512_loadu_si512(set.slots().as_ptr().add(16 * quarter).cast())
    });
    let multiplier = _mm512_set1_epi32(set.multiplier() as i32);
    let mut mask = Mask::EMPTY;
    for (group, lanes) in column.chunks_exact(16).enumerate() {
        // SAFETY: the chunk has 16 words; unaligned load.
        let values = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
        let product = _mm512_mullo_epi32(values, multiplier);
        // A permute uses only the low five bits of each index.
        let first = _mm512_srli_epi32::<27>(product);
        let second = _mm512_srli_epi32::<22>(product);
        let one = _mm512_permutex2var_epi32(slots[0], first, slots[1]);
        let two = _mm512_permutex2var_epi32(slots[2], second, slots[3]);
        let hits = _mm512_cmpeq_epi32_mask(values, one) | _mm512_cmpeq_epi32_mask(values, two);
        mask.0[group / 4] |= u64::from(hits) << (group % 4 * 16);
    }
    mask
}
