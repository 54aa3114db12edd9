//! `fyke bench update`: cost of one change when there are N rows, and cost of edits for the readers.
//!
//! Rows are (host, port) pairs, as a tracker adds them. For fyke: the time until `commit` returns, for an added and
//! for a removed row.
//!
//! - Engine `fyke`: rows of a declared shape (one end of a connection), in bursts of [`BURST`] edits, each with its
//!   own commit, and as the median of single edits after a megabyte of other memory has been written.
//! - Engine `fyke-texts`: filters with a text each (either end), parsed beforehand, which become rows
//!   automatically; also the time that a reader needs to follow.
//! - For libpcap: compilation of the text of all rows, which is its way to change a filter, with and without its
//!   optimiser. A size is skipped if the time predicted from smaller texts (cubic, without optimiser quadratic) is
//!   over [`MAX_COMPILE`].
//! - Engines `table-shared` and `table-log`: the two methods by which rows can reach readers (`ways.rs`).
//!
//! `look_back.rs` measures the look-back after an edit.

mod look_back;
mod ways;

use super::filters::{pair_text, pairs, set_text};
use super::frames::{Arena, CACHE_FRAMES, Load};
use super::measure::{Samples, time_of};
use super::report::{Measurement, Report};
use super::traffic::{End, Traffic};
use super::{BenchError, Options, Progress};
use crate::peers::libpcap::Libpcap;
use fyke_filter::Predicate;
use fyke_frame::LinkType;
use fyke_pass::{PassSet, Reader, RowId, ShapeId, primitive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The bench's name in reports.
pub const BENCH: &str = "update";
/// Maximum predicted time of a compilation.
pub const MAX_COMPILE: Duration = Duration::from_secs(10);

/// Number of edits in a burst, each of which is an epoch of its own.
pub const BURST: usize = 64;
/// Words of other memory that are written before a single edit: 1 MB.
const SPOILED: usize = 1 << 17;

/// Size of the measurement.
struct Scale {
    sizes: &'static [usize],
    edits: usize,
    /// Time limit for the edits of one size.
    budget: Duration,
    rates: &'static [u64],
    reading: Duration,
}

impl Scale {
    fn of(options: &Options) -> Scale {
        if options.smoke {
            Scale {
                sizes: &[1, 10, 100],
                edits: 20,
                budget: Duration::from_millis(200),
                rates: &[0, 1_000],
                reading: Duration::from_millis(30),
            }
        } else {
            Scale {
                sizes: &[1, 10, 100, 1_000, 10_000, 100_000],
                edits: 1_000,
                budget: Duration::from_secs(5),
                rates: &[0, 1_000, 100_000, 1_000_000, u64::MAX],
                reading: Duration::from_millis(500),
            }
        }
    }
}

/// Engines of this bench: edits of our sets, libpcap's compiler, and two ways of a table.
pub const ENGINES: [&str; 6] =
    ["fyke", "fyke-texts", "libpcap", "libpcap-unoptimised", "table-shared", "table-log"];

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let scale = Scale::of(options);
    let mut report = Report::new(options);
    let mut traffic = Traffic::new(options.seed);
    let libpcap = match Libpcap::load() {
        Ok(libpcap) => Some(libpcap),
        Err(error) => {
            report.note(format!("without libpcap: {error}"));
            None
        }
    };
    let mut compilers =
        [Compiler::new("libpcap", true), Compiler::new("libpcap-unoptimised", false)];
    let arena = Arena::synthetic(&mut traffic, CACHE_FRAMES, 0);
    let mut any = false;
    for (index, &size) in scale.sizes.iter().enumerate() {
        let case = format!("N{size}");
        if !options.wants_case(&case) {
            continue;
        }
        any = true;
        progress(&case, index, scale.sizes.len());
        let rows = pairs(&traffic, size + scale.edits);
        if options.wants_engine("fyke") {
            declared(&case, &rows, size, &mut report)?;
            readers(&case, &rows, size, &scale, &arena, &mut report)?;
            let (set, _) = declared_set(&rows[..size])?;
            let rounds = if options.smoke { 2 } else { 21 };
            look_back::measure(&case, set, &arena, rounds, &mut report)?;
        }
        if options.wants_engine("fyke-texts") {
            edits(&case, &rows, size, &scale, &mut report)?;
        }
        for compiler in compilers.iter_mut().filter(|one| options.wants_engine(one.name)) {
            if let Some(libpcap) = &libpcap {
                compiler.measure(libpcap, &case, &rows[..size], &mut report);
            }
        }
    }
    ways::measure(options, &mut report)?;
    progress("done", scale.sizes.len(), scale.sizes.len());
    if !any {
        let there = scale.sizes.iter().map(|size| format!("N{size}")).collect::<Vec<_>>();
        return Err(BenchError::NothingChosen { there: there.join(", ") });
    }
    Ok(report)
}

fn predicate(text: &str) -> Result<Predicate, BenchError> {
    let failed =
        |message: String| BenchError::Text { case: text.chars().take(60).collect(), message };
    fyke_filter::compile(text, &fyke_filter::Options::default())
        .map_err(|error| failed(error.to_string()))
}

