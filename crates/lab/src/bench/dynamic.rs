//! `fyke bench dynamic`: follows FTP with a filter that changes during capture, in several ways.
//!
//! ```text
//!  world: clients ═ veth ═ servers, FTP with short-lived data connections, UDP background at a rate
//!            recording (all TCP of the device) ◀─┤├─▶ one of the ways at a time
//! ```
//!
//! | engine | filter | its update |
//! |---|---|---|
//! | `fyke-track` | the product: `fyke track ftp` as a process, with look-back | an edit of a pass |
//! | `fyke-track-no-look-back` | the same, but the kernel rejects all that is not announced | an edit in both spaces |
//! | `fyke-kernel` | passes in the kernel, ends as rows of a table | one store |
//! | `fyke-user` | the pass set in user space, with look-back | an edit of a pass |
//! | `libpcap` | the growing text, compiled and attached again | compile and attach |
//! | `opt-c` | a hand-written kernel program for FTP | none |
//!
//! Cases: packets missed per data connection before the first captured one, lost packets, wrong verdicts, updates,
//! and the number of packets captured. Then `sip`: the product follows SIP calls beside the same background; `edits`:
//! ten thousand edits under full load; `cost`: nanoseconds per frame in the kernel, compared with the kernel's JIT of
//! libpcap's programs; `visibility`: delay until another processor applies an edit. Generator and capture share the
//! processors of this machine, so rates are those actually reached; a note tells where the machine sent less than was
//! wanted. `--rates`, `--seconds`, `--sessions` and `--rounds` replace the settings of `ftp` and `sip`: the papers have
//! 45 s, 10 servers with 20 connections each or 25 sessions, and 100,000 to 555,000 packets a second.

mod cost;
mod edits;
mod figure;
mod live;
mod product;
mod sip;
mod visibility;
mod ways;

use super::measure::Samples;
use super::printed::Sum;
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use crate::demo::tally::Comparison;
use crate::ftp;
use live::Run;
use std::collections::BTreeMap;
use std::time::Duration;

/// The bench's name in reports.
pub const BENCH: &str = "dynamic";
/// Names of the ways, in the order of reports.
pub const ENGINES: [&str; 6] =
    [product::ENGINES[0], product::ENGINES[1], "fyke-kernel", "fyke-user", "libpcap", "opt-c"];
/// Parts of the bench, selected by `--case`.
const PARTS: [&str; 5] = ["ftp", "sip", "edits", "cost", "visibility"];
/// Calls per second of the case `sip`.
const CALL_RATE: u32 = 500;

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
    call_rate: u32,
    calls: u32,
    /// Background rates of the case `sip`.
    backgrounds: Vec<u64>,
}

impl Scale {
    fn of(options: &Options) -> Scale {
        let mut scale = Scale::by_default(options.smoke);
        scale.runs = options.rounds.unwrap_or(scale.runs);
        if let Some(whole) = options.duration {
            scale.calls = u32::try_from(whole.as_secs()).unwrap_or(u32::MAX / 1_000);
            scale.calls = scale.calls.saturating_mul(scale.call_rate);
        }
        if !options.rates.is_empty() {
            scale.backgrounds.clone_from(&options.rates);
        }
        if options.rates.is_empty() && options.duration.is_none() && options.sessions.is_none() {
            return scale;
        }
        let (servers, connections) = options.sessions.unwrap_or(match options.smoke {
            true => (2, 3),
            false => (10, 20),
        });
        let first = &scale.settings[0].ftp;
        let half =
            options.duration.map_or(first.interval * first.connections as u32, |all| all / 2);
        let ftp = swift(servers, connections, half);
        let rates = if options.rates.is_empty() { &[0][..] } else { &options.rates };
        let of_rate = |&rate: &u64| {
            let name = format!("{} connections, {rate}/s wanted", servers * connections);
            Setting { name, ftp, background_pps: rate }
        };
        scale.settings = rates.iter().map(of_rate).collect();
        scale
    }

    fn by_default(smoke: bool) -> Scale {
        if smoke {
            let name = "6 connections, no background";
            let settings = vec![Setting::new(name, swift(2, 3, Duration::from_millis(600)), 0)];
            let (call_rate, calls, backgrounds) = (50, 25, vec![0]);
            return Scale { settings, runs: 1, edits: 200, call_rate, calls, backgrounds };
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
        let (call_rate, calls) = (CALL_RATE, 10 * CALL_RATE);
        let backgrounds = vec![0, 100_000, 250_000];
        Scale { settings, runs: 10, edits: 10_000, call_rate, calls, backgrounds }
    }
}

/// FTP options: servers, connections of each, and half of the total time. A transfer is bursts with pauses, as from a
/// server that limits its rate, such as the paper's: five, and more if the pauses were longer than 1.5 s.
fn swift(servers: usize, connections: usize, half: Duration) -> ftp::Options {
    const LONGEST_PAUSE: f64 = 1.5;
    let pauses = (half.as_secs_f64() / LONGEST_PAUSE).ceil().max(4.0);
    let burst_bytes = 48_000;
    let pause = half.as_secs_f64() / pauses;
    ftp::Options {
        servers,
        connections,
        interval: half / connections as u32,
        size_bytes: burst_bytes * (pauses as u64 + 1),
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
            "ftp" => follow(&scale, options, &engines, &mut report, progress)?,
            "sip" => sip::measure(&scale, options, &mut report, progress)?,
            "edits" => edit(&scale, &engines, &mut report, progress)?,
            "cost" => cost::measure(options, &mut report, progress)?,
            _ => visibility::measure(options, &mut report, progress)?,
        }
    }
    if report.measurements.is_empty() {
        return Err(BenchError::Other(report.notes.join("; ")));
    }
    Ok(report)
}

