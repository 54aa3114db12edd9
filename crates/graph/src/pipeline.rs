//! The loop: batches from a source are judged, accepted frames are handed to the consumer, edits take effect.
//!
//! Every frame is judged under exactly one epoch. Frames that an edit makes acceptable although they came before it
//! are delivered late when look-back is on and the source still holds them: in capture order among themselves, before
//! the first frame judged under the new epoch, never twice. `seen = delivered + rejected` holds after every batch;
//! what the kernel lost before the source saw it is the source's own count.

use crate::filters::FilterReader;
use fyke_capture::{Interface, LookBack, Next, ReadError, Source, SourceStats};
use fyke_frame::{Batch, Frame, Mask};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the source is asked for its counts, which for a capture ring is a system call.
pub const STATS_INTERVAL: Duration = Duration::from_millis(100);

/// What the consumer wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Enough; frames after this one are not looked at.
    Stop,
}

/// Who gets the accepted frames.
pub trait Consumer {
    /// Why the consumer cannot go on.
    type Error;

    /// Takes an accepted frame and the interface it came from. An edit made here is in force for the next frame.
    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, Self::Error>;

    /// Called after every batch and when the source had nothing for a while, so that time-outs can pass, output be
    /// flushed and counts be shown. `source` is at most [`STATS_INTERVAL`] old.
    fn between(
        &mut self,
        _counts: &Accounting,
        _source: &SourceStats,
    ) -> Result<Flow, Self::Error> {
        Ok(Flow::Continue)
    }
}

/// Exact counts of one run, in frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accounting {
    /// Judged.
    pub seen: u64,
    /// Handed to the consumer, late ones included.
    pub delivered: u64,
    /// Judged and not accepted.
    pub rejected: u64,
    /// Of the delivered: captured before the edit that accepted them.
    pub late: u64,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The source failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A filter does not fit a link type that turned up.
    #[error(transparent)]
    Filter(crate::FilterError),
    /// The consumer failed.
    #[error(transparent)]
    Consumer(E),
}

/// The loop and its counts.
pub struct Pipeline {
    reader: FilterReader,
    accounting: Accounting,
    look_back: Option<VecDeque<Delivered>>,
}

/// Which frames of an earlier batch were handed on already.
struct Delivered {
    first_sequence: u64,
    count: usize,
    mask: Mask,
}

impl Pipeline {
    /// A pipeline that judges by `reader`. With `look_back`, frames that the source still holds are judged again
    /// after an edit.
    pub fn new(reader: FilterReader, look_back: bool) -> Self {
        Pipeline {
            reader,
            accounting: Accounting::default(),
            look_back: look_back.then(VecDeque::new),
        }
    }

    /// The counts so far.
    pub fn accounting(&self) -> Accounting {
        self.accounting
    }

