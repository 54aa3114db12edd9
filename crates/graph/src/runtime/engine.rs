//! The loop over sources and nodes. Steps per batch, for every node in topological order: join what its feeds pass,
//! call it, count. Frames that a node emits run through its successors afterwards, as batches of their own.

use super::handle::{Pending, Shared};
use super::view::{GraphView, NodeView, SourceView};
use super::{Made, NodeCounts};
use crate::node::{Arrival, Emitted, Kind, Node, NodeError};
use crate::plan::{Feed, Join, Plan, PlanNode};
use fyke_capture::{Interface, Next, ReadError, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch, Mask};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often nodes are ticked and counts are published.
const TICK: Duration = Duration::from_millis(100);

/// A node, connected.
struct Slot {
    plan: PlanNode,
    node: Option<Box<dyn Node>>,
    failed: Option<String>,
    counts: NodeCounts,
    out: Mask,
    emitted: Emitted,
    /// Where the class values of arriving frames stand, and those of frames it passes.
    classes_in: usize,
    classes_out: usize,
    mixes: bool,
}

/// A source, connected.
struct Inlet {
    key: u64,
    number: u32,
    source: Box<dyn Source>,
    stats: SourceStats,
    ended: bool,
}

/// A graph at work.
pub struct Engine {
    inlets: Vec<Inlet>,
    nodes: Nodes,
    shared: Arc<Shared>,
    next_inlet: u32,
    started: Instant,
    error: Option<ReadError>,
}

/// What frames run through.
#[derive(Default)]
struct Nodes {
    slots: Vec<Slot>,
    columns: Vec<Vec<u16>>,
    interfaces: HashMap<u32, Vec<Interface>>,
}

impl Engine {
    pub(super) fn new(plan: Plan, made: Vec<(u64, Made)>, shared: Arc<Shared>) -> Engine {
        let mut engine = Engine {
            inlets: Vec::new(),
            nodes: Nodes::default(),
            shared,
            next_inlet: 0,
            started: Instant::now(),
            error: None,
        };
        engine.connect(plan, made);
        engine.publish();
        engine
    }

    /// Runs until all sources have ended or `stop` becomes true; then every node finishes.
    ///
    /// # Errors
    /// The first failure of a source; the other sources and all nodes have gone on to their end.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), ReadError> {
        let mut ticked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if let Some(pending) = self.shared.take() {
                self.take_over(pending);
            }
            if !self.turn() {
                break;
            }
            if ticked.elapsed() >= TICK {
                self.nodes.tick();
                self.publish();
                ticked = Instant::now();
            }
        }
        self.shared.close();
        self.nodes.finish();
        self.publish();
        self.error.take().map_or(Ok(()), Err)
    }

    /// One batch of every source; false when all have ended.
    fn turn(&mut self) -> bool {
        let mut more = false;
        for inlet in self.inlets.iter_mut().filter(|inlet| !inlet.ended) {
            match inlet.source.next() {
                Ok(Next::Frames(batch, held)) => {
                    self.nodes.arrive(inlet.key, inlet.number, &batch, held.interfaces());
                }
                Ok(Next::Idle) => {}
                Ok(Next::End) => inlet.ended = true,
                Err(error) => {
                    inlet.ended = true;
                    self.nodes.source_failed(inlet.key, &error);
                    self.error.get_or_insert(error);
                }
            }
            more = true;
        }
        more
    }

    /// The counts as of now.
    pub fn view(&mut self) -> GraphView {
        for inlet in &mut self.inlets {
            inlet.stats = inlet.source.stats();
            if let Some(slot) = self.nodes.slots.iter_mut().find(|slot| slot.plan.key == inlet.key)
            {
                let counts = &mut slot.counts;
                counts.arrived -= counts.lost;
                counts.lost = inlet.stats.dropped;
                counts.arrived += counts.lost;
            }
        }
        let sources = self.inlets.iter().map(|inlet| SourceView {
            node: inlet.key,
            stats: inlet.stats,
            ended: inlet.ended,
        });
        GraphView {
            sources: sources.collect(),
            nodes: self.nodes.slots.iter().map(Slot::view).collect(),
            elapsed: self.started.elapsed(),
        }
    }

    fn publish(&mut self) {
        let view = self.view();
        self.shared.publish(view);
    }

    /// Puts an edited graph in the place of the running one, between two batches.
    fn take_over(&mut self, pending: Pending) {
        let stays = |key: u64| pending.plan.find(key).is_some();
        for index in 0..self.nodes.slots.len() {
            if !stays(self.nodes.slots[index].plan.key) {
                self.nodes.finish_one(index);
            }
        }
        self.connect(pending.plan, pending.made);
        self.publish();
        self.shared.taken_over();
    }

    /// Builds the slots of a plan from those that run and those that were made for it.
    fn connect(&mut self, plan: Plan, made: Vec<(u64, Made)>) {
        let mut old: HashMap<u64, Slot> = HashMap::new();
        for slot in self.nodes.slots.drain(..) {
            old.insert(slot.plan.key, slot);
        }
        let mut fresh = HashMap::new();
        for (key, made) in made {
            match made {
                Made::Node(node) => drop(fresh.insert(key, node)),
                Made::Source(source) => {
                    let number = self.next_inlet;
                    self.next_inlet += 1;
                    self.nodes.interfaces.insert(number, source.interfaces().to_vec());
                    let stats = SourceStats::default();
                    self.inlets.push(Inlet { key, number, source, stats, ended: false });
                }
            }
        }
        self.inlets.retain(|inlet| plan.find(inlet.key).is_some());
        for node in plan.nodes {
            let slot = match old.remove(&node.key) {
                Some(slot) => Slot { plan: node, ..slot },
                None => Slot::new(fresh.remove(&node.key), node),
            };
            self.nodes.slots.push(slot);
        }
        self.nodes.lay_columns();
    }
}

