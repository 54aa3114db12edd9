//! The counts of nodes as others see them, and what nodes say of the fate of frames.

use super::super::outcome::Outcome;
use super::super::view::NodeView;
use super::Nodes;
use fyke_capture::{Account, Interface};
use fyke_frame::Mask;
use std::collections::BTreeMap;

/// All that is counted, at one moment.
#[derive(Default, Clone)]
pub(in crate::runtime) struct Counted {
    pub nodes: Vec<NodeView>,
    /// Of each source, by its number.
    pub outcomes: BTreeMap<u32, Outcome>,
    /// What the ends of each text have accepted.
    pub texts: BTreeMap<u64, u64>,
}

impl Nodes {
    /// Notes what a node has said of the frames of a window for their outcome.
    pub(super) fn note(&mut self, index: usize, window: Mask) {
        let slot = &self.slots[index];
        match slot.failed {
            // What came after the last file that was asked for is not lost.
            Some(ref error) if error.is_done() => {}
            Some(_) => self.fate.lost(&slot.plan.name, slot.arrived & window),
            None => self.fate.judged(&slot.plan.ends, slot.out & window, slot.taken & window),
        }
    }

    /// Tells all nodes what has happened to the frames of live interfaces.
    pub fn account(&mut self, accounts: &[(Interface, Account)]) {
        let alive = self.slots.iter_mut().filter(|slot| slot.failed.is_none());
        alive.filter_map(|slot| slot.node.as_mut()).for_each(|node| node.account(accounts));
    }

    /// The counts; with `filters`, those of filters too. `None` when an edit of these is being committed.
    pub fn counted(&self, filters: bool) -> Option<Counted> {
        let nodes = self.slots.iter().map(|slot| slot.view(filters)).collect::<Option<_>>()?;
        Some(Counted { nodes, outcomes: self.outcomes.clone(), texts: self.texts.clone() })
    }

    /// Whether every way from a source to an end leads through a node.
    pub(super) fn is_only_way(&self, index: usize) -> bool {
        let mut around = vec![false; self.slots.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let feeds = &slot.plan.feeds;
            around[at] =
                at != index && (feeds.is_empty() || feeds.iter().any(|feed| around[feed.from]));
        }
        !around.iter().zip(&self.slots).any(|(&around, slot)| around && !slot.plan.ends.is_empty())
    }
}
