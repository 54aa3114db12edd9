//! The frames of a capture on their way to the program: a chunk of them is copied out of the ring, evaluated, and given
//! frame by frame.
//!
//! A loop of the program takes a [`Run`] of the chunk and gives its frames without a lock: for each it looks whether
//! the filters have been edited since the evaluation, and takes the frame's number. A frame is given once, whatever the
//! number of threads, and after an edit what is left is evaluated again. Cost for each frame: one copy, an evaluation
//! in a batch (none without filters), one atomic addition. The headers of a chunk are made together.

use crate::c::Header;
use fyke_capture::{Chunk, Filled, SharedSource, Source, SourceStats};
use fyke_filters::{FilterReader, FilterSet};
use fyke_frame::{Batch, Direction, Frame, LinkType, Mask};
use fyke_machine::bpf::run::{Outcome, Program};
use libc::{suseconds_t, time_t, timeval};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// `PCAP_D_IN` and `PCAP_D_OUT`.
const IN: i32 = 1;
const OUT: i32 = 2;

/// Rule of an evaluation: the number of edits, and the direction that the program wants, a `PCAP_D_` number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Number of edits of the filters.
    pub epoch: u64,
    /// The direction.
    pub direction: i32,
}

/// A frame for the program. Both stay until the next call that reads.
pub type Packet<'a> = (&'a Header, &'a [u8]);

/// Form in which the program wants frames.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Most bytes of a frame.
    pub snaplen: u32,
    /// Times have nanoseconds.
    pub is_nano: bool,
}

impl Form {
    fn header(self, timestamp_ns: u64, captured: usize, wire_len: u32) -> Header {
        let (seconds, nanos) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000);
        let fraction = if self.is_nano { nanos } else { nanos / 1_000 };
        let ts = timeval { tv_sec: seconds as time_t, tv_usec: fraction as suseconds_t };
        Header { ts, caplen: captured.min(self.snaplen as usize) as u32, len: wire_len }
    }
}

/// A frame that is accepted.
#[derive(Debug, Clone, Copy)]
struct Kept {
    header: Header,
    /// Its first byte among those of the chunk.
    start: u32,
    /// Its index in the chunk that was copied.
    index: u16,
    /// Its index in the batch that was evaluated.
    place: u16,
}

/// Frames of a chunk.
#[derive(Debug, Clone, Copy)]
enum Which<'a> {
    All(usize),
    These(&'a [u16]),
}

impl Which<'_> {
    fn len(self) -> usize {
        match self {
            Which::All(count) => count,
            Which::These(indices) => indices.len(),
        }
    }

    /// The index in the chunk of the frame at a place.
    fn index(self, place: usize) -> usize {
        match self {
            Which::All(_) => place,
            Which::These(indices) => indices.get(place).map_or(0, |&index| index.into()),
        }
    }
}

/// The accepted frames of a chunk.
#[derive(Debug)]
struct Judged {
    copied: Arc<Chunk>,
    frames: Vec<Kept>,
    /// Their places in the batch that was evaluated; `None` if there are no filters to count them for.
    places: Option<Mask>,
    rule: Rule,
    /// The next frame; at or above [`STOPPED`] none is given any more.
    next: AtomicUsize,
}

/// Above any number of a frame.
const STOPPED: usize = usize::MAX / 2;

impl Judged {
    /// Frames that the program has taken.
    fn taken(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.frames.len())
    }

    /// Ends the giving; returns the number of frames that the program has taken.
    fn stop(&self) -> usize {
        self.next.swap(STOPPED, Ordering::Relaxed).min(self.frames.len())
    }
}

/// Evaluated frames, which a loop gives to the program.
#[derive(Debug)]
pub struct Run(Arc<Judged>);

impl Run {
    /// Takes the next frame. `None` if there are no more, or the rule is another one: then the next run has the frames
    /// that are left.
    #[inline]
    pub fn next(&self, rule: Rule) -> Option<Packet<'_>> {
        let judged = &*self.0;
        if rule != judged.rule {
            return None;
        }
        let kept = judged.frames.get(judged.next.fetch_add(1, Ordering::Relaxed))?;
        let start = kept.start as usize;
        let bytes = judged.copied.bytes().get(start..start + kept.header.caplen as usize)?;
        Some((&kept.header, bytes))
    }
}

