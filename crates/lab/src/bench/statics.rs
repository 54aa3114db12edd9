//! `fyke bench static`: filters that do not change, on all engines, from cache and from DRAM.
//!
//! For each trace and case, frames are measured as they come (`mixed`), and accepted and rejected ones separately;
//! `larger` is the larger of the two times, which the paper reports. Cache-resident: 4,096 frames in a new random
//! order every round. DRAM-resident: hundreds of megabytes of frames in sequence, with caches evicted before every
//! turn. A slow engine gets fewer frames per turn, whole batches from the beginning, so that no turn takes longer
//! than `Scale::turn`.
//!
//! Cases: F1–F6 and D10–D100000 ([`super::filters`]), with ablations; `real`, all texts of a file, from the cache
//! with frames as they come, and the distribution of the engines' ratios over them (`derived.rs`); `split`, the time of
//! a packet by instructions, and the overhead of interpretation (`split.rs`).

mod compare;
mod derived;
mod lineup;
mod split;

pub use lineup::ENGINES;

use super::engine::{Engine, words};
use super::filters::{SET_SIZES, pairs, set_text, static_filters};
use super::frames::{Arena, CACHE_FRAMES, Eviction, Load};
use super::measure::{Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::traffic::{End, Random, Traffic};
use super::{BenchError, Options, Progress};
use crate::peers::libpcap::Libpcap;
use crate::peers::opt_c::Object;
use compare::{compare, per_frame, within};
use fyke_frame::BATCH_CAPACITY;
use std::path::PathBuf;
use std::time::Duration;

/// The bench's name in reports.
pub const BENCH: &str = "static";
/// The case for all texts of a file.
const REAL: &str = "real";
/// Minimum duration of turns measured by processor time, from the cache too.
const LONG: Duration = Duration::from_micros(500);
/// Number of texts of the file that run at smoke size.
const SMOKE_TEXTS: usize = 8;

/// Size of the measurement.
#[derive(Debug, Clone, Copy)]
struct Scale {
    cache_frames: usize,
    dram_frames: usize,
    dram_bytes: usize,
    evicted_bytes: usize,
    cache_rounds: usize,
    dram_rounds: usize,
    /// Rounds for a text of the file.
    text_rounds: usize,
    /// Maximum duration of an engine's turn.
    turn: Duration,
    cache_turn: Duration,
    /// Time limit for the comparison of verdicts; if exceeded, only the first frames are compared.
    check: Duration,
    max_set: usize,
}

impl Scale {
    fn of(options: &Options) -> Scale {
        if options.smoke {
            Scale {
                cache_frames: 512,
                dram_frames: 2_048,
                dram_bytes: 0,
                evicted_bytes: 1 << 20,
                cache_rounds: 3,
                dram_rounds: 1,
                text_rounds: 1,
                turn: Duration::from_millis(5),
                cache_turn: Duration::from_millis(5),
                check: Duration::from_millis(50),
                max_set: 100,
            }
        } else {
            Scale {
                cache_frames: CACHE_FRAMES,
                dram_frames: 1 << 18,
                dram_bytes: 256 << 20,
                evicted_bytes: 64 << 20,
                // Tenths of a second: shorter measurements show the load of other processes.
                cache_rounds: 201,
                dram_rounds: 3,
                text_rounds: 41,
                turn: Duration::from_millis(100),
                cache_turn: Duration::from_millis(3),
                check: Duration::from_millis(500),
                max_set: usize::MAX,
            }
        }
    }
}

/// Kind of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// F1–F6: hand-written C, ablations.
    Static,
    /// D10–D100000: a filter for each pair.
    Set,
    /// A text of the file: from the cache only, frames as they come.
    Real,
}

/// A case before its engines are built.
struct Case {
    name: String,
    text: String,
    pairs: Vec<End>,
    kind: Kind,
}

