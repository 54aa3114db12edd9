//! `fyke bench bloom`: Bloom arrays: false positives compared with the formula, look-ups, edits, and frames against
//! rules.
//!
//! Two arrays with the same number of bits (k = 2), compared with the formula `(1 − e^(−kn/m))^k` of Deri's paper:
//!
//! - `fyke-counting`: the paper's array: two bits anywhere, and a collision list so that keys can be removed. The
//!   pre-filter uses this one ([`fyke_table::prefilter`]).
//! - `fyke-blocked`: both bits of a key in one word of 32 bits, with a counter of four bits for each: one load
//!   instead of two, but more false positives. Tables use this one before the exact look-up.
//!
//! Their look-ups are compared with `fyke-table`, the exact table that the second one protects, and with `hash-set`
//! of the standard library. Case `paper`: 1,000 keys in 1,999,000 bits, for which the paper states one false
//! positive in a million. Cases `rules…`: time of the whole pre-filter for a generated frame, with both ends and
//! every level of encapsulation, for a number of rules in three spaces. Case `array1`: the same for 1,000 rules that
//! all name address, port and protocol, so that a frame is looked up in one array, once for each end. Engines: a batch
//! at once (`fyke-prefilter`), frame by frame (`fyke-prefilter-frames`), and the pass engine with the same rules as
//! filters (`fyke`), which become rows of its tables. Every round has another order of the frames; their headers are in
//! the second-level cache.

mod live;
mod table2;

use super::engine::reader_of;
use super::frames::{Arena, CACHE_FRAMES, Load};
use super::measure::{Samples, Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::traffic::{Random, Traffic};
use super::{BenchError, Options, Progress};
use fyke_frame::{Batch, LinkType, Mask};
use fyke_pass::Reader;
use fyke_table::bloom::BloomCounters;
use fyke_table::hash::KeyHash;
use fyke_table::prefilter::counting::CountingBloom;
use fyke_table::prefilter::{Prefilter, PrefilterOptions, PrefilterReader, Rule};
use fyke_table::{BlockedBloom, RowTable, Seed};
use std::collections::HashSet;
use std::hint::black_box;
use std::net::Ipv4Addr;

pub use live::LIVE_ENGINES;

/// The bench's name in reports.
pub const BENCH: &str = "bloom";
const SIZES: [usize; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000];
/// Numbers of rules.
const RULES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
/// Number of rules of [`ARRAY1`].
const ARRAY1_RULES: usize = 1_000;
/// The case with rules in one array.
const ARRAY1: &str = "array1";
/// The paper's example: keys and bits.
const PAPER: (usize, u64) = (1_000, 1_999_000);
/// Engines that are compared key by key.
pub const ENGINES: [&str; 4] = ["fyke-counting", "fyke-blocked", "fyke-table", "hash-set"];
/// Number of edits that are timed together.
const BURST: usize = 64;

type Key = [u32; 2];

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] if an array does not find a key that it contains.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    if options.live {
        return live::run(options, progress);
    }
    let (sizes, rules, probes) = match options.smoke {
        true => (&SIZES[..2], &RULES[..2], 10_000),
        false => (&SIZES[..], &RULES[..], 400_000),
    };
    let mut report = Report::new(options);
    let total = sizes.len() + rules.len() + 2;
    for (index, &size) in sizes.iter().enumerate() {
        let case = format!("n{size}");
        if options.wants_case(&case) {
            progress(&case, index, total);
            measure(options, &case, size, probes, &mut report)?;
        }
    }
    if options.wants_case("paper") {
        progress("paper", sizes.len(), total);
        paper(options, &mut report)?;
    }
    let arrays = rules.iter().map(|&count| (format!("rules{count}"), count));
    for (index, (case, count)) in arrays.chain([(ARRAY1.to_owned(), ARRAY1_RULES)]).enumerate() {
        if options.wants_case(&case) {
            progress(&case, sizes.len() + 1 + index, total);
            frames(options, &case, count, &mut report)?;
        }
    }
    progress("done", total, total);
    if report.measurements.is_empty() {
        let sizes = SIZES.map(|size| format!("n{size}")).join(", ");
        let rules = RULES.map(|count| format!("rules{count}")).join(", ");
        return Err(BenchError::NothingChosen {
            there: format!("{sizes}, paper, {rules}, {ARRAY1}"),
        });
    }
    Ok(report)
}