    /// Runs until the source ends, the consumer has enough or `stop` becomes true.
    pub fn run<C: Consumer>(
        &mut self,
        source: &mut dyn Source,
        consumer: &mut C,
        stop: &AtomicBool,
    ) -> Result<(), RunError<C::Error>> {
        let mut stats = source.stats();
        let mut asked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let flow = match source.next()? {
                Next::End => return Ok(()),
                Next::Idle => Flow::Continue,
                Next::Frames(batch, held) => self.batch(&Arrival { batch, held }, consumer)?,
            };
            if asked.elapsed() >= STATS_INTERVAL {
                (stats, asked) = (source.stats(), Instant::now());
            }
            let between = consumer.between(&self.accounting, &stats).map_err(RunError::Consumer)?;
            if flow == Flow::Stop || between == Flow::Stop {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Judges one batch and hands on what is accepted.
    fn batch<C: Consumer>(
        &mut self,
        arrival: &Arrival<'_>,
        consumer: &mut C,
    ) -> Result<Flow, RunError<C::Error>> {
        let batch = &arrival.batch;
        let mut rest = batch.all();
        let mut delivered = Mask::EMPTY;
        let mut position = 0;
        loop {
            while self.reader.refresh() && self.look_back.is_some() {
                if self.look_back(arrival, position, &mut delivered, consumer)? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            let accepted = self.reader.evaluate(batch, rest).map_err(RunError::Filter)?;
            let Some(last) = self.hand_on(arrival, accepted, &mut delivered, consumer)? else {
                break;
            };
            self.settle(position, last.position + 1, &delivered);
            if last.flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
            position = last.position + 1;
            rest = batch.all().without(Mask::first(position));
        }
        self.settle(position, batch.len(), &delivered);
        self.remember(arrival, delivered);
        Ok(Flow::Continue)
    }

    /// Hands accepted frames on, in order, up to one during which the consumer edited the filters or had enough.
    fn hand_on<C: Consumer>(
        &mut self,
        arrival: &Arrival<'_>,
        accepted: Mask,
        delivered: &mut Mask,
        consumer: &mut C,
    ) -> Result<Option<Interrupted>, RunError<C::Error>> {
        for index in accepted.iter() {
            delivered.set(index);
            let frame = &arrival.batch.frames()[index];
            let interface = arrival.interface(frame);
            let flow = consumer.frame(frame, interface).map_err(RunError::Consumer)?;
            if flow == Flow::Stop || self.reader.is_stale() {
                return Ok(Some(Interrupted { position: index, flow }));
            }
        }
        Ok(None)
    }

    /// Counts the frames `from..to` of a batch, whose verdict is final.
    fn settle(&mut self, from: usize, to: usize, delivered: &Mask) {
        let settled = Mask::first(to).without(Mask::first(from));
        self.reader.count(settled);
        let accepted = (settled & *delivered).count() as u64;
        let seen = (to - from) as u64;
        self.accounting.seen += seen;
        self.accounting.delivered += accepted;
        self.accounting.rejected += seen - accepted;
    }

    /// Judges held frames and the frames of this batch up to the edit, at `position`, under the new epoch.
    fn look_back<C: Consumer>(
        &mut self,
        arrival: &Arrival<'_>,
        position: usize,
        delivered: &mut Mask,
        consumer: &mut C,
    ) -> Result<Flow, RunError<C::Error>> {
        let batch = &arrival.batch;
        let before = batch.frames()[..position].iter().copied();
        let current = (batch.first_sequence..).zip(before);
        let mut frames = arrival.held.frames().chain(current).peekable();
        let mut late = Batch::new();
        let mut sequences = Vec::new();
        while frames.peek().is_some() {
            late.clear();
            sequences.clear();
            while let Some((sequence, frame)) = frames.peek().copied() {
                if !self.was_delivered(sequence, batch.first_sequence, delivered) {
                    if late.push(frame).is_err() {
                        break;
                    }
                    sequences.push(sequence);
                }
                frames.next();
            }
            let accepted = self.reader.evaluate(&late, late.all()).map_err(RunError::Filter)?;
            self.reader.count(accepted);
            for index in accepted.iter() {
                let mut frame = late.frames()[index];
                frame.meta.late = true;
                self.mark(sequences[index], batch.first_sequence, delivered);
                self.accounting.late += 1;
                self.accounting.delivered += 1;
                self.accounting.rejected -= 1;
                let interface = arrival.interface(&frame);
                let flow = consumer.frame(&frame, interface).map_err(RunError::Consumer)?;
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
        Ok(Flow::Continue)
    }

    fn was_delivered(&self, sequence: u64, current: u64, delivered: &Mask) -> bool {
        if sequence >= current {
            return delivered.get((sequence - current) as usize);
        }
        // A frame that is not remembered was held by the source but not judged here: leave it alone.
        self.slot(sequence).is_none_or(|(slot, index)| slot.mask.get(index))
    }

    fn slot(&self, sequence: u64) -> Option<(&Delivered, usize)> {
        let slots = self.look_back.as_ref()?;
        let at = slots.partition_point(|slot| slot.first_sequence <= sequence).checked_sub(1)?;
        let index = (sequence - slots[at].first_sequence) as usize;
        (index < slots[at].count).then(|| (&slots[at], index))
    }

    fn mark(&mut self, sequence: u64, current: u64, delivered: &mut Mask) {
        if sequence >= current {
            delivered.set((sequence - current) as usize);
            return;
        }
        let Some(slots) = &mut self.look_back else { return };
        let at = slots.partition_point(|slot| slot.first_sequence <= sequence);
        if let Some(slot) = at.checked_sub(1).and_then(|at| slots.get_mut(at)) {
            slot.mask.set((sequence - slot.first_sequence) as usize);
        }
    }

    /// Keeps the verdicts of this batch for as long as the source holds its frames.
    fn remember(&mut self, arrival: &Arrival<'_>, mask: Mask) {
        let Some(slots) = &mut self.look_back else { return };
        let batch = &arrival.batch;
        let oldest = arrival.held.frames().next().map_or(batch.first_sequence, |held| held.0);
        while slots.front().is_some_and(|slot| slot.first_sequence + (slot.count as u64) <= oldest)
        {
            slots.pop_front();
        }
        slots.push_back(Delivered {
            first_sequence: batch.first_sequence,
            count: batch.len(),
            mask,
        });
    }
}

/// A batch and what the source lends with it.
struct Arrival<'a> {
    batch: Batch<'a>,
    held: LookBack<'a>,
}

impl Arrival<'_> {
    /// The interface that a frame names.
    fn interface(&self, frame: &Frame<'_>) -> &Interface {
        &self.held.interfaces()[frame.interface as usize]
    }
}

/// Handing on stopped after the frame at `position`.
struct Interrupted {
    position: usize,
    flow: Flow,
}
