//! `fyke bench`: engines measured side by side.

use super::Failure;
use crate::cli::{BenchArgs, BenchName};
use anyhow::Context;
use fyke_lab::bench::report::Report;
use fyke_lab::bench::{self, BenchError, Options, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// A bench: its name and what runs it.
type Bench = fn(&Options, Progress) -> Result<Report, BenchError>;

/// Runs the command. Exit status 1 when two engines disagree.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let options = Options {
        smoke: args.smoke,
        cases: args.case,
        engines: args.engine,
        trace: args.trace,
        real_filters: args.real_filters,
        seed: args.seed,
    };
    let benches: &[Bench] = match args.bench {
        BenchName::Static => &[bench::statics::run],
        BenchName::Update => &[bench::update::run],
        BenchName::Dynamic => &[bench::dynamic::run],
        BenchName::Bloom => &[bench::bloom::run],
        BenchName::Demux => &[bench::demux::run],
        BenchName::Ruler => &[bench::ruler::run],
        BenchName::Graph => &[bench::graph::run],
        BenchName::All => &[
            bench::statics::run,
            bench::update::run,
            bench::dynamic::run,
            bench::demux::run,
            bench::bloom::run,
            bench::ruler::run,
            bench::graph::run,
        ],
    };
    let bar = ProgressBar::new(0);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    let mut report = Report::default();
    for bench in benches {
        let mut progress = |what: &str, done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_owned());
        };
        match bench(&options, &mut progress) {
            Ok(found) => report.append(found),
            // Of several benches, those without a case or engine of that name have nothing to add.
            Err(BenchError::NothingChosen { .. }) if benches.len() > 1 => {}
            Err(error @ (BenchError::NothingChosen { .. } | BenchError::Text { .. })) => {
                return Err(Failure::Usage(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    bar.finish_and_clear();
    if let Some(folder) = &args.plot {
        write_plots(&report, folder)?;
    }
    if let Some(path) = &args.csv {
        let text = report.csv(&args.commit.unwrap_or_default(), &cpu());
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        report.write_json(&mut out)?;
        report.notes.iter().for_each(|note| eprintln!("fyke: {note}"));
    } else {
        out.write_all(report.table().as_bytes())?;
    }
    Ok(())
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

/// What the machine calls its processor.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
}
