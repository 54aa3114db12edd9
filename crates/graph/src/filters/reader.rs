//! One worker's side of the filters: judges batches and takes edits over between two of them.
//!
//! A reader waits for nothing that takes longer than the exchange of a few references, whatever is being parsed,
//! lowered, applied or formatted meanwhile; only a frame of a new link type waits for an edit that is being applied.

use super::{FilterError, Shared, lock};
use fyke_filter::scoped::Part;
use fyke_frame::{Batch, Frame, LinkType, Mask};
use fyke_pass::Reader;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One worker's side: judges batches under the filters as of the last refresh.
#[derive(Debug)]
pub struct FilterReader {
    shared: Arc<Shared>,
    epoch: u64,
    links: Vec<(LinkType, Reader)>,
    current: usize,
    /// Frames of the batch last evaluated that are fragments without their first.
    orphans: Mask,
    /// Bytes of frames as the device gave them.
    received: Vec<u8>,
}

impl FilterReader {
    pub(super) fn new(shared: Arc<Shared>) -> FilterReader {
        FilterReader {
            shared,
            epoch: 0,
            links: Vec::new(),
            current: 0,
            orphans: Mask::EMPTY,
            received: Vec::new(),
        }
    }

    /// Takes over the edits made since the last call; says whether there were any.
    pub fn refresh(&mut self) -> bool {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return false;
        }
        // Keeps an edit from being seen on one link type and not yet on another. Held for the exchange only.
        let _revealing = lock(&self.shared.revealing);
        self.epoch = self.shared.epoch.load(Ordering::Acquire);
        for (_, reader) in &mut self.links {
            reader.refresh();
        }
        true
    }

    /// The epoch under which frames are judged.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The frames of `within` that a filter accepts. The first frame of a link type that no reader has met lowers all
    /// texts for it, some 3 µs a primitive. Fails when a link type turns up that a text does not fit.
    pub fn evaluate(&mut self, batch: &Batch<'_>, within: Mask) -> Result<Mask, FilterError> {
        let Some(first) = batch.frames().first() else { return Ok(Mask::EMPTY) };
        if let Some(fragments) = &self.shared.fragments {
            // In capture order and for all filters, whichever of them gets to see a frame.
            self.orphans = Mask::EMPTY;
            for index in within.iter() {
                if fragments.observe(&batch.frames()[index]) == Part::Orphan {
                    self.orphans.set(index);
                }
            }
        }
        if self.links.get(self.current).is_none_or(|(link, _)| *link != first.link) {
            self.current = self.link(first.link)?;
        }
        let reader = &mut self.links[self.current].1;
        let restored = |frame: &Frame| frame.meta.restored;
        if self.shared.as_received && batch.frames().iter().any(restored) {
            return Ok(evaluate_received(reader, &mut self.received, batch, within));
        }
        Ok(reader.evaluate_uncounted(batch, within))
    }

    /// Counts the frames `settled` of the batch last evaluated, for the passes that accepted them. To be called once
    /// the verdict of a frame is final, before the next evaluation.
    pub fn count(&mut self, settled: Mask) {
        let orphans = (settled & self.orphans).count() as u64;
        self.shared.orphans.fetch_add(orphans, Ordering::Relaxed);
        self.orphans = self.orphans.without(settled);
        if let Some((_, reader)) = self.links.get_mut(self.current) {
            let credited = reader.count(settled);
            self.shared.credited.fetch_add(credited, Ordering::Relaxed);
        }
    }

    fn link(&mut self, link: LinkType) -> Result<usize, FilterError> {
        if let Some(index) = self.links.iter().position(|(known, _)| *known == link) {
            return Ok(index);
        }
        self.links.push((link, self.shared.reader(link)?));
        Ok(self.links.len() - 1)
    }
}

/// Judges the frames as the device gave them: a tag that the source has put back is in the metadata again. Costs a copy
/// of each such frame.
fn evaluate_received(
    reader: &mut Reader,
    room: &mut Vec<u8>,
    batch: &Batch<'_>,
    within: Mask,
) -> Mask {
    room.clear();
    let copies: Vec<_> = batch
        .frames()
        .iter()
        .map(|frame| {
            let start = room.len();
            frame.without_tag(room).map(|tag| (start..room.len(), tag))
        })
        .collect();
    let mut received = Batch::new();
    for (frame, copy) in batch.frames().iter().zip(copies) {
        let mut frame = *frame;
        if let Some((bytes, tag)) = copy {
            frame.wire_len = frame.wire_len.saturating_sub((frame.data.len() - bytes.len()) as u32);
            frame.data = &room[bytes];
            (frame.meta.vlan, frame.meta.restored) = (Some(tag), false);
        }
        // As many as there were, of the same link type: there is room.
        let _full = received.push(frame);
    }
    reader.evaluate_uncounted(&received, within)
}
