//! Frames kept in memory for questions after the fact: those of them that a filter would accept that is not in force,
//! and the reason why the filters in force reject the others.
//!
//! A node copies frames into a *chunk* of its own and hands it over when it is full, or the source has no more frames
//! at the moment, after which the packet loop may wait for long. Clients take
//! references to the chunks and look at them in their own time. The lock is held only while references move; a node
//! that does not get it at once hands the chunk over later, so the packet loop never waits.
//!
//! Cost: with a limit of frames per second ([`KeptLimits::per_second`]), one look at the clock for each batch and the
//! copies of that many frames, on average over 160 ms; of more, some batches are kept whole and others not at all, and
//! [`Chunk::arrived`] tells how many frames there were. Memory: the limits, and one chunk for each worker.

use crate::node::{Arrival, Emitted};
use fyke_capture::Interface;
use fyke_frame::{BATCH_CAPACITY, Batch, Frame};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Frames of a chunk that is full.
const CHUNK_FRAMES: usize = 256;
/// Most bytes of a chunk that is full, and the part of all kept bytes that it takes at most. The oldest chunk goes as
/// a whole, so chunks that were as large as all kept bytes would leave nothing.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_PART: usize = 8;

/// Longest time without frames for which more are copied later, if their number in a second is limited. It is the
/// longest wait of a kernel's ring for a full block.
const BURST: Duration = Duration::from_millis(160);

/// Shortest time between chunks that are not full, if all frames are kept.
const SMALL_CHUNKS: Duration = Duration::from_millis(10);

/// Limits of the kept frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptLimits {
    /// Most frames.
    pub frames: usize,
    /// Most bytes of frames.
    pub bytes: usize,
    /// Age of the oldest frames, by the times of the frames; `None` = any.
    pub age: Option<Duration>,
    /// Most frames that are copied in a second; 0 = all.
    pub per_second: u32,
}

impl KeptLimits {
    /// The last 4,096 frames, at most 8 MiB of them; at most about 8,000 are copied in a second, so that they reach
    /// half a second back at any rate.
    pub const RECENT: KeptLimits =
        KeptLimits { frames: 4_096, bytes: 8 << 20, age: None, per_second: 8_192 };

    /// Bytes of a chunk that is full; if not all frames are kept, the rest of its batch is not.
    fn chunk_bytes(&self) -> usize {
        (self.bytes / CHUNK_PART).clamp(1, CHUNK_BYTES)
    }
}

/// The kept frames; clones share them.
#[derive(Debug, Clone)]
pub struct Kept(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: KeptLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Arc<Chunk>>,
    frames: usize,
    bytes: usize,
    /// Time of the newest frame of the last chunk. It may be earlier than that of older frames: a clock that was ahead
    /// has been set back.
    newest_ns: u64,
}

/// Frames that arrived one after the other, from one source.
#[derive(Debug, Default)]
pub struct Chunk {
    frames: Emitted,
    interfaces: Arc<[Interface]>,
    source: u32,
    arrived: u64,
    /// Time of its newest frame.
    newest_ns: u64,
}

impl Chunk {
    /// Number of its frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if it has no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of frames that arrived since the chunk before it, kept or not.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Time of its newest frame, nanoseconds since 1970.
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// The interfaces of its frames, by their numbers.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// A frame by its index.
    pub fn frame(&self, index: usize) -> Option<Frame<'_>> {
        self.frames.get(index).map(|(frame, _)| frame)
    }

    /// The next frames from an index on, of one link type; empty at the end.
    pub fn batch(&self, from: usize) -> Batch<'_> {
        self.frames.batch(from).0
    }
}

impl Kept {
    /// Keeps nothing until nodes keep frames in it.
    pub fn new(limits: KeptLimits) -> Kept {
        Kept(Arc::new(Shared { limits, state: Mutex::default() }))
    }

    /// The chunks with the last `frames` frames, oldest first; the first of them may have older ones, too.
    pub fn last(&self, frames: usize) -> Vec<Arc<Chunk>> {
        let state = self.lock();
        let mut count = 0;
        let newest = state.chunks.iter().rev().take_while(|chunk| {
            let more = count < frames;
            count += chunk.len();
            more
        });
        let mut chunks: Vec<_> = newest.cloned().collect();
        drop(state);
        chunks.reverse();
        chunks
    }

