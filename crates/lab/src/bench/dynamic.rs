//! `fyke bench dynamic`: follows FTP with a filter that changes during capture, in four ways.
//!
//! ```text
//!  world: servers ═ veth ═ clients, FTP with short-lived data connections, UDP background at a rate
//!            recording (all TCP of the device) ◀─┤├─▶ one of the ways at a time
//! ```
//!
//! | engine | filter | its update |
//! |---|---|---|
//! | `fyke-kernel` | passes in the kernel, ends as rows of a table | one store |
//! | `fyke-user` | the pass set in user space, with look-back | an edit of a pass |
//! | `libpcap` | the growing text, compiled and attached again | compile and attach |
//! | `opt-c` | a hand-written kernel program for FTP | none |
//!
//! Cases: packets missed per data connection before the first captured one, lost packets, wrong verdicts, updates,
//! and the number of packets captured. Then `edits`: ten thousand edits under full load; `cost`: nanoseconds per
//! frame in the kernel, compared with the kernel's JIT of libpcap's programs; `visibility`: delay until another
//! processor applies an edit. Generator and capture share the processors of this machine, so rates are those
//! actually reached; the reports state them. `--rate`, `--seconds` and `--rounds` replace the settings of `ftp`: the
//! papers have 45 s, and 100,000 to 555,000 packets a second.

mod cost;
mod edits;
mod figure;
mod live;
mod visibility;
mod ways;

use super::measure::Samples;
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use crate::ftp;
use live::Run;
use std::time::Duration;

/// The bench's name in reports.
pub const BENCH: &str = "dynamic";
/// Names of the ways, in the order of reports.
pub const ENGINES: [&str; 4] = ["fyke-kernel", "fyke-user", "libpcap", "opt-c"];
/// Parts of the bench, selected by `--case`.
const PARTS: [&str; 4] = ["ftp", "edits", "cost", "visibility"];

/// One traffic setting.
#[derive(Debug, Clone)]
struct Setting {
    name: String,
    ftp: ftp::Options,
    background_pps: u64,
}

/// Size of the measurement.
struct Scale {
    settings: Vec<Setting>,
    runs: usize,
    edits: u64,
}

impl Scale {
    fn of(options: &Options) -> Scale {
        let mut scale = Scale::by_default(options.smoke);
        let half = options.duration.map(|whole| whole / 2);
        let transfers = |half| match options.smoke {
            true => swift(2, 3, half),
            false => swift(10, 20, half),
        };
        if !options.rates.is_empty() || half.is_some() {
            let ftp = half.map_or_else(|| scale.settings[0].ftp, transfers);
            let connections = ftp.servers * ftp.connections;
            let rates = if options.rates.is_empty() { &[0][..] } else { &options.rates };
            let of_rate = |&rate: &u64| {
                let name = format!("{connections} connections, {rate}/s wanted");
                Setting { name, ftp, background_pps: rate }
            };
            scale.settings = rates.iter().map(of_rate).collect();
        }
        scale.runs = options.rounds.unwrap_or(scale.runs);
        scale
    }

    fn by_default(smoke: bool) -> Scale {
        if smoke {
            let name = "6 connections, no background";
            let settings = vec![Setting::new(name, swift(2, 3, Duration::from_millis(600)), 0)];
            return Scale { settings, runs: 1, edits: 200 };
        }
        let transfers = || swift(10, 20, Duration::from_millis(1_800));
        let mut settings = vec![Setting::new("200 connections, no background", transfers(), 0)];
        for rate in [50_000, 150_000, 500_000] {
            let name = format!("200 connections, {rate}/s wanted");
            settings.push(Setting::new(&name, transfers(), rate));
        }
        for rate in [100_000, 250_000] {
            let name = format!("25 sessions up and down, {rate}/s wanted");
            settings.push(Setting::new(&name, swift(25, 1, Duration::from_millis(1_000)), rate));
        }
        Scale { settings, runs: 10, edits: 10_000 }
    }
}

/// FTP options: servers, connections of each, and half of the total time. A transfer is five bursts, as from a
/// server that limits its rate, such as the paper's.
fn swift(servers: usize, connections: usize, half: Duration) -> ftp::Options {
    const BURSTS: u64 = 5;
    let burst_bytes = 48_000;
    let pause = half.as_secs_f64() / (BURSTS - 1) as f64;
    ftp::Options {
        servers,
        connections,
        interval: half / connections as u32,
        size_bytes: burst_bytes * BURSTS,
        burst_bytes,
        bytes_per_second: (burst_bytes as f64 / pause) as u64,
    }
}

impl Setting {
    fn new(name: &str, ftp: ftp::Options, background_pps: u64) -> Setting {
        Setting { name: name.to_owned(), ftp, background_pps }
    }
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; without namespaces or privilege the message states what is missing.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let scale = Scale::of(options);
    let mut report = Report::new(options);
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| options.wants_case(part)).collect();
    let engines: Vec<&str> = ENGINES.into_iter().filter(|e| options.wants_engine(e)).collect();
    if parts.is_empty() || engines.is_empty() {
        let there = format!("cases {}; engines {}", PARTS.join(", "), ENGINES.join(", "));
        return Err(BenchError::NothingChosen { there });
    }
    for part in parts {
        match part {
            "ftp" => follow(&scale, &engines, &mut report, progress)?,
            "edits" => edit(&scale, &engines, &mut report, progress)?,
            "cost" => cost::measure(options, &mut report, progress)?,
            _ => visibility::measure(options, &mut report, progress)?,
        }
    }
    Ok(report)
}

