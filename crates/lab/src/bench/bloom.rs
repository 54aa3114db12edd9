//! `fyke bench bloom`: the Bloom stage in front of a table: false positives and the cost of a look-up.
//!
//! Measured beside D11's formula `(1 − e^(−kn/m))^k` for k = 2 and the same number of bits. Our array keeps both bits
//! of a key in one 32-bit word (one load), which costs some false positives. Against it: the look-up in the exact
//! table behind the same stage, and the standard library's hash set.

use super::measure::{Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::traffic::Random;
use super::{BenchError, Options, Progress};
use fyke_table::bloom::BloomCounters;
use fyke_table::hash::KeyHash;
use fyke_table::{BlockedBloom, RowTable, Seed};
use std::collections::HashSet;
use std::hint::black_box;

/// The bench's name in reports.
pub const BENCH: &str = "bloom";
const SIZES: [usize; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000];
const ENGINES: [&str; 3] = ["fyke-bloom", "fyke-table", "hash-set"];

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] when a key that is there is denied.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let sizes = if options.smoke { &SIZES[..2] } else { &SIZES[..] };
    let probes = if options.smoke { 10_000 } else { 400_000 };
    let mut report = Report::new(options);
    for (index, &size) in sizes.iter().enumerate() {
        let case = format!("n{size}");
        if options.wants_case(&case) {
            progress(&case, index, sizes.len());
            measure(options, &case, size, probes, &mut report)?;
        }
    }
    progress("done", sizes.len(), sizes.len());
    if report.measurements.is_empty() {
        let there = SIZES.map(|size| format!("n{size}")).join(", ");
        return Err(BenchError::NothingChosen { there });
    }
    Ok(report)
}

fn measure(
    options: &Options,
    case: &str,
    size: usize,
    probes: usize,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut random = Random::new(options.seed);
    let mut known = HashSet::with_capacity(size);
    while known.len() < size {
        known.insert([random.number() as u32, random.number() as u32 & 0xffff]);
    }
    // 16 bits per key and up to twice as many.
    let words_log2 = (size / 2).max(2).next_power_of_two().ilog2();
    let hash = KeyHash::new(&mut Seed::fixed(options.seed));
    let bloom = BlockedBloom::new(words_log2);
    let mut counters = BloomCounters::new(&bloom);
    let mut table = RowTable::new(2, Seed::fixed(options.seed));
    for (index, key) in known.iter().enumerate() {
        counters.insert(&bloom, hash.hash(key));
        let inserted = table.insert(key, index as u32);
        inserted.map_err(|error| BenchError::Other(format!("{case}: {error}")))?;
    }
    if let Some(frame) = known.iter().position(|key| !bloom.may_contain(hash.hash(key))) {
        return Err(BenchError::Mismatch {
            case: case.to_owned(),
            setting: "keys that are there".to_owned(),
            engine: ENGINES[0].to_owned(),
            reference: ENGINES[2].to_owned(),
            frame,
            frames: size,
            accepted: false,
        });
    }
    let mut absent = Vec::with_capacity(probes);
    while absent.len() < probes {
        let key = [random.number() as u32, random.number() as u32 & 0xffff];
        if !known.contains(&key) {
            absent.push(key);
        }
    }
    let wrong = absent.iter().filter(|key| bloom.may_contain(hash.hash(*key))).count();
    let bits = 32.0 * bloom.words().len() as f64;
    let formula = (1.0 - (-2.0 * size as f64 / bits).exp()).powi(2);
    let setting = format!("false positives, {:.1} bits per key", bits / size as f64);
    for (engine, rate) in [("fyke-bloom", wrong as f64 / probes as f64), ("formula", formula)] {
        let one = Measurement::value(BENCH, case, engine, &setting, 100.0 * rate, "%");
        report.push(one);
    }
    let mut reader = table.reader();
    let engines: Vec<_> = ENGINES.into_iter().filter(|name| options.wants_engine(name)).collect();
    let samples = rounds(
        &mut absent,
        engines.len(),
        5,
        |absent| random.shuffle(absent),
        |absent, engine| {
            let mut found = 0usize;
            let time = time_of(true, || {
                found = match engines[engine] {
                    "fyke-bloom" => {
                        absent.iter().filter(|key| bloom.may_contain(hash.hash(*key))).count()
                    }
                    "fyke-table" => absent.iter().filter(|key| reader.find(*key).is_some()).count(),
                    _ => absent.iter().filter(|key| known.contains(*key)).count(),
                }
            });
            black_box(found);
            Turn { time, units: absent.len() }
        },
    );
    for (engine, samples) in engines.iter().zip(samples) {
        let one =
            Measurement::value(BENCH, case, engine, "look-up, absent keys", samples.median(), "ns");
        report.push(one.runs(samples.len()));
    }
    Ok(())
}
