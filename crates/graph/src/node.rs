//! The trait that every class implements, and the view of a batch that a node receives.
//!
//! A node is called once per batch with a mask of the frames that arrive at it. It returns the mask of those that
//! *pass*. It may give frames class values, *take* frames (hold them, or replace them) and *emit* new ones. A frame
//! that it neither passes nor takes is rejected. The runtime does everything else: edges, sharing, counting,
//! failures. Cost of a call that does nothing: below 1 ns a frame in full batches (`fyke bench graph`).
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_graph as graph}; }
//! use fyke::graph::node::{Arrival, Class, Kind, Node, NodeError, Settings};
//! use fyke::frame::Mask;
//!
//! /// Passes frames of at least `expression` bytes.
//! struct Long(usize);
//!
//! impl Node for Long {
//!     fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
//!         Ok(arrival.select(|frame| frame.data.len() >= self.0))
//!     }
//! }
//!
//! pub static CLASS: Class = Class {
//!     name: "long",
//!     summary: "passes frames of at least `expression` bytes",
//!     make: |settings| Ok(Box::new(Long(settings.number("expression", 0..=262_144)? as usize))),
//!     ..Class::NODE
//! };
//! ```

pub(crate) mod accepted;
mod class;
pub(crate) mod columns;
pub(crate) mod flows;
mod settings;

pub use accepted::Accepted;
pub(crate) use class::Makers;
pub use class::{
    COMMON, Check, Class, EXPRESSION, Kind, Make, MakeError, Needs, Open, OpenShares, Opens,
    PIECES, Parameter, Shares, always, never,
};
pub use flows::{BatchEvent, BatchFlows, FrameFlow};
pub use settings::{MAX_MEMORY_BYTES, Memory, Settings};

use crate::credits;
use crate::kept::Kept;
use crate::rules::RuleSet;
use columns::Column;
use fyke_capture::{Account, Interface, LookBack, WriteError};
use fyke_filters::FilterSet;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask, Meta};
use fyke_print::Credit;
use fyke_ring::Values;
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// A running node.
pub trait Node: Send {
    /// Evaluates the frames of [`Arrival::mask`] and returns those that pass.
    ///
    /// # Errors
    /// The node has failed: its branch stops, later frames count as lost, and the rest of the graph continues.
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError>;

    /// Declares the last result for `frames` final, so that the node can count them. Called only for
    /// [`Class::repeatable`] nodes, because only these evaluate frames after a [cut](Arrival::cut) again.
    fn settle(&mut self, _frames: Mask) {}

    /// Tells a node that several workers have in common whether its results are final only when they are
    /// [settled](Self::settle).
    fn count_later(&mut self, _later: bool) {}

