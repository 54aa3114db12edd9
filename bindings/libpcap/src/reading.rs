//! The frames of a capture on their way to the program: one batch, evaluated, of which the program gets one frame
//! after the other.

use fyke_capture::{Next, SharedSource, Source, SourceStats};
use fyke_filters::{FilterReader, FilterSet};
use fyke_frame::{Batch, Direction, Frame, LinkType, Mask, Meta};
use fyke_machine::bpf::run::{Outcome, Program};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// `PCAP_D_IN` and `PCAP_D_OUT`.
const IN: i32 = 1;
const OUT: i32 = 2;

/// A frame for the program.
#[derive(Debug)]
pub struct Packet {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Time of capture, nanoseconds since 1970.
    pub timestamp_ns: u64,
}

impl Packet {
    /// Its bytes, which stay until the packet is dropped and, of the last one, until the next is taken.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Result of asking for a frame.
#[derive(Debug)]
pub enum Taken {
    /// A frame.
    Packet(Packet),
    /// None at the moment.
    Nothing,
    /// None any more, for this reason.
    End(String),
}

/// Counts of the frames that were read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Accepted: the program has them, or they wait for it.
    pub accepted: u64,
    /// Rejected here; the service had passed them under a filter before.
    pub rejected: u64,
    /// Of another link type.
    pub foreign: u64,
    /// Frames in the ring.
    pub waiting: u64,
}

/// A frame of the chunk.
#[derive(Debug)]
struct Kept {
    range: Range<usize>,
    wire_len: u32,
    timestamp_ns: u64,
    meta: Meta,
    /// Bytes that the program's filter keeps.
    most: usize,
    /// Its index in the batch that was evaluated last.
    index: usize,
}

/// The frames that are read and not taken.
#[derive(Debug)]
pub struct Reading {
    source: SharedSource,
    reader: FilterReader,
    link: LinkType,
    /// Bytes of the chunk's frames; a program may still look at them after the chunk is replaced.
    bytes: Arc<Vec<u8>>,
    chunk: Vec<Kept>,
    /// The next frame of the chunk.
    next: usize,
    /// Frames of the batch that was evaluated last that are taken and not yet counted for their filters.
    taken: Mask,
    /// The program without a text, and the edit that it came with: any later edit replaces it.
    program: Option<(u64, Program)>,
    accepted: u64,
    rejected: u64,
    foreign: u64,
    end: Option<String>,
}

impl Reading {
    /// Reads a source, with a patience of zero.
    pub fn new(source: SharedSource, reader: FilterReader, link: LinkType) -> Reading {
        Reading {
            source,
            reader,
            link,
            bytes: Arc::default(),
            chunk: Vec::new(),
            next: 0,
            taken: Mask::EMPTY,
            program: None,
            accepted: 0,
            rejected: 0,
            foreign: 0,
            end: None,
        }
    }

    /// Replaces the program without a text.
    pub fn set_program(&mut self, program: Option<(u64, Program)>) {
        self.program = program;
    }

    /// True if a program without a text decides at this edit.
    pub fn has_program(&self, epoch: u64) -> bool {
        self.program.as_ref().is_some_and(|(since, _)| *since == epoch)
    }

    /// The next frame that is accepted.
    pub fn take(&mut self, filters: &FilterSet, direction: i32) -> Taken {
        loop {
            if filters.epoch() != self.reader.epoch() {
                self.settle();
                self.reader.refresh();
                self.judge_again(direction);
            }
            if let Some(kept) = self.chunk.get(self.next) {
                self.next += 1;
                self.taken.set(kept.index);
                let end = kept.range.start + kept.range.len().min(kept.most);
                return Taken::Packet(Packet {
                    bytes: Arc::clone(&self.bytes),
                    range: kept.range.start..end,
                    wire_len: kept.wire_len,
                    timestamp_ns: kept.timestamp_ns,
                });
            }
            if let Some(end) = &self.end {
                return Taken::End(end.clone());
            }
            if !self.fill(direction) {
                return match &self.end {
                    Some(end) => Taken::End(end.clone()),
                    None => Taken::Nothing,
                };
            }
        }
    }

