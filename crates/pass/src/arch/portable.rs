//! No vector instructions: what the other levels must equal.

use super::{GROUP, Quad, Term, Words, load_one};
use crate::lanes::{Lanes, number};
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};

pub fn load(batch: &Batch, offsets: &[u32], groups: u16, quads: &mut [Quad]) {
    for group in (0..GROUP).filter(|group| groups >> group & 1 == 1) {
        for at in group * GROUP..(group + 1) * GROUP {
            for (&offset, quad) in offsets.iter().zip(&mut *quads) {
                load_one(batch, offset, at, quad);
            }
        }
    }
}

pub fn select(words: &Words, among: Mask, lanes: &Lanes) -> Mask {
    match lanes {
        Lanes::Equal { mask, value } => each(among, |at| words.0[at] & mask == *value),
        lanes => each(among, |at| lanes.holds(words.0[at])),
    }
}

pub fn all_of(terms: &[Term], among: Mask) -> Mask {
    terms
        .iter()
        .fold(among, |among, term| each(among, |at| term.words.0[at] & term.mask == term.value))
}

pub fn halves(words: &Words, among: Mask, values: &[u16]) -> Mask {
    each(among, |at| {
        let (first, second) = (words.0[at] as u16, (words.0[at] >> 16) as u16);
        values.contains(&first) || values.contains(&second)
    })
}

pub fn at_least(lengths: &[u32; BATCH_CAPACITY], limit: u32, among: Mask) -> Mask {
    each(among, |at| lengths[at] >= limit)
}

pub fn reaches(
    (words, shift): (&Words, u8),
    fixed: u32,
    lengths: &[u32; BATCH_CAPACITY],
    among: Mask,
) -> Mask {
    each(among, |at| {
        let end = fixed.saturating_add(4 * (number(words.0[at], shift) & 0xf));
        lengths[at] >= end
    })
}

pub fn numbers(words: &Words, shift: u8, mask: u32, out: &mut [u32; BATCH_CAPACITY]) {
    for (out, &word) in out.iter_mut().zip(&words.0) {
        *out = number(word, shift) & mask;
    }
}

/// Dense parts are compared without branches.
#[inline]
fn each(among: Mask, test: impl Fn(usize) -> bool) -> Mask {
    let mut result = Mask::EMPTY;
    for (index, part) in among.0.into_iter().enumerate() {
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
        result.0[index] = bits & part;
    }
    result
}
