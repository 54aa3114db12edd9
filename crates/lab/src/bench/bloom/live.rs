//! `fyke bench bloom --live`: the pre-filter in the kernel, by cost: a frame, and a rule.
//!
//! The kernel itself measures (`BPF_PROG_TEST_RUN`) one frame that the rules reject and one that they pass; engines
//! take turns, and the time of an empty program of the same kind is subtracted. A veth cannot show what XDP
//! saves: frames there are buffers already.
//!
//! | engine | program |
//! |---|---|
//! | `fyke-tap` | the first filter of a monitoring socket, reading frames in place if the kernel permits it |
//! | `fyke-tap-copied` | the same, with a call that copies the head |
//! | `fyke-tcx` | the rules at tcx, counting |
//! | `fyke-xdp` | the rules at XDP |
//! | `fyke-kernel` | the pass engine in the kernel, with the same rules as filters |
//! | `libpcap-jit` | libpcap's program of the same rules, as the kernel's JIT runs it |
//!
//! Cases: `table2-…`: whole paths, see [`table2`]. `array1` to `array3`: one to three arrays with a rule in each, no
//! wildcard; `array1-more`: 300 more rules in the array; `edit`: rules added and removed in the memory that the kernel
//! reads;
//! `never-missed`: a frame that matches a rule, judged while other rules come and go.

use super::{BENCH, table2};
use crate::bench::measure::{Samples, Turn, rounds, time_of};
use crate::bench::report::{Measurement, Report};
use crate::bench::traffic::Random;
use crate::bench::{BenchError, Options, Progress};
use crate::peers::kernel_jit::KernelJit;
use crate::peers::libpcap::Libpcap;
use fyke_frame::LinkType;
use fyke_kernel::direct::Access;
use fyke_kernel::prefilter::{Arrays, Dropper, Tap, Watcher};
use fyke_kernel::{Mirror, Space, TestRun};
use fyke_pass::PassSet;
use fyke_table::Seed;
use fyke_table::prefilter::{Prefilter, PrefilterOptions, Rule};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Engines of these cases.
pub const LIVE_ENGINES: [&str; 7] = [
    "fyke-tap",
    "fyke-tap-copied",
    "fyke-tcx",
    "fyke-xdp",
    "fyke-kernel",
    "libpcap-jit",
    "af_packet",
];
/// Cases: arrays, and further rules in the first.
const CASES: [(&str, usize, usize); 4] =
    [("array1", 1, 0), ("array2", 2, 0), ("array3", 3, 0), ("array1-more", 1, 300)];
const EDIT: &str = "edit";
const NEVER_MISSED: &str = "never-missed";
/// Frames of one call of the kernel.
const REPEAT: u32 = 10_000;
/// Rules that are added together.
const MANY: usize = 1_000;

/// Measures all cases.
pub(super) fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let mut report = Report::new(options);
    let total = CASES.len() + table2::CASES.len() + 2;
    for (step, (case, arrays, more)) in CASES.into_iter().enumerate() {
        if options.wants_case(case) {
            progress(case, step, total);
            frames(options, case, &rules(arrays, more, options.seed), &mut report)?;
        }
    }
    if options.wants_case(EDIT) {
        progress(EDIT, CASES.len(), total);
        edits(options, &mut report)?;
    }
    if options.wants_case(NEVER_MISSED) {
        progress(NEVER_MISSED, CASES.len() + 1, total);
        never_missed(options, &mut report)?;
    }
    for (step, (case, bytes)) in table2::CASES.into_iter().enumerate() {
        if options.wants_case(case) {
            progress(case, CASES.len() + 2 + step, total);
            table2::measure(options, case, bytes, &mut report)?;
        }
    }
    progress("done", total, total);
    if report.measurements.is_empty() && report.notes.is_empty() {
        let cases = CASES.map(|(case, ..)| case).into_iter().chain([EDIT, NEVER_MISSED]);
        let cases = cases.chain(table2::CASES.map(|(case, _)| case)).collect::<Vec<_>>();
        return Err(BenchError::NothingChosen { there: cases.join(", ") });
    }
    Ok(report)
}

