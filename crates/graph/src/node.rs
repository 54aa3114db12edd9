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

use fyke_capture::{Interface, Source};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask, Meta};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A node at work.
pub trait Node: Send {
    /// Judges the frames of [`Arrival::mask`]; returns those that pass.
    ///
    /// # Errors
    /// The node has failed: its branch stops, frames that arrive from now on count as lost, the rest goes on.
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError>;

    /// Called every tenth of a second, so that output can be flushed and held frames let go.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// Called once when no frame will come again.
    ///
    /// # Errors
    /// When what was taken cannot be brought to its place.
    fn finish(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        Ok(())
    }

    /// What the node has to tell, by name.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }
}

/// Why a node cannot go on; for people.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(pub String);

impl NodeError {
    /// From whatever can be shown.
    pub fn new(error: impl std::fmt::Display) -> NodeError {
        NodeError(error.to_string())
    }
}

/// A counter as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// What is counted, with the unit where there is one: `packets`, `bytes_per_s`.
    pub name: String,
    /// How many.
    pub value: f64,
}

impl Counter {
    /// A counter.
    pub fn new(name: impl Into<String>, value: impl Into<f64>) -> Counter {
        Counter { name: name.into(), value: value.into() }
    }

    /// A counter of whole things; exact up to 2^53.
    pub fn count(name: impl Into<String>, value: u64) -> Counter {
        Counter { name: name.into(), value: value as f64 }
    }
}

/// The frames that arrive at a node.
pub struct Arrival<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) mask: Mask,
    pub(crate) interfaces: &'a [Interface],
    pub(crate) source: u32,
    pub(crate) classes: &'a [u16],
    pub(crate) assigned: &'a mut [u16],
    pub(crate) emitted: &'a mut Emitted,
    pub(crate) taken: Mask,
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
    pub fn class(&self, index: usize) -> u16 {
        self.classes.get(index).copied().unwrap_or(0)
    }

    /// Gives a frame its class value; only for classes that say so ([`Class::classifies`]).
    pub fn classify(&mut self, index: usize, value: u16) {
        if let Some(class) = self.assigned.get_mut(index) {
            *class = value;
        }
    }

    /// Takes a frame: it is neither passed nor rejected, because the node holds it or emits something in its place.
    pub fn take(&mut self, index: usize) {
        self.taken.set(index);
    }

    /// Emits a frame after those that pass: goes to the successors once this batch has been through the graph.
    pub fn emit(&mut self, frame: &Frame<'_>) {
        self.emitted.push(self.source, frame);
    }

    /// Which source the batch came from, for frames that are emitted later.
    pub fn source(&self) -> u32 {
        self.source
    }
}

/// Frames that a node has made, with their bytes.
#[derive(Debug, Default)]
pub struct Emitted {
    bytes: Vec<u8>,
    frames: Vec<Stored>,
}

#[derive(Debug)]
struct Stored {
    source: u32,
    at: usize,
    len: usize,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl Emitted {
    /// Adds a copy of a frame that belongs to the interfaces of `source` ([`Arrival::source`]).
    pub fn push(&mut self, source: u32, frame: &Frame<'_>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(frame.data);
        self.frames.push(Stored {
            source,
            at,
            len: frame.data.len(),
            wire_len: frame.wire_len,
            timestamp_ns: frame.timestamp_ns,
            link: frame.link,
            interface: frame.interface,
            meta: frame.meta,
        });
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

/// What a class is for, which decides how nodes of it may be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Frames start here; nothing feeds it.
    Source,
    /// Frames go through.
    Node,
}

/// A parameter that a class knows.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// In lower case.
    pub name: &'static str,
    /// What it says, with its default.
    pub summary: &'static str,
}

/// Why a node cannot be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct MakeError {
    /// The parameter that is to blame; empty = the whole node.
    pub parameter: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl MakeError {
    /// Blames a parameter.
    pub fn new(parameter: &'static str, message: impl std::fmt::Display) -> MakeError {
        MakeError { parameter, message: message.to_string() }
    }
}

/// Checks settings and opens nothing.
pub type Check = fn(&Settings) -> Result<(), MakeError>;
/// Makes a node from its settings.
pub type Make = fn(&Settings) -> Result<Box<dyn Node>, MakeError>;
/// Opens a source.
pub type Open = fn(&Settings) -> Result<Box<dyn Source>, MakeError>;

/// A filter class: a routine under a name.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// As graphs write it, in lower case.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// One line for people.
    pub summary: &'static str,
    /// What it knows besides `export`, `mbufsize`, `identifier` and `duplicates`.
    pub parameters: &'static [Parameter],
    /// How it may be connected.
    pub kind: Kind,
    /// Whether it gives class values. Where it does not, class values go through it.
    pub classifies: bool,
    /// Checks the settings without opening anything; `None` = `make` does nothing but check and allocate.
    pub check: Option<Check>,
    /// Makes a node.
    pub make: Make,
    /// Opens a source; only for [`Kind::Source`].
    pub open: Open,
}

