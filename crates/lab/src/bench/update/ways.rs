//! The two methods by which an edit of a row can reach readers: one table shared by all, or a log and one replica
//! each.
//!
//! The tables have two-word keys (address, port) and are used without the engine. A reader looks up batches of 256
//! keys without a pause (one key of four is present), a writer adds and removes rows at several rates. *Shared*:
//! the writer stores into the table that the reader searches. *Log*: the writer appends to a bounded log, and the
//! reader applies it to a table of its own between two batches. Measured: the writer's time per edit, the reader's
//! time per look-up, and the total processor time per edit, including the slow-down of the reader. There is one
//! worker only: each further worker adds an apply and a replica to the cost of the log.
//!
//! `docs/decisions/0004-edits-in-tables.md` is based on these figures.

use super::super::measure::{Samples, time_of};
use super::super::report::{Measurement, Report};
use super::super::traffic::Random;
use super::super::{BenchError, Options};
use super::BENCH;
use fyke_frame::Mask;
use fyke_table::{Column, RowTable, Seed, TableError, TableReader};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Numbers of rows.
const SIZES: [usize; 2] = [1_000, 100_000];
/// Target rates in edits per second; the last is unlimited.
const RATES: [u64; 4] = [1_000, 100_000, 1_000_000, u64::MAX];
const WAYS: [(&str, Way); 2] = [("table-shared", Way::Shared), ("table-log", Way::Log)];
/// Number of edits that the log holds.
const LOG_LEN: usize = 1 << 16;
const BURST: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Shared,
    Log,
}

type Key = [u32; 2];

/// A bounded log with one writer and one reader: key and operation in two words.
struct Log {
    slots: Box<[[AtomicU64; 2]]>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl Log {
    fn new() -> Self {
        let slots = (0..LOG_LEN).map(|_| Default::default()).collect();
        Log { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0) }
    }

    /// Appends an edit; waits while the log is full.
    fn append(&self, key: &Key, add: bool) {
        let head = self.head.load(Ordering::Relaxed);
        while head - self.tail.load(Ordering::Acquire) == self.slots.len() as u64 {
            // The reader may be waiting for this processor.
            thread::yield_now();
        }
        let slot = &self.slots[head as usize % self.slots.len()];
        slot[0].store(u64::from(key[0]) << 32 | u64::from(key[1]), Ordering::Relaxed);
        slot[1].store(u64::from(add), Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Release);
    }

    /// Applies new edits; refused edits are ignored.
    fn apply(&self, table: &mut RowTable) -> Result<(), TableError> {
        let mut applied = Ok(());
        let (tail, head) = (self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Acquire));
        for number in tail..head {
            let slot = &self.slots[number as usize % self.slots.len()];
            let key = slot[0].load(Ordering::Relaxed);
            let key = [(key >> 32) as u32, key as u32];
            match slot[1].load(Ordering::Relaxed) {
                1 => applied = applied.and(table.insert(&key, 1).map(|row| _ = black_box(row))),
                _ => _ = black_box(table.remove(&key)),
            }
        }
        self.tail.store(head, Ordering::Release);
        applied
    }
}

/// Results of a reader and a writer over the same time; the reader's is processor time.
struct Outcome {
    reader_ns_per_key: f64,
    keys: f64,
    writer_ns_per_edit: f64,
    edits: f64,
    seconds: f64,
}

/// Measures both methods at all selected sizes and rates.
pub(super) fn measure(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let (run, runs) = match options.smoke {
        true => (Duration::from_millis(10), 1),
        false => (Duration::from_millis(150), 3),
    };
    for size in SIZES.into_iter().filter(|&size| !options.smoke || size <= 1_000) {
        let case = format!("N{size}");
        for (engine, way) in WAYS {
            if !options.wants_case(&case) || !options.wants_engine(engine) {
                continue;
            }
            let outcomes = |rate| -> Result<Vec<Outcome>, BenchError> {
                (0..runs).map(|_| together(way, size, rate, run)).collect()
            };
            let median = |outcomes: &[Outcome], of: &dyn Fn(&Outcome) -> f64| {
                let mut samples = Samples::default();
                outcomes.iter().for_each(|one| samples.push(of(one)));
                samples.median()
            };
            let mut push = |setting: &str, value: f64, unit: &str| {
                let one = Measurement::value(BENCH, &case, engine, setting, value, unit);
                report.push(one.runs(runs));
            };
            let idle = median(&outcomes(0)?, &|one| one.reader_ns_per_key);
            push("key looked up, no edits", idle, "ns");
            for rate in RATES {
                let done = outcomes(rate)?;
                let wanted = match rate {
                    u64::MAX => "edits without a pause".to_owned(),
                    rate => format!("{rate} edits/s wanted"),
                };
                // The additional time of the reader, divided by the number of edits that it met.
                let altogether = |one: &Outcome| {
                    let more = (one.reader_ns_per_key - idle) * one.keys;
                    one.writer_ns_per_edit + more / one.edits.max(1.0)
                };
                let figure = |of: &dyn Fn(&Outcome) -> f64| median(&done, of);
                push(&format!("{wanted}: done"), figure(&|one| one.edits / one.seconds), "edits/s");
                push(
                    &format!("{wanted}: key looked up"),
                    figure(&|one| one.reader_ns_per_key),
                    "ns",
                );
                push(
                    &format!("{wanted}: edit, writer"),
                    figure(&|one| one.writer_ns_per_edit),
                    "ns",
                );
                // With fewer edits the effect on the reader is not measurable.
                if rate >= 1_000_000 {
                    push(&format!("{wanted}: edit, altogether"), figure(&altogether), "ns");
                }
            }
        }
    }
    Ok(())
}