/// Runs all ways through all settings, in turn.
fn follow(
    scale: &Scale,
    options: &Options,
    engines: &[&str],
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    let steps = scale.settings.len() * scale.runs;
    let mut all: Vec<Vec<Vec<Run>>> = engines.iter().map(|_| Vec::new()).collect();
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
                match live::run(engines[engine], setting, options) {
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
        all.iter_mut().zip(runs).for_each(|(cells, runs)| cells.push(runs));
    }
    if options.rates.len() > 1 {
        report.figures.extend(figure::over_rates(&options.rates, engines, &all));
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
    let average = |run: &Run| {
        let sum: u64 = run.connections.iter().map(|one| one.missed_before_first).sum();
        sum as f64 / run.connections.len().max(1) as f64
    };
    let data = |of: fn(&Comparison) -> u64| over(&|run: &Run| run.data(of) as f64);
    let background = over(&|run| run.background);
    let figures = [
        ("background wanted", setting.background_pps as f64, "packets/s"),
        ("background reached", background, "packets/s"),
        ("packets of data connections sent", data(|one| one.on_wire), "packets"),
        ("packets of data connections captured", data(|one| one.captured), "packets"),
        ("packets of data connections missed", data(|one| one.missed), "packets"),
        ("capture ratio, with control", over(&Run::capture_ratio), "%"),
        ("missed per connection", over(&|run| missed(run, 0.5)), "packets"),
        ("missed per connection, average", over(&average), "packets"),
        ("missed per connection, p99", over(&|run| missed(run, 0.99)), "packets"),
        ("lost", over(&|run| run.lost as f64), "packets"),
        ("wrong verdicts", over(&|run| run.wrong as f64), "packets"),
        ("updates refused", over(&|run| run.failed as f64), "updates"),
        ("connections captured", over(&|run| run.captured_connections() as f64), "connections"),
        ("packets captured", over(&|run| run.captured_frames() as f64), "packets"),
    ];
    let mut figures: Vec<_> =
        figures.map(|(case, value, unit)| (case.to_owned(), value, unit)).into();
    for (case, part) in [("update p50", 0.5), ("update p99", 0.99)] {
        if runs.iter().any(|run| run.update_ns(part).is_some()) {
            let value = over(&|run| run.update_ns(part).unwrap_or_default());
            figures.push((case.to_owned(), value, "ns"));
        }
    }
    let sums: Vec<_> =
        runs.iter().filter_map(|run| run.product.as_ref()).map(|product| &product.sum).collect();
    if !sums.is_empty() {
        let off: u64 = sums.iter().map(|sum| sum.is_off_by()).sum();
        figures.push(("frames without an outcome".to_owned(), off as f64, "packets"));
        figures.extend(lost_by_reason(sums.into_iter(), runs.len()));
    }
    for (case, value, unit) in figures {
        let one = Measurement::value(BENCH, &case, engine, &setting.name, value, unit);
        report.push(one.runs(runs.len()));
    }
    note_rate(&setting.name, engine, setting.background_pps, background, report);
    for failure in runs.iter().flat_map(|run| &run.failures).take(1) {
        report.note(format!("{}, {engine}: the traffic itself: {failure}", setting.name));
    }
}

/// Lost packets of each reason that there is in any run: the average over the runs.
fn lost_by_reason<'s>(
    sums: impl Iterator<Item = &'s Sum>,
    runs: usize,
) -> Vec<(String, f64, &'static str)> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (why, count) in sums.flat_map(|sum| &sum.lost) {
        *reasons.entry(why).or_default() += count;
    }
    let average = |(why, count): (&str, u64)| {
        (format!("lost ({why}), average"), count as f64 / runs.max(1) as f64, "packets")
    };
    reasons.into_iter().map(average).collect()
}

/// Notes that the machine sent less than was wanted.
fn note_rate(setting: &str, engine: &str, wanted: u64, reached: f64, report: &mut Report) {
    if reached < 0.97 * wanted as f64 {
        report.note(format!(
            "{setting}, {engine}: this machine sent {reached:.0} background packets/s beside the capture, not {wanted}"
        ));
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