    /// Number of kept frames, and of their bytes.
    pub fn size(&self) -> (usize, usize) {
        let state = self.lock();
        (state.frames, state.bytes)
    }

    /// The limits.
    pub fn limits(&self) -> KeptLimits {
        self.0.limits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Chunks are moved as a whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writing side for one node.
    pub(crate) fn keeper(&self) -> Keeper {
        Keeper {
            kept: self.clone(),
            open: Chunk::default(),
            handed: None,
            sealed: VecDeque::new(),
            next: None,
            serial: None,
        }
    }
}

/// The writing side of one node.
#[derive(Debug)]
pub(crate) struct Keeper {
    kept: Kept,
    open: Chunk,
    /// The time at which a chunk was handed over.
    handed: Option<Instant>,
    /// Chunks that are not handed over yet.
    sealed: VecDeque<Chunk>,
    /// The time from which frames are copied again.
    next: Option<Instant>,
    /// The last batch that was offered.
    serial: Option<u64>,
}

impl Keeper {
    /// Keeps the frames that arrive, if the limits allow it. A batch that is evaluated again is kept once.
    pub fn keep(&mut self, arrival: &Arrival<'_>) {
        if self.serial.replace(arrival.serial()) == Some(arrival.serial()) {
            return;
        }
        let count = arrival.mask().count();
        self.open.arrived += count as u64;
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        if let Some(pause) = Duration::from_secs(count as u64).checked_div(self.limits().per_second)
        {
            // Frames of interfaces come in blocks: time in which none came counts for the next ones.
            let begin = now.checked_sub(BURST).unwrap_or(now);
            self.next = Some(self.next.map_or(begin, |next| next.max(begin)) + pause);
        }
        let known = (self.open.source, self.open.interfaces.len());
        if known != (arrival.source(), arrival.interfaces().len()) {
            self.seal();
            self.open.source = arrival.source();
            self.open.interfaces = arrival.interfaces().into();
        }
        for (_, frame) in arrival.frames() {
            if self.open.frames.bytes() >= self.limits().chunk_bytes() {
                if self.limits().per_second > 0 {
                    break;
                }
                self.seal();
            }
            self.open.frames.push(self.open.source, frame);
            self.open.newest_ns = self.open.newest_ns.max(frame.timestamp_ns);
        }
        let keeps_all = self.limits().per_second == 0;
        let is_full = match keeps_all {
            true => self.open.frames.bytes() >= self.limits().chunk_bytes(),
            false => self.open.len() >= CHUNK_FRAMES,
        };
        let is_late = |handed: Instant| now - handed >= SMALL_CHUNKS;
        let is_last = arrival.batch().len() < BATCH_CAPACITY;
        if is_full || (is_last && (!keeps_all || self.handed.is_none_or(is_late))) {
            self.seal();
            self.handed = Some(now);
        }
    }

    /// Hands over what is left; called every tenth of a second.
    pub fn tick(&mut self) {
        self.seal();
    }

    fn limits(&self) -> KeptLimits {
        self.kept.0.limits
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.open.frames.shrink();
            let interfaces = Arc::clone(&self.open.interfaces);
            let mut next = Chunk { interfaces, source: self.open.source, ..Chunk::default() };
            // Chunks are of similar size, so the memory need not grow step by step.
            next.frames.reserve_as(&self.open.frames);
            self.sealed.push_back(std::mem::replace(&mut self.open, next));
        }
        if self.sealed.is_empty() {
            return;
        }
        let limits = self.limits();
        let gone = match self.kept.0.state.try_lock() {
            Ok(mut state) => state.add(self.sealed.drain(..), limits),
            Err(TryLockError::Poisoned(state)) => {
                state.into_inner().add(self.sealed.drain(..), limits)
            }
            // A client is copying references.
            Err(TryLockError::WouldBlock) => Vec::new(),
        };
        drop(gone);
    }
}

