//! Class `topk`: the most frequent addresses or ports, in bounded memory; passes every frame.
//!
//! Counts are exact as long as at most `keys` different values have occurred. When one more occurs, the (`keys`/2 +
//! 1)-th largest count is subtracted from all, and values that reach 0 are dropped: the algorithm of Misra and Gries
//! (1982), many steps at a time (Anderson et al. 2017). From then on a count is too low by at most `error`, which is
//! at most 2/`keys` of the total: a more frequent value is never missing. `missing` is the largest possible count of
//! a value that is not shown, so a shown value with a larger count is certainly among the most frequent.
//!
//! Memory: some 70 bytes for each of the `keys` values. Cost: a header walk and a look-up per frame; a pass over the
//! values once for every `keys`/2 new ones. Source: MAPI's TOP.

use crate::node::{
    Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
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

/// Counts of values, in bounded memory.
struct Counts {
    /// Most values at a time.
    keys: usize,
    counts: HashMap<Value, u64>,
    /// Largest error of a count, and largest possible count of a value that is not in `counts`.
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

    /// Subtracts one number from all counts, so that at most half of the values stay.
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

    /// Returns the values with the highest counts, and the largest possible count of any other value.
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
            true => layers.ports().map(|ports| [ports.source, ports.destination].map(Value::Port)),
            false => {
                layers.innermost_ip().map(|ip| [ip.source(), ip.destination()].map(Value::Address))
            }
        };
        let Some([source, destination]) = ends else { return };
        if field.starts_with("src") {
            self.values.add(source);
        } else if field.starts_with("dst") {
            self.values.add(destination);
        } else {
            self.values.add(source);
            // A frame counts once for a value that both its source and its destination have.
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

/// Reads the number of values to show, and the number of values to count at a time.
fn read(settings: &Settings) -> Result<(usize, usize), MakeError> {
    let places = settings.number_or("expression", 1..=1_000, 10)?;
    let keys = settings.number_or("keys", 2..=16_777_216, 65_536)?;
    if keys < 2 * places {
        return Err(MakeError::new(
            "keys",
            format!("{keys} is less than twice the {places} shown"),
        ));
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
        Parameter { name: "keys", summary: "most values at a time (65536); exact if all fit" },
    ],
    make,
    live: &["expression", "keys"],
    opens: Opens::nothing,
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Skewed ports in a changing order: the bounds hold at every size, and counts are exact only if all values fit.
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
