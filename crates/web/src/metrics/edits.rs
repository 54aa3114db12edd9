//! The times of edits as samples: a histogram, its longest time, and the refused requests.

use super::{COUNTER, Family, GAUGE, head, sample, sample_of, seconds};
use fyke_control::{EditTimes, Stats};

/// Writes the samples of all running fykes. One that does not count edits has no samples.
pub fn samples(text: &mut String, known: &[(u32, &Stats)]) {
    let known: Vec<(u32, &EditTimes)> =
        known.iter().filter_map(|(pid, stats)| Some((*pid, stats.edits.as_deref()?))).collect();
    let help = "Time from a client's request to its edit being in force.";
    head(text, &Family { name: "fyke_edit_seconds", kind: "histogram", help });
    text.push_str("# UNIT fyke_edit_seconds seconds\n");
    for &(pid, times) in &known {
        let bucket = "fyke_edit_seconds_bucket";
        for class in &times.within {
            sample(text, bucket, pid, &[("le", &seconds(class.ns))], class.edits);
        }
        sample(text, bucket, pid, &[("le", "+Inf")], times.edits);
        sample(text, "fyke_edit_seconds_count", pid, &[], times.edits);
        sample_of(text, "fyke_edit_seconds_sum", pid, &[], &seconds(times.sum_ns));
    }
    let help = "Longest time from a client's request to its edit being in force.";
    head(text, &Family { name: "fyke_edit_max_seconds", kind: GAUGE, help });
    text.push_str("# UNIT fyke_edit_max_seconds seconds\n");
    for &(pid, times) in &known {
        sample_of(text, "fyke_edit_max_seconds", pid, &[], &seconds(times.max_ns));
    }
    let help = "Requests for edits that were refused.";
    head(text, &Family { name: "fyke_edits_refused", kind: COUNTER, help });
    for &(pid, times) in &known {
        sample(text, "fyke_edits_refused_total", pid, &[], times.refused);
    }
}