/// Arrays and tables under comparison, with the same keys.
struct Sets {
    counting: CountingBloom,
    hash: KeyHash,
    blocked: BlockedBloom,
    counters: BloomCounters,
    table: RowTable,
    known: HashSet<Key>,
}

fn draw(random: &mut Random) -> Key {
    [random.number() as u32, random.number() as u32 & 0xffff]
}

/// Creates keys that are in none of the sets.
fn absent(random: &mut Random, known: &HashSet<Key>, count: usize) -> Vec<Key> {
    let mut absent = Vec::with_capacity(count);
    while absent.len() < count {
        let key = draw(random);
        if !known.contains(&key) {
            absent.push(key);
        }
    }
    absent
}

/// Creates the error for a key that was not found.
fn denied(case: &str, engine: &str, frame: usize, frames: usize) -> BenchError {
    BenchError::Mismatch {
        case: case.to_owned(),
        setting: "keys that are there".to_owned(),
        engine: engine.to_owned(),
        reference: "hash-set".to_owned(),
        frame,
        frames,
        accepted: false,
    }
}

impl Sets {
    fn new(case: &str, size: usize, random: &mut Random, seed: u64) -> Result<Sets, BenchError> {
        let mut known = HashSet::with_capacity(size);
        while known.len() < size {
            known.insert(draw(random));
        }
        // 16 to 32 bits per key.
        let words_log2 = (size / 2).max(2).next_power_of_two().ilog2();
        let blocked = BlockedBloom::new(words_log2);
        let bits = 32 * blocked.words().len() as u64;
        let mut sets = Sets {
            counting: CountingBloom::new(bits, &mut Seed::fixed(seed ^ 1)),
            hash: KeyHash::new(&mut Seed::fixed(seed)),
            counters: BloomCounters::new(&blocked),
            blocked,
            table: RowTable::new(2, Seed::fixed(seed)),
            known,
        };
        for (index, key) in sets.known.iter().enumerate() {
            sets.counting.add(key);
            sets.counters.insert(&sets.blocked, sets.hash.hash(key));
            let inserted = sets.table.insert(key, index as u32);
            inserted.map_err(|error| BenchError::Other(format!("{case}: {error}")))?;
        }
        sets.check(case)?;
        Ok(sets)
    }

    /// Checks that all keys are found.
    fn check(&self, case: &str) -> Result<(), BenchError> {
        let counting = |key: &Key| self.counting.bits().may_contain(key);
        let blocked = |key: &Key| self.blocked.may_contain(self.hash.hash(key));
        for (number, key) in self.known.iter().enumerate() {
            for (engine, holds) in [(ENGINES[0], counting(key)), (ENGINES[1], blocked(key))] {
                if !holds {
                    return Err(denied(case, engine, number, self.known.len()));
                }
            }
        }
        Ok(())
    }

    fn false_positives(&self, absent: &[Key]) -> [f64; 2] {
        let counting = absent.iter().filter(|key| self.counting.bits().may_contain(*key)).count();
        let maybe = |key: &&Key| self.blocked.may_contain(self.hash.hash(*key));
        let blocked = absent.iter().filter(maybe).count();
        [counting, blocked].map(|wrong| wrong as f64 / absent.len() as f64)
    }
}