/// Runs all ways through all settings, in turn.
fn follow(
    scale: &Scale,
    engines: &[&str],
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    let steps = scale.settings.len() * scale.runs;
    for (number, setting) in scale.settings.iter().enumerate() {
        let mut runs: Vec<Vec<Run>> = engines.iter().map(|_| Vec::new()).collect();
        let mut refused: Vec<Option<String>> = vec![None; engines.len()];
        for round in 0..scale.runs {
            progress(&setting.name, number * scale.runs + round, steps);
            for place in 0..engines.len() {
                let engine = (place + round) % engines.len();
                if refused[engine].is_some() {
                    continue;
                }
                match live::run(engines[engine], setting) {
                    Ok(run) => runs[engine].push(run),
                    Err(why) => refused[engine] = Some(why),
                }
            }
        }
        for (engine, why) in engines.iter().zip(refused) {
            if let Some(why) = why {
                report.note(format!("without {engine}: {why}"));
            }
        }
        for (engine, runs) in engines.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
            summarise(setting, engine, runs, report);
        }
        report.figures.extend(figure::of(&setting.name, engines, &runs));
    }
    if report.measurements.is_empty() {
        return Err(BenchError::Other(report.notes.join("; ")));
    }
    Ok(())
}

/// Adds medians over the runs to the report.
fn summarise(setting: &Setting, engine: &str, runs: &[Run], report: &mut Report) {
    let over = |of: &dyn Fn(&Run) -> f64| {
        let mut samples = Samples::default();
        runs.iter().for_each(|run| samples.push(of(run)));
        samples.median()
    };
    let missed = |run: &Run, part: f64| {
        let mut samples = Samples::default();
        run.connections.iter().for_each(|one| samples.push(one.missed_before_first as f64));
        samples.quantile(part)
    };
    let updates = |run: &Run, part: f64| {
        let mut samples = Samples::default();
        run.updates.iter().for_each(|&ns| samples.push(ns as f64));
        samples.quantile(part)
    };
    let average = |run: &Run| {
        let sum: u64 = run.connections.iter().map(|one| one.missed_before_first).sum();
        sum as f64 / run.connections.len().max(1) as f64
    };
    let mut figures: Vec<(&str, f64, &str)> = vec![
        ("missed per connection", over(&|run| missed(run, 0.5)), "packets"),
        ("missed per connection, average", over(&average), "packets"),
        ("missed per connection, p99", over(&|run| missed(run, 0.99)), "packets"),
        ("lost", over(&|run| run.lost as f64), "packets"),
        ("wrong verdicts", over(&|run| run.wrong as f64), "packets"),
        ("updates refused", over(&|run| run.failed as f64), "updates"),
        ("connections captured", over(&|run| run.captured_connections() as f64), "connections"),
        ("packets captured", over(&|run| run.captured_frames() as f64), "packets"),
        ("background reached", over(&|run| run.background), "packets/s"),
    ];
    if runs.iter().any(|run| !run.updates.is_empty()) {
        figures.push(("update p50", over(&|run| updates(run, 0.5)), "ns"));
        figures.push(("update p99", over(&|run| updates(run, 0.99)), "ns"));
    }
    for (case, value, unit) in figures {
        let one = Measurement::value(BENCH, case, engine, &setting.name, value, unit);
        report.push(one.runs(runs.len()));
    }
    for failure in runs.iter().flat_map(|run| &run.failures).take(1) {
        report.note(format!("{}, {engine}: the traffic itself: {failure}", setting.name));
    }
}

/// Measures edits under full load.
fn edit(
    scale: &Scale,
    engines: &[&str],
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    let setting = format!("{} edits under full load", scale.edits);
    type Way = fn(u64) -> Result<edits::Outcome, String>;
    let ways: [(&str, Way); 2] = [("fyke-kernel", edits::kernel), ("libpcap", edits::libpcap)];
    for (step, (engine, way)) in ways.into_iter().enumerate() {
        if !engines.contains(&engine) {
            continue;
        }
        progress(&setting, step, ways.len());
        let outcome = match way(scale.edits) {
            Ok(outcome) => outcome,
            Err(why) => {
                report.note(format!("edits without {engine}: {why}"));
                continue;
            }
        };
        let figures = [
            ("lost", outcome.lost(), "packets"),
            ("wrong verdicts", outcome.wrong, "packets"),
            ("edits", outcome.edits, "edits"),
            ("marked", outcome.marked, "packets"),
            ("received", outcome.received, "packets"),
            ("no room in the queue", outcome.queue, "packets"),
            ("load", (outcome.sent as f64 / outcome.seconds.max(1e-9)) as u64, "packets/s"),
        ];
        for (case, value, unit) in figures {
            let one = Measurement::value(BENCH, case, engine, &setting, value as f64, unit);
            report.push(one);
        }
    }
    Ok(())
}
