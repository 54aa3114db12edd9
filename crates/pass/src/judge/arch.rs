//! Vector instructions, chosen at run time: AVX-512, AVX2, or none.
//!
//! Written per level: loading sixteen bytes of many frames as four columns, and testing columns. All other code is
//! common to the levels. A [`Level`] (`fyke_table::arch`) exists only for instructions that this processor has, so
//! passing one is safe. The tests below compare the levels bit by bit.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx512;
mod portable;

use crate::plan::chunks::CHUNK_LEN;
use crate::plan::stencil::{Stencil, There};
use crate::plan::word_test::WordTest;
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
pub use fyke_table::Level;
use fyke_table::arch::Kind;

/// One word of every frame of a batch, in the frame's byte order.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Words(pub [u32; BATCH_CAPACITY]);

impl Words {
    pub const ZERO: Words = Words([0; BATCH_CAPACITY]);
}

/// Sixteen bytes of every frame of a batch, as four words.
pub(crate) type ChunkWords = [Words; 4];

/// Sixteen frames of a batch.
const GROUP: usize = 16;

/// Largest number of words that are compared together.
pub(crate) const TERMS: usize = 4;

/// One word of a run; masked, it must equal the value.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub words: &'a Words,
    pub mask: u32,
    pub value: u32,
}

/// Frames of a batch: all of them, or 64.
pub(crate) trait Among: Copy {
    /// Replaces each 64 frames by others; `part` gets their index.
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
    /// Index of the 64 frames.
    pub index: usize,
    pub bits: u64,
}

impl Among for Part {
    #[inline(always)]
    fn map(self, part: impl Fn(usize, u64) -> u64) -> Self {
        Part { bits: part(self.index, self.bits), ..self }
    }
}

/// The functions that are written per level; [`Vectors`] describes them.
pub(crate) trait Isa: Copy {
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]);
    fn select<A: Among>(self, words: &Words, among: A, word_test: &WordTest) -> A;
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
    /// Appends from index `filled` on, which is at most the number of frames before `among`; returns the end.
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

/// Work that is written once and compiled for each level, with all functions that it calls. `run` must be
/// `#[inline(always)]`.
pub(crate) trait Job {
    /// Result.
    type Output;
    /// Runs the job.
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

/// Operations of a level on columns.
pub(crate) trait Vectors: Sized {
    /// Loads the sixteen bytes at each of the offsets, of the frames in the given groups of sixteen (bit *n*: frames
    /// 16*n* to 16*n* + 15). Bytes after a frame's end read as zero; words of absent frames stay unchanged.
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]);
    /// The frames of `among` with a word that satisfies the test.
    fn select(self, words: &Words, among: Mask, word_test: &WordTest) -> Mask;
    /// The frames of `among` for which all terms hold.
    fn all_of(self, terms: &[Term], among: Mask) -> Mask;
    /// The frames of `among` with a word of which at least one half is one of the values.
    fn halves(self, words: &Words, among: Mask, values: &[u16]) -> Mask;
    /// The frames of `among` that have at least `limit` bytes.
    fn at_least(self, lengths: &[u32; BATCH_CAPACITY], limit: u32, among: Mask) -> Mask;
    /// The frames of `among` with at least `fixed` bytes plus four times the low nibble of the word, which is read as a
    /// number and shifted right.
    fn reaches(
        self,
        header: (&Words, u8),
        fixed: u32,
        lengths: &[u32; BATCH_CAPACITY],
        among: Mask,
    ) -> Mask;
    /// Runs a job, all of it compiled for this level's instructions.
    fn run<J: Job>(self, job: J) -> J::Output;
    /// For each stencil: those of 64 frames in which it holds. Absent frames, and frames that end before the end of
    /// some stencil, have none.
    #[cfg(test)]
    fn stencils(self, batch: &Batch, stencils: &[Stencil], index: usize) -> There;
    /// The words of `among` as numbers, shifted right and masked, without gaps.
    fn numbers(self, words: (&Words, u8), mask: u32, among: Mask, out: &mut [u32; BATCH_CAPACITY]);
}

impl Vectors for Level {
    #[inline]
    fn load(self, batch: &Batch, offsets: &[u32], groups: u16, chunk_words: &mut [ChunkWords]) {
        dispatch!(self, load(batch, offsets, groups, chunk_words));
    }

    #[inline]
    fn select(self, words: &Words, among: Mask, word_test: &WordTest) -> Mask {
        dispatch!(self, select(words, among, word_test))
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

/// The 64 frames of a batch at `index`.
#[inline]
fn sixty_four<'a, 'f>(batch: &'a Batch<'f>, index: usize) -> &'a [&'f [u8]] {
    let frames = batch.bytes();
    let first = (64 * index).min(frames.len());
    &frames[first..frames.len().min(first + 64)]
}

/// Loads a chunk of one frame.
#[inline]
pub(crate) fn load_one(batch: &Batch, offset: u32, at: usize, one_chunk: &mut ChunkWords) {
    let data = batch.bytes().get(at).and_then(|data| data.get(offset as usize..)).unwrap_or(&[]);
    let bytes = data.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; CHUNK_LEN];
        bytes[..data.len()].copy_from_slice(data);
        bytes
    });
    for (words, word) in one_chunk.iter_mut().zip(bytes.chunks_exact(4)) {
        words.0[at] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    }
}

#[cfg(test)]
mod tests;
