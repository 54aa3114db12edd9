//! The samples in the Prometheus text format 0.0.4, for programs that do not read OpenMetrics, such as the textfile
//! collector of node_exporter: it refuses a file with a type that it does not know.
//!
//! The formats differ in the lines before the samples: a family is named as its samples are, `info` is a gauge, and
//! there is neither a unit nor an end.

use std::fmt::Write;

/// Content type of the answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns a text of the OpenMetrics format in this one.
pub fn older_format(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The end of the names of samples of the last family.
    let mut suffix = "";
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, word, name) = (words.next(), words.next(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        // Writing to a string does not fail.
        let _written = match (mark, word) {
            (Some("#"), Some("EOF" | "UNIT")) => Ok(()),
            (Some("#"), Some("TYPE")) => {
                let kind = if rest == "info" { "gauge" } else { rest };
                suffix = match rest {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                writeln!(text, "# TYPE {name}{suffix} {kind}")
            }
            (Some("#"), Some("HELP")) => writeln!(text, "# HELP {name}{suffix} {rest}"),
            _ => writeln!(text, "{line}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let openmetrics = "# TYPE fyke info\n# HELP fyke A running fyke.\nfyke_info{pid=\"7\",command=\"# EOF\"} 1\n\
                           # TYPE fyke_frames_seen counter\n# HELP fyke_frames_seen Frames.\nfyke_frames_seen_total 3\n\
                           # TYPE fyke_edit_seconds histogram\n# UNIT fyke_edit_seconds seconds\n# EOF\n";
        let expected = "# TYPE fyke_info gauge\n# HELP fyke_info A running fyke.\n\
                        fyke_info{pid=\"7\",command=\"# EOF\"} 1\n# TYPE fyke_frames_seen_total counter\n\
                        # HELP fyke_frames_seen_total Frames.\nfyke_frames_seen_total 3\n\
                        # TYPE fyke_edit_seconds histogram\n";
        assert_eq!(older_format(openmetrics), expected);
    }
}
