//! The connected nodes and their counts; every batch runs through them.
//!
//! A batch visits all nodes in topological order. Each visit joins the frames that the feeds pass, calls the node and
//! counts. Frames that a node emits run through its successors afterwards, as batches of their own.
//!
//! If a node may *cut* a batch (a tracker that edits a filter before it, a limit), all nodes up to those that cut
//! form the *front*. The front evaluates first. If it is cut, the frames before the cut are *settled*: counted, and
//! passed through all other nodes. Then the front evaluates the rest again. So every frame runs through the graph
//! once, under one state of the filters, and an edit made for frame n is in force for frame n + 1.
//!
//! Cost: one virtual call and some mask operations per node and batch; with a front, twice that, and once more per cut.

mod counted;
mod front;
mod streams;

pub(super) use counted::Counted;

use super::NodeCounts;
use super::outcome::{Fate, Outcome};
use super::view::NodeView;
use crate::node::columns::{Column, Places};
use crate::node::{Arrival, Emitted, Kind, Memory, Node, NodeError, Pause, Settled};
use crate::plan::{Feed, Join, PlanNode};
use fyke_capture::{Interface, LookBack};
use fyke_frame::{Batch, Mask};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reason for which frames are lost while the graph is paused.
const PAUSED: &str = "paused";

/// Number of batches that have run through graphs of this process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Returns the number of a new batch, unique in this process.
pub(super) fn next_serial() -> u64 {
    SERIAL.fetch_add(1, Ordering::Relaxed)
}

/// Longest wait for the output of a node that an edit has removed.
const LEAVING: Duration = Duration::from_millis(200);

/// A connected node.
pub(super) struct Slot {
    /// Number of the node, unique in the graph.
    pub id: u64,
    pub plan: PlanNode,
    pub node: Option<Box<dyn Node>>,
    pub failed: Option<NodeError>,
    pub counts: NodeCounts,
    /// Frames of the current batch that arrived; `out` and `taken` are those that it passed and took.
    arrived: Mask,
    out: Mask,
    taken: Mask,
    /// Frames of the current batch that its output did not take.
    lost: Mask,
    emitted: Emitted,
    /// Indices of the columns with the class values of arriving frames and of frames that it passes.
    classes_in: usize,
    classes_out: usize,
    mixes: bool,
    cuts: bool,
    after: After,
    /// Index of the streams beside its frames, and its part in them.
    streams: Option<(usize, streams::Role)>,
}

/// Successors of a node outside the front: those that every frame needs to visit, and those of a class value.
#[derive(Default)]
struct After {
    always: Vec<usize>,
    of_class: HashMap<u32, Vec<usize>>,
}

/// All nodes.
#[derive(Default)]
pub(super) struct Nodes {
    pub slots: Vec<Slot>,
    /// Interfaces of the sources, by the number of the source.
    pub interfaces: HashMap<u32, Vec<Interface>>,
    /// Outcomes of the frames of each source, by its number, including sources that have been removed.
    pub outcomes: BTreeMap<u32, Outcome>,
    /// The same for each interface of the sources that merge several.
    pub by_interface: BTreeMap<u32, Vec<Outcome>>,
    /// Frames of each source, by its number, that it lost or the kernel rejected; `None` with several workers.
    pub never_read: Option<HashMap<u32, u64>>,
    /// First frame of the batch without a result, and the counts of the source before it.
    window: (usize, Option<Settled>),
    /// Number of frames that the ends of each text have accepted.
    pub texts: BTreeMap<u64, u64>,
    /// The same for the texts that the last edit removed, and the sum for all removed ones.
    pub last_removed: BTreeMap<u64, u64>,
    pub removed: u64,
    /// Nodes connected so far.
    made: u64,
    /// Results of the nodes for the frames of the current window.
    fate: Fate,
    /// True if a node has ended the graph: no more frames are evaluated.
    pub ended: bool,
    /// Locked while the front evaluates and settles a batch, if it has nodes that several workers have in common.
    pub front_gate: Option<Arc<Mutex<()>>>,
    /// True if the front has nodes that exist once for all workers.
    front_is_shared: bool,
    /// While true, frames of sources are lost instead of being evaluated.
    pub paused: Option<Arc<AtomicBool>>,
    /// Number of nodes that have failed so far.
    pub failures: usize,
    columns: Vec<Column>,
    /// Streams beside the frames, one for each node that gives them.
    boards: Vec<streams::Board>,
    /// Reason for calling nodes without frames.
    pause: Option<Pause>,
    /// Number of the current batch.
    serial: u64,
    /// Nodes outside the front that get frames of the current batch and have to be visited.
    waiting: Places,
    /// Nodes that have been visited, so that clearing need not touch the others.
    visited: Vec<usize>,
    /// Nodes that have emitted frames.
    emitting: Places,
    /// Nodes of the front: repeatable ones (`judges`), then those that evaluate a frame only once (`editors`).
    judges: Vec<usize>,
    editors: Vec<usize>,
    /// Nodes with output that may have to be waited for.
    outputs: Vec<usize>,
}

