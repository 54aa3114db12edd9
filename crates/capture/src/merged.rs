//! Frames of several sources as one source, in the order of their times.
//!
//! A live source hands over frames in blocks, some milliseconds after they arrived. So a frame of one source waits
//! until every other source has later frames, or until it has waited for a *window* that is longer than the delay of
//! all sources. Within the window the order is exact; a source that is later than that delays no other.
//!
//! Sources lend frames only until the next call, so frames are copied. Cost: a copy of each frame, and the
//! frames of one window in memory, at most 65,536 frames and 32 MiB of each source; beyond that, the sources
//! hold them. No frame is held for look-back. Each source has a kernel filter of its own.

use crate::error::ReadError;
use crate::source::{Interface, LookBack, Next, Notice, SocketFilter, Source, SourceStats};
use crate::wait_for_any;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Meta};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most frames of a source that wait.
const MAX_FRAMES: usize = 1 << 16;
/// Bytes of a source that wait, above which it is not read.
const MAX_BYTES: usize = 1 << 25;
/// Time until frames of a source that cannot signal are looked for again.
const POLL: Duration = Duration::from_millis(1);

/// Several sources, merged.
pub struct MergedSource {
    inputs: Vec<Input>,
    interfaces: Vec<Interface>,
    window: Duration,
    patience: Duration,
    delivered: u64,
    /// Frames of the next batch: input and position in its queue.
    picked: Vec<(usize, usize)>,
    notices: VecDeque<Notice>,
    /// First failure of a source, returned after the frames of the others.
    failed: Option<ReadError>,
}

/// A source, and its frames that wait.
struct Input {
    source: Box<dyn Source>,
    /// Number of its first interface among those of all.
    first_interface: u32,
    ended: bool,
    /// Copied batches, oldest first.
    chunks: VecDeque<Chunk>,
    /// Batches that have been delivered; their memory is used again.
    spare: Vec<Chunk>,
    /// Frames of the first chunk that have been delivered.
    delivered: usize,
    frame_count: usize,
    byte_count: usize,
    /// Counts of the source when they were read last.
    stats: SourceStats,
}

/// A copied batch.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    frames: Vec<Stored>,
    taken: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Stored {
    at: usize,
    len: usize,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl MergedSource {
    /// Merges sources. `window` must be longer than the time after which each of them hands over a frame.
    pub fn new(sources: Vec<Box<dyn Source>>, window: Duration) -> MergedSource {
        let mut interfaces = Vec::new();
        let inputs = sources.into_iter().map(|mut source| {
            source.set_patience(Duration::ZERO);
            let first_interface = interfaces.len() as u32;
            interfaces.extend_from_slice(source.interfaces());
            Input {
                source,
                first_interface,
                ended: false,
                chunks: VecDeque::new(),
                spare: Vec::new(),
                delivered: 0,
                frame_count: 0,
                byte_count: 0,
                stats: SourceStats::default(),
            }
        });
        MergedSource {
            inputs: inputs.collect(),
            interfaces,
            window,
            patience: Duration::from_millis(20),
            delivered: 0,
            picked: Vec::with_capacity(BATCH_CAPACITY),
            notices: VecDeque::new(),
            failed: None,
        }
    }

    /// Reads a batch of every source that has one; true if one of them did.
    fn read(&mut self) -> bool {
        let mut any = false;
        for input in &mut self.inputs {
            if let Err(error) = input.read(&mut any) {
                self.failed.get_or_insert(error);
            }
            self.notices.extend(std::iter::from_fn(|| input.source.take_notice()));
        }
        any
    }

    /// Chooses the frames of the next batch: the oldest ones that no frame can precede any more, of one link type.
    fn pick(&mut self, now: Instant) {
        self.picked.clear();
        let mut at = vec![0; self.inputs.len()];
        let mut link = None;
        while self.picked.len() < BATCH_CAPACITY {
            let heads = self.inputs.iter().zip(&at).enumerate();
            let waiting = heads.filter_map(|(number, (input, &at))| {
                let (chunk, stored) = input.get(at)?;
                Some((stored.timestamp_ns, number, chunk.taken, stored.link))
            });
            let Some((_, number, taken, its_link)) = waiting.min_by_key(|head| (head.0, head.1))
            else {
                break;
            };
            let may_come = |(input, &at): (&Input, &usize)| !input.ended && input.get(at).is_none();
            let awaited = self.inputs.iter().zip(&at).any(may_come);
            let old = taken.is_none_or(|taken| now.duration_since(taken) >= self.window);
            if (awaited && !old) || *link.get_or_insert(its_link) != its_link {
                break;
            }
            self.picked.push((number, at[number]));
            at[number] += 1;
        }
    }

    /// Lends the chosen frames.
    fn lend(&mut self) -> Next<'_> {
        self.delivered += self.picked.len() as u64;
        let mut batch = Batch::new();
        for &(number, at) in &self.picked {
            let input = &self.inputs[number];
            let Some((chunk, stored)) = input.get(at) else { continue };
            let frame = Frame {
                data: &chunk.bytes[stored.at..stored.at + stored.len],
                wire_len: stored.wire_len,
                timestamp_ns: stored.timestamp_ns,
                link: stored.link,
                interface: stored.interface,
                meta: stored.meta,
            };
            let pushed = batch.push(frame);
            debug_assert!(pushed.is_ok(), "one link type, and no more than fit");
        }
        Next::Frames(batch, LookBack::none(&self.interfaces))
    }

    /// Removes the frames of the last batch.
    fn remove_delivered(&mut self) {
        for (number, _) in self.picked.drain(..) {
            self.inputs[number].remove_first();
        }
    }

    /// Waits for frames, at most as long as `patience`, and not longer than the first frame has to wait.
    fn wait(&self, patience: Duration, now: Instant) {
        let oldest = self.inputs.iter().filter_map(|input| input.get(0)?.0.taken).min();
        let left = |taken: Instant| self.window.saturating_sub(now.duration_since(taken));
        let wait = oldest.map_or(patience, |taken| patience.min(left(taken).max(POLL)));
        let read = self.inputs.iter().filter(|input| input.is_read());
        let readiness: Vec<_> = read.clone().map(|input| input.source.readiness()).collect();
        let wait = if readiness.iter().all(Option::is_some) { wait } else { wait.min(POLL) };
        let readiness: Vec<_> = readiness.into_iter().flatten().collect();
        wait_for_any(&readiness, wait);
    }
}