impl Slot {
    fn new(node: Option<Box<dyn Node>>, plan: PlanNode) -> Slot {
        Slot {
            plan,
            node,
            failed: None,
            counts: NodeCounts::default(),
            out: Mask::EMPTY,
            emitted: Emitted::default(),
            classes_in: 0,
            classes_out: 0,
            mixes: false,
        }
    }

    fn view(&self) -> NodeView {
        NodeView {
            key: self.plan.key,
            name: self.plan.name.clone(),
            class: self.plan.class.name,
            text: self.plan.text.clone(),
            exported: self.plan.exported,
            feeds: self.plan.feeds.clone(),
            counts: self.counts,
            counters: self.node.as_ref().map(|node| node.counters()).unwrap_or_default(),
            failed: self.failed.clone(),
            memory: self.plan.settings.memory(),
        }
    }

    fn fail(&mut self, error: &NodeError) {
        self.failed.get_or_insert_with(|| error.to_string());
    }
}

impl Nodes {
    /// Decides where class values stand: a node that gives them has a column, as has one that mixes different ones.
    fn lay_columns(&mut self) {
        self.columns = vec![vec![0; BATCH_CAPACITY]];
        for index in 0..self.slots.len() {
            let plan = &self.slots[index].plan;
            let mut columns: Vec<_> =
                plan.feeds.iter().map(|feed| self.slots[feed.from].classes_out).collect();
            columns.dedup();
            let mixes = columns.len() > 1;
            let classes_in = match columns.as_slice() {
                [] => 0,
                [one] => *one,
                _ => self.column(),
            };
            let own = self.slots[index].plan.class.classifies;
            let classes_out = if own { self.column() } else { classes_in };
            let slot = &mut self.slots[index];
            (slot.classes_in, slot.classes_out, slot.mixes) = (classes_in, classes_out, mixes);
        }
    }

    fn column(&mut self) -> usize {
        self.columns.push(vec![0; BATCH_CAPACITY]);
        self.columns.len() - 1
    }

    /// A batch of a source.
    fn arrive(&mut self, key: u64, number: u32, batch: &Batch<'_>, interfaces: &[Interface]) {
        let Some(at) = self.slots.iter().position(|slot| slot.plan.key == key) else { return };
        let known = self.interfaces.entry(number).or_default();
        if known.len() != interfaces.len() {
            *known = interfaces.to_vec();
        }
        let counts = &mut self.slots[at].counts;
        counts.arrived += batch.len() as u64;
        counts.passed += batch.len() as u64;
        self.through(at, batch, number, interfaces);
        self.drain();
    }

    /// Runs all frames of a batch through what comes after slot `from`.
    fn through(&mut self, from: usize, batch: &Batch<'_>, source: u32, interfaces: &[Interface]) {
        for slot in &mut self.slots {
            slot.out = Mask::EMPTY;
        }
        self.slots[from].out = batch.all();
        for index in from + 1..self.slots.len() {
            let slot = &self.slots[index];
            if slot.plan.class.kind == Kind::Source {
                continue;
            }
            if slot.plan.join == Join::Each {
                for feed in 0..slot.plan.feeds.len() {
                    let one = self.feed(self.slots[index].plan.feeds[feed]);
                    self.call(index, one, batch, source, interfaces);
                }
                continue;
            }
            let mask = match slot.plan.feeds.as_slice() {
                [Feed { from, class: None }] => self.slots[*from].out,
                _ => self.join(index),
            };
            self.call(index, mask, batch, source, interfaces);
        }
    }

    /// What one feed brings.
    fn feed(&self, feed: Feed) -> Mask {
        let from = &self.slots[feed.from];
        let Some(class) = feed.class else { return from.out };
        let column = &self.columns[from.classes_out];
        let mut mask = Mask::EMPTY;
        for index in from.out.iter().filter(|&index| column[index] == class) {
            mask.set(index);
        }
        mask
    }

