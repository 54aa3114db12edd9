//! `workers`: frames that a capture evaluates in a second while more arrive, with one worker, two, four, …
//!
//! The filter is what limits: a thousand sums of words of the payload, one after the other, which `--look-back` keeps
//! in user space. The sender offers twice what the workers would evaluate if each did as much as one alone, so their
//! rings never run dry; 64 pairs of addresses distribute the frames. The first figure is the number of frames evaluated
//! between two questions for the counts. The capture may use all processors, and the sender takes a part of the first.
//! The second one, *when nothing else runs*, divides the same frames by the processor time of the busiest thread, so it
//! is valid on a shared machine, too.

use super::traffic::{Order, Pattern, Sender};
use super::world::{Running, processors};
use super::{BENCH, Bench};
use crate::bench::BenchError;
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use crate::net::SERVERS_DEVICE;
use fyke_control::{Client, Request, Response, RuntimeDir};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frames per second for one worker, of which it evaluates a part.
const FIRST_RATE: u64 = 200_000;
/// Frames that are offered for one that the workers are expected to evaluate.
const OFFERED: f64 = 2.0;
/// Frames of a sender that is not stopped: more than it sends in a minute.
const MOST: u64 = 1 << 32;
/// Longest time of a measurement.
const LONGEST: Duration = Duration::from_secs(30);
/// Most workers.
const MOST_WORKERS: usize = 16;
const ROUNDS: usize = 3;

/// Measures fyke, the only engine with workers.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<(), BenchError> {
    if !bench.engines.contains(&"fyke") {
        return Ok(());
    }
    let other = |why: String| BenchError::Other(format!("workers: {why}"));
    let file = bench.folder.file("workers");
    std::fs::write(&file, text(if bench.options.smoke { 100 } else { 1_000 }))
        .map_err(|error| other(error.to_string()))?;
    let most = processors().map_or(2, |list| list.len()).clamp(2, MOST_WORKERS);
    let numbers: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= most).collect();
    let mut rates = vec![[Samples::default(), Samples::default()]; numbers.len()];
    for _ in 0..ROUNDS.min(bench.scale.rounds) {
        let mut alone = 0.0;
        for ([samples, undisturbed], &workers) in rates.iter_mut().zip(&numbers) {
            let offered = match workers {
                1 => FIRST_RATE,
                _ => (alone * workers as f64 * OFFERED) as u64,
            };
            let rate = evaluated(bench, &file, workers, offered).map_err(other)?;
            if workers == 1 {
                alone = rate.in_fact;
            }
            samples.push(rate.in_fact);
            undisturbed.push(rate.undisturbed);
        }
    }
    for (at, word) in ["", ", when nothing else runs"].into_iter().enumerate() {
        for (samples, &workers) in rates.iter().map(|both| &both[at]).zip(&numbers) {
            let mut push = |what: &str, value: f64, unit: &str| {
                let plural = if workers == 1 { "" } else { "s" };
                let setting = format!("{workers} worker{plural}{what}{word}");
                let one = Measurement::value(BENCH, "workers", "fyke", &setting, value, unit);
                report.push(one.runs(samples.len()));
            };
            push("", samples.median(), "frames/s");
            if workers > 1 {
                push(", over one", samples.over(&rates[0][at]).median(), "×");
            }
        }
    }
    Ok(())
}

/// A filter that computes for each frame and accepts those to port 53.
fn text(sums: u32) -> String {
    let sum = |n: u32| format!("udp[20:4] + udp[24:4] * {n} = {}", 1_000_000 + n);
    let sums: Vec<_> = (1..=sums).map(sum).collect();
    format!("{} or udp port 53", sums.join(" or "))
}

/// Frames that are evaluated in a second.
struct Rate {
    in_fact: f64,
    /// In a second of the busiest thread's processor time.
    undisturbed: f64,
}

/// Captures with a number of workers; returns the frames that they evaluate in a second.
fn evaluated(bench: &Bench, file: &Path, workers: usize, offered: u64) -> Result<Rate, String> {
    let folder = bench.folder.file("run");
    let mut command = Command::new(&bench.fyke);
    command.args(["dump", "-n", "-i", SERVERS_DEVICE, "-w", "/dev/null", "--look-back"]);
    command.args(["--workers", &workers.to_string(), "-F"]).arg(file);
    command.env("FYKE_RUNTIME_DIR", &folder);
    let running = Running::launch_anywhere(&bench.world.servers, command)?.ready("listening on")?;
    let client = Client::connect_in(&[RuntimeDir::at(folder)], Some(running.id()));
    let mut client = client.map_err(|error| error.to_string())?;
    let pattern = Arc::new(Pattern::new(256, &[(0x0a01_0109, 53)]));
    let order = Order::new(&pattern, MOST, offered);
    let stop = Arc::clone(&order.stop);
    let sender = Sender::start(&bench.world.clients, order).map_err(|error| error.to_string())?;
    let (first, measured) = match bench.options.smoke {
        true => (Duration::from_millis(200), Duration::from_millis(300)),
        false => (Duration::from_millis(500), Duration::from_secs(2)),
    };
    sleep(first);
    let found = rate(&mut client, measured, running.id());
    stop.store(true, Ordering::Relaxed);
    sender.finish().map_err(|error| error.to_string())?;
    running.stop()?;
    found
}

/// Frames evaluated in a second, from two answers at least this time apart. Busy workers answer late, so the answers'
/// own times count.
fn rate(client: &mut Client, measured: Duration, process: u32) -> Result<Rate, String> {
    let busy = || thread_times(process).map_err(|error| format!("times of the threads: {error}"));
    let (before, first) = evaluated_so_far(client)?;
    let (begin, idle) = (Instant::now(), busy()?);
    while begin.elapsed() < LONGEST {
        sleep(measured / 4);
        let (now, count) = evaluated_so_far(client)?;
        if now >= before + measured {
            let frames = (count - first) as f64;
            let of_thread = |(thread, time): (u32, Duration)| {
                time.saturating_sub(idle.get(&thread).copied().unwrap_or_default())
            };
            let busiest = busy()?.into_iter().map(of_thread).max().unwrap_or_default();
            return Ok(Rate {
                in_fact: frames / (now - before).as_secs_f64(),
                undisturbed: frames / busiest.as_secs_f64().max(f64::EPSILON),
            });
        }
    }
    Err("its counts do not change".to_owned())
}

/// Processor time of each thread of a process so far.
fn thread_times(process: u32) -> std::io::Result<BTreeMap<u32, Duration>> {
    let mut times = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread may end meanwhile.
        let text = std::fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        let time = text.split(' ').next().and_then(|time| time.parse().ok());
        times.extend(number.zip(time.map(Duration::from_nanos)));
    }
    Ok(times)
}

/// Time of an answer since the start of the capture, and number of frames that the filter had evaluated then.
fn evaluated_so_far(client: &mut Client) -> Result<(Duration, u64), String> {
    match client.call(Request::Stats).map_err(|error| error.to_string())? {
        Response::Stats(stats) => {
            let evaluated = stats.accounting.delivered + stats.accounting.rejected;
            Ok((Duration::from_millis(stats.uptime_ms), evaluated))
        }
        other => Err(format!("a question for the counts was answered by {other:?}")),
    }
}
