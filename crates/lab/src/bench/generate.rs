//! `fyke bench generate`: frames per second that this machine sends at each of several frame sizes, by one thread and
//! by all processors. The engine is that of `fyke generate`; frames go through a veth pair in two namespaces made for
//! the run, and each of them must arrive.

use super::measure::Samples;
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress, curves};
use crate::generate::{self, Contents, Order, Pair, Protocol, Row, SWEEP_SIZES, sweep};
use std::sync::Arc;
use std::time::Duration;

/// The bench's name in reports.
pub const BENCH: &str = "generate";
/// Engines of this bench: UDP and TCP frames by one thread, UDP frames by all processors.
pub const ENGINES: [&str; 3] = ["udp", "tcp", "udp-threads"];
/// Cases of this bench.
const CASE: &str = "sweep";

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; without namespaces or privilege the message states what is missing.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let engines: Vec<_> = ENGINES.into_iter().filter(|one| options.wants_engine(one)).collect();
    if engines.is_empty() || !options.wants_case(CASE) {
        let there = format!("cases {CASE}; engines {}", ENGINES.join(", "));
        return Err(BenchError::NothingChosen { there });
    }
    let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
    let pair = Pair::create().map_err(|error| other(&error))?;
    let rounds = options.rounds.unwrap_or(if options.smoke { 1 } else { 5 });
    let mut report = Report::new(options);
    let mut reached = vec![vec![Samples::default(); SWEEP_SIZES.len()]; engines.len()];
    for round in 0..rounds {
        for place in 0..engines.len() {
            let at = (place + round) % engines.len();
            progress(engines[at], round * engines.len() + place, rounds * engines.len());
            let order = order(engines[at], options);
            let mut rows = Vec::new();
            let swept = sweep(&order, Some(&pair), &Arc::default(), |row| rows.push(*row));
            swept.map_err(|error| other(&error))?;
            for (samples, row) in reached[at].iter_mut().zip(&rows) {
                check(engines[at], row)?;
                samples.push(row.sent.rate());
            }
        }
    }
    for (engine, sizes) in engines.iter().zip(&reached) {
        for (size, samples) in SWEEP_SIZES.iter().zip(sizes) {
            let (setting, rate) = (format!("{size} bytes"), samples.median());
            let bits = rate * f64::from(*size) * 8.0 / 1e6;
            for (case, value, unit) in [("frames", rate, "frames/s"), ("bits", bits, "Mbit/s")] {
                let case = format!("{CASE}, {case}");
                let one = Measurement::value(BENCH, &case, engine, &setting, value, unit);
                report.push(one.runs(rounds));
            }
        }
    }
    let points = |sizes: &Vec<Samples>| sizes.iter().map(Samples::median).collect();
    let named: Vec<_> =
        engines.iter().zip(&reached).map(|(engine, sizes)| (*engine, points(sizes))).collect();
    let sizes: Vec<_> = SWEEP_SIZES.iter().map(u16::to_string).collect();
    let across = format!("bytes of a frame: {}; size", sizes.join(", "));
    let svg = curves::chart("frames sent", &across, "frames/s (logarithmic)", &named);
    report.figures.push(("generate-frames.svg".to_owned(), svg));
    Ok(report)
}

fn order(engine: &str, options: &Options) -> generate::Options {
    let threads = match engine {
        "udp-threads" => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 1,
    };
    let protocol = if engine == "tcp" { Protocol::Tcp } else { Protocol::Udp };
    let (count, time) = match options.smoke {
        true => (Some(2_000), None),
        false => (None, Some(Duration::from_secs(1))),
    };
    generate::Options {
        interface: String::new(),
        contents: Contents { protocol, seed: options.seed, ..Contents::default() },
        order: Order { rate: None, count, time },
        threads: threads.min(generate::MAX_THREADS),
        direct: false,
    }
}

/// Checks that all frames have arrived.
fn check(engine: &str, row: &Row) -> Result<(), BenchError> {
    let (sent, arrived) = (row.sent.frames, row.arrived.unwrap_or_default());
    if sent == arrived {
        return Ok(());
    }
    let size = row.size;
    Err(BenchError::Other(format!(
        "{engine}, {size} bytes: {sent} frames were sent, but {arrived} arrived"
    )))
}
