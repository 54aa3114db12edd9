//! No vector instructions: what the other levels must equal.

use super::{GROUP, Quad, Words, load_one};
use crate::lanes::Lanes;
use fyke_frame::{Frame, Mask};

pub fn load(frames: &[Frame], offset: usize, groups: u16, quad: &mut Quad) {
    for group in (0..GROUP).filter(|group| groups >> group & 1 == 1) {
        (group * GROUP..(group + 1) * GROUP).for_each(|at| load_one(frames, offset, at, quad));
    }
}

pub fn select(words: &Words, shift: u8, among: Mask, lanes: &Lanes) -> Mask {
    match lanes {
        Lanes::Equal { mask, value } => each(words, among, |word| word >> shift & mask == *value),
        lanes => each(words, among, |word| lanes.holds(word >> shift)),
    }
}

/// Dense parts are compared without branches.
#[inline]
fn each(words: &Words, among: Mask, test: impl Fn(u32) -> bool) -> Mask {
    let mut result = Mask::EMPTY;
    for (index, (part, chunk)) in among.0.iter().zip(words.0.chunks_exact(64)).enumerate() {
        let mut bits = 0;
        if part.count_ones() >= 24 {
            for (bit, &word) in chunk.iter().enumerate() {
                bits |= u64::from(test(word)) << bit;
            }
        } else {
            let mut rest = *part;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                bits |= u64::from(test(chunk[bit as usize])) << bit;
                rest &= rest - 1;
            }
        }
        result.0[index] = bits & part;
    }
    result
}
