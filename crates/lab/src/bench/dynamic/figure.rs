//! Curves over the number of the connection or of the update, as in figures 5 to 8 of the Swift paper.

use super::live::Run;
use crate::bench::curves::{Curve, chart};
use crate::bench::measure::Samples;

/// Returns both figures of a setting: file name and SVG.
pub(super) fn of(setting: &str, engines: &[&str], runs: &[Vec<Run>]) -> Vec<(String, String)> {
    let curves = |of: &dyn Fn(&Run) -> Vec<f64>| -> Vec<Curve<'_>> {
        let all = engines.iter().zip(runs);
        all.map(|(engine, runs)| (*engine, medians(runs.iter().map(of).collect()))).collect()
    };
    let updates = |run: &Run| run.updates.iter().map(|&ns| ns as f64 / 1e3).collect();
    let missed =
        |run: &Run| run.connections.iter().map(|one| one.missed_before_first as f64).collect();
    let plain = |text: String| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    };
    let file = |what: &str| format!("{}.svg", plain(format!("dynamic-{what}-{setting}")));
    let title = |what: &str| format!("{what} · {setting}");
    vec![
        (
            file("updates"),
            chart(&title("update latency"), "update", "µs (logarithmic)", &curves(&updates)),
        ),
        (
            file("missed"),
            chart(
                &title("packets missed before the first captured one"),
                "data connection, in the order of their start",
                "packets + 0.1 (logarithmic)",
                &curves(&|run| -> Vec<f64> {
                    let values: Vec<f64> = missed(run);
                    values.into_iter().map(|value| value + 0.1).collect()
                }),
            ),
        ),
    ]
}

/// Returns the figures over the background rates: file name and SVG. A row of `runs` is an engine, and a cell has its
/// runs at one rate.
pub(super) fn over_rates(
    rates: &[u64],
    engines: &[&str],
    runs: &[Vec<Vec<Run>>],
) -> Vec<(String, String)> {
    let curves = |of: &dyn Fn(&Run) -> Option<f64>| -> Vec<Curve<'_>> {
        let at_rate = |runs: &Vec<Run>| {
            let mut samples = Samples::default();
            runs.iter().filter_map(of).for_each(|value| samples.push(value));
            (!samples.is_empty()).then(|| samples.median())
        };
        let of_engine = |cells: &Vec<Vec<Run>>| cells.iter().map_while(at_rate).collect();
        engines.iter().zip(runs).map(|(engine, cells)| (*engine, of_engine(cells))).collect()
    };
    let across = across(rates);
    let draw = |name: &str, title: &str, upwards: &str, of: &dyn Fn(&Run) -> Option<f64>| {
        let svg = chart(&format!("{title} over the background"), &across, upwards, &curves(of));
        (format!("dynamic-rates-{name}.svg"), svg)
    };
    vec![
        draw("update", "update latency, median", "µs (logarithmic)", &|run| {
            run.update_ns(0.5).map(|ns| ns / 1e3)
        }),
        draw("missed", "packets missed", "% of those on the wire + 0.001 (logarithmic)", &|run| {
            Some(100.0 - run.capture_ratio() + 0.001)
        }),
        draw("reached", "background reached", "packets/s (logarithmic)", &|run| {
            Some(run.background.max(1.0))
        }),
    ]
}

/// Text below a figure over the background rates.
pub(super) fn across(rates: &[u64]) -> String {
    let rates: Vec<_> = rates.iter().map(u64::to_string).collect();
    format!("background packets per second wanted: {}; setting", rates.join(", "))
}

/// Medians of the n-th values of all runs.
fn medians(runs: Vec<Vec<f64>>) -> Vec<f64> {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .map(|index| {
            let mut samples = Samples::default();
            runs.iter().filter_map(|run| run.get(index)).for_each(|&value| samples.push(value));
            samples.median()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_runs_are_compared_by_their_place() {
        assert_eq!(medians(vec![vec![1.0, 5.0], vec![3.0], vec![2.0]]), [2.0, 5.0]);
    }
}
