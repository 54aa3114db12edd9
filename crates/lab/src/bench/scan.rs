//! `fyke bench scan`: capture files counted, written, printed and compressed, beside other programs.
//!
//! | case | what | peers |
//! |---|---|---|
//! | `count` | all frames counted | tcpdump, tshark, dumpcap (from a pipe), `read` in blocks of 1 MiB |
//! | `write` | a fifth of the frames written to another file (of a trace: `udp`) | tcpdump, tshark |
//! | `print` | one line per frame, to `/dev/null` | tcpdump, tshark |
//! | `gunzip` | the frames of a file in gzip counted | tcpdump after `gzip -dc`, tshark, `gzip -dc` alone as `read` |
//! | `compress` | all frames written in gzip | tcpdump before `gzip -c` |
//!
//! Every program is a process of its own, on one and on two processors, with the file in the page cache and with its
//! pages dropped. Time by the clock and processor time (with the children) per frame, medians over the rounds. Before
//! anything is measured, the numbers of frames that the programs found are compared. tshark is one or two orders
//! slower, so it takes part in few rounds, from the page cache only.

mod programs;
mod trace;

pub use programs::ENGINES;

use super::live::world::{Folder, processors};
use super::measure::{Samples, engine_at};
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use programs::{Files, Turn};
use std::fs::File;
use std::path::PathBuf;

/// The bench's name in reports.
pub const BENCH: &str = "scan";
const CASES: [&str; 5] = ["count", "write", "print", "gunzip", "compress"];
/// Frames of the capture that the bench makes: 340 MB.
const FRAMES: u64 = 1_000_000;
const SMOKE_FRAMES: u64 = 5_000;
const ROUNDS: usize = 7;
/// Most rounds of an engine that is orders slower.
const SLOW_ROUNDS: usize = 3;

/// Conditions of a measurement.
#[derive(Debug, Clone, Copy)]
struct Setting {
    is_cached: bool,
    cores: usize,
}

