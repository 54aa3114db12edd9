//! Class `ratemeter`: frames and bytes a second over the last whole interval, and the highest; passes every frame.
//!
//! Intervals follow the time of the frames. Cost: a comparison and an addition per frame.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, always};
use fyke_frame::Mask;

#[derive(Default)]
struct RateMeter {
    interval_ns: u64,
    end: u64,
    now: [u64; 2],
    last: [u64; 2],
    highest: [u64; 2],
}

impl RateMeter {
    fn end_interval(&mut self, time: u64) {
        self.last = self.now;
        for (highest, last) in self.highest.iter_mut().zip(self.last) {
            *highest = last.max(*highest);
        }
        self.now = [0; 2];
        let passed = (time - self.end) / self.interval_ns;
        if passed > 0 {
            self.last = [0; 2];
        }
        self.end = self.end.saturating_add((passed + 1).saturating_mul(self.interval_ns));
    }
}

impl Node for RateMeter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            if self.end == 0 {
                self.end = frame.timestamp_ns.saturating_add(self.interval_ns);
            }
            if frame.timestamp_ns >= self.end {
                self.end_interval(frame.timestamp_ns);
            }
            self.now[0] += 1;
            self.now[1] += u64::from(frame.wire_len);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let per_s = |count: u64| count as f64 * 1e9 / self.interval_ns as f64;
        let highest = [0, 1].map(|i| self.highest[i].max(self.now[i]));
        vec![
            Counter::new("packets_per_s", per_s(self.last[0])).state(),
            Counter::new("bytes_per_s", per_s(self.last[1])).state(),
            Counter::new("highest_packets_per_s", per_s(highest[0])).state(),
            Counter::new("highest_bytes_per_s", per_s(highest[1])).state(),
        ]
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "ratemeter",
    aliases: &["rate"],
    summary: "frames and bytes a second, over intervals of `expression` milliseconds",
    make: |settings| {
        let interval_ms = settings.number_or("expression", 1..=3_600_000, 1_000)?;
        let interval_ns = interval_ms * 1_000_000;
        Ok(Box::new(RateMeter { interval_ns, ..RateMeter::default() }))
    },
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
