//! Class `bucket`: frames per interval of time, the last intervals kept; passes every frame.
//!
//! Word n of its memory is the count of the n-th interval before the current one, so that another program can plot
//! it. Cost: a comparison and an addition per frame; 8 bytes per interval. Source: MAPI's BUCKET.

use crate::node::{Arrival, Class, Counter, Memory, Node, NodeError, Opens, Parameter, always};
use fyke_frame::Mask;
use std::collections::VecDeque;

struct Bucket {
    interval_ns: u64,
    kept: usize,
    end: Option<u64>,
    /// Newest first; the first is the current one.
    counts: VecDeque<u64>,
    memory: Memory,
}

impl Node for Bucket {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            let time = frame.timestamp_ns;
            let end = *self.end.get_or_insert(time.saturating_add(self.interval_ns));
            if time >= end {
                let passed = (time - end) / self.interval_ns + 1;
                for _ in 0..passed.min(self.kept as u64) {
                    self.counts.push_front(0);
                }
                self.counts.truncate(self.kept);
                self.end = Some(end.saturating_add(passed.saturating_mul(self.interval_ns)));
            }
            self.counts[0] += 1;
        }
        for (place, count) in self.counts.iter().enumerate() {
            self.memory.set(place, *count);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = self.counts.iter().enumerate();
        counts
            .map(|(ago, &count)| Counter::count(format!("packets_{ago}_ago"), count).state())
            .collect()
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "bucket",
    summary: "frames per `expression` milliseconds, the last intervals kept; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "milliseconds of an interval (1000)" },
        Parameter { name: "kept", summary: "number of intervals to keep (10)" },
    ],
    make: |settings| {
        let interval_ns = settings.number_or("expression", 1..=3_600_000, 1_000)? * 1_000_000;
        let kept = settings.number_or("kept", 1..=65_536, 10)? as usize;
        let (counts, memory) = (VecDeque::from([0]), settings.memory());
        Ok(Box::new(Bucket { interval_ns, kept, end: None, counts, memory }))
    },
    memory: true,
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
