//! A source that drops, duplicates, cuts and reorders the frames of another one: for tests of all later parts.
//!
//! The faults depend only on the seed, and every fault is counted, so that a test can compute the expected frames:
//! `received = delivered - duplicated + dropped` (and frames that are still delayed). Frames are copied; the order
//! changes within a bounded distance.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame}; }
//! use fyke::capture::{FaultSource, Faults, MemorySource, Next, Source};
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut source = MemorySource::new(LinkType::EN10MB);
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! let mut source = FaultSource::new(source, Faults::default()); // none so far
//! assert!(matches!(source.next()?, Next::Frames(batch, _) if batch.len() == 1));
//! # Ok::<(), fyke::capture::ReadError>(())
//! ```

use crate::error::ReadError;
use crate::source::{Interface, LookBack, Next, Notice, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Meta};
use std::collections::VecDeque;
use std::time::Duration;

/// Probabilities of faults, in units of 1/65,536, and their parameters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Start of the pseudo-random sequence.
    pub seed: u64,
    /// Probability that a frame is dropped.
    pub drop: u16,
    /// Probability that a frame is duplicated.
    pub duplicate: u16,
    /// Probability that a frame is cut to a random length (the wire length stays).
    pub truncate: u16,
    /// Probability that a frame is delayed, until up to [`Faults::distance`] others have overtaken it.
    pub reorder: u16,
    /// Largest number of frames that overtake a delayed one.
    pub distance: u8,
}

/// Exact counts of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Frames of the inner source.
    pub taken: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames that were duplicated.
    pub duplicated: u64,
    /// Frames that were cut.
    pub truncated: u64,
    /// Frames that were delayed.
    pub reordered: u64,
}

/// Another source, with faults.
pub struct FaultSource<S> {
    inner: S,
    faults: Faults,
    random: u64,
    stats: FaultStats,
    /// Frames in their new order, each with the number of frames that still have to overtake it.
    waiting: VecDeque<Waiting>,
    /// Frames of the current batch.
    lent: Vec<Copied>,
    interfaces: Vec<Interface>,
    delivered: u64,
    /// Error of the inner source, until all earlier frames have been delivered.
    failure: Option<ReadError>,
    ended: bool,
}

struct Waiting {
    overtakers: u8,
    frame: Copied,
}

#[derive(Clone)]
struct Copied {
    data: Vec<u8>,
    wire_len: u32,
    timestamp_ns: u64,
    link: LinkType,
    interface: u32,
    meta: Meta,
}

impl<S: Source> FaultSource<S> {
    /// Wraps a source.
    pub fn new(inner: S, faults: Faults) -> Self {
        FaultSource {
            interfaces: inner.interfaces().to_vec(),
            inner,
            faults,
            random: faults.seed ^ 0x9e37_79b9_7f4a_7c15,
            stats: FaultStats::default(),
            waiting: VecDeque::new(),
            lent: Vec::new(),
            delivered: 0,
            failure: None,
            ended: false,
        }
    }

    /// Counts of faults so far.
    pub fn faults(&self) -> FaultStats {
        self.stats
    }

    /// Reads the next frames of the inner source. False if there are none now.
    fn take(&mut self) -> bool {
        let mut dice = Dice(self.random);
        match self.inner.next() {
            Ok(Next::Idle) => return false,
            Ok(Next::End) => self.ended = true,
            Err(error) => {
                self.ended = true;
                self.failure = Some(error);
            }
            Ok(Next::Frames(batch, look_back)) => {
                for frame in batch.frames() {
                    self.stats.taken += 1;
                    if dice.hits(self.faults.drop) {
                        self.stats.dropped += 1;
                        continue;
                    }
                    let mut frame = Copied::new(frame);
                    if dice.hits(self.faults.truncate) && !frame.data.is_empty() {
                        frame.data.truncate(dice.below(frame.data.len() as u64) as usize);
                        self.stats.truncated += 1;
                    }
                    let again = dice.hits(self.faults.duplicate).then(|| frame.clone());
                    let late = self.faults.distance > 0 && dice.hits(self.faults.reorder);
                    let overtakers = match late {
                        true => dice.below(self.faults.distance.into()) as u8 + 1,
                        false => 0,
                    };
                    self.stats.reordered += u64::from(late);
                    self.waiting.push_back(Waiting { overtakers, frame });
                    if let Some(frame) = again {
                        self.stats.duplicated += 1;
                        self.waiting.push_back(Waiting { overtakers: 0, frame });
                    }
                }
                if look_back.interfaces().len() > self.interfaces.len() {
                    self.interfaces = look_back.interfaces().to_vec();
                }
            }
        }
        self.random = dice.0;
        true
    }

    /// The next frame in the new order; `None` if the order is not decided yet.
    fn pick(&mut self, link: Option<LinkType>) -> Option<Copied> {
        let ready = self.waiting.iter().position(|waiting| waiting.overtakers == 0);
        // At the end no frame is left to overtake.
        let at = ready.or(self.ended.then_some(0))?;
        let fits = |wanted| self.waiting.get(at).is_some_and(|next| next.frame.link == wanted);
        if link.is_some_and(|wanted| !fits(wanted)) {
            return None;
        }
        let picked = self.waiting.remove(at)?;
        for overtaken in self.waiting.range_mut(..at) {
            overtaken.overtakers -= 1;
        }
        Some(picked.frame)
    }
}

