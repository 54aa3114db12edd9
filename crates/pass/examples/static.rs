//! Measures the judgement of a packet: the static filters of the Swift paper's section 4, many (host, port) filters of
//! one end (D), and texts of many pairs at either end, some of them near misses (E).
//!
//! ```text
//! cargo run --release -p fyke-pass --example static -- [CAPTURE|-] [ROUNDS] [CASE] [LEVEL]
//! ```
//!
//! 4,096 frames that stay in the cache (the first of the capture, or generated), in a fresh random order each round, in
//! batches of 256; then, when all levels are measured, short queues by the fastest. All tiers of this processor are
//! measured in one run, interleaved. The figures are medians, followed by minima, in nanoseconds per packet. The tiers
//! must accept the same frames.

use fyke_filter::{Options, compile};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame, LinkType, Mask};
use fyke_pass::{Level, PassSet, Reader};
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use fyke_testkit::random::Random;
use std::path::Path;
use std::time::Instant;

const FRAMES: usize = 4096;

/// Exclusions of filter 6, the same number as in the paper.
fn addresses() -> Vec<String> {
    let local = (0..19).map(|host| format!("192.168.2.{}", 10 + 2 * host));
    local.chain((0..19).map(|net| format!("10.1.{net}.7"))).collect()
}

