//! Table 4: cost of a packet by the number of sessions, warm and cold, and the ratios that the paper derives from
//! it.
//!
//! *Cold* flushes the caches before every packet, as the paper does, by writing to more memory than they hold; the
//! time of reading the clock is subtracted. Ratios are medians of the ratios of single rounds.

use super::{Contestant, PAPER_SESSIONS, contest, engines, push, session_counts};
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use crate::bench::{BenchError, Options};
use fyke_frame::Batch;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use super::session::{Load, Session};

/// Engines process packets one by one as in the paper, unless the name states otherwise.
pub(super) const ENGINES: &[&str] = &[
    "cspf",
    "bpf",
    "bpf-jit",
    "bpf-batch",
    "mpf",
    "mpf-jit",
    "mpf-batch",
    "mpf-jit-batch",
    "pass",
];
/// Ratios: numerator and denominator.
const RATIOS: &[(&str, &str)] = &[
    ("bpf", "mpf"),
    ("cspf", "mpf"),
    ("bpf", "mpf-jit"),
    ("bpf-jit", "mpf-jit"),
    ("bpf-batch", "mpf-batch"),
    ("bpf-batch", "mpf-jit-batch"),
];
/// Packets of a load: enough for each of 100,000 sessions.
const PACKETS: usize = 1 << 17;
/// Twice the largest cache of the machines used so far.
const FLUSH_BYTES: usize = 64 << 20;
/// Number of packets in the cold case.
const COLD_PACKETS: usize = 60;

/// The paper's figures, milliseconds: MPF, BPF, CSPF, warm and cold, in the order of [`PAPER_SESSIONS`].
const PAPER: &[(&str, &str, [f64; 9])] = &[
    ("mpf", "warm", [0.035, 0.035, 0.035, 0.035, 0.035, 0.036, 0.036, 0.036, 0.037]),
    ("bpf", "warm", [0.031, 0.042, 0.090, 0.149, 0.330, 0.559, 0.830, 1.188, 1.481]),
    ("cspf", "warm", [0.053, 0.081, 0.169, 0.266, 0.511, 0.998, 1.538, 2.103, 2.613]),
    ("mpf", "cold", [0.153, 0.154, 0.154, 0.155, 0.155, 0.157, 0.159, 0.160, 0.163]),
    ("bpf", "cold", [0.127, 0.144, 0.212, 0.280, 0.436, 0.787, 1.112, 1.429, 1.768]),
    ("cspf", "cold", [0.132, 0.160, 0.268, 0.382, 0.658, 1.205, 1.753, 2.293, 2.861]),
];

/// Runs the case.
pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let counts = session_counts(options);
    let packets = if options.smoke { 4096 } else { PACKETS };
    let loads = counts.iter().map(|&count| {
        let sessions: Vec<Session> = (0..count).map(Session::uniform).collect();
        let load = Load::new(&sessions, packets, options.seed, true);
        (sessions, load)
    });
    let loads: Vec<(Vec<Session>, Load)> = loads.collect();
    let mut contestants = Vec::new();
    for (sessions, load) in &loads {
        let batches: Rc<[Batch<'_>]> = load.batches().into();
        let count = sessions.len();
        for name in engines(options, count, ENGINES) {
            let setting = format!("{count} sessions, warm");
            contestants.push(Contestant::new(name, sessions, false, &setting, &batches)?);
            if matches!(count, 10 | 100 | 1000 | 100_000) {
                let setting = format!("{count} sessions, warm, among others");
                contestants.push(Contestant::new(name, sessions, true, &setting, &batches)?);
            }
        }
    }
    let samples = contest("table4", &mut contestants, options, report)?;
    ratios(&contestants, &samples, report);
    contestants.retain(|one| {
        let of_many = matches!(one.sessions, 1 | 10 | 100 | 1_000 | 10_000 | 100_000);
        // Cold packets come one at a time, so engines with batches are left out.
        of_many && !one.setting.ends_with("others") && !one.name.ends_with("-batch")
    });
    for one in &mut contestants {
        one.setting = format!("{} sessions, cold", one.sessions);
    }
    let samples = cold(&mut contestants, &loads, options);
    for (one, samples) in contestants.iter().zip(&samples) {
        push(report, "table4", one, samples, None);
    }
    ratios(&contestants, &samples, report);
    paper(report);
    report.note("table4: figures of the paper are from a DECstation 5000/200 of 25 MHz".to_owned());
    Ok(())
}

/// Ratios between engines for each number of sessions, and of each engine to itself with one session.
fn ratios(contestants: &[Contestant<'_>], samples: &[Samples], report: &mut Report) {
    let both = || contestants.iter().zip(samples);
    let mut push = |engine: &str, setting: &str, above: &Samples, below: &Samples| {
        let ratio = above.over(below);
        let one = Measurement::value("demux", "table4", engine, setting, ratio.median(), "×");
        report.push(one.runs(ratio.len()));
    };
    for (one, above) in both() {
        for (name, base) in RATIOS.iter().filter(|(name, _)| *name == one.name) {
            let below =
                both().find(|(other, _)| other.name == *base && other.setting == one.setting);
            if let Some((_, below)) = below {
                push(&format!("{name}/{base}"), &one.setting, above, below);
            }
        }
        let Some((_, how)) = one.setting.split_once(", ") else { continue };
        let first = both().find(|(other, _)| {
            (other.name, other.sessions) == (one.name, 1) && other.setting.ends_with(how)
        });
        if let Some((_, below)) = first
            && one.sessions > 1
        {
            push(one.name, &format!("{}/1 sessions, {how}", one.sessions), above, below);
        }
    }
}

/// Measures one packet at a time, with caches flushed before each.
fn cold(
    contestants: &mut [Contestant<'_>],
    loads: &[(Vec<Session>, Load)],
    options: &Options,
) -> Vec<Samples> {
    let mut flush = vec![1u8; if options.smoke { 1 << 20 } else { FLUSH_BYTES }];
    let packets = if options.smoke { 4 } else { COLD_PACKETS };
    let mut samples = vec![Samples::default(); contestants.len()];
    for number in 0..packets {
        for (one, samples) in contestants.iter_mut().zip(&mut samples) {
            let load = loads.iter().find(|(sessions, _)| sessions.len() == one.sessions);
            let frame = load.and_then(|(_, load)| load.frames().nth(number));
            let Some(frame) = frame else { continue };
            let mut batch = Batch::new();
            let _ = batch.push(frame);
            let batches = [batch];
            flush.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&flush);
            let empty = Instant::now();
            let empty = black_box(empty).elapsed();
            let start = Instant::now();
            black_box(one.engine.run(&batches));
            let time = start.elapsed().saturating_sub(empty);
            samples.push(time.as_nanos() as f64);
        }
    }
    samples
}

/// Reports the paper's figures and their ratios.
fn paper(report: &mut Report) {
    let mut push = |engine: String, setting: &str, value: f64, unit: &str| {
        report
            .measurements
            .push(Measurement::value("demux", "table4", &engine, setting, value, unit));
    };
    for (at, count) in PAPER_SESSIONS.iter().enumerate() {
        for (engine, temperature, values) in PAPER {
            let setting = format!("{count} sessions, {temperature}");
            push(format!("{engine}-paper"), &setting, values[at], "ms");
            let base = PAPER.iter().find(|(e, t, _)| *e == "mpf" && t == temperature);
            if let Some((_, _, base)) = base
                && *engine != "mpf"
            {
                push(format!("{engine}/mpf-paper"), &setting, values[at] / base[at], "×");
            }
        }
    }
}
