//! AVX-512: a bucket is one register.

use super::{Probe, Scan};
use crate::layout::{Bucket, Column};
use crate::row_table::Rows;
use fyke_frame::Mask;
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512(());

impl Avx512 {
    pub fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2");
        present.then_some(Avx512(()))
    }

    pub fn find_columns(
        self,
        rows: &Rows,
        columns: &[&Column],
        lanes: Mask,
        found: &mut Column,
    ) -> Mask {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { find_columns(self, rows, columns, lanes, found) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn find_columns(
    probe: Avx512,
    rows: &Rows,
    columns: &[&Column],
    lanes: Mask,
    found: &mut Column,
) -> Mask {
    crate::row_table::find_columns(probe, rows, columns, lanes, found)
}

impl Probe for Avx512 {
    #[inline(always)]
    fn scan(self, bucket: &Bucket, hash: u32) -> Scan {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { scan(bucket, hash) }
    }

    #[inline(always)]
    fn contains_bits(self, words: &[u32; 16], bits: &[u32; 16]) -> u16 {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { contains_bits(words, bits) }
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
fn contains_bits(words: &[u32; 16], bits: &[u32; 16]) -> u16 {
    // SAFETY: both references lend 64 bytes; unaligned loads.
    let (words, bits) = unsafe {
        (_mm512_loadu_si512(words.as_ptr().cast()), _mm512_loadu_si512(bits.as_ptr().cast()))
    };
    _mm512_cmpeq_epi32_mask(_mm512_and_si512(words, bits), bits)
}
