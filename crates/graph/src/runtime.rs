//! The running graph: every batch runs through all nodes to completion, with exact counts at each of them.
//!
//! A graph has FFPF's phases: *populate* ([`Plan`]), *instantiate* ([`Made::all`]: all nodes and sources are made, or
//! none), *connect* and *activate* ([`Engine`]), *close* (every node finishes, in order). The thread that requests an
//! edit makes the new nodes and hands them over; between two batches the loop moves every node that stays, with state
//! and counts, into the new graph. Nodes that no text contains any more finish and are dropped.
//!
//! `arrived = passed + rejected + taken + lost` at every node after every batch. At a node with several feeds,
//! `arrived + merged` is the sum of the frames that the feeds pass. Cost: one virtual call and some mask operations
//! per node and batch.
//! Source: FFPF, sections 2.2 and 2.6.

mod by_hand;
mod engine;
mod filters;
mod handle;
mod merge;
mod nodes;
mod once;
mod orders;
mod outcome;
mod rings;
mod shown;
mod view;
mod workers;

pub use engine::Engine;
pub use handle::{EditError, GraphHandle, Opened};
pub use outcome::Outcome;
pub use view::{GraphView, NodeView, SourceView};

use crate::language::NodeText;
use crate::node::{Kind, MakeError, Node, PIECES, Settings};
use crate::plan::{Plan, PlanNode, blame};
use fyke_capture::{Interface, Source};
use std::collections::HashMap;

/// Exact counts of a node, in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Arrived over an edge and evaluated.
    pub arrived: u64,
    /// Passed.
    pub passed: u64,
    /// Rejected.
    pub rejected: u64,
    /// Held, or replaced by emitted frames.
    pub taken: u64,
    /// Arrived after the node had failed; for a source, dropped by the kernel.
    pub lost: u64,
    /// New frames that the node made.
    pub emitted: u64,
    /// Arrived over a further edge and not counted again.
    pub merged: u64,
    /// Part of `passed`: first rejected, then passed because of a later edit.
    pub late: u64,
}

impl NodeCounts {
    /// True if every frame that arrived is accounted for.
    pub fn is_exact(&self) -> bool {
        self.arrived == self.passed + self.rejected + self.taken + self.lost
    }

    /// Adds the counts of another copy of the node.
    fn add(&mut self, other: &NodeCounts) {
        self.arrived += other.arrived;
        self.passed += other.passed;
        self.rejected += other.rejected;
        self.taken += other.taken;
        self.lost += other.lost;
        self.emitted += other.emitted;
        self.merged += other.merged;
        self.late += other.late;
    }

    /// Counts frames that the node emitted: new ones, or late ones, which it counted as rejected before.
    fn emitted(&mut self, count: u64, late: bool) {
        if late {
            self.late += count;
            self.passed += count;
            self.rejected -= count;
        } else {
            self.emitted += count;
        }
    }
}

/// A node or a source that is made but not yet connected.
pub enum Made {
    /// A node.
    Node(Box<dyn Node>),
    /// A source.
    Source(Box<dyn Source>),
    /// A source that several workers read: one without frames that represents all, and one for each worker.
    Shares(Box<dyn Source>, Vec<Box<dyn Source>>),
}

/// Reason why a graph cannot be instantiated.
#[derive(Debug, thiserror::Error)]
#[error("{node}: {error}")]
pub struct InstantiateError {
    /// Text of the node, as it was written.
    pub node: String,
    /// Index of the text that contains the node, and the node with its positions in that text.
    pub written: Box<(usize, NodeText)>,
    /// Error of its class.
    pub error: MakeError,
}

impl Made {
    /// Makes all nodes of a plan that do not stay; all or none. Sources come first, so that nodes know the interfaces
    /// before them (`open` has those of the sources that stay, by key). Nodes with lasting side effects, such as
    /// emptying a file, come last.
    ///
    /// # Errors
    /// Of the first node that cannot be made; the nodes made before it are closed.
    pub fn all(
        plan: &Plan,
        stays: &HashMap<u64, u64>,
        open: &HashMap<u64, Vec<Interface>>,
    ) -> Result<Vec<(u64, Made)>, InstantiateError> {
        Made::all_for(plan, stays, open, 1)
    }