fn refused(error: impl std::fmt::Display) -> BenchError {
    BenchError::Other(format!("fyke refuses an edit: {error}"))
}

/// Creates a set of these rows.
fn set_of(rows: &[End]) -> Result<PassSet, BenchError> {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    for &row in rows {
        edit.add_filter(&predicate(&pair_text(row))?).map_err(refused)?;
    }
    edit.commit();
    Ok(set)
}

fn push(
    report: &mut Report,
    case: &str,
    engine: &'static str,
    setting: &str,
    samples: &Samples,
    part: f64,
) {
    let one = Measurement::value(BENCH, case, engine, setting, samples.quantile(part), "ns");
    report.push(one.runs(samples.len()));
}

/// Creates a set with a declared shape of (host, port) pairs and these rows.
fn declared_set(rows: &[End]) -> Result<(PassSet, ShapeId), BenchError> {
    let mut set = PassSet::new(LinkType::EN10MB);
    let port = primitive::ip_port_dst(&[0]).map_err(refused)?;
    let pass = [primitive::ether_ip_tcp_nonfrag(), primitive::ip_dst_host(0), port];
    let shape = set.new_shape(&pass, &[1, 2]).map_err(refused)?;
    set.reserve_rows(shape, rows.len()).map_err(refused)?;
    let mut edit = set.edit();
    for &row in rows {
        edit.add_row(shape, &operands(row)).map_err(refused)?;
    }
    edit.commit();
    Ok((set, shape))
}

fn operands((host, port): End) -> [u32; 2] {
    [host, port.into()]
}

fn add(set: &mut PassSet, shape: ShapeId, row: End) -> Result<RowId, BenchError> {
    let mut edit = set.edit();
    let id = edit.add_row(shape, &operands(row)).map_err(refused)?;
    edit.commit();
    Ok(id)
}

fn remove(set: &mut PassSet, row: RowId) -> Result<(), BenchError> {
    let mut edit = set.edit();
    edit.remove_row(row).map_err(refused)?;
    edit.commit();
    Ok(())
}

/// Nanoseconds per edit since `start`.
fn each(start: Instant, edits: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / edits as f64
}

/// Measures rows of a declared shape, added and removed in bursts and one by one.
fn declared(case: &str, rows: &[End], size: usize, report: &mut Report) -> Result<(), BenchError> {
    let start = Instant::now();
    let (mut set, shape) = declared_set(&rows[..size])?;
    let load = each(start, 1);
    report.push(Measurement::value(BENCH, case, "fyke", "load all", load, "ns"));
    let mut reader = set.reader();
    let (mut adding, mut removing) = (Samples::default(), Samples::default());
    for burst in rows[size..].chunks_exact(BURST.min(rows.len() - size)).cycle().take(300) {
        let mut there = Vec::with_capacity(burst.len());
        reader.refresh();
        let start = Instant::now();
        for &row in burst {
            there.push(add(&mut set, shape, row)?);
        }
        adding.push(each(start, burst.len()));
        reader.refresh();
        let start = Instant::now();
        for row in there {
            remove(&mut set, row)?;
        }
        removing.push(each(start, burst.len()));
    }
    push(report, case, "fyke", "add, burst p50", &adding, 0.5);
    push(report, case, "fyke", "remove, burst p50", &removing, 0.5);
    let (mut adding, mut removing) = (Samples::default(), Samples::default());
    let mut other = vec![0_u64; SPOILED];
    let mut spoil = || other.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
    for &row in rows[size..].iter().take(500) {
        reader.refresh();
        spoil();
        let start = Instant::now();
        let id = add(&mut set, shape, row)?;
        adding.push(each(start, 1));
        reader.refresh();
        spoil();
        let start = Instant::now();
        remove(&mut set, id)?;
        removing.push(each(start, 1));
    }
    push(report, case, "fyke", "add, p50", &adding, 0.5);
    push(report, case, "fyke", "add, p99", &adding, 0.99);
    push(report, case, "fyke", "remove, p50", &removing, 0.5);
    Ok(())
}

/// Measures one row that is added and removed repeatedly; every row is a filter of its own with a text parsed
/// beforehand.
fn edits(
    case: &str,
    rows: &[End],
    size: usize,
    scale: &Scale,
    report: &mut Report,
) -> Result<(), BenchError> {
    let start = Instant::now();
    let mut set = set_of(&rows[..size])?;
    let load = start.elapsed().as_nanos() as f64;
    let mut reader = set.reader();
    report.push(Measurement::value(BENCH, case, "fyke-texts", "load all, reading", load, "ns"));
    let (mut adding, mut removing) = (Samples::default(), Samples::default());
    let mut following = Samples::default();
    let start = Instant::now();
    for &row in &rows[size..] {
        if start.elapsed() > scale.budget {
            break;
        }
        let text = predicate(&pair_text(row))?;
        let mut added = None;
        let time = time_of(false, || {
            let mut edit = set.edit();
            added = Some(edit.add_filter(&text));
            edit.commit();
        });
        let Some(Ok(id)) = added else { return Err(refused("adding a row failed")) };
        adding.push(time.as_nanos() as f64);
        following.push(time_of(false, || _ = reader.refresh()).as_nanos() as f64);
        let mut removed = None;
        let time = time_of(false, || {
            let mut edit = set.edit();
            removed = Some(edit.remove_filter(id));
            edit.commit();
        });
        if let Some(Err(error)) = removed {
            return Err(refused(error));
        }
        removing.push(time.as_nanos() as f64);
    }
    push(report, case, "fyke-texts", "add, p50", &adding, 0.5);
    push(report, case, "fyke-texts", "add, p99", &adding, 0.99);
    push(report, case, "fyke-texts", "remove, p50", &removing, 0.5);
    push(report, case, "fyke-texts", "reader follows, p50", &following, 0.5);
    Ok(())
}

