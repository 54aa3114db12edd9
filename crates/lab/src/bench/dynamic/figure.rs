//! Curves over the number of the connection or of the update, as in figures 5 to 8 of the Swift paper.

use super::live::Run;
use crate::bench::measure::Samples;
use std::fmt::Write;

const COLOURS: [&str; 6] = ["#1f77b4", "#17becf", "#9467bd", "#2ca02c", "#9aa5b1", "#d62728"];
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 280.0;

/// A name and its points; x starts at 1.
type Curve<'a> = (&'a str, Vec<f64>);

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
    let rates: Vec<_> = rates.iter().map(u64::to_string).collect();
    let across = format!("background packets per second wanted: {}; setting", rates.join(", "));
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

/// Draws a chart with a logarithmic vertical scale.
fn chart(title: &str, across: &str, upwards: &str, curves: &[Curve<'_>]) -> String {
    let values = || curves.iter().flat_map(|(_, points)| points).copied().filter(|&y| y > 0.0);
    let low = values().fold(f64::INFINITY, f64::min).min(1.0).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let longest = curves.iter().map(|(_, points)| points.len()).max().unwrap_or(0).max(2);
    let x = |index: usize| LEFT + WIDTH * index as f64 / (longest - 1) as f64;
    let y = |value: f64| {
        TOP + HEIGHT * (1.0 - (value.max(1e-9).log10() - low) / (high - low)).clamp(0.0, 1.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"370\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<text x=\"10\" y=\"22\" \
         font-size=\"15\">{title}</text>\n"
    );
    // A write to a string cannot fail.
    for power in low as i32..=high as i32 {
        let at = y(10_f64.powi(power));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
            10_f64.powi(power)
        );
    }
    for (number, (name, points)) in curves.iter().enumerate() {
        if points.is_empty() {
            continue;
        }
        let colour = COLOURS[number % COLOURS.len()];
        let line: Vec<String> = (points.iter().enumerate())
            .map(|(index, &value)| format!("{:.1},{:.1}", x(index), y(value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            line.join(" "),
            LEFT + WIDTH + 8.0,
            TOP + 16.0 * (number + 1) as f64
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{across}: 1 to {longest}</text>\
         <text x=\"{LEFT}\" y=\"{:.1}\">{upwards}</text>\n</svg>",
        TOP + HEIGHT + 34.0,
        TOP - 4.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_curve_for_each_engine() {
        let curves = [("one", vec![1.0, 100.0]), ("none", vec![]), ("other", vec![2.0])];
        let svg = chart("a title", "update", "µs", &curves);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">other<") && !svg.contains(">none<"), "{svg}");
        assert!(svg.contains("a title") && svg.contains(">100<"), "{svg}");
        assert_eq!(medians(vec![vec![1.0, 5.0], vec![3.0], vec![2.0]]), [2.0, 5.0]);
    }
}
