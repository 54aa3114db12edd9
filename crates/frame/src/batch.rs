//! Up to 256 frames that are evaluated together.
//!
//! A batch borrows its frames; it is refilled, not rebuilt, so the data path allocates nothing
//! after start-up. The parts that vector code reads of every frame, its bytes and their number, are
//! also stored in separate arrays: 20 bytes per frame instead of the 48 of a [`Frame`].

use crate::{Frame, LinkType, Mask};
use std::fmt;

/// Most frames of a batch. 64–128 is enough for static filters, 256 for tables.
pub const BATCH_CAPACITY: usize = 256;

/// Captured lengths of the frames of a batch, in bytes, aligned so that a vector register can load
/// them.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Lengths(pub [u32; BATCH_CAPACITY]);

/// Frames in capture order, at most [`BATCH_CAPACITY`] of them, all of one link type.
pub struct Batch<'a> {
    /// Number that the source gave the first frame; the others follow without gaps. Look-back uses
    /// it to recognise late frames.
    pub first_sequence: u64,
    frames: Vec<Frame<'a>>,
    bytes: Vec<&'a [u8]>,
    lengths: Box<Lengths>,
    shortest: u32,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Batch::new()
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Batch { first_sequence, frames, .. } = self;
        let mut batch = f.debug_struct("Batch");
        batch.field("first_sequence", first_sequence).field("frames", frames).finish()
    }
}

impl<'a> Batch<'a> {
    /// An empty batch with room for [`BATCH_CAPACITY`] frames.
    pub fn new() -> Self {
        Batch {
            first_sequence: 0,
            frames: Vec::with_capacity(BATCH_CAPACITY),
            bytes: Vec::with_capacity(BATCH_CAPACITY),
            lengths: Box::new(Lengths([0; BATCH_CAPACITY])),
            shortest: u32::MAX,
        }
    }

    /// Appends a frame. Returns it if the batch is full or holds frames of another link type: then
    /// evaluate and clear the batch first.
    #[inline]
    pub fn push(&mut self, frame: Frame<'a>) -> Result<(), Frame<'a>> {
        let at = self.frames.len();
        let other_link = self.frames.first().is_some_and(|first| first.link != frame.link);
        if at >= BATCH_CAPACITY || other_link {
            return Err(frame);
        }
        let length = u32::try_from(frame.data.len()).unwrap_or(u32::MAX);
        self.bytes.push(frame.data);
        self.lengths.0[at] = length;
        self.shortest = self.shortest.min(length);
        self.frames.push(frame);
        Ok(())
    }

    /// The frames, in capture order.
    #[inline]
    pub fn frames(&self) -> &[Frame<'a>] {
        &self.frames
    }

    /// The captured bytes of the frames.
    #[inline]
    pub fn bytes(&self) -> &[&'a [u8]] {
        &self.bytes
    }

    /// The captured lengths of the frames; entries after the last frame are undefined.
    #[inline]
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// The smallest of the captured lengths; `u32::MAX` when there is no frame.
    #[inline]
    pub fn shortest(&self) -> u32 {
        self.shortest
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if there is no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The mask of all frames of this batch.
    #[inline]
    pub fn all(&self) -> Mask {
        Mask::first(self.frames.len())
    }

    /// Removes the frames and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
        self.shortest = u32::MAX;
    }

    /// An empty batch with the memory of this one, for frames of another lifetime.
    ///
    /// ```
    /// # mod fyke { pub(crate) use fyke_frame as frame; }
    /// use fyke::frame::{Batch, Frame, LinkType};
    ///
    /// let mut kept = Batch::new();
    /// for length in [60, 90] {
    ///     let bytes = vec![0; length]; // lives for one turn of the loop
    ///     let mut batch = kept.reuse();
    ///     batch.push(Frame::new(LinkType::EN10MB, &bytes)).expect("room");
    ///     assert_eq!(batch.len(), 1);
    ///     kept = batch.reuse();
    /// }
    /// ```
    #[inline]
    pub fn reuse<'b>(mut self) -> Batch<'b> {
        self.clear();
        let Batch { frames, bytes, lengths, .. } = self;
        // Collecting an empty vector of the same layout keeps its memory.
        let frames = frames.into_iter().map(|_| Frame::new(LinkType::NULL, &[])).collect();
        let bytes = bytes.into_iter().map(|_| -> &[u8] { &[] }).collect();
        Batch { first_sequence: 0, frames, bytes, lengths, shortest: u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refilled_batch_knows_its_own_frames_only() {
        let (long, short) = ([1_u8; 90], [2_u8; 14]);
        let mut batch = Batch::new();
        for round in 0..2 {
            batch.clear();
            assert_eq!((batch.len(), batch.bytes().len(), batch.shortest()), (0, 0, u32::MAX));
            for at in 0..BATCH_CAPACITY {
                let data = if round == 0 && at == 7 { &short[..] } else { &long[..] };
                batch.push(Frame::new(LinkType::EN10MB, data)).expect("room");
            }
            assert!(batch.push(Frame::new(LinkType::EN10MB, &long)).is_err());
            assert_eq!(batch.shortest(), if round == 0 { 14 } else { 90 });
            assert!(batch.frames().iter().zip(batch.bytes()).all(|(one, &data)| one.data == data));
            let lengths = batch.lengths().0.iter().zip(batch.bytes());
            assert!(lengths.into_iter().all(|(&length, data)| length as usize == data.len()));
        }
        batch.clear();
        batch.push(Frame::new(LinkType::EN10MB, &long)).expect("room");
        assert!(batch.push(Frame::new(LinkType::RAW, &long)).is_err());
    }

    #[test]
    fn a_reused_batch_is_empty_and_keeps_its_memory() {
        let long = [1_u8; 90];
        let mut batch = Batch::new();
        batch.first_sequence = 7;
        batch.push(Frame::new(LinkType::EN10MB, &long)).expect("room");
        let (frames, bytes) = (batch.frames().as_ptr().addr(), batch.bytes().as_ptr().addr());
        let mut batch = batch.reuse();
        assert_eq!((batch.len(), batch.bytes().len(), batch.shortest()), (0, 0, u32::MAX));
        assert_eq!((batch.first_sequence, batch.all()), (0, Mask::EMPTY));
        batch.push(Frame::new(LinkType::RAW, &long[..14])).expect("room");
        assert_eq!((batch.bytes(), batch.shortest()), (&[&long[..14]][..], 14));
        let kept = (batch.frames().as_ptr().addr(), batch.bytes().as_ptr().addr());
        assert_eq!(kept, (frames, bytes));
    }
}
