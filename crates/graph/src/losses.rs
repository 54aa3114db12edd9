//! Losses of an output that later nodes or other branches need to know at once.
//!
//! An output with a buffer learns of a full disk after it has passed its frames. A node with successors, or with frames
//! that other outputs get, too, hands each batch over before it passes it; the frames that the output did not take are
//! then lost at this node and do not pass. Cost: a system call per batch, and nothing for other nodes.

use crate::node::Arrival;
use fyke_frame::Mask;

/// Losses that have been reported.
#[derive(Debug, Default)]
pub struct Losses {
    /// True if each batch is handed over before it is passed.
    pub at_once: bool,
    reported: u64,
}

impl Losses {
    /// Returns the frames of a batch that pass: all without those that the output has lost. It took `taken`, in this
    /// order, so it has lost the last ones; `lost` is the number of all frames that it has lost so far. If the output
    /// `is_done`, it has rejected them.
    pub fn pass(
        &mut self,
        arrival: &mut Arrival<'_>,
        taken: Mask,
        lost: u64,
        is_done: bool,
    ) -> Mask {
        let mask = arrival.mask();
        let fresh = self.late(lost).min(taken.count() as u64);
        if fresh == 0 {
            return mask;
        }
        self.reported += fresh;
        let left = taken.count() - fresh as usize;
        let first = taken.iter().nth(left).unwrap_or(0);
        let gone = taken.without(Mask::first(first));
        if !is_done {
            arrival.lose(gone);
        }
        mask.without(gone)
    }

    /// Returns the number of losses that have not been reported.
    pub fn late(&self, lost: u64) -> u64 {
        lost.saturating_sub(self.reported)
    }
}
