//! A measurement, its JSON line, the table for readers, plots.

use super::Options;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::rc::Rc;

/// One figure. Fields that do not apply are `None` and omitted from the JSON line.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measurement {
    /// Name of the bench.
    pub bench: String,
    /// The case, such as F5.
    pub case: String,
    /// The engine.
    pub engine: String,
    /// The conditions, such as `cache, real, accepted`.
    pub setting: String,
    /// Nanoseconds per packet, the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_packet: Option<f64>,
    /// Another figure, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit of `value`, or `ns`.
    pub unit: String,
    /// Frames accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// Checksum of the verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u64>,
    /// Number of rounds of which this is the median.
    pub runs: usize,
}

impl Measurement {
    /// Creates a time per packet.
    pub fn per_packet(bench: &str, case: &str, engine: &str, setting: &str, ns: f64) -> Self {
        let mut one = Measurement::value(bench, case, engine, setting, ns, "ns");
        one.ns_per_packet = one.value.take();
        one
    }

    /// Creates any other figure.
    pub fn value(
        bench: &str,
        case: &str,
        engine: &str,
        setting: &str,
        value: f64,
        unit: &str,
    ) -> Self {
        Measurement {
            bench: bench.to_owned(),
            case: case.to_owned(),
            engine: engine.to_owned(),
            setting: setting.to_owned(),
            value: Some((value * 1000.0).round() / 1000.0),
            unit: unit.to_owned(),
            runs: 1,
            ..Measurement::default()
        }
    }

    /// Sets the number of rounds.
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = runs;
        self
    }

    /// Serialises it as one JSON object, without a newline.
    pub fn json(&self) -> String {
        // Strings and numbers can always be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The figure, in any unit.
    pub fn figure(&self) -> f64 {
        self.ns_per_packet.or(self.value).unwrap_or_default()
    }
}

/// Callback of a listener.
type Tell = dyn Fn(&Measurement);

/// Callback invoked per measurement, so that an interrupted bench keeps its results.
#[derive(Clone, Default)]
pub struct Listener(Option<Rc<Tell>>);

impl Listener {
    /// Calls `tell` with each measurement.
    pub fn new(tell: impl Fn(&Measurement) + 'static) -> Listener {
        Listener(Some(Rc::new(tell)))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "no Listener" })
    }
}

/// Result of a bench.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The figures.
    pub measurements: Vec<Measurement>,
    /// Notes for the reader: omitted parts and the reasons.
    pub notes: Vec<String>,
    /// Charts drawn by the bench itself: file name and SVG.
    pub figures: Vec<(String, String)>,
    listener: Listener,
}

/// Rows of a table: the figures of one unit by case and setting, then by engine.
type Rows<'r> = BTreeMap<(usize, String, String), Vec<&'r Measurement>>;

impl Report {
    /// Creates an empty report that calls the options' listener.
    pub fn new(options: &Options) -> Report {
        Report { listener: options.listener.clone(), ..Report::default() }
    }

    /// Adds a measurement and calls the listener.
    pub fn push(&mut self, one: Measurement) {
        if let Listener(Some(tell)) = &self.listener {
            tell(&one);
        }
        self.measurements.push(one);
    }

    /// Adds a note once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds the result of another bench.
    pub fn append(&mut self, other: Report) {
        self.measurements.extend(other.measurements);
        self.figures.extend(other.figures);
        other.notes.into_iter().for_each(|note| self.note(note));
    }

