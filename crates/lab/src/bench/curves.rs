//! Charts of curves with a logarithmic vertical scale.

use super::report::GROUND;
use std::fmt::Write;

const COLOURS: [&str; 6] = ["#1f77b4", "#17becf", "#9467bd", "#2ca02c", "#9aa5b1", "#d62728"];
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 280.0;

/// A name and its points; x starts at 1.
pub(super) type Curve<'a> = (&'a str, Vec<f64>);

/// Draws a chart with a logarithmic vertical scale.
pub(super) fn chart(title: &str, across: &str, upwards: &str, curves: &[Curve<'_>]) -> String {
    let values = || curves.iter().flat_map(|(_, points)| points).copied().filter(|&y| y > 0.0);
    let low = values().reduce(f64::min).unwrap_or(1.0).log10().floor();
    let high = values().reduce(f64::max).unwrap_or(1.0).log10().ceil().max(low + 1.0);
    let longest = curves.iter().map(|(_, points)| points.len()).max().unwrap_or(0).max(2);
    let x = |index: usize| LEFT + WIDTH * index as f64 / (longest - 1) as f64;
    let y = |value: f64| {
        TOP + HEIGHT * (1.0 - (value.max(1e-9).log10() - low) / (high - low)).clamp(0.0, 1.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"370\" \
         font-family=\"monospace\" font-size=\"12\">\n{GROUND}<text x=\"10\" y=\"22\" \
         font-weight=\"bold\">{title}</text>\n"
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
    }
}
