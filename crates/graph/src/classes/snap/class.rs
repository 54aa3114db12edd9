//! Class `snap`: cuts frames to a length; shorter frames pass unchanged. Cost: a copy of the kept bytes of a batch
//! with cut frames.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, Settings};
use fyke_frame::{Frame, Mask};
use std::ops::RangeInclusive;

const LEN: RangeInclusive<u64> = 1..=262_144;

struct Snap {
    len: usize,
    cut_bytes: u64,
}

impl Node for Snap {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        // To keep the order, all frames of a batch are emitted as soon as one of them is cut.
        if arrival.frames().all(|(_, frame)| frame.data.len() <= self.len) {
            return Ok(arrival.mask());
        }
        for (index, frame) in arrival.frames() {
            let data = &frame.data[..frame.data.len().min(self.len)];
            self.cut_bytes += (frame.data.len() - data.len()) as u64;
            arrival.replace(index, &Frame { data, ..*frame });
        }
        Ok(Mask::EMPTY)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("cut_bytes", self.cut_bytes)]
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(len) = settings.number("expression", LEN) else { return false };
        self.len = len as usize;
        true
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "snap",
    summary: "cuts frames to `expression` bytes",
    make: |settings| {
        let len = settings.number("expression", LEN)? as usize;
        Ok(Box::new(Snap { len, cut_bytes: 0 }))
    },
    parallel: true,
    live: &["expression"],
    replaces: crate::node::always,
    opens: Opens::nothing,
    ..Class::NODE
};
