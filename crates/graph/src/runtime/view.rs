//! Views of a running graph: copies of all counts at one moment between two batches.

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
#[non_exhaustive]
pub struct GraphView {
    /// The nodes; each comes after those that feed it.
    pub nodes: Vec<NodeView>,
    /// Counts of the sources.
    pub sources: Vec<SourceView>,
    /// Outcomes of the frames of all sources so far, including sources that have been removed.
    pub outcome: Outcome,
    /// Texts by their numbers, each with the number of frames that an end of it passed.
    pub texts: BTreeMap<u64, (Arc<str>, u64)>,
    /// Frames that the ends of each text passed which the last edit removed, by its number.
    pub last_removed: BTreeMap<u64, u64>,
    /// Frames that the ends of all removed texts passed. A frame counts for each of them.
    pub removed: u64,
    /// Number of edits of the texts in force.
    pub epoch: u64,
    /// Time for which the graph has run.
    pub elapsed: Duration,
}

impl GraphView {
    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The interfaces that are read live, and the outcomes of their frames.
    pub fn by_interface(&self) -> impl Iterator<Item = (&Interface, &Outcome)> {
        self.sources.iter().flat_map(|source| source.interfaces.iter().zip(&source.by_interface))
    }

    /// The rules of the first node that has rules.
    pub fn rules(&self) -> Option<&RuleSet> {
        self.nodes.iter().find_map(|node| node.rules.as_ref())
    }
}

/// A node and its counts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeView {
    /// Number of the node, unique in the graph.
    pub id: u64,
    /// Key of the node: equal for equal nodes at equal positions.
    pub key: u64,
    /// Tag or class.
    pub name: String,
    /// The name of its class.
    pub class: &'static str,
    /// Text, as it was written.
    pub text: Arc<str>,
    /// True if its counters are shown at the end.
    pub exported: bool,
    /// Edges to it.
    pub feeds: Vec<Feed>,
    /// Counts of frames.
    pub counts: NodeCounts,
    /// Passed frames whose output is lost; counted as lost after the counts of all workers are added.
    pub(super) unwritten: u64,
    /// True if it is an end of a text.
    pub(super) is_end: bool,
    /// Counters of its class.
    pub counters: Vec<Counter>,
    /// Entries of its state; only in [snapshots](super::GraphHandle::snapshot).
    pub entries: Vec<(String, u64)>,
    /// Final counts of the parts of its parameters that the last edit removed.
    pub removed: Vec<(Arc<str>, u64)>,
    /// Reason why it does not continue.
    pub failed: Option<NodeError>,
    /// Rules, editable from any thread.
    pub rules: Option<RuleSet>,
    /// Memory buffer, readable from any thread; empty if the class has none.
    pub memory: Memory,
    /// Numbers of the texts that it belongs to.
    pub texts: Vec<u64>,
    /// Its filters; only in [snapshots](super::GraphHandle::snapshot).
    pub filters: Option<Arc<FilterCounts>>,
}

impl NodeView {
    /// Moves frames whose output is lost from passed to lost.
    pub(super) fn settle(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten).min(self.counts.passed);
        self.counts.passed -= unwritten;
        self.counts.lost += unwritten;
    }
}

/// A source and its counts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SourceView {
    /// The key of its node.
    pub node: u64,
    /// Counts of the source itself.
    pub stats: SourceStats,
    /// Counts of each of its rings, if it has several.
    pub rings: Vec<SourceStats>,
    /// Frames that arrived before the stop and were not evaluated in time.
    pub unread: u64,
    /// Frames that arrived before the stop and were not evaluated because a node had ended the graph.
    pub after_end: u64,
    /// Outcomes of its frames.
    pub outcome: Outcome,
    /// Outcomes of the frames of each of its interfaces, as long as those are read live.
    pub by_interface: Vec<Outcome>,
    /// True if no frame will come any more.
    pub ended: bool,
    /// Interfaces of its frames.
    pub interfaces: Vec<Interface>,
}
