//! AVX2: eight frames at a time.

use super::{GROUP, Quad, WINDOW, Words, load_one};
use crate::lanes::Lanes;
use crate::set::{MULTIPLIER, ValueSet};
use fyke_frame::{Frame, Mask};
use std::arch::x86_64::*;

const HALF: usize = GROUP / 2;

/// Proof that the processor has AVX2 and BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    pub fn detect() -> Option<Self> {
        let present = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        present.then_some(Avx2(()))
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

#[target_feature(enable = "avx2,bmi2")]
fn load(frames: &[Frame], offset: usize, groups: u16, quad: &mut Quad) {
    for half in (0..2 * GROUP).filter(|half| groups >> (half / 2) & 1 == 1) {
        match frames.get(half * HALF..).and_then(|rest| rest.first_chunk()) {
            Some(chunk) => load_half(frames, chunk, offset, half, quad),
            None => {
                (half * HALF..(half + 1) * HALF).for_each(|at| load_one(frames, offset, at, quad));
            }
        }
    }
}

/// Eight loads of sixteen bytes and a transposition of 4 by 4 words in each of two lanes.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn load_half(frames: &[Frame], chunk: &[Frame; HALF], offset: usize, half: usize, quad: &mut Quad) {
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
    let mut row =
        |at: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(bytes(at)), bytes(at + 4));
    let rows = [row(0), row(1), row(2), row(3)];
    let low = [_mm256_unpacklo_epi32(rows[0], rows[1]), _mm256_unpacklo_epi32(rows[2], rows[3])];
    let high = [_mm256_unpackhi_epi32(rows[0], rows[1]), _mm256_unpackhi_epi32(rows[2], rows[3])];
    let columns = [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
    ];
    let swap = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12,
    ));
    for (words, column) in quad.iter_mut().zip(columns) {
        let part: &mut [u32] = &mut words.0[half * HALF..(half + 1) * HALF];
        // SAFETY: `part` is eight words; an unaligned store has no other demand.
        unsafe {
            _mm256_storeu_si256(part.as_mut_ptr().cast(), _mm256_shuffle_epi8(column, swap));
        }
    }
    while short != 0 {
        load_one(frames, offset, half * HALF + short.trailing_zeros() as usize, quad);
        short &= short - 1;
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn select(words: &Words, shift: u8, among: Mask, lanes: &Lanes) -> Mask {
    let count = _mm_cvtsi32_si128(shift.into());
    let all = |word: u32| _mm256_set1_epi32(word as i32);
    match lanes {
        Lanes::Equal { mask, value } => {
            let (mask, value) = (all(*mask), all(*value));
            each(words, among, |word, _| {
                let word = _mm256_and_si256(_mm256_srl_epi32(word, count), mask);
                _mm256_cmpeq_epi32(word, value)
            })
        }
        Lanes::OneOf { mask, values } => {
            let mask = all(*mask);
            each(words, among, |word, _| {
                let word = _mm256_and_si256(_mm256_srl_epi32(word, count), mask);
                values.iter().fold(_mm256_setzero_si256(), |any, &value| {
                    _mm256_or_si256(any, _mm256_cmpeq_epi32(word, all(value)))
                })
            })
        }
        Lanes::Within { mask, intervals } => {
            let mask = all(*mask);
            each(words, among, |word, _| {
                let word = _mm256_and_si256(_mm256_srl_epi32(word, count), mask);
                intervals.iter().fold(_mm256_setzero_si256(), |any, &(low, width)| {
                    let (distance, width) = (_mm256_sub_epi32(word, all(low)), all(width));
                    let within = _mm256_cmpeq_epi32(_mm256_min_epu32(distance, width), distance);
                    _mm256_or_si256(any, within)
                })
            })
        }
        Lanes::Member { mask, set, .. } => in_memory(words, count, among, all(*mask), set),
    }
}

/// Applies a test to the words in use, eight at a time; the test also gets the frames asked about.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn each(words: &Words, among: Mask, test: impl Fn(__m256i, u8) -> __m256i) -> Mask {
    let mut result = Mask::EMPTY;
    for (index, (&part, chunk)) in among.0.iter().zip(words.0.chunks_exact(64)).enumerate() {
        if part == 0 {
            continue;
        }
        let mut found = 0;
        for (eighth, lanes) in chunk.chunks_exact(HALF).enumerate() {
            // SAFETY: `lanes` is eight words.
            let word = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
            let asked = (part >> (HALF * eighth)) as u8;
            found |= u64::from(bits(test(word, asked))) << (HALF * eighth);
        }
        result.0[index] = found & part;
    }
    result
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn bits(lanes: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8
}

/// The same open addressing as `set.rs`, for eight words at a time.
#[target_feature(enable = "avx2,bmi2")]
fn in_memory(words: &Words, count: __m128i, among: Mask, mask: __m256i, set: &ValueSet) -> Mask {
    let Some((slots, zero)) = set.slots() else { return Mask::EMPTY };
    // Places are at most the last one, and at most 2^30, so that they are valid indices of four-byte words.
    assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 30);
    let wrap = _mm256_set1_epi32(slots.len() as i32 - 1);
    let (none, one) = (_mm256_setzero_si256(), _mm256_set1_epi32(1));
    let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    each(words, among, |word, asked| {
        let word = _mm256_and_si256(_mm256_srl_epi32(word, count), mask);
        let is_zero = _mm256_cmpeq_epi32(word, none);
        let asked = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(asked.into()), bit), bit);
        let mut found = if zero { is_zero } else { none };
        let mut open = _mm256_andnot_si256(is_zero, asked);
        let product = _mm256_mullo_epi32(word, _mm256_set1_epi32(MULTIPLIER as i32));
        let home = _mm256_xor_si256(product, _mm256_srli_epi32::<15>(product));
        let mut at = _mm256_and_si256(home, wrap);
        while bits(open) != 0 {
            // SAFETY: every index is at most `slots.len() - 1`, see above.
            let slot =
                unsafe { _mm256_mask_i32gather_epi32::<4>(none, slots.as_ptr().cast(), at, open) };
            let equal = _mm256_and_si256(open, _mm256_cmpeq_epi32(slot, word));
            found = _mm256_or_si256(found, equal);
            let over = _mm256_or_si256(equal, _mm256_cmpeq_epi32(slot, none));
            open = _mm256_andnot_si256(over, open);
            at = _mm256_and_si256(_mm256_add_epi32(at, one), wrap);
        }
        found
    })
}
