//! `fyke bench streams`: TCP streams put together, from 1,000 to 1,000,000 connections at a time.
//!
//! | case | segments |
//! |---|---|
//! | `in-order` | next in order, of random connections |
//! | `reordered` | the same, one of 100 after the next segment of its connection |
//! | `lost` | the same, one of 1,000 missing |
//! | `dropped` | of connections of which enough was seen |
//! | `resumed` | pieces of streams in which a pattern is searched for ([`patterns`]) |
//! | `rewritten` | with words that are replaced across segments |
//! | `trace` | of a capture (`--trace`), with the walk through the headers, in Gbit/s too |
//!
//! Engines: `fyke`; `fyke-one`, without the look-ups of a batch in flight; `textbook`, a hash map of the standard
//! library with a tree of early segments per direction, as in many programs ([`textbook`]); `smoltcp`, the reassembler
//! of a TCP stack that others keep, with such a map ([`smoltcp`]). Before anything is measured, the bytes of each
//! connection are compared. A segment has 512 bytes, the same ones when it is measured, so that the time is that of the
//! tables and not that of loading payload.

pub mod patterns;
pub mod smoltcp;
pub mod textbook;

use super::frames::Arena;
use super::measure::{Samples, Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::traffic::Random;
use super::{BenchError, Options, Progress};
use fyke_flow::streams::{Limits, Policy, Segment, Streams};
use fyke_frame::walk;
use fyke_frame::walk::view::tcp_flags::{ACK, SYN};
use smoltcp::Smoltcp;
use std::net::SocketAddr;
use textbook::Textbook;

/// The bench's name in reports.
pub const BENCH: &str = "streams";
/// Engines of this bench.
pub const ENGINES: [&str; 5] = ["fyke", "fyke-one", "textbook", "smoltcp", "regex-automata"];
/// Number of the engines that put streams together.
const REASSEMBLERS: usize = 4;
const CASES: [&str; 7] =
    ["in-order", "reordered", "lost", "dropped", "resumed", "rewritten", "trace"];
/// Segments with look-ups in flight together.
const BATCH: usize = 256;
/// Bytes of a segment.
const PAYLOAD: [u8; 512] = [b'x'; 512];

/// A segment of the bench: its connection and its place in the stream, in segments.
#[derive(Debug, Clone, Copy)]
struct Item {
    flow: u32,
    place: u32,
}

impl Item {
    fn segment(self) -> Segment<'static> {
        self.with(&PAYLOAD)
    }

    fn with(self, payload: &[u8]) -> Segment<'_> {
        let sequence = self.place.wrapping_mul(PAYLOAD.len() as u32).wrapping_add(1);
        segment(self.flow, sequence, ACK, payload)
    }

    /// Bytes that differ from segment to segment.
    fn contents(self) -> [u8; PAYLOAD.len()] {
        let mut random = Random::new(u64::from(self.flow) << 32 | u64::from(self.place));
        let seed = random.below(1 << 16);
        std::array::from_fn(|at| ((seed * (at + 7)) >> 5) as u8)
    }
}

fn segment(flow: u32, sequence: u32, flags: u8, payload: &[u8]) -> Segment<'_> {
    let [a, b, c, d] = flow.to_be_bytes();
    let source = SocketAddr::from(([10, b, c, d], 1024 + u16::from(a)));
    let destination = SocketAddr::from(([192, 168, c, 7], 80));
    let payload_len = payload.len() as u32;
    Segment { source, destination, sequence, acknowledged: None, flags, payload, payload_len }
}

/// Result of an engine: delivered and missing bytes.
type Sum = (u64, u64);

/// Puts segments together, `false` as the second argument: without the look-ups of a batch in flight.
fn fyke(streams: &mut Streams, all: &[Segment<'_>], in_flight: bool) -> Sum {
    let mut sum = (0, 0);
    let mut give = |piece: fyke_flow::streams::Piece<'_>| {
        sum.0 += piece.bytes.len() as u64;
        sum.1 += piece.missing;
    };
    for batch in all.chunks(BATCH) {
        if in_flight {
            std::hint::black_box(streams.warm(batch.iter().copied()));
        }
        for segment in batch {
            streams.segment(segment, 1_000_000, &mut give);
        }
    }
    sum
}

