//! `fyke bench`: compares the speed of engines.

use super::Failure;
use crate::cli::{BenchArgs, BenchName};
use anyhow::Context;
use fyke_lab::bench::report::{Listener, Report};
use fyke_lab::bench::{BenchError, Options, list};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Runs the command. The exit status is 1 if the verdicts of two engines differ.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let name = name_of(args.bench);
    let of_dynamic = !args.rate.is_empty() || args.seconds.is_some() || args.sessions.is_some();
    if name != "dynamic" && of_dynamic {
        let message = "--rates, --seconds and --sessions are for `fyke bench dynamic`";
        return Err(Failure::Usage(message.to_owned()));
    }
    let unwritten = Rc::new(RefCell::new(None));
    let options = Options {
        smoke: args.smoke,
        cases: args.case,
        engines: args.engine,
        trace: args.trace,
        real_filters: args.real_filters,
        seed: args.seed,
        rates: args.rate,
        duration: args.seconds.map(|seconds| Duration::from_secs(seconds.into())),
        sessions: args.sessions,
        rounds: args.rounds.map(usize::from),
        live: args.live,
        command: None,
        listener: if args.json { json_lines(&unwritten) } else { Listener::default() },
    };
    let mut benches = list::BENCHES.to_vec();
    benches.retain(|bench| name.is_empty() || bench.name == name);
    if let Some(problem) = list::refusal(&benches, &options) {
        return Err(Failure::Usage(problem));
    }
    let bar = bar();
    let mut report = Report::default();
    for bench in &benches {
        let mut progress = |what: &str, done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
        };
        match (bench.run)(&options, &mut progress) {
            Ok(found) => report.append(found),
            // With several benches, skip those without a case or engine of that name.
            Err(BenchError::NothingChosen { .. }) if benches.len() > 1 => {}
            Err(error @ (BenchError::NothingChosen { .. } | BenchError::Text { .. })) => {
                return Err(Failure::Usage(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    bar.finish_and_clear();
    if benches.len() > 1 && report.measurements.is_empty() && report.notes.is_empty() {
        return Err(Failure::Usage(
            "no bench has a case with this name and this engine".to_owned(),
        ));
    }
    if let Some(folder) = &args.plot {
        write_plots(&report, folder)?;
    }
    if let Some(path) = &args.csv {
        let text = report.csv(&args.commit.unwrap_or_default(), &cpu());
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        report.notes.iter().for_each(|note| note!("fyke: {note}"));
    } else {
        std::io::stdout().write_all(report.table().as_bytes())?;
    }
    unwritten.take().map_or(Ok(()), |error: std::io::Error| Err(error.into()))
}

/// The name of a bench; empty for all of them.
fn name_of(bench: BenchName) -> &'static str {
    match bench {
        BenchName::Static => "static",
        BenchName::Update => "update",
        BenchName::Dynamic => "dynamic",
        BenchName::Bloom => "bloom",
        BenchName::Demux => "demux",
        BenchName::Ruler => "ruler",
        BenchName::Graph => "graph",
        BenchName::Ids => "ids",
        BenchName::Streams => "streams",
        BenchName::Workers => "workers",
        BenchName::Live => "live",
        BenchName::Share => "share",
        BenchName::Scan => "scan",
        BenchName::Calls => "calls",
        BenchName::Generate => "generate",
        BenchName::All => "",
    }
}

/// A progress bar on a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar
}

/// Writes each measurement at once as a line with a JSON object; keeps the first failure.
fn json_lines(failure: &Rc<RefCell<Option<std::io::Error>>>) -> Listener {
    let failure = Rc::clone(failure);
    Listener::new(move |one| {
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", one.json()).and_then(|()| out.flush());
        if let Err(error) = written {
            failure.borrow_mut().get_or_insert(error);
        }
    })
}

fn write_plots(report: &Report, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, svg) in report.plots() {
        let path = folder.join(name);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the name of the processor.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
}
