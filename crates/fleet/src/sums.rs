//! The sums of a queue: what shippers sent to it, and what workers took from it.
//!
//! A shipper that ends tells its account. One that was killed does not: the last of its batches tells how many frames
//! it shipped, and what it had read besides is unknown.

use crate::archive::NodeCounts;
use crate::exchange::{Head, Shipped, TakenRow, Told};
use crate::refused::Refusal;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The batches of a session that have a row: all up to a place, and some after it.
#[derive(Debug, Clone, Default)]
struct Known {
    up_to: u64,
    after: BTreeSet<u64>,
    /// The highest place, and the frames up to it.
    reached: (u64, u64),
}

impl Known {
    /// Takes note of a batch: a shipper makes one after the other.
    fn reach(&mut self, sequence: u64, before: u64, frames: u64) {
        self.reached = self.reached.max((sequence, before.saturating_add(frames)));
    }

    /// Adds a batch; false if it is known.
    fn insert(&mut self, sequence: u64) -> bool {
        if sequence <= self.up_to || !self.after.insert(sequence) {
            return false;
        }
        while self.after.remove(&(self.up_to + 1)) {
            self.up_to += 1;
        }
        true
    }
}

/// Batches and frames of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkerSum {
    /// Batches with a row that counts.
    pub batches: u64,
    /// Their frames.
    pub frames: u64,
    /// Batches that failed; their frames are lost.
    pub failed: u64,
    /// Batches of which another row counts, and their frames: they were delivered again.
    pub again: u64,
    /// Frames of those.
    pub again_frames: u64,
    /// Frames by their outcome, and counts of each node.
    pub nodes: Vec<NodeCounts>,
}

impl WorkerSum {
    /// Adds the row of a batch that counts.
    pub fn add(&mut self, row: &TakenRow) {
        self.batches += 1;
        self.frames += row.frames;
        self.failed += u64::from(row.failed.is_some());
        add_nodes(&mut self.nodes, &row.nodes);
    }
}

fn add_nodes(sums: &mut Vec<NodeCounts>, nodes: &[NodeCounts]) {
    for (at, node) in nodes.iter().enumerate() {
        match sums.get_mut(at) {
            Some(sum) => sum.add(node),
            None => sums.push(node.clone()),
        }
    }
}

/// The sums of a queue: what was shipped to it, what was taken from it.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// The last account of each run of a shipper.
    pub shipped: BTreeMap<String, Shipped>,
    /// The workers, by name.
    pub workers: BTreeMap<String, WorkerSum>,
    /// All of them.
    pub all: WorkerSum,
    /// Batches that no worker has finished.
    pub waiting: u64,
    /// Runs of shippers that have not ended, and gave no sign of life for 30 s: frames that they had read after their
    /// last batch are unknown.
    pub silent: BTreeSet<String>,
    /// Refusals of batches that may still wait: one for each worker, author and reason, with the deliveries of
    /// all of them, and the number of batches.
    pub refused: Vec<(Refusal, u64)>,
    /// Messages that were no batches and were removed.
    pub removed: u64,
    known: BTreeMap<String, Known>,
}

impl Sums {
    pub(crate) fn add(&mut self, told: Told) {
        match told {
            Told::Shipped(account) => drop(self.shipped.insert(account.session.clone(), account)),
            Told::Taken(row) => {
                let worker = self.workers.entry(row.worker.clone()).or_default();
                let known = self.known.entry(row.session.clone()).or_default();
                known.reach(row.sequence, row.before, row.frames);
                match known.insert(row.sequence) {
                    true => {
                        worker.add(&row);
                        self.all.add(&row);
                    }
                    false => {
                        for sum in [worker, &mut self.all] {
                            sum.again += 1;
                            sum.again_frames += row.frames;
                        }
                    }
                }
            }
        }
    }

    /// The runs of shippers without a last account.
    pub(crate) fn not_ended(&self) -> Vec<String> {
        let open = self.shipped.values().filter(|account| !account.ended);
        open.map(|account| account.session.clone()).collect()
    }

    /// Adds to the account of a shipper that is gone what its rows, and its last batch that waits, tell.
    pub(crate) fn add_silent(&mut self, session: &str, last: Option<&Head>) {
        let Some(account) = self.shipped.get_mut(session) else { return };
        let mut known = self.known.get(session).cloned().unwrap_or_default();
        if let Some(head) = last {
            known.reach(head.sequence, head.before, head.frames);
        }
        let (batches, frames) = known.reached;
        if batches > account.batches {
            (account.batches, account.shipped) = (batches, frames);
        }
        self.silent.insert(session.to_owned());
    }