fn measure(
    options: &Options,
    case: &str,
    size: usize,
    probes: usize,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut random = Random::new(options.seed);
    let mut sets = Sets::new(case, size, &mut random, options.seed)?;
    let absent = absent(&mut random, &sets.known, probes);
    let per_key = sets.counting.bits().bit_count() as f64 / size as f64;
    let setting = format!("false positives, {per_key:.1} bits per key");
    let [counting, blocked] = sets.false_positives(&absent);
    let formula = sets.counting.expected_false_positives();
    for (engine, rate) in [(ENGINES[0], counting), (ENGINES[1], blocked), ("formula", formula)] {
        report.push(Measurement::value(BENCH, case, engine, &setting, 100.0 * rate, "%"));
    }
    let entries = sets.counting.collision_count() as f64;
    let one = Measurement::value(BENCH, case, ENGINES[0], "collision list", entries, "entries");
    report.push(one);
    let keys = absent[..(BURST * 64).min(absent.len())].to_vec();
    look_ups(options, case, &sets, absent, &mut random, report);
    edits(case, &mut sets, &keys, report);
    sets.check(case)
}

fn look_ups(
    options: &Options,
    case: &str,
    sets: &Sets,
    mut absent: Vec<Key>,
    random: &mut Random,
    report: &mut Report,
) {
    let mut reader = sets.table.reader();
    let engines: Vec<_> = ENGINES.into_iter().filter(|name| options.wants_engine(name)).collect();
    let samples = rounds(
        &mut absent,
        engines.len(),
        5,
        |absent| random.shuffle(absent),
        |absent, engine| {
            let mut found = 0usize;
            let time = time_of(true, || {
                let keys = absent.iter();
                found = match engines[engine] {
                    "fyke-counting" => {
                        keys.filter(|key| sets.counting.bits().may_contain(*key)).count()
                    }
                    "fyke-blocked" => {
                        keys.filter(|key| sets.blocked.may_contain(sets.hash.hash(*key))).count()
                    }
                    "fyke-table" => keys.filter(|key| reader.find(*key).is_some()).count(),
                    _ => keys.filter(|key| sets.known.contains(*key)).count(),
                }
            });
            black_box(found);
            Turn { time, units: absent.len() }
        },
    );
    for (engine, samples) in engines.iter().zip(samples) {
        let (setting, ns) = ("look-up, absent keys", samples.median());
        let one = Measurement::value(BENCH, case, engine, setting, ns, "ns");
        report.push(one.runs(samples.len()));
    }
}

/// Adds and removes keys in bursts; at the end the sets are unchanged.
fn edits(case: &str, sets: &mut Sets, keys: &[Key], report: &mut Report) {
    let mut times: [[Samples; 2]; 2] = Default::default();
    let Sets { counting, hash, blocked, counters, .. } = sets;
    for burst in keys.chunks_exact(BURST.min(keys.len())) {
        let mut timed = |engine: usize, edit: usize, work: &mut dyn FnMut()| {
            let time = time_of(false, work);
            times[engine][edit].push(time.as_nanos() as f64 / burst.len() as f64);
        };
        timed(0, 0, &mut || burst.iter().for_each(|key| counting.add(key)));
        timed(0, 1, &mut || burst.iter().for_each(|key| counting.remove(key)));
        timed(1, 0, &mut || {
            burst.iter().for_each(|key| counters.insert(blocked, hash.hash(key)));
        });
        timed(1, 1, &mut || {
            burst.iter().for_each(|key| counters.remove(blocked, hash.hash(key)));
        });
    }
    for (engine, times) in ENGINES.iter().zip(&times) {
        for (setting, samples) in ["add, burst p50", "remove, burst p50"].iter().zip(times) {
            let one = Measurement::value(BENCH, case, engine, setting, samples.median(), "ns");
            report.push(one.runs(samples.len()));
        }
    }
}

