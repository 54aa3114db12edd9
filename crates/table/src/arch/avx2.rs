//! AVX2: a bucket is two registers.

use super::{Job, Probe, RowColumn, Scan, Sifted};
use crate::bloom::BlockedBloom;
use crate::hash::SPREAD;
use crate::layout::{Bucket, Column};
use crate::register_set::RegisterSet;
use fyke_frame::Mask;
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, if the processor has them.
    pub fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        present.then_some(Avx2(()))
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

#[target_feature(enable = "avx2,bmi2,popcnt")]
fn run<J: Job>(probe: Avx2, job: J) -> J::Output {
    job.run(probe)
}

impl Probe for Avx2 {
    #[inline(always)]
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { scan(bucket, hash) }
    }

    type Sums = [__m256i; 4];

    #[inline(always)]
    fn sums(self, offset: u64) -> [__m256i; 4] {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { [_mm256_set1_epi64x(offset as i64); 4] }
    }

    #[inline(always)]
    fn term(self, words: &[u32; 16], multiplier: u64) -> [__m256i; 4] {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { term(words, multiplier) }
    }

    #[inline(always)]
    fn plus(self, one: [__m256i; 4], other: [__m256i; 4]) -> [__m256i; 4] {
        // SAFETY: `self` exists only when the processor has these features.
        std::array::from_fn(|n| unsafe { _mm256_add_epi64(one[n], other[n]) })
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
        sums: [__m256i; 4],
        requested: u16,
        tag: u32,
        out: &mut Sifted,
    ) {
        let mut hashes = [0; 16];
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { hash(sums, &mut hashes) };
        let lanes = hashes.iter().enumerate();
        let maybe = lanes.fold(0, |all, (n, &hash)| all | u16::from(bloom.may_contain(hash)) << n);
        out.note(&hashes, maybe & requested, tag);
    }

    #[inline(always)]
    fn transpose(self, rows: &[&[u8; 32]; 8], columns: &mut [RowColumn; 8], first: usize) {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { transpose(rows, columns, first) }
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

/// Transposes eight rows of eight words.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn transpose(rows: &[&[u8; 32]; 8], columns: &mut [RowColumn; 8], first: usize) {
    for half in 0..2 {
        let (a, b) = (pair(rows, 0, half), pair(rows, 1, half));
        let (c, d) = (pair(rows, 2, half), pair(rows, 3, half));
        let (low_ab, low_cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (high_ab, high_cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        let four = [
            _mm256_unpacklo_epi64(low_ab, low_cd),
            _mm256_unpackhi_epi64(low_ab, low_cd),
            _mm256_unpacklo_epi64(high_ab, high_cd),
            _mm256_unpackhi_epi64(high_ab, high_cd),
        ];
        for (column, words) in columns[4 * half..].iter_mut().zip(four) {
            let eight: &mut [u32] = &mut column[first..first + 8];
            // SAFETY: `eight` is eight words; unaligned store.
            unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast(), words) }
        }
    }
}

/// Loads four words of rows `n` and `n + 4`, and brings them into host order.
///
/// PERF: a function, because the compiler calls a closure with these instructions from `array::map`, which has none:
/// 3.6 ns more for a frame (`fyke bench bloom --case array1`).
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn pair(rows: &[&[u8; 32]; 8], n: usize, half: usize) -> __m256i {
    let swap = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    let (low, high) = (&rows[n].as_chunks::<16>().0[half], &rows[n + 4].as_chunks::<16>().0[half]);
    // SAFETY: each reference lends 16 bytes; unaligned loads.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
    _mm256_shuffle_epi8(both, _mm256_broadcastsi128_si256(swap))
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn packed(flags: &[u8; 64]) -> u64 {
    let half = |at: usize| {
        // SAFETY: 32 of the 64 bytes; unaligned load.
        let flags = unsafe { _mm256_loadu_si256(flags.as_ptr().add(at).cast()) };
        u64::from(_mm256_movemask_epi8(_mm256_slli_epi16::<7>(flags)) as u32)
    };
    half(0) | half(32) << 32
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn term(words: &[u32; 16], multiplier: u64) -> [__m256i; 4] {
    let low = _mm256_set1_epi64x(multiplier as u32 as i64);
    let high = _mm256_set1_epi64x((multiplier >> 32) as i64);
    std::array::from_fn(|at| {
        // SAFETY: four of the sixteen words; unaligned load.
        let four = unsafe { _mm_loadu_si128(words.as_ptr().add(4 * at).cast()) };
        let words = _mm256_cvtepu32_epi64(four);
        let upper = _mm256_slli_epi64::<32>(_mm256_mul_epu32(words, high));
        _mm256_add_epi64(_mm256_mul_epu32(words, low), upper)
    })
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn differ(one: &[u32; 16], other: &[u32; 16]) -> u16 {
    let half = |at: usize| {
        // SAFETY: eight of the sixteen words of each; unaligned loads.
        let (one, other) = unsafe {
            (
                _mm256_loadu_si256(one.as_ptr().add(at).cast()),
                _mm256_loadu_si256(other.as_ptr().add(at).cast()),
            )
        };
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(one, other))) as u16
    };
    !(half(0) | half(8) << 8)
}

/// Computes the upper halves of the sums, after the spread.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn hash(sums: [__m256i; 4], hashes: &mut [u32; 16]) {
    for (at, part) in hashes.chunks_exact_mut(8).enumerate() {
        let (a, b) = (_mm256_castsi256_ps(sums[2 * at]), _mm256_castsi256_ps(sums[2 * at + 1]));
        let mixed = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
        let hash = _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed);
        let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<15>(hash));
        let hash = _mm256_mullo_epi32(hash, _mm256_set1_epi32(SPREAD as i32));
        let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<12>(hash));
        // SAFETY: `part` is eight words; unaligned store.
        unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), hash) }
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn scan(bucket: &Bucket, hash: u32) -> Scan {
    let (low, high): (__m256i, __m256i);
    // SAFETY: reads the 64 aligned bytes that the reference lends, which the writer may store into at the same time.
    unsafe {
        asm!(
            "vmovdqa {low}, [{bucket}]",
            "vmovdqa {high}, [{bucket} + 32]",
            low = out(ymm_reg) low,
            high = lateout(ymm_reg) high,
            bucket = in(reg) bucket,
            options(nostack, readonly, preserves_flags)
        );
    }
    const LOW: u16 = 0x5555;
    let equal = |value: __m256i| {
        let low = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(low, value)));
        let high = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(high, value)));
        (low | high << 8) as u16
    };
    let free = equal(_mm256_setzero_si256()) & LOW;
    let same = equal(_mm256_set1_epi32(hash as i32)) >> 1;
    Scan { matches: same & LOW & !free, free }
}

#[target_feature(enable = "avx2,bmi2")]
fn register_set(set: &RegisterSet, column: &Column) -> Mask {
    set.column(column)
}
