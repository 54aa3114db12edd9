//! Nodes of which one exists for all workers, with a lock, and the distribution of nodes over workers.
//!
//! In the *front*, which evaluates a batch again after a cut, such a node counts when its result is final, and workers
//! with rings evaluate the front one after the other. Elsewhere it counts at once, with its lock held.

use super::merge::Merging;
use super::nodes::Fresh;
use super::orders::lock;
use crate::node::{Arrival, Counter, Emitted, Node, NodeError, Settings};
use crate::plan::PlanNode;
use crate::rules::RuleSet;
use fyke_capture::{Account, Interface};
use fyke_filters::FilterSet;
use fyke_frame::Mask;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A node that all workers use.
struct Shared {
    node: Arc<Mutex<One>>,
    rules: Option<RuleSet>,
    /// True in the front.
    counts_later: bool,
    /// True on the worker that ticks and finishes the node and shows its counters.
    is_first: bool,
}

struct One {
    node: Box<dyn Node>,
    failed: Option<NodeError>,
}

impl Node for Shared {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut one = lock(&self.node);
        if let Some(failed) = &one.failed {
            return Err(failed.clone());
        }
        match one.node.process(arrival) {
            Ok(passed) => {
                if !self.counts_later {
                    // No node cuts here, so the result is final, and no other worker comes between.
                    one.node.settle(arrival.mask());
                }
                Ok(passed)
            }
            Err(error) => {
                one.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn settle(&mut self, frames: Mask) {
        if self.counts_later {
            lock(&self.node).node.settle(frames);
        }
    }

    fn count_later(&mut self, later: bool) {
        self.counts_later = later;
    }

    fn connect(&mut self, filters: &FilterSet) {
        lock(&self.node).node.connect(filters);
    }

    fn tick(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if self.is_first { lock(&self.node).node.tick(emitted) } else { Ok(()) }
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        if self.is_first { lock(&self.node).node.finish(emitted) } else { Ok(()) }
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let mut one = lock(&self.node);
        if let Some(failed) = &one.failed {
            return Err(failed.clone());
        }
        let answer = one.node.make_room(patience);
        if let Err(error) = &answer {
            one.failed = Some(error.clone());
        }
        answer
    }

    fn give_up(&mut self) {
        lock(&self.node).node.give_up();
    }

    fn pass_written(&mut self, at_once: bool) {
        lock(&self.node).node.pass_written(at_once);
    }

    fn lost(&self) -> u64 {
        if self.is_first { lock(&self.node).node.lost() } else { 0 }
    }

    fn account(&mut self, accounts: &[(Interface, Account)]) {
        if self.is_first {
            lock(&self.node).node.account(accounts);
        }
    }

    fn counters(&self) -> Vec<Counter> {
        if self.is_first { lock(&self.node).node.counters() } else { Vec::new() }
    }

    fn entries(&self) -> Vec<(String, u64)> {
        if self.is_first { lock(&self.node).node.entries() } else { Vec::new() }
    }

    fn removed(&self) -> Vec<(Arc<str>, u64)> {
        if self.is_first { lock(&self.node).node.removed() } else { Vec::new() }
    }

    fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_ref()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        !self.is_first || lock(&self.node).node.change(settings)
    }
}

/// Marks the nodes of the front: those that cut, and all before them.
fn front(plan: &[PlanNode]) -> Vec<bool> {
    let mut front = vec![false; plan.len()];
    for (index, node) in plan.iter().enumerate().rev() {
        if front[index] || (node.class.cuts)(&node.settings) {
            front[index] = true;
            node.feeds.iter().for_each(|feed| front[feed.from] = true);
        }
    }
    front
}

/// Distributes the nodes: each worker gets copies of the parallel ones and a share of every other. Returns the plan for
/// the workers, too. `clocks` are those of workers with rings: outputs of theirs write in the order of time.
pub(super) fn parts(
    plan: &[PlanNode],
    mut made: Fresh,
    more: Vec<Fresh>,
    clocks: Option<&Arc<[AtomicU64]>>,
) -> (Vec<PlanNode>, Vec<Fresh>) {
    let (front, mut plan) = (front(plan), plan.to_vec());
    let mut all: Vec<Fresh> = std::iter::once(Fresh::new()).chain(more).collect();
    for (node, in_front) in plan.iter_mut().zip(front) {
        // Elsewhere a shared node counts in `process`.
        node.class.repeatable &= node.class.parallel || in_front;
        let Some(one) = made.remove(&node.key) else { continue };
        if node.class.parallel {
            all[0].insert(node.key, one);
            continue;
        }
        if let Some(clocks) = clocks.filter(|_| node.class.in_time_order) {
            let shares = Merging::shares(one, clocks);
            all.iter_mut().zip(shares).for_each(|(part, share)| {
                part.insert(node.key, Box::new(share));
            });
            continue;
        }
        let rules = one.rules().cloned();
        let shared = Arc::new(Mutex::new(One { node: one, failed: None }));
        for (worker, part) in all.iter_mut().enumerate() {
            let (node_share, rules) = (Arc::clone(&shared), rules.clone());
            let is_first = worker == 0;
            let share = Shared { node: node_share, rules, counts_later: false, is_first };
            part.insert(node.key, Box::new(share));
        }
    }
    (plan, all)
}