impl<S: Source> Source for FaultSource<S> {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        self.lent.clear();
        while self.lent.is_empty() {
            let mut link = None;
            while self.lent.len() < BATCH_CAPACITY
                && let Some(frame) = self.pick(link)
            {
                link = Some(frame.link);
                self.lent.push(frame);
            }
            if self.lent.is_empty() {
                if self.ended {
                    return self.failure.take().map_or(Ok(Next::End), Err);
                }
                if !self.take() {
                    return Ok(Next::Idle);
                }
            }
        }
        let mut batch = Batch::new();
        batch.first_sequence = self.delivered;
        self.delivered += self.lent.len() as u64;
        for copied in &self.lent {
            let pushed = batch.push(copied.frame());
            debug_assert!(pushed.is_ok(), "not too many, of one link type");
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let inner = self.inner.stats();
        SourceStats {
            delivered: self.delivered,
            dropped: inner.dropped + self.stats.dropped,
            ..inner
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.inner.set_patience(patience);
    }

    fn stop(&mut self) -> bool {
        // Delayed frames are delivered in any case.
        self.inner.stop() || !self.waiting.is_empty()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.inner.take_notice()
    }
}

impl Copied {
    fn new(frame: &Frame<'_>) -> Self {
        Copied {
            data: frame.data.to_vec(),
            wire_len: frame.wire_len,
            timestamp_ns: frame.timestamp_ns,
            link: frame.link,
            interface: frame.interface,
            meta: frame.meta,
        }
    }

    fn frame(&self) -> Frame<'_> {
        Frame {
            data: &self.data,
            wire_len: self.wire_len,
            timestamp_ns: self.timestamp_ns,
            link: self.link,
            interface: self.interface,
            meta: self.meta,
        }
    }
}

/// A small pseudo-random generator (splitmix64): the same faults on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    fn hits(&mut self, chances: u16) -> bool {
        self.below(1 << 16) < u64::from(chances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemorySource;

    fn numbers(faults: Faults) -> (Vec<u32>, FaultStats, SourceStats) {
        let mut memory = MemorySource::new(LinkType::EN10MB);
        for number in 0..2000u32 {
            memory.push(&Frame::new(LinkType::EN10MB, &number.to_be_bytes().repeat(5)));
        }
        let mut source = FaultSource::new(memory, faults);
        let mut seen = Vec::new();
        while let Ok(Next::Frames(batch, _)) = source.next() {
            assert_eq!(batch.first_sequence, seen.len() as u64);
            for frame in batch.frames() {
                assert_eq!(frame.wire_len, 20);
                let start = frame.data.first_chunk::<4>();
                seen.push(start.map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes)));
            }
        }
        let faults = source.faults();
        (seen, faults, source.stats())
    }

    #[test]
    fn without_faults_nothing_changes() {
        let (seen, faults, stats) = numbers(Faults { distance: 5, ..Default::default() });
        assert!(seen.iter().copied().eq(0..2000));
        assert_eq!(faults, FaultStats { taken: 2000, ..Default::default() });
        assert_eq!((stats.received, stats.delivered, stats.dropped), (2000, 2000, 0));
    }

    #[test]
    fn faults_are_counted_exactly() {
        for seed in 0..50 {
            let (drop, duplicate) = (3000, 2000);
            let (seen, faults, stats) =
                numbers(Faults { seed, drop, duplicate, ..Default::default() });
            let twice = seen.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
            assert_eq!(twice, faults.duplicated, "seed {seed}");
            assert_eq!(seen.len() as u64, 2000 - faults.dropped + faults.duplicated);
            assert!(faults.dropped > 0 && faults.duplicated > 0);
            assert_eq!(stats.received, stats.delivered - faults.duplicated + stats.dropped);
            assert!(seen.is_sorted());
        }
    }

    #[test]
    fn frames_are_overtaken_by_so_many_at_most() {
        for seed in 0..20 {
            let (reorder, distance) = (8000, 7);
            let (seen, faults, _) =
                numbers(Faults { seed, reorder, distance, ..Default::default() });
            assert!(faults.reordered > 100, "seed {seed}");
            let mut sorted = seen.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..2000), "none lost, none doubled");
            for (at, &number) in seen.iter().enumerate() {
                let overtaking = seen[..at].iter().filter(|&&other| other > number).count();
                assert!(overtaking <= 7, "seed {seed}: {number} is overtaken by {overtaking}");
            }
            assert_eq!(numbers(Faults { seed, reorder, distance, ..Default::default() }).0, seen);
        }
    }

    #[test]
    fn frames_are_cut() {
        let (seen, faults, _) = numbers(Faults { seed: 1, truncate: 65_535, ..Default::default() });
        assert_eq!(seen.len(), 2000);
        assert!(faults.truncated >= 1990, "{faults:?}");
        assert!(seen.contains(&u32::MAX), "some are shorter than their number");
    }
}