    /// Reads a batch; false if there is none.
    fn fill(&mut self, direction: i32) -> bool {
        self.settle();
        self.chunk.clear();
        self.next = 0;
        let batch = match self.source.next() {
            Ok(Next::Frames(batch, _)) => batch,
            Ok(Next::Idle) => return false,
            Ok(Next::End) => {
                self.end = Some("the service has ended".to_owned());
                return false;
            }
            Err(error) => {
                self.end = Some(error.to_string());
                return false;
            }
        };
        let count = batch.len() as u64;
        if batch.frames().first().is_some_and(|frame| frame.link != self.link) {
            self.foreign += count;
            return true;
        }
        let program = self.program.as_ref().filter(|(epoch, _)| *epoch == self.reader.epoch());
        let accepted = match self.reader.evaluate(&batch, batch.all()) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.end = Some(error.to_string());
                self.foreign += count;
                return false;
            }
        };
        if Arc::get_mut(&mut self.bytes).is_none() {
            self.bytes = Arc::default();
        }
        let Some(bytes) = Arc::get_mut(&mut self.bytes) else { return false };
        bytes.clear();
        for index in accepted.iter() {
            let frame = &batch.frames()[index];
            let Some(most) = allowed(program.map(|(_, program)| program), direction, frame) else {
                continue;
            };
            let start = bytes.len();
            bytes.extend_from_slice(frame.data);
            self.chunk.push(Kept {
                range: start..bytes.len(),
                wire_len: frame.wire_len,
                timestamp_ns: frame.timestamp_ns,
                meta: frame.meta,
                most,
                index,
            });
        }
        self.accepted += self.chunk.len() as u64;
        self.rejected += count - self.chunk.len() as u64;
        true
    }

    /// Evaluates the frames that are left in the chunk again, after an edit.
    fn judge_again(&mut self, direction: i32) {
        self.settle();
        let left = self.chunk.split_off(self.next.min(self.chunk.len()));
        self.chunk.clear();
        self.next = 0;
        if left.is_empty() {
            return;
        }
        let mut batch = Batch::new();
        for kept in &left {
            let data = &self.bytes[kept.range.clone()];
            let frame = Frame {
                data,
                wire_len: kept.wire_len,
                timestamp_ns: kept.timestamp_ns,
                link: self.link,
                interface: 0,
                meta: kept.meta,
            };
            // They were one batch before, so there is room.
            let _full = batch.push(frame);
        }
        let accepted = self.reader.evaluate(&batch, batch.all()).unwrap_or_default();
        let program = self.program.as_ref().filter(|(epoch, _)| *epoch == self.reader.epoch());
        let program = program.map(|(_, program)| program);
        let before = left.len() as u64;
        for (index, mut kept) in left.into_iter().enumerate() {
            let Some(frame) = batch.frames().get(index).filter(|_| accepted.get(index)) else {
                continue;
            };
            if let Some(most) = allowed(program, direction, frame) {
                (kept.index, kept.most) = (index, most);
                self.chunk.push(kept);
            }
        }
        let gone = before - self.chunk.len() as u64;
        (self.accepted, self.rejected) = (self.accepted - gone, self.rejected + gone);
    }

    /// Counts the frames that were taken for their filters.
    fn settle(&mut self) {
        if !self.taken.is_empty() {
            self.reader.count(std::mem::take(&mut self.taken));
        }
    }

    /// Asks for a wake-up; false if there is something to read.
    pub fn begin_sleep(&self) -> bool {
        self.next >= self.chunk.len() && self.end.is_none() && self.source.begin_sleep()
    }

    /// Takes the request back.
    pub fn end_sleep(&self) {
        self.source.end_sleep();
    }

    /// Time for which frames may gather; zero if none have arrived since the last call.
    pub fn nap(&mut self) -> Duration {
        self.source.nap()
    }

    /// True if the service wakes this process.
    pub fn is_woken(&self) -> bool {
        self.source.event().is_some()
    }

    /// The counts of the source.
    pub fn stats(&mut self) -> SourceStats {
        self.settle();
        self.source.stats()
    }

    /// The counts of what was read.
    pub fn tally(&self) -> Tally {
        Tally {
            accepted: self.accepted,
            rejected: self.rejected,
            foreign: self.foreign,
            waiting: self.source.waiting(),
        }
    }
}

/// Bytes that the program gets of a frame that the texts accept; `None` if its own filter or its direction rejects it.
fn allowed(program: Option<&Program>, direction: i32, frame: &Frame<'_>) -> Option<usize> {
    let is_out = frame.meta.direction == Direction::Outbound;
    if (direction == IN && is_out) || (direction == OUT && !is_out) {
        return None;
    }
    match program.map(|program| program.run(frame)) {
        None => Some(usize::MAX),
        Some(Outcome::Accept { bytes }) => Some(bytes as usize),
        Some(_) => None,
    }
}
