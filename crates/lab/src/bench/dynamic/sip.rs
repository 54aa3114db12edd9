//! SIP calls beside background traffic: `fyke track sip` as a process, at 500 calls a second.

use super::{BENCH, Scale, product};
use crate::bench::calls::{Order, Run, follow};
use crate::bench::curves::{Curve, chart};
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use crate::bench::{BenchError, Options, Progress};

const CASE: &str = "sip";

/// Measures each background rate, with look-back and without it.
pub(super) fn measure(
    scale: &Scale,
    options: &Options,
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    let engines = product::ENGINES.into_iter().filter(|engine| options.wants_engine(engine));
    let engines: Vec<_> = engines.collect();
    let steps = scale.backgrounds.len() * scale.runs;
    let mut all: Vec<Vec<Vec<Run>>> = engines.iter().map(|_| Vec::new()).collect();
    for (number, &background) in scale.backgrounds.iter().enumerate() {
        let order = Order { rate: scale.call_rate, calls: scale.calls, background };
        let setting = format!("{} calls/s, {background}/s wanted", order.rate);
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); engines.len()];
        for round in 0..scale.runs {
            progress(&setting, number * scale.runs + round, steps);
            for place in 0..engines.len() {
                let at = (place + round) % engines.len();
                match follow(options, &order, engines[at] == product::ENGINES[0]) {
                    Ok(run) => runs[at].push(run),
                    Err(why) => report.note(format!("sip without {}: {why}", engines[at])),
                }
            }
        }
        for (engine, runs) in engines.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
            summarise(&setting, engine, &order, runs, report);
        }
        all.iter_mut().zip(runs).for_each(|(cells, runs)| cells.push(runs));
    }
    if scale.backgrounds.len() > 1 {
        let order = Order { rate: scale.call_rate, calls: scale.calls, background: 0 };
        let sent = order.packets().max(1) as f64;
        report.figures.extend(figures(&scale.backgrounds, &engines, &all, sent));
    }
    Ok(())
}

/// Returns the figures over the background rates: file name and SVG.
fn figures(
    rates: &[u64],
    engines: &[&str],
    runs: &[Vec<Vec<Run>>],
    sent: f64,
) -> Vec<(String, String)> {
    let median = |runs: &Vec<Run>, of: &dyn Fn(&Run) -> f64| {
        let mut samples = Samples::default();
        runs.iter().for_each(|run| samples.push(of(run)));
        (!samples.is_empty()).then(|| samples.median())
    };
    let curves = |of: &dyn Fn(&Run) -> f64| -> Vec<Curve<'_>> {
        let of_engine = |cells: &Vec<Vec<Run>>| cells.iter().map_while(|c| median(c, of)).collect();
        engines.iter().zip(runs).map(|(engine, cells)| (*engine, of_engine(cells))).collect()
    };
    let across = super::figure::across(rates);
    let update = curves(&|run| run.edits_us[0]);
    let missed = curves(&|run| 100.0 * (sent - run.captured as f64).max(0.0) / sent + 0.001);
    let titles = [
        "SIP: update latency, median, over the background",
        "SIP: packets missed over the background",
    ];
    vec![
        (
            "dynamic-rates-sip-update.svg".to_owned(),
            chart(titles[0], &across, "µs (logarithmic)", &update),
        ),
        (
            "dynamic-rates-sip-missed.svg".to_owned(),
            chart(titles[1], &across, "% of those sent + 0.001 (logarithmic)", &missed),
        ),
    ]
}

/// Adds medians over the runs to the report.
fn summarise(setting: &str, engine: &str, order: &Order, runs: &[Run], report: &mut Report) {
    let over = |of: &dyn Fn(&Run) -> f64| {
        let mut samples = Samples::default();
        runs.iter().for_each(|run| samples.push(of(run)));
        samples.median()
    };
    let sent = order.packets();
    let missed = |run: &Run| sent.saturating_sub(run.captured) as f64;
    let mut figures: Vec<(String, f64, &str)> = Vec::new();
    let mut push = |what: &str, value, unit| figures.push((what.to_owned(), value, unit));
    push("background wanted", order.background as f64, "packets/s");
    push("background reached", over(&|run| run.background), "packets/s");
    push("packets of calls sent", sent as f64, "packets");
    push("packets of calls sent per second", over(&|run| run.rate), "packets/s");
    push("packets captured", over(&|run| run.captured as f64), "packets");
    push("packets missed", over(&missed), "packets");
    push("capture ratio", over(&|run| 100.0 * run.captured as f64 / sent.max(1) as f64), "%");
    push("packets captured after the end", over(&|run| run.after as f64), "packets");
    push("update p50", over(&|run| run.edits_us[0] * 1e3), "ns");
    push("update p99", over(&|run| run.edits_us[1] * 1e3), "ns");
    push("lost", over(&|run| run.sum.lost() as f64), "packets");
    push("frames without an outcome", over(&|run| run.sum.is_off_by() as f64), "packets");
    push("processor time", over(&|run| run.busy), "%");
    figures.extend(super::lost_by_reason(runs.iter().map(|run| &run.sum), runs.len()));
    for (what, value, unit) in figures {
        let case = format!("{CASE}, {what}");
        let one = Measurement::value(BENCH, &case, engine, setting, value, unit);
        report.push(one.runs(runs.len()));
    }
    super::note_rate(setting, engine, order.background, over(&|run| run.background), report);
}
