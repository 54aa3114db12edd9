//! The readers of `fyke serve` as samples: their frames by outcome, and their lag.

use super::{COUNTER, Family, GAUGE, MAX_SERIES, Others, head, sample};
use fyke_control::{ReaderCount, Stats};
use std::cmp::Reverse;

/// A series: the labels of a reader, or of those without a series of their own, and the counts.
struct Series {
    pid: u32,
    id: String,
    capture: String,
    user: String,
    program: String,
    counts: ReaderCount,
}

impl Series {
    fn labels(&self) -> [(&str, &str); 4] {
        [
            ("id", &self.id),
            ("capture", &self.capture),
            ("user", &self.user),
            ("program", &self.program),
        ]
    }
}

/// Writes the samples of all running fykes.
pub fn samples(text: &mut String, known: &[(u32, &Stats)], others: &mut Others) {
    let all: Vec<Series> =
        known.iter().flat_map(|(pid, stats)| series(*pid, stats, others)).collect();
    let help = "Frames of a reader of fyke serve, by outcome; of the accepted ones, some are lost or unread.";
    head(text, &Family { name: "fyke_reader_frames", kind: COUNTER, help });
    for one in &all {
        let counts = &one.counts;
        for (outcome, frames) in
            [("accepted", counts.accepted), ("rejected", counts.rejected), ("lost", counts.lost)]
        {
            let labels = [&one.labels()[..], &[("outcome", outcome)]].concat();
            sample(text, "fyke_reader_frames_total", one.pid, &labels, frames);
        }
    }
    let help = "Accepted frames that a reader of fyke serve has not read and can still read.";
    head(text, &Family { name: "fyke_reader_unread_frames", kind: GAUGE, help });
    for one in &all {
        let name = "fyke_reader_unread_frames";
        sample(text, name, one.pid, &one.labels(), one.counts.unread);
    }
}

/// The readers that have lost most or lag most, and the sum of the others.
fn series(pid: u32, stats: &Stats, others: &mut Others) -> Vec<Series> {
    let mut all: Vec<&ReaderCount> = stats.readers.iter().collect();
    all.sort_by_key(|one| Reverse((one.lost, one.unread)));
    let (first, rest) = all.split_at(all.len().min(MAX_SERIES));
    let of = |one: &&ReaderCount| Series {
        pid,
        id: one.id.to_string(),
        capture: one.capture.clone(),
        user: one.user.to_string(),
        program: one.program.clone(),
        counts: (*one).clone(),
    };
    let mut series: Vec<Series> = first.iter().map(of).collect();
    let mut sum = |outcome: &'static str, count: fn(&ReaderCount) -> u64| {
        let counts = |part: &[&ReaderCount]| -> Vec<_> {
            part.iter().map(|one| ((one.id, 0), count(one))).collect()
        };
        others.sum(pid, outcome, &counts(first), &counts(rest)).unwrap_or(0)
    };
    let counts = ReaderCount {
        accepted: sum("readers accepted", |one| one.accepted),
        rejected: sum("readers rejected", |one| one.rejected),
        lost: sum("readers lost", |one| one.lost),
        // Their lag is of this moment.
        unread: rest.iter().fold(0, |sum: u64, one| sum.saturating_add(one.unread)),
        ..ReaderCount::default()
    };
    if !rest.is_empty() {
        let (capture, user, program) = Default::default();
        series.push(Series { pid, id: "rest".to_owned(), capture, user, program, counts });
    }
    series
}