impl Setting {
    fn name(self) -> String {
        let place = if self.is_cached { "page cache" } else { "disk" };
        format!("{place}, {} core{}", self.cores, if self.cores == 1 { "" } else { "s" })
    }
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; if two programs find different numbers of frames.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let cases: Vec<_> = CASES.into_iter().filter(|case| options.wants_case(case)).collect();
    let engines: Vec<_> = ENGINES.into_iter().filter(|one| options.wants_engine(one)).collect();
    if cases.is_empty() || engines.is_empty() {
        let there = format!("cases {}; engines {}", CASES.join(", "), ENGINES.join(", "));
        return Err(BenchError::NothingChosen { there });
    }
    let mut report = Report::new(options);
    let folder = Folder::below(&std::env::temp_dir()).map_err(failed)?;
    let files = files(options, &folder)?;
    let settings = settings(&files, &mut report)?;
    for (index, case) in cases.iter().enumerate() {
        progress(case, index, cases.len());
        let there = agreeing(case, &engines, &files, &mut report)?;
        for &setting in &settings {
            measure(case, &there, &files, setting, options, &mut report)?;
        }
    }
    progress("done", cases.len(), cases.len());
    Ok(report)
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

/// Makes the capture, or takes that of the options, and its compressed form.
fn files(options: &Options, folder: &Folder) -> Result<Files, BenchError> {
    let fyke = match &options.command {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(failed)?,
    };
    let (capture, text, frames, hits) = match &options.trace {
        Some(path) => {
            let (frames, hits) = trace::counts(path, "udp")?;
            (path.clone(), "udp", frames, hits)
        }
        None => {
            let path = folder.file("capture.pcap");
            let frames = if options.smoke { SMOKE_FRAMES } else { FRAMES };
            let hits = trace::make(&path, frames, options.seed).map_err(failed)?;
            (path, trace::FIFTH, frames, hits)
        }
    };
    let files = Files {
        fyke,
        gzip: folder.file("capture.pcap.gz"),
        output: folder.file("output"),
        capture,
        text,
        frames,
        hits,
        is_made: options.trace.is_none(),
    };
    programs::compress(&files).map_err(failed)?;
    Ok(files)
}

/// The settings that this machine offers.
fn settings(files: &Files, report: &mut Report) -> Result<Vec<Setting>, BenchError> {
    let count = processors().map_err(failed)?.len();
    if count < 2 {
        report.note("there is one processor only: nothing is measured on two".to_owned());
    }
    let capture = File::open(&files.capture).map_err(failed)?;
    let in_memory = fstatfs(&capture).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
    if in_memory {
        report.note("the capture is in a tmpfs, so nothing is read from disk".to_owned());
    }
    let all = [(true, 1), (true, 2), (false, 1), (false, 2)];
    let settings = all.map(|(is_cached, cores)| Setting { is_cached, cores });
    let there = |one: &Setting| one.cores <= count && (one.is_cached || !in_memory);
    Ok(settings.into_iter().filter(there).collect())
}

/// Puts a file into the page cache, or takes it out.
fn place(path: &PathBuf, is_cached: bool) -> Result<(), BenchError> {
    let mut file = File::open(path).map_err(failed)?;
    if is_cached {
        std::io::copy(&mut file, &mut std::io::sink()).map_err(failed)?;
        return Ok(());
    }
    // Only pages that are written can be dropped.
    file.sync_all().map_err(failed)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(failed)
}

/// Returns the engines that can do a case here, after a check that they find the same frames.
fn agreeing(
    case: &str,
    engines: &[&'static str],
    files: &Files,
    report: &mut Report,
) -> Result<Vec<&'static str>, BenchError> {
    let mut there = Vec::new();
    for &engine in engines {
        match programs::count(engine, case, files) {
            Ok(None) => {}
            Ok(Some(found)) => {
                let expected = if case == "write" { files.hits } else { files.frames };
                if engine != "read" && found != expected {
                    return Err(BenchError::Other(format!(
                        "{case}: {engine} finds {found} frames, but there are {expected}"
                    )));
                }
                there.push(engine);
            }
            Err(why) => report.note(format!("{case}: without {engine}: {why}")),
        }
    }
    Ok(there)
}

/// Measures a case with all engines, in turn.
fn measure(
    case: &str,
    engines: &[&'static str],
    files: &Files,
    setting: Setting,
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let rounds = options.rounds.unwrap_or(if options.smoke { 1 } else { ROUNDS });
    let mut wall = vec![Samples::default(); engines.len()];
    let mut used = wall.clone();
    for round in 0..rounds {
        for slot in 0..engines.len() {
            let at = engine_at(slot, round, engines.len());
            let is_slow = engines[at] == "tshark";
            if is_slow && (!setting.is_cached || round >= SLOW_ROUNDS) {
                continue;
            }
            place(if case == "gunzip" { &files.gzip } else { &files.capture }, setting.is_cached)?;
            let turn = programs::turn(engines[at], case, files, setting.cores);
            let Turn { took, used: own } = turn.map_err(|why| {
                BenchError::Other(format!("{case}, {}, {}: {why}", setting.name(), engines[at]))
            })?;
            let per_frame =
                |time: std::time::Duration| time.as_nanos() as f64 / files.frames.max(1) as f64;
            wall[at].push(per_frame(took));
            used[at].push(per_frame(own));
        }
    }
    for (what, samples) in [("by the clock", &wall), ("processor time", &used)] {
        let name = format!("{}, {what}", setting.name());
        for (engine, samples) in engines.iter().zip(samples).filter(|(_, one)| !one.is_empty()) {
            let one = Measurement::value(BENCH, case, engine, &name, samples.median(), "ns/frame");
            let found = if case == "write" { files.hits } else { files.frames };
            let accepted = (*engine != "read").then_some(found);
            report.push(Measurement { accepted, ..one.runs(samples.len()) });
        }
    }
    Ok(())
}
