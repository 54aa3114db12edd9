//! The snap lengths of the frames of a batch, from a filter node to the outputs after it in the same worker.
//!
//! A frame that several filters accept has the longest of their lengths; a filter without one, or a tracker, accepts
//! the whole frame. As for [`credits`](crate::credits), a value of the thread is enough. Frames that a node has made,
//! such as those of look-back, stay whole. Cost: nothing without such filters.

use crate::node::Arrival;
use fyke_frame::Frame;
use std::cell::RefCell;

#[derive(Default)]
struct Cuts {
    serial: Option<u64>,
    /// Index of a frame and its length, in bytes, by index.
    lengths: Vec<(usize, u32)>,
}

thread_local! {
    static CUTS: RefCell<Cuts> = RefCell::default();
}

/// Leaves the lengths of frames of a batch, by index; frames that are missing stay whole.
pub(crate) fn leave(arrival: &Arrival<'_>, lengths: &[(usize, u32)]) {
    CUTS.with_borrow_mut(|cuts| {
        if lengths.is_empty() && cuts.serial.is_none() {
            return;
        }
        cuts.serial = (!lengths.is_empty()).then(|| arrival.serial());
        cuts.lengths.clear();
        cuts.lengths.extend_from_slice(lengths);
    });
}

/// The frames of a batch, cut to their lengths; empty if all of them stay whole.
pub(crate) fn frames<'a>(arrival: &Arrival<'a>) -> Vec<Frame<'a>> {
    CUTS.with_borrow(|cuts| {
        if cuts.serial != Some(arrival.serial()) {
            return Vec::new();
        }
        let mut frames = arrival.batch().frames().to_vec();
        for &(index, length) in &cuts.lengths {
            if let Some(frame) = frames.get_mut(index) {
                *frame = crate::snaplen::cut(frame, length as usize);
            }
        }
        frames
    })
}
