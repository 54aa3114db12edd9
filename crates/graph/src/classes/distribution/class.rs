//! Class `distribution`: counts lengths, gaps or class values of frames in equal steps; passes every frame.
//!
//! Cost: a division per frame; 8 bytes per step. Source: MAPI's DIST.

use crate::node::{Arrival, Class, Counter, MakeError, Memory, Node, NodeError, Opens};
use crate::node::{Parameter, Settings};
use fyke_frame::Mask;

const OF: [&str; 3] = ["length", "gap", "class"];

struct Distribution {
    of: usize,
    from: u64,
    step: u64,
    counts: Vec<u64>,
    below: u64,
    above: u64,
    last: Option<u64>,
    memory: Memory,
}

impl Distribution {
    fn add(&mut self, value: u64) {
        let Some(beyond) = value.checked_sub(self.from) else {
            self.below += 1;
            return;
        };
        let place = usize::try_from(beyond / self.step).unwrap_or(usize::MAX);
        match self.counts.get_mut(place) {
            Some(count) => {
                *count += 1;
                self.memory.set(place, *count);
            }
            None => self.above += 1,
        }
    }
}

impl Node for Distribution {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            match OF[self.of] {
                "length" => self.add(u64::from(frame.wire_len)),
                "class" => self.add(u64::from(arrival.class(index))),
                _ => {
                    let time = frame.timestamp_ns;
                    if let Some(last) = self.last.replace(time) {
                        self.add(time.saturating_sub(last) / 1_000);
                    }
                }
            }
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = vec![Counter::count("below", self.below)];
        let filled = self.counts.iter().zip(0..).filter(|(count, _)| **count > 0);
        counters.extend(filled.map(|(&count, place)| {
            Counter::count(format!("from_{}", self.from + place * self.step), count)
        }));
        counters.push(Counter::count("above", self.above));
        counters
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let of = settings.choice("expression", &OF)?;
    let from = settings.number_or("min", 0..=u64::from(u32::MAX), 0)?;
    let to = settings.number_or("max", 1..=u64::from(u32::MAX), 1_599)?;
    let step = settings.number_or("step", 1..=u64::from(u32::MAX), 100)?;
    let steps = to.checked_sub(from).map(|range| range / step + 1);
    let Some(steps) = steps.filter(|steps| *steps <= 65_536) else {
        return Err(MakeError::new("max", "at least min, and at most 65536 steps above it"));
    };
    Ok(Box::new(Distribution {
        of,
        from,
        step,
        counts: vec![0; steps as usize],
        below: 0,
        above: 0,
        last: None,
        memory: settings.memory(),
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "distribution",
    aliases: &["dist"],
    summary: "counts lengths, gaps or class values in equal steps; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "length (default), gap in µs, or class" },
        Parameter { name: "min", summary: "start of the first step (0)" },
        Parameter { name: "max", summary: "the last value that falls into a step (1599)" },
        Parameter { name: "step", summary: "width of a step (100)" },
    ],
    memory: true,
    make,
    ordered: |settings| settings.choice("expression", &OF).is_ok_and(|of| OF[of] == "gap"),
    opens: Opens::nothing,
    ..Class::NODE
};
