//! Figures 6 and 7: cost of installing one more program, by the number of installed programs.
//!
//! For `pass` the text is parsed beforehand, and an installation is an edit of one filter with its commit.

use super::engine::{installed, options as engine_options};
use super::session::Session;
use super::{engines, session_counts};
use crate::bench::measure::Samples;
use crate::bench::report::{Measurement, Report};
use crate::bench::{BenchError, Options};
use fyke_frame::LinkType;
use fyke_machine::bpf::run::Program;
use fyke_machine::{AnyProgram, Demultiplexer};
use fyke_pass::PassSet;
use std::time::{Duration, Instant};

pub(super) const ENGINES: &[&str] = &["mpf", "bpf", "cspf", "pass"];
/// Number of installations that are measured.
const WINDOW: usize = 64;
/// Maximum number of programs installed before.
const MOST: usize = 10_000;

/// A series of programs to install, by number.
struct Kind {
    case: &'static str,
    program: fn(usize, &str) -> Result<AnyProgram, BenchError>,
    text: fn(usize) -> String,
}

/// Sessions of one protocol, installed one by one.
pub(super) fn figure_6(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let program = |number, engine: &str| Session::uniform(number).program(engine);
    let text = |number| Session::uniform(number).text();
    run(options, report, &Kind { case: "fig6", program, text })
}

/// Programs that cannot be collapsed: each has a protocol number of its own.
pub(super) fn figure_7(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let text = |number| format!("ether[12:4] = {number}");
    run(options, report, &Kind { case: "fig7", program: unrelated, text })
}

fn unrelated(number: usize, engine: &str) -> Result<AnyProgram, BenchError> {
    let program = Session::uniform(0).program(engine)?;
    let AnyProgram::Register(program) = program else { return Ok(program) };
    let mut instructions = program.instructions().to_vec();
    // The EtherType is the first constant that is compared; a 16-bit protocol number does not suffice for 100,000.
    if let Some(test) = instructions.iter_mut().find(|one| one.code == 0x15) {
        test.k = number as u32;
    }
    let program = Program::new(instructions, program.dialect());
    Ok(AnyProgram::Register(program.map_err(|error| BenchError::Other(error.to_string()))?))
}

fn run(options: &Options, report: &mut Report, kind: &Kind) -> Result<(), BenchError> {
    for count in session_counts(options).into_iter().filter(|&count| count <= MOST) {
        for name in engines(options, 1, ENGINES) {
            let times = match name {
                "pass" => texts(kind, count)?,
                name => programs(kind, name, count)?,
            };
            let mut samples = Samples::default();
            times.iter().for_each(|time| samples.push(time.as_nanos() as f64));
            let setting = format!("{count} installed");
            let median = samples.median();
            let one = Measurement::value("demux", kind.case, name, &setting, median, "ns/install");
            report.push(one.runs(samples.len()));
        }
    }
    Ok(())
}

fn programs(kind: &Kind, engine: &str, count: usize) -> Result<Vec<Duration>, BenchError> {
    let mut machine = Demultiplexer::new(engine_options(engine));
    let mut times = Vec::new();
    for number in 0..count + WINDOW {
        let program = (kind.program)(number, engine)?;
        let start = Instant::now();
        let installed = machine.install(program);
        times.push(start.elapsed());
        installed.map_err(|error| BenchError::Other(error.to_string()))?;
    }
    Ok(times.split_off(count))
}

fn texts(kind: &Kind, count: usize) -> Result<Vec<Duration>, BenchError> {
    let mut set = PassSet::new(LinkType::EN10MB);
    installed(&mut set, (0..count).map(kind.text))?;
    let mut times = Vec::new();
    for number in count..count + WINDOW {
        let predicate = super::engine::predicate(&(kind.text)(number))?;
        let start = Instant::now();
        let mut edit = set.edit();
        let added = edit.add_filter(&predicate);
        edit.commit();
        times.push(start.elapsed());
        added.map_err(|error| BenchError::Other(error.to_string()))?;
    }
    Ok(times)
}