impl Input {
    /// True if frames are read from the source now.
    fn is_read(&self) -> bool {
        !self.ended && self.frame_count < MAX_FRAMES && self.byte_count < MAX_BYTES
    }

    /// Copies the next batch of the source, if there is one.
    fn read(&mut self, any: &mut bool) -> Result<(), ReadError> {
        if !self.is_read() {
            return Ok(());
        }
        let batch = match self.source.next() {
            Ok(Next::Frames(batch, _)) => batch,
            Ok(Next::Idle) => return Ok(()),
            Ok(Next::End) => {
                self.ended = true;
                return Ok(());
            }
            Err(error) => {
                self.ended = true;
                return Err(error);
            }
        };
        *any = true;
        let mut chunk = self.spare.pop().unwrap_or_default();
        for frame in batch.frames() {
            chunk.frames.push(Stored {
                at: chunk.bytes.len(),
                len: frame.data.len(),
                wire_len: frame.wire_len,
                timestamp_ns: frame.timestamp_ns,
                link: frame.link,
                interface: frame.interface + self.first_interface,
                meta: frame.meta,
            });
            chunk.bytes.extend_from_slice(frame.data);
        }
        chunk.taken = Some(Instant::now());
        self.frame_count += chunk.frames.len();
        self.byte_count += chunk.bytes.len();
        self.chunks.push_back(chunk);
        Ok(())
    }

    /// The frame at a position among those that wait, and its chunk.
    fn get(&self, at: usize) -> Option<(&Chunk, &Stored)> {
        let mut at = at + self.delivered;
        for chunk in &self.chunks {
            match chunk.frames.get(at) {
                Some(stored) => return Some((chunk, stored)),
                None => at -= chunk.frames.len(),
            }
        }
        None
    }

    fn remove_first(&mut self) {
        self.frame_count -= 1;
        self.delivered += 1;
        if self.chunks.front().is_some_and(|chunk| chunk.frames.len() == self.delivered)
            && let Some(mut chunk) = self.chunks.pop_front()
        {
            self.delivered = 0;
            self.byte_count -= chunk.bytes.len();
            chunk.bytes.clear();
            chunk.frames.clear();
            if self.spare.len() < 4 {
                self.spare.push(chunk);
            }
        }
    }
}