/// The paper's example: one false positive in a million.
fn paper(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let (mut random, mut seed) = (Random::new(options.seed), Seed::fixed(options.seed));
    let mut filter = CountingBloom::new(PAPER.1, &mut seed);
    let known: HashSet<Key> = std::iter::repeat_with(|| draw(&mut random)).take(PAPER.0).collect();
    known.iter().for_each(|key| filter.add(key));
    if let Some(number) = known.iter().position(|key| !filter.bits().may_contain(key)) {
        return Err(denied("paper", ENGINES[0], number, known.len()));
    }
    let probes = if options.smoke { 100_000 } else { 20_000_000 };
    let mut wrong = 0_u64;
    for _ in 0..probes {
        let key = draw(&mut random);
        wrong += u64::from(filter.bits().may_contain(&key) && !known.contains(&key));
    }
    let setting = format!("false positives of {probes} look-ups, 1,000 keys in 249,875 bytes");
    let of_million = |rate: f64| 1e6 * rate;
    for (engine, rate) in
        [(ENGINES[0], wrong as f64 / probes as f64), ("formula", filter.expected_false_positives())]
    {
        let rate = of_million(rate);
        report.push(Measurement::value(BENCH, "paper", engine, &setting, rate, "per million"));
    }
    Ok(())
}

/// Maximum number of rules for which the pass engine's tables are measured too: it reads them as texts, one by one.
const MOST_TEXTS: usize = 100_000;

/// Creates rules for hosts with ports, and one in ten for a net unless all are in one array. Only the first rule
/// matches some generated frames: TCP with port 22, or in one array one end of the most frequent flow over IPv4.
fn rules(one_array: bool, count: usize, traffic: &Traffic, random: &mut Random) -> Vec<Rule> {
    let ssh = Rule::default().with_protocol(6).with_port(22);
    let flow = traffic.flows().iter().find(|flow| !flow.ipv6).filter(|_| one_array);
    let wanted = flow.map_or(ssh, |flow| {
        let (host, port) = flow.ends[1];
        ssh.with_net(Ipv4Addr::from(host).into(), 32).with_protocol(flow.protocol).with_port(port)
    });
    let others = (1..count).map(|number| {
        // 240.0.0.0/4 has no hosts.
        let address = Ipv4Addr::from(random.number() as u32 | 0xf000_0000).into();
        let prefix = if number % 10 == 0 && !one_array { 24 } else { 32 };
        let rule = Rule::default().with_net(address, prefix).with_protocol(17);
        rule.with_port(1024 + random.below(60_000) as u16)
    });
    [wanted].into_iter().chain(others).collect()
}

fn prefilter(case: &str, seed: u64, rules: &[Rule]) -> Result<Prefilter, BenchError> {
    let mut prefilter = Prefilter::new(PrefilterOptions::default(), Seed::fixed(seed));
    for rule in rules {
        let added = prefilter.add(*rule);
        added.map_err(|error| BenchError::Other(format!("{case}: {error}")))?;
    }
    Ok(prefilter)
}

/// Adds the rules as filters of the pass engine, which converts them to rows of its tables.
fn passes(rules: &[Rule]) -> Result<Reader, BenchError> {
    let texts = rules.iter().map(|rule| {
        let protocol = if rule.protocol() == Some(6) { "tcp" } else { "udp" };
        let port = rule.port().unwrap_or(0);
        let Some((net, prefix)) = rule.net() else { return format!("{protocol} port {port}") };
        let end = |side| format!("{side} net {net}/{prefix} and {side} port {port}");
        format!("{protocol} and ({} or {})", end("src"), end("dst"))
    });
    let wrong = |error: fyke_filter::Error| BenchError::Other(error.to_string());
    let compile = |text: String| fyke_filter::compile(&text, &fyke_filter::Options::default());
    let filters = texts.map(|text| compile(text).map_err(wrong)).collect::<Result<Vec<_>, _>>()?;
    reader_of(LinkType::EN10MB, &filters)
}

/// Engines that evaluate frames by rules.
struct Judges {
    batches: PrefilterReader,
    frames: PrefilterReader,
    passes: Option<Reader>,
}

/// Engines that are compared frame by frame.
pub const JUDGES: [&str; 3] = ["fyke-prefilter", "fyke-prefilter-frames", "fyke"];

