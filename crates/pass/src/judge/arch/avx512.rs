//! AVX-512: sixteen frames at a time.

use super::{Among, ChunkWords, GROUP, Isa, Job, Part, TERMS, Term, Words, load_one};
use crate::isa::value_set::ValueSet;
use crate::plan::chunks::CHUNK_LEN;
use crate::plan::stencil::{Stencil, There};
use crate::plan::word_test::WordTest;
use fyke_frame::{BATCH_CAPACITY, Batch};
use fyke_table::RegisterSet;
use fyke_table::arch::Avx512;
use std::arch::x86_64::*;

/// Runs a job, compiled for this level.
#[inline]
pub(super) fn run<J: Job>(isa: Avx512, job: J) -> J::Output {
    // SAFETY: `isa` exists only when the processor has these features.
    unsafe { compiled(isa, job) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn compiled<J: Job>(isa: Avx512, job: J) -> J::Output {
    job.run(isa)
}

impl Isa for Avx512 {
    #[inline(always)]
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]) {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { load(batch, offsets, groups, chunk_words) }
    }

    #[inline(always)]
    fn select<A: Among>(self, words: &Words, among: A, word_test: &WordTest) -> A {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { select(words, among, word_test) }
    }

    #[inline(always)]
    fn all_of<A: Among>(self, terms: &[Term], among: A) -> A {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { all_of(terms, among) }
    }

    #[inline(always)]
    fn halves<A: Among>(self, words: &Words, among: A, values: &[u16]) -> A {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { halves(words, among, values) }
    }

    #[inline(always)]
    fn at_least<A: Among>(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: A) -> A {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { at_least(lengths, limit, among) }
    }

    #[inline(always)]
    fn reaches<A: Among>(
        self,
        header: (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: A,
    ) -> A {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { reaches(header, fixed, lengths, among) }
    }

    #[inline(always)]
    fn numbers(
        self,
        words: (&Words, u8),
        mask: u32,
        among: Part,
        out: &mut [u32; BATCH_CAPACITY],
        filled: usize,
    ) -> usize {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { numbers(words, mask, among, out, filled) }
    }

    #[inline(always)]
    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There {
        // SAFETY: `self` exists only when the processor has these features.
        unsafe { super::avx2::stencils_over(batch, stencils, index) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn load(batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]) {
    match (offsets, &mut *chunk_words) {
        ([a], [p, ..]) => load_chunks(batch, [*a], groups, [p]),
        ([a, b], [p, q, ..]) => load_chunks(batch, [*a, *b], groups, [p, q]),
        ([a, b, c], [p, q, r, ..]) => load_chunks(batch, [*a, *b, *c], groups, [p, q, r]),
        _ => {
            for (&offset, one_chunk) in offsets.iter().zip(chunk_words) {
                load_chunks(batch, [offset], groups, [one_chunk]);
            }
        }
    }
}

/// All chunks of sixteen frames, then those of the next sixteen: meanwhile a frame's line stays in the first cache.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn load_chunks<const N: usize>(
    batch: &Batch,
    offsets: [u32; N],
    groups: u16,
    mut chunk_words: [&mut ChunkWords; N],
) {
    let mut rest = groups;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize * GROUP;
        rest &= rest - 1;
        load_group(batch, &offsets, first, &mut chunk_words);
    }
}

/// Sixteen frames from `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn load_group<const N: usize>(
    batch: &Batch,
    offsets: &[u32; N],
    first: usize,
    chunk_words: &mut [&mut ChunkWords; N],
) {
    let frames: Option<&[&[u8]; GROUP]> =
        batch.bytes().get(first..).and_then(|rest| rest.first_chunk());
    let Some(frames) = frames else {
        for (&offset, one_chunk) in offsets.iter().zip(chunk_words) {
            (first..batch.len().min(first + GROUP))
                .for_each(|at| load_one(batch, offset, at, one_chunk));
        }
        return;
    };
    let reach =
        offsets.iter().fold(0, |end, &offset| offset.max(end)).saturating_add(CHUNK_LEN as u32);
    let short = batch.shortest() < reach
        && _mm512_cmplt_epu32_mask(lanes(&batch.lengths().0, first), all(reach)) != 0;
    for (&offset, one_chunk) in offsets.iter().zip(chunk_words) {
        let columns = if short {
            transposed(|at| chunk_of(frames[at], offset as usize))
        } else {
            transposed(|at| {
                // SAFETY: a batch knows the lengths of its frames: at least `reach`, which is `offset + CHUNK_LEN` or
                // more.
                unsafe { _mm_loadu_si128(frames[at].as_ptr().add(offset as usize).cast()) }
            })
        };
        for (words, column) in one_chunk.iter_mut().zip(columns) {
            let part: &mut [u32] = &mut words.0[first..first + GROUP];
            // SAFETY: `part` is sixteen words; an unaligned store has no other requirement.
            unsafe { _mm512_storeu_si512(part.as_mut_ptr().cast(), column) }
        }
    }
}