impl Source for MergedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        self.remove_delivered();
        let mut has_waited = false;
        loop {
            let read = self.read();
            if !self.notices.is_empty() {
                return Ok(Next::Idle);
            }
            let now = Instant::now();
            self.pick(now);
            if !self.picked.is_empty() {
                return Ok(self.lend());
            }
            if self.inputs.iter().all(|input| input.ended && input.frame_count == 0) {
                return self.failed.take().map_or(Ok(Next::End), Err);
            }
            if has_waited && !read {
                return Ok(Next::Idle);
            }
            if !read && !self.patience.is_zero() {
                self.wait(self.patience, now);
            }
            has_waited |= !read;
        }
    }

    /// Counts of all sources together. A frame that was copied and waits is not delivered yet.
    fn stats(&mut self) -> SourceStats {
        self.inputs.iter_mut().for_each(|input| input.stats = input.source.stats());
        let all = self.inputs.iter().map(|input| input.stats);
        let all = all.fold(SourceStats::default(), |sum, one| sum.plus(&one));
        SourceStats { delivered: self.delivered, ..all }
    }

    /// Those of each source, which has one interface, of which `stats` returned the sum last.
    fn stats_by_interface(&self) -> Vec<SourceStats> {
        self.inputs.iter().map(|input| input.stats).collect()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn stop(&mut self) -> bool {
        for input in self.inputs.iter_mut().filter(|input| !input.ended) {
            input.ended = !input.source.stop();
        }
        self.inputs.iter().any(|input| !input.ended || input.frame_count > 0)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_filters(&mut self, mut filters: &[Arc<dyn SocketFilter>]) -> io::Result<()> {
        if filters.len() != self.interfaces.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a filter per interface"));
        }
        for input in &mut self.inputs {
            let (its, rest) = filters.split_at(input.source.interfaces().len());
            input.source.set_filters(its)?;
            filters = rest;
        }
        Ok(())
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySource;

    fn source(name: &str, times: &[u64]) -> Box<dyn Source> {
        let mut source = MemorySource::new(LinkType::EN10MB);
        for &time in times {
            let data = [name.as_bytes()[0]; 60];
            let frame = Frame::new(LinkType::EN10MB, &data);
            source.push(&Frame { timestamp_ns: time, ..frame });
        }
        source.batch_limit(3);
        Box::new(source)
    }

    fn all(merged: &mut MergedSource) -> Vec<(u64, u32, u8)> {
        let mut seen = Vec::new();
        loop {
            match merged.next().unwrap() {
                Next::Frames(batch, held) => {
                    assert_eq!(held.frames().count(), 0);
                    let one =
                        |frame: &Frame<'_>| (frame.timestamp_ns, frame.interface, frame.data[0]);
                    seen.extend(batch.frames().iter().map(one));
                }
                Next::Idle => {}
                Next::End => return seen,
            }
        }
    }

    #[test]
    fn frames_are_in_the_order_of_time_and_keep_their_interface() {
        let sources =
            vec![source("a", &[1, 4, 7, 7, 9, 20]), source("b", &[2, 3, 7, 8, 30, 31, 32])];
        let mut merged = MergedSource::new(sources, Duration::from_secs(3600));
        assert_eq!(merged.interfaces().len(), 2);
        let seen = all(&mut merged);
        let times: Vec<_> = seen.iter().map(|one| one.0).collect();
        assert_eq!(times, [1, 2, 3, 4, 7, 7, 7, 8, 9, 20, 30, 31, 32]);
        assert!(seen.iter().all(|one| one.2 == b"ab"[one.1 as usize]), "{seen:?}");
        let stats = merged.stats();
        assert_eq!((stats.received, stats.delivered), (13, 13));
        assert!(matches!(merged.next(), Ok(Next::End)));
    }

    #[test]
    fn more_than_one_batch_is_merged() {
        let even: Vec<u64> = (0..2000).map(|number| 2 * number).collect();
        let odd: Vec<u64> = (0..1500).map(|number| 2 * number + 1).collect();
        let sources = vec![source("a", &even), source("b", &odd), source("c", &[])];
        let mut merged = MergedSource::new(sources, Duration::from_secs(3600));
        let seen = all(&mut merged);
        assert_eq!(seen.len(), 3500);
        assert!(seen.is_sorted());
    }

    /// A source that has nothing, and does not end until it is stopped.
    struct Silent {
        interfaces: [Interface; 1],
        stopped: bool,
    }

    impl Source for Silent {
        fn interfaces(&self) -> &[Interface] {
            &self.interfaces
        }

        fn next(&mut self) -> Result<Next<'_>, ReadError> {
            Ok(if self.stopped { Next::End } else { Next::Idle })
        }

        fn stats(&mut self) -> SourceStats {
            SourceStats::default()
        }

        fn stop(&mut self) -> bool {
            self.stopped = true;
            true
        }
    }

    fn silent() -> Box<dyn Source> {
        let interfaces = [Interface::new("silent", LinkType::EN10MB)];
        Box::new(Silent { interfaces, stopped: false })
    }

    #[test]
    fn a_silent_source_delays_the_others_by_the_window_only() {
        let mut merged =
            MergedSource::new(vec![source("a", &[1, 2]), silent()], Duration::from_millis(20));
        let mut seen = 0;
        while seen < 2 {
            match merged.next().unwrap() {
                Next::Frames(batch, _) => seen += batch.len(),
                Next::Idle => {}
                Next::End => panic!("the silent source has not ended"),
            }
        }
        assert!(matches!(merged.next(), Ok(Next::Idle)));
    }

    #[test]
    fn a_stop_delivers_what_waits() {
        let mut merged =
            MergedSource::new(vec![source("a", &[1, 2]), silent()], Duration::from_secs(3600));
        assert!(matches!(merged.next(), Ok(Next::Idle)));
        assert!(merged.stop());
        assert_eq!(all(&mut merged).len(), 2);
    }
}
