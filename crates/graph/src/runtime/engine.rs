//! The loop over sources: edits are taken over, every source is asked for a batch, the batch runs through the nodes.

use super::Made;
use super::handle::{Pending, Shared};
use super::nodes::{Fresh, Input, Nodes, Slot};
use super::view::{GraphView, SourceView};
use super::workers::Crew;
use crate::filters::FilterSet;
use crate::node::NodeError;
use crate::plan::Plan;
use fyke_capture::{Interface, Next, ReadError, Source, SourceStats};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often nodes are ticked and counts are published.
const TICK: Duration = Duration::from_millis(100);
/// How long frames are waited for before anything else is looked at.
const PATIENCE: Duration = Duration::from_millis(20);

/// A source, connected.
struct Inlet {
    key: u64,
    /// Where its slot is.
    at: usize,
    number: u32,
    source: Box<dyn Source>,
    stats: SourceStats,
    ended: bool,
    failed: Option<NodeError>,
}

/// A graph at work.
pub struct Engine {
    inlets: Vec<Inlet>,
    nodes: Nodes,
    /// Who has the nodes instead, when there are several workers.
    crew: Option<Crew>,
    shared: Arc<Shared>,
    next_inlet: u32,
    started: Instant,
    error: Option<ReadError>,
    /// Whether the first node that fails ends the graph.
    all_or_none: bool,
}

impl Engine {
    pub(super) fn new(plan: Plan, made: Vec<(u64, Made)>, shared: Arc<Shared>) -> Engine {
        let mut engine = Engine {
            inlets: Vec::new(),
            nodes: Nodes::default(),
            crew: None,
            shared,
            next_inlet: 0,
            started: Instant::now(),
            error: None,
            all_or_none: false,
        };
        engine.connect(plan, made, Vec::new(), &HashMap::new());
        engine.publish();
        engine
    }

    /// Gives the nodes to several workers; `more` has the copies of parallel nodes for all but the first.
    pub(super) fn share(&mut self, more: Vec<Fresh>) -> std::io::Result<()> {
        let mut made = HashMap::new();
        let mut plan = Vec::new();
        for slot in self.nodes.slots.drain(..) {
            slot.node.map(|node| made.insert(slot.plan.key, node));
            plan.push(slot.plan);
        }
        let mut crew = Crew::start(more.len() + 1)?;
        crew.edit(&plan, made, more, &HashMap::new());
        self.crew = Some(crew);
        Ok(())
    }

    /// Ends the graph as soon as one node has failed. Without it the graph ends when no branch is left.
    pub fn end_at_first_failure(&mut self) {
        self.all_or_none = true;
    }

    /// The filters of the node of this name, for whoever wants to edit them.
    pub fn filters(&self, name: &str) -> Option<FilterSet> {
        let slot = self.nodes.slots.iter().find(|slot| slot.plan.name == name)?;
        slot.node.as_ref()?.filters().cloned()
    }

