//! AVX2: eight frames at a time.

use super::{Among, ChunkWords, GROUP, Isa, Job, Part, Term, Words, load_one, sixty_four};
use crate::isa::value_set::ValueSet;
use crate::plan::chunks::CHUNK_LEN;
use crate::plan::stencil::{MAX_STENCILS, STENCIL, Stencil, There};
use crate::plan::word_test::WordTest;
use fyke_frame::{BATCH_CAPACITY, Batch};
use fyke_table::RegisterSet;
use fyke_table::arch::Avx2;
use std::arch::x86_64::*;

const HALF: usize = GROUP / 2;

/// Runs a job, compiled for this level.
#[inline]
pub(super) fn run<J: Job>(isa: Avx2, job: J) -> J::Output {
    // SAFETY: `isa` exists only when the processor has these features.
    unsafe { compiled(isa, job) }
}

#[target_feature(enable = "avx2,bmi2,popcnt")]
fn compiled<J: Job>(isa: Avx2, job: J) -> J::Output {
    job.run(isa)
}

impl Isa for Avx2 {
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
        unsafe { stencils_over(batch, stencils, index) }
    }
}

/// Compares stencils with 64 frames.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn stencils_over(batch: &Batch, stencils: &[Stencil], index: usize) -> There {
    let mut there = [0; MAX_STENCILS];
    let frames = sixty_four(batch, index);
    let reach = stencils.iter().map(Stencil::end).max().unwrap_or(0);
    let groups = frames.as_chunks().0;
    // Frames that are too short for a load of 32 bytes are replaced by zeros.
    let least = if batch.shortest() < reach { reach as usize } else { 0 };
    match least {
        0 => lay_all::<false>(stencils, groups, 0, &mut there),
        _ => lay_all::<true>(stencils, groups, least, &mut there),
    }
    let rest = GROUP * groups.len();
    for (stencil, there) in stencils.iter().zip(&mut there) {
        for (bit, data) in frames.iter().enumerate().skip(rest) {
            *there |= u64::from(stencil.holds(data)) << bit;
        }
    }
    if least > 0 {
        let lengths = &batch.lengths().0[64 * index..][..frames.len()];
        let long = |(at, &length): (usize, &u32)| u64::from(length >= reach) << at;
        let long = lengths.iter().enumerate().map(long).fold(0, |all, one| all | one);
        there.iter_mut().for_each(|there| *there &= long);
    }
    there
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn lay_all<const SHORT: bool>(
    stencils: &[Stencil],
    groups: &[[&[u8]; GROUP]],
    least: usize,
    there: &mut There,
) {
    match stencils {
        [a] => lay::<1, SHORT>([a], groups, least, there),
        [a, b] => lay::<2, SHORT>([a, b], groups, least, there),
        [a, b, c] => lay::<3, SHORT>([a, b, c], groups, least, there),
        [a, b, c, d, ..] => lay::<4, SHORT>([a, b, c, d], groups, least, there),
        [] => {}
    }
}