    pub(crate) fn add_refusal(&mut self, refusal: Refusal) {
        if refusal.ended {
            self.removed += 1;
        } else if self.waiting > 0 {
            let is_same = |(other, _): &&mut (Refusal, u64)| other.is_like(&refusal);
            match self.refused.iter_mut().find(is_same) {
                Some((like, count)) => {
                    like.deliveries += refusal.deliveries;
                    *count += 1;
                }
                None => self.refused.push((refusal, 1)),
            }
        }
    }

    /// Frames that were shipped.
    pub fn frames_shipped(&self) -> u64 {
        self.shipped.values().fold(0, |sum, account| sum.saturating_add(account.shipped))
    }

    /// True if nothing was ever shipped to the queue.
    pub fn is_empty(&self) -> bool {
        let taken = self.all.batches + self.waiting + self.removed;
        self.shipped.is_empty() && self.refused.is_empty() && taken == 0
    }

    /// True if every frame that was shipped has an outcome, and no shipper runs.
    pub fn is_closed(&self) -> bool {
        let accounts = self.shipped.values();
        let batches = accounts.fold(0_u64, |sum, account| sum.saturating_add(account.batches));
        let is_over = |account: &Shipped| account.ended || self.silent.contains(&account.session);
        self.shipped.values().all(is_over)
            && self.waiting == 0
            && (batches, self.frames_shipped()) == (self.all.batches, self.all.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(worker: &str, sequence: u64) -> Told {
        let node = NodeCounts { arrived: 10, passed: 4, rejected: 6, ..NodeCounts::default() };
        Told::Taken(TakenRow {
            session: "s".to_owned(),
            sequence,
            frames: 10,
            before: 10 * (sequence - 1),
            worker: worker.to_owned(),
            attempt: 1,
            nodes: vec![node],
            failed: None,
        })
    }

    #[test]
    fn of_several_rows_of_a_batch_the_first_counts() {
        let mut sums = Sums::default();
        for (worker, sequence) in [("a", 2), ("b", 1), ("b", 2), ("a", 1), ("a", 3)] {
            sums.add(row(worker, sequence));
        }
        assert_eq!((sums.all.batches, sums.all.frames, sums.all.again), (3, 30, 2));
        let [a, b] = ["a", "b"].map(|name| sums.workers[name].clone());
        assert_eq!((a.batches, a.again, b.batches, b.again, b.again_frames), (2, 1, 1, 1, 10));
        assert_eq!((sums.all.nodes[0].arrived, sums.all.nodes[0].passed), (30, 12));
        assert!(!sums.is_closed());
        let account = Shipped { batches: 3, shipped: 30, ended: true, ..Shipped::default() };
        sums.add(Told::Shipped(account));
        assert!(sums.is_closed());
    }

    #[test]
    fn the_last_batch_of_a_killed_shipper_tells_what_it_shipped() {
        let mut sums = Sums::default();
        let account =
            Shipped { session: "s".into(), batches: 1, shipped: 10, ..Shipped::default() };
        sums.add(Told::Shipped(account));
        sums.add(row("a", 2));
        sums.add(row("a", 1));
        assert_eq!(sums.not_ended(), ["s"]);
        assert!(!sums.is_closed());
        sums.add_silent("s", None);
        assert_eq!((sums.shipped["s"].batches, sums.frames_shipped()), (2, 20));
        assert!(sums.is_closed());
        let head = serde_json::json!({
            "version": 1, "group": "g", "queue": "q", "sensor": "o", "session": "s", "sequence": 3,
            "frames": 7, "before": 20, "interfaces": [], "digest": "",
        });
        sums.add_silent("s", Some(&serde_json::from_value(head).unwrap()));
        assert_eq!((sums.shipped["s"].batches, sums.frames_shipped()), (3, 27));
        assert!(!sums.is_closed());
    }

    #[test]
    fn refusals_count_while_batches_wait_only() {
        let refusal = |message| Refusal {
            worker: "a".into(),
            author: "eve".into(),
            message,
            deliveries: 2,
            reason: "no".into(),
            for_key: true,
            ended: message == 3,
        };
        let mut sums = Sums { waiting: 2, ..Sums::default() };
        (1..=3).for_each(|message| sums.add_refusal(refusal(message)));
        assert_eq!(sums.refused, [(Refusal { deliveries: 4, ..refusal(1) }, 2)]);
        assert_eq!(sums.removed, 1);
        let mut sums = Sums::default();
        sums.add_refusal(refusal(1));
        assert!(sums.refused.is_empty());
    }
}