/// The frame that passes matches the first rule, 10.0.0.1 and port 80.
fn frame(is_wanted: bool, bytes: usize) -> Vec<u8> {
    let destination = if is_wanted { [10, 0, 0, 1] } else { [10, 200, 0, 7] };
    let port = if is_wanted { 80_u16 } else { 9 };
    let total = (bytes - 14) as u16;
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 192, 168, 7, 7]);
    frame.extend(destination);
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.resize(bytes, 0);
    frame[46] = 0x50;
    frame
}

fn rules(arrays: usize, more: usize, seed: u64) -> Vec<Rule> {
    let mut random = Random::new(seed);
    let net = |address: [u8; 4], prefix, port| {
        Rule::default().with_net(address.into(), prefix).with_port(port).with_protocol(6)
    };
    let nets = [([10, 0, 0, 1], 32, 80), ([172, 16, 5, 0], 24, 81), ([172, 20, 0, 0], 16, 82)];
    let first =
        nets.into_iter().take(arrays).map(|(address, prefix, port)| net(address, prefix, port));
    // 240.0.0.0/4 has no hosts.
    let more = (0..more).map(|_| {
        let address = (random.number() as u32 | 0xf000_0000).to_be_bytes();
        net(address, 32, 1024 + random.below(60_000) as u16)
    });
    first.chain(more).collect()
}

fn text_of(rules: &[Rule]) -> String {
    let one = |rule: &Rule| {
        let (net, prefix) = rule.net()?;
        let port = rule.port()?;
        let end = |side| format!("({side} net {net}/{prefix} and {side} port {port})");
        Some(format!("(tcp and ({} or {}))", end("src"), end("dst")))
    };
    rules.iter().filter_map(one).collect::<Vec<_>>().join(" or ")
}

pub(super) fn other(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(error.to_string())
}

/// One engine: its name, and functions that run a frame, and the empty program, a number of times.
struct Engine<'a> {
    name: &'static str,
    run: Run<'a>,
    empty: Run<'a>,
    /// Return value for a frame that is rejected.
    rejects: u32,
}

type Run<'a> = Box<dyn Fn(&[u8], u32) -> std::io::Result<TestRun> + 'a>;

fn frames(
    options: &Options,
    case: &str,
    rules: &[Rule],
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::fixed(options.seed));
    rules.iter().try_for_each(|rule| prefilter.add(*rule)).map_err(other)?;
    let arrays = match Arrays::new(prefilter.options()) {
        Ok(arrays) => arrays,
        Err(error) => return without(report, &error),
    };
    arrays.follow(&mut prefilter).map_err(other)?;
    let taps = [Access::best(), Access::Copied].map(|access| Tap::open_with(&arrays, 1500, access));
    let [tap, copied] = match taps {
        [Ok(tap), Ok(copied)] => [tap, copied],
        [Err(error), _] | [_, Err(error)] => return without(report, &error),
    };
    tap.set_on(true);
    copied.set_on(true);
    let watcher = Watcher::detached(&arrays).map_err(other)?;
    // It counts every frame and lets it pass.
    let watched = |frame: &[u8], n| {
        let before = watcher.counts()[0].rejected;
        let mut run = watcher.test_run(frame, n)?;
        run.returned = u32::from(watcher.counts()[0].rejected == before);
        Ok(run)
    };
    let dropper = Dropper::detached(&arrays).map_err(other)?;
    let space = passes(&text_of(rules))?;
    let program = libpcap(&text_of(rules), report);
    let empty = KernelJit::empty().map_err(other)?;
    let mut engines = vec![
        engine("fyke-tap", 0, |f, n| tap.test_run(f, n), |f, n| tap.test_run_empty(f, n)),
        engine(
            "fyke-tap-copied",
            0,
            |f, n| copied.test_run(f, n),
            |f, n| copied.test_run_empty(f, n),
        ),
        engine("fyke-tcx", 0, watched, |f, n| watcher.test_run_empty(f, n)),
        engine("fyke-xdp", 1, |f, n| dropper.test_run(f, n), |f, n| dropper.test_run_empty(f, n)),
        engine("fyke-kernel", 0, |f, n| space.test_run(f, n), |f, n| space.test_run_empty(f, n)),
    ];
    engines.extend(program.as_ref().map(|program| {
        engine("libpcap-jit", 0, |f, n| program.test_run(f, n), |f, n| empty.test_run(f, n))
    }));
    engines.retain(|engine| options.wants_engine(engine.name));
    for (bytes, is_wanted) in [(64, false), (64, true), (900, false), (900, true)] {
        let what = if is_wanted { "accepted" } else { "rejected" };
        let setting = format!("{bytes} bytes, {what}, net");
        one_frame(options, case, &setting, &frame(is_wanted, bytes), is_wanted, &engines, report)?;
    }
    Ok(())
}