    /// Flushes output and releases held frames; called every tenth of a second.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// Forwards output and waits at most `patience` for its consumers; for classes that [wait](Class::waits). Returns
    /// true if the node can take another batch or, after [`finish`](Self::finish), if all output is gone. While a
    /// node returns false, no source is read, so [`process`](Self::process) need not wait.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn make_room(&mut self, _patience: Duration) -> Result<bool, NodeError> {
        Ok(true)
    }

    /// Gives up output that is not consumed; frames from now on are [lost](Self::lost).
    fn give_up(&mut self) {}

    /// Asks the node to hand over each batch before it passes it, and to [lose](Arrival::lose) what the output does not
    /// take: other nodes get its frames, too. For classes that [wait](Class::waits).
    fn pass_written(&mut self, _at_once: bool) {}

    /// Number of passed frames that did not reach the output; without those that it has [lost](Arrival::lose).
    fn lost(&self) -> u64 {
        0
    }

    /// Ends the node; called once, when no frame will come any more.
    ///
    /// # Errors
    /// If taken frames cannot be brought to their destination.
    fn finish(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// Receives the account so far of each live interface; called every tenth of a second and before the end.
    fn account(&mut self, _accounts: &[(Interface, Account)]) {}

    /// Counters of the node.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Asks the node to keep some of the frames that arrive, for classes that can.
    fn keep(&mut self, _kept: &Kept) {}

    /// The frames that the node keeps.
    fn kept(&self) -> Option<&Kept> {
        None
    }

    /// Entries of its state, such as the connections that a tracker expects: a text, and a number of frames. Made for
    /// each [snapshot](crate::GraphHandle::snapshot), between two batches; at most a thousand.
    fn entries(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Final counts of the parts of its parameters that the last [change](Self::change) has removed, such as filters:
    /// a text, and a number of frames. A class may forget them after ten seconds.
    fn removed(&self) -> Vec<(Arc<str>, u64)> {
        Vec::new()
    }

    /// Filters of the node, for [`Class::editable`] classes.
    fn filters(&self) -> Option<&FilterSet> {
        None
    }

    /// Rules of the node, for classes that `fyke rules` edits.
    fn rules(&self) -> Option<&RuleSet> {
        None
    }

    /// Memory in which readers of the node's ring see the values of the node before it.
    fn values(&self) -> Option<Arc<Values>> {
        None
    }

    /// Receives the filters of the nearest editable node before this one; called when a node of a class
    /// that [edits](Class::edits) or [reads](Class::reads_filters) them is connected.
    fn connect(&mut self, _filters: &FilterSet) {}

    /// Returns a node for another worker that shares the [filters](Self::filters) of this one: an edit of them is in
    /// force for a worker at its next batch. `None` if each worker has what it needs: the class makes a node for each.
    fn for_worker(&self) -> Option<Box<dyn Node>> {
        None
    }

    /// Filter text of all frames that edits by this node may accept, also of frames that arrive before the edit; for
    /// classes that [edit](Class::edits) filters. A space below the graph must not reject these frames if the filter
    /// looks back. `None` = not known: the space then passes every frame.
    fn held(&self) -> Option<String> {
        None
    }

    /// Takes new parameters and keeps its counts. Returns false if it cannot; then a new node replaces it. The
    /// settings are valid: a node has been made from them.
    fn change(&mut self, _settings: &Settings) -> bool {
        false
    }
}

/// Failure of a node. Displays the problem; the cause is kept for programs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(#[source] pub Arc<dyn Error + Send + Sync>);

impl NodeError {
    /// Creates a failure from an error or a text.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> NodeError {
        NodeError(Arc::from(error.into()))
    }
}

impl NodeError {
    /// True if this is not a failure: the node has written as many files as it was told to.
    pub fn is_done(&self) -> bool {
        self.0.downcast_ref().is_some_and(WriteError::is_file_limit)
    }
}

/// A counter as it is displayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// Name of the counted things, with the unit if there is one: `packets`, `bytes_per_s`.
    pub name: String,
    /// Value.
    pub value: f64,
    /// True if every worker's copy of the node has the same value, such as a number of rows, so values are not added.
    pub is_common: bool,
    /// True for a state, such as a number of rules or the largest gap: values of several runs are not added.
    pub is_state: bool,
}

impl Counter {
    /// A counter.
    pub fn new(name: impl Into<String>, value: impl Into<f64>) -> Counter {
        Counter { name: name.into(), value: value.into(), is_common: false, is_state: false }
    }

    /// Creates a counter of whole things; exact up to 2^53.
    pub fn count(name: impl Into<String>, value: u64) -> Counter {
        Counter::new(name, value as f64)
    }

    /// Marks the counter as equal in all copies of a node, and as a state.
    pub fn common(self) -> Counter {
        Counter { is_common: true, ..self.state() }
    }

    /// Marks the counter as a state.
    pub fn state(self) -> Counter {
        Counter { is_state: true, ..self }
    }
}

/// The frames that arrive at a node.
pub struct Arrival<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) mask: Mask,
    pub(crate) interfaces: &'a [Interface],
    pub(crate) source: u32,
    pub(crate) classes: &'a Column,
    pub(crate) assigned: &'a mut Column,
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) held: Option<LookBack<'a>>,
    pub(crate) serial: u64,
    /// For emitted frames: all of them, and the index of the first one of this batch.
    pub(crate) origin: Option<(&'a Emitted, usize)>,
    pub(crate) position: usize,
    pub(crate) settled: Option<Settled>,
    pub(crate) taken: Mask,
    pub(crate) lost: Mask,
    pub(crate) cut: Option<usize>,
    pub(crate) ends: bool,
    /// Streams of this batch, for the nodes after the one that gives them.
    pub(crate) flows: Option<&'a BatchFlows>,
    pub(crate) votes: &'a mut Vec<flows::Vote>,
    /// For the node that gives streams: where it puts them, and the number of nodes that vote.
    pub(crate) given: Option<(&'a mut BatchFlows, u8)>,
    pub(crate) pause: Option<Pause>,
}

/// Reason for a call without frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Time passes.
    Tick,
    /// No frame will arrive any more.
    End,
}

