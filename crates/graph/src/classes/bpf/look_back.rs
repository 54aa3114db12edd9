//! Look-back of a filter: after an edit, evaluates frames again that it rejected and that the source still holds.
//!
//! Frames that the new filter accepts are emitted late: in capture order, before the first frame evaluated under the
//! new epoch, never twice.
//!
//! | edit | evaluates |
//! |---|---|
//! | a text is added, removed or changed | all held frames that were rejected |
//! | a tracker adds rows | those of them with the ports of the rows, found by an [index](index) |
//! | a tracker removes rows | nothing |
//!
//! Memory: two masks per batch, for as long as the source holds the batch, and the index. Cost: without a tracker
//! nothing per frame, else an entry of the index.

mod index;

use crate::credits;
use crate::node::Arrival;
use fyke_filters::{FilterError, FilterReader};
use fyke_frame::{Batch, Frame, Mask};
use index::PortIndex;
use std::collections::{HashMap, VecDeque};

/// Results of a filter for the frames that the sources hold.
#[derive(Default)]
pub struct LookBack {
    sources: HashMap<u32, Past>,
    /// Source, batch and result of the last evaluation, until it is final.
    open: Option<(u32, u64, Mask)>,
}

/// The batches of one source.
#[derive(Default)]
struct Past {
    batches: VecDeque<Judged>,
    /// Epoch of the last look-back.
    epoch: u64,
    /// The held frames by port, once a tracker edits the filter.
    index: Option<PortIndex>,
}

/// Results for the frames of a batch.
struct Judged {
    first_sequence: u64,
    count: usize,
    /// Frames that arrived at the filter and have been rejected so far.
    rejected: Mask,
}

impl LookBack {
    /// Emits frames that an edit since the last call makes acceptable; true if there were any.
    pub fn reach_back(
        &mut self,
        arrival: &mut Arrival<'_>,
        reader: &mut FilterReader,
    ) -> Result<bool, FilterError> {
        let Some(held) = arrival.held() else { return Ok(false) };
        let past = self.sources.entry(arrival.source()).or_default();
        if past.epoch == reader.epoch() {
            return Ok(false);
        }
        let since = std::mem::replace(&mut past.epoch, reader.epoch());
        let batch = arrival.batch();
        let oldest = held.oldest().unwrap_or(batch.first_sequence);
        let ports = past.index.as_ref().and_then(|_| reader.ports_since(since));
        let found = past.index.as_ref().zip(ports);
        let current = || {
            (batch.first_sequence..).zip(batch.frames()[..arrival.position()].iter().copied())
        };
        match found.and_then(|(index, ports)| index.find(&ports, oldest)) {
            Some(sequences) => {
                let end = batch.first_sequence + arrival.position() as u64;
                let frame = |sequence: u64| match sequence.checked_sub(batch.first_sequence) {
                    Some(at) => batch.frames().get(at as usize).copied(),
                    None => held.frame(sequence),
                };
                let sequences = sequences.into_iter().take_while(|&sequence| sequence < end);
                let rejected: Vec<_> = sequences.filter(|&one| past.is_rejected(one)).collect();
                let frames = rejected.into_iter().filter_map(|one| Some((one, frame(one)?)));
                past.evaluate(frames, arrival, reader)
            }
            None => past.evaluate(held.frames().chain(current()), arrival, reader),
        }
    }

    /// Records the result for a batch; it counts after it is settled.
    pub fn judged(&mut self, arrival: &Arrival<'_>, reader: &FilterReader, passed: Mask) {
        let batch = arrival.batch();
        let Some(held) = arrival.held() else {
            self.open = None;
            return;
        };
        let past = self.sources.entry(arrival.source()).or_default();
        if past.batches.back().is_none_or(|last| last.first_sequence != batch.first_sequence) {
            let oldest = held.oldest().unwrap_or(batch.first_sequence);
            let gone = |judged: &Judged| judged.first_sequence + judged.count as u64 <= oldest;
            while past.batches.front().is_some_and(gone) {
                past.batches.pop_front();
            }
            if past.index.is_none() && reader.is_tracked() {
                past.index = Some(PortIndex::new(batch.first_sequence));
            }
            if let Some(index) = &mut past.index {
                index.add(batch, batch.all(), oldest);
            }
            past.batches.push_back(Judged {
                first_sequence: batch.first_sequence,
                count: batch.len(),
                rejected: Mask::EMPTY,
            });
        }
        self.open = Some((arrival.source(), batch.first_sequence, passed));
    }

    /// Declares the last result final for these frames.
    pub fn settle(&mut self, frames: Mask) {
        let Some((source, first_sequence, passed)) = self.open else { return };
        let past = self.sources.entry(source).or_default();
        let last = past.batches.back_mut().filter(|last| last.first_sequence == first_sequence);
        if let Some(last) = last {
            last.rejected = last.rejected | frames.without(passed);
        }
    }
}

impl Past {
    /// Evaluates rejected frames again, and emits those that are accepted; true if there were any.
    fn evaluate<'a>(
        &mut self,
        frames: impl Iterator<Item = (u64, Frame<'a>)>,
        arrival: &mut Arrival<'_>,
        reader: &mut FilterReader,
    ) -> Result<bool, FilterError> {
        let mut frames = frames.peekable();
        let mut found = false;
        let (mut late, mut sequences) = (Batch::new(), Vec::new());
        while frames.peek().is_some() {
            late.clear();
            sequences.clear();
            while let Some((sequence, frame)) = frames.peek().copied() {
                if self.is_rejected(sequence) {
                    if late.push(frame).is_err() {
                        break;
                    }
                    sequences.push(sequence);
                }
                frames.next();
            }
            let accepted = reader.evaluate(&late, late.all())?;
            reader.count(accepted);
            for index in accepted.iter() {
                self.let_pass(sequences[index]);
                let frame: &Frame<'_> = &late.frames()[index];
                arrival.emit_late_credited(frame, credits::one(reader, index));
                found = true;
            }
        }
        Ok(found)
    }

    fn place(&self, sequence: u64) -> Option<(usize, usize)> {
        let at = self.batches.partition_point(|judged| judged.first_sequence <= sequence);
        let at = at.checked_sub(1)?;
        let index = (sequence - self.batches[at].first_sequence) as usize;
        (index < self.batches[at].count).then_some((at, index))
    }

    /// True if the frame was rejected here. A frame without a record did not arrive here.
    fn is_rejected(&self, sequence: u64) -> bool {
        self.place(sequence).is_some_and(|(at, index)| self.batches[at].rejected.get(index))
    }

    fn let_pass(&mut self, sequence: u64) {
        if let Some((at, index)) = self.place(sequence) {
            self.batches[at].rejected.clear(index);
        }
    }
}
