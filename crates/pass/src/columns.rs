//! Words of all frames of a batch, side by side.
//!
//! A column holds the same word of every frame; it is filled for the frames somebody asks for and kept until the
//! next batch, so a word is loaded once however many instructions look at it. The same goes for the bases, the
//! frame offsets behind variable headers (NPF's computation cache). Loading costs a few nanoseconds per frame; one
//! column is 1 KiB.

use crate::plan::Plan;
use crate::test::Base;
use fyke_frame::{BATCH_CAPACITY, Frame, Mask, OutOfBounds};

/// A column: `known` frames are filled in, `inside` are those of them whose bytes lie in the frame.
#[derive(Debug)]
struct Column {
    stamp: u64,
    known: Mask,
    inside: Mask,
    words: Box<[u32; BATCH_CAPACITY]>,
}

impl Column {
    fn new() -> Column {
        Column {
            stamp: 0,
            known: Mask::EMPTY,
            inside: Mask::EMPTY,
            words: Box::new([0; BATCH_CAPACITY]),
        }
    }

    #[inline]
    fn fill(&mut self, frame: usize, word: Result<u32, OutOfBounds>) {
        if let Ok(word) = word {
            self.words[frame] = word;
            self.inside.set(frame);
        }
    }

    fn start(&mut self, stamp: u64) {
        if self.stamp != stamp {
            (self.stamp, self.known, self.inside) = (stamp, Mask::EMPTY, Mask::EMPTY);
        }
    }
}

/// The columns of one reader.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    words: Vec<Column>,
    bases: Vec<Column>,
}

impl Columns {
    /// Makes room for the columns of a plan.
    pub fn fit(&mut self, plan: &Plan) {
        self.words.resize_with(plan.columns.len().max(self.words.len()), Column::new);
        self.bases.resize_with(plan.bases.len().max(self.bases.len()), Column::new);
    }

    /// Forgets everything: columns mean something else now.
    pub fn forget(&mut self) {
        self.words.iter_mut().chain(&mut self.bases).for_each(|column| column.stamp = 0);
    }

    /// The column's words, filled in for `frames`, and those of `frames` where the word lies in the frame.
    pub fn words(
        &mut self,
        plan: &Plan,
        index: u32,
        frames: Mask,
        batch: &[Frame],
        stamp: u64,
    ) -> (&[u32; BATCH_CAPACITY], Mask) {
        let (place, base) = plan.columns[index as usize];
        let column = &mut self.words[index as usize];
        column.start(stamp);
        let missing = frames.without(column.known);
        if !missing.is_empty() {
            column.known = column.known | missing;
            if place.base == Base::Direct {
                for frame in missing.iter() {
                    column.fill(frame, place.load_from(batch[frame].data, 0));
                }
                return (&column.words, column.inside & frames);
            }
            let bases = &mut self.bases[base as usize];
            bases.start(stamp);
            for frame in missing.without(bases.known).iter() {
                let start = place.base.start(batch[frame].data);
                bases.fill(frame, start.map(|start| u32::try_from(start).unwrap_or(u32::MAX)));
            }
            bases.known = bases.known | missing;
            for frame in (missing & bases.inside).iter() {
                let start = bases.words[frame] as usize;
                column.fill(frame, place.load_from(batch[frame].data, start));
            }
        }
        (&column.words, column.inside & frames)
    }
}

/// The frames whose word satisfies the test. Dense parts are compared without branches.
#[inline]
pub(crate) fn select(
    words: &[u32; BATCH_CAPACITY],
    frames: Mask,
    test: impl Fn(u32) -> bool,
) -> Mask {
    let mut result = Mask::EMPTY;
    for (index, (part, chunk)) in frames.0.iter().zip(words.chunks_exact(64)).enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_and_sparse_selection_agree() {
        let words: [u32; BATCH_CAPACITY] = std::array::from_fn(|index| (index as u32 * 7) % 13);
        for step in [1, 2, 3, 40] {
            let mut frames = Mask::EMPTY;
            (0..BATCH_CAPACITY).step_by(step).for_each(|frame| frames.set(frame));
            let selected = select(&words, frames, |word| word < 4);
            assert!((0..256).all(|i| selected.get(i) == (frames.get(i) && words[i] < 4)));
        }
    }
}
