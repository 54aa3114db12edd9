//! Nanoseconds per frame in the kernel: our program compared with the kernel's JIT of libpcap's, on the papers'
//! filters.
//!
//! `fyke-kernel` is the interpreter, `fyke-specialised` the generated program. The JIT runs as another kind of
//! program, so its net figure is relative to an empty program of that kind; its gross figure is the net figure plus
//! our empty program.
//!
//! The kernel itself measures (`BPF_PROG_TEST_RUN`) one frame that the filter rejects after a test of its ports,
//! and one that it accepts; engines take turns. *Gross* is the total, *net* is without the time of an empty
//! program. Verdicts on generated frames are compared first. D-sets are rows of a table in fyke; libpcap runs them
//! if it compiles them within seconds and the kernel attaches the result.

use super::BENCH;
use crate::bench::filters::{pairs, set_text, static_filters};
use crate::bench::frames::{Arena, Load};
use crate::bench::measure::{Turn, rounds};
use crate::bench::report::{Measurement, Report};
use crate::bench::traffic::{End, Traffic};
use crate::bench::{BenchError, Options, Progress};
use crate::peers::kernel_jit::KernelJit;
use crate::peers::libpcap::Libpcap;
use fyke_frame::{Frame, LinkType};
use fyke_kernel::shape::{self, Part};
use fyke_kernel::{Mirror, Space, TestRun};
use fyke_pass::{PassSet, primitive};
use std::time::Duration;

/// Largest set that libpcap compiles; a thousand take most of a second, and cannot be attached.
const MOST_COMPILED: usize = 1_000;

/// One engine: its name, and a function that runs a frame a number of times.
type Engine<'a> = (&'a str, Box<dyn Fn(&[u8], u32) -> std::io::Result<TestRun> + 'a>);

/// Measures all filters.
pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: Progress,
) -> Result<(), BenchError> {
    let (sizes, frames): (&[usize], usize) = match options.smoke {
        true => (&[10, 1_000], 200),
        false => (&[10, 100, 1_000, 10_000, 100_000], 1_000),
    };
    let mut traffic = Traffic::new(options.seed);
    let arena = Arena::synthetic(&mut traffic, frames, 0);
    let load = Load::new(&arena, (0..arena.len() as u32).collect());
    let frames: Vec<Frame<'_>> =
        load.batches().iter().flat_map(|batch| batch.frames()).copied().collect();
    let libpcap = Libpcap::load().map_err(|error| report.note(error.to_string())).ok();
    let statics = static_filters();
    let steps = statics.len() + sizes.len();
    for (step, (case, text)) in statics.iter().enumerate() {
        progress(case, step, steps);
        let space = match of_text(text).and_then(specialised) {
            Ok(space) => space,
            Err(why) => {
                report.note(format!("without the kernel space: {why}"));
                return Ok(());
            }
        };
        one_case(case, text, true, &space, libpcap.as_ref(), &frames, options, report)?;
    }
    for (step, &size) in sizes.iter().enumerate() {
        let case = format!("D{size}");
        progress(&case, statics.len() + step, steps);
        let ends = pairs(&traffic, size);
        let space = of_rows(&ends).and_then(specialised).map_err(BenchError::Other)?;
        let compiled = size <= MOST_COMPILED;
        let text = if compiled { set_text(&ends) } else { String::new() };
        one_case(&case, &text, compiled, &space, libpcap.as_ref(), &frames, options, report)?;
    }
    Ok(())
}

fn kernel_options() -> fyke_kernel::Options {
    // A socket's filter does not count rejected frames either.
    fyke_kernel::Options { count_rejected: false, ..fyke_kernel::Options::default() }
}

