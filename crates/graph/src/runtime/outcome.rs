//! Outcomes of the frames of the sources: each is accepted, rejected, taken or lost, once for the whole graph.
//!
//! A frame is *lost* if an output did not take it or a failed node would have received it, even if another branch has
//! it: without losses, every output is complete. Of the other frames, one is *accepted* if an end passes it (a node of
//! a graph text after which that text has no other node), *taken* if a node has taken it, and else *rejected*. So
//! `seen = accepted + rejected + taken + lost`, whatever the branches are; the counts of the nodes show each branch.
//! Frames that nodes emit are not frames of a source and do not count here. If a filter passes a
//! frame late, and every path to an end leads through that filter, the frame moves from rejected to its new outcome.
//! Cost: a few mask operations per node and batch.

use super::view::NodeView;
use crate::node::NodeError;
use fyke_frame::Mask;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reason for which an output loses frames.
pub(super) const WRITER: &str = "writer";

/// Outcomes of frames of sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames that an end passed and no node lost.
    pub accepted: u64,
    /// Frames that reached no end.
    pub rejected: u64,
    /// Frames that a node holds or has replaced, and that no end passed.
    pub taken: u64,
    /// Frames that an output did not take, that arrived at a failed node or that a source could not keep, by reason.
    pub lost: BTreeMap<Arc<str>, u64>,
    /// True if the kernel has rejected other frames without counting them.
    pub uncounted: bool,
}

impl Outcome {
    /// All frames.
    pub fn seen(&self) -> u64 {
        self.accepted + self.rejected + self.taken + self.lost.values().sum::<u64>()
    }

    /// Adds frames lost for a reason.
    pub(super) fn lose(&mut self, reason: &str, count: u64) {
        if count > 0 {
            *self.lost.entry(Arc::from(reason)).or_default() += count;
        }
    }

    /// Moves the frames that outputs have passed and then not written (the reader of a pipe is gone) from accepted to
    /// lost.
    pub(super) fn unwritten(&mut self, nodes: &[NodeView]) {
        let count = late(nodes.iter(), self.accepted);
        self.accepted -= count;
        let is_done = |node: &NodeView| node.failed.as_ref().is_some_and(NodeError::is_done);
        match nodes.iter().filter(|node| node.unwritten > 0).all(is_done) {
            true => self.rejected += count,
            false => self.lose(WRITER, count),
        }
    }

    pub(super) fn add(&mut self, other: &Outcome) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        self.taken += other.taken;
        self.uncounted |= other.uncounted;
        for (reason, count) in &other.lost {
            *self.lost.entry(Arc::clone(reason)).or_default() += count;
        }
    }
}

/// Counts the frames that outputs have passed and then not written, of `accepted` ones. If no two outputs have passed
/// the same frame, these are all of them; else those of the output that has lost most: outputs lose the last frames.
pub(super) fn late<'v>(nodes: impl Iterator<Item = &'v NodeView> + Clone, accepted: u64) -> u64 {
    let losing = nodes.clone().filter(|node| node.unwritten > 0);
    let passed: u64 = nodes.filter(|node| node.is_end).map(|node| node.counts.passed).sum();
    let count = match passed <= accepted {
        true => losing.map(|node| node.unwritten).sum(),
        false => losing.map(|node| node.unwritten).max().unwrap_or(0),
    };
    count.min(accepted)
}

/// Results of the nodes so far for the frames of a window.
#[derive(Debug, Default)]
pub(super) struct Fate {
    accepted: Mask,
    taken: Mask,
    /// Frames that nodes have lost, by reason.
    lost: Vec<(Arc<str>, Mask)>,
    /// Frames that nodes of each text have lost.
    texts_lost: Vec<(u64, Mask)>,
    /// Frames that the ends of each text passed.
    texts: Vec<(u64, Mask)>,
}

impl Fate {
    pub fn clear(&mut self) {
        (self.accepted, self.taken) = (Mask::EMPTY, Mask::EMPTY);
        self.lost.clear();
        self.texts_lost.clear();
        self.texts.clear();
    }

    /// Records the frames that a node passed and took; `texts` are those that it is an end of.
    pub fn judged(&mut self, texts: &[u64], passed: Mask, taken: Mask) {
        self.taken = self.taken | taken;
        if passed.is_empty() {
            return;
        }
        for &text in texts {
            self.accepted = self.accepted | passed;
            match self.texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, mask)) => *mask = *mask | passed,
                None => self.texts.push((text, passed)),
            }
        }
    }

    /// Records the frames that a node of these texts lost.
    pub fn lost(&mut self, reason: impl Fn() -> Arc<str>, texts: &BTreeSet<u64>, frames: Mask) {
        if !frames.is_empty() {
            self.lost.push((reason(), frames));
            self.texts_lost.extend(texts.iter().map(|&text| (text, frames)));
        }
    }

    /// Decides the outcome of the frames of the window.
    pub fn decide(&self, window: Mask, outcome: &mut Outcome) {
        let count = |mask: Mask| mask.count() as u64;
        let mut rest = window;
        for (reason, frames) in &self.lost {
            outcome.lose(reason, count(rest & *frames));
            rest = rest.without(*frames);
        }
        outcome.accepted += count(rest & self.accepted);
        rest = rest.without(self.accepted);
        outcome.taken += count(rest & self.taken);
        outcome.rejected += count(rest.without(self.taken));
    }

    /// Counts the frames of the window that each text accepted.
    pub fn count_texts(&self, window: Mask, texts: &mut BTreeMap<u64, u64>) {
        for (text, passed) in &self.texts {
            let lost = self.texts_lost.iter().filter(|(other, _)| other == text);
            let passed = lost.fold(*passed & window, |left, (_, frames)| left.without(*frames));
            *texts.entry(*text).or_default() += passed.count() as u64;
        }
    }
}
