//! Costs of one call, in nanoseconds: the figures in the documents of `Filter` and `LiveReader`.
//!
//! `cargo run --release -p fyke --example cost` evaluates 4,096 frames in random order, from the cache; the median of
//! the rounds is printed, once all ways have accepted the same frames. Give a number of rounds for more than a smoke
//! test: `-- 300`.

use fyke::frame::{Batch, Frame, LinkType};
use fyke::{Error, Filter, LiveFilter};
use std::time::Instant;

const FRAMES: usize = 4096;

/// Ethernet, IPv4 and TCP or UDP; addresses and ports are random.
fn frames() -> Vec<[u8; 60]> {
    let mut state = 7_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut frame = || {
        let mut bytes = [0; 60];
        bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        bytes[23] = if random() % 4 == 0 { 17 } else { 6 };
        for at in [26, 30] {
            bytes[at..at + 4].copy_from_slice(&[10, 0, random() as u8 % 16, random() as u8]);
        }
        for at in [34, 36] {
            let port = [80, 443, 53, 1024 + random() as u16 % 9000][random() as usize % 4];
            bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
        }
        bytes
    };
    (0..FRAMES).map(|_| frame()).collect()
}

/// Median nanoseconds a frame over `rounds`, and the frames accepted in a round.
fn measure(rounds: usize, mut round: impl FnMut() -> usize) -> (f64, usize) {
    let accepted = round();
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(round(), accepted);
            start.elapsed().as_nanos() as f64 / FRAMES as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], accepted)
}

fn batches<'a>(frames: &'a [[u8; 60]], size: usize) -> Vec<Batch<'a>> {
    let batch = |chunk: &'a [[u8; 60]]| {
        let mut batch = Batch::new();
        for bytes in chunk {
            batch.push(Frame::new(LinkType::EN10MB, bytes)).expect("at most 256 of one link type");
        }
        batch
    };
    frames.chunks(size).map(batch).collect()
}

fn compare(name: &str, text: &str, cut: usize, rounds: usize) -> Result<(), Error> {
    let frames = frames();
    let (filter, live) = (Filter::compile(text)?, LiveFilter::compile(text)?);
    let mut reader = live.reader();
    let other = std::thread::spawn({
        let (filter, frame) = (filter.clone(), frames[0]);
        move || filter.matches(&frame[..4]) // the clone's pool is owned by that thread
    });
    assert!(!other.join().expect("no panic"));
    let one = measure(rounds, || frames.iter().filter(|f| filter.matches(&f[..cut])).count());
    let edited = measure(rounds, || frames.iter().filter(|f| reader.matches(&f[..cut])).count());
    assert_eq!(one.1, edited.1);
    print!("{name:24} accepted {:4}  matches {:6.1}  live {:6.1}", one.1, one.0, edited.0);
    if cut == 60 {
        for size in [1, 64, 256] {
            let batches = batches(&frames, size);
            let sum = |evaluate: &mut dyn FnMut(&Batch<'_>) -> usize| {
                measure(rounds, || batches.iter().map(&mut *evaluate).sum())
            };
            let all = sum(&mut |batch| filter.matches_batch(batch).count());
            let counted = sum(&mut |batch| reader.matches_batch(batch).count());
            assert_eq!((all.1, counted.1), (one.1, one.1));
            print!("  batch of {size} {:5.1} live {:5.1}", all.0, counted.0);
        }
    }
    println!();
    Ok(())
}

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(3);
    compare("tcp port 80", "tcp port 80", 60, rounds)?;
    compare("tcp port 80, cut short", "tcp port 80", 30, rounds)?;
    compare("two networks", "src net 10.0.1.0/24 and dst net 10.0.2.0/24", 60, rounds)?;
    compare("six ports", "tcp port 80 or 443 or 53 or 1024 or 1025 or 1026", 60, rounds)?;
    let hosts: Vec<String> = (0..4000).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
    compare("4,000 hosts", &format!("src host {}", hosts.join(" or ")), 60, rounds)
}