/// Loads the program of the specialised tier in addition to the interpreter.
fn specialised(mut space: Space) -> Result<Space, String> {
    if cfg!(target_arch = "x86_64") {
        let made = space.snapshot().map_err(|error| error.to_string())?.specialise();
        space.adopt(made.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    Ok(space)
}

/// Loads a filter text as passes.
fn of_text(text: &str) -> Result<Space, String> {
    let mut space = Space::open(kernel_options()).map_err(|error| error.to_string())?;
    let mut set = PassSet::new(LinkType::EN10MB);
    if !text.is_empty() {
        let predicate = fyke_filter::compile(text, &fyke_filter::Options::default());
        let mut edit = set.edit();
        let added = edit.add_filter(&predicate.map_err(|error| error.to_string())?);
        added.map_err(|error| error.to_string())?;
        edit.commit();
    }
    Mirror::default().sync(space.passes(), &set).map_err(|error| error.to_string())?;
    Ok(space)
}

/// Loads `tcp port 21`, and the ends as rows.
fn of_rows(ends: &[End]) -> Result<Space, String> {
    let mut space = of_text("tcp port 21")?;
    let text = |error: fyke_kernel::KernelEditError| error.to_string();
    let passes = space.passes();
    let table = passes.rows().new_table().ok_or("no table")?;
    let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    passes.add(&[primitive::ether_ip_tcp_nonfrag(), shape]).map_err(text)?;
    for &(host, port) in ends {
        passes.rows().insert(table, shape::key(host, port)).map_err(text)?;
    }
    Ok(space)
}

/// Measures one filter: checks agreement, then runs the rejected and the accepted frame.
#[allow(clippy::too_many_arguments, reason = "a case is what these are together")]
fn one_case(
    case: &str,
    text: &str,
    compiled: bool,
    space: &Space,
    libpcap: Option<&Libpcap>,
    frames: &[Frame<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let jit = match libpcap.filter(|_| compiled) {
        Some(libpcap) => libpcap
            .compile(LinkType::EN10MB, 262_144, text, true)
            .and_then(|program| {
                KernelJit::load(program.instructions()).map_err(|error| error.to_string())
            })
            .map_err(|why| report.note(format!("{case} without jit: {why}")))
            .ok(),
        None => {
            report.note(format!("{case} without jit: too large for libpcap's compiler"));
            None
        }
    };
    let none = KernelJit::empty().map_err(|error| BenchError::Other(error.to_string()))?;
    let mut engines: Vec<Engine<'_>> = Vec::new();
    engines
        .push(("fyke-kernel", Box::new(|frame, repeat| space.test_run_interpreted(frame, repeat))));
    if space.is_specialised() {
        engines.push(("fyke-specialised", Box::new(|frame, repeat| space.test_run(frame, repeat))));
    }
    if let Some(jit) = &jit {
        engines.push(("jit", Box::new(|frame, repeat| jit.test_run(frame, repeat))));
    }
    let failed = |error: std::io::Error| BenchError::Other(error.to_string());
    let (mut rejected, mut accepted) = (None, None);
    for (number, frame) in frames.iter().enumerate() {
        let verdict = engines[0].1(frame.data, 1).map_err(failed)?.returned != 0;
        for (name, run) in &engines[1..] {
            let other = run(frame.data, 1).map_err(failed)?.returned != 0;
            if other != verdict {
                return Err(BenchError::Mismatch {
                    case: case.to_owned(),
                    setting: "in the kernel".to_owned(),
                    engine: (*name).to_owned(),
                    reference: engines[0].0.to_owned(),
                    frame: number,
                    frames: frames.len(),
                    accepted: other,
                });
            }
        }
        let place = if verdict { &mut accepted } else { &mut rejected };
        if is_plain_tcp(frame.data) {
            place.get_or_insert(*frame);
        }
    }
    engines.push(("jit-empty", Box::new(|frame, repeat| none.test_run(frame, repeat))));
    engines.push(("empty", Box::new(|frame, repeat| space.test_run_empty(frame, repeat))));
    for (kind, frame) in [("rejected", rejected), ("accepted", accepted)] {
        if let Some(frame) = frame {
            time(case, kind, frame.data, &engines, options, report)?;
        }
    }
    Ok(())
}

/// Returns true for a complete, untagged TCP frame over IPv4, which needs the most tests.
fn is_plain_tcp(data: &[u8]) -> bool {
    data.len() > 54
        && data[12..14] == [8, 0]
        && data[23] == 6
        && data[20] & 0x1f == 0
        && data[21] == 0
}

fn time(
    case: &str,
    kind: &str,
    frame: &[u8],
    engines: &[Engine<'_>],
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let (count, repeat) = if options.smoke { (3, 1_000) } else { (15, 100_000) };
    let mut failure = None;
    let samples = rounds(
        &mut failure,
        engines.len(),
        count,
        |_| {},
        |failure, engine| {
            let ns = match engines[engine].1(frame, repeat) {
                Ok(run) => run.duration_ns,
                Err(error) => {
                    *failure = Some(error.to_string());
                    0
                }
            };
            Turn { time: Duration::from_nanos(u64::from(ns) * 1_000), units: 1_000 }
        },
    );
    if let Some(failure) = failure {
        return Err(BenchError::Other(failure));
    }
    let of = |name: &str| {
        let found = engines.iter().position(|(engine, _)| *engine == name);
        found.map_or(0.0, |engine| samples[engine].median())
    };
    let (empty, jit_empty) = (of("empty"), of("jit-empty"));
    for ((name, _), samples) in engines.iter().zip(&samples) {
        let net = match *name {
            "jit-empty" => continue,
            "jit" => samples.median() - jit_empty,
            _ => samples.median() - empty,
        };
        for (part, ns) in [("gross", net + empty), ("net", net)] {
            if part == "net" && *name == "empty" {
                continue;
            }
            let setting = format!("in the kernel, {kind}, {part}");
            let one = Measurement::per_packet(BENCH, case, name, &setting, ns);
            report.push(one.runs(samples.len()));
        }
    }
    Ok(())
}
