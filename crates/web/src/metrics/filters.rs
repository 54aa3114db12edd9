//! Frames that filters accepted: the busiest have samples of their own, the others are one.

use super::others::Key;
use super::{COUNTER, Family, MAX_SERIES, Others, head, sample};
use fyke_control::{EntryKind, FilterCount, Stats};
use std::cmp::Reverse;

const NAME: &str = "fyke_filter_accepted_frames_total";

/// Writes the samples of all running fykes.
pub fn samples(text: &mut String, known: &[(u32, &Stats)], others: &mut Others) {
    let help = "Frames that a filter accepted.";
    head(text, &Family { name: "fyke_filter_accepted_frames", kind: COUNTER, help });
    for (pid, stats) in known {
        // The entries of readers have changing texts; they have families of their own.
        let all = stats.filters.iter().enumerate();
        let mut all: Vec<(usize, &FilterCount)> =
            all.filter(|(_, filter)| filter.kind != EntryKind::Reader).collect();
        all.sort_by_key(|(_, filter)| Reverse(filter.accepted));
        let (first, rest) = all.split_at(all.len().min(MAX_SERIES));
        for (place, filter) in first {
            let named = filter.label.as_ref().and_then(|label| label.name.as_deref());
            // Entries that are not filters share the id 0.
            let id = match filter.id {
                0 => format!("entry {place}"),
                id => id.to_string(),
            };
            let labels = [("id", &*id), ("filter", named.unwrap_or(&filter.text))];
            sample(text, NAME, *pid, &labels, filter.accepted);
        }
        let counts = |part: &[(usize, &FilterCount)]| -> Vec<(Key, u64)> {
            let key = |(place, filter): &(usize, &FilterCount)| match filter.id {
                0 => (0, *place),
                id => (id, 0),
            };
            part.iter().map(|one| (key(one), one.1.accepted)).collect()
        };
        if let Some(sum) = others.sum(*pid, NAME, &counts(first), &counts(rest)) {
            sample(text, NAME, *pid, &[("id", "rest"), ("filter", "")], sum);
        }
    }
}