/// The parameter that most classes have.
pub const EXPRESSION: &[Parameter] =
    &[Parameter { name: "expression", summary: "what it works by" }];

/// Parameters that every class knows.
pub const COMMON: [Parameter; 5] = [
    Parameter { name: "export", summary: "y: its counters are shown at the end" },
    Parameter { name: "exported", summary: "the same" },
    Parameter { name: "mbufsize", summary: "bytes of memory that others may read, at least" },
    Parameter { name: "identifier", summary: "the tag" },
    Parameter { name: "duplicates", summary: "y: once per branch that passes the frame" },
];

impl Class {
    /// What most classes have in common; to be completed.
    pub const NODE: Class = Class {
        name: "",
        aliases: &[],
        summary: "",
        parameters: EXPRESSION,
        kind: Kind::Node,
        classifies: false,
        check: None,
        make: |_| Err(MakeError::new("", "a source is opened, not made")),
        open: |_| Err(MakeError::new("", "not a source")),
    };
}

/// The parameters of a node, read by its class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pairs: Vec<(String, String)>,
    memory: Memory,
}

impl Settings {
    /// From names (in lower case) and values.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Settings {
        let mut settings =
            Settings { pairs: pairs.into_iter().collect(), memory: Memory::default() };
        let bytes = settings.text("mbufsize").and_then(|size| size.parse().ok()).unwrap_or(0);
        settings.memory = Memory::new(bytes);
        settings
    }

    /// Name and value, in the order they were written.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The value of a parameter, or nothing when it is absent or empty. The last one counts.
    pub fn text(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().rev().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The value of a parameter that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn required(&self, name: &'static str) -> Result<&str, MakeError> {
        self.text(name).ok_or_else(|| MakeError::new(name, format!("it needs `{name}=…`")))
    }

    /// A whole number that must be there.
    ///
    /// # Errors
    /// When it is absent, no number, or out of range.
    pub fn number(&self, name: &'static str, range: RangeInclusive<u64>) -> Result<u64, MakeError> {
        let text = self.required(name)?;
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (from, to) = range.into_inner();
            MakeError::new(name, format!("{text} is not a whole number from {from} to {to}"))
        })
    }

    /// A whole number, or the default.
    ///
    /// # Errors
    /// When it is no number, or out of range.
    pub fn number_or(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, MakeError> {
        if self.text(name).is_none() { Ok(default) } else { self.number(name, range) }
    }

    /// A yes or no; no when absent.
    ///
    /// # Errors
    /// When it is neither.
    pub fn flag(&self, name: &'static str) -> Result<bool, MakeError> {
        match self.text(name).unwrap_or("n").to_ascii_lowercase().as_str() {
            "y" | "yes" | "1" | "true" | "on" => Ok(true),
            "n" | "no" | "0" | "false" | "off" => Ok(false),
            other => Err(MakeError::new(name, format!("{other} is neither `y` nor `n`"))),
        }
    }

    /// One of several words; the first is the default.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn choice(&self, name: &'static str, words: &[&'static str]) -> Result<usize, MakeError> {
        let Some(given) = self.text(name) else { return Ok(0) };
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(given));
        at.ok_or_else(|| MakeError::new(name, format!("{given} is none of: {}", words.join(", "))))
    }

    /// The memory buffer of the node.
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }
}

/// Most bytes of a memory buffer.
pub const MAX_MEMORY_BYTES: u64 = 1 << 24;

/// A memory buffer: words that one node writes and anybody reads while it runs. FFPF's MBuf (section 2.4).
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<[AtomicU64]>);

impl PartialEq for Memory {
    fn eq(&self, other: &Memory) -> bool {
        self.0.len() == other.0.len()
    }
}
impl Eq for Memory {}

impl Memory {
    /// At least `bytes` bytes, and one word in any case.
    pub fn new(bytes: u64) -> Memory {
        let words = bytes.min(MAX_MEMORY_BYTES).div_ceil(8).max(1);
        Memory((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a word; nothing happens beyond the end.
    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads a word; 0 beyond the end.
    pub fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}