/// Numbers of filters that are measured, as far as `FYKE_ROWS` allows.
fn sizes() -> impl Iterator<Item = usize> {
    let rows = std::env::var("FYKE_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    [10, 100, 1000, 10_000, 100_000].into_iter().filter(move |&count| count <= rows)
}

/// `tcp port 21 or (ip host A and tcp port X) or …`: some pairs are ends of frames, others are the host of one frame
/// with the port of another, or hosts that never occur.
fn pairs_text(bytes: &[Vec<u8>], count: usize, random: &mut Random) -> String {
    let tcp = |frame: &&Vec<u8>| frame[12..15] == [8, 0, 0x45] && frame[23] == 6;
    let frames: Vec<&Vec<u8>> = bytes.iter().filter(tcp).collect();
    let end = |random: &mut Random| {
        let (frame, second) = (frames[random.below(frames.len())], random.below(2));
        let host: [u8; 4] = std::array::from_fn(|at| frame[26 + 4 * second + at]);
        (host, u16::from_be_bytes([frame[34 + 2 * second], frame[35 + 2 * second]]))
    };
    let mut known = std::collections::HashSet::new();
    for attempt in 0_usize.. {
        if known.len() == count {
            break;
        }
        let (one, other) = (end(random), end(random));
        let far = (random.number() as u32).to_be_bytes();
        known.insert(match attempt % 4 {
            0 if attempt < 200 => one,
            1 if attempt < 6_000 => (one.0, other.1),
            _ => (far, 1024 + random.below(64_000) as u16),
        });
    }
    let mut pairs: Vec<_> = known.into_iter().collect();
    pairs.sort_unstable_by_key(|pair| pair.0.map(u32::from).map(|byte| byte ^ 0x5a));
    pairs.iter().fold("tcp port 21".to_owned(), |text, (host, port)| {
        let host = std::net::Ipv4Addr::from(*host);
        text + &format!(" or (ip host {host} and tcp port {port})")
    })
}

fn filters(bytes: &[Vec<u8>], random: &mut Random) -> Vec<(String, Vec<String>)> {
    let hosts = addresses().join(" or ");
    let exclusive = format!("ip and (not tcp port (80 or 25 or 143) and not ip host ({hosts}))");
    let mut filters: Vec<(String, Vec<String>)> = [
        ("F2", "ip"),
        ("F3", "ip src net 192.168.2.0/24 and dst net 10.0.0.0/8"),
        ("F4", "ip src or dst net 192.168.2.0/24"),
        ("F5", "ip and tcp port (22 or 80 or 143 or 25 or 110 or 21)"),
        ("F6", &exclusive),
    ]
    .map(|(name, text)| (name.to_string(), vec![text.to_string()]))
    .into();
    for count in sizes() {
        let texts = (0..count).map(|row: usize| {
            let (host, port) = (row * 7919 % 65_536, 1024 + row * 31 % 60_000);
            format!(
                "ip and udp and dst host 10.{}.{}.{} and dst port {port}",
                row / 65_536,
                host / 256,
                host % 256
            )
        });
        filters.push((format!("D{count}"), texts.collect()));
        filters.push((format!("E{count}"), vec![pairs_text(bytes, count, random)]));
    }
    filters
}

/// Frames similar to those of an office network.
fn synthetic(random: &mut Random) -> Vec<Vec<u8>> {
    let hosts = [[192, 168, 2, 10], [192, 168, 2, 77], [10, 1, 3, 7], [10, 9, 8, 7], [8, 8, 4, 4]];
    let ports = [22, 80, 443, 25, 53, 5060, 8080, 33_000, 51_515];
    let bytes = |_| {
        let mut host = || match random.below(4) {
            0 => [10, random.below(8) as u8, random.below(256) as u8, 7],
            _ => random.pick(&hosts),
        };
        let (source, destination) = (host(), host());
        let mut port = || match random.below(2) {
            0 => 1024 + random.below(4_096) as u16,
            _ => random.pick(&ports),
        };
        let (from, to) = (port(), port());
        let packet = Packet::ethernet();
        let packet = match random.below(16) {
            0 => packet.ipv6(1, 2).tcp(from, to),
            1 => packet.ipv4(source, destination).ip_options(&[1, 1, 1, 0]).tcp(from, to),
            2 => packet.ipv4(source, destination).fragment(7, 185, true).udp(from, to),
            3 => packet.ipv4(source, destination).icmp(8, 0, 1),
            4..8 => packet.ipv4(source, destination).udp(from, to),
            _ => packet.ipv4(source, destination).tcp(from, to),
        };
        packet.payload(&vec![0; random.below(200)]).build()
    };
    (0..FRAMES).map(bytes).collect()
}

fn set_of(texts: &[String]) -> PassSet {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    for text in texts {
        let predicate = compile(text, &Options::default()).expect("a right text");
        edit.add_filter(&predicate).expect("room");
    }
    edit.commit();
    set
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let capture = arguments.next().filter(|path| path != "-");
    let rounds: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(41);
    let (only_case, only_level) = (arguments.next(), arguments.next());
    let wanted = |only: &Option<String>, name: &str| only.as_deref().is_none_or(|it| it == name);
    let (mut random, _) = Random::seeded(7);
    let bytes: Vec<Vec<u8>> = match &capture {
        Some(path) => {
            let (_, records) = pcap::read(Path::new(path), FRAMES).expect("a pcap file");
            records.into_iter().map(|record| record.data).collect()
        }
        None => synthetic(&mut random),
    };
    let name = capture.as_deref().unwrap_or("synthetic");
    println!("{} frames of {name}, {rounds} rounds, ns per packet", bytes.len());
    for (name, texts) in
        filters(&bytes, &mut random).into_iter().filter(|case| wanted(&only_case, &case.0))
    {
        let set = set_of(&texts);
        let mut engines: Vec<(Level, Reader, Vec<f64>)> = Level::all()
            .into_iter()
            .filter(|level| wanted(&only_level, level.name()))
            .map(|level| {
                let mut reader = set.reader();
                reader.set_level(level);
                (level, reader, Vec::new())
            })
            .collect();
        let mut results = Vec::new();
        let mut floors = Vec::new();
        for _ in 0..rounds {
            let mut order: Vec<(usize, &Vec<u8>)> = bytes.iter().enumerate().collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at + 1));
            }
            let batches = batches(&order);
            floors.push(floor(&batches));
            let one = |engine| round(engine, &batches, &order);
            results = engines.iter_mut().map(one).collect();
        }
        assert!(results.iter().all(|result| *result == results[0]), "{name}: {results:?}");
        let (accepted, checksum) = results[0];
        let figures: Vec<String> = engines
            .iter_mut()
            .map(|(level, _, times)| {
                times.sort_by(f64::total_cmp);
                format!("{level} {:6.2} ({:.2})", times[times.len() / 2], times[0])
            })
            .collect();
        floors.sort_by(f64::total_cmp);
        let floor = format!("floor {:5.2} ({:.2})", floors[floors.len() / 2], floors[0]);
        let order: Vec<(usize, &Vec<u8>)> = bytes.iter().enumerate().collect();
        let Some((_, reader, _)) = engines.last_mut() else { continue };
        if only_level.is_none() {
            let queues = [1, 2, 3, 5, 16].map(|size| {
                let once = |_| queue(reader, &order, size);
                let least = (0..rounds).map(once).fold(f64::INFINITY, f64::min);
                format!("{size}: {least:.1}")
            });
            println!("{name:8} queues, filling included: {}", queues.join("  "));
        }
        println!(
            "{name:8} {floor}  {}  accepted {accepted} checksum {checksum:016x}",
            figures.join("  ")
        );
    }
}