impl<'a> Arrival<'a> {
    /// Mask of the frames of the batch that arrive.
    pub fn mask(&self) -> Mask {
        self.mask
    }

    /// The whole batch, including frames that do not arrive.
    pub fn batch(&self) -> &'a Batch<'a> {
        self.batch
    }

    /// The frames that arrive, in order, with their indices in the batch.
    pub fn frames(&self) -> impl Iterator<Item = (usize, &'a Frame<'a>)> + use<'a> {
        let (mask, frames) = (self.mask, self.batch.frames());
        (0..frames.len()).filter(move |index| mask.get(*index)).map(|index| (index, &frames[index]))
    }

    /// The frames that arrive and for which `test` holds.
    pub fn select(&self, mut test: impl FnMut(&Frame<'a>) -> bool) -> Mask {
        let mut passed = Mask::EMPTY;
        for index in self.mask.iter() {
            if test(&self.batch.frames()[index]) {
                passed.set(index);
            }
        }
        passed
    }

    /// The interface that captured a frame.
    pub fn interface(&self, frame: &Frame<'_>) -> &'a Interface {
        &self.interfaces[frame.interface as usize]
    }

    /// The filter, the pass and the epoch that accepted a frame; `None` without a filter with `credits=y` before this
    /// node in the same worker.
    pub fn credit(&self, index: usize) -> Option<Credit> {
        if let Some((emitted, first)) = self.origin {
            return emitted.frames.get(first + index)?.credit;
        }
        credits::of(self.serial(), index)
    }

    /// All interfaces of the source of the batch.
    pub fn interfaces(&self) -> &'a [Interface] {
        self.interfaces
    }

    /// Class value that the last classifying node on the path gave the frame; 0 if there was none.
    pub fn class(&self, index: usize) -> u32 {
        self.classes.value(index)
    }

    /// The class values that frames have, each with these frames of the batch; one value per frame unless the last
    /// classifying node on the path gives [several](Class::several_classes).
    pub fn classified(&self) -> Vec<(u32, Mask)> {
        self.classes.groups(self.mask)
    }

    /// Number of the stream that a piece belongs to, unique in this process; `None` for frames.
    pub fn stream(&self, index: usize) -> Option<NonZeroU64> {
        let (emitted, first) = self.origin?;
        emitted.frames.get(first + index)?.stream
    }

    /// The flow of a frame, if a node before this one has recognised it. The number is unique among the frames of one
    /// worker.
    pub fn flow(&self, index: usize) -> FrameFlow {
        if let Some(flows) = self.flows {
            return flows.of(index);
        }
        let stored = self.origin.and_then(|(emitted, first)| emitted.frames.get(first + index));
        stored.map(|stored| stored.flow).unwrap_or_default()
    }

    /// The streams beside the frames of this batch; `None` without a node before this one that
    /// [gives](Class::gives_streams) them, or if a node between them has made the frames.
    pub fn flows(&self) -> Option<&'a BatchFlows> {
        self.flows
    }

    /// Votes for an end of the pieces of one direction of a flow, once: this node has seen enough. If all nodes that
    /// take streams do, they end.
    pub fn settle(&mut self, flow: u32, connection: u64, forward: bool) {
        self.votes.push(flows::Vote { flow, connection, forward });
    }

    /// Passes the streams to give, the votes so far and the number of voters to `work`; only for nodes that
    /// [give](Class::gives_streams) streams.
    pub(crate) fn give_streams(
        &mut self,
        work: impl FnOnce(&mut BatchFlows, &mut Vec<flows::Vote>, u8),
    ) {
        if let Some((flows, voters)) = &mut self.given {
            work(flows, self.votes, *voters);
        }
    }

    /// Tells why no frame arrives: [`process`](Node::process) is also called without frames if streams continue
    /// without them.
    pub fn pause(&self) -> Option<Pause> {
        self.pause
    }

    /// Gives a frame its class value, or an additional one; only for classes that declare it ([`Class::classifies`],
    /// [`Class::several_classes`]).
    pub fn classify(&mut self, index: usize, value: u32) {
        self.assigned.assign(index, value);
    }

    /// Takes a frame: it is neither passed nor rejected, because the node holds it or emits another one instead.
    pub fn take(&mut self, index: usize) {
        self.taken.set(index);
    }

    /// Loses frames that an output did not take: they do not pass, and count as lost at this node.
    pub fn lose(&mut self, frames: Mask) {
        self.lost = self.lost | frames;
    }

    /// Emits a frame after those that pass; it goes to the successors after this batch has run through the graph.
    pub fn emit(&mut self, frame: &Frame<'_>) {
        self.emitted.push(self.source, frame);
    }

    /// Emits a frame of `source` ([`Self::source`]) with class values.
    pub fn emit_classified(&mut self, source: u32, frame: &Frame<'_>, classes: &[u32]) {
        self.emitted.push_classified(source, frame, classes);
    }

    /// Takes a frame and emits another one instead, with the same class values and stream.
    pub fn replace(&mut self, index: usize, frame: &Frame<'_>) {
        self.take(index);
        let classes: Vec<u32> = self.classes.values_of(index).collect();
        let stream = self.stream(index);
        let flow = self.flow(index);
        self.emitted.store(self.source, frame, &classes, (stream, flow));
    }

    /// Emits all frames of a collection.
    pub fn emit_all(&mut self, collected: &mut Emitted) {
        self.emitted.append(collected);
    }

    /// Emits a frame that this node first rejected and passes now. If the batch is [cut](Self::cut) at
    /// [`position`](Self::position), the frame continues before any frame of this batch, marked late.
    pub fn emit_late(&mut self, frame: &Frame<'_>) {
        let mut late = *frame;
        late.meta.late = true;
        self.emitted.push(self.source, &late);
        self.emitted.mark_late();
    }

    /// As [`emit_late`](Self::emit_late), with what [`credit`](Self::credit) returns for the frame.
    pub(crate) fn emit_late_credited(&mut self, frame: &Frame<'_>, credit: Option<Credit>) {
        self.emit_late(frame);
        if let Some(stored) = self.emitted.frames.last_mut() {
            stored.credit = credit;
        }
    }

    /// The frames that this node has emitted and that have not gone on.
    pub(crate) fn emitted(&mut self) -> &mut Emitted {
        self.emitted
    }

    /// Number of the source of the batch, for frames that are emitted later.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Number of the batch, unique in this process.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Frames before this batch that the source still holds; `None` for frames that a node has made.
    pub fn held(&self) -> Option<LookBack<'a>> {
        self.held
    }

    /// Index of the first frame of the batch without a final result: the position of the last cut.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Counts of the source before frame `index` of the batch: frames of this batch count as received only. `None` with
    /// several workers, of which each knows a part.
    pub fn settled(&self, index: usize) -> Option<Settled> {
        let Settled { received, accepted } = self.settled?;
        let more = if self.origin.is_some() { 0 } else { index.saturating_sub(self.position) };
        Some(Settled { received: received + more as u64, accepted })
    }

    /// Cuts the batch: all nodes evaluate the frames from `at` on again, after the frames before `at` have run
    /// through the graph. So an edit made because of frame *n* is in force for frame *n* + 1. Only for classes that
    /// declare it ([`Class::cuts`]).
    pub fn cut(&mut self, at: usize) {
        self.cut = Some(self.cut.map_or(at, |other| other.min(at)));
    }

    /// Ends the graph after this batch, without cutting it.
    pub fn end_after(&mut self) {
        self.ends = true;
    }

    /// Cuts the batch at `at` and ends the graph there: later frames are not evaluated.
    pub fn end(&mut self, at: usize) {
        self.cut(at);
        self.ends = true;
    }
}

