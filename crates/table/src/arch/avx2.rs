//! AVX2: a bucket is two registers.

use super::{Job, Probe, Scan};
use crate::bloom::BlockedBloom;
use crate::layout::{Bucket, Column};
use crate::register_set::RegisterSet;
use fyke_frame::Mask;
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    pub fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        present.then_some(Avx2(()))
    }

    #[inline]
    pub fn run<J: Job>(self, job: J) -> J::Output {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { run(self, job) }
    }

    pub fn register_set(self, set: &RegisterSet, column: &Column) -> Mask {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { register_set(set, column) }
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn run<J: Job>(probe: Avx2, job: J) -> J::Output {
    job.run(probe)
}

impl Probe for Avx2 {
    #[inline(always)]
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { scan(bucket, hash) }
    }

    #[inline(always)]
    fn may_contain(self, bloom: &BlockedBloom, hashes: &[u32; 16]) -> u16 {
        super::portable::Portable.may_contain(bloom, hashes)
    }

    #[inline(always)]
    fn prefetch<T>(self, line: &T) {
        // SAFETY: prefetching has no effect but on caches; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) }
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
