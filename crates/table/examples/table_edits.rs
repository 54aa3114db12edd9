//! Measures edits and look-ups, and the two ways by which an edit could reach readers.
//!
//! `cargo run --release -p fyke-table --example table_edits` prints what docs/decisions/0004-edits-in-tables.md has:
//! 1. one writer alone: loading, edits in bursts, single cold edits;
//! 2. look-ups of batches, alone;
//! 3. one shared table against a log that a reader applies to a replica of its own, at several edit rates: what an edit
//!    costs the writer, what it costs in CPU time altogether, and how much slower the reader gets.
//!
//! Keys have two words (address, port); three of four looked-up keys are not there. Medians.

use fyke_frame::Mask;
use fyke_table::{Column, Level, RowTable, Seed, TableReader};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A small fast generator, so that drawing keys does not dominate.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn key(&mut self) -> [u32; 2] {
        let draw = self.next();
        [draw as u32, (draw >> 32) as u32 & 0xffff]
    }
}

fn keys(count: usize, seed: u64) -> Vec<[u32; 2]> {
    let mut random = Random(seed);
    (0..count).map(|_| random.key()).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ns(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

fn loaded(rows: &[[u32; 2]]) -> RowTable {
    let mut table = RowTable::new(2, Seed::random());
    for (n, key) in rows.iter().enumerate() {
        table.insert(key, n as u32).expect("room");
    }
    table
}

/// Loading when the number of rows is known beforehand.
fn load_reserved(rows: &[[u32; 2]]) -> Duration {
    let start = Instant::now();
    let mut table = RowTable::new(2, Seed::random());
    table.reserve(rows.len());
    for (n, key) in rows.iter().enumerate() {
        table.insert(key, n as u32).expect("room");
    }
    let taken = start.elapsed();
    assert_eq!(table.len(), rows.len());
    taken
}

/// Adds and removes in bursts of 64, so that the number of rows stays.
fn bursts(table: &mut RowTable, extra: &[[u32; 2]]) -> (f64, f64) {
    let (mut adds, mut removes) = (Vec::new(), Vec::new());
    for burst in extra.chunks_exact(64).cycle().take(4_000) {
        let start = Instant::now();
        for key in burst {
            black_box(table.insert(key, 1)).expect("room");
        }
        let middle = Instant::now();
        for key in burst {
            black_box(table.remove(key));
        }
        adds.push(ns(middle - start) / 64.0);
        removes.push(ns(middle.elapsed()) / 64.0);
    }
    (median(adds), median(removes))
}

/// Single adds with a system call and other work in between.
fn cold(table: &mut RowTable, extra: &[[u32; 2]]) -> (f64, f64) {
    let mut spoil = vec![0u64; 1 << 17];
    let mut times = Vec::new();
    for (n, key) in extra.iter().take(4_000).enumerate() {
        spoil.iter_mut().skip(n % 8).step_by(8).for_each(|word| *word += 1);
        std::thread::sleep(Duration::from_nanos(1));
        let start = Instant::now();
        black_box(table.insert(key, 1)).expect("room");
        times.push(ns(start.elapsed()));
        table.remove(key);
    }
    black_box(&spoil);
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Batches to look up: one key of four is there.
fn batches(rows: &[[u32; 2]], count: usize) -> Vec<[Column; 2]> {
    let mut random = Random(77);
    let batch = |_| {
        let (mut first, mut second) = ([0; 256], [0; 256]);
        for (a, b) in first.iter_mut().zip(&mut second) {
            let draw = random.next();
            [*a, *b] = match draw & 3 {
                0 => rows[(draw >> 2) as usize % rows.len()],
                _ => random.key(),
            };
        }
        [first, second]
    };
    (0..count).map(batch).collect()
}

/// Looks all batches up once; the number of keys found.
fn pass_over(reader: &mut TableReader, batches: &[[Column; 2]]) -> usize {
    let mut found = [0; 256];
    let columns = batches.iter().map(|[a, b]| [a, b]);
    let hits = columns.map(|columns| reader.find_columns(&columns, Mask::first(256), &mut found));
    hits.map(|hits| hits.expect("two columns").count()).sum()
}

fn look_ups(table: &RowTable, batches: &[[Column; 2]], level: Level) -> f64 {
    let mut reader = table.reader();
    reader.set_level(level);
    let run = |_| {
        let start = Instant::now();
        black_box(pass_over(&mut reader, batches));
        ns(start.elapsed()) / (batches.len() * 256) as f64
    };
    median((0..31).map(run).collect())
}

fn alone(rows: usize) {
    let there = keys(rows, 3);
    let start = Instant::now();
    let mut table = loaded(&there);
    let load = start.elapsed();
    let reserved = load_reserved(&there);
    let extra = keys(20_000, 5);
    let (add, remove) = bursts(&mut table, &extra);
    let (cold, cold_p99) = cold(&mut table, &extra);
    print!(
        "{rows:>7} rows: load {:.2} ms (reserved {:.2}); burst add {add:.1} ns, remove {remove:.1} ns; \
         cold add {cold:.0} ns, p99 {cold_p99:.0} ns; look-up",
        ns(load) / 1e6,
        ns(reserved) / 1e6
    );
    let batches = batches(&there, 64);
    for level in Level::all() {
        print!(" {} {:.2}", level.name(), look_ups(&table, &batches, level));
    }
    println!(" ns a key ({:?})", table.stats());
}

/// How edits reach the reader.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Shared,
    Log,
}

/// A bounded log with one writer and one reader: key and operation in two words.
struct Log {
    slots: Box<[[AtomicU64; 2]]>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl Log {
    fn new() -> Self {
        let slots = (0..1 << 16).map(|_| Default::default()).collect();
        Log { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0) }
    }

    /// Waits when the reader is a whole log behind.
    fn append(&self, key: &[u32; 2], add: bool, stop: &AtomicBool) {
        let head = self.head.load(Ordering::Relaxed);
        while head - self.tail.load(Ordering::Acquire) == self.slots.len() as u64 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::hint::spin_loop();
        }
        let slot = &self.slots[head as usize % self.slots.len()];
        slot[0].store(u64::from(key[0]) << 32 | u64::from(key[1]), Ordering::Relaxed);
        slot[1].store(u64::from(add), Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Release);
    }

    /// Applies what is new; the number of edits.
    fn apply(&self, table: &mut RowTable) -> u64 {
        let (tail, head) = (self.tail.load(Ordering::Relaxed), self.head.load(Ordering::Acquire));
        for number in tail..head {
            let slot = &self.slots[number as usize % self.slots.len()];
            let key = slot[0].load(Ordering::Relaxed);
            let key = [(key >> 32) as u32, key as u32];
            match slot[1].load(Ordering::Relaxed) {
                1 => black_box(table.insert(&key, 1).expect("room")),
                _ => black_box(table.remove(&key)),
            };
        }
        self.tail.store(head, Ordering::Release);
        head - tail
    }
}

/// What a reader and a writer did in the same time.
struct Outcome {
    reader_ns_per_key: f64,
    writer_ns_per_edit: f64,
    edits_per_second: f64,
}

const RUN: Duration = Duration::from_millis(300);

/// One reader at full speed, one writer that makes `per_second` edits (0 = none, `u64::MAX` = as many as it can).
fn together(way: Way, rows: usize, per_second: u64) -> Outcome {
    let there = keys(rows, 3);
    let batches = batches(&there, 16);
    let mut table = loaded(&there);
    let mut replica = (way == Way::Log).then(|| loaded(&there));
    let mut reader = replica.as_ref().unwrap_or(&table).reader();
    let (log, stop) = (Arc::new(Log::new()), Arc::new(AtomicBool::new(false)));
    let (reader_log, reader_stop) = (Arc::clone(&log), Arc::clone(&stop));
    let reading = std::thread::spawn(move || {
        let (start, mut keys) = (Instant::now(), 0u64);
        while !reader_stop.load(Ordering::Relaxed) {
            for batch in &batches {
                if let Some(replica) = &mut replica {
                    reader_log.apply(replica);
                }
                black_box(pass_over(&mut reader, std::slice::from_ref(batch)));
                keys += 256;
            }
        }
        ns(start.elapsed()) / keys as f64
    });
    let (edits, writer_ns) = write(way, &mut table, &log, &stop, per_second);
    stop.store(true, Ordering::Relaxed);
    Outcome {
        reader_ns_per_key: reading.join().expect("reader"),
        writer_ns_per_edit: writer_ns / edits.max(1) as f64,
        edits_per_second: edits as f64 / RUN.as_secs_f64(),
    }
}

/// Edits in bursts of 64 (at most 1,000 bursts are due a millisecond), paced by the clock; how many, and their time.
fn write(
    way: Way,
    table: &mut RowTable,
    log: &Log,
    stop: &AtomicBool,
    per_second: u64,
) -> (u64, f64) {
    let extra = keys(20_000, 5);
    let (start, mut edits, mut busy) = (Instant::now(), 0u64, Duration::ZERO);
    let burst_len = if per_second < 64_000 { 1 } else { 64 };
    for burst in extra.chunks_exact(burst_len).cycle() {
        let elapsed = start.elapsed();
        if elapsed >= RUN {
            break;
        }
        let due = (elapsed.as_secs_f64() * per_second as f64) as u64;
        if per_second != u64::MAX && edits >= due {
            // A processor that is shared with the reader must not be kept busy by waiting.
            if per_second <= 100_000 {
                std::thread::sleep(Duration::from_micros(50));
            }
            continue;
        }
        let began = Instant::now();
        for add in [true, false] {
            for key in burst {
                match (way, add) {
                    (Way::Log, _) => log.append(key, add, stop),
                    (Way::Shared, true) => {
                        black_box(table.insert(key, 1)).expect("room");
                    }
                    (Way::Shared, false) => {
                        black_box(table.remove(key));
                    }
                }
            }
        }
        busy += began.elapsed();
        edits += 2 * burst.len() as u64;
    }
    (edits, ns(busy))
}

fn main() {
    println!("alone:");
    for rows in [100, 1_000, 10_000, 100_000] {
        alone(rows);
    }
    println!("reader on one core, writer on another:");
    for rows in [1_000, 100_000] {
        for way in [Way::Shared, Way::Log] {
            let idle = median((0..3).map(|_| together(way, rows, 0).reader_ns_per_key).collect());
            for rate in [1_000, 100_000, 10_000_000, u64::MAX] {
                let runs: Vec<Outcome> = (0..3).map(|_| together(way, rows, rate)).collect();
                let reader = median(runs.iter().map(|run| run.reader_ns_per_key).collect());
                let writer = median(runs.iter().map(|run| run.writer_ns_per_edit).collect());
                let done = median(runs.iter().map(|run| run.edits_per_second).collect());
                // What the reader spends more, spread over the edits that it met.
                let keys_per_second = 1e9 / reader;
                let extra = (reader - idle) * keys_per_second / done;
                println!(
                    "{rows:>7} rows, {way:?}: {done:>10.0} edits/s: writer {writer:.1} ns an edit, \
                     reader {idle:.2} -> {reader:.2} ns a key, CPU {:.1} ns an edit",
                    writer + extra
                );
            }
        }
    }
}
