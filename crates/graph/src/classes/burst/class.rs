//! Class `burst`: bursts, frames that follow each other within a gap; passes every frame.
//!
//! Cost: some additions per frame. Source: MAPI's BURST.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, Settings, always};
use fyke_frame::Mask;
use std::ops::RangeInclusive;

const GAP_US: RangeInclusive<u64> = 0..=3_600_000_000;

#[derive(Default)]
struct Burst {
    gap_ns: u64,
    last: Option<u64>,
    /// Frames, bytes and start of the current burst.
    frames: u64,
    bytes: u64,
    begin: u64,
    bursts: u64,
    most_frames: u64,
    most_bytes: u64,
    longest_ns: u64,
}

impl Node for Burst {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            let time = frame.timestamp_ns;
            let continues = self.last.is_some_and(|last| time.saturating_sub(last) <= self.gap_ns);
            if !continues {
                (self.frames, self.bytes, self.begin) = (0, 0, time);
                self.bursts += 1;
            }
            self.frames += 1;
            self.bytes += u64::from(frame.wire_len);
            self.last = Some(time);
            self.most_frames = self.most_frames.max(self.frames);
            self.most_bytes = self.most_bytes.max(self.bytes);
            self.longest_ns = self.longest_ns.max(time.saturating_sub(self.begin));
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("bursts", self.bursts),
            Counter::count("most_frames", self.most_frames).state(),
            Counter::count("most_bytes", self.most_bytes).state(),
            Counter::count("longest_ns", self.longest_ns).state(),
        ]
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(gap_us) = settings.number_or("expression", GAP_US, 1_000) else { return false };
        self.gap_ns = gap_us * 1_000;
        true
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "burst",
    summary: "bursts: frames at most `expression` microseconds apart; passes every frame",
    make: |settings| {
        let gap_us = settings.number_or("expression", GAP_US, 1_000)?;
        Ok(Box::new(Burst { gap_ns: gap_us * 1_000, ..Burst::default() }))
    },
    live: &["expression"],
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
