//! The loop over sources: edits are taken over, every source is asked for a batch, the batch runs through the nodes.

use super::Made;
use super::handle::{Pending, Shared};
use super::nodes::{Input, Nodes, Slot};
use super::view::{GraphView, SourceView};
use super::workers::{Crew, copies};
use crate::filters::FilterSet;
use crate::node::{Node, NodeError};
use crate::plan::Plan;
use fyke_capture::{Interface, Next, ReadError, Source, SourceStats};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often nodes are ticked and counts are published.
const TICK: Duration = Duration::from_millis(100);

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
        engine.connect(plan, made, &HashMap::new());
        engine.publish();
        engine
    }

    /// Gives the nodes to several workers; `more` has the copies of parallel nodes for all but the first.
    pub(super) fn share(&mut self, more: Vec<HashMap<u64, Box<dyn Node>>>) -> std::io::Result<()> {
        let copies = copies(std::mem::take(&mut self.nodes), more);
        self.crew = Some(Crew::start(copies)?);
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

    /// One batch of every source; false when all have ended.
    fn turn(&mut self) -> bool {
        let mut more = false;
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            match inlet.source.next() {
                Ok(Next::Frames(batch, held)) => {
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
        for index in 0..self.nodes.slots.len() {
            let key = self.nodes.slots[index].plan.key;
            if !pending.stays.values().any(|&stays| stays == key) {
                self.nodes.finish(index);
            }
        }
        self.connect(pending.plan, pending.made, &pending.stays);
        self.publish();
        self.shared.taken_over();
    }

    /// Builds the slots of a plan from those that stay (new key to old key) and those that were made for it.
    fn connect(&mut self, plan: Plan, made: Vec<(u64, Made)>, stays: &HashMap<u64, u64>) {
        let mut old: HashMap<u64, Slot> = HashMap::new();
        for slot in self.nodes.slots.drain(..) {
            old.insert(slot.plan.key, slot);
        }
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
        let mut misfits = Vec::new();
        for (at, mut node) in plan.nodes.into_iter().enumerate() {
            if let Some(inlet) = inlets.remove(&node.key) {
                self.inlets.push(Inlet { at, ..inlet });
            }
            let slot = match stays.get(&node.key).and_then(|key| old.remove(key)) {
                None => Slot::new(fresh.remove(&node.key), node),
                Some(mut slot) => {
                    node.settings.keep_memory(&slot.plan.settings);
                    if node.settings.pairs() != slot.plan.settings.pairs() {
                        let changed = slot.node.as_mut().map(|kept| kept.change(&node.settings));
                        misfits.extend((changed == Some(false)).then_some(at));
                    }
                    slot.plan = node;
                    slot
                }
            };
            self.nodes.slots.push(slot);
        }
        for at in misfits {
            self.nodes.fail(at, NodeError::new("it does not take its new parameters"));
        }
        self.nodes.arrange();
    }
}