/// The difference of each frame is 32 bytes, which are all zero if the stencil holds. Packing keeps nonzero values
/// nonzero, so that sixteen frames end as sixteen bytes. All frames are at least as long as the stencils reach; or, if
/// some are `SHORT`, `least` is that length, and shorter frames are replaced.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn lay<const N: usize, const SHORT: bool>(
    stencils: [&Stencil; N],
    groups: &[[&[u8]; GROUP]],
    least: usize,
    there: &mut There,
) {
    const NOTHING: &[u8; STENCIL] = &[0; STENCIL];
    // SAFETY: 32 bytes each.
    let load = |bytes: &[u8; STENCIL]| unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    let values = stencils.map(|stencil| load(&stencil.value));
    let masks = stencils.map(|stencil| load(&stencil.mask));
    let starts = stencils.map(|stencil| stencil.offset as usize);
    for (number, frames) in groups.iter().enumerate() {
        for n in 0..N {
            let differs = |at: usize| {
                let (frame, there) = (frames[at], frames[at].as_ptr().wrapping_add(starts[n]));
                let long = !SHORT || frame.len() >= least;
                let start = if long { there } else { NOTHING.as_ptr() };
                // SAFETY: the 32 bytes from the start on, which are in every frame of that length, or those of
                // `NOTHING`.
                let bytes = unsafe { _mm256_loadu_si256(start.cast()) };
                _mm256_and_si256(_mm256_xor_si256(bytes, values[n]), masks[n])
            };
            // Four frames, four bytes of either half each.
            let four = |at: usize| {
                let (one, two) = (differs(at), differs(at + 1));
                let (three, four) = (differs(at + 2), differs(at + 3));
                let packed = _mm256_packs_epi16(
                    _mm256_packs_epi32(one, two),
                    _mm256_packs_epi32(three, four),
                );
                _mm_or_si128(_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed))
            };
            let eight = |at: usize| _mm_packs_epi32(four(at), four(at + 4));
            let all = _mm_packs_epi16(eight(0), eight(8));
            let same = _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128()));
            there[n] |= (same as u64) << (GROUP * number);
        }
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn load(batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]) {
    for half in (0..2 * GROUP).filter(|half| groups >> (half / 2) & 1 == 1) {
        let first = half * HALF;
        let frames = batch.bytes().get(first..).and_then(|rest| rest.first_chunk());
        // All chunks of eight frames, then those of the next eight: meanwhile a frame's line stays in the first cache.
        for (&offset, one_chunk) in offsets.iter().zip(&mut *chunk_words) {
            match frames {
                Some(frames) => load_half(batch, frames, offset, first, one_chunk),
                None => (first..batch.len().min(first + HALF))
                    .for_each(|at| load_one(batch, offset, at, one_chunk)),
            }
        }
    }
}