    /// What several feeds bring together.
    fn join(&mut self, index: usize) -> Mask {
        let slot = &self.slots[index];
        let feeds = &slot.plan.feeds;
        let union =
            |feeds: &[Feed]| feeds.iter().fold(Mask::EMPTY, |mask, feed| mask | self.feed(*feed));
        let mask = match slot.plan.join {
            Join::Any | Join::Each => union(feeds),
            Join::All => {
                let first = feeds.first().map_or(Mask::EMPTY, |feed| self.feed(*feed));
                feeds.iter().skip(1).fold(first, |mask, feed| mask & self.feed(*feed))
            }
            Join::Except(base) => union(&feeds[..base]).without(union(&feeds[base..])),
        };
        if slot.plan.join == Join::Any {
            let brought: usize = feeds.iter().map(|feed| self.feed(*feed).count()).sum();
            let merged = (brought - mask.count()) as u64;
            self.slots[index].counts.merged += merged;
        }
        if self.slots[index].mixes {
            self.mix(index, mask);
        }
        mask
    }

    /// Class values of what arrives, from the first feed that brings the frame.
    fn mix(&mut self, index: usize, mask: Mask) {
        let slot = &self.slots[index];
        let mut column = std::mem::take(&mut self.columns[slot.classes_in]);
        let mut rest = mask;
        for feed in &slot.plan.feeds {
            let here = self.feed(*feed) & rest;
            rest = rest.without(here);
            let values = &self.columns[self.slots[feed.from].classes_out];
            here.iter().for_each(|frame| column[frame] = values[frame]);
        }
        let classes_in = slot.classes_in;
        self.columns[classes_in] = column;
    }

    /// Calls a node with what arrives, and counts.
    fn call(
        &mut self,
        index: usize,
        mask: Mask,
        batch: &Batch<'_>,
        source: u32,
        interfaces: &[Interface],
    ) {
        if mask.is_empty() {
            return;
        }
        let slot = &mut self.slots[index];
        let arrived = mask.count() as u64;
        slot.counts.arrived += arrived;
        let Some(node) = slot.node.as_mut().filter(|_| slot.failed.is_none()) else {
            slot.counts.lost += arrived;
            return;
        };
        let own = slot.classes_out != slot.classes_in;
        let mut assigned =
            if own { std::mem::take(&mut self.columns[slot.classes_out]) } else { Vec::new() };
        let mut arrival = Arrival {
            batch,
            mask,
            interfaces,
            source,
            classes: &self.columns[slot.classes_in],
            assigned: &mut assigned,
            emitted: &mut slot.emitted,
            taken: Mask::EMPTY,
        };
        let answer = node.process(&mut arrival);
        let taken = arrival.taken & mask;
        if own {
            self.columns[slot.classes_out] = assigned;
        }
        match answer {
            Ok(passed) => {
                let passed = if slot.plan.inverted { mask.without(passed) } else { passed & mask };
                let passed = passed.without(taken);
                let (went, held) = (passed.count() as u64, taken.count() as u64);
                slot.counts.passed += went;
                slot.counts.taken += held;
                slot.counts.rejected += arrived - went - held;
                slot.out = slot.out | passed;
            }
            Err(error) => {
                slot.counts.lost += arrived;
                slot.fail(&error);
            }
        }
    }

    /// Runs emitted frames through the successors until there are none.
    fn drain(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].emitted.is_empty() {
                continue;
            }
            let emitted = std::mem::take(&mut self.slots[index].emitted);
            let zero = self.slots[index].classes_out;
            let mut from = 0;
            loop {
                let (batch, source) = emitted.batch(from);
                if batch.is_empty() {
                    break;
                }
                from += batch.len();
                self.slots[index].counts.emitted += batch.len() as u64;
                self.columns[zero].fill(0);
                let interfaces = self.interfaces.remove(&source).unwrap_or_default();
                self.through(index, &batch, source, &interfaces);
                self.interfaces.insert(source, interfaces);
            }
        }
    }

    fn tick(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.failed.is_none()) {
            if let Some(Err(error)) = slot.node.as_mut().map(|node| node.tick(&mut slot.emitted)) {
                slot.fail(&error);
            }
        }
        self.drain();
    }

    fn finish(&mut self) {
        for index in 0..self.slots.len() {
            self.finish_one(index);
        }
    }

    fn finish_one(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(node) = slot.node.as_mut().filter(|_| slot.failed.is_none()) else { return };
        if let Err(error) = node.finish(&mut slot.emitted) {
            slot.fail(&error);
        }
        self.drain();
    }

    fn source_failed(&mut self, key: u64, error: &ReadError) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.plan.key == key) {
            slot.failed = Some(error.to_string());
        }
    }
}