fn loaded(rows: &[Key]) -> Result<RowTable, TableError> {
    let mut table = RowTable::new(2, Seed::random());
    for (number, key) in rows.iter().enumerate() {
        table.insert(key, number as u32)?;
    }
    Ok(table)
}

fn draw(random: &mut Random) -> Key {
    [random.number() as u32, random.number() as u32 & 0xffff]
}

/// Creates batches to look up: one key of four is present.
fn batches(rows: &[Key], random: &mut Random) -> Vec<[Column; 2]> {
    let batch = |_| {
        let (mut first, mut second) = ([0; 256], [0; 256]);
        for (a, b) in first.iter_mut().zip(&mut second) {
            [*a, *b] = match random.below(4) {
                0 => rows[random.below(rows.len())],
                _ => draw(random),
            };
        }
        [first, second]
    };
    (0..16).map(batch).collect()
}

fn look_up(reader: &mut TableReader, [a, b]: &[Column; 2]) {
    let mut found = [0; 256];
    // Two columns for two words.
    let _ = black_box(reader.find_columns(&[a, b], Mask::first(256), &mut found));
}

/// Runs a reader at full speed and a writer that makes `rate` edits per second (0 = none).
fn together(way: Way, rows: usize, rate: u64, run: Duration) -> Result<Outcome, BenchError> {
    let refused = |error: TableError| BenchError::Other(format!("a table of {rows} rows: {error}"));
    let mut random = Random::new(rows as u64);
    let there: Vec<Key> = (0..rows).map(|_| draw(&mut random)).collect();
    let batches = batches(&there, &mut random);
    let extra: Vec<Key> = (0..20_000).map(|_| draw(&mut random)).collect();
    let mut table = loaded(&there).map_err(refused)?;
    let mut replica = match way {
        Way::Log => Some(loaded(&there).map_err(refused)?),
        Way::Shared => None,
    };
    let mut reader = replica.as_ref().unwrap_or(&table).reader();
    let (log, stop) = (Log::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut keys, mut applied) = (0_u64, Ok(()));
            let time = time_of(true, || {
                while !stop.load(Ordering::Relaxed) {
                    for batch in &batches {
                        if let Some(replica) = &mut replica {
                            applied = applied.and(log.apply(replica));
                        }
                        look_up(&mut reader, batch);
                        keys += 256;
                    }
                }
                // Only this loop empties the log, and the writer may wait for that.
                if let Some(replica) = &mut replica {
                    applied = applied.and(log.apply(replica));
                }
            });
            applied.map(|()| (time, keys))
        });
        let start = Instant::now();
        let written = write(way, &mut table, &log, &extra, rate, run);
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let read = reading.join().map_err(|_| BenchError::Other("the reader failed".to_owned()))?;
        let ((time, keys), (edits, writer_ns_per_edit)) =
            (read.map_err(refused)?, written.map_err(refused)?);
        Ok(Outcome {
            reader_ns_per_key: time.as_nanos() as f64 / keys.max(1) as f64,
            keys: keys as f64,
            writer_ns_per_edit,
            edits: edits as f64,
            seconds,
        })
    })
}

/// Makes edits in bursts, paced by the clock; returns their number, and the time per edit of the median burst.
fn write(
    way: Way,
    table: &mut RowTable,
    log: &Log,
    extra: &[Key],
    rate: u64,
    run: Duration,
) -> Result<(u64, f64), TableError> {
    let (start, mut edits, mut times) = (Instant::now(), 0_u64, Samples::default());
    let burst_len = if rate < 64_000 { 1 } else { BURST };
    for burst in extra.chunks_exact(burst_len).cycle() {
        let elapsed = start.elapsed();
        if elapsed >= run {
            break;
        }
        let due = (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        if edits >= due {
            // A busy wait would take time from the reader if both share a processor.
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        let began = Instant::now();
        for key in burst {
            match way {
                Way::Log => log.append(key, true),
                Way::Shared => _ = black_box(table.insert(key, 1)?),
            }
        }
        for key in burst {
            match way {
                Way::Log => log.append(key, false),
                Way::Shared => _ = black_box(table.remove(key)),
            }
        }
        times.push(began.elapsed().as_nanos() as f64 / (2 * burst.len()) as f64);
        edits += 2 * burst.len() as u64;
    }
    Ok((edits, times.median()))
}