/// The captured bytes of the sixteen at `offset`; the others are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn chunk_of(frame: &[u8], offset: usize) -> __m128i {
    let there = frame.len().saturating_sub(offset).min(CHUNK_LEN) as u32;
    let mask = _bzhi_u32(0xffff, there) as u16;
    // SAFETY: only bytes with a set bit are read: the `there` bytes of the frame from `offset` on.
    unsafe { _mm_maskz_loadu_epi8(mask, frame.as_ptr().wrapping_add(offset).cast()) }
}

/// Sixteen rows of four words become four columns: a transposition of 4 by 4 words in each of four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn transposed(bytes: impl Fn(usize) -> __m128i) -> [__m512i; 4] {
    let row = |at: usize| {
        let row = _mm512_castsi128_si512(bytes(at));
        let row = _mm512_inserti32x4::<1>(row, bytes(at + 4));
        let row = _mm512_inserti32x4::<2>(row, bytes(at + 8));
        _mm512_inserti32x4::<3>(row, bytes(at + 12))
    };
    let rows = [row(0), row(1), row(2), row(3)];
    let low = [_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])];
    let high = [_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])];
    [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
    ]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn select<A: Among>(words: &Words, among: A, test: &WordTest) -> A {
    match test {
        WordTest::Equal { mask, value } => {
            let (mask, value) = (all(*mask), all(*value));
            each(among, |at, _| equal(lanes(&words.0, at), mask, value))
        }
        WordTest::OneOf { mask, values } => {
            let mask = all(*mask);
            each(among, |at, _| {
                let word = _mm512_and_si512(lanes(&words.0, at), mask);
                let none = values.iter().fold(0xffff, |none, &value| {
                    _mm512_mask_cmpneq_epi32_mask(none, word, all(value))
                });
                !none
            })
        }
        WordTest::Within { shift, mask, intervals } => {
            let (mask, count) = (all(*mask), _mm_cvtsi32_si128((*shift).into()));
            each(among, |at, _| {
                let word = _mm512_and_si512(number(lanes(&words.0, at), count), mask);
                intervals.iter().fold(0, |any, &(low, width)| {
                    any | _mm512_cmple_epu32_mask(_mm512_sub_epi32(word, all(low)), all(width))
                })
            })
        }
        WordTest::Few { mask, set } => in_registers(words, among, all(*mask), set),
        WordTest::Member { shift, mask, set } => in_memory(words, *shift, among, all(*mask), set),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn all_of<A: Among>(terms: &[Term], among: A) -> A {
    match *terms {
        [a] => all_of_them([a], among),
        [a, b] => all_of_them([a, b], among),
        [a, b, c] => all_of_them([a, b, c], among),
        _ => terms.chunks(TERMS).fold(among, |among, some| match *some {
            [a, b, c, d] => all_of_them([a, b, c, d], among),
            _ => some.iter().fold(among, |among, &term| all_of_them([term], among)),
        }),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn all_of_them<A: Among, const N: usize>(terms: [Term; N], among: A) -> A {
    let masks = terms.map(|term| all(term.mask));
    let values = terms.map(|term| all(term.value));
    each(among, |at, _| {
        let mut found = 0xffff;
        for index in 0..N {
            let word = _mm512_and_si512(lanes(&terms[index].words.0, at), masks[index]);
            found = _mm512_mask_cmpeq_epi32_mask(found, word, values[index]);
        }
        found
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn halves<A: Among>(words: &Words, among: A, values: &[u16]) -> A {
    among.map(|index, part| {
        if part == 0 {
            return 0;
        }
        let words = [0, 1, 2, 3].map(|quarter| lanes(&words.0, 64 * index + GROUP * quarter));
        let mut found = [0; 4];
        for &value in values {
            let value = _mm512_set1_epi16(value as i16);
            for (found, word) in found.iter_mut().zip(words) {
                *found |= _mm512_cmpeq_epi16_mask(word, value);
            }
        }
        let either = |found: u32| u64::from(_pext_u32(found | found >> 1, 0x5555_5555));
        found.into_iter().rev().fold(0, |all, found| all << GROUP | either(found)) & part
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn at_least<A: Among>(lengths: &[u32; BATCH_CAPACITY], limit: u32, among: A) -> A {
    let limit = all(limit);
    each(among, |at, _| _mm512_cmpge_epu32_mask(lanes(lengths, at), limit))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn reaches<A: Among>(
    (words, shift): (&Words, u8),
    fixed: u32,
    lengths: &[u32; BATCH_CAPACITY],
    among: A,
) -> A {
    let count = _mm_cvtsi32_si128(shift.into());
    let most = fixed.min(u32::MAX - 60);
    each(among, |at, _| {
        let nibble = _mm512_and_si512(number(lanes(&words.0, at), count), all(0xf));
        let end = _mm512_add_epi32(_mm512_slli_epi32::<2>(nibble), all(most));
        _mm512_cmpge_epu32_mask(lanes(lengths, at), end)
    })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn numbers(
    (words, shift): (&Words, u8),
    mask: u32,
    among: Part,
    out: &mut [u32; BATCH_CAPACITY],
    mut filled: usize,
) -> usize {
    let (mask, count) = (all(mask), _mm_cvtsi32_si128(shift.into()));
    for quarter in 0..64 / GROUP {
        let requested = (among.bits >> (GROUP * quarter)) as u16;
        let words = lanes(&words.0, 64 * among.index + GROUP * quarter);
        let number = _mm512_and_si512(number(words, count), mask);
        let packed = _mm512_maskz_compress_epi32(requested, number);
        // At most as many were filled as frames precede these.
        let part: &mut [u32] = &mut out[filled..filled + GROUP];
        // SAFETY: `part` is sixteen words.
        unsafe { _mm512_storeu_si512(part.as_mut_ptr().cast(), packed) };
        filled += requested.count_ones() as usize;
    }
    filled
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn all(word: u32) -> __m512i {
    _mm512_set1_epi32(word as i32)
}

/// The sixteen words from `at` on, a multiple of sixteen.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn lanes(words: &[u32; BATCH_CAPACITY], at: usize) -> __m512i {
    let lanes: &[u32] = &words[at..at + GROUP];
    // SAFETY: `lanes` is sixteen words.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn equal(word: __m512i, mask: __m512i, value: __m512i) -> u16 {
    _mm512_cmpeq_epi32_mask(_mm512_and_si512(word, mask), value)
}

/// Words as numbers, shifted right.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn number(word: __m512i, count: __m128i) -> __m512i {
    let swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    _mm512_srl_epi32(_mm512_shuffle_epi8(word, swap), count)
}

/// Applies a test to all groups of sixteen in the parts in use; the test also gets the requested frames.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn each<A: Among>(among: A, test: impl Fn(usize, u16) -> u16) -> A {
    among.map(|index, part| {
        if part == 0 {
            return 0;
        }
        let requested = |quarter: usize| (part >> (GROUP * quarter)) as u16;
        let found = |quarter: usize| {
            u64::from(test(64 * index + GROUP * quarter, requested(quarter))) << (GROUP * quarter)
        };
        // A part with few bits means that few frames are in the queue.
        let found = match part {
            ..=0xffff => found(0),
            _ => found(0) | found(1) | found(2) | found(3),
        };
        found & part
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn in_registers<A: Among>(words: &Words, among: A, mask: __m512i, set: &RegisterSet) -> A {
    let bank = |index: usize| {
        let slots = &set.slots()[index * GROUP..(index + 1) * GROUP];
        // SAFETY: `slots` is sixteen words.
        unsafe { _mm512_loadu_si512(slots.as_ptr().cast()) }
    };
    let banks = [bank(0), bank(1), bank(2), bank(3)];
    let multiplier = all(set.multiplier());
    each(among, |at, _| {
        let word = _mm512_and_si512(lanes(&words.0, at), mask);
        let product = _mm512_mullo_epi32(word, multiplier);
        // A permute reads only the low five bits of each index.
        let first = _mm512_srli_epi32::<27>(product);
        let second = _mm512_srli_epi32::<22>(product);
        let one = _mm512_permutex2var_epi32(banks[0], first, banks[1]);
        let two = _mm512_permutex2var_epi32(banks[2], second, banks[3]);
        let none = _mm512_cmpneq_epi32_mask(word, one);
        !_mm512_mask_cmpneq_epi32_mask(none, word, two)
    })
}

/// The same open addressing as `value_set.rs`, for sixteen words at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
fn in_memory<A: Among>(words: &Words, shift: u8, among: A, mask: __m512i, set: &ValueSet) -> A {
    let Some((slots, multiplier, zero)) = set.slots() else { return among.map(|_, _| 0) };
    // Slot numbers are at most the last one, and at most 2^30, so they are valid indices of four-byte words.
    assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 30);
    let wrap = _mm512_set1_epi32(slots.len() as i32 - 1);
    let rest = _mm_cvtsi32_si128(32 - slots.len().ilog2() as i32);
    let (none, one) = (_mm512_setzero_si512(), _mm512_set1_epi32(1));
    let count = _mm_cvtsi32_si128(shift.into());
    each(among, |at, requested| {
        let word = _mm512_and_si512(number(lanes(&words.0, at), count), mask);
        let is_zero = _mm512_cmpeq_epi32_mask(word, none);
        let mut found = if zero { is_zero } else { 0 };
        let mut open = requested & !is_zero;
        let product = _mm512_mullo_epi32(word, _mm512_set1_epi32(multiplier as i32));
        let mut at = _mm512_srl_epi32(product, rest);
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
