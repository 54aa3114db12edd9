//! A graph as it can be looked at while it runs: a copy of all counts at one moment between two batches.

use super::{NodeCounts, Outcome};
use crate::node::{Counter, Memory, NodeError};
use crate::plan::Feed;
use crate::rules::RuleSet;
use fyke_capture::{Interface, SourceStats};
use fyke_filters::FilterCounts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All counts at one moment.
#[derive(Debug, Clone, Default)]
pub struct GraphView {
    /// The nodes; each comes after those that feed it.
    pub nodes: Vec<NodeView>,
    /// What the sources themselves count.
    pub sources: Vec<SourceView>,
    /// What became of the frames of all sources so far, also of those that have gone.
    pub outcome: Outcome,
    /// The texts by their numbers, each with the frames that an end of it passed.
    pub texts: BTreeMap<u64, (Arc<str>, u64)>,
    /// How many edits of the texts are in force.
    pub epoch: u64,
    /// How long the graph has run.
    pub elapsed: Duration,
}

impl GraphView {
    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The rules of the first node that has some.
    pub fn rules(&self) -> Option<&RuleSet> {
        self.nodes.iter().find_map(|node| node.rules.as_ref())
    }
}

/// A node and its counts.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Never used twice in one graph.
    pub id: u64,
    /// Equal for equal nodes in equal places.
    pub key: u64,
    /// Tag or class.
    pub name: String,
    /// The name of its class.
    pub class: &'static str,
    /// As it was written.
    pub text: Arc<str>,
    /// Whether its counters are shown at the end.
    pub exported: bool,
    /// Indices of the nodes that feed it.
    pub feeds: Vec<Feed>,
    /// Frames.
    pub counts: NodeCounts,
    /// Of the passed frames, those whose output is lost; counted among the lost once all workers are added up.
    pub(super) unwritten: u64,
    /// Whether a text ends with it.
    pub(super) is_end: bool,
    /// What its class counts.
    pub counters: Vec<Counter>,
    /// Why it does not go on.
    pub failed: Option<NodeError>,
    /// Rules that anybody may edit.
    pub rules: Option<RuleSet>,
    /// Words that it writes and anybody reads.
    pub memory: Memory,
    /// Numbers of the texts that it belongs to.
    pub texts: Vec<u64>,
    /// Its filters; only in [snapshots](super::GraphHandle::snapshot).
    pub filters: Option<Arc<FilterCounts>>,
}

impl NodeView {
    /// Counts frames whose output is lost as lost.
    pub(super) fn settle(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten).min(self.counts.passed);
        self.counts.passed -= unwritten;
        self.counts.lost += unwritten;
    }
}

/// A source and its counts.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// The key of its node.
    pub node: u64,
    /// As the source counts.
    pub stats: SourceStats,
    /// Frames that arrived before the stop and were not looked at in time.
    pub unread: u64,
    /// Frames that arrived before the stop and were not looked at because a node had ended the graph.
    pub after_end: u64,
    /// What became of its frames.
    pub outcome: Outcome,
    /// Whether no frame will come again.
    pub ended: bool,
    /// Where its frames come from.
    pub interfaces: Vec<Interface>,
}
