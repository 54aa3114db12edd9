//! `fyke bench live`: the cost of a live capture beside tcpdump, dumpcap and a plain ring that only counts.
//!
//! ```text
//!   clients ══ veth ══ servers      processor 0: the sender, which paces itself by sleeping
//!      ▲                 ▲          processor 1: one engine at a time, as a process of its own
//!    sender            engine
//! ```
//!
//! The *cost* of a capture is its processor time plus what the sender takes more than without a capture, because on a
//! veth pair the filter in the kernel runs in the sender's context. Start-up is left out: a first part of the traffic
//! is not measured. What the engine uses while no frame arrives is subtracted. Engines take turns; figures are medians
//! over the rounds.
//!
//! | case | what |
//! |---|---|
//! | `all-null`, `all-tmpfs` | every frame, written to `/dev/null` or to a file in memory |
//! | `share-1` … `share-10000` | a filter that accepts one frame in N; 256 is one address, the others a port |
//! | `pairs-1` … `pairs-10000` | a filter of N pairs of host and port, which accepts one frame in 256 |
//! | `first-loss` | the lowest rate at which an engine loses frames |
//! | `start` | from the start of the process to its first frame |
//! | `edits` | a filter that is edited while it captures: frames lost or wrong, time until an edit is in force |
//! | `workers` | frames evaluated in a second with one worker and several, where the filter takes the time |
//!
//! The number of hits is known to the sender. Before the measurement every engine must accept exactly these, and in a
//! run the frames that it accepted and lost must add up. Runs with losses are marked in a note.

mod edits;
mod engines;
mod loss;
pub mod share;
mod start;
mod traffic;
mod workers;
pub(super) mod world;

pub use engines::ENGINES;
pub(super) use engines::program as classic_program;

use super::measure::{Samples, engine_at};
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use crate::net::World;
use engines::{Capture, Counts, Job};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use traffic::{End, Order, Pattern, send_all};
use world::{Folder, processors};

/// The bench's name in reports.
pub const BENCH: &str = "live";
/// Name of the cases, in the order of reports.
const CASES: [&str; 13] = [
    "all-null",
    "all-tmpfs",
    "share-1",
    "share-4",
    "share-256",
    "share-10000",
    "pairs-1",
    "pairs-100",
    "pairs-10000",
    "first-loss",
    "start",
    "edits",
    "workers",
];
/// Cases at smoke size.
const SMOKE_CASES: [&str; 6] =
    ["all-tmpfs", "pairs-100", "first-loss", "start", "edits", "workers"];
/// One frame in this number is a hit for a set of pairs.
const PAIRS_SHARE: u64 = 256;
/// Smallest cost that a ratio is formed with, in nanoseconds per frame: less is noise.
const LEAST_COST: f64 = 5.0;

/// Size of the measurement.
#[derive(Clone, Copy)]
struct Scale {
    /// Frames before the measured part.
    first: u64,
    count: u64,
    rate: u64,
    /// Time after which engines have seen everything; the blocks of libpcap's ring are handed over after a second.
    settle: Duration,
    rounds: usize,
    edits: u64,
    loss_steps: usize,
    loss_seconds: f64,
}

impl Scale {
    fn of(options: &Options) -> Scale {
        let settle = Duration::from_millis(1_200);
        let scale = match options.smoke {
            true => Scale {
                first: 1_000,
                count: 5_000,
                rate: 50_000,
                settle,
                rounds: 1,
                edits: 50,
                loss_steps: 1,
                loss_seconds: 0.1,
            },
            false => Scale {
                first: 600_000,
                count: 1_500_000,
                rate: 300_000,
                settle,
                rounds: 7,
                edits: 10_000,
                loss_steps: 6,
                loss_seconds: 1.0,
            },
        };
        Scale { rounds: options.rounds.unwrap_or(scale.rounds), ..scale }
    }
}

/// Everything that the cases share.
struct Bench<'o> {
    world: World,
    fyke: PathBuf,
    folder: Folder,
    /// Folder in memory, if there is one.
    memory: Option<Folder>,
    scale: Scale,
    engines: Vec<&'static str>,
    options: &'o Options,
}