/// A batch that runs through the graph.
pub(super) struct Input<'a> {
    pub batch: &'a Batch<'a>,
    pub source: u32,
    pub interfaces: &'a [Interface],
    pub held: Option<LookBack<'a>>,
    /// True if its frames come from a source, and each has one outcome.
    pub counted: bool,
    /// For emitted frames: all of them, and the index of the first one of this batch.
    pub emitted: Option<(&'a Emitted, usize)>,
}

/// Positions at which a batch has been cut.
#[derive(Clone, Copy, Default)]
struct Cut {
    position: usize,
    at: Option<usize>,
    again: bool,
    ends: bool,
    /// True if the graph ends after the batch, without a cut.
    stops: bool,
}

impl Slot {
    pub fn new(id: u64, node: Option<Box<dyn Node>>, plan: PlanNode) -> Slot {
        Slot {
            id,
            plan,
            node,
            failed: None,
            counts: NodeCounts::default(),
            arrived: Mask::EMPTY,
            out: Mask::EMPTY,
            taken: Mask::EMPTY,
            lost: Mask::EMPTY,
            emitted: Emitted::default(),
            classes_in: 0,
            classes_out: 0,
            mixes: false,
            cuts: false,
            after: After::default(),
            streams: None,
        }
    }

    /// The counts; if `full`, also those of its filters, and its entries. `None` if an edit of them is being committed.
    pub fn view(&self, full: bool) -> Option<NodeView> {
        let set = self.node.as_ref().and_then(|node| node.filters()).filter(|_| full);
        let filters = match set {
            Some(set) => Some(Arc::new(set.snapshot()?)),
            None => None,
        };
        Some(NodeView {
            id: self.id,
            key: self.plan.key,
            name: self.plan.name.clone(),
            class: self.plan.class.name,
            text: self.plan.text.clone(),
            exported: self.plan.exported,
            feeds: self.plan.feeds.clone(),
            counts: self.counts,
            unwritten: self.node.as_ref().map_or(0, |node| node.lost()),
            counters: self.node.as_ref().map(|node| node.counters()).unwrap_or_default(),
            entries: self
                .node
                .as_ref()
                .filter(|_| full)
                .map(|node| node.entries())
                .unwrap_or_default(),
            removed: self.node.as_ref().map(|node| node.removed()).unwrap_or_default(),
            failed: self.failed.clone(),
            rules: self.node.as_ref().and_then(|node| node.rules().cloned()),
            memory: if self.plan.class.memory {
                self.plan.settings.memory()
            } else {
                Memory::default()
            },
            texts: self.plan.texts.iter().copied().collect(),
            is_end: !self.plan.ends.is_empty(),
            filters,
        })
    }