impl State {
    /// Adds chunks; returns those that the limits leave no room for.
    fn add(&mut self, new: impl Iterator<Item = Chunk>, limits: KeptLimits) -> Vec<Arc<Chunk>> {
        for chunk in new {
            self.frames += chunk.len();
            self.bytes += chunk.frames.bytes();
            self.newest_ns = chunk.newest_ns;
            self.chunks.push_back(Arc::new(chunk));
        }
        let mut gone = Vec::new();
        // The oldest goes when the others alone are enough.
        while let Some(oldest) = self.chunks.front() {
            let others = self.frames - oldest.len();
            let age = Duration::from_nanos(self.newest_ns.saturating_sub(oldest.newest_ns));
            let is_old = limits.age.is_some_and(|limit| age > limit);
            if others < limits.frames && self.bytes <= limits.bytes && !is_old {
                break;
            }
            self.frames = others;
            self.bytes -= oldest.frames.bytes();
            gone.extend(self.chunks.pop_front());
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::LinkType;

    fn chunk(frames: usize, len: usize) -> Chunk {
        let mut chunk = Chunk::default();
        let bytes = vec![0; len];
        (0..frames).for_each(|_| chunk.frames.push(0, &Frame::new(LinkType::EN10MB, &bytes)));
        chunk
    }

    #[test]
    fn the_last_frames_stay_within_the_limits() {
        let bytes = 5 * chunk(30, 60).frames.bytes();
        let limits = KeptLimits { frames: 100, bytes, age: None, per_second: 0 };
        let kept = Kept::new(limits);
        for _ in 0..10 {
            kept.lock().add((0..3).map(|_| chunk(30, 60)), limits);
            assert!(kept.lock().bytes <= limits.bytes);
        }
        // Four chunks are needed for a hundred frames.
        let lens = |frames| kept.last(frames).iter().map(|chunk| chunk.len()).collect::<Vec<_>>();
        assert_eq!(lens(usize::MAX), [30; 4]);
        assert_eq!(lens(31), [30; 2]);
        assert_eq!(lens(0), [0_usize; 0]);
        kept.lock().add(std::iter::once(chunk(9, 1_500)), limits);
        assert_eq!(lens(usize::MAX), [30, 30, 9]);
        kept.lock().add(std::iter::once(chunk(1, 50_000)), limits);
        assert_eq!(lens(usize::MAX), [0_usize; 0]);
    }

    #[test]
    fn frames_that_are_too_old_go() {
        let age = Some(Duration::from_secs(30));
        let limits = KeptLimits { frames: usize::MAX, bytes: usize::MAX, age, per_second: 0 };
        let kept = Kept::new(limits);
        for second in [100_u64, 110, 129, 130, 131, 90] {
            let newest_ns = second * 1_000_000_000;
            kept.lock().add(std::iter::once(Chunk { newest_ns, ..chunk(1, 60) }), limits);
        }
        let times: Vec<_> =
            kept.last(100).iter().map(|one| one.newest_ns / 1_000_000_000).collect();
        assert_eq!(times, [110, 129, 130, 131, 90]);
        assert_eq!(kept.size().0, 5);
    }

    #[test]
    fn frames_stay_after_the_clock_was_set_back() {
        let age = Some(Duration::from_secs(30));
        let bytes = 3 * chunk(1, 60).frames.bytes();
        let limits = KeptLimits { frames: usize::MAX, bytes, age, per_second: 0 };
        let kept = Kept::new(limits);
        for second in [1_000_u64, 1_001, 101, 102, 103, 104] {
            let newest_ns = second * 1_000_000_000;
            kept.lock().add(std::iter::once(Chunk { newest_ns, ..chunk(1, 60) }), limits);
        }
        assert_eq!(kept.size().0, 3, "the last frames are kept");
    }

    #[test]
    fn a_chunk_is_a_small_part_of_what_is_kept() {
        let limits = |bytes| KeptLimits { frames: usize::MAX, bytes, age: None, per_second: 0 };
        for bytes in [1_000_000, 8 << 20, 1 << 30] {
            assert!(limits(bytes).chunk_bytes() <= bytes / 8, "{bytes}");
        }
        assert_eq!(limits(8 << 20).chunk_bytes(), KeptLimits::RECENT.chunk_bytes());
    }

    #[test]
    fn a_chunk_waits_while_a_client_has_the_lock() {
        let kept = Kept::new(KeptLimits::RECENT);
        let mut keeper = kept.keeper();
        keeper.open = chunk(3, 60);
        let held = kept.lock();
        keeper.tick();
        drop(held);
        assert!(kept.last(10).is_empty());
        keeper.open = chunk(2, 60);
        keeper.tick();
        let lens: Vec<_> = kept.last(10).iter().map(|chunk| chunk.len()).collect();
        assert_eq!(lens, [3, 2]);
    }
}