    /// Figures as comma-separated values with a header line; every row has the commit and CPU.
    pub fn csv(&self, commit: &str, cpu: &str) -> String {
        let quoted = |text: &str| match text.contains([',', '"']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let mut text =
            "commit,cpu,bench,case,engine,setting,figure,unit,accepted,checksum,runs\n".to_owned();
        for one in &self.measurements {
            let number = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
            let fields = [
                quoted(commit),
                quoted(cpu),
                quoted(&one.bench),
                quoted(&one.case),
                quoted(&one.engine),
                quoted(&one.setting),
                one.figure().to_string(),
                quoted(&one.unit),
                number(one.accepted),
                number(one.checksum),
                one.runs.to_string(),
            ];
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        text
    }

    fn rows(&self) -> Rows<'_> {
        let mut order: Vec<(&str, &str)> = Vec::new();
        let mut rows = Rows::new();
        for one in &self.measurements {
            let key = (one.bench.as_str(), one.case.as_str());
            let place = order.iter().position(|known| *known == key).unwrap_or_else(|| {
                order.push(key);
                order.len() - 1
            });
            rows.entry((place, one.case.clone(), one.setting.clone())).or_default().push(one);
        }
        rows
    }

    /// Formats a table for readers: a block per case and setting, a line per engine with its ratio to the first
    /// engine with a name that begins with `fyke`; 2.0 means twice the figure.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for ((_, case, setting), engines) in self.rows() {
            // A write to a string cannot fail.
            let _ = writeln!(text, "{case} · {setting}");
            let ours = engines.iter().find(|one| one.engine == "fyke");
            let ours = ours.or_else(|| engines.iter().find(|one| one.engine.starts_with("fyke")));
            for one in &engines {
                let figure = one.figure();
                let same = ours.filter(|ours| ours.unit == one.unit && ours.figure() > 0.0);
                let ratio = same.map(|ours| figure / ours.figure());
                let ratio = ratio.map(|ratio| format!("{ratio:>9.2} ×")).unwrap_or_default();
                let accepted = one.accepted.map(|n| format!("   {n} accepted"));
                let _ = writeln!(
                    text,
                    "  {:<22} {figure:>12.2} {:<9}{ratio}{}",
                    one.engine,
                    one.unit,
                    accepted.unwrap_or_default()
                );
            }
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// Returns one bar chart (SVG) for each case and setting: file name and contents. Bars are on a logarithmic
    /// scale. The bench's own charts follow.
    pub fn plots(&self) -> Vec<(String, String)> {
        let rows = self.rows();
        let bars = rows.iter().map(|((_, case, setting), engines)| {
            let bench = engines.first().map_or("", |one| one.bench.as_str());
            let name = format!("{bench}-{case}-{setting}");
            let name: String = name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .take(120)
                .collect();
            let name = name.replace("--", "-");
            (format!("{name}.svg"), chart(&format!("{case} · {setting}"), engines))
        });
        bars.chain(self.figures.iter().cloned()).collect()
    }
}

/// White under a chart, so that it can be read on a dark page.
pub(super) const GROUND: &str = "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";

/// A figure with its unit; a long time has a larger one.
fn readable(figure: f64, unit: &str) -> String {
    match (unit, figure) {
        ("ns", 1e9..) => format!("{:.2} s", figure / 1e9),
        ("ns", 1e6..) => format!("{:.2} ms", figure / 1e6),
        ("ns", 1e3..) => format!("{:.2} µs", figure / 1e3),
        _ => format!("{figure:.2} {unit}"),
    }
}

/// Draws one bar per line, with name and figure.
fn chart(title: &str, engines: &[&Measurement]) -> String {
    const LEFT: usize = 180;
    const WIDTH: f64 = 420.0;
    let escape = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    let floor = engines.iter().map(|one| one.figure()).filter(|&figure| figure > 0.0);
    let floor = floor.fold(f64::INFINITY, f64::min) / 2.0;
    let top = engines.iter().map(|one| one.figure()).fold(0.0, f64::max);
    let span = (top / floor).ln().max(1e-9);
    let height = 50 + 24 * engines.len();
    let scale = if engines.len() > 1 { " (logarithmic)" } else { "" };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"12\">\n{GROUND}\
         <text x=\"10\" y=\"24\" font-weight=\"bold\">{}{scale}</text>\n",
        escape(title)
    );
    for (index, one) in engines.iter().enumerate() {
        let y = 40 + 24 * index;
        let figure = one.figure();
        let width = if figure > 0.0 { (figure / floor).ln() / span * WIDTH } else { 0.0 };
        let colour = if one.engine.starts_with("fyke") { "#1f77b4" } else { "#9aa5b1" };
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{}\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" \
             height=\"18\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            y + 14,
            escape(&one.engine),
            LEFT as f64 + width + 6.0,
            y + 14,
            escape(&readable(figure, &one.unit))
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        let mut one = Measurement::per_packet("static", "F2", "fyke", "cache, real, mixed", 1.5);
        one.accepted = Some(7);
        one.checksum = Some(9);
        report.push(one.runs(5));
        let peer = Measurement::per_packet("static", "F2", "libpcap", "cache, real, mixed", 6.0);
        report.push(peer);
        report.push(Measurement::value("bloom", "D11", "a<b", "k=2", 0.5, "%"));
        report
    }

    #[test]
    fn json_lines_leave_out_what_does_not_apply() {
        let told = Rc::new(std::cell::RefCell::new(String::new()));
        let text = Rc::clone(&told);
        let listener = Listener::new(move |one| *text.borrow_mut() += &(one.json() + "\n"));
        let mut report_told = Report::new(&Options { listener, ..Options::default() });
        report().measurements.into_iter().for_each(|one| report_told.push(one));
        let text = told.borrow();
        let first = concat!(
            r#"{"bench":"static","case":"F2","engine":"fyke","setting":"cache, real, mixed","#,
            r#""ns_per_packet":1.5,"unit":"ns","accepted":7,"checksum":9,"runs":5}"#
        );
        assert_eq!(text.lines().next(), Some(first));
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("\"value\":0.5")));
    }

    #[test]
    fn the_table_shows_ratios_and_the_plots_escape_names() {
        let table = report().table();
        assert!(table.contains("libpcap") && table.contains("4.00 ×"), "{table}");
        let plots = report().plots();
        assert_eq!(plots.len(), 2);
        assert_eq!(plots[0].0, "static-F2-cache-real-mixed.svg");
        assert!(plots[1].1.contains("a&lt;b"));
        assert!(plots[0].1.contains("fill=\"white\"") && plots[0].1.contains("(logarithmic)"));
        let times = [12.0, 1_234.0, 3_527_667.0, 2e9].map(|ns| readable(ns, "ns"));
        assert_eq!(times, ["12.00 ns", "1.23 µs", "3.53 ms", "2.00 s"]);
        assert_eq!(readable(5_000.0, "frames/s"), "5000.00 frames/s");
        let csv = report().csv("abc", "a cpu, fast");
        assert!(
            csv.contains("abc,\"a cpu, fast\",static,F2,fyke,\"cache, real, mixed\",1.5,ns,7,9,5")
        );
    }
}