    /// Counts the results for the frames of a window, which are final now.
    fn settle(&mut self, window: Mask) -> Result<(), NodeError> {
        let (arrived, out, taken) = (self.arrived & window, self.out & window, self.taken & window);
        self.out = out;
        let count = arrived.count() as u64;
        self.counts.arrived += count;
        if self.failed.is_some() {
            self.counts.lost += count;
            return Ok(());
        }
        let (passed, held) = (out.count() as u64, taken.count() as u64);
        let lost = (self.lost & window).count() as u64;
        self.counts.passed += passed;
        self.counts.taken += held;
        self.counts.lost += lost;
        self.counts.rejected += count - passed - held - lost;
        match &mut self.node {
            Some(node) if self.plan.class.repeatable => guarded(|| {
                node.settle(arrived);
                Ok(())
            }),
            _ => Ok(()),
        }
    }
}

/// Runs code of a class; a panic there fails its node and nothing else.
fn guarded<T>(work: impl FnOnce() -> Result<T, NodeError>) -> Result<T, NodeError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(NodeError::new(format!("error in the class: {}", text.unwrap_or("it panicked"))))
    })
}

/// Nodes that are made but not connected, by key.
pub(super) type Fresh = HashMap<u64, Box<dyn Node>>;

impl Nodes {
    /// Builds the slots of a plan from those that stay (new key to old key) and those that were made for it. Nodes
    /// that do not stay finish first.
    pub fn rebuild(&mut self, plan: Vec<PlanNode>, mut fresh: Fresh, stays: &HashMap<u64, u64>) {
        let staying: HashSet<u64> = stays.values().copied().collect();
        for index in 0..self.slots.len() {
            if !staying.contains(&self.slots[index].plan.key) {
                self.finish(index);
                self.empty(index);
            }
        }
        let numbers: BTreeSet<u64> =
            plan.iter().flat_map(|node| node.texts.iter().copied()).collect();
        self.forget_texts(&numbers);
        let mut old: HashMap<u64, Slot> = HashMap::new();
        for slot in self.slots.drain(..) {
            old.insert(slot.plan.key, slot);
        }
        let mut misfits = Vec::new();
        for (at, mut node) in plan.into_iter().enumerate() {
            let slot = match stays.get(&node.key).and_then(|key| old.remove(key)) {
                None => {
                    self.made += 1;
                    Slot::new(self.made, fresh.remove(&node.key), node)
                }
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
            self.slots.push(slot);
        }
        for at in misfits {
            self.fail(at, NodeError::new("it does not accept its new parameters"));
        }
        self.arrange();
    }

    /// Prepares newly connected slots: columns of class values, the front, filters for nodes that edit them.
    fn arrange(&mut self) {
        self.assign_columns();
        self.await_all();
        let mut front = vec![false; self.slots.len()];
        for index in (0..self.slots.len()).rev() {
            let slot = &mut self.slots[index];
            slot.cuts = (slot.plan.class.cuts)(&slot.plan.settings);
            if slot.cuts || front[index] {
                front[index] = true;
                slot.plan.feeds.iter().for_each(|feed| front[feed.from] = true);
            }
            if let Some(node) = &mut slot.node {
                node.count_later(front[index]);
            }
        }
        let is_node = |index: &usize| self.slots[*index].plan.class.kind == Kind::Node;
        let all: Vec<usize> = (0..self.slots.len()).filter(is_node).collect();
        let (front, others) = all.into_iter().partition::<Vec<_>, _>(|&index| front[index]);
        self.front_is_shared = front.iter().any(|&index| !self.slots[index].plan.class.parallel);
        let repeatable = |index: &usize| self.slots[*index].plan.class.repeatable;
        (self.judges, self.editors) = front.into_iter().partition(repeatable);
        self.link_successors(&others);
        self.link_streams();
        self.choose_losses();
        for index in 0..self.slots.len() {
            let class = &self.slots[index].plan.class;
            if class.edits || class.reads_filters {
                self.connect_filters(index);
            }
        }
    }

    /// Records for each node those of `others` that get frames from it.
    fn link_successors(&mut self, others: &[usize]) {
        let count = self.slots.len();
        for slot in &mut self.slots {
            slot.after = After::default();
            // Later batches clear only the slots that they visit.
            (slot.arrived, slot.out, slot.taken) = (Mask::EMPTY, Mask::EMPTY, Mask::EMPTY);
            slot.lost = Mask::EMPTY;
        }
        (self.waiting, self.emitting) = (Places::new(count), Places::new(count));
        self.visited.clear();
        for &index in others {
            for place in 0..self.slots[index].plan.feeds.len() {
                let feed = self.slots[index].plan.feeds[place];
                let from = &mut self.slots[feed.from];
                let several = self.columns[from.classes_out].is_several();
                let list = match feed.class.filter(|_| several) {
                    Some(class) => from.after.of_class.entry(class).or_default(),
                    None => &mut from.after.always,
                };
                list.push(index);
            }
        }
        for index in 0..count {
            if !self.slots[index].emitted.is_empty() {
                self.emitting.insert(index);
            }
        }
    }

    /// Gives a node the filters of the nearest editable one before it.
    fn connect_filters(&mut self, index: usize) {
        let mut level = vec![index];
        // Each level is nearer to the sources, and the graph has no cycles.
        while !level.is_empty() {
            let feeds = level.iter().flat_map(|&at| &self.slots[at].plan.feeds);
            level = feeds.map(|feed| feed.from).collect();
            level.sort_unstable();
            level.dedup();
            let found = level.iter().find_map(|&at| self.slots[at].node.as_ref()?.filters());
            if let Some(filters) = found.cloned() {
                if let Some(node) = &mut self.slots[index].node {
                    node.connect(&filters);
                }
                return;
            }
        }
    }

    /// Assigns the columns of class values: a node has one if it classifies, or if its feeds have different ones.
    fn assign_columns(&mut self) {
        self.columns = vec![Column::new(false)];
        for index in 0..self.slots.len() {
            let plan = &self.slots[index].plan;
            let mut columns: Vec<_> =
                plan.feeds.iter().map(|feed| self.slots[feed.from].classes_out).collect();
            columns.dedup();
            let mixes = columns.len() > 1;
            let classes_in = match columns.as_slice() {
                [] => 0,
                [one] => *one,
                several => {
                    let any = several.iter().any(|&column| self.columns[column].is_several());
                    self.column(any)
                }
            };
            let class = &self.slots[index].plan.class;
            let (own, several) = (class.classifies, class.several_classes);
            let classes_out = if own { self.column(several) } else { classes_in };
            let slot = &mut self.slots[index];
            (slot.classes_in, slot.classes_out, slot.mixes) = (classes_in, classes_out, mixes);
        }
    }

    fn column(&mut self, several: bool) -> usize {
        self.columns.push(Column::new(several));
        self.columns.len() - 1
    }

    /// Runs a batch of the source at `from`, and all frames emitted because of it, through the graph.
    pub fn arrive(&mut self, from: usize, input: &Input<'_>) {
        let known = self.interfaces.entry(input.source).or_default();
        if known.len() != input.interfaces.len() {
            *known = input.interfaces.to_vec();
        }
        if self.paused.as_ref().is_some_and(|paused| paused.load(Ordering::Relaxed)) {
            return self.lose_paused(from, input);
        }
        let seen = self.run(from, input) as u64;
        let counts = &mut self.slots[from].counts;
        counts.arrived += seen;
        counts.passed += seen;
        self.drain(0);
    }

    /// Runs a batch through the nodes after slot `from`; returns how many of its frames were evaluated.
    fn run(&mut self, from: usize, input: &Input<'_>) -> usize {
        let frames = input.batch.len();
        let mut cut = Cut::default();
        let serial = next_serial();
        loop {
            // Frames emitted because of a cut were another batch.
            self.serial = serial;
            let rest = input.batch.all().without(Mask::first(cut.position));
            self.window = (cut.position, self.settled(input.source));
            self.begin(from, rest);
            if let Some((emitted, first)) = input.emitted {
                let column = &mut self.columns[self.slots[from].classes_out];
                column.clear();
                for index in 0..frames {
                    emitted.classes(first + index).iter().for_each(|&c| column.assign(index, c));
                }
            }
            let (end, window) = self.evaluate_front(from, input, &mut cut, rest);
            self.slots[from].out = window;
            self.schedule_successors(from);
            let mut next = from + 1;
            while let Some(index) = self.waiting.pop_from(next) {
                self.visited.push(index);
                self.visit(index, input);
                self.schedule_successors(index);
                next = index + 1;
            }
            if input.counted {
                self.fate.judged(&self.slots[from].plan.ends, window, Mask::EMPTY);
                self.decide(input, window);
            }
            self.ended |= cut.ends;
            if cut.at.is_none() || self.ended {
                return end;
            }
            // Frames emitted because of a cut run through the graph before the frames that are evaluated next.
            let emitted = self.drain(from + 1);
            if self.ended {
                return end;
            }
            if end == cut.position && emitted == 0 && cut.again {
                self.stuck(from);
            }
            cut = Cut { position: end, again: true, ..Cut::default() };
        }
    }

    fn begin(&mut self, from: usize, rest: Mask) {
        for &index in self.judges.iter().chain(&self.editors).chain(&self.visited) {
            let slot = &mut self.slots[index];
            (slot.arrived, slot.out, slot.taken) = (Mask::EMPTY, Mask::EMPTY, Mask::EMPTY);
            slot.lost = Mask::EMPTY;
            for column in [slot.classes_in, slot.classes_out] {
                if self.columns[column].is_several() {
                    self.columns[column].clear();
                }
            }
        }
        self.fate.clear();
        self.visited.clear();
        self.visited.push(from);
        self.slots[from].out = rest;
    }

    /// Schedules the successors that receive frames from a node.
    fn schedule_successors(&mut self, index: usize) {
        let slot = &self.slots[index];
        if slot.out.is_empty() {
            return;
        }
        slot.after.always.iter().for_each(|&place| self.waiting.insert(place));
        if !slot.after.of_class.is_empty() {
            for class in self.columns[slot.classes_out].touched() {
                let places = slot.after.of_class.get(class).into_iter().flatten();
                places.for_each(|&place| self.waiting.insert(place));
            }
        }
    }

    /// Runs the batch through a node outside the front.
    fn visit(&mut self, index: usize, input: &Input<'_>) {
        if self.slots[index].plan.join != Join::Each {
            let mask = self.arriving(index);
            self.count_merged(index, mask);
            self.call(index, mask, input);
            return;
        }
        let mut out = Mask::EMPTY;
        for feed in 0..self.slots[index].plan.feeds.len() {
            let mask = self.feed(self.slots[index].plan.feeds[feed]);
            self.call(index, mask, input);
            out = out | self.slots[index].out;
        }
        self.slots[index].out = out;
    }

    fn call(&mut self, index: usize, mask: Mask, input: &Input<'_>) {
        if mask.is_empty() {
            return;
        }
        let mut cut = Cut::default();
        self.ask(index, mask, input, &mut cut);
        if cut.at.is_some() {
            self.fail(index, NodeError::new("it cuts batches, and its class does not declare it"));
        }
        self.ended |= cut.stops;
        let settled = self.slots[index].settle(mask);
        self.note(index, mask);
        if let Err(error) = settled {
            self.fail(index, error);
        }
    }

    /// Calls a node with the frames of `mask`, and stores the results in its slot.
    fn ask(&mut self, index: usize, mask: Mask, input: &Input<'_>, cut: &mut Cut) {
        let (position, settled) = self.window;
        let slot = &mut self.slots[index];
        (slot.arrived, slot.out, slot.taken) = (mask, Mask::EMPTY, Mask::EMPTY);
        slot.lost = Mask::EMPTY;
        if mask.is_empty() && !(slot.cuts && cut.again) && self.pause.is_none() {
            return;
        }
        let Some(node) = slot.node.as_mut().filter(|_| slot.failed.is_none()) else { return };
        let mut board = slot.streams.map(|(at, _)| std::mem::take(&mut self.boards[at]));
        let (flows, given, votes) = streams::split(&mut board, slot.streams, self.serial);
        let mut none = Vec::new();
        let own = slot.classes_out != slot.classes_in;
        let mut assigned = Column::default();
        if own {
            std::mem::swap(&mut assigned, &mut self.columns[slot.classes_out]);
        }
        let mut arrival = Arrival {
            batch: input.batch,
            mask,
            interfaces: input.interfaces,
            source: input.source,
            classes: &self.columns[slot.classes_in],
            assigned: &mut assigned,
            emitted: &mut slot.emitted,
            held: input.held,
            serial: self.serial,
            origin: input.emitted,
            position,
            settled,
            taken: Mask::EMPTY,
            lost: Mask::EMPTY,
            cut: cut.at,
            ends: false,
            flows,
            given,
            votes: votes.unwrap_or(&mut none),
            pause: self.pause,
        };
        let answer = guarded(|| node.process(&mut arrival));
        let taken = arrival.taken & mask;
        let lost = (arrival.lost & mask).without(taken);
        if arrival.cut.is_none() {
            cut.stops |= arrival.ends;
        } else if arrival.cut < cut.at || cut.at.is_none() {
            (cut.at, cut.ends) = (arrival.cut, arrival.ends);
        }
        if own {
            self.columns[slot.classes_out] = assigned;
        }
        if let (Some((at, _)), Some(board)) = (slot.streams, board) {
            self.boards[at] = board;
        }
        if !slot.emitted.is_empty() {
            self.emitting.insert(index);
        }
        if slot.plan.class.waits {
            self.outputs.push(index);
        }
        match answer {
            Ok(passed) => {
                let passed = if slot.plan.inverted { mask.without(passed) } else { passed & mask };
                (slot.out, slot.taken, slot.lost) = (passed.without(taken | lost), taken, lost);
            }
            Err(error) => self.fail(index, error),
        }
    }

    /// Frames that arrive at a node.
    fn arriving(&mut self, index: usize) -> Mask {
        let slot = &self.slots[index];
        match slot.plan.feeds.as_slice() {
            [Feed { from, class: None }] => self.slots[*from].out,
            _ => self.join(index),
        }
    }

    /// Frames that one feed brings.
    fn feed(&self, feed: Feed) -> Mask {
        let from = &self.slots[feed.from];
        match feed.class {
            None => from.out,
            Some(class) => self.columns[from.classes_out].of(class, from.out),
        }
    }

    /// Frames that several feeds bring together.
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
        if self.slots[index].mixes {
            self.mix(index, mask);
        }
        mask
    }