impl Judges {
    /// Returns the frames of a batch that an engine accepts.
    fn judge(&mut self, engine: &str, batch: &Batch<'_>) -> Mask {
        if engine == JUDGES[0] {
            return self.batches.decide(batch, batch.all()).passed;
        }
        if let (Some(passes), true) = (&mut self.passes, engine == JUDGES[2]) {
            return passes.evaluate_uncounted(batch, batch.all());
        }
        let mut passed = Mask::EMPTY;
        for (index, frame) in batch.frames().iter().enumerate() {
            if self.frames.passes(frame) {
                passed.set(index);
            }
        }
        passed
    }
}

/// Measures frames against rules, one by one and in batches, and the pass engine with the same rules.
fn frames(
    options: &Options,
    case: &str,
    count: usize,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut random = Random::new(options.seed ^ count as u64);
    let mut traffic = Traffic::new(options.seed);
    let rules = rules(case == ARRAY1, count, &traffic, &mut random);
    let mut exact = prefilter(case, options.seed ^ 9, &rules[..1])?.reader();
    let prefilter = prefilter(case, options.seed, &rules)?;
    let texts = count <= MOST_TEXTS && options.wants_engine(JUDGES[2]);
    let passes = texts.then(|| passes(&rules)).transpose()?;
    let mut judges = Judges { batches: prefilter.reader(), frames: prefilter.reader(), passes };
    let engines = JUDGES.into_iter().filter(|name| options.wants_engine(name));
    let engines: Vec<_> = engines.filter(|&name| name != JUDGES[2] || texts).collect();
    let arena = Arena::synthetic(&mut traffic, if options.smoke { 512 } else { CACHE_FRAMES }, 0);
    let mut load = Load::new(&arena, (0..arena.len() as u32).collect());
    let accepted = accepted(case, &mut exact, &load, &mut judges, &engines)?;
    let samples = rounds(
        &mut load,
        engines.len(),
        if options.smoke { 2 } else { 101 },
        |load| load.shuffle(&mut random),
        |load, engine| {
            load.touch();
            let time = time_of(false, || {
                for batch in load.batches() {
                    black_box(judges.judge(engines[engine], batch));
                }
            });
            Turn { time, units: load.len() }
        },
    );
    for ((engine, samples), &accepted) in engines.iter().zip(&samples).zip(&accepted[1..]) {
        let setting = "cache, synthetic";
        let one = Measurement::per_packet(BENCH, case, engine, setting, samples.median());
        report.push(Measurement { accepted: Some(accepted), ..one.runs(samples.len()) });
    }
    let wrong = accepted.get(1).map_or(0, |passed| passed.saturating_sub(accepted[0]));
    let share = 100.0 * wrong as f64 / arena.len() as f64;
    // Each array is searched for both ends; generated frames without IPv4 or ports are skipped.
    let clear = prefilter.stats().into_iter().map(|space| 1.0 - space.expected_false_positives);
    let expected = 1.0 - clear.map(|rate| rate * rate).product::<f64>();
    let setting = "frames passed that no rule names";
    report.push(Measurement::value(BENCH, case, JUDGES[0], setting, share, "%"));
    report.push(Measurement::value(BENCH, case, "formula", setting, 100.0 * expected, "%"));
    Ok(())
}

/// Counts the accepted frames, after a check that all engines accept those of `exact`, which has only the first rule.
fn accepted(
    case: &str,
    exact: &mut PrefilterReader,
    load: &Load<'_>,
    judges: &mut Judges,
    engines: &[&str],
) -> Result<Vec<u64>, BenchError> {
    let mut accepted = vec![0; 1 + engines.len()];
    for batch in load.batches() {
        let wanted = exact.decide(batch, batch.all()).passed;
        accepted[0] += wanted.count() as u64;
        for (engine, accepted) in engines.iter().zip(&mut accepted[1..]) {
            let passed = judges.judge(engine, batch);
            let missed = wanted.without(passed).iter().next();
            // Compiled filters do not match tagged frames and fragments without ports.
            if let (Some(frame), true) = (missed, *engine != JUDGES[2]) {
                return Err(denied(case, engine, frame, batch.len()));
            }
            *accepted += passed.count() as u64;
        }
    }
    Ok(accepted)
}
