//! Class `dedup`: rejects a frame whose bytes were seen within the last `expression` milliseconds.
//!
//! Bounded: it remembers the last `memory` frames by a 64-bit hash with a key of this run (for 1 in 10^19 pairs of
//! frames the hashes are wrongly equal). Time is that of the frames, so a file gives the same result as the live
//! capture. Cost: a hash of the bytes.

use crate::node::{Arrival, Class, MakeError, Node, NodeError, Opens, Parameter, Settings, always};
use fyke_frame::Mask;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

struct Dedup {
    span_ns: u64,
    limit: usize,
    hashes: RandomState,
    last: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
}

impl Dedup {
    fn is_new(&mut self, bytes: &[u8], now: u64) -> bool {
        let hash = self.hashes.hash_one(bytes);
        while let Some(&(old, time)) = self.order.front() {
            if self.order.len() <= self.limit && now.saturating_sub(time) <= self.span_ns {
                break;
            }
            self.order.pop_front();
            if self.last.get(&old) == Some(&time) {
                self.last.remove(&old);
            }
        }
        if self.last.get(&hash).is_some_and(|&time| now.saturating_sub(time) <= self.span_ns) {
            return false;
        }
        self.last.insert(hash, now);
        self.order.push_back((hash, now));
        true
    }
}

impl Node for Dedup {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.select(|frame| self.is_new(frame.data, frame.timestamp_ns)))
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok((span_ns, limit)) = read(settings) else { return false };
        (self.span_ns, self.limit) = (span_ns, limit);
        true
    }
}

/// Reads the time span, and the number of frames to remember.
fn read(settings: &Settings) -> Result<(u64, usize), MakeError> {
    let span_ms = settings.number_or("expression", 0..=3_600_000, 1_000)?;
    Ok((span_ms * 1_000_000, settings.number_or("memory", 1..=10_000_000, 100_000)? as usize))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (span_ns, limit) = read(settings)?;
    Ok(Box::new(Dedup {
        span_ns,
        limit,
        hashes: RandomState::new(),
        last: HashMap::new(),
        order: VecDeque::new(),
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "dedup",
    summary: "rejects frames seen within the last `expression` milliseconds",
    parameters: &[
        Parameter { name: "expression", summary: "milliseconds (1000)" },
        Parameter { name: "memory", summary: "most frames that are remembered (100000)" },
    ],
    make,
    live: &["expression", "memory"],
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