/// Result of asking for frames.
#[derive(Debug)]
pub enum Taken {
    /// Some, unless another thread takes them first.
    Run(Run),
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

/// The frames that are read and not taken.
#[derive(Debug)]
pub struct Reading {
    source: SharedSource,
    reader: FilterReader,
    link: LinkType,
    form: Form,
    /// The chunk that the program reads; the last frame that it took stays while this chunk does.
    judged: Arc<Judged>,
    /// Taken frames of it that are counted for their filters.
    counted: usize,
    /// Memory for the next chunk.
    spare: Chunk,
    /// Memory for the next batch; `None` while one is evaluated.
    batch: Option<Batch<'static>>,
    /// The program without a text, and the edit that it came with: any later edit replaces it.
    program: Option<(u64, Arc<Program>)>,
    accepted: u64,
    rejected: u64,
    foreign: u64,
    end: Option<String>,
}

impl Reading {
    /// Reads a source.
    pub fn new(source: SharedSource, reader: FilterReader, link: LinkType, form: Form) -> Reading {
        let rule = Rule { epoch: reader.epoch(), direction: 0 };
        let next = AtomicUsize::new(STOPPED);
        let (copied, frames) = (Arc::default(), Vec::new());
        let judged = Judged { copied, frames, places: None, rule, next };
        Reading {
            source,
            reader,
            link,
            form,
            judged: Arc::new(judged),
            counted: 0,
            spare: Chunk::default(),
            batch: None,
            program: None,
            accepted: 0,
            rejected: 0,
            foreign: 0,
            end: None,
        }
    }

    /// Replaces the program without a text.
    pub fn set_program(&mut self, program: Option<(u64, Arc<Program>)>) {
        self.program = program;
    }

    /// The program without a text that decides at this edit.
    pub fn program(&self, epoch: u64) -> Option<Arc<Program>> {
        let (_, program) = self.program.as_ref().filter(|(since, _)| *since == epoch)?;
        Some(Arc::clone(program))
    }

    /// True if a program without a text decides at this edit.
    pub fn has_program(&self, epoch: u64) -> bool {
        self.program.as_ref().is_some_and(|(since, _)| *since == epoch)
    }

    /// Frames for the program.
    pub fn take(&mut self, filters: &FilterSet, direction: i32) -> Taken {
        loop {
            let rule = Rule { epoch: filters.epoch(), direction };
            if rule != self.judged.rule {
                self.judge_again(direction);
            }
            if self.has_frames() {
                return Taken::Run(Run(Arc::clone(&self.judged)));
            }
            if self.end.is_none() && self.fill() {
                continue;
            }
            return match &self.end {
                Some(end) => Taken::End(end.clone()),
                None => Taken::Nothing,
            };
        }
    }

    fn has_frames(&self) -> bool {
        self.judged.taken() < self.judged.frames.len()
    }

    /// Reads a chunk and evaluates it; false if there is none.
    fn fill(&mut self) -> bool {
        self.settle();
        match self.source.next_chunk(&mut self.spare) {
            Ok(Filled::Frames) => {}
            Ok(Filled::Nothing) => return false,
            Ok(Filled::End) => {
                self.end = Some("the service has ended".to_owned());
                return false;
            }
            Err(error) => {
                self.end = Some(error.to_string());
                return false;
            }
        }
        // An edit before the chunk was read is in force for all of its frames.
        self.reader.refresh();
        // The memory of the chunk before is used again, unless a loop still gives a frame of it.
        let (mut frames, mut copied) = match Arc::get_mut(&mut self.judged) {
            Some(judged) => {
                (std::mem::take(&mut judged.frames), std::mem::take(&mut judged.copied))
            }
            None => Default::default(),
        };
        frames.clear();
        match Arc::get_mut(&mut copied) {
            Some(chunk) => std::mem::swap(chunk, &mut self.spare),
            None => copied = Arc::new(std::mem::take(&mut self.spare)),
        }
        let (count, link, direction) = (copied.len(), self.link, self.judged.rule.direction);
        let places = if copied.is_all(link) {
            self.judge(&copied, Which::All(count), direction, &mut frames)
        } else {
            let is_own = |index: &u16| copied.frame((*index).into()).link == link;
            let own: Vec<u16> = (0..count as u16).filter(is_own).collect();
            self.foreign += (count - own.len()) as u64;
            self.judge(&copied, Which::These(&own), direction, &mut frames)
        };
        self.give(copied, frames, places, direction);
        true
    }

    /// Replaces the chunk that the program reads.
    fn give(
        &mut self,
        copied: Arc<Chunk>,
        frames: Vec<Kept>,
        places: Option<Mask>,
        direction: i32,
    ) {
        let rule = Rule { epoch: self.reader.epoch(), direction };
        let judged = Judged { copied, frames, places, rule, next: AtomicUsize::new(0) };
        match Arc::get_mut(&mut self.judged) {
            Some(place) => *place = judged,
            None => self.judged = Arc::new(judged),
        }
        self.counted = 0;
    }

    /// Evaluates frames of a chunk under the filters of the reader; counts all of them. Returns the places of the
    /// accepted ones.
    fn judge(
        &mut self,
        copied: &Chunk,
        which: Which<'_>,
        direction: i32,
        into: &mut Vec<Kept>,
    ) -> Option<Mask> {
        let decides_here = direction != 0 || self.has_program(self.reader.epoch());
        let places =
            match !decides_here && self.reader.accepts_all() {
                true => {
                    into.extend((0..which.len()).map(|place| {
                        kept(self.form, copied, (place, which.index(place)), usize::MAX)
                    }));
                    None
                }
                false => self.evaluate(copied, which, direction, into),
            };
        self.accepted += into.len() as u64;
        self.rejected += (which.len() - into.len()) as u64;
        places
    }

