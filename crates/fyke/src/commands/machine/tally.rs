//! Frames by verdict, each counted once: under the names of all programs that take it, joined by `+`.
//!
//! A frame that some group has postponed is counted when the last group is done with it, so that all lines add up to
//! all frames. Cost: one look-up for a frame with several recipients or one that was postponed.

use fyke_frame::Frame;
use fyke_machine::{Delivery, Endpoints};
use std::collections::{BTreeMap, HashMap};

/// A frame that groups have postponed.
#[derive(Debug, Default)]
struct Open {
    groups: u32,
    recipients: Vec<u32>,
}

/// The counts of a run.
#[derive(Debug, Default)]
pub struct Tally {
    names: Vec<String>,
    /// Frames that one program takes.
    single: Vec<u64>,
    /// Frames that several programs take.
    several: HashMap<Vec<u32>, u64>,
    rejected: u64,
    /// What was delivered of the batch at hand.
    now: Vec<(u64, u32)>,
    open: HashMap<u64, Open>,
    /// Open frames that no group holds any more, unless another one of this batch does.
    done: Vec<u64>,
    /// Frames of the batch at hand that are open.
    opened: u64,
    /// Frames that were counted or are open.
    seen: u64,
}

impl Tally {
    /// Nothing counted; recipient *n* has the name *n*.
    pub fn new(names: Vec<String>) -> Tally {
        Tally { single: vec![0; names.len()], names, ..Tally::default() }
    }

    /// Frames that a program takes.
    pub fn accepted(&self) -> u64 {
        self.single.iter().chain(self.several.values()).sum()
    }

    /// Frames by verdict, in the order of the names.
    pub fn verdicts(&self) -> BTreeMap<String, u64> {
        let mut verdicts = BTreeMap::from([("reject".to_owned(), self.rejected)]);
        for (name, frames) in self.names.iter().zip(&self.single) {
            *verdicts.entry(name.clone()).or_default() += frames;
        }
        for (recipients, frames) in &self.several {
            let names = recipients.iter().map(|&number| self.names[number as usize].as_str());
            let name = names.collect::<Vec<_>>().join("+");
            *verdicts.entry(name).or_default() += frames;
        }
        verdicts
    }

    /// All packets so far, the last ones of this batch among them, have been dispatched.
    pub fn end_batch(&mut self, packets: u64) {
        let mut now = std::mem::take(&mut self.now);
        now.sort_unstable();
        // A postponed frame is counted when it is settled, not with this batch.
        let mut rejected = packets - self.seen - std::mem::take(&mut self.opened);
        self.seen = packets;
        for frame in now.chunk_by(|one, other| one.0 == other.0) {
            let recipients = frame.iter().map(|&(_, recipient)| recipient);
            if let Some(open) = self.open.get_mut(&frame[0].0) {
                open.recipients.extend(recipients);
                continue;
            }
            rejected -= 1;
            match frame {
                [(_, one)] => self.single[*one as usize] += 1,
                _ => self.count(recipients.collect()),
            }
        }
        now.clear();
        self.now = now;
        self.rejected += rejected;
        for sequence in std::mem::take(&mut self.done) {
            if self.open.get(&sequence).is_some_and(|open| open.groups == 0)
                && let Some(open) = self.open.remove(&sequence)
            {
                self.count(open.recipients);
            }
        }
    }

    fn count(&mut self, mut recipients: Vec<u32>) {
        recipients.sort_unstable();
        match recipients.as_slice() {
            [] => self.rejected += 1,
            [one] => self.single[*one as usize] += 1,
            _ => *self.several.entry(recipients).or_default() += 1,
        }
    }
}

impl Endpoints for Tally {
    fn deliver(&mut self, _: &Frame<'_>, delivery: Delivery) {
        self.now.push((delivery.sequence, delivery.recipient.0));
    }

    fn postponed(&mut self, sequence: u64) {
        let opened = &mut self.opened;
        let open = self.open.entry(sequence).or_insert_with(|| {
            *opened += 1;
            Open::default()
        });
        open.groups += 1;
    }

    fn settled(&mut self, _: &Frame<'_>, sequence: u64) {
        let Some(open) = self.open.get_mut(&sequence) else { return };
        open.groups -= 1;
        if open.groups == 0 {
            self.done.push(sequence);
        }
    }
}
