//! The times of edits by clients: classes with fixed bounds, so that monitoring systems can add those of several
//! processes and of several moments. A few words of memory, whatever the number of edits.

use crate::message::{EditTimes, EditsWithin, Request, Response};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bounds of the classes, in nanoseconds: 50 µs to 10 s.
const BOUNDS_NS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

#[derive(Debug, Default)]
struct Counts {
    /// Edits of each class; the last has those above all bounds.
    classes: [u64; BOUNDS_NS.len() + 1],
    refused: u64,
    sum_ns: u64,
    max_ns: u64,
}

/// Counts the edits of all clients of a server.
#[derive(Debug, Default)]
pub struct EditMeter {
    counts: Mutex<Counts>,
}

impl EditMeter {
    /// Counts a request that was an edit ([`is_edit`]), by its answer.
    pub fn count(&self, answer: &Response) {
        let mut counts = self.lock();
        let Response::Ok { latency_ns, .. } = answer else {
            counts.refused += 1;
            return;
        };
        let class = BOUNDS_NS.partition_point(|bound| bound < latency_ns);
        counts.classes[class] += 1;
        counts.sum_ns = counts.sum_ns.saturating_add(*latency_ns);
        counts.max_ns = counts.max_ns.max(*latency_ns);
    }

    /// The counts so far.
    pub fn times(&self) -> EditTimes {
        let counts = self.lock();
        let mut edits = 0;
        let mut with = |class: u64| {
            edits += class;
            edits
        };
        let within = BOUNDS_NS.iter().zip(&counts.classes);
        let within = within.map(|(&ns, &class)| EditsWithin { ns, edits: with(class) }).collect();
        let edits = with(counts.classes[BOUNDS_NS.len()]);
        let Counts { refused, sum_ns, max_ns, .. } = *counts;
        EditTimes { edits, refused, sum_ns, max_ns, within }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for a request that changes filters.
pub fn is_edit(request: &Request) -> bool {
    matches!(
        request,
        Request::Set { .. }
            | Request::Add { .. }
            | Request::Delete { .. }
            | Request::Edit { .. }
            | Request::Passes { .. }
            | Request::Undo { .. }
            | Request::Load
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(latency_ns: u64) -> Response {
        Response::Ok { epoch: 2, ids: Vec::new(), latency_ns, notes: Vec::new() }
    }

    #[test]
    fn every_edit_is_in_one_class_and_bounds_belong_to_the_lower() {
        let meter = EditMeter::default();
        assert_eq!(meter.times().edits, 0);
        for latency in [0, 50_000, 50_001, 3_000_000, 10_000_000_000, 11_000_000_000] {
            meter.count(&took(latency));
        }
        meter.count(&Response::Error { message: "no".to_owned() });
        meter.count(&Response::Refused { change: 0, message: "no".to_owned() });
        let times = meter.times();
        assert_eq!((times.edits, times.refused, times.max_ns), (6, 2, 11_000_000_000));
        assert_eq!(times.sum_ns, 21_003_100_001);
        let within = |ns| times.within.iter().find(|one| one.ns == ns).unwrap().edits;
        assert_eq!(
            [50_000, 100_000, 2_500_000, 5_000_000, 5_000_000_000, 10_000_000_000].map(within),
            [2, 3, 3, 4, 4, 5]
        );
        assert!(times.within.is_sorted_by(|a, b| a.ns < b.ns && a.edits <= b.edits));
    }

    #[test]
    fn the_sum_of_the_times_does_not_overflow() {
        let meter = EditMeter::default();
        meter.count(&took(u64::MAX));
        meter.count(&took(u64::MAX));
        assert_eq!((meter.times().sum_ns, meter.times().edits), (u64::MAX, 2));
    }
}