    fn count_merged(&mut self, index: usize, mask: Mask) {
        let plan = &self.slots[index].plan;
        if plan.feeds.len() > 1 && plan.join == Join::Any {
            let brought: usize = plan.feeds.iter().map(|feed| self.feed(*feed).count()).sum();
            self.slots[index].counts.merged += (brought - mask.count()) as u64;
        }
    }

    /// Fills the class values of arriving frames from the first feed that brings each frame.
    fn mix(&mut self, index: usize, mask: Mask) {
        let slot = &self.slots[index];
        let mut column = std::mem::take(&mut self.columns[slot.classes_in]);
        let mut rest = mask;
        for feed in &slot.plan.feeds {
            let here = self.feed(*feed) & rest;
            rest = rest.without(here);
            column.copy(&self.columns[self.slots[feed.from].classes_out], here);
        }
        let classes_in = slot.classes_in;
        self.columns[classes_in] = column;
    }

    /// Runs emitted frames through the successors until there are none; returns how many there were.
    fn drain(&mut self, first: usize) -> usize {
        let mut count = 0;
        let mut next = first;
        while let Some(index) = self.emitting.pop_from(next) {
            next = index;
            let emitted = std::mem::take(&mut self.slots[index].emitted);
            // If another path leads to an end, the first outcome of a frame may have been a better one.
            let is_counted = emitted.has_late() && self.is_only_way(index);
            let mut from = 0;
            while !self.ended {
                let (batch, source) = emitted.batch(from);
                if batch.is_empty() {
                    break;
                }
                let (first, late) = (Some((&emitted, from)), emitted.is_late(from));
                let counted = is_counted && late;
                from += batch.len();
                let interfaces = self.interfaces.remove(&source).unwrap_or_default();
                let interfaces_of = interfaces.as_slice();
                let input = Input {
                    batch: &batch,
                    source,
                    interfaces: interfaces_of,
                    held: None,
                    counted,
                    emitted: first,
                };
                let seen = self.run(index, &input);
                if counted {
                    self.leave_rejected(&input, seen);
                }
                self.interfaces.insert(source, interfaces);
                self.slots[index].counts.emitted(seen as u64, late);
                count += seen;
            }
        }
        count
    }

