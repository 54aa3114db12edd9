//! What a node is: the one trait that every class implements, and what it gets to see.
//!
//! A node is called once per batch with the frames that arrive at it, as a mask. It answers with the mask of those
//! that *pass*. It may give frames class values, *take* frames (hold them, or put others in their place) and *emit*
//! new ones; what it neither passes nor takes is rejected. Everything else (edges, sharing, counting, failing) is the
//! runtime's. Cost of a call that does nothing: below 1 ns a frame in full batches (`fyke bench graph`).
//!
//! ```
//! use fyke_graph::node::{Arrival, Class, Kind, Node, NodeError, Settings};
//! use fyke_frame::Mask;
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

mod class;
pub(crate) mod columns;
mod settings;

pub use class::{
    COMMON, Check, Class, EXPRESSION, Kind, Make, MakeError, Open, Parameter, always, never,
};
pub use settings::{MAX_MEMORY_BYTES, Memory, Settings};

use crate::rules::RuleSet;
use columns::Column;
use fyke_capture::{Account, Interface, LookBack, WriteError};
use fyke_filters::FilterSet;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask, Meta};
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// A node at work.
pub trait Node: Send {
    /// Judges the frames of [`Arrival::mask`]; returns those that pass.
    ///
    /// # Errors
    /// The node has failed: its branch stops, frames that arrive from now on count as lost, the rest goes on.
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError>;

    /// What was last answered for `frames` is final: time to count. Only for [`Class::repeatable`] nodes, because only
    /// they are asked again about frames behind a [cut](Arrival::cut).
    fn settle(&mut self, _frames: Mask) {}

    /// Called every tenth of a second, so that output can be flushed and held frames let go.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// For classes that [wait](Class::waits): hands output on, and waits at most `patience` for those who take it. True
    /// when the node can take another batch and, after [`finish`](Self::finish), when all of it has gone. No source is
    /// read while a node says no, so [`process`](Self::process) need not wait.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn make_room(&mut self, _patience: Duration) -> Result<bool, NodeError> {
        Ok(true)
    }

    /// Gives up the output that nobody takes; from now on frames are [lost](Self::lost).
    fn give_up(&mut self) {}

    /// Of the frames that it passed, those whose output is lost.
    fn lost(&self) -> u64 {
        0
    }

    /// Called once when no frame will come again.
    ///
    /// # Errors
    /// When what was taken cannot be brought to its place.
    fn finish(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// Told every tenth of a second and before the end: what has happened so far to the frames of each live interface.
    fn account(&mut self, _accounts: &[(Interface, Account)]) {}

    /// What the node has to tell, by name.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// The filters by which the node judges, for [`Class::editable`] ones.
    fn filters(&self) -> Option<&FilterSet> {
        None
    }

    /// The rules by which the node judges, for those that `fyke rules` edits.
    fn rules(&self) -> Option<&RuleSet> {
        None
    }

    /// Called once a [`Class::edits`] node is in its place, with the filters of the nearest editable node before it.
    fn connect(&mut self, _filters: &FilterSet) {}

    /// Takes other parameters and keeps what it has counted; false when it cannot, and then a new node takes its
    /// place. The settings are good: a node has been made of them.
    fn change(&mut self, _settings: &Settings) -> bool {
        false
    }
}

/// Why a node cannot go on. Shows what went wrong; the cause is kept for programs.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(#[source] pub Arc<dyn Error + Send + Sync>);

impl NodeError {
    /// From an error, or a text.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> NodeError {
        NodeError(Arc::from(error.into()))
    }
}

impl NodeError {
    /// Whether it is no failure: the node has written all files that it was asked for.
    pub fn is_done(&self) -> bool {
        self.0.downcast_ref().is_some_and(WriteError::is_file_limit)
    }
}

/// A counter as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// What is counted, with the unit where there is one: `packets`, `bytes_per_s`.
    pub name: String,
    /// How many.
    pub value: f64,
    /// Whether it is the same in every worker's copy of the node, such as a number of rows: not to be added up.
    pub is_common: bool,
}

impl Counter {
    /// A counter.
    pub fn new(name: impl Into<String>, value: impl Into<f64>) -> Counter {
        Counter { name: name.into(), value: value.into(), is_common: false }
    }

    /// A counter of whole things; exact up to 2^53.
    pub fn count(name: impl Into<String>, value: u64) -> Counter {
        Counter { name: name.into(), value: value as f64, is_common: false }
    }