impl Bench<'_> {
    fn job(&self, sink: PathBuf, text: Option<String>) -> Job {
        Job { fyke: self.fyke.clone(), folder: self.folder.file(""), sink, text }
    }

    /// Engines that are processes of their own.
    fn processes(&self) -> Vec<&'static str> {
        let own = |engine: &&&str| !["none", "af_packet"].contains(*engine);
        self.engines.iter().filter(own).copied().collect()
    }

    fn settle(&self, engine: &str) {
        let is_prompt = ["none", "fyke", "af_packet"].contains(&engine) && self.options.smoke;
        sleep(if is_prompt { Duration::from_millis(300) } else { self.scale.settle });
    }
}

/// The beginning of every bench on interfaces.
struct Start {
    cases: Vec<&'static str>,
    engines: Vec<&'static str>,
    world: World,
    fyke: PathBuf,
    folder: Folder,
    report: Report,
}

impl Start {
    /// Chooses cases and engines among those that there are, and makes the world that they run in.
    fn of(
        options: &Options,
        cases: &[&'static str],
        engines: &[&'static str],
    ) -> Result<Start, BenchError> {
        let there = || format!("cases {}; engines {}", cases.join(", "), engines.join(", "));
        let cases: Vec<_> = cases.iter().copied().filter(|case| options.wants_case(case)).collect();
        if cases.is_empty() {
            return Err(BenchError::NothingChosen { there: there() });
        }
        let wanted = |engine: &&&str| **engine == "none" || options.wants_engine(engine);
        let mut report = Report::new(options);
        if processors().is_ok_and(|list| list.len() < 2) {
            report.note("there is one processor only: sender and captures share it".to_owned());
        }
        Ok(Start {
            cases,
            engines: engines.iter().filter(wanted).copied().collect(),
            world: World::create(1, 1).map_err(other)?,
            fyke: options.command.clone().map_or_else(std::env::current_exe, Ok).map_err(other)?,
            folder: Folder::below(&std::env::temp_dir()).map_err(other)?,
            report,
        })
    }
}

fn other(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; without namespaces or privilege the message states what is missing.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let there: &[&str] = if options.smoke { &SMOKE_CASES } else { &CASES };
    let Start { cases, engines, world, fyke, folder, mut report } =
        Start::of(options, there, &ENGINES)?;
    let memory = Folder::in_memory().map_err(other)?;
    let scale = Scale::of(options);
    let mut bench = Bench { world, fyke, folder, memory, scale, engines, options };
    without_those_that_do_not_start(&mut bench, &mut report);
    for (index, case) in cases.iter().enumerate() {
        progress(case, index, cases.len());
        match *case {
            "first-loss" => loss::measure(&bench, &mut report)?,
            "start" => start::measure(&bench, &mut report)?,
            "edits" => edits::measure(&bench, &mut report)?,
            "workers" => workers::measure(&bench, &mut report)?,
            case => cost(&bench, case, &mut report)?,
        }
    }
    progress("done", cases.len(), cases.len());
    Ok(report)
}

/// Leaves out the engines that this machine lacks.
fn without_those_that_do_not_start(bench: &mut Bench, report: &mut Report) {
    let job = bench.job("/dev/null".into(), None);
    let mut engines = std::mem::take(&mut bench.engines);
    engines.retain(|engine| {
        let started = Capture::start(engine, &bench.world.servers, &job);
        if let Err(why) = started.and_then(Capture::finish) {
            report.note(format!("without {engine}: {why}"));
            return false;
        }
        true
    });
    bench.engines = engines;
}

/// The traffic, the filter and the output of a case.
fn job_of(bench: &Bench, case: &str) -> Result<Option<(Arc<Pattern>, Job)>, BenchError> {
    let size = case.rsplit_once('-').and_then(|(_, size)| size.parse::<u32>().ok());
    let to_port = [(0x0a01_0109, 53)];
    let null = PathBuf::from("/dev/null");
    let (pattern, sink, text) = match (case.split_once('-'), size) {
        (Some(("pairs", _)), Some(size)) => {
            let ends: Vec<End> = (0..size).map(pair).collect();
            let texts: Vec<_> = ends.iter().map(pair_text).collect();
            (Pattern::new(PAIRS_SHARE, &ends), null, Some(texts.join(" or ")))
        }
        (Some(("share", _)), Some(256)) => {
            (Pattern::new(256, &to_port), null, Some("ip host 10.1.1.9".to_owned()))
        }
        (Some(("share", _)), Some(size)) => {
            (Pattern::new(size.into(), &to_port), null, Some("udp port 53".to_owned()))
        }
        _ if case == "all-tmpfs" => {
            let Some(memory) = &bench.memory else { return Ok(None) };
            (Pattern::new(1, &to_port), memory.file("capture"), None)
        }
        _ if case == "all-null" => (Pattern::new(1, &to_port), null, None),
        _ => return Err(BenchError::Other(format!("there is no case {case}"))),
    };
    Ok(Some((Arc::new(pattern), bench.job(sink, text))))
}

fn pair(number: u32) -> End {
    (0x0a10_0001 + number, (10_000 + number % 50_000) as u16)
}

fn pair_text(&(address, port): &End) -> String {
    format!("(host {} and udp port {port})", std::net::Ipv4Addr::from(address))
}

/// One engine in one round.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Nanoseconds per frame, of the sender and of the engine.
    sender: f64,
    own: f64,
    counts: Counts,
}

/// Runs an engine once over the traffic and checks its counts.
fn run_once(
    bench: &Bench,
    engine: &'static str,
    job: &Job,
    pattern: &Arc<Pattern>,
) -> Result<Run, String> {
    let text = |error: std::io::Error| error.to_string();
    let Scale { first, count, rate, .. } = bench.scale;
    let capture = Capture::start(engine, &bench.world.servers, job)?;
    send_all(&bench.world.clients, Order::new(pattern, first, rate)).map_err(text)?;
    if !bench.options.smoke {
        bench.settle(engine);
    }
    let begin = capture.processor_time();
    let sent = send_all(&bench.world.clients, Order::new(pattern, count, rate)).map_err(text)?;
    bench.settle(engine);
    let end = capture.processor_time();
    sleep(bench.scale.settle / if bench.options.smoke { 20 } else { 1 });
    let idle = capture.processor_time().saturating_sub(end);
    let used = end.saturating_sub(begin).saturating_sub(idle);
    let counts = capture.finish()?;
    let written = job.sink.starts_with("/dev/shm").then(|| std::fs::remove_file(&job.sink));
    if let (Some(Err(error)), true) = (written, ["fyke", "tcpdump", "dumpcap"].contains(&engine)) {
        return Err(format!("its output is not there: {error}"));
    }
    let expected = pattern.hits(first) + pattern.hits(count);
    let Counts { accepted, lost } = counts;
    if engine != "none" && (accepted > expected || accepted + lost < expected) {
        return Err(format!("{accepted} accepted and {lost} lost, but {expected} were sent"));
    }
    Ok(Run { sender: sent.ns_per_frame(), own: used.as_nanos() as f64 / count as f64, counts })
}

/// Measures the cost of a case with all engines.
fn cost(bench: &Bench, case: &str, report: &mut Report) -> Result<(), BenchError> {
    let Some((pattern, job)) = job_of(bench, case)? else {
        report.note(format!("{case}: /dev/shm is not in memory here"));
        return Ok(());
    };
    let engines = agreeing(bench, case, &job, &pattern, report)?;
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); engines.len()];
    for round in 0..bench.scale.rounds {
        for place in 0..engines.len() {
            let at = engine_at(place, round, engines.len());
            let run = run_once(bench, engines[at], &job, &pattern);
            let wrong = |why| BenchError::Other(format!("{case}, {}: {why}", engines[at]));
            runs[at].push(run.map_err(wrong)?);
        }
    }
    publish(case, &engines, &runs, report);
    Ok(())
}

