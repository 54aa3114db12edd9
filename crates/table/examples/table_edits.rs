//! Measures edits and look-ups of a table with one writer and nothing else: loading, edits in bursts, single cold
//! edits, look-ups of batches. `cargo run --release -p fyke-table --example table_edits`.
//!
//! docs/decisions/0004-edits-in-tables.md has the figures; `fyke bench update` measures the two ways in which an edit
//! could reach readers.
//!
//! Keys have two words (address, port); three of four look-ups miss. Figures are medians.

use fyke_frame::Mask;
use fyke_table::{Column, Level, RowTable, Seed, TableReader};
use std::hint::black_box;
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

/// Adds and removes in bursts of 64, so that the number of rows is constant.
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

/// Adds single rows, with a system call and other work in between.
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

/// Makes batches to look up; one key of four is present.
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

/// Looks up all batches once; returns the number of keys found.
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

fn main() {
    for rows in [100, 1_000, 10_000, 100_000] {
        alone(rows);
    }
}
