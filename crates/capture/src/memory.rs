//! Frames from memory, repeated any number of times: for tests, generators and benches.
//!
//! The frames are stored once, back to back; clones share them until a frame is added to one. Every round lends the
//! same bytes again, with timestamps increased by the length of a round.

use crate::error::ReadError;
use crate::source::{HeldFrames, HeldMark, Interface, LookBack, Next, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Meta};
use std::sync::Arc;

/// A source that replays stored frames.
///
/// ```
/// # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame}; }
/// use fyke::capture::{MemorySource, Next, Source};
/// use fyke::frame::{Frame, LinkType};
///
/// let mut source = MemorySource::new(LinkType::EN10MB);
/// source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
/// source.repeat(3);
/// let Ok(Next::Frames(batch, _)) = source.next() else { panic!("three frames") };
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct MemorySource {
    interfaces: Vec<Interface>,
    bytes: Arc<Vec<u8>>,
    stored: Arc<Vec<Stored>>,
    rounds: u64,
    round_ns: u64,
    delivered: u64,
    batch_limit: usize,
    look_back: u64,
}

#[derive(Debug, Clone)]
struct Stored {
    at: usize,
    len: usize,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl MemorySource {
    /// Creates an empty source with one interface.
    pub fn new(link: LinkType) -> Self {
        MemorySource {
            interfaces: vec![Interface::new("memory", link)],
            bytes: Arc::default(),
            stored: Arc::default(),
            rounds: 1,
            round_ns: 0,
            delivered: 0,
            batch_limit: BATCH_CAPACITY,
            look_back: 0,
        }
    }

    /// Adds an interface; returns its index for `Frame::interface`.
    pub fn add_interface(&mut self, interface: Interface) -> u32 {
        self.interfaces.push(interface);
        self.interfaces.len() as u32 - 1
    }

    /// Adds a copy of a frame.
    ///
    /// # Panics
    /// If the frame names an interface that has not been added: an error of the caller.
    pub fn push(&mut self, frame: &Frame<'_>) {
        assert!((frame.interface as usize) < self.interfaces.len(), "add the interface first");
        let at = self.bytes.len();
        Arc::make_mut(&mut self.bytes).extend_from_slice(frame.data);
        Arc::make_mut(&mut self.stored).push(Stored {
            at,
            len: frame.data.len(),
            wire_len: frame.wire_len,
            timestamp_ns: frame.timestamp_ns,
            link: frame.link,
            interface: frame.interface,
            meta: frame.meta,
        });
        let first = self.stored[0].timestamp_ns;
        self.round_ns = self.round_ns.max(frame.timestamp_ns.saturating_sub(first) + 1);
    }

    /// Sets the number of times to deliver the stored frames (initially 1).
    pub fn repeat(&mut self, rounds: u64) -> &mut Self {
        self.rounds = rounds;
        self
    }

    /// Sets the most frames of a batch, from 1 to [`BATCH_CAPACITY`] (the default).
    pub fn batch_limit(&mut self, frames: usize) -> &mut Self {
        self.batch_limit = frames.clamp(1, BATCH_CAPACITY);
        self
    }

    /// Sets the number of frames before a batch that are offered for look-back (initially 0).
    pub fn look_back(&mut self, frames: u64) -> &mut Self {
        self.look_back = frames;
        self
    }

    /// Number of stored frames.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// True if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    fn total(&self) -> u64 {
        self.rounds.saturating_mul(self.stored.len() as u64)
    }

    fn frame(&self, sequence: u64) -> Frame<'_> {
        let count = self.stored.len() as u64;
        let stored = &self.stored[(sequence % count) as usize];
        let passed = (sequence / count).saturating_mul(self.round_ns);
        Frame {
            data: &self.bytes[stored.at..stored.at + stored.len],
            wire_len: stored.wire_len,
            timestamp_ns: stored.timestamp_ns.saturating_add(passed),
            link: stored.link,
            interface: stored.interface,
            meta: stored.meta,
        }
    }
}

impl Source for MemorySource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let first = self.delivered;
        let last = self.total().min(first + self.batch_limit as u64);
        if first >= last {
            return Ok(Next::End);
        }
        let link = self.frame(first).link;
        let same = (first..last).take_while(|&sequence| self.frame(sequence).link == link).count();
        self.delivered = first + same as u64;
        let mut batch = Batch::new();
        batch.first_sequence = first;
        for sequence in first..self.delivered {
            let pushed = batch.push(self.frame(sequence));
            debug_assert!(pushed.is_ok(), "not too many, of one link type");
        }
        let mark = [first.saturating_sub(self.look_back), first, 0, 0];
        Ok(Next::Frames(batch, LookBack::new(&*self, mark, &self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        SourceStats { received: self.delivered, delivered: self.delivered, ..Default::default() }
    }
}

impl HeldFrames for MemorySource {
    fn frames(&self, [from, to, ..]: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_> {
        Box::new((from..to).map(move |sequence| (sequence, MemorySource::frame(self, sequence))))
    }

    fn frame(&self, [from, to, ..]: HeldMark, sequence: u64) -> Option<Frame<'_>> {
        (from..to).contains(&sequence).then(|| MemorySource::frame(self, sequence))
    }
}
