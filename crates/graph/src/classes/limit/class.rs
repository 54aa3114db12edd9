//! Class `limit`: passes the first N frames and then ends the graph: exactly after the N-th or, with `cut=n`, after the
//! batch of the N-th, so that nodes that evaluate a frame only once may come before it.
//!
//! Cost: one population count per batch.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, Parameter, Settings};
use fyke_frame::Mask;

struct Limit {
    left: u64,
    passed: u64,
    cuts: bool,
}

impl Node for Limit {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mask = arrival.mask();
        if (mask.count() as u64) < self.left {
            return Ok(mask);
        }
        let last = mask.iter().nth((self.left as usize).saturating_sub(1));
        let end = last.filter(|_| self.left > 0).map_or(arrival.position(), |last| last + 1);
        if self.cuts {
            arrival.end(end);
        } else {
            arrival.end_after();
        }
        Ok(mask & Mask::first(end))
    }

    fn settle(&mut self, frames: Mask) {
        let count = (frames.count() as u64).min(self.left);
        self.left -= count;
        self.passed += count;
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("passed", self.passed)]
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(most) = settings.number("expression", 1..=u64::MAX) else { return false };
        // A limit that has already been reached ends the graph before the next frame.
        self.left = most.saturating_sub(self.passed);
        true
    }
}

/// True if the batch is cut after the last frame.
fn cuts(settings: &Settings) -> bool {
    settings.text("cut").is_none() || settings.flag("cut").unwrap_or(true)
}

/// The class.
pub const CLASS: Class = Class {
    name: "limit",
    aliases: &["stop_after"],
    summary: "passes the first `expression` frames and ends the graph there",
    repeatable: true,
    parameters: &[
        Parameter { name: "expression", summary: "number of frames, at least 1" },
        Parameter { name: "cut", summary: "n: end after the batch with the last frame" },
    ],
    cuts,
    make: |settings| {
        let left = settings.number("expression", 1..=u64::MAX)?;
        if settings.text("cut").is_some() {
            settings.flag("cut")?;
        }
        Ok(Box::new(Limit { left, passed: 0, cuts: cuts(settings) }))
    },
    live: &["expression"],
    whole: Some("ends the whole graph"),
    opens: Opens::nothing,
    ..Class::NODE
};