/// Measures the cost of edits for a reader in another thread, which evaluates without a pause and applies every
/// edit.
fn readers(
    case: &str,
    rows: &[End],
    size: usize,
    scale: &Scale,
    arena: &Arena,
    report: &mut Report,
) -> Result<(), BenchError> {
    let extra = &rows[size..];
    for &rate in scale.rates {
        let (mut set, shape) = declared_set(&rows[..size])?;
        let reader = set.reader();
        let stop = AtomicBool::new(false);
        let (cost, done) = thread::scope(|scope| {
            let reading = scope.spawn(|| read(reader, arena, &stop));
            let done = edit_at(&mut set, shape, extra, rate, scale.reading);
            stop.store(true, Ordering::Relaxed);
            (reading.join(), done)
        });
        let cost = cost.map_err(|_| BenchError::Other("the reader's thread failed".to_owned()))?;
        let setting = match rate {
            0 => "reader, no edits".to_owned(),
            u64::MAX => "reader, edits without a pause".to_owned(),
            _ => format!("reader, {rate} edits/s wanted"),
        };
        report.push(Measurement::per_packet(BENCH, case, "fyke", &setting, cost));
        if rate > 0 {
            let setting = format!("{setting}: done");
            let one = Measurement::value(BENCH, case, "fyke", &setting, done?, "edits/s");
            report.push(one);
        }
    }
    Ok(())
}

/// Evaluates until `stop` is set; returns nanoseconds of processor time per frame.
fn read(mut reader: Reader, arena: &Arena, stop: &AtomicBool) -> f64 {
    let load = Load::new(arena, (0..arena.len() as u32).collect());
    let mut frames = 0usize;
    let time = time_of(true, || {
        loop {
            for batch in load.batches() {
                reader.refresh();
                std::hint::black_box(reader.evaluate(batch, batch.all()));
                frames += batch.len();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    (time.as_nanos() as f64 / frames.max(1) as f64 * 1000.0).round() / 1000.0
}

/// Adds and removes rows at a given rate for a while; returns the edits per second reached.
fn edit_at(
    set: &mut PassSet,
    shape: ShapeId,
    rows: &[End],
    rate: u64,
    time: Duration,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut done = 0u64;
    while start.elapsed() < time {
        let due = (start.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        if done >= due {
            thread::sleep(Duration::from_micros(if rate == 0 { 1_000 } else { 50 }));
            continue;
        }
        for _ in 0..(due - done).div_ceil(2).min(BURST as u64) {
            let row = add(set, shape, rows[done as usize / 2 % rows.len()])?;
            remove(set, row)?;
            done += 2;
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// libpcap's compiler, with a prediction of its time.
struct Compiler {
    name: &'static str,
    optimize: bool,
    last: Option<(usize, Duration)>,
}

impl Compiler {
    fn new(name: &'static str, optimize: bool) -> Compiler {
        Compiler { name, optimize, last: None }
    }

    fn measure(&mut self, libpcap: &Libpcap, case: &str, rows: &[End], report: &mut Report) {
        if let Some((size, time)) = self.last {
            let growth = rows.len() as f64 / size.max(1) as f64;
            let foreseen = time.as_secs_f64() * growth.powi(if self.optimize { 3 } else { 2 });
            if foreseen > MAX_COMPILE.as_secs_f64() {
                let name = self.name;
                report.note(format!(
                    "{case}: {name} is skipped: {size} rows took {time:.1?}, \
                     more than 10 s are foreseen"
                ));
                return;
            }
        }
        let text = set_text(rows);
        let mut samples = Samples::default();
        let start = Instant::now();
        while samples.len() < 5 && (samples.is_empty() || start.elapsed().as_secs() < 2) {
            let mut program = None;
            let time = time_of(true, || {
                program = Some(libpcap.compile(LinkType::EN10MB, 262_144, &text, self.optimize));
            });
            if let Some(Err(error)) = program {
                return report.note(format!("{case}: {} refuses: {error}", self.name));
            }
            samples.push(time.as_nanos() as f64);
        }
        self.last = Some((rows.len(), Duration::from_nanos(samples.median() as u64)));
        let value = samples.median();
        let one = Measurement::value(BENCH, case, self.name, "add, p50", value, "ns");
        report.push(one.runs(samples.len()));
    }
}
