//! Destinations of the demultiplexer's deliveries: class values of the current frames, and frames that were
//! postponed.
//!
//! A frame passes the node once. A frame that a group postpones is taken, and its class values are collected until
//! the last group has decided; then it is emitted with all of them, or given up if there are none. Memory: the
//! demultiplexer's limit for waiting frames, and some bytes for each of them.

use crate::node::{Arrival, Emitted};
use fyke_frame::{Frame, Mask};
use fyke_machine::{Delivery, Endpoints, RecipientId};
use std::collections::HashMap;

/// A frame that some groups have postponed.
#[derive(Debug, Default)]
struct Held {
    source: u32,
    /// Number of groups that have not decided about it.
    groups: u32,
    recipients: Vec<u32>,
}

/// The frames of the current batch.
#[derive(Debug, Default)]
struct Now {
    source: u32,
    /// Sequence number of the first.
    first: u64,
    /// Indices in the batch, by sequence number.
    places: Vec<u16>,
    /// Sequence number and recipient of each delivery to a current frame.
    delivered: Vec<(u64, u32)>,
    /// Frames that a group has postponed.
    postponed: Vec<u64>,
}

impl Now {
    fn has(&self, sequence: u64) -> bool {
        sequence >= self.first && sequence - self.first < self.places.len() as u64
    }

    fn place(&self, sequence: u64) -> usize {
        usize::from(self.places[(sequence - self.first) as usize])
    }
}

/// The recipients of a node.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// Class values by the recipient's number; 0 = no program.
    numbers: Vec<u32>,
    held: HashMap<u64, Held>,
    now: Now,
    /// Frames to be emitted.
    pub late: Emitted,
    /// Frames that were held and that no program accepted.
    pub given_up: u64,
}

impl Recipients {
    /// Gives recipients their class values, from 1 on.
    pub fn number(&mut self, recipients: impl Iterator<Item = RecipientId>) {
        self.numbers.clear();
        for (number, recipient) in (1u32..).zip(recipients) {
            let at = recipient.0 as usize;
            if self.numbers.len() <= at {
                self.numbers.resize(at + 1, 0);
            }
            self.numbers[at] = number;
        }
    }

    /// Drops the deliveries of held frames to a recipient, because its number may be reused.
    pub fn forget(&mut self, recipient: RecipientId) {
        for held in self.held.values_mut() {
            held.recipients.retain(|&other| other != recipient.0);
        }
    }

    /// Frames that are held.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Begins a batch whose frames of `mask` have sequence numbers from `first` on.
    pub fn begin(&mut self, source: u32, first: u64, mask: Mask) {
        self.now.source = source;
        self.now.first = first;
        self.now.places.clear();
        self.now.places.extend(mask.iter().map(|index| index as u16));
    }

    /// Ends the batch: classifies its frames, takes those that were postponed, returns those that pass.
    pub fn end(&mut self, arrival: &mut Arrival<'_>) -> Mask {
        let mut passed = Mask::EMPTY;
        let mut delivered = std::mem::take(&mut self.now.delivered);
        for &(sequence, recipient) in &delivered {
            if let Some(held) = self.held.get_mut(&sequence) {
                held.recipients.push(recipient);
            }
        }
        delivered.retain(|(sequence, _)| !self.held.contains_key(sequence));
        let number = |recipient: u32| self.numbers.get(recipient as usize).copied().unwrap_or(0);
        delivered.sort_unstable_by_key(|&(sequence, recipient)| (sequence, number(recipient)));
        for &(sequence, recipient) in &delivered {
            let index = self.now.place(sequence);
            arrival.classify(index, number(recipient));
            passed.set(index);
        }
        delivered.clear();
        self.now.delivered = delivered;
        let frames = arrival.batch().frames();
        let mut postponed = std::mem::take(&mut self.now.postponed);
        for sequence in postponed.drain(..) {
            let index = self.now.place(sequence);
            arrival.take(index);
            if self.held.get(&sequence).is_some_and(|held| held.groups == 0) {
                self.release(&frames[index], sequence);
            }
        }
        self.now.postponed = postponed;
        // From now on, sequence numbers of this batch refer to held frames.
        self.now.places.clear();
        passed
    }

    /// Emits or gives up a frame about which all groups have decided.
    fn release(&mut self, frame: &Frame<'_>, sequence: u64) {
        let Some(held) = self.held.remove(&sequence) else { return };
        let numbers = held.recipients.iter().filter_map(|&at| self.numbers.get(at as usize));
        let mut numbers: Vec<u32> = numbers.copied().filter(|&number| number > 0).collect();
        if numbers.is_empty() {
            self.given_up += 1;
            return;
        }
        numbers.sort_unstable();
        self.late.push_classified(held.source, frame, &numbers);
    }
}

impl Endpoints for Recipients {
    fn deliver(&mut self, _: &Frame<'_>, delivery: Delivery) {
        let (sequence, recipient) = (delivery.sequence, delivery.recipient.0);
        match self.held.get_mut(&sequence).filter(|_| delivery.late) {
            Some(held) => held.recipients.push(recipient),
            None => self.now.delivered.push((sequence, recipient)),
        }
    }

    fn postponed(&mut self, sequence: u64) {
        let (source, now) = (self.now.source, &mut self.now.postponed);
        let held = self.held.entry(sequence).or_insert_with(|| {
            now.push(sequence);
            Held { source, ..Held::default() }
        });
        held.groups += 1;
    }

    fn settled(&mut self, frame: &Frame<'_>, sequence: u64) {
        let Some(held) = self.held.get_mut(&sequence) else { return };
        held.groups -= 1;
        // Another group may still postpone a frame of this batch.
        if held.groups == 0 && !self.now.has(sequence) {
            self.release(frame, sequence);
        }
    }
}