/// Puts segments together by a function that takes one of them, and a function that receives missing bytes and bytes.
fn one_by_one(
    all: &[Segment<'_>],
    mut take: impl FnMut(&Segment<'_>, &mut dyn FnMut(u64, &[u8])),
) -> Sum {
    let mut sum = (0, 0);
    for segment in all {
        take(segment, &mut |missing, bytes| {
            sum.0 += bytes.len() as u64;
            sum.1 += missing;
        });
    }
    sum
}

/// Limits under which no connection is removed and gaps are skipped after a few segments.
fn limits(flows: usize) -> Limits {
    Limits { connections: flows.max(16), direction_bytes: textbook::HELD, ..Limits::default() }
}

/// The segments of a case.
fn items(case: &str, flows: usize, count: usize, random: &mut Random) -> Vec<Item> {
    let mut places = vec![0u32; flows];
    let mut late: Vec<Option<Item>> = vec![None; flows];
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let flow = random.below(flows);
        let item = Item { flow: flow as u32, place: places[flow] };
        places[flow] += 1;
        match case {
            "lost" if random.below(1_000) == 0 => continue,
            "reordered" if late[flow].is_none() && random.below(100) == 0 => {
                late[flow] = Some(item);
                continue;
            }
            _ => all.push(item),
        }
        all.extend(late[flow].take());
    }
    all
}

/// An engine with its table.
enum Table {
    Fyke(Box<Streams>, bool),
    Textbook(Textbook),
    Smoltcp(Smoltcp),
}

impl Table {
    /// Makes the table of an engine, without connections.
    fn empty(engine: usize, flows: usize) -> Table {
        match engine {
            2 => Table::Textbook(Textbook::default()),
            3 => Table::Smoltcp(Smoltcp::default()),
            _ => {
                let streams = Box::new(Streams::new(limits(flows), Policy::First));
                Table::Fyke(streams, engine == 0)
            }
        }
    }

    /// Makes the table of an engine with all connections in it; `settled`: enough was seen of them.
    fn new(engine: usize, flows: usize, settled: bool) -> Table {
        let mut table = Table::empty(engine, flows);
        for one in (0..flows as u32).map(|flow| segment(flow, 0, SYN, &[])) {
            let Table::Fyke(streams, _) = &mut table else {
                table.take(&one, &mut |_, _| ());
                continue;
            };
            // A second segment, because flows of one are in a list of their own.
            let second = Segment { sequence: 1, flags: ACK, ..one };
            streams.segment(&one, 1, &mut |_| ());
            let flow = streams.segment(&second, 1, &mut |_| ());
            if let Some(flow) = flow.filter(|_| settled) {
                streams.settle(flow.number, flow.connection, true, 1);
            }
        }
        table
    }

    fn run(&mut self, all: &[Segment<'_>]) -> Sum {
        match self {
            Table::Fyke(streams, in_flight) => fyke(streams, all, *in_flight),
            Table::Textbook(table) => one_by_one(all, |one, give| table.segment(one, give)),
            Table::Smoltcp(table) => one_by_one(all, |one, give| table.segment(one, give)),
        }
    }

    /// Takes one segment.
    fn take(&mut self, segment: &Segment<'_>, give: &mut dyn FnMut(u64, &[u8])) {
        match self {
            Table::Fyke(streams, _) => {
                streams.segment(segment, 1_000_000, &mut |piece| give(piece.missing, piece.bytes));
            }
            Table::Textbook(table) => table.segment(segment, give),
            Table::Smoltcp(table) => table.segment(segment, give),
        }
    }

    /// Puts segments with different bytes together; returns a hash of what each connection delivers.
    fn contents(&mut self, flows: usize, items: &[Item]) -> Vec<u64> {
        let mut hashes = vec![0xCBF2_9CE4_8422_2325; flows];
        let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0100_0000_01B3);
        for item in items {
            let payload = item.contents();
            let hash = &mut hashes[item.flow as usize];
            self.take(&item.with(&payload), &mut |missing, bytes| {
                // Where a piece ends is the engine's choice, so only missing bytes count between two.
                let start = if missing > 0 { mix(*hash, 256 + missing) } else { *hash };
                *hash = bytes.iter().fold(start, |hash, byte| mix(hash, (*byte).into()));
            });
        }
        hashes
    }
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Other`] if two engines deliver different bytes, or the trace cannot be read.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let mut report = Report::new(options);
    let sizes: &[usize] =
        if options.smoke { &[100, 1_000] } else { &[1_000, 10_000, 100_000, 1_000_000] };
    for (number, case) in CASES.into_iter().enumerate() {
        if !options.wants_case(case) {
            continue;
        }
        progress(case, number, CASES.len());
        match case {
            "trace" => trace(options, &mut report)?,
            "resumed" => patterns::resumed(options, &mut report)?,
            "rewritten" => patterns::rewritten(options, &mut report)?,
            _ => {
                for flows in sizes {
                    generated(case, *flows, options, &mut report)?;
                }
            }
        }
    }
    progress("done", CASES.len(), CASES.len());
    if report.measurements.is_empty() {
        let mut names = CASES.join(", ");
        if options.trace.is_none() {
            names += " (with --trace)";
        }
        return Err(BenchError::NothingChosen { there: names });
    }
    Ok(report)
}

/// Numbers of the chosen engines of a case: nothing but fyke can drop a connection.
fn engines(options: &Options, case: &str) -> Vec<usize> {
    let all = (0..REASSEMBLERS).filter(|number| options.wants_engine(ENGINES[*number]));
    all.filter(|number| case != "dropped" || *number < 2).collect()
}

/// Compares the results of the engines: bytes and missing bytes in all, or hashes of connections.
fn same<T: PartialEq + std::fmt::Debug>(
    case: &str,
    results: &[Vec<T>],
    engines: &[usize],
) -> Result<(), BenchError> {
    let Some(first) = results.first() else { return Ok(()) };
    for (other, engine) in results.iter().zip(engines) {
        let mut both = first.iter().zip(other).enumerate();
        if let Some((at, (one, other))) = both.find(|(_, (one, other))| one != other) {
            let (first, second) = (ENGINES[engines[0]], ENGINES[*engine]);
            let message = format!(
                "{case}: connection {at} differs: {one:?} by {first}, {other:?} by {second}"
            );
            return Err(BenchError::Other(message));
        }
    }
    Ok(())
}

fn generated(
    case: &str,
    flows: usize,
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let engines = engines(options, case);
    let count = if options.smoke { 4_000 } else { 1 << 20 };
    let mut random = Random::new(options.seed);
    let items = items(case, flows, count, &mut random);
    let settled = case == "dropped";
    let contents: Vec<_> = engines
        .iter()
        .map(|engine| Table::new(*engine, flows, settled).contents(flows, &items))
        .collect();
    same(case, &contents, &engines)?;
    let all: Vec<Segment<'_>> = items.into_iter().map(Item::segment).collect();
    let count = options.rounds.unwrap_or(if options.smoke { 1 } else { 5 });
    let samples = rounds(
        &mut (),
        engines.len(),
        count,
        |()| {},
        |(), place| {
            let mut table = Table::new(engines[place], flows, settled);
            let time = time_of(!options.smoke, || {
                std::hint::black_box(table.run(&all));
            });
            Turn { time, units: all.len() }
        },
    );
    push(case, &format!("{flows} connections"), &engines, &samples, None, report);
    Ok(())
}

/// Adds the figures of a case; `bytes` is the payload per segment, if its rate is of interest.
fn push(
    case: &str,
    setting: &str,
    engines: &[usize],
    samples: &[Samples],
    bytes: Option<f64>,
    report: &mut Report,
) {
    for (engine, samples) in engines.iter().zip(samples) {
        let (name, ns) = (ENGINES[*engine], samples.median());
        let one = Measurement::per_packet(BENCH, case, name, setting, ns);
        report.push(one.runs(samples.len()));
        if let Some(bytes) = bytes.filter(|_| ns > 0.0) {
            let rate = bytes * 8.0 / ns;
            let one = Measurement::value(BENCH, case, name, setting, rate, "Gbit/s");
            report.push(one.runs(samples.len()));
        }
    }
}

/// Measures the segments of a capture, as often as they make a long turn.
fn trace(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let Some(path) = &options.trace else {
        report.note("trace: give a capture with --trace".to_owned());
        return Ok(());
    };
    let arena = Arena::from_file(path, if options.smoke { 1 << 20 } else { 256 << 20 })?;
    let engines = engines(options, "trace");
    let flows = 1 << 20;
    let turn = |engine: usize| -> (Sum, u64) {
        let mut table = Table::empty(engine, flows);
        let (mut sum, mut segments) = ((0, 0), 0);
        let mut batch = Vec::with_capacity(BATCH);
        for number in 0..arena.len() {
            let frame = arena.frame(number);
            batch.extend(Segment::of(&walk(&frame)));
            if batch.len() == BATCH || number + 1 == arena.len() {
                segments += batch.len() as u64;
                let more = table.run(&batch);
                sum = (sum.0 + more.0, sum.1 + more.1);
                batch.clear();
            }
        }
        (sum, segments)
    };
    let results: Vec<_> = engines.iter().map(|engine| turn(*engine)).collect();
    let Some((sum, segments)) = results.first().copied().filter(|(_, segments)| *segments > 0)
    else {
        return Err(BenchError::Other(format!("{}: no TCP segment", path.display())));
    };
    if let Some(other) = results.iter().find(|(other, _)| other.0.abs_diff(sum.0) * 100 > sum.0) {
        let message = format!("trace: one delivers {} bytes, another {}", sum.0, other.0.0);
        return Err(BenchError::Other(message));
    }
    let count = options.rounds.unwrap_or(if options.smoke { 1 } else { 7 });
    let samples = rounds(
        &mut (),
        engines.len(),
        count,
        |()| {},
        |(), place| {
            let time = time_of(!options.smoke, || {
                std::hint::black_box(turn(engines[place]));
            });
            Turn { time, units: segments as usize }
        },
    );
    let bytes = sum.0 as f64 / segments as f64;
    push("trace", "with headers", &engines, &samples, Some(bytes), report);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_and_all_engines_agree() {
        let options = Options { smoke: true, seed: 1, ..Options::default() };
        let report = run(&options, &mut |_, _, _| {}).unwrap();
        let figures = |case: &str, engine: &str| {
            let found = |one: &&Measurement| one.case == case && one.engine == engine;
            let all: Vec<_> = report.measurements.iter().filter(found).collect();
            assert!(all.iter().all(|one| one.figure() > 0.0), "{case}");
            all.len()
        };
        for case in &CASES[..4] {
            for engine in engines(&options, case) {
                assert_eq!(figures(case, ENGINES[engine]), 2, "{case} {engine}");
            }
        }
        for engine in ["fyke", "regex-automata"] {
            assert_eq!((figures("resumed", engine), figures("rewritten", engine)), (2, 1));
        }
    }

    #[test]
    fn contents_that_differ_are_refused() {
        assert!(same("lost", &[vec![1], vec![1]], &[0, 2]).is_ok());
        let error = same("lost", &[vec![1, 0], vec![1, 2]], &[0, 3]).unwrap_err();
        assert!(error.to_string().contains("smoltcp"), "{error}");
        // Bytes in another order have another hash.
        let ordered = [Item { flow: 0, place: 0 }, Item { flow: 0, place: 1 }];
        let twice = [ordered[0], ordered[0]];
        let hash = |items: &[Item]| Table::new(3, 1, false).contents(1, items);
        assert_eq!(hash(&[ordered[0]]), hash(&twice));
        assert_ne!(hash(&[ordered[0]]), hash(&ordered));
        assert_eq!(hash(&ordered), Table::new(0, 1, false).contents(1, &ordered));
    }
}