/// Notes that this machine has no kernel space.
fn without(report: &mut Report, error: &dyn std::fmt::Display) -> Result<(), BenchError> {
    report.note(format!("without the kernel space: {error}"));
    Ok(())
}

fn engine<'a>(
    name: &'static str,
    rejects: u32,
    run: impl Fn(&[u8], u32) -> std::io::Result<TestRun> + 'a,
    empty: impl Fn(&[u8], u32) -> std::io::Result<TestRun> + 'a,
) -> Engine<'a> {
    Engine { name, run: Box::new(run), empty: Box::new(empty), rejects }
}

pub(super) fn passes(text: &str) -> Result<Space, BenchError> {
    let mut space = Space::open(fyke_kernel::Options::default()).map_err(other)?;
    let mut set = PassSet::new(LinkType::EN10MB);
    let predicate = fyke_filter::compile(text, &fyke_filter::Options::default()).map_err(other)?;
    let mut edit = set.edit();
    edit.add_filter(&predicate).map_err(other)?;
    edit.commit();
    Mirror::default().sync(space.passes(), &set).map_err(other)?;
    space.specialise().map_err(other)?;
    Ok(space)
}

/// libpcap's program; `None` if there is no libpcap, or the kernel cannot attach the program.
fn libpcap(text: &str, report: &mut Report) -> Option<KernelJit> {
    let libpcap = Libpcap::load().map_err(|error| report.note(error.to_string())).ok()?;
    let compiled = libpcap.compile(LinkType::EN10MB, 262_144, text, true);
    let loaded = match compiled {
        Ok(program) => KernelJit::load(program.instructions()).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    loaded.map_err(|error| report.note(format!("libpcap-jit: {error}"))).ok()
}

fn one_frame(
    options: &Options,
    case: &str,
    setting: &str,
    frame: &[u8],
    is_wanted: bool,
    engines: &[Engine<'_>],
    report: &mut Report,
) -> Result<(), BenchError> {
    for engine in engines {
        let accepted = (engine.run)(frame, 1).map_err(other)?.returned != engine.rejects;
        if accepted != is_wanted {
            return Err(BenchError::Mismatch {
                case: case.to_owned(),
                setting: setting.to_owned(),
                engine: engine.name.to_owned(),
                reference: "the rules".to_owned(),
                frame: 0,
                frames: 1,
                accepted,
            });
        }
    }
    let (count, repeat) = if options.smoke { (3, 1_000) } else { (41, 20_000) };
    let samples = rounds(
        &mut (),
        2 * engines.len(),
        count,
        |()| (),
        |(), turn| {
            let engine = &engines[turn / 2];
            let run = if turn % 2 == 0 { &engine.run } else { &engine.empty };
            // A failure was reported above.
            let ns = run(frame, repeat).map_or(0, |run| run.duration_ns);
            Turn { time: Duration::from_nanos(u64::from(ns)), units: 1 }
        },
    );
    for (engine, pair) in engines.iter().zip(samples.chunks(2)) {
        let net = pair[0].median() - pair[1].median();
        let one = Measurement::per_packet(BENCH, case, engine.name, setting, net.max(0.0));
        report.push(one.runs(pair[0].len()));
    }
    Ok(())
}

/// Times rules until they are in the memory that the kernel reads: one, and a thousand at once.
fn edits(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::fixed(options.seed));
    let arrays = match Arrays::new(prefilter.options()) {
        Ok(arrays) => arrays,
        Err(error) => return without(report, &error),
    };
    arrays.follow(&mut prefilter).map_err(other)?;
    let list = rules(1, MANY - 1, options.seed);
    let mut times: [Samples; 4] = Default::default();
    for _ in 0..if options.smoke { 2 } else { 51 } {
        let mut failed = None;
        let mut timed = |slot: usize, work: &mut dyn FnMut() -> Result<(), BenchError>| {
            let time = time_of(false, || failed = work().err());
            times[slot].push(time.as_nanos() as f64);
        };
        timed(0, &mut || list.iter().try_for_each(|rule| prefilter.add(*rule)).map_err(other));
        timed(1, &mut || {
            list[1..].iter().try_for_each(|rule| prefilter.remove(rule)).map_err(other)
        });
        timed(2, &mut || prefilter.add(list[1]).map_err(other));
        timed(3, &mut || prefilter.remove(&list[1]).map_err(other));
        if let Some(error) = failed {
            return Err(error);
        }
        prefilter.reset();
    }
    let settings = ["add 1,000 rules", "remove 999 rules", "add a rule", "remove a rule"];
    for (setting, samples) in settings.iter().zip(&times) {
        let one = Measurement::value(BENCH, EDIT, LIVE_ENGINES[0], setting, samples.median(), "ns");
        report.push(one.runs(samples.len()));
    }
    Ok(())
}

/// Judges a frame that matches a rule 10⁸ times while other rules come and go, and reports how often it was rejected.
fn never_missed(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::fixed(options.seed));
    let arrays = match Arrays::new(prefilter.options()) {
        Ok(arrays) => arrays,
        Err(error) => return without(report, &error),
    };
    arrays.follow(&mut prefilter).map_err(other)?;
    let tap = match Tap::open(&arrays, 1500) {
        Ok(tap) => tap,
        Err(error) => return without(report, &error),
    };
    tap.set_on(true);
    let list = rules(3, MANY, options.seed);
    prefilter.add(list[0]).map_err(other)?;
    let (frames, over) =
        (if options.smoke { 1_000_000 } else { 100_000_000 }, AtomicBool::new(false));
    let (wanted, mut edits) = (frame(true, 64), 0_u64);
    let judge = || {
        let done = (0..frames / REPEAT).try_for_each(|_| tap.test_run(&wanted, REPEAT).map(drop));
        over.store(true, Ordering::Relaxed);
        done
    };
    std::thread::scope(|scope| {
        let judged = scope.spawn(judge);
        let mut edited = Ok(());
        while !over.load(Ordering::Relaxed) && edited.is_ok() {
            let come = || list[1..].iter();
            edited = come().try_for_each(|rule| prefilter.add(*rule));
            edited = edited.and_then(|()| come().try_for_each(|rule| prefilter.remove(rule)));
            edits += 2 * come().count() as u64;
        }
        edited.map_err(other)?;
        judged.join().map_err(|_| other("the judge panicked"))?.map_err(other)
    })?;
    let figures = [
        ("frames that match a rule", u64::from(frames)),
        ("edits meanwhile", edits),
        ("of these frames rejected", tap.rejected()),
    ];
    for (setting, value) in figures {
        let engine = LIVE_ENGINES[0];
        let unit = if setting.starts_with("edits") { "edits" } else { "frames" };
        report.push(Measurement::value(BENCH, NEVER_MISSED, engine, setting, value as f64, unit));
    }
    Ok(())
}
