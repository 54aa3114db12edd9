//! The counts of nodes for other threads, and the outcomes of frames.

use super::super::outcome::{self, Outcome, WRITER};
use super::super::view::NodeView;
use super::{Input, Nodes, PAUSED};
use crate::node::Settled;
use fyke_capture::{Account, Interface};
use fyke_frame::Mask;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// All counts, at one moment.
#[derive(Default, Clone)]
pub(in crate::runtime) struct Counted {
    pub nodes: Vec<NodeView>,
    /// Outcomes of the frames of each source, by its number.
    pub outcomes: BTreeMap<u32, Outcome>,
    /// The same for each interface of the sources that merge several.
    pub by_interface: BTreeMap<u32, Vec<Outcome>>,
    /// Number of frames that the ends of each text have accepted.
    pub texts: BTreeMap<u64, u64>,
    /// The same for the texts that the last edit removed, and the sum for all removed ones.
    pub last_removed: BTreeMap<u64, u64>,
    pub removed: u64,
}

/// Passes the frames of a mask to `count`, by interface.
fn each_interface(
    input: &Input<'_>,
    frames: Mask,
    all: &mut [Outcome],
    count: impl Fn(&mut Outcome, Mask),
) {
    let mut rest = frames;
    while !rest.is_empty() {
        let (mut its, mut indices) = (Mask::EMPTY, rest.iter());
        let first = indices.next().unwrap_or_default();
        let of = input.batch.frames()[first].interface;
        let same = |&index: &usize| input.batch.frames()[index].interface == of;
        its.set(first);
        indices.filter(same).for_each(|index| its.set(index));
        all.get_mut(of as usize).into_iter().for_each(|one| count(one, its));
        rest = rest.without(its);
    }
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

    /// Decides the outcome of the frames of a window.
    pub(super) fn decide(&mut self, input: &Input<'_>, window: Mask) {
        let outcome = self.outcomes.entry(input.source).or_default();
        self.fate.decide(window, outcome);
        self.fate.count_texts(window, &mut self.texts);
        let fate = &self.fate;
        if let Some(all) = self.by_interface.get_mut(&input.source) {
            each_interface(input, window, all, |one, frames| fate.decide(frames, one));
        }
    }

    /// Counts the frames of a batch as lost, because the graph is paused.
    pub fn lose_paused(&mut self, from: usize, input: &Input<'_>) {
        let count = input.batch.len() as u64;
        let counts = &mut self.slots[from].counts;
        counts.arrived += count;
        counts.lost += count;
        self.outcomes.entry(input.source).or_default().lose(PAUSED, count);
        if let Some(all) = self.by_interface.get_mut(&input.source) {
            let lose = |one: &mut Outcome, frames: Mask| one.lose(PAUSED, frames.count() as u64);
            each_interface(input, input.batch.all(), all, lose);
        }
    }

    /// Removes the first frames of a batch from the rejected ones: they have another outcome now.
    pub(super) fn leave_rejected(&mut self, input: &Input<'_>, count: usize) {
        let leave = |one: &mut Outcome, frames: Mask| {
            one.rejected = one.rejected.saturating_sub(frames.count() as u64);
        };
        let frames = Mask::first(count);
        self.outcomes.get_mut(&input.source).into_iter().for_each(|one| leave(one, frames));
        if let Some(all) = self.by_interface.get_mut(&input.source) {
            each_interface(input, frames, all, leave);
        }
    }

    /// Returns the counts of a source so far; `None` with several workers, and for several interfaces.
    pub(super) fn settled(&self, source: u32) -> Option<Settled> {
        if self.by_interface.contains_key(&source) {
            return None;
        }
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
        Some(Counted {
            nodes,
            outcomes: self.outcomes.clone(),
            by_interface: self.by_interface.clone(),
            texts: self.texts.clone(),
            last_removed: self.last_removed.clone(),
            removed: self.removed,
        })
    }

    /// Takes the counts of all texts but these out, as the last of the texts that are removed. The nodes that do not
    /// stay have finished.
    pub(super) fn forget_texts(&mut self, staying: &BTreeSet<u64>) {
        let is_gone = |text: &u64| !staying.contains(text);
        let gone: Vec<_> = self.texts.keys().copied().filter(is_gone).collect();
        self.last_removed.clear();
        for text in gone {
            let passed = self.texts.remove(&text).unwrap_or_default();
            let own = self.slots.iter().filter(|slot| slot.plan.texts.contains(&text));
            let own: Vec<_> = own.filter_map(|slot| slot.view(false)).collect();
            let accepted = passed - outcome::late(own.iter(), passed);
            self.last_removed.insert(text, accepted);
            self.removed += accepted;
        }
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

    /// True if a node with this tag has failed.
    pub fn has_failed(&self, tag: &str) -> bool {
        self.slots.iter().any(|slot| slot.failed.is_some() && slot.plan.tags.contains(tag))
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
