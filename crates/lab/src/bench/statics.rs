//! `fyke bench static`: filters that do not change, all engines, from cache and from DRAM.
//!
//! For each trace and case, frames are measured as they come (`mixed`), and accepted and rejected ones on their own
//! (S49: the paper reports the larger of the two). Cache-resident: 4,096 frames in a fresh random order every round.
//! DRAM-resident: at least 500 MB of frames in sequence, caches evicted before every turn. A slow engine gets fewer
//! frames a turn, whole batches from the beginning, so that no turn takes longer than `Scale::turn`.

use super::engine::{Engine, Floor, Fyke, Interpreter, Jit, OptC, words};
use super::filters::{SET_SIZES, pairs, set_text, static_filters};
use super::frames::{Arena, CACHE_FRAMES, Eviction, Load};
use super::hash::Hash;
use super::measure::{Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::traffic::{End, Random, Traffic};
use super::{BenchError, Options, Progress};
use crate::peers::jit::Code;
use crate::peers::libpcap::Libpcap;
use crate::peers::opt_c::Object;
use fyke_filter::Predicate;
use fyke_frame::{BATCH_CAPACITY, LinkType};
use std::time::{Duration, Instant};

/// The bench's name in reports.
pub const BENCH: &str = "static";
const SNAPLEN: u32 = 262_144;
/// libpcap's compiler is not asked for more (host, port) pairs: it would take minutes.
const MAX_COMPILED_PAIRS: usize = 100;
/// The engine without tables is not asked for more: it would take microseconds a frame.
const MAX_PASSES: usize = 1_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Scale {
    cache_frames: usize,
    dram_frames: usize,
    dram_bytes: usize,
    evicted_bytes: usize,
    cache_rounds: usize,
    dram_rounds: usize,
    /// Longest turn of an engine.
    turn: Duration,
    /// Longest comparison of verdicts; beyond it the first frames are compared.
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
                turn: Duration::from_millis(5),
                check: Duration::from_millis(50),
                max_set: 100,
            }
        } else {
            Scale {
                cache_frames: CACHE_FRAMES,
                dram_frames: 1 << 19,
                dram_bytes: 512 << 20,
                evicted_bytes: 128 << 20,
                cache_rounds: 41,
                dram_rounds: 5,
                turn: Duration::from_millis(400),
                check: Duration::from_secs(3),
                max_set: usize::MAX,
            }
        }
    }
}

/// A case before its engines are made.
struct Case {
    name: String,
    text: String,
    pairs: Vec<End>,
    /// Ablations are measured too.
    ablations: bool,
    /// From DRAM too.
    dram: bool,
}