    /// The interfaces of all sources.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.inlets.iter().flat_map(|inlet| inlet.source.interfaces())
    }

    /// Runs until all sources have ended, a node ends the graph, no branch is left or `stop` becomes true; then every
    /// node finishes.
    ///
    /// # Errors
    /// The first failure of a source; the other sources and all nodes have gone on to their end.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), ReadError> {
        let mut ticked = Instant::now();
        let mut failures = 0;
        while !stop.load(Ordering::Relaxed) && !self.nodes.ended {
            if let Some(pending) = self.shared.take() {
                self.take_over(pending);
            }
            if !self.turn() {
                break;
            }
            if self.nodes.failures > failures {
                failures = self.nodes.failures;
                if self.all_or_none || !self.nodes.leads_anywhere() {
                    break;
                }
            }
            if self.crew.as_ref().is_some_and(|crew| crew.broken) {
                break;
            }
            if ticked.elapsed() >= TICK {
                match &mut self.crew {
                    Some(crew) => crew.flush(),
                    None => self.nodes.tick(),
                }
                self.publish();
                ticked = Instant::now();
            }
        }
        self.shared.close();
        if let Some(crew) = &mut self.crew {
            crew.finish();
        }
        (0..self.nodes.slots.len()).for_each(|index| self.nodes.finish(index));
        self.publish();
        self.error.take().map_or(Ok(()), Err)
    }

    /// One batch of every source; false when all have ended. Several live ones are asked without waiting, and waited
    /// for together.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let mut idle = true;
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            match inlet.source.next() {
                Ok(Next::Frames(batch, held)) => {
                    idle = false;
                    let (source, interfaces) = (inlet.number, held.interfaces());
                    let input = Input {
                        batch: &batch,
                        source,
                        interfaces,
                        held: Some(held),
                        emitted: None,
                    };
                    match &mut self.crew {
                        Some(crew) => crew.share(inlet.at, &input),
                        None => self.nodes.arrive(inlet.at, &input),
                    }
                }
                Ok(Next::Idle) => self.crew.iter_mut().for_each(Crew::flush),
                Ok(Next::End) => inlet.ended = true,
                Err(error) => {
                    inlet.ended = true;
                    inlet.failed = Some(NodeError::new(error.to_string()));
                    self.error.get_or_insert(error);
                }
            }
            more = true;
            if self.nodes.ended {
                break;
            }
        }
        let live = || self.inlets.iter().filter(|inlet| !inlet.ended);
        let readiness: Vec<_> = match idle && live().count() > 1 {
            true => live().filter_map(|inlet| inlet.source.readiness()).collect(),
            false => Vec::new(),
        };
        // A source that waits by itself has waited already.
        if !readiness.is_empty() && readiness.len() == live().count() {
            fyke_capture::wait_for_any(&readiness, PATIENCE);
        }
        more
    }

    /// The counts as of now; with several workers, as of the last tenth of a second.
    pub fn view(&mut self) -> GraphView {
        let mut nodes = match &self.crew {
            Some(crew) => crew.view(),
            None => self.nodes.slots.iter().map(Slot::view).collect(),
        };
        for inlet in &mut self.inlets {
            inlet.stats = inlet.source.stats();
            let node = &mut nodes[inlet.at];
            node.failed = inlet.failed.clone();
            node.counts.lost = inlet.stats.dropped;
            node.counts.arrived += inlet.stats.dropped;
        }
        let sources = self.inlets.iter().map(|inlet| SourceView {
            node: inlet.key,
            stats: inlet.stats,
            ended: inlet.ended,
            interfaces: inlet.source.interfaces().to_vec(),
        });
        GraphView { sources: sources.collect(), nodes, elapsed: self.started.elapsed() }
    }

    fn publish(&mut self) {
        let view = self.view();
        self.shared.publish(view);
    }

    /// Puts an edited graph in the place of the running one, between two batches.
    fn take_over(&mut self, pending: Pending) {
        self.connect(pending.plan, pending.made, pending.more, &pending.stays);
        self.publish();
        self.shared.taken_over();
    }

    /// Connects the nodes of a plan: those that stay (new key to old key), and those that were made for it.
    fn connect(
        &mut self,
        plan: Plan,
        made: Vec<(u64, Made)>,
        more: Vec<Fresh>,
        stays: &HashMap<u64, u64>,
    ) {
        let mut fresh = HashMap::new();
        let mut inlets: HashMap<u64, Inlet> =
            self.inlets.drain(..).map(|inlet| (inlet.key, inlet)).collect();
        for (key, made) in made {
            match made {
                Made::Node(node) => drop(fresh.insert(key, node)),
                Made::Source(source) => {
                    let number = self.next_inlet;
                    self.next_inlet += 1;
                    self.nodes.interfaces.insert(number, source.interfaces().to_vec());
                    let stats = SourceStats::default();
                    let (ended, failed) = (false, None);
                    let inlet = Inlet { key, at: 0, number, source, stats, ended, failed };
                    inlets.insert(key, inlet);
                }
            }
        }
        for (at, node) in plan.nodes.iter().enumerate() {
            self.inlets.extend(inlets.remove(&node.key).map(|inlet| Inlet { at, ..inlet }));
        }
        let alone = self.inlets.len() < 2;
        for inlet in &mut self.inlets {
            inlet.source.set_patience(if alone { PATIENCE } else { Duration::ZERO });
        }
        match &mut self.crew {
            Some(crew) => crew.edit(&plan.nodes, fresh, more, stays),
            None => self.nodes.rebuild(plan.nodes, fresh, stays),
        }
    }
}
