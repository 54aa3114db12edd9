//! Class `gap`: time between frames and their sizes, as smallest, mean and largest and in powers of two; passes all.
//!
//! Cost: some additions per frame; memory 64 words. Source: MAPI's GAP, STATS, DIST and PKTINFO.

use crate::node::{Arrival, Class, Counter, Node, NodeError, Opens, always};
use fyke_frame::Mask;

#[derive(Default)]
struct Distribution {
    count: u64,
    sum: f64,
    smallest: u64,
    largest: u64,
    /// Count of values from 2^(n-1) to below 2^n; the first counts 0.
    powers: Vec<u64>,
}

impl Distribution {
    fn add(&mut self, value: u64) {
        self.smallest = if self.count == 0 { value } else { self.smallest.min(value) };
        self.largest = self.largest.max(value);
        self.count += 1;
        self.sum += value as f64;
        self.powers.resize(65, 0);
        self.powers[(u64::BITS - value.leading_zeros()) as usize] += 1;
    }

    fn counters(&self, unit: &str) -> Vec<Counter> {
        if self.count == 0 {
            return Vec::new();
        }
        let mut counters = vec![
            Counter::count(format!("smallest_{unit}"), self.smallest).state(),
            Counter::new(format!("mean_{unit}"), self.sum / self.count as f64).state(),
            Counter::count(format!("largest_{unit}"), self.largest).state(),
        ];
        let filled = self.powers.iter().enumerate().filter(|(_, count)| **count > 0);
        counters.extend(filled.map(|(power, &count)| {
            Counter::count(format!("{unit}_below_{}", 1u128 << power), count)
        }));
        counters
    }
}

#[derive(Default)]
struct Gap {
    before: Option<u64>,
    gaps: Distribution,
    sizes: Distribution,
    backwards: u64,
}

impl Node for Gap {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            let time = frame.timestamp_ns;
            match self.before.replace(time) {
                Some(before) if before <= time => self.gaps.add(time - before),
                Some(_) => self.backwards += 1,
                None => {}
            }
            self.sizes.add(u64::from(frame.wire_len));
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.gaps.counters("gap_ns");
        counters.extend(self.sizes.counters("bytes"));
        counters.push(Counter::count("backwards", self.backwards));
        counters
    }
}

/// The class.
pub const CLASS: Class = Class {
    name: "gap",
    aliases: &["pktinfo", "stats"],
    summary: "distribution of the time between frames and of their sizes; passes every frame",
    parameters: &[],
    make: |_| Ok(Box::<Gap>::default()),
    ordered: always,
    opens: Opens::nothing,
    ..Class::NODE
};