/// Counts of a source so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Frames that arrived, lost ones included.
    pub received: u64,
    /// Frames that an end of the graph has passed.
    pub accepted: u64,
}

/// Frames that a node has made, with their bytes.
#[derive(Debug, Default)]
pub struct Emitted {
    bytes: Vec<u8>,
    frames: Vec<Stored>,
    classes: Vec<u32>,
}

#[derive(Debug)]
struct Stored {
    source: u32,
    /// Stream, if the frame is a piece of one.
    stream: Option<NonZeroU64>,
    flow: FrameFlow,
    /// True if the node first rejected it.
    is_late: bool,
    /// The pass that accepted it, if known.
    credit: Option<Credit>,
    at: usize,
    len: usize,
    /// End of its class values; they begin at the end of the previous frame's.
    classes_end: usize,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl Emitted {
    /// Adds a copy of a frame of one of the interfaces of `source` ([`Arrival::source`]).
    pub fn push(&mut self, source: u32, frame: &Frame<'_>) {
        self.push_classified(source, frame, &[]);
    }

    /// Adds a copy of a frame with its class values.
    pub fn push_classified(&mut self, source: u32, frame: &Frame<'_>, classes: &[u32]) {
        self.store(source, frame, classes, (None, FrameFlow::None));
    }

    /// Adds a copy of a frame of a flow that the node first rejected and passes now, with its class value.
    pub fn push_late(&mut self, source: u32, frame: &Frame<'_>, class: u32, flow: FrameFlow) {
        let mut late = *frame;
        late.meta.late = true;
        self.store(source, &late, &[class], (None, flow));
        self.mark_late();
    }

    /// Notes that the node first rejected the last frame.
    fn mark_late(&mut self) {
        self.frames.last_mut().into_iter().for_each(|stored| stored.is_late = true);
    }

    /// True if the node first rejected a frame.
    pub(crate) fn is_late(&self, index: usize) -> bool {
        self.frames.get(index).is_some_and(|stored| stored.is_late)
    }

    /// True if the node first rejected one of the frames.
    pub(crate) fn has_late(&self) -> bool {
        self.frames.iter().any(|stored| stored.is_late)
    }

    /// Adds a piece of a stream ([`Arrival::stream`]), with its class value.
    pub fn push_piece(&mut self, source: u32, frame: &Frame<'_>, class: u32, stream: NonZeroU64) {
        self.store(source, frame, &[class], (Some(stream), FrameFlow::None));
    }

    fn store(
        &mut self,
        source: u32,
        frame: &Frame<'_>,
        classes: &[u32],
        (stream, flow): (Option<NonZeroU64>, FrameFlow),
    ) {
        self.classes.extend_from_slice(classes);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frame.data);
        self.frames.push(Stored {
            source,
            stream,
            flow,
            is_late: false,
            credit: None,
            at,
            len: frame.data.len(),
            classes_end: self.classes.len(),
            wire_len: frame.wire_len,
            timestamp_ns: frame.timestamp_ns,
            link: frame.link,
            interface: frame.interface,
            meta: frame.meta,
        });
    }

