//! Class `threshold`: passes the frames of an interval after the first `expression` ones.
//!
//! Intervals follow the time of the frames, without gaps between them. Cost: a comparison per frame. Source: MAPI's
//! THRESHOLD, for a rising count.

use crate::node::{
    Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings, always,
};
use fyke_frame::Mask;

struct Threshold {
    limit: u64,
    interval_ns: u64,
    end: u64,
    count: u64,
    exceeded: u64,
}

impl Threshold {
    fn is_over(&mut self, time: u64) -> bool {
        if time >= self.end {
            // The first frame starts the first interval; later intervals follow without gaps.
            let start = match self.end {
                0 => time,
                end => end + (time - end) / self.interval_ns * self.interval_ns,
            };
            self.end = start.saturating_add(self.interval_ns);
            self.count = 0;
        }
        self.count += 1;
        self.exceeded += u64::from(self.count == self.limit + 1);
        self.count > self.limit
    }
}

impl Node for Threshold {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.select(|frame| self.is_over(frame.timestamp_ns)))
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("intervals_exceeded", self.exceeded)]
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok((limit, interval_ns)) = read(settings) else { return false };
        (self.limit, self.interval_ns) = (limit, interval_ns);
        true
    }
}

/// Reads the number of frames that do not pass, and the interval.
fn read(settings: &Settings) -> Result<(u64, u64), MakeError> {
    let interval_ms = settings.number_or("interval", 1..=3_600_000, 1_000)?;
    Ok((settings.number("expression", 0..=u64::MAX - 1)?, interval_ms * 1_000_000))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (limit, interval_ns) = read(settings)?;
    Ok(Box::new(Threshold { limit, interval_ns, end: 0, count: 0, exceeded: 0 }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "threshold",
    summary: "passes frames beyond the first `expression` of an interval",
    parameters: &[
        Parameter { name: "expression", summary: "frames that do not pass" },
        Parameter { name: "interval", summary: "milliseconds (1000)" },
    ],
    make,
    live: &["expression", "interval"],
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