/// Data common to all cases of a run.
struct Bench<'o> {
    options: &'o Options,
    scale: Scale,
    libpcap: Option<Libpcap>,
    /// F1–F6 in C; none without a compiler.
    object: Option<Object>,
    report: Report,
    eviction: Eviction,
    random: Random,
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError`], for example if two engines disagree.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let scale = Scale::of(options);
    let traffic = Traffic::new(options.seed);
    let mut bench = Bench {
        options,
        scale,
        libpcap: None,
        object: None,
        report: Report::new(options),
        eviction: Eviction::new(scale.evicted_bytes),
        random: Random::new(options.seed ^ 0x5eed),
    };
    let cases = cases(options, &traffic, scale, &mut bench.report)?;
    match Libpcap::load() {
        Ok(libpcap) => bench.libpcap = Some(libpcap),
        Err(error) => bench.report.note(format!("without libpcap and its JIT: {error}")),
    }
    match Object::static_filters() {
        Ok(object) => bench.object = Some(object),
        Err(error) => bench.report.note(format!("without Opt-C: {error}")),
    }
    let traces = if options.trace.is_some() { 2 } else { 1 };
    let total = traces * cases.len();
    if let Some(path) = &options.trace {
        let mut arena = Arena::from_file(path, 0)?;
        arena.repeat_to(scale.dram_bytes);
        for (index, case) in cases.iter().enumerate() {
            progress(&format!("{} on the trace", case.name), index, total);
            bench.case(case, &arena, "real")?;
        }
    } else {
        bench.report.note("no real trace: give one with --trace FILE".to_owned());
    }
    let done = total - cases.len();
    let arena =
        Arena::synthetic(&mut Traffic::new(options.seed), scale.dram_frames, scale.dram_bytes);
    for (index, case) in cases.iter().enumerate() {
        progress(&format!("{} on generated frames", case.name), done + index, total);
        bench.case(case, &arena, "synthetic")?;
    }
    if options.wants_case(split::CASE) {
        progress(split::CASE, total, total);
        split::measure(&mut bench)?;
    }
    progress("done", total, total);
    let texts: Vec<&str> =
        cases.iter().filter(|case| case.kind == Kind::Real).map(Case::name).collect();
    derived::spread(&mut bench.report, &texts);
    Ok(bench.report)
}

impl Case {
    fn name(&self) -> &str {
        &self.name
    }
}

fn cases(
    options: &Options,
    traffic: &Traffic,
    scale: Scale,
    report: &mut Report,
) -> Result<Vec<Case>, BenchError> {
    let mut cases = Vec::new();
    for (name, text) in static_filters() {
        let (name, pairs) = (name.to_owned(), Vec::new());
        cases.push(Case { name, text, pairs, kind: Kind::Static });
    }
    for size in SET_SIZES.into_iter().filter(|&size| size <= scale.max_set) {
        let name = format!("D{size}");
        if options.wants_case(&name) {
            let pairs = pairs(traffic, size);
            cases.push(Case { name, text: set_text(&pairs), pairs, kind: Kind::Set });
        }
    }
    let mut there: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    there.extend([REAL.to_owned(), split::CASE.to_owned()]);
    cases.retain(|case| options.wants_case(&case.name));
    if options.wants_case(REAL) || options.real_filters.is_some() {
        match texts_file(options) {
            Some(path) => cases.extend(texts_of(&path, options.smoke)?),
            None => report.note(format!(
                "{REAL} is skipped: no file of filter texts; give one with --real-filters FILE"
            )),
        }
    }
    if cases.is_empty() && ![REAL, split::CASE].iter().any(|case| options.wants_case(case)) {
        return Err(BenchError::NothingChosen { there: there.join(", ") });
    }
    Ok(cases)
}

/// Path of the file of texts: the given one, or the one in the folder of test data.
fn texts_file(options: &Options) -> Option<PathBuf> {
    const NAME: &str = "filters/real-filters.txt";
    let shared = std::env::var_os("FYKE_SHARED").map(PathBuf::from);
    let beside = ["shared", "../shared"].map(PathBuf::from);
    let folders = shared.into_iter().chain(beside);
    let known = folders.map(|folder| folder.join(NAME)).find(|path| path.exists());
    options.real_filters.clone().or(known)
}

/// Reads the texts for Ethernet. The link type follows the first tab; further columns are ignored.
fn texts_of(path: &PathBuf, smoke: bool) -> Result<Vec<Case>, BenchError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| BenchError::File { path: path.clone(), message: error.to_string() })?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let texts = lines.filter_map(|line| {
        let mut fields = line.split('\t');
        let text = fields.next().unwrap_or_default().trim().to_owned();
        let ethernet = fields.next().is_none_or(|link| link == "EN10MB");
        (ethernet && !text.is_empty()).then_some(text)
    });
    let case =
        |text: String| Case { name: text.clone(), text, pairs: Vec::new(), kind: Kind::Real };
    Ok(texts.map(case).take(if smoke { SMOKE_TEXTS } else { usize::MAX }).collect())
}

impl Bench<'_> {
    fn case(&mut self, case: &Case, arena: &Arena, trace: &str) -> Result<(), BenchError> {
        let mut engines = self.engines(case)?;
        engines.retain(|engine| self.options.wants_engine(engine.name()));
        if engines.is_empty() && case.kind != Kind::Real {
            return Err(BenchError::NothingChosen { there: ENGINES.join(", ") });
        }
        let count = u32::try_from(arena.len()).unwrap_or(u32::MAX);
        let everything: Vec<u32> = (0..count).collect();
        if case.kind == Kind::Real {
            let compact = arena.copy_of(&self.sample(&everything));
            let load = Load::new(&compact, (0..compact.len() as u32).collect());
            return self.measure(case, &format!("cache, {trace}, mixed"), &mut engines, load);
        }
        let split = self.split(&mut engines, arena, &everything);
        let first = self.report.measurements.len();
        let kinds = [("mixed", everything), ("accepted", split.0), ("rejected", split.1)];
        for (kind, numbers) in kinds {
            if numbers.is_empty() {
                self.report.note(format!("{}: no frame of the {trace} trace is {kind}", case.name));
                continue;
            }
            let compact = arena.copy_of(&self.sample(&numbers));
            let load = Load::new(&compact, (0..compact.len() as u32).collect());
            self.measure(case, &format!("cache, {trace}, {kind}"), &mut engines, load)?;
            let load = Load::new(arena, numbers);
            self.measure(case, &format!("dram, {trace}, {kind}"), &mut engines, load)?;
        }
        derived::larger(&mut self.report, first);
        derived::is_jit_a_peer(&mut self.report, first);
        Ok(())
    }

    /// Indices of accepted and rejected frames, by the engine that is fastest on the first ones.
    fn split(
        &self,
        engines: &mut [Box<dyn Engine>],
        arena: &Arena,
        everything: &[u32],
    ) -> (Vec<u32>, Vec<u32>) {
        let load = Load::new(arena, everything.to_vec());
        let costs: Vec<Duration> =
            engines.iter_mut().map(|engine| per_frame(engine.as_mut(), &load)).collect();
        let judges = (0..engines.len()).filter(|&index| engines[index].has_verdicts());
        let Some(judge) = judges.min_by_key(|&index| costs[index]) else {
            return (Vec::new(), Vec::new());
        };
        let judge = &mut engines[judge];
        let mut verdicts = vec![0; words(load.len())];
        judge.judge(&load, load.len(), &mut verdicts);
        let accepted = |&&number: &&u32| verdicts[number as usize / 64] >> (number % 64) & 1 == 1;
        everything.iter().partition(|number| accepted(number))
    }

    /// Returns as many of them as the cache holds, repeated if there are too few.
    fn sample(&mut self, numbers: &[u32]) -> Vec<u32> {
        let wanted = self.scale.cache_frames;
        if numbers.len() <= wanted {
            return numbers.iter().copied().cycle().take(wanted).collect();
        }
        let step = numbers.len() / wanted;
        let start = self.random.below(step);
        numbers.iter().copied().skip(start).step_by(step).take(wanted).collect()
    }

    fn measure(
        &mut self,
        case: &Case,
        setting: &str,
        engines: &mut [Box<dyn Engine>],
        mut load: Load,
    ) -> Result<(), BenchError> {
        let cached = setting.starts_with("cache");
        let scale = self.scale;
        let costs: Vec<Duration> =
            engines.iter_mut().map(|engine| per_frame(engine.as_mut(), &load)).collect();
        let turn = if cached { scale.cache_turn } else { scale.turn };
        let counts: Vec<[usize; 2]> = (costs.iter())
            .map(|&cost| [turn, scale.check].map(|time| within(time, cost, load.len())))
            .collect();
        let answers = compare(&case.name, setting, engines, &load, &counts)?;
        let (random, eviction) = (&mut self.random, &mut self.eviction);
        let rounds_wanted = match (cached, case.kind) {
            (_, Kind::Real) => scale.text_rounds,
            (true, _) => scale.cache_rounds,
            (false, _) => scale.dram_rounds,
        };
        let mut verdicts = vec![0; words(load.len())];
        let samples = rounds(
            &mut load,
            engines.len(),
            rounds_wanted,
            |load| {
                if cached {
                    load.shuffle(random);
                }
            },
            |load, index| {
                let (engine, count) = (&mut engines[index], counts[index][0]);
                if cached {
                    engine.judge(load, count.min(2 * BATCH_CAPACITY), &mut verdicts);
                    load.touch();
                } else {
                    eviction.run();
                }
                let long = !cached || costs[index] * count as u32 > LONG;
                let time = time_of(long, || engine.judge(load, count, &mut verdicts));
                std::hint::black_box(&verdicts);
                Turn { time, units: count }
            },
        );
        for ((engine, samples), answer) in engines.iter().zip(samples).zip(answers) {
            let median = (samples.median() * 1000.0).round() / 1000.0;
            let one = Measurement::per_packet(BENCH, &case.name, engine.name(), setting, median);
            let (accepted, checksum) = answer.unzip();
            self.report.push(Measurement { accepted, checksum, ..one.runs(samples.len()) });
        }
        Ok(())
    }
}