    /// Ticks all nodes.
    pub fn tick(&mut self) {
        for index in 0..self.slots.len() {
            self.pause_streams(index, Pause::Tick);
            self.outside(index, |node, emitted| node.tick(emitted));
        }
        self.drain(0);
    }

    /// Finishes a node: no frame will arrive any more.
    pub fn finish(&mut self, index: usize) {
        self.pause_streams(index, Pause::End);
        self.outside(index, |node, emitted| node.finish(emitted));
        self.drain(0);
    }

    /// Lets the nodes that got frames forward their output, and waits at most `patience` for each of them. Returns
    /// true if all of them can take another batch.
    pub fn make_room(&mut self, patience: Duration) -> bool {
        if self.outputs.is_empty() {
            return true;
        }
        let mut asked = std::mem::take(&mut self.outputs);
        asked.sort_unstable();
        asked.dedup();
        asked.retain(|&index| {
            let slot = &mut self.slots[index];
            let node = slot.node.as_mut().filter(|_| slot.failed.is_none());
            let answer = node.map_or(Ok(true), |node| guarded(|| node.make_room(patience)));
            match answer {
                Ok(has_room) => !has_room,
                Err(error) => {
                    self.fail(index, error);
                    false
                }
            }
        });
        self.outputs = asked;
        self.outputs.is_empty()
    }

