//! Up to 256 frames that are judged together.
//!
//! A batch borrows its frames; it is refilled, not rebuilt, so the data path allocates nothing after start-up.

use crate::{Frame, Mask};

/// Most frames of a batch. 64–128 is enough for static filters, 256 for tables.
pub const BATCH_CAPACITY: usize = 256;

/// Frames in capture order, at most [`BATCH_CAPACITY`] of them, all of one link type.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// Number that the source gave the first frame; the others follow without gaps. Tells late frames apart.
    pub first_sequence: u64,
    frames: Vec<Frame<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch with room for [`BATCH_CAPACITY`] frames.
    pub fn new() -> Self {
        Batch { first_sequence: 0, frames: Vec::with_capacity(BATCH_CAPACITY) }
    }

    /// Appends a frame. Gives it back when the batch is full or holds frames of another link type: evaluate and
    /// clear the batch first.
    #[inline]
    pub fn push(&mut self, frame: Frame<'a>) -> Result<(), Frame<'a>> {
        let other_link = self.frames.first().is_some_and(|first| first.link != frame.link);
        if self.frames.len() == BATCH_CAPACITY || other_link {
            return Err(frame);
        }
        self.frames.push(frame);
        Ok(())
    }

    /// The frames, in capture order.
    pub fn frames(&self) -> &[Frame<'a>] {
        &self.frames
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The mask of all frames of this batch.
    pub fn all(&self) -> Mask {
        Mask::first(self.frames.len())
    }

    /// Drops the frames and keeps the room.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}
