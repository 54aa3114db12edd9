//! The level without vector instructions, which the other levels must equal.

use super::{Among, ChunkWords, GROUP, Isa, Part, Term, Words, load_one, sixty_four};
use crate::plan::stencil::{MAX_STENCILS, Stencil, There};
use crate::plan::word_test::{WordTest, number};
use fyke_frame::{BATCH_CAPACITY, Batch};

/// The level of every processor.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Isa for Portable {
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]) {
        for group in (0..GROUP).filter(|group| groups >> group & 1 == 1) {
            for at in group * GROUP..batch.len().min((group + 1) * GROUP) {
                for (&offset, one_chunk) in offsets.iter().zip(&mut *chunk_words) {
                    load_one(batch, offset, at, one_chunk);
                }
            }
        }
    }

    fn select<A: Among>(self, words: &Words, among: A, word_test: &WordTest) -> A {
        match word_test {
            WordTest::Equal { mask, value } => each(among, |at| words.0[at] & mask == *value),
            word_test => each(among, |at| word_test.holds(words.0[at])),
        }
    }

    fn all_of<A: Among>(self, terms: &[Term], among: A) -> A {
        terms
            .iter()
            .fold(among, |among, term| each(among, |at| term.words.0[at] & term.mask == term.value))
    }

    fn halves<A: Among>(self, words: &Words, among: A, values: &[u16]) -> A {
        each(among, |at| {
            let (first, second) = (words.0[at] as u16, (words.0[at] >> 16) as u16);
            values.contains(&first) || values.contains(&second)
        })
    }

    fn at_least<A: Among>(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: A) -> A {
        each(among, |at| lengths[at] >= limit)
    }

    fn reaches<A: Among>(
        self,
        (words, shift): (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: A,
    ) -> A {
        each(among, |at| {
            let end = fixed.saturating_add(4 * (number(words.0[at], shift) & 0xf));
            lengths[at] >= end
        })
    }

    fn numbers(
        self,
        (words, shift): (&Words, u8),
        mask: u32,
        among: Part,
        out: &mut [u32; BATCH_CAPACITY],
        mut filled: usize,
    ) -> usize {
        let mut rest = among.bits;
        while rest != 0 {
            let at = 64 * among.index + rest.trailing_zeros() as usize;
            out[filled] = number(words.0[at], shift) & mask;
            rest &= rest - 1;
            filled += 1;
        }
        filled
    }

    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There {
        let mut there = [0; MAX_STENCILS];
        let reach = stencils.iter().map(Stencil::end).max().unwrap_or(0) as usize;
        for (stencil, there) in stencils.iter().zip(&mut there) {
            for (bit, data) in sixty_four(batch, index).iter().enumerate() {
                *there |= u64::from(data.len() >= reach && stencil.holds(data)) << bit;
            }
        }
        there
    }
}

/// Dense parts are compared without branches.
#[inline]
fn each<A: Among>(among: A, test: impl Fn(usize) -> bool) -> A {
    among.map(|index, part| {
        let mut bits = 0;
        if part.count_ones() >= 24 {
            for bit in 0..64 {
                bits |= u64::from(test(64 * index + bit)) << bit;
            }
        } else {
            let mut rest = part;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                bits |= u64::from(test(64 * index + bit as usize)) << bit;
                rest &= rest - 1;
            }
        }
        bits & part
    })
}