    /// Marks the output of all nodes as to be waited for.
    pub fn await_all(&mut self) {
        let all = self.slots.iter().enumerate().filter(|(_, slot)| slot.plan.class.waits);
        self.outputs = all.map(|(index, _)| index).collect();
    }

    /// Gives up the output that was last waited for.
    pub fn give_up(&mut self) {
        for index in std::mem::take(&mut self.outputs) {
            if let Some(node) = &mut self.slots[index].node {
                node.give_up();
            }
        }
    }

    /// Waits a short time for the output of a node that is removed.
    fn empty(&mut self, index: usize) {
        self.outputs = if self.slots[index].plan.class.waits { vec![index] } else { Vec::new() };
        if !self.make_room(LEAVING) {
            self.give_up();
        }
    }

    fn outside(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut dyn Node, &mut Emitted) -> Result<(), NodeError>,
    ) {
        let slot = &mut self.slots[index];
        let Some(node) = slot.node.as_mut().filter(|_| slot.failed.is_none()) else { return };
        let answer = guarded(|| call(node.as_mut(), &mut slot.emitted));
        if !slot.emitted.is_empty() {
            self.emitting.insert(index);
        }
        if let Err(error) = answer {
            self.fail(index, error);
        }
    }

    pub fn fail(&mut self, index: usize, error: NodeError) {
        let slot = &mut self.slots[index];
        slot.out = Mask::EMPTY;
        if slot.failed.is_none() {
            slot.failed = Some(error);
            self.failures += 1;
        }
    }
}