/// What all cases of a run have in common.
struct Bench<'o> {
    options: &'o Options,
    scale: Scale,
    libpcap: Option<Libpcap>,
    /// F1–F6 in C; without a compiler nothing is compiled.
    object: Option<Object>,
    report: Report,
    eviction: Eviction,
    random: Random,
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError`]; a disagreement of two engines among them.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let scale = Scale::of(options);
    let traffic = Traffic::new(options.seed);
    let cases = cases(options, &traffic, scale)?;
    let mut bench = Bench {
        options,
        scale,
        libpcap: None,
        object: None,
        report: Report::new(options),
        eviction: Eviction::new(scale.evicted_bytes),
        random: Random::new(options.seed ^ 0x5eed),
    };
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
    progress("done", total, total);
    Ok(bench.report)
}

fn cases(options: &Options, traffic: &Traffic, scale: Scale) -> Result<Vec<Case>, BenchError> {
    let mut cases = Vec::new();
    for (name, text) in static_filters() {
        let pairs = Vec::new();
        cases.push(Case { name: name.to_owned(), text, pairs, ablations: true, dram: true });
    }
    for size in SET_SIZES.into_iter().filter(|&size| size <= scale.max_set) {
        let name = format!("D{size}");
        if options.wants_case(&name) {
            let pairs = pairs(traffic, size);
            cases.push(Case { name, text: set_text(&pairs), pairs, ablations: false, dram: true });
        }
    }
    let there: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    cases.retain(|case| options.wants_case(&case.name));
    if let Some(path) = &options.real_filters {
        let text = std::fs::read_to_string(path)
            .map_err(|error| BenchError::File { path: path.clone(), message: error.to_string() })?;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split('\t');
            let text = fields.next().unwrap_or_default().trim().to_owned();
            if !text.is_empty() && fields.next().is_none_or(|link| link == "EN10MB") {
                let pairs = Vec::new();
                cases.push(Case { name: text.clone(), text, pairs, ablations: false, dram: false });
            }
        }
    }
    if cases.is_empty() {
        return Err(BenchError::NothingChosen { there: there.join(", ") });
    }
    Ok(cases)
}

impl Bench<'_> {
    fn case(&mut self, case: &Case, arena: &Arena, trace: &str) -> Result<(), BenchError> {
        let mut engines = self.engines(case)?;
        engines.retain(|engine| self.options.wants_engine(engine.name()));
        if engines.is_empty() {
            return Err(BenchError::NothingChosen { there: ENGINES.to_owned() });
        }
        let count = u32::try_from(arena.len()).unwrap_or(u32::MAX);
        let everything: Vec<u32> = (0..count).collect();
        let split = self.split(&mut engines, arena, &everything);
        let kinds = [("mixed", everything), ("accepted", split.0), ("rejected", split.1)];
        for (kind, numbers) in kinds {
            if numbers.is_empty() {
                self.report.note(format!("{}: no frame of the {trace} trace is {kind}", case.name));
                continue;
            }
            let some = self.sample(&numbers);
            let setting = format!("cache, {trace}, {kind}");
            let compact = arena.copy_of(&some);
            let order = (0..some.len() as u32).collect();
            self.measure(case, &setting, &mut engines, Load::new(&compact, order))?;
            if case.dram {
                let setting = format!("dram, {trace}, {kind}");
                self.measure(case, &setting, &mut engines, Load::new(arena, numbers))?;
            }
        }
        Ok(())
    }

    /// The engines of a case; what cannot take part is noted.
    fn engines(&mut self, case: &Case) -> Result<Vec<Box<dyn Engine>>, BenchError> {
        let failed = |message: String| BenchError::Text { case: case.name.clone(), message };
        let predicate = fyke_filter::compile(&case.text, &fyke_filter::Options::default())
            .map_err(|error| failed(error.to_string()))?;
        let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(Floor)];
        self.libpcap_engines(case, &mut engines);
        self.c_engines(case, &predicate, &mut engines);
        self.own_engines(case, &predicate, &mut engines);
        Ok(engines)
    }

    fn libpcap_engines(&mut self, case: &Case, engines: &mut Vec<Box<dyn Engine>>) {
        let Some(libpcap) = &self.libpcap else { return };
        if case.pairs.len() > MAX_COMPILED_PAIRS {
            self.report.note(format!(
                "{}: not compiled by libpcap, which takes minutes for more than {} pairs",
                case.name, MAX_COMPILED_PAIRS
            ));
            return;
        }
        match libpcap.compile(LinkType::EN10MB, SNAPLEN, &case.text, true) {
            Ok(program) => {
                match Code::new(program.instructions()) {
                    Ok(code) => engines.push(Box::new(Jit(code))),
                    Err(error) => self.report.note(format!("{}: without JIT: {error}", case.name)),
                }
                engines.push(Box::new(Interpreter(program)));
            }
            Err(error) => self.report.note(format!("{}: without libpcap: {error}", case.name)),
        }
    }

    fn c_engines(
        &mut self,
        case: &Case,
        predicate: &Predicate,
        engines: &mut Vec<Box<dyn Engine>>,
    ) {
        if !case.pairs.is_empty() {
            match Hash::new(&case.pairs) {
                Ok(hash) => engines.push(Box::new(hash)),
                Err(error) => self.report.note(format!("{}: without hash: {error}", case.name)),
            }
            return;
        }
        let made = match (&self.object, case.ablations) {
            (None, _) => return,
            (Some(object), true) => OptC::forms(object, &case.name).map(|forms| forms.into()),
            (Some(_), false) => OptC::of_text(predicate).map(|one| one.into_iter().collect()),
        };
        let made: Vec<OptC> = match made {
            Ok(made) => made,
            Err(error) => return self.report.note(format!("{}: without C: {error}", case.name)),
        };
        if made.is_empty() {
            self.report.note(format!("{}: too deep for the C compiler", case.name));
        }
        made.into_iter().for_each(|one| engines.push(Box::new(one)));
    }

    fn own_engines(
        &mut self,
        case: &Case,
        predicate: &Predicate,
        engines: &mut Vec<Box<dyn Engine>>,
    ) {
        let ablations = case.ablations || (1..=MAX_PASSES).contains(&case.pairs.len());
        let ours = match ablations || !case.pairs.is_empty() {
            true => Fyke::with_ablations(predicate, ablations),
            false => Fyke::new(predicate).map(|one| vec![one]),
        };
        match ours {
            Ok(ours) => ours.into_iter().for_each(|one| engines.push(Box::new(one))),
            Err(error) => self.report.note(format!("{}: without fyke: {error}", case.name)),
        }
    }

    /// The numbers of accepted and rejected frames, by the engine that is fastest on the first ones.
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

    /// As many of them as the cache holds, repeated when there are too few.
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
        let counts: Vec<[usize; 2]> = engines
            .iter_mut()
            .map(|engine| {
                let cost = per_frame(engine.as_mut(), &load);
                [within(scale.turn, cost, load.len()), within(scale.check, cost, load.len())]
            })
            .collect();
        let answers = compare(case, setting, engines, &load, &counts)?;
        let (random, eviction) = (&mut self.random, &mut self.eviction);
        let rounds_wanted = if cached { scale.cache_rounds } else { scale.dram_rounds };
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
                } else {
                    eviction.run();
                }
                let time = time_of(!cached, || engine.judge(load, count, &mut verdicts));
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

/// Engines of this bench, for the error message.
const ENGINES: &str = "floor, libpcap, jit, opt-c, opt-c-prefetch, opt-c-branchfree, hash, fyke, \
    fyke-avx512, fyke-avx2, fyke-portable, no-hierarchy, no-simd, no-tables, no-batch";

/// What an engine takes for one of the first frames of a load, roughly.
fn per_frame(engine: &mut dyn Engine, load: &Load) -> Duration {
    let count = load.len().min(BATCH_CAPACITY);
    let mut verdicts = vec![0; words(count)];
    engine.judge(load, count, &mut verdicts);
    let start = Instant::now();
    engine.judge(load, count, &mut verdicts);
    start.elapsed() / count.max(1) as u32
}

/// How many frames fit into a time: all, or whole batches.
fn within(time: Duration, per_frame: Duration, frames: usize) -> usize {
    let count = time.as_nanos() / per_frame.as_nanos().max(1);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count >= frames { frames } else { (count / BATCH_CAPACITY).max(1) * BATCH_CAPACITY }
        .min(frames)
}

/// Accepted frames and checksum of an engine that judged all frames.
type Answer = Option<(u64, u64)>;

/// Compares the engines' verdicts bit by bit, each as far as its time allows.
fn compare(
    case: &Case,
    setting: &str,
    engines: &mut [Box<dyn Engine>],
    load: &Load,
    counts: &[[usize; 2]],
) -> Result<Vec<Answer>, BenchError> {
    let judges = (0..engines.len()).filter(|&index| engines[index].has_verdicts());
    let Some(first) = judges.max_by_key(|&index| counts[index][1]) else {
        return Ok(vec![None; engines.len()]);
    };
    let mut expected = vec![0; words(load.len())];
    let known = counts[first][1];
    engines[first].judge(load, known, &mut expected);
    let reference = engines[first].name().to_owned();
    let mut verdicts = vec![0; words(load.len())];
    let mut answers = Vec::new();
    for (engine, &[_, count]) in engines.iter_mut().zip(counts) {
        if !engine.has_verdicts() {
            answers.push(None);
            continue;
        }
        let count = count.min(known);
        verdicts.fill(0);
        engine.judge(load, count, &mut verdicts);
        let bit = |words: &[u64], frame: usize| words[frame / 64] >> (frame % 64) & 1 == 1;
        let differs = |&frame: &usize| bit(&verdicts, frame) != bit(&expected, frame);
        if let Some(frame) = (0..count).find(differs) {
            return Err(BenchError::Mismatch {
                case: case.name.clone(),
                setting: setting.to_owned(),
                engine: engine.name().to_owned(),
                reference,
                frame,
                frames: count,
                accepted: verdicts[frame / 64] >> (frame % 64) & 1 == 1,
            });
        }
        answers.push((count == load.len()).then(|| summary(&verdicts)));
    }
    Ok(answers)
}

/// Number of accepted frames, and which, as one number.
fn summary(verdicts: &[u64]) -> (u64, u64) {
    let accepted = verdicts.iter().map(|word| u64::from(word.count_ones())).sum();
    let checksum = verdicts.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    // Numbers beyond 2^53 are not exact in every JSON reader.
    (accepted, checksum >> 11)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts the frames whose number is a multiple of the divisor.
    struct Every(&'static str, usize);

    impl Engine for Every {
        fn name(&self) -> &str {
            self.0
        }

        fn judge(&mut self, _: &Load, count: usize, verdicts: &mut [u64]) {
            verdicts.fill(0);
            (0..count).step_by(self.1).for_each(|frame| verdicts[frame / 64] |= 1 << (frame % 64));
        }
    }

    #[test]
    fn engines_that_disagree_are_named_with_the_frame() {
        let mut traffic = Traffic::new(1);
        let arena = Arena::synthetic(&mut traffic, 1_000, 0);
        let load = Load::new(&arena, (0..1_000).collect());
        let (name, text, pairs) = ("F0".to_owned(), String::new(), Vec::new());
        let case = Case { name, text, pairs, ablations: false, dram: false };
        let counts = [[1_000, 1_000], [1_000, 512]];
        let mut alike: Vec<Box<dyn Engine>> =
            vec![Box::new(Every("a", 3)), Box::new(Every("b", 3))];
        let answers = compare(&case, "cache", &mut alike, &load, &counts).unwrap();
        assert_eq!(answers[0].map(|(accepted, _)| accepted), Some(334));
        assert_eq!(answers[1], None, "a part of the frames was compared");
        let mut unlike: Vec<Box<dyn Engine>> =
            vec![Box::new(Every("a", 3)), Box::new(Every("b", 6))];
        match compare(&case, "cache", &mut unlike, &load, &counts) {
            Err(BenchError::Mismatch { engine, reference, frame, accepted, .. }) => {
                assert_eq!(
                    (engine.as_str(), reference.as_str(), frame, accepted),
                    ("b", "a", 3, false)
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_slow_engine_gets_whole_batches() {
        let ms = Duration::from_millis;
        assert_eq!(within(ms(10), Duration::from_micros(1), 1_000_000), 9_984);
        assert_eq!(within(ms(10), Duration::from_micros(1), 1_000), 1_000);
        assert_eq!(within(ms(10), ms(1), 100), 100);
        assert_eq!(within(ms(10), ms(1), 1_000), 256);
    }
}
