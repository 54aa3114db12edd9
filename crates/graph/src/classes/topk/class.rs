//! Class `topk`: the most frequent addresses or ports, in bounded memory; passes every frame.
//!
//! Counts are exact as long as no more than `keys` different values have come. When one more comes, the count of the
//! (`keys`/2 + 1)-th value in order is subtracted from all, and those that reach 0 are dropped: the algorithm of Misra
//! and Gries (1982), many steps at a time (Anderson et al. 2017). From then on a count is too low by at most `error`,
//! which is at most 2/`keys` of what was counted: a value that is more frequent than that is never missing. `missing`
//! is how often the most frequent value that is not shown can have come, so a shown value with more than that is
//! certainly among the first.
//!
//! Memory: some 70 bytes for each of the `keys` values. Cost: a header walk and a look-up per frame; a pass over the
//! values once for every `keys`/2 new ones. Source: MAPI's TOP.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Parameter, Settings};
use fyke_frame::{Frame, Mask, walk};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

const FIELDS: [&str; 6] = ["src", "dst", "host", "srcport", "dstport", "port"];

/// A value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Value {
    Address(IpAddr),
    Port(u16),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Address(address) => address.fmt(f),
            Value::Port(port) => port.fmt(f),
        }
    }
}

/// How often values came, in bounded memory.
struct Counts {
    /// Most values at a time.
    keys: usize,
    counts: HashMap<Value, u64>,
    /// By how much a count may be too low, and how often a value that has none came at most.
    error: u64,
}

impl Counts {
    fn new(keys: usize) -> Counts {
        Counts { keys, counts: HashMap::new(), error: 0 }
    }

    fn add(&mut self, value: Value) {
        *self.counts.entry(value).or_insert(0) += 1;
        if self.counts.len() > self.keys {
            self.prune();
        }
    }

    /// Subtracts so much from all counts that no more than half of the values stay.
    fn prune(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let place = (self.keys / 2).min(counts.len() - 1);
        let (_, &mut less, _) = counts.select_nth_unstable_by(place, |a, b| b.cmp(a));
        self.error += less;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(less);
            *count > 0
        });
    }

    /// The values with the highest counts, and how often any other one came at most.
    fn top(&self, places: usize) -> (Vec<(Value, u64)>, u64) {
        let mut entries: Vec<(Value, u64)> =
            self.counts.iter().map(|(&value, &count)| (value, count)).collect();
        entries.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let next = entries.get(places).map_or(0, |(_, count)| *count);
        entries.truncate(places);
        (entries, next + self.error)
    }
}

struct TopK {
    places: usize,
    field: usize,
    values: Counts,
}

impl TopK {
    fn look(&mut self, frame: &Frame<'_>) {
        let layers = walk(frame);
        let field = FIELDS[self.field];
        let ends = match field.ends_with("port") {
            true => layers.ports().map(|ports| {
                [ports.source, ports.destination].map(Value::Port)
            }),
            false => layers.innermost_ip().map(|ip| {
                [ip.source(), ip.destination()].map(Value::Address)
            }),
        };
        let Some([source, destination]) = ends else { return };
        if field.starts_with("src") {
            self.values.add(source);
        } else if field.starts_with("dst") {
            self.values.add(destination);
        } else {
            self.values.add(source);
            // A frame counts once for a value that both of its ends have.
            if source != destination {
                self.values.add(destination);
            }
        }
    }
}

impl Node for TopK {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            self.look(frame);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let (entries, missing) = self.values.top(self.places);
        let counts = entries.iter().map(|(value, count)| Counter::count(value.to_string(), *count));
        let bounds = [("error", self.values.error), ("missing", missing)];
        counts.chain(bounds.map(|(name, count)| Counter::count(name, count))).collect()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok((places, keys)) = read(settings) else { return false };
        self.places = places;
        self.values.keys = keys;
        while self.values.counts.len() > keys {
            self.values.prune();
        }
        true
    }
}

/// How many values are shown, and how many are counted at a time.
fn read(settings: &Settings) -> Result<(usize, usize), MakeError> {
    let places = settings.number_or("expression", 1..=1_000, 10)?;
    let keys = settings.number_or("keys", 2..=16_777_216, 65_536)?;
    if keys < 2 * places {
        return Err(MakeError::new("keys", format!("{keys} is less than twice the {places} shown")));
    }
    Ok((places as usize, keys as usize))
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (places, keys) = read(settings)?;
    let field = settings.choice("field", &FIELDS)?;
    Ok(Box::new(TopK { places, field, values: Counts::new(keys) }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "topk",
    aliases: &["top"],
    summary: "the `expression` most frequent values of a field; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "number of values (10)" },
        Parameter { name: "field", summary: "src (default), dst, host, srcport, dstport, port" },
        Parameter { name: "keys", summary: "most values counted at a time (65536); counts are exact up to this number" },
    ],
    make,
    live: &["expression", "keys"],
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Skewed ports in a changing order: what the bounds say holds at every size, and no size up to the number of
    /// values is more than exact.
    #[test]
    fn bounds_hold_however_few_values_fit() {
        for keys in [2, 8, 100, 999, 1_000, 5_000] {
            let (mut counts, mut exact, mut state) = (Counts::new(keys), HashMap::new(), 9u64);
            let mut total = 0;
            for _ in 0..50_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Small numbers are frequent: the minimum of some.
                let draw = |shift: u32| (state >> shift) % 1_000;
                let value = Value::Port(draw(20).min(draw(32)).min(draw(44)) as u16);
                counts.add(value);
                *exact.entry(value).or_insert(0u64) += 1;
                total += 1;
                assert!(counts.counts.len() <= keys);
            }
            assert!(counts.error <= 2 * total / keys as u64, "{keys}: {}", counts.error);
            assert!((counts.error == 0) == (keys >= exact.len()), "{keys}: {}", counts.error);
            let (top, missing) = counts.top(5.min(keys / 2));
            for (value, &count) in &exact {
                let known = counts.counts.get(value).copied().unwrap_or(0);
                assert!(known <= count && count <= known + counts.error, "{keys} {value}");
                let shown = top.iter().any(|(one, _)| one == value);
                assert!(shown || count <= missing, "{keys} {value}");
            }
        }
    }
}
