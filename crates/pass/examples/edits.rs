//! Measures edits through the engine: `cargo run --release -p fyke-pass --example edits [ROUNDS]`.
//!
//! For 1 to 100,000 rows (host, port) it measures: the time to load them; the time of one edit until `commit` returns,
//! in bursts of 64 separately committed edits, and single, after 1 MB of other memory was touched; both for rows of a
//! declared shape and for passes of a text that was read beforehand and become rows automatically; the time of a reader
//! until it has judged its first batch after an edit. Then a reader on another thread, at several rates of edits.
//! Medians of interleaved rounds, and for single edits p99.

use fyke_filter::{Options, Predicate};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_pass::{PassSet, Reader, RowId, ShapeId, primitive};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const BURST: usize = 64;

/// A row's operands, all different.
fn operands(number: usize) -> [u32; 2] {
    let mixed = (number as u32).wrapping_mul(0x9e37_79b1);
    [0x0a00_0000 | mixed >> 8, 1024 + (mixed & 0x7fff)]
}

fn declared() -> (PassSet, ShapeId) {
    let mut set = PassSet::new(LinkType::EN10MB);
    let port = primitive::ip_port_dst(&[1]).expect("one port");
    let pass = [primitive::ether_ip_udp_nonfrag(), primitive::ip_dst_host(0), port];
    let shape = set.new_shape(&pass, &[1, 2]).expect("a shape");
    (set, shape)
}

fn add(set: &mut PassSet, shape: ShapeId, number: usize) -> RowId {
    let mut edit = set.edit();
    let row = edit.add_row(shape, &operands(number)).expect("room");
    edit.commit();
    row
}

fn remove(set: &mut PassSet, row: RowId) {
    let mut edit = set.edit();
    edit.remove_row(row).expect("a row");
    edit.commit();
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part) as usize]
}