    /// The same counter as one that all copies of a node have in common.
    pub fn common(self) -> Counter {
        Counter { is_common: true, ..self }
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
    /// For frames that a node has emitted: all of these, and which of them is the first of the batch.
    pub(crate) origin: Option<(&'a Emitted, usize)>,
    pub(crate) position: usize,
    pub(crate) taken: Mask,
    pub(crate) cut: Option<usize>,
    pub(crate) ends: bool,
}

impl<'a> Arrival<'a> {
    /// Which frames of the batch arrive.
    pub fn mask(&self) -> Mask {
        self.mask
    }

    /// The batch, with frames besides that do not arrive.
    pub fn batch(&self) -> &'a Batch<'a> {
        self.batch
    }

    /// The frames that arrive, in order, with their places in the batch.
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

    /// The interface that a frame came from.
    pub fn interface(&self, frame: &Frame<'_>) -> &'a Interface {
        &self.interfaces[frame.interface as usize]
    }

    /// All interfaces of the source that the batch came from.
    pub fn interfaces(&self) -> &'a [Interface] {
        self.interfaces
    }

    /// The class value that the last classifier on the way gave the frame; 0 when there was none.
    pub fn class(&self, index: usize) -> u32 {
        self.classes.value(index)
    }

    /// The stream that a piece belongs to: a number that no other stream of this process has; `None` for frames.
    pub fn stream(&self, index: usize) -> Option<NonZeroU64> {
        let (emitted, first) = self.origin?;
        emitted.frames.get(first + index)?.stream
    }

    /// Gives a frame its class value, or one more; only for classes that say so ([`Class::classifies`],
    /// [`Class::several_classes`]).
    pub fn classify(&mut self, index: usize, value: u32) {
        self.assigned.assign(index, value);
    }

    /// Takes a frame: it is neither passed nor rejected, because the node holds it or emits something in its place.
    pub fn take(&mut self, index: usize) {
        self.taken.set(index);
    }

    /// Emits a frame after those that pass: goes to the successors once this batch has been through the graph.
    pub fn emit(&mut self, frame: &Frame<'_>) {
        self.emitted.push(self.source, frame);
    }

    /// Emits a frame with class values that came from `source` ([`Self::source`]).
    pub fn emit_classified(&mut self, source: u32, frame: &Frame<'_>, classes: &[u32]) {
        self.emitted.push_classified(source, frame, classes);
    }

    /// Takes a frame and emits another one in its place, with the class values and the stream that it came with.
    pub fn replace(&mut self, index: usize, frame: &Frame<'_>) {
        self.take(index);
        let classes: Vec<u32> = self.classes.values_of(index).collect();
        let stream = self.stream(index);
        self.emitted.store(self.source, frame, &classes, stream);
    }

    /// Emits all that a node has collected by itself.
    pub fn emit_all(&mut self, collected: &mut Emitted) {
        self.emitted.append(collected);
    }

    /// Emits a frame that this node rejected when it came and passes now. It goes on before any frame of this batch,
    /// marked late, when the batch is [cut](Self::cut) at [`position`](Self::position).
    pub fn emit_late(&mut self, frame: &Frame<'_>) {
        let mut late = *frame;
        late.meta.late = true;
        self.emitted.push(self.source, &late);
        self.emitted.late += 1;
    }

    /// Which source the batch came from, for frames that are emitted later.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// A number that no other batch of this process has.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// What the source still holds of the frames before this batch; nothing for frames that a node has made.
    pub fn held(&self) -> Option<LookBack<'a>> {
        self.held
    }

    /// The first frame of the batch whose way is not final yet: where the last cut was.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Cuts the batch: the frames from `at` on are judged again, by all nodes, once those before it have gone their
    /// way. So an edit made because of frame *n* is in force for frame *n* + 1. Only for classes that say so
    /// ([`Class::cuts`]).
    pub fn cut(&mut self, at: usize) {
        self.cut = Some(self.cut.map_or(at, |other| other.min(at)));
    }

    /// Cuts the batch at `at` and ends the graph there: what comes after is not looked at.
    pub fn end(&mut self, at: usize) {
        self.cut(at);
        self.ends = true;
    }
}

/// Frames that a node has made, with their bytes.
#[derive(Debug, Default)]
pub struct Emitted {
    bytes: Vec<u8>,
    frames: Vec<Stored>,
    classes: Vec<u32>,
    /// How many of them the node rejected before.
    pub(crate) late: u64,
}

#[derive(Debug)]
struct Stored {
    source: u32,
    /// For a piece, its stream.
    stream: Option<NonZeroU64>,
    at: usize,
    len: usize,
    /// Where its class values end; they begin where those of the frame before end.
    classes_end: usize,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl Emitted {
    /// Adds a copy of a frame that belongs to the interfaces of `source` ([`Arrival::source`]).
    pub fn push(&mut self, source: u32, frame: &Frame<'_>) {
        self.push_classified(source, frame, &[]);
    }

    /// The same, with its class values.
    pub fn push_classified(&mut self, source: u32, frame: &Frame<'_>, classes: &[u32]) {
        self.store(source, frame, classes, None);
    }

    /// Adds a piece of a stream ([`Arrival::stream`]), with its class value.
    pub fn push_piece(&mut self, source: u32, frame: &Frame<'_>, class: u32, stream: NonZeroU64) {
        self.store(source, frame, &[class], Some(stream));
    }

    fn store(
        &mut self,
        source: u32,
        frame: &Frame<'_>,
        classes: &[u32],
        stream: Option<NonZeroU64>,
    ) {
        self.classes.extend_from_slice(classes);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frame.data);
        self.frames.push(Stored {
            source,
            stream,
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

    /// Moves all frames of another collection behind those of this one.
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

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The next batch from position `from`, all of one source and link type, and that source.
    pub(crate) fn batch(&self, from: usize) -> (Batch<'_>, u32) {
        let mut batch = Batch::new();
        let source = self.frames.get(from).map_or(0, |stored| stored.source);
        for stored in self.frames[from..].iter().take(BATCH_CAPACITY) {
            let frame = Frame {
                data: &self.bytes[stored.at..stored.at + stored.len],
                wire_len: stored.wire_len,
                timestamp_ns: stored.timestamp_ns,
                link: stored.link,
                interface: stored.interface,
                meta: stored.meta,
            };
            if stored.source != source || batch.push(frame).is_err() {
                break;
            }
        }
        (batch, source)
    }
}