/// Returns the engines that start with this filter, after a check that each accepts exactly the hits.
fn agreeing(
    bench: &Bench,
    case: &str,
    job: &Job,
    pattern: &Arc<Pattern>,
    report: &mut Report,
) -> Result<Vec<&'static str>, BenchError> {
    let small =
        Scale { first: 0, count: 20_000.min(bench.scale.count), rate: 20_000, ..bench.scale };
    let expected = pattern.hits(small.count);
    let mut engines = Vec::new();
    for &engine in &bench.engines {
        let capture = match Capture::start(engine, &bench.world.servers, job) {
            Ok(capture) => capture,
            Err(why) => {
                report.note(format!("{case}: without {engine}: {why}"));
                continue;
            }
        };
        let order = Order::new(pattern, small.count, small.rate);
        let sent = send_all(&bench.world.clients, order);
        sent.map_err(|error| BenchError::Other(error.to_string()))?;
        bench.settle(engine);
        let wrong = |why: String| BenchError::Other(format!("{case}, {engine}: {why}"));
        let Counts { accepted, lost } = capture.finish().map_err(wrong)?;
        if engine != "none" && accepted + lost != expected {
            let lost = if lost > 0 { format!(" and {lost} lost") } else { String::new() };
            return Err(wrong(format!("{accepted} accepted{lost}, but {expected} are sent")));
        }
        engines.push(engine);
    }
    Ok(engines)
}