fn ns(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Time of one reading of the clock, which is subtracted from single edits.
fn clock() -> f64 {
    let mut times: Vec<f64> = (0..1_000).map(|_| ns(Instant::now().elapsed())).collect();
    quantile(&mut times, 0.5)
}

/// A frame of a row.
fn frame_of(number: usize) -> Vec<u8> {
    let [host, port] = operands(number);
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
    bytes[30..34].copy_from_slice(&host.to_be_bytes());
    bytes[36..38].copy_from_slice(&(port as u16).to_be_bytes());
    bytes
}

fn judge(reader: &mut Reader, frames: &[Vec<u8>]) -> usize {
    let mut batch = Batch::new();
    for bytes in frames {
        batch.push(Frame::new(LinkType::EN10MB, bytes)).expect("room in a batch");
    }
    reader.refresh();
    reader.evaluate(&batch, batch.all()).count()
}

#[derive(Default)]
struct Outcome {
    load: Vec<f64>,
    burst_add: Vec<f64>,
    burst_remove: Vec<f64>,
    group_add: Vec<f64>,
    single_add: Vec<f64>,
    single_remove: Vec<f64>,
    first_batch: Vec<f64>,
}

/// Touches a megabyte, so that the data of an edit is not entirely in the nearest caches.
fn spoil(memory: &mut [u64]) {
    memory.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
}

fn declared_rows(size: usize, outcome: &mut Outcome) {
    let (mut set, shape) = declared();
    let mut reader = set.reader();
    let start = Instant::now();
    set.reserve_rows(shape, size).expect("room");
    let mut edit = set.edit();
    for number in 0..size {
        edit.add_row(shape, &operands(number)).expect("room");
    }
    edit.commit();
    outcome.load.push(ns(start.elapsed()));
    let frames: Vec<Vec<u8>> = (0..256).map(|n| frame_of(size + n)).collect();
    judge(&mut reader, &frames);
    let mut rows = Vec::with_capacity(BURST);
    for round in 0..100 {
        reader.refresh();
        let base = size + round * BURST;
        let start = Instant::now();
        rows.extend((base..base + BURST).map(|number| add(&mut set, shape, number)));
        outcome.burst_add.push(ns(start.elapsed()) / BURST as f64);
        reader.refresh();
        let start = Instant::now();
        rows.drain(..).for_each(|row| remove(&mut set, row));
        outcome.burst_remove.push(ns(start.elapsed()) / BURST as f64);
        reader.refresh();
        let start = Instant::now();
        let mut edit = set.edit();
        let all = (base..base + BURST).map(|n| edit.add_row(shape, &operands(n)).expect("room"));
        rows.extend(all);
        edit.commit();
        outcome.group_add.push(ns(start.elapsed()) / BURST as f64);
        rows.drain(..).for_each(|row| remove(&mut set, row));
    }
    let mut memory = vec![0_u64; 1 << 17];
    for number in size..size + 300 {
        spoil(&mut memory);
        let start = Instant::now();
        let row = add(&mut set, shape, number);
        outcome.single_add.push(ns(start.elapsed()));
        let start = Instant::now();
        assert!(judge(&mut reader, &frames) <= 1);
        outcome.first_batch.push(ns(start.elapsed()));
        spoil(&mut memory);
        let start = Instant::now();
        remove(&mut set, row);
        outcome.single_remove.push(ns(start.elapsed()));
        reader.refresh();
    }
}

fn texts(size: usize, outcome: &mut Outcome) {
    let text = |number| {
        let [host, port] = operands(number);
        let host = std::net::Ipv4Addr::from(host);
        let text = format!("dst host {host} and udp dst port {port}");
        fyke_filter::compile(&text, &Options::default()).expect("a text")
    };
    let all: Vec<Predicate> = (0..size).map(text).collect();
    let extra: Vec<Predicate> = (size..size + 200).map(text).collect();
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut reader = set.reader();
    let start = Instant::now();
    let mut edit = set.edit();
    for predicate in &all {
        edit.add_filter(predicate).expect("room");
    }
    edit.commit();
    outcome.load.push(ns(start.elapsed()));
    let frames: Vec<Vec<u8>> = (0..256).map(|n| frame_of(size + n)).collect();
    judge(&mut reader, &frames);
    let mut memory = vec![0_u64; 1 << 17];
    for cold in [false, true] {
        for predicate in &extra {
            if cold {
                spoil(&mut memory);
            }
            let start = Instant::now();
            let mut edit = set.edit();
            let id = edit.add_filter(predicate).expect("room");
            edit.commit();
            let time = ns(start.elapsed());
            if cold {
                outcome.single_add.push(time)
            } else {
                outcome.burst_add.push(time)
            }
            let start = Instant::now();
            assert!(judge(&mut reader, &frames) <= 1);
            outcome.first_batch.push(ns(start.elapsed()));
            let start = Instant::now();
            let mut edit = set.edit();
            edit.remove_filter(id).expect("a filter");
            edit.commit();
            let time = ns(start.elapsed());
            if cold { outcome.single_remove.push(time) } else { outcome.burst_remove.push(time) }
        }
    }
}

fn report(name: &str, size: usize, outcome: &mut Outcome, clock: f64) {
    let mut line =
        format!("{name:>8} {size:>7}: load {:.3} ms", quantile(&mut outcome.load, 0.5) / 1e6);
    let mut bursts = [
        ("burst add", &mut outcome.burst_add),
        ("remove", &mut outcome.burst_remove),
        ("64 a commit", &mut outcome.group_add),
    ];
    for (name, values) in bursts.iter_mut().filter(|(_, values)| !values.is_empty()) {
        line += &format!(", {name} {:.1} ns", quantile(values, 0.5));
    }
    for (name, values) in
        [("single add", &mut outcome.single_add), ("remove", &mut outcome.single_remove)]
    {
        let (half, most) = (quantile(values, 0.5) - clock, quantile(values, 0.99) - clock);
        line += &format!(", {name} {half:.0} ns p99 {most:.0}");
    }
    println!("{line}, first batch {:.0} ns", quantile(&mut outcome.first_batch, 0.5));
}

/// A reader without a pause, while another thread makes edits at the given rate.
fn together(size: usize, per_second: u64) -> (f64, f64) {
    let (mut set, shape) = declared();
    let mut edit = set.edit();
    (0..size).for_each(|n| _ = edit.add_row(shape, &operands(n)).expect("room"));
    edit.commit();
    let (mut reader, stop) = (set.reader(), AtomicBool::new(false));
    let frames: Vec<Vec<u8>> = (0..256).map(|n| frame_of(n * size.div_ceil(64))).collect();
    let time = Duration::from_millis(300);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (start, mut judged) = (Instant::now(), 0_u64);
            while !stop.load(Ordering::Relaxed) {
                black_box(judge(&mut reader, &frames));
                judged += frames.len() as u64;
            }
            ns(start.elapsed()) / judged as f64
        });
        let (start, mut done) = (Instant::now(), 0_u64);
        while start.elapsed() < time {
            let due = (start.elapsed().as_secs_f64() * per_second as f64) as u64;
            if done >= due {
                std::thread::sleep(Duration::from_micros(20));
                continue;
            }
            for number in 0..(due - done).div_ceil(2).min(BURST as u64) as usize {
                let row = add(&mut set, shape, size + number);
                remove(&mut set, row);
                done += 2;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (reading.join().expect("the reader"), done as f64 / time.as_secs_f64())
    })
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let clock = clock();
    println!("a look at the clock costs {clock:.0} ns, which single edits are less");
    for size in SIZES {
        let (mut rows, mut passes) = (Outcome::default(), Outcome::default());
        for _ in 0..rounds {
            declared_rows(size, &mut rows);
        }
        texts(size, &mut passes);
        report("rows", size, &mut rows, clock);
        report("texts", size, &mut passes, clock);
    }
    for size in [1_000, 100_000] {
        for rate in [0, 1_000, 100_000, 10_000_000] {
            let mut runs: Vec<(f64, f64)> = (0..rounds).map(|_| together(size, rate)).collect();
            runs.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            let (cost, done) = runs[runs.len() / 2];
            println!("{size:>7} rows, {done:>9.0} edits/s: reader {cost:.2} ns a frame");
        }
    }
}
