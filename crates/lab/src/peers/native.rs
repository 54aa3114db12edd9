//! Machine code made at run time: frames as compiled C and the JIT see them, and calls into such code.
//!
//! This file is a fence. Code that is called here was made by [`super::jit`] or by the C compiler from
//! [`super::opt_c`]'s sources; it reads at most `len` bytes at `data`, and whatever else it reads belongs to it.
#![allow(
    unsafe_code,
    reason = "calls machine code that was made at run time, on memory that a load owns"
)]

use fyke_frame::Frame;
use std::marker::PhantomData;
use std::os::raw::c_int;

/// Descriptors behind the last frame, so that prefetching code needs no test for the end.
pub const AHEAD: usize = 16;

/// A frame as C sees it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Descriptor<'a> {
    data: *const u8,
    len: u32,
    wire_len: u32,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: a descriptor is a shared borrow of bytes, which any thread may read.
unsafe impl Send for Descriptor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Descriptor<'_> {}

impl Default for Descriptor<'_> {
    fn default() -> Self {
        Descriptor { data: std::ptr::dangling(), len: 0, wire_len: 0, bytes: PhantomData }
    }
}

impl<'a> Descriptor<'a> {
    /// The descriptor of a frame.
    pub fn new(frame: &Frame<'a>) -> Self {
        Descriptor {
            data: frame.data.as_ptr(),
            len: u32::try_from(frame.data.len()).unwrap_or(u32::MAX),
            wire_len: frame.wire_len,
            bytes: PhantomData,
        }
    }
}

impl Descriptor<'_> {
    /// Captured length in bytes.
    pub fn captured_len(&self) -> u32 {
        self.len
    }
}

/// Judges one frame: bytes, captured length, length on the wire.
pub type JudgeOne = unsafe extern "C" fn(*const u8, u32, u32) -> c_int;

/// Calls `judge` for `count` frames.
///
/// # Panics
/// When there are fewer descriptors or too few words for the verdicts.
///
/// # Safety
/// `judge` is code as this module demands.
pub(super) unsafe fn each(
    judge: JudgeOne,
    descriptors: &[Descriptor<'_>],
    count: usize,
    verdicts: &mut [u64],
) {
    assert!(count <= verdicts.len() * 64);
    for (chunk, word) in descriptors[..count].chunks(64).zip(verdicts) {
        let mut bits = 0;
        for (index, one) in chunk.iter().enumerate() {
            // SAFETY: the frame is borrowed, and `judge` is as the caller promised.
            let verdict = unsafe { judge(one.data, one.len, one.wire_len) };
            bits |= u64::from(verdict != 0) << index;
        }
        *word = bits;
    }
}
