//! AVX-512: sixteen frames at a time.

use super::{GROUP, Quad, WINDOW, Words, load_one};
use crate::lanes::{Lanes, RegisterSet};
use crate::set::{MULTIPLIER, ValueSet};
use fyke_frame::{Frame, Mask};
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

    #[inline]
    pub fn load(self, frames: &[Frame], offset: usize, groups: u16, quad: &mut Quad) {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { load(frames, offset, groups, quad) }
    }

    #[inline]
    pub fn select(self, words: &Words, shift: u8, among: Mask, lanes: &Lanes) -> Mask {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { select(words, shift, among, lanes) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn load(frames: &[Frame], offset: usize, groups: u16, quad: &mut Quad) {
    for group in (0..GROUP).filter(|group| groups >> group & 1 == 1) {
        match frames.get(group * GROUP..).and_then(|rest| rest.first_chunk()) {
            Some(chunk) => load_group(frames, chunk, offset, group, quad),
            None => {
                (group * GROUP..(group + 1) * GROUP)
                    .for_each(|at| load_one(frames, offset, at, quad));
            }
        }
    }
}

/// Sixteen loads of sixteen bytes and a transposition of 4 by 4 words in each of four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn load_group(
    frames: &[Frame],
    chunk: &[Frame; GROUP],
    offset: usize,
    group: usize,
    quad: &mut Quad,
) {
    let none = [0_u8; WINDOW];
    let mut short = 0_u32;
    let mut bytes = |at: usize| {
        let data = chunk[at].data;
        let long = data.len() >= offset + WINDOW;
        short |= u32::from(!long) << at;
        let start = if long { data.as_ptr().wrapping_add(offset) } else { none.as_ptr() };
        // SAFETY: sixteen bytes of the frame from `offset` on, which are there, or those of `none`.
        unsafe { _mm_loadu_si128(start.cast()) }
    };
    let mut row = |at: usize| {
        let row = _mm512_castsi128_si512(bytes(at));
        let row = _mm512_inserti32x4::<1>(row, bytes(at + 4));
        let row = _mm512_inserti32x4::<2>(row, bytes(at + 8));
        _mm512_inserti32x4::<3>(row, bytes(at + 12))
    };
    let rows = [row(0), row(1), row(2), row(3)];
    let low = [_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])];
    let high = [_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])];
    let columns = [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
    ];
    let swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    for (words, column) in quad.iter_mut().zip(columns) {
        let part: &mut [u32] = &mut words.0[group * GROUP..(group + 1) * GROUP];
        // SAFETY: `part` is sixteen words; an unaligned store has no other demand.
        unsafe {
            _mm512_storeu_si512(part.as_mut_ptr().cast(), _mm512_shuffle_epi8(column, swap));
        }
    }
    while short != 0 {
        load_one(frames, offset, group * GROUP + short.trailing_zeros() as usize, quad);
        short &= short - 1;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn select(words: &Words, shift: u8, among: Mask, lanes: &Lanes) -> Mask {
    let count = _mm_cvtsi32_si128(shift.into());
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    match lanes {
        Lanes::Equal { mask, value } => {
            let (mask, value) = (all(*mask), all(*value));
            each(words, among, |word, _| {
                let word = _mm512_and_si512(_mm512_srl_epi32(word, count), mask);
                _mm512_cmpeq_epi32_mask(word, value)
            })
        }
        Lanes::OneOf { mask, values } => {
            let mask = all(*mask);
            each(words, among, |word, _| {
                let word = _mm512_and_si512(_mm512_srl_epi32(word, count), mask);
                values.iter().fold(0, |any, &value| any | _mm512_cmpeq_epi32_mask(word, all(value)))
            })
        }
        Lanes::Within { mask, intervals } => {
            let mask = all(*mask);
            each(words, among, |word, _| {
                let word = _mm512_and_si512(_mm512_srl_epi32(word, count), mask);
                intervals.iter().fold(0, |any, &(low, width)| {
                    any | _mm512_cmple_epu32_mask(_mm512_sub_epi32(word, all(low)), all(width))
                })
            })
        }
        Lanes::Member { mask, small: Some(small), .. } => {
            in_registers(words, count, among, all(*mask), small)
        }
        Lanes::Member { mask, set, .. } => in_memory(words, count, among, all(*mask), set),
    }
}

/// Applies a test to the words in use, sixteen at a time; the test also gets the frames asked about.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn each(words: &Words, among: Mask, test: impl Fn(__m512i, u16) -> u16) -> Mask {
    let mut result = Mask::EMPTY;
    for (index, (&part, chunk)) in among.0.iter().zip(words.0.chunks_exact(64)).enumerate() {
        if part == 0 {
            continue;
        }
        let mut found = 0;
        for (quarter, lanes) in chunk.chunks_exact(GROUP).enumerate() {
            // SAFETY: `lanes` is sixteen words.
            let word = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
            let asked = (part >> (GROUP * quarter)) as u16;
            found |= u64::from(test(word, asked)) << (GROUP * quarter);
        }
        result.0[index] = found & part;
    }
    result
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn in_registers(
    words: &Words,
    count: __m128i,
    among: Mask,
    mask: __m512i,
    set: &RegisterSet,
) -> Mask {
    let bank = |index: usize| {
        let slots = &set.slots[index * GROUP..(index + 1) * GROUP];
        // SAFETY: `slots` is sixteen words.
        unsafe { _mm512_loadu_si512(slots.as_ptr().cast()) }
    };
    let banks = [bank(0), bank(1), bank(2), bank(3)];
    let multipliers = set.multipliers.map(|factor| _mm512_set1_epi32(factor as i32));
    each(words, among, |word, _| {
        let word = _mm512_and_si512(_mm512_srl_epi32(word, count), mask);
        multipliers.into_iter().fold(0, |any, factor| {
            let place = _mm512_srli_epi32::<26>(_mm512_mullo_epi32(word, factor));
            let low = _mm512_permutex2var_epi32(banks[0], place, banks[1]);
            let high = _mm512_permutex2var_epi32(banks[2], place, banks[3]);
            let upper = _mm512_test_epi32_mask(place, _mm512_set1_epi32(32));
            any | _mm512_cmpeq_epi32_mask(word, _mm512_mask_blend_epi32(upper, low, high))
        })
    })
}

/// The same open addressing as `set.rs`, for sixteen words at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn in_memory(words: &Words, count: __m128i, among: Mask, mask: __m512i, set: &ValueSet) -> Mask {
    let Some((slots, zero)) = set.slots() else { return Mask::EMPTY };
    // Places are at most the last one, and at most 2^30, so that they are valid indices of four-byte words.
    assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 30);
    let wrap = _mm512_set1_epi32(slots.len() as i32 - 1);
    let (none, one) = (_mm512_setzero_si512(), _mm512_set1_epi32(1));
    each(words, among, |word, asked| {
        let word = _mm512_and_si512(_mm512_srl_epi32(word, count), mask);
        let is_zero = _mm512_cmpeq_epi32_mask(word, none);
        let mut found = if zero { is_zero } else { 0 };
        let mut open = asked & !is_zero;
        let product = _mm512_mullo_epi32(word, _mm512_set1_epi32(MULTIPLIER as i32));
        let home = _mm512_xor_si512(product, _mm512_srli_epi32::<15>(product));
        let mut at = _mm512_and_si512(home, wrap);
        while open != 0 {
            // SAFETY: every index is at most `slots.len() - 1`, see above.
            let slot =
                unsafe { _mm512_mask_i32gather_epi32::<4>(none, open, at, slots.as_ptr().cast()) };
            found |= _mm512_mask_cmpeq_epi32_mask(open, slot, word);
            open &= !found & _mm512_test_epi32_mask(slot, slot);
            at = _mm512_and_si512(_mm512_add_epi32(at, one), wrap);
        }
        found
    })
}