/// All frames in batches, in the given order.
fn batches<'f>(order: &[(usize, &'f Vec<u8>)]) -> Vec<Batch<'f>> {
    let batch = |part: &[(usize, &'f Vec<u8>)]| {
        let mut batch = Batch::new();
        for (_, bytes) in part {
            batch.push(Frame::new(LinkType::EN10MB, bytes)).expect("room");
        }
        batch
    };
    order.chunks(BATCH_CAPACITY).map(batch).collect()
}

/// Cost of a frame in a short queue: one batch, filled and judged repeatedly, of frames that have just arrived, so that
/// they are in the first cache.
fn queue(reader: &mut Reader, order: &[(usize, &Vec<u8>)], size: usize) -> f64 {
    let hot = &order[..order.len().min(64)];
    let rounds = order.len().div_ceil(hot.len().max(1));
    let mut batch = Batch::new();
    let mut accepted = 0;
    let start = Instant::now();
    for part in (0..rounds).flat_map(|_| hot.chunks(size)) {
        batch.clear();
        for (_, bytes) in part {
            batch.push(Frame::new(LinkType::EN10MB, bytes)).expect("room");
        }
        accepted += reader.evaluate(&batch, batch.all()).count();
    }
    std::hint::black_box(accepted);
    start.elapsed().as_nanos() as f64 / (rounds * hot.len()) as f64
}

/// Time to read two words of each frame: a measure of the machine and of its other load.
fn floor(batches: &[Batch]) -> f64 {
    let (mut sum, mut frames) = (0_u32, 0);
    let start = Instant::now();
    for data in batches.iter().flat_map(|batch| batch.bytes()) {
        frames += 1;
        for at in [12, 30] {
            let word = data.get(at..at + 4).and_then(|word| word.try_into().ok());
            sum = sum.wrapping_add(u32::from_ne_bytes(word.unwrap_or_default()));
        }
    }
    let spent = start.elapsed().as_nanos();
    std::hint::black_box(sum);
    spent as f64 / f64::from(frames)
}

/// Judges all frames once; returns the number of accepted ones and a sum of their numbers.
fn round(
    engine: &mut (Level, Reader, Vec<f64>),
    batches: &[Batch],
    order: &[(usize, &Vec<u8>)],
) -> (usize, u64) {
    let (_, reader, times) = engine;
    let start = Instant::now();
    let verdicts: Vec<Mask> =
        batches.iter().map(|batch| reader.evaluate(batch, batch.all())).collect();
    times.push(start.elapsed().as_nanos() as f64 / order.len() as f64);
    let mut frames = order.iter();
    let (mut accepted, mut checksum) = (0, 0_u64);
    for (batch, verdict) in batches.iter().zip(&verdicts) {
        let numbers: Vec<u64> = frames.by_ref().take(batch.len()).map(|one| one.0 as u64).collect();
        for at in verdict.iter() {
            let spread = (numbers[at] + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (accepted, checksum) = (accepted + 1, checksum.wrapping_add(spread));
        }
    }
    (accepted, checksum)
}
