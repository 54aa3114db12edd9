//! Vector instructions, chosen at run time: AVX-512, AVX2, or none.
//!
//! What is written per level: loading sixteen bytes of many frames as four columns, and testing columns. Everything
//! above is the same code. A [`Level`] (`fyke_table::arch`) can only be had for what this processor has, so that
//! passing one is safe. The tests below compare the levels bit by bit.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx512;
mod portable;

use crate::plan::lanes::Lanes;
use crate::plan::stencil::{Stencil, There};
use crate::plan::windows::WINDOW;
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
pub use fyke_table::Level;
use fyke_table::arch::Kind;

/// One word of every frame of a batch, as it lies in the frame.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Words(pub [u32; BATCH_CAPACITY]);

impl Words {
    pub const ZERO: Words = Words([0; BATCH_CAPACITY]);
}

/// Sixteen bytes of every frame of a batch, as four words.
pub(crate) type Quad = [Words; 4];

/// Sixteen frames of a batch.
const GROUP: usize = 16;

/// Most words that are compared in one go.
pub(crate) const TERMS: usize = 4;

/// One word of a run: masked, it must be this value.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub words: &'a Words,
    pub mask: u32,
    pub value: u32,
}

/// Frames of a batch: all of them, or 64.
pub(crate) trait Among: Copy {
    /// Replaces each 64 frames (of which number) by others.
    fn map(self, part: impl Fn(usize, u64) -> u64) -> Self;
}

impl Among for Mask {
    #[inline(always)]
    fn map(self, part: impl Fn(usize, u64) -> u64) -> Self {
        Mask(std::array::from_fn(|index| part(index, self.0[index])))
    }
}

/// Some of 64 frames of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which 64.
    pub index: usize,
    pub bits: u64,
}

impl Among for Part {
    #[inline(always)]
    fn map(self, part: impl Fn(usize, u64) -> u64) -> Self {
        Part { bits: part(self.index, self.bits), ..self }
    }
}

/// What is written per level; see [`Level`] for what the functions do.
pub(crate) trait Isa: Copy {
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, quads: &mut [Quad]);
    fn select<A: Among>(self, words: &Words, among: A, lanes: &Lanes) -> A;
    fn all_of<A: Among>(self, terms: &[Term], among: A) -> A;
    fn halves<A: Among>(self, words: &Words, among: A, values: &[u16]) -> A;
    fn at_least<A: Among>(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: A) -> A;
    fn reaches<A: Among>(
        self,
        header: (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: A,
    ) -> A;
    /// From number `filled` on, which is at most the number of the first frame of `among`; the end is returned.
    fn numbers(
        self,
        words: (&Words, u8),
        mask: u32,
        among: Part,
        out: &mut [u32; BATCH_CAPACITY],
        filled: usize,
    ) -> usize;
    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There;
}

/// Work that is written once and compiled for each level, with everything that it calls. `run` has to be
/// `#[inline(always)]`.
pub(crate) trait Job {
    /// Result.
    type Output;
    /// Does it.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Calls the level's own function.
macro_rules! dispatch {
    ($level:expr, $function:ident($($argument:expr),*)) => {
        match $level.kind() {
            Kind::Portable => portable::Portable.$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.$function($($argument),*),
        }
    };
}

/// What a level does with columns.
pub(crate) trait Vectors: Sized {
    /// Loads the sixteen bytes at each of the offsets, of the frames in the given groups of sixteen (bit *n*: frames
    /// 16*n* to 16*n* + 15). Bytes behind a frame's end read as zero; words of frames that are not there stay as they
    /// are.
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, quads: &mut [Quad]);
    /// The frames of `among` whose word satisfies the test.
    fn select(self, words: &Words, among: Mask, lanes: &Lanes) -> Mask;
    /// The frames of `among` for which all terms hold.
    fn all_of(self, terms: &[Term], among: Mask) -> Mask;
    /// The frames of `among` of whose words one half or the other is one of the values.
    fn halves(self, words: &Words, among: Mask, values: &[u16]) -> Mask;
    /// The frames of `among` that have at least so many bytes.
    fn at_least(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: Mask) -> Mask;
    /// The frames of `among` with at least `fixed` bytes and four for each that the low nibble of the word says, which
    /// is a number and shifted right.
    fn reaches(
        self,
        header: (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: Mask,
    ) -> Mask;
    /// Does a job with this level's instructions, all of it compiled for them.
    fn run<J: Job>(self, job: J) -> J::Output;
    /// Of each stencil: those of 64 frames in which it holds; frames that end before some stencil does, or are not
    /// there, have none.
    #[cfg(test)]
    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There;
    /// The words of `among` as numbers, shifted right and masked, side by side.
    fn numbers(self, words: (&Words, u8), mask: u32, among: Mask, out: &mut [u32; BATCH_CAPACITY]);
}

impl Vectors for Level {
    #[inline]
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, quads: &mut [Quad]) {
        dispatch!(self, load(batch, offsets, groups, quads));
    }

    #[inline]
    fn select(self, words: &Words, among: Mask, lanes: &Lanes) -> Mask {
        dispatch!(self, select(words, among, lanes))
    }

    #[inline]
    fn all_of(self, terms: &[Term], among: Mask) -> Mask {
        dispatch!(self, all_of(terms, among))
    }

    #[inline]
    fn halves(self, words: &Words, among: Mask, values: &[u16]) -> Mask {
        dispatch!(self, halves(words, among, values))
    }

    #[inline]
    fn at_least(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: Mask) -> Mask {
        dispatch!(self, at_least(lengths, limit, among))
    }

    #[inline]
    fn reaches(
        self,
        (words, shift): (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: Mask,
    ) -> Mask {
        dispatch!(self, reaches((words, shift), fixed, lengths, among))
    }

    #[cfg(test)]
    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There {
        dispatch!(self, stencils(batch, stencils, index))
    }

    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        match self.kind() {
            Kind::Portable => job.run(portable::Portable),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => avx2::run(token, job),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => avx512::run(token, job),
        }
    }

    #[inline]
    fn numbers(self, words: (&Words, u8), mask: u32, among: Mask, out: &mut [u32; BATCH_CAPACITY]) {
        let mut filled = 0;
        for (index, &bits) in among.0.iter().enumerate() {
            let part = Part { index, bits };
            filled = dispatch!(self, numbers(words, mask, part, out, filled));
        }
    }
}

/// The frames of a batch that 64 bits speak of.
#[inline]
fn sixty_four<'a, 'f>(batch: &'a Batch<'f>, index: usize) -> &'a [&'f [u8]] {
    let frames = batch.bytes();
    let first = (64 * index).min(frames.len());
    &frames[first..frames.len().min(first + 64)]
}

/// Loads the window of one frame.
#[inline]
pub(crate) fn load_one(batch: &Batch, offset: u32, at: usize, quad: &mut Quad) {
    let data = batch.bytes().get(at).and_then(|data| data.get(offset as usize..)).unwrap_or(&[]);
    let bytes = data.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; WINDOW];
        bytes[..data.len()].copy_from_slice(data);
        bytes
    });
    for (words, word) in quad.iter_mut().zip(bytes.chunks_exact(4)) {
        words.0[at] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    }
}

#[cfg(test)]
mod tests;