    /// Like [`Made::all`], for several workers.
    fn all_for(
        plan: &Plan,
        stays: &HashMap<u64, u64>,
        open: &HashMap<u64, Vec<Interface>>,
        workers: usize,
    ) -> Result<Vec<(u64, Made)>, InstantiateError> {
        let mut made = Vec::new();
        let mut interfaces_before: Vec<Vec<Interface>> = Vec::new();
        let mut interfaces_after: Vec<Vec<Interface>> = Vec::new();
        for node in &plan.nodes {
            let mut interfaces: Vec<Interface> = Vec::new();
            for one in node.feeds.iter().flat_map(|feed| &interfaces_after[feed.from]) {
                if !interfaces.contains(one) {
                    interfaces.push(one.clone());
                }
            }
            let stays_as = stays.get(&node.key);
            if node.class.kind == Kind::Source {
                interfaces = match stays_as {
                    Some(old) => open.get(old).cloned().unwrap_or_default(),
                    None => {
                        let source = Made::source(node, workers);
                        let source = source.map_err(|error| InstantiateError::new(node, error))?;
                        let interfaces = source.interfaces().to_vec();
                        made.push((node.key, source));
                        interfaces
                    }
                };
            }
            // A node that stays and takes new parameters has to be valid for the interfaces before it.
            if let (Some(check), true) =
                (node.class.check, stays_as.is_some_and(|&old| old != node.key))
            {
                let checked = check(&node.settings.after(interfaces.clone()));
                checked.map_err(|error| InstantiateError::new(node, error))?;
            }
            interfaces_after.push(match (node.class.emits_pieces)(&node.settings) {
                true => interfaces.iter().map(as_pieces).collect(),
                false => interfaces.clone(),
            });
            interfaces_before.push(interfaces);
        }
        let mut missing: Vec<_> = plan.nodes.iter().zip(interfaces_before).collect();
        missing.retain(|(node, _)| node.class.kind == Kind::Node && !stays.contains_key(&node.key));
        missing.sort_by_key(|(node, _)| node.class.lasting);
        for (node, interfaces) in missing {
            let more = || plan.all_interfaces(node);
            let one = make(node, interfaces, more);
            let one = one.map_err(|error| InstantiateError::new(node, error))?;
            made.push((node.key, Made::Node(one)));
        }
        Ok(made)
    }

    fn source(node: &PlanNode, workers: usize) -> Result<Made, MakeError> {
        if workers > 1 && node.shares() {
            let (all, shares) = (node.class.open_shares)(&node.settings, workers)?;
            return Ok(Made::Shares(all, shares));
        }
        node.makers.open(&node.class, &node.settings).map(Made::Source)
    }

    /// The interfaces of a source; none of a node.
    fn interfaces(&self) -> &[Interface] {
        match self {
            Made::Source(source) | Made::Shares(source, _) => source.interfaces(),
            Made::Node(_) => &[],
        }
    }

    /// Makes and drops each node of a class that finds some errors only by making one ([`Class::make_checks`]); opens
    /// nothing.
    ///
    /// [`Class::make_checks`]: crate::node::Class::make_checks
    ///
    /// # Errors
    /// Of the first node that cannot be made, with its position in `texts`, the texts of the plan.
    pub fn check(plan: &Plan, texts: &[&str]) -> Result<(), EditError> {
        plan.nodes.iter().filter(|node| node.class.make_checks).try_for_each(|node| {
            let made = node.makers.make(&node.class, &node.settings);
            made.map(drop).map_err(|error| InstantiateError::new(node, error).blame(texts))
        })
    }

    /// Refuses new nodes of an edit that would make all other edits wait.
    fn check_edit(plan: &Plan, stays: &HashMap<u64, u64>) -> Result<(), InstantiateError> {
        let is_new = |node: &&PlanNode| !stays.contains_key(&node.key);
        plan.nodes.iter().filter(is_new).try_for_each(|node| {
            let checked = (node.class.check_edit)(&node.settings);
            checked.map_err(|error| InstantiateError::new(node, error))
        })
    }
}

/// Converts an interface for the nodes after one that emits pieces of streams.
pub(crate) fn as_pieces(interface: &Interface) -> Interface {
    Interface { link: PIECES, ..interface.clone() }
}

/// Makes a node for the interfaces before it. If it does not fit them, tries again with those that `more` adds.
fn make(
    node: &PlanNode,
    interfaces: Vec<Interface>,
    more: impl FnOnce() -> Vec<Interface>,
) -> Result<Box<dyn Node>, MakeError> {
    let make = |settings: &Settings| node.makers.make(&node.class, settings);
    let first = make(&node.settings.after(interfaces.clone()));
    let Err(error) = first else { return first };
    let more = if error.varies { more() } else { Vec::new() };
    let new = more.into_iter().filter(|one| !interfaces.contains(one)).collect::<Vec<_>>();
    if new.is_empty() {
        return Err(error);
    }
    // If this fails too, the first error is reported: it is about the first link type.
    let all = interfaces.into_iter().chain(new).collect();
    make(&node.settings.after(all)).map_err(|_| error)
}

impl InstantiateError {
    fn new(node: &PlanNode, error: MakeError) -> InstantiateError {
        InstantiateError {
            node: node.text.to_string(),
            written: Box::new(node.written.clone()),
            error,
        }
    }

    /// Turns the error into one at its position in the text; unchanged if the system refused a valid request.
    fn blame(self, texts: &[&str]) -> EditError {
        let (text, node) = &*self.written;
        match texts.get(*text) {
            Some(text) if !self.error.refused => blame(text, node, &self.error).into(),
            _ => EditError::Instantiate(self),
        }
    }
}
