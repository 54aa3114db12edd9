//! Case `workers`: a compute-bound graph, on one worker and on two.
//!
//! One thread reads the source and distributes copies, so two workers are three threads; on a machine with two
//! processors the gain is limited to the remaining time of the second one. Every node must receive and pass the
//! same frames.

use super::super::measure::{Turn, rounds};
use super::super::report::{Measurement, Report};
use super::super::{BenchError, Options};
use super::{BENCH, STORED, classes};
use fyke_graph::GraphHandle;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Name of the case.
pub const CASE: &str = "workers";

/// Filters on header fields, each of which walks the headers.
fn graph(times: u64) -> String {
    let filters = ["udp port 53", "host 10.0.0.7", "net 10.0.0.0/25", "not tcp", "src port 1001"];
    let nodes = filters.map(|text| format!("(filter, \"{text}\", scoped=y)"));
    format!("(memory, {times}) > [{}]", nodes.join(" | "))
}

/// Time of one turn, and the number of frames that each node passed.
fn turn(workers: usize, times: u64) -> Result<(Turn, Vec<u64>), BenchError> {
    let started = GraphHandle::start_workers(&[&graph(times)], classes(), workers);
    let (mut engine, _) = started.map_err(|error| BenchError::Other(error.to_string()))?;
    // Wall-clock time: other threads do the work.
    let start = Instant::now();
    let result = engine.run(&AtomicBool::new(false));
    let time = start.elapsed();
    result.map_err(|error| BenchError::Other(error.to_string()))?;
    let passed = engine.view().nodes.iter().map(|node| node.counts.passed).collect();
    Ok((Turn { time, units: (STORED * times) as usize }, passed))
}

/// Measures both and adds the figures.
///
/// # Errors
/// If a node passed other frames than with one worker.
pub fn run(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let (times, turns) = if options.smoke { (20, 1) } else { (1_000, 9) };
    let (_, expected) = turn(1, times)?;
    let mut failure = None;
    let samples = rounds(
        &mut (),
        2,
        turns,
        |()| {},
        |(), index| match turn(index + 1, times) {
            Ok((turn, passed)) => {
                if passed != expected {
                    let text = format!("{CASE}: {} workers pass other frames", index + 1);
                    failure = Some(BenchError::Other(text));
                }
                turn
            }
            Err(error) => {
                failure = Some(error);
                Turn { time: Duration::from_nanos(1), units: 1 }
            }
        },
    );
    if let Some(error) = failure {
        return Err(error);
    }
    for (index, samples) in samples.iter().enumerate() {
        let setting = format!("workers {}", index + 1);
        let one = Measurement::per_packet(BENCH, CASE, "fyke", &setting, samples.median());
        let accepted = Some(expected.iter().skip(1).sum());
        report.push(Measurement { accepted, ..one }.runs(samples.len()));
    }
    Ok(())
}
