//! Frame counts by verdict. Each frame is counted once, under the names of all programs that accept it, joined by `+`.
//!
//! A frame that a group has postponed is counted when the last group has decided on it, so that the counts add up to
//! all frames. Cost: one look-up for a frame that has several recipients or was postponed.

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
    /// Frames accepted by one program.
    single: Vec<u64>,
    /// Frames accepted by several programs.
    several: HashMap<Vec<u32>, u64>,
    rejected: u64,
    /// Frames of the current batch that were delivered.
    now: Vec<(u64, u32)>,
    open: HashMap<u64, Open>,
    /// Open frames that a group has released; another group of this batch may still hold them.
    done: Vec<u64>,
    /// Open frames of the current batch.
    opened: u64,
    /// Frames that were counted or are open.
    seen: u64,
}

impl Tally {
    /// Creates an empty tally; recipient *n* has the *n*-th name.
    pub fn new(names: Vec<String>) -> Tally {
        Tally { single: vec![0; names.len()], names, ..Tally::default() }
    }

    /// Returns the number of frames accepted by any program.
    pub fn accepted(&self) -> u64 {
        self.single.iter().chain(self.several.values()).sum()
    }

    /// Returns the frame counts by verdict, in the order of the names.
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

    /// Ends a batch: all packets so far, including those of this batch, have been dispatched.
    pub fn end_batch(&mut self, packets: u64) {
        let mut now = std::mem::take(&mut self.now);
        now.sort_unstable();
        // A postponed frame is counted when it is decided, not with this batch.
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