    fn evaluate(
        &mut self,
        copied: &Chunk,
        which: Which<'_>,
        direction: i32,
        into: &mut Vec<Kept>,
    ) -> Option<Mask> {
        let mut batch = self.batch.take().unwrap_or_default().reuse();
        for place in 0..which.len() {
            // They were one batch before, so there is room.
            let _full = batch.push(copied.frame(which.index(place)));
        }
        let accepted = match self.reader.evaluate(&batch, batch.all()) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.end = Some(error.to_string());
                Mask::EMPTY
            }
        };
        let program = self.program.as_ref().filter(|(epoch, _)| *epoch == self.reader.epoch());
        let program = program.map(|(_, program)| &**program);
        let mut places = accepted;
        for place in accepted.iter() {
            let allowed = batch.frames().get(place).and_then(|frame| {
                if program.is_none() && direction == 0 {
                    return Some(usize::MAX);
                }
                allowed(program, direction, frame)
            });
            match allowed {
                Some(most) => {
                    into.push(kept(self.form, copied, (place, which.index(place)), most));
                }
                None => places.clear(place),
            }
        }
        self.batch = Some(batch.reuse());
        Some(places)
    }

    /// Adopts edits, and evaluates the frames that are left in the chunk again.
    fn judge_again(&mut self, direction: i32) {
        let judged = Arc::clone(&self.judged);
        let taken = judged.stop();
        self.count(taken);
        self.reader.refresh();
        let left = judged.frames.get(taken..).unwrap_or_default();
        // Counted again below.
        self.accepted -= left.len() as u64;
        let (mut frames, mut places) = (Vec::new(), None);
        if !left.is_empty() {
            let indices: Vec<u16> = left.iter().map(|kept| kept.index).collect();
            let which = Which::These(&indices);
            places = self.judge(&judged.copied, which, direction, &mut frames);
        }
        self.give(Arc::clone(&judged.copied), frames, places, direction);
    }

    /// Counts the frames that were taken for their filters.
    fn settle(&mut self) {
        self.count(self.judged.taken());
    }

    fn count(&mut self, taken: usize) {
        let Judged { frames, places: Some(places), .. } = &*self.judged else { return };
        let new = frames.get(self.counted..taken).unwrap_or_default();
        if new.is_empty() {
            return;
        }
        let mut mask = *places;
        if new.len() < frames.len() {
            mask = Mask::EMPTY;
            new.iter().for_each(|kept| mask.set(kept.place.into()));
        }
        self.reader.count(mask);
        self.counted = taken;
    }

    /// True if the program can have frames, or the end, without a look at the ring.
    pub fn is_left(&self) -> bool {
        self.has_frames() || self.end.is_some()
    }

    /// Asks for a wake-up; false if there is something to read.
    pub fn begin_sleep(&self) -> bool {
        !self.is_left() && self.source.begin_sleep()
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

/// A frame of a chunk for the program: its place in the batch and its index in the chunk, and the bytes that its own
/// filter lets through.
fn kept(form: Form, copied: &Chunk, (place, index): (usize, usize), most: usize) -> Kept {
    let head = copied.head(index);
    Kept {
        header: form.header(head.timestamp_ns, head.len.min(most), head.wire_len),
        start: copied.range(index).start as u32,
        index: index as u16,
        place: place as u16,
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

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_filter::Options;
    use fyke_ring::{Index, Packets, Publication, Reader};

    /// As if an edit came after `take` has looked for one, and frames after the edit.
    #[test]
    fn a_chunk_is_evaluated_under_the_edits_before_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ring");
        let link = LinkType::EN10MB;
        let mut packets = Packets::create(8192).unwrap();
        let mut index = Index::create(1024, link).unwrap();
        let published = Publication::new(&path, &packets, &index).unwrap();
        let mut source = SharedSource::new("a.ring", Reader::connect(&path).unwrap());
        source.set_patience(Duration::ZERO);
        while published.pages() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let filters = FilterSet::new(Options { link, ..Options::default() });
        filters.set("less 10").unwrap();
        let form = Form { snaplen: 1_000, is_nano: false };
        let mut reading = Reading::new(source, filters.reader(), link, form);
        let frame = Frame::new(link, &[7; 60]);
        let mut arrive = || {
            let placed = packets.put_from(&frame, None, Default::default()).unwrap();
            index.push_as(0, &placed, Default::default());
        };
        arrive();
        assert!(reading.fill());
        filters.set("less 100").unwrap();
        arrive();
        assert!(reading.fill());
        let Tally { accepted, rejected, .. } = reading.tally();
        assert_eq!((accepted, rejected), (1, 1));
    }
}
