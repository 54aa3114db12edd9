//! Vector instructions, chosen at run time: AVX-512, AVX2, or none.
//!
//! Two things are written per level: loading sixteen bytes of many frames as four columns, and testing a column.
//! Everything above is the same code. A [`Level`] can only be had for what this processor has, so that passing one
//! is safe. Words are numbers as they read on the wire: one byte shuffle per register when they are loaded, so the
//! operands stay as the instructions hold them. The tests below compare the levels bit by bit.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions of one processor family")]
mod avx512;
mod portable;

use crate::lanes::Lanes;
use fyke_frame::{BATCH_CAPACITY, Frame, Mask};
use std::fmt;

/// One word of every frame of a batch.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Words(pub [u32; BATCH_CAPACITY]);

impl Words {
    pub const ZERO: Words = Words([0; BATCH_CAPACITY]);
}

/// Sixteen bytes of every frame of a batch, as four words.
pub(crate) type Quad = [Words; 4];

/// Bytes of a window.
pub(crate) const WINDOW: usize = 16;

/// Sixteen frames of a batch.
const GROUP: usize = 16;

/// A way to compute that this processor has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Level {
    /// The fastest of this processor.
    pub fn best() -> Level {
        Level::all().pop().unwrap_or(Level(Kind::Portable))
    }

    /// All of this processor, slowest first.
    pub fn all() -> Vec<Level> {
        let mut levels = vec![Level(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(avx2::Avx2::detect().map(|token| Level(Kind::Avx2(token))));
            levels.extend(avx512::Avx512::detect().map(|token| Level(Kind::Avx512(token))));
        }
        levels
    }

    /// `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
        }
    }

    /// Loads the sixteen bytes at `offset` of the frames in the given groups of sixteen (bit *n*: frames 16*n* to
    /// 16*n* + 15). Bytes behind a frame's end read as zero, also those of frames that are not there.
    #[inline]
    pub(crate) fn load(self, frames: &[Frame], offset: usize, groups: u16, quad: &mut Quad) {
        match self.0 {
            Kind::Portable => portable::load(frames, offset, groups, quad),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.load(frames, offset, groups, quad),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.load(frames, offset, groups, quad),
        }
    }

    /// The frames of `among` whose word, shifted right, satisfies the test.
    #[inline]
    pub(crate) fn select(self, words: &Words, shift: u8, among: Mask, lanes: &Lanes) -> Mask {
        match self.0 {
            Kind::Portable => portable::select(words, shift, among, lanes),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.select(words, shift, among, lanes),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.select(words, shift, among, lanes),
        }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Loads the window of one frame.
#[inline]
pub(crate) fn load_one(frames: &[Frame], offset: usize, at: usize, quad: &mut Quad) {
    let data = frames.get(at).and_then(|frame| frame.data.get(offset..)).unwrap_or(&[]);
    let bytes = data.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; WINDOW];
        bytes[..data.len()].copy_from_slice(data);
        bytes
    });
    for (words, word) in quad.iter_mut().zip(bytes.chunks_exact(4)) {
        words.0[at] = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
    }
}

#[cfg(test)]
mod tests;