/// Eight loads of sixteen bytes and a transposition of 4 by 4 words in each of two lanes.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn load_half(
    batch: &Batch,
    frames: &[&[u8]; HALF],
    offset: u32,
    first: usize,
    one_chunk: &mut ChunkWords,
) {
    let none = [0_u8; CHUNK_LEN];
    let start = offset as usize;
    let mut short = 0_u32;
    let all_long = batch.shortest() as usize >= start + CHUNK_LEN;
    let mut bytes = |at: usize| {
        let long = all_long || frames[at].len() >= start + CHUNK_LEN;
        short |= u32::from(!long) << at;
        let from = if long { frames[at].as_ptr().wrapping_add(start) } else { none.as_ptr() };
        // SAFETY: sixteen bytes of the frame from `offset` on, which are there (a batch knows the length of its
        // shortest frame), or those of `none`.
        unsafe { _mm_loadu_si128(from.cast()) }
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
    for (words, column) in one_chunk.iter_mut().zip(columns) {
        let part: &mut [u32] = &mut words.0[first..first + HALF];
        // SAFETY: `part` is eight words; an unaligned store has no other requirement.
        unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), column) }
    }
    while short != 0 {
        load_one(batch, offset, first + short.trailing_zeros() as usize, one_chunk);
        short &= short - 1;
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn select<A: Among>(words: &Words, among: A, test: &WordTest) -> A {
    match test {
        WordTest::Equal { mask, value } => {
            let (mask, value) = (all(*mask), all(*value));
            each(among, |at, _| {
                _mm256_cmpeq_epi32(_mm256_and_si256(lanes(&words.0, at), mask), value)
            })
        }
        WordTest::OneOf { mask, values } => {
            let mask = all(*mask);
            each(among, |at, _| {
                let word = _mm256_and_si256(lanes(&words.0, at), mask);
                values.iter().fold(_mm256_setzero_si256(), |any, &value| {
                    _mm256_or_si256(any, _mm256_cmpeq_epi32(word, all(value)))
                })
            })
        }
        WordTest::Within { shift, mask, intervals } => {
            let (mask, count) = (all(*mask), _mm_cvtsi32_si128((*shift).into()));
            each(among, |at, _| {
                let word = _mm256_and_si256(number(lanes(&words.0, at), count), mask);
                intervals.iter().fold(_mm256_setzero_si256(), |any, &(low, width)| {
                    let distance = _mm256_sub_epi32(word, all(low));
                    _mm256_or_si256(any, at_most(distance, all(width)))
                })
            })
        }
        WordTest::Few { mask, set } => in_registers(words, among, all(*mask), set),
        WordTest::Member { shift, mask, set } => in_memory(words, *shift, among, all(*mask), set),
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn all_of<A: Among>(terms: &[Term], among: A) -> A {
    match *terms {
        [a] => all_of_them([a], among),
        [a, b] => all_of_them([a, b], among),
        [a, b, c] => all_of_them([a, b, c], among),
        _ => terms.iter().fold(among, |among, &term| all_of_them([term], among)),
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn all_of_them<A: Among, const N: usize>(terms: [Term; N], among: A) -> A {
    let masks = terms.map(|term| all(term.mask));
    let values = terms.map(|term| all(term.value));
    each(among, |at, _| {
        let mut found = all(u32::MAX);
        for index in 0..N {
            let word = _mm256_and_si256(lanes(&terms[index].words.0, at), masks[index]);
            found = _mm256_and_si256(found, _mm256_cmpeq_epi32(word, values[index]));
        }
        found
    })
}

#[target_feature(enable = "avx2,bmi2")]
fn halves<A: Among>(words: &Words, among: A, values: &[u16]) -> A {
    let none = _mm256_setzero_si256();
    each(among, |at, _| {
        let word = lanes(&words.0, at);
        let found = values.iter().fold(none, |any, &value| {
            _mm256_or_si256(any, _mm256_cmpeq_epi16(word, _mm256_set1_epi16(value as i16)))
        });
        // If either half matched, the word is not `none`.
        _mm256_xor_si256(_mm256_cmpeq_epi32(found, none), all(u32::MAX))
    })
}

#[target_feature(enable = "avx2,bmi2")]
fn at_least<A: Among>(lengths: &[u32; BATCH_CAPACITY], limit: u32, among: A) -> A {
    let limit = all(limit);
    each(among, |at, _| at_most(limit, lanes(lengths, at)))
}

#[target_feature(enable = "avx2,bmi2")]
fn reaches<A: Among>(
    (words, shift): (&Words, u8),
    fixed: u32,
    lengths: &[u32; BATCH_CAPACITY],
    among: A,
) -> A {
    let count = _mm_cvtsi32_si128(shift.into());
    let most = fixed.min(u32::MAX - 60);
    each(among, |at, _| {
        let nibble = _mm256_and_si256(number(lanes(&words.0, at), count), all(0xf));
        let end = _mm256_add_epi32(_mm256_slli_epi32::<2>(nibble), all(most));
        at_most(end, lanes(lengths, at))
    })
}

/// For each mask of eight lanes: the indices of its lanes, a byte each.
static PACKED: [u64; 1 << HALF] = {
    let mut packed = [0; 1 << HALF];
    let mut mask = 0;
    while mask < packed.len() {
        let (mut lane, mut filled) = (0, 0);
        while lane < HALF {
            if mask >> lane & 1 == 1 {
                packed[mask] |= (lane as u64) << (8 * filled);
                filled += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    packed
};

#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn numbers(
    (words, shift): (&Words, u8),
    mask: u32,
    among: Part,
    out: &mut [u32; BATCH_CAPACITY],
    mut filled: usize,
) -> usize {
    let (mask, count) = (all(mask), _mm_cvtsi32_si128(shift.into()));
    for eighth in 0..64 / HALF {
        let requested = (among.bits >> (HALF * eighth)) as u8;
        let words = lanes(&words.0, 64 * among.index + HALF * eighth);
        let number = _mm256_and_si256(number(words, count), mask);
        let lanes = _mm_cvtsi64_si128(PACKED[usize::from(requested)] as i64);
        let packed = _mm256_permutevar8x32_epi32(number, _mm256_cvtepu8_epi32(lanes));
        // At most as many were filled as frames precede these.
        let part: &mut [u32] = &mut out[filled..filled + HALF];
        // SAFETY: `part` is eight words.
        unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), packed) };
        filled += requested.count_ones() as usize;
    }
    filled
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn all(word: u32) -> __m256i {
    _mm256_set1_epi32(word as i32)
}

/// The eight words from `at` on.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn lanes(words: &[u32; BATCH_CAPACITY], at: usize) -> __m256i {
    let lanes: &[u32] = &words[at..at + HALF];
    // SAFETY: `lanes` is eight words.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

/// Unsigned `low <= high`.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn at_most(low: __m256i, high: __m256i) -> __m256i {
    _mm256_cmpeq_epi32(_mm256_min_epu32(low, high), low)
}

/// Words as numbers, shifted right.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn number(word: __m256i, count: __m128i) -> __m256i {
    let swap = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12,
    ));
    _mm256_srl_epi32(_mm256_shuffle_epi8(word, swap), count)
}

/// Applies a test to all groups of eight in the parts in use; the test also gets the requested frames.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn each<A: Among>(among: A, test: impl Fn(usize, u8) -> __m256i) -> A {
    among.map(|index, part| {
        if part == 0 {
            return 0;
        }
        let mut found = 0;
        // A part with few bits means that few frames are in the queue.
        for eighth in 0..if part < 1 << HALF { 1 } else { 64 / HALF } {
            let requested = (part >> (HALF * eighth)) as u8;
            let lanes = test(64 * index + HALF * eighth, requested);
            found |= u64::from(bits(lanes)) << (HALF * eighth);
        }
        found & part
    })
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn bits(lanes: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8
}

/// Looks up both slots of every word.
#[target_feature(enable = "avx2,bmi2")]
fn in_registers<A: Among>(words: &Words, among: A, mask: __m256i, set: &RegisterSet) -> A {
    let slots = set.slots();
    let multiplier = all(set.multiplier());
    let at_place = |place: __m256i| {
        // SAFETY: every index is at most 63, the last of the slots.
        unsafe { _mm256_i32gather_epi32::<4>(slots.as_ptr().cast(), place) }
    };
    each(among, |at, _| {
        let word = _mm256_and_si256(lanes(&words.0, at), mask);
        let product = _mm256_mullo_epi32(word, multiplier);
        let first = _mm256_srli_epi32::<27>(product);
        let second = _mm256_and_si256(_mm256_srli_epi32::<22>(product), all(31));
        let one = at_place(first);
        let two = at_place(_mm256_add_epi32(second, all(32)));
        _mm256_or_si256(_mm256_cmpeq_epi32(word, one), _mm256_cmpeq_epi32(word, two))
    })
}

/// The same open addressing as `value_set.rs`, for eight words at a time.
#[target_feature(enable = "avx2,bmi2")]
fn in_memory<A: Among>(words: &Words, shift: u8, among: A, mask: __m256i, set: &ValueSet) -> A {
    let Some((slots, multiplier, zero)) = set.slots() else { return among.map(|_, _| 0) };
    // Slot numbers are at most the last one, and at most 2^30, so they are valid indices of four-byte words.
    assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 30);
    let wrap = _mm256_set1_epi32(slots.len() as i32 - 1);
    let rest = _mm_cvtsi32_si128(32 - slots.len().ilog2() as i32);
    let (none, one) = (_mm256_setzero_si256(), _mm256_set1_epi32(1));
    let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let count = _mm_cvtsi32_si128(shift.into());
    each(among, |at, requested| {
        let word = _mm256_and_si256(number(lanes(&words.0, at), count), mask);
        let is_zero = _mm256_cmpeq_epi32(word, none);
        let requested =
            _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(requested.into()), bit), bit);
        let mut found = if zero { is_zero } else { none };
        let mut open = _mm256_andnot_si256(is_zero, requested);
        let product = _mm256_mullo_epi32(word, _mm256_set1_epi32(multiplier as i32));
        let mut at = _mm256_srl_epi32(product, rest);
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