/// Reports medians, ratios to tcpdump, and losses.
fn publish(case: &str, engines: &[&str], runs: &[Vec<Run>], report: &mut Report) {
    let of = |engine: &str| engines.iter().position(|name| *name == engine).map(|at| &runs[at]);
    let samples = |runs: &[Run], figure: &dyn Fn(usize, &Run) -> f64| {
        let mut samples = Samples::default();
        runs.iter().enumerate().for_each(|(round, run)| samples.push(figure(round, run)));
        samples
    };
    let alone = of("none").map(|runs| samples(runs, &|_, run| run.sender));
    let base = |round: usize| of("none").and_then(|runs| runs.get(round)).map(|run| run.sender);
    let in_all = |round: usize, run: &Run| run.sender - base(round).unwrap_or(0.0) + run.own;
    let theirs = of("tcpdump").map(|runs| {
        let all = samples(runs, &|round, run| in_all(round, run).max(LEAST_COST));
        (all, samples(runs, &|_, run| run.own.max(LEAST_COST)))
    });
    for (engine, runs) in engines.iter().zip(runs) {
        let mut push = |setting: &str, value: f64, unit: &str| {
            let one = Measurement::value(BENCH, case, engine, setting, value, unit);
            let accepted = runs.last().filter(|_| *engine != "none").map(|run| run.counts.accepted);
            report.push(Measurement { accepted, ..one.runs(runs.len()) });
        };
        if *engine == "none" {
            let alone = alone.as_ref().map_or(0.0, Samples::median);
            push("sender without a capture", alone, "ns/frame");
            continue;
        }
        let all = samples(runs, &in_all);
        let own = samples(runs, &|_, run| run.own);
        push("cost in all", all.median(), "ns/frame");
        push("of the process", own.median(), "ns/frame");
        if let Some((their_all, their_own)) = theirs.as_ref().filter(|_| *engine != "tcpdump") {
            push("cost in all, over tcpdump's", all.over(their_all).median(), "×");
            push("of the process, over tcpdump's", own.over(their_own).median(), "×");
        }
        let lost: u64 = runs.iter().map(|run| run.counts.lost).sum();
        push("lost in all rounds", lost as f64, "frames");
        let lossy = runs.iter().filter(|run| run.counts.lost > 0).count();
        if lossy > 0 {
            let rounds = runs.len();
            report.note(format!("{case}: {engine} lost {lost} frames in {lossy} of {rounds} runs"));
        }
    }
}
