//! Dispatch of many packets at once.
//!
//! A group with a program that only returns the result of its match ([plain](Group)) runs in three steps: the program
//! over all packets, which collects keys; one read at the home row of each key, so that the processor loads many
//! cache lines in parallel; the look-ups. Other groups and programs process the packets one by one. Every recipient
//! gets the packets that [`Demultiplexer::frame`] would have given it, in the same order; between recipients the
//! order may differ.
//!
//! Cost: with 100,000 sessions some tens of ns per packet; memory: 8 bytes and the keys for each packet of a batch.

use super::group::{Group, Kept};
use super::{Delivery, Demultiplexer, Endpoints, RecipientId, Verdict};
use crate::bpf::run::{Memory, Outcome};
use crate::bpf::{MAX_KEYS, SCRATCH_WORDS};
use crate::jit::Answer;
use fyke_frame::{Batch, Frame, Mask};
use std::hint::black_box;

/// Immediate results for the packets of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispatched {
    /// Packets that were delivered.
    pub accepted: Mask,
    /// Packets that a group postponed.
    pub postponed: Mask,
}

/// A packet that reached its match.
#[derive(Debug, Clone, Copy)]
struct Hit {
    /// Its index in the batch.
    frame: u16,
    /// Its index among the dispatched packets.
    rank: u16,
    bytes: u32,
    home: usize,
}

/// Packets that reached their match, and their keys.
#[derive(Debug, Default)]
pub(super) struct Found {
    hits: Vec<Hit>,
    keys: Vec<u32>,
}

/// A memory that records keys instead of looking them up.
struct Note {
    keys: [u32; MAX_KEYS],
    count: usize,
}

impl Memory for Note {
    #[inline]
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        self.count = keys.len().min(MAX_KEYS);
        self.keys[..self.count].copy_from_slice(&keys[..self.count]);
        Some(0)
    }

    fn recall(&mut self, _: &[u32]) -> Option<u32> {
        None
    }

    fn register(&mut self, _: &[u32], _: u32, _: u32) {}
}

impl Demultiplexer {
    /// Dispatches packets. Sequence numbers continue as if each had been given to [`Demultiplexer::frame`].
    pub fn batch(&mut self, batch: &Batch<'_>, endpoints: &mut impl Endpoints) -> Dispatched {
        self.batch_of(batch, batch.all(), endpoints)
    }

    /// Does the same as [`Demultiplexer::batch`] for some packets of a batch; only these get sequence numbers.
    pub fn batch_of(
        &mut self,
        batch: &Batch<'_>,
        wanted: Mask,
        endpoints: &mut impl Endpoints,
    ) -> Dispatched {
        let frames = batch.frames();
        let first = self.counters.packets;
        let numbered = || wanted.iter().zip(first..);
        self.counters.packets += wanted.count() as u64;
        let mut done = Dispatched::default();
        let mut deliveries = 0;
        for alone in &self.alone {
            for (index, sequence) in numbered() {
                let frame = &frames[index];
                if let Some(bytes) = alone.run(frame, &mut self.random) {
                    let recipient = RecipientId(alone.number);
                    endpoints.deliver(frame, Delivery { recipient, bytes, sequence, late: false });
                    deliveries += 1;
                    done.accepted.set(index);
                }
            }
        }
        let clock = self.clock;
        for index in wanted.iter() {
            self.clock.advance(frames[index].timestamp_ns);
        }
        for group in self.groups.iter_mut().flatten() {
            let mut kept = Kept {
                places: &self.places,
                counters: &mut self.counters,
                random: &mut self.random,
                reprocess: self.options.reprocess,
                now_ns: clock.now_ns(),
            };
            if group.plain {
                self.found.collect(group, frames, wanted, kept.random);
                deliveries += self.found.run(group, frames, first, &kept, &mut done, endpoints);
                continue;
            }
            let mut time = clock;
            for (index, sequence) in numbered() {
                let frame = &frames[index];
                kept.now_ns = time.advance(frame.timestamp_ns);
                let mut verdict = Verdict { sequence, ..Verdict::default() };
                group.frame(frame, &mut kept, &mut verdict, endpoints);
                deliveries += u64::from(verdict.delivered);
                if verdict.delivered > 0 {
                    done.accepted.set(index);
                }
                if verdict.postponed > 0 {
                    done.postponed.set(index);
                }
            }
        }
        self.counters.accepted += done.accepted.count() as u64;
        self.counters.deliveries += deliveries;
        done
    }
}

impl Found {
    /// Looks up the collected keys of a plain group; returns the number of deliveries.
    fn run(
        &mut self,
        group: &Group,
        frames: &[Frame<'_>],
        first: u64,
        kept: &Kept<'_>,
        done: &mut Dispatched,
        endpoints: &mut impl Endpoints,
    ) -> u64 {
        let touched = self.hits.iter().fold(0, |sum, hit| sum ^ group.sessions.touch(hit.home));
        black_box(touched);
        let mut deliveries = 0;
        for (hit, keys) in self.hits.iter().zip(self.keys.chunks_exact(group.key_count.max(1))) {
            let Some(who) = group.sessions.find_from(hit.home, keys) else { continue };
            let (index, bytes) = (usize::from(hit.frame), hit.bytes);
            let outcome = Outcome::Recipient { bytes, who };
            let sequence = first + u64::from(hit.rank);
            group.deliver(&frames[index], outcome, sequence, false, kept.places, |frame, one| {
                deliveries += 1;
                endpoints.deliver(frame, one);
            });
            done.accepted.set(index);
        }
        deliveries
    }

    /// Runs the program over packets and collects the keys of those that reach the match.
    fn collect(&mut self, group: &Group, frames: &[Frame<'_>], wanted: Mask, random: &mut u64) {
        self.hits.clear();
        self.keys.clear();
        let mut scratch = [0; SCRATCH_WORDS];
        for (rank, index) in wanted.iter().enumerate() {
            let frame = &frames[index];
            let answer = match &group.compiled {
                Some(compiled) => compiled.run(frame, &mut scratch),
                None => Answer::AskInterpreter,
            };
            let bytes = match answer {
                Answer::Match(bytes) => bytes,
                Answer::Bytes(_) => continue,
                Answer::AskInterpreter => {
                    let mut note = Note { keys: [0; MAX_KEYS], count: 0 };
                    let outcome = group.program.run_with(frame, &mut note, random);
                    let Outcome::Recipient { bytes, .. } = outcome else { continue };
                    scratch = note.keys;
                    bytes
                }
            };
            if bytes == 0 {
                continue;
            }
            let keys = &scratch[..group.key_count.min(SCRATCH_WORDS)];
            let home = group.sessions.home(keys);
            self.hits.push(Hit { frame: index as u16, rank: rank as u16, bytes, home });
            self.keys.extend_from_slice(keys);
        }
    }
}