    /// Appends all frames of another collection.
    pub fn append(&mut self, other: &mut Emitted) {
        let (base, classes) = (self.bytes.len(), self.classes.len());
        self.bytes.append(&mut other.bytes);
        self.classes.append(&mut other.classes);
        let moved = other.frames.drain(..).map(|stored| Stored {
            at: stored.at + base,
            classes_end: stored.classes_end + classes,
            ..stored
        });
        self.frames.extend(moved);
    }

    /// The class values of a frame.
    pub(crate) fn classes(&self, index: usize) -> &[u32] {
        let end = self.frames.get(index).map_or(0, |stored| stored.classes_end);
        let before = index.checked_sub(1).and_then(|before| self.frames.get(before));
        &self.classes[before.map_or(0, |stored| stored.classes_end)..end]
    }

    /// Removes all frames.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        self.classes.clear();
    }

    /// Returns a frame and its source.
    pub(crate) fn get(&self, index: usize) -> Option<(Frame<'_>, u32)> {
        let stored = self.frames.get(index)?;
        let frame = Frame {
            data: &self.bytes[stored.at..stored.at + stored.len],
            wire_len: stored.wire_len,
            timestamp_ns: stored.timestamp_ns,
            link: stored.link,
            interface: stored.interface,
            meta: stored.meta,
        };
        Some((frame, stored.source))
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Number of bytes of memory of all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.frames.len() * size_of::<Stored>()
    }

    /// Reserves memory for as many frames as another collection has, and for their bytes.
    pub(crate) fn reserve_as(&mut self, other: &Emitted) {
        self.bytes.reserve(other.bytes.len());
        self.frames.reserve(other.frames.len());
    }

    /// Gives back memory that no frame uses.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.frames.shrink_to_fit();
    }

    /// True if there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the next batch from index `from`, with frames of one source and link type that are all new or all
    /// late, and that source.
    pub(crate) fn batch(&self, from: usize) -> (Batch<'_>, u32) {
        let mut batch = Batch::new();
        let source = self.frames.get(from).map_or(0, |stored| stored.source);
        let indices = (from..self.frames.len()).take(BATCH_CAPACITY);
        for index in indices {
            let Some((frame, its_source)) = self.get(index) else { break };
            let is_other = its_source != source || self.is_late(index) != self.is_late(from);
            if is_other || batch.push(frame).is_err() {
                break;
            }
        }
        (batch, source)
    }
}
