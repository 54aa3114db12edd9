//! The counts of nodes for other threads, and the outcomes of frames.

use super::super::outcome::{Outcome, WRITER};
use super::super::view::NodeView;
use super::Nodes;
use crate::node::Settled;
use fyke_capture::{Account, Interface};
use fyke_frame::Mask;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// All counts, at one moment.
#[derive(Default, Clone)]
pub(in crate::runtime) struct Counted {
    pub nodes: Vec<NodeView>,
    /// Outcomes of the frames of each source, by its number.
    pub outcomes: BTreeMap<u32, Outcome>,
    /// Number of frames that the ends of each text have accepted.
    pub texts: BTreeMap<u64, u64>,
}

impl Nodes {
    /// Tells outputs whether other nodes get their frames, too. Those of a demultiplexer have frames of their own, and
    /// hand over less often.
    pub(super) fn choose_losses(&mut self) {
        let ends = self.slots.iter().filter(|slot| !slot.plan.ends.is_empty()).count();
        let mut goes_on = vec![false; self.slots.len()];
        for slot in &self.slots {
            slot.plan.feeds.iter().for_each(|feed| goes_on[feed.from] = true);
        }
        for (slot, goes_on) in self.slots.iter_mut().zip(goes_on) {
            let own_frames = slot.plan.feeds.iter().any(|feed| feed.class.is_some());
            if let Some(node) = slot.node.as_mut().filter(|_| slot.plan.class.waits) {
                node.pass_written(goes_on || (ends > 1 && !own_frames));
            }
        }
    }

    /// Returns no nodes yet, for a graph without workers. While `paused` is true, frames of sources are lost.
    pub fn alone(paused: Arc<AtomicBool>) -> Nodes {
        Nodes { never_read: Some(HashMap::new()), paused: Some(paused), ..Nodes::default() }
    }

    /// Returns the counts of a source so far; `None` with several workers.
    pub(super) fn settled(&self, source: u32) -> Option<Settled> {
        let never_read = self.never_read.as_ref()?.get(&source).copied().unwrap_or(0);
        let outcome = self.outcomes.get(&source);
        let received = never_read + outcome.map_or(0, Outcome::seen);
        Some(Settled { received, accepted: outcome.map_or(0, |outcome| outcome.accepted) })
    }

    /// Records the result of a node for the frames of a window, for their outcome.
    pub(super) fn note(&mut self, index: usize, window: Mask) {
        let slot = &self.slots[index];
        match slot.failed {
            // Frames that arrive after the last requested file are not lost.
            Some(ref error) if error.is_done() => {}
            Some(_) => {
                let reason = || format!("{} has failed", slot.plan.name).into();
                self.fate.lost(reason, &slot.plan.texts, slot.arrived & window);
            }
            None => {
                let lost = slot.lost & window;
                self.fate.lost(|| WRITER.into(), &slot.plan.texts, lost);
                self.fate.judged(&slot.plan.ends, slot.out & window, slot.taken & window);
            }
        }
    }

    /// Passes the accounts of live interfaces to all nodes.
    pub fn account(&mut self, accounts: &[(Interface, Account)]) {
        let alive = self.slots.iter_mut().filter(|slot| slot.failed.is_none());
        alive.filter_map(|slot| slot.node.as_mut()).for_each(|node| node.account(accounts));
    }

    /// The counts; with `filters`, also those of filters. `None` if an edit of these is being committed.
    pub fn counted(&self, filters: bool) -> Option<Counted> {
        let nodes = self.slots.iter().map(|slot| slot.view(filters)).collect::<Option<_>>()?;
        Some(Counted { nodes, outcomes: self.outcomes.clone(), texts: self.texts.clone() })
    }

    /// True if every path from a source to an end leads through a node.
    pub(super) fn is_only_way(&self, index: usize) -> bool {
        let mut around = vec![false; self.slots.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let feeds = &slot.plan.feeds;
            around[at] =
                at != index && (feeds.is_empty() || feeds.iter().any(|feed| around[feed.from]));
        }
        !around.iter().zip(&self.slots).any(|(&around, slot)| around && !slot.plan.ends.is_empty())
    }

    /// True if a frame could still reach the end of a branch.
    pub fn leads_anywhere(&self) -> bool {
        let mut alive = vec![false; self.slots.len()];
        let mut leaf = vec![true; self.slots.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            let feeds = &slot.plan.feeds;
            feeds.iter().for_each(|feed| leaf[feed.from] = false);
            let fed = feeds.is_empty() || feeds.iter().any(|feed| alive[feed.from]);
            alive[index] = fed && slot.failed.is_none();
        }
        alive.iter().zip(&leaf).any(|(&alive, &leaf)| alive && leaf)
    }
}
