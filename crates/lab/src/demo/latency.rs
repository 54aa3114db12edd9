//! Latencies of edits: all (some hundreds) are kept, and sorted at the end.

use std::fmt;
use std::time::Duration;

/// Measured durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    nanoseconds: Vec<u64>,
}

impl Latencies {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.nanoseconds.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All durations in nanoseconds, in the order in which they were added.
    pub fn values(&self) -> &[u64] {
        &self.nanoseconds
    }

    /// Number of durations.
    pub fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.nanoseconds.is_empty()
    }

    /// The percentile by nearest rank, in nanoseconds; 0 without values.
    pub fn percentile(&self, per_cent: u32) -> u64 {
        percentile(&self.nanoseconds, per_cent)
    }
}

/// The percentile of `values` by nearest rank; 0 without values.
pub fn percentile(values: &[u64], per_cent: u32) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as u64 * u64::from(per_cent)).div_ceil(100).max(1) as usize;
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// A duration for readers: three digits and a unit.
#[derive(Debug, Clone, Copy)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "µs"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50), 0);
        (1..=100).rev().for_each(|value| latencies.add(Duration::from_nanos(value * 10)));
        let found = [0, 1, 50, 99, 100].map(|per_cent| latencies.percentile(per_cent));
        assert_eq!(found, [10, 10, 500, 990, 1_000]);
    }

    #[test]
    fn durations_have_three_digits() {
        let text = |value| Nanoseconds(value).to_string();
        assert_eq!(text(999), "999 ns");
        assert_eq!(text(1_234), "1.23 µs");
        assert_eq!(text(45_678_000), "45.7 ms");
        assert_eq!(text(123_456_000), "123 ms");
        assert_eq!(text(2_000_000_000), "2.00 s");
    }
}
