//! Outcomes of the frames of the sources: each is accepted, rejected, taken or lost, once for the whole graph.
//!
//! A frame is *accepted* if an end passes it: a node of a graph text after which that text has no other node. Of the
//! other frames, one is *taken* if a node has taken it, *lost* if a failed node would have received it, and else
//! *rejected*. So `seen = accepted + rejected + taken + lost`, whatever the branches are; the counts of the nodes
//! show each branch. Frames that nodes emit are not frames of a source and do not count here. If a filter passes a
//! frame late, and every path to an end leads through that filter, the frame moves from rejected to its new outcome.
//! Cost: a few mask operations per node and batch.

use super::view::NodeView;
use crate::node::NodeError;
use fyke_frame::Mask;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reason for which an end loses frames that it has passed.
const WRITER: &str = "writer";

/// Outcomes of frames of sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames that an end passed.
    pub accepted: u64,
    /// Frames that reached no end.
    pub rejected: u64,
    /// Frames that a node holds or has replaced, and that no end passed.
    pub taken: u64,
    /// Frames that reached no end because a node had failed or a source could not keep them, by reason.
    pub lost: BTreeMap<Arc<str>, u64>,
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

    /// Subtracts the frames that ends have passed and not written. These frames are known in two cases: if every end
    /// has passed all accepted frames (then a frame is lost if no end has written it), and if no two ends have passed
    /// the same frame. In other cases the outcomes stay, and only the counts of the nodes show the loss.
    pub(super) fn unwritten(&mut self, nodes: &[NodeView]) {
        let ends = || nodes.iter().filter(|node| node.is_end);
        let passed: u64 = ends().map(|node| node.counts.passed).sum();
        let all = ends().all(|node| node.counts.passed == self.accepted);
        let count: u64 = match all {
            true => ends().map(|node| node.unwritten).min().unwrap_or(0),
            false if passed == self.accepted => ends().map(|node| node.unwritten).sum(),
            false => 0,
        };
        let count = count.min(self.accepted);
        self.accepted -= count;
        let is_done = |node: &NodeView| node.failed.as_ref().is_some_and(NodeError::is_done);
        match ends().filter(|node| node.unwritten > 0).all(is_done) {
            true => self.rejected += count,
            false => self.lose(WRITER, count),
        }
    }

    pub(super) fn add(&mut self, other: &Outcome) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        self.taken += other.taken;
        for (reason, count) in &other.lost {
            *self.lost.entry(Arc::clone(reason)).or_default() += count;
        }
    }
}

/// Results of the nodes so far for the frames of a window.
#[derive(Debug, Default)]
pub(super) struct Fate {
    accepted: Mask,
    taken: Mask,
    /// Frames that would have reached a failed node, by the name of the first such node.
    lost: Vec<(Arc<str>, Mask)>,
    /// Frames that the ends of each text passed.
    texts: Vec<(u64, Mask)>,
}

impl Fate {
    pub fn clear(&mut self) {
        (self.accepted, self.taken) = (Mask::EMPTY, Mask::EMPTY);
        self.lost.clear();
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

    /// Records the frames that arrived at a failed node.
    pub fn lost(&mut self, node: &str, arrived: Mask) {
        if !arrived.is_empty() {
            self.lost.push((format!("{node} has failed").into(), arrived));
        }
    }

    /// Decides the outcome of the frames of the window, and counts those that each text accepted.
    pub fn decide(&self, window: Mask, outcome: &mut Outcome, texts: &mut BTreeMap<u64, u64>) {
        let count = |mask: Mask| mask.count() as u64;
        let mut rest = window.without(self.accepted);
        outcome.accepted += count(window & self.accepted);
        outcome.taken += count(rest & self.taken);
        rest = rest.without(self.taken);
        for (reason, arrived) in &self.lost {
            outcome.lose(reason, count(rest & *arrived));
            rest = rest.without(*arrived);
        }
        outcome.rejected += count(rest);
        for (text, passed) in &self.texts {
            *texts.entry(*text).or_default() += count(*passed & window);
        }
    }
}
