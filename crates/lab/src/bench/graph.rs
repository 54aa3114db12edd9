//! `fyke bench graph`: cost of a flow-graph node per packet.
//!
//! | case | graph |
//! |---|---|
//! | `chain-1` … `chain-20` | a chain of that many nodes that accept everything |
//! | `fan-1` … `fan-64` | that many parallel nodes after the source |
//! | `mixed-20` | 20 working nodes: filters, counters, samplers, class edges |
//! | `workers` | a compute-bound graph on one worker and on two, by wall-clock time |
//! | `index`, `packet`, `process`, `save` | FFPF's Table 4.1: receive, read, count, store a packet |
//!
//! Engines: `fyke`, the graph in batches of 256; `per-packet`, elements that pass each packet to the next by a
//! virtual call, as Click and FastClick do, in a plain implementation. Both take the same frames from the same
//! [`MemorySource`] and count the frames that each element receives; the counts are compared first. Figures include
//! the source; `source` is measured separately.

mod elements;
mod workers;

use super::measure::{Samples, Turn, rounds, time_of};
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use elements::Pipeline;
use fyke_capture::{MemorySource, Next, Source};
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, EXPRESSION, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, Made};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;

/// The bench's name in reports.
pub const BENCH: &str = "graph";
/// Engines of this bench.
pub const ENGINES: [&str; 3] = ["fyke", "per-packet", "source"];
const CHAINS: [usize; 6] = [1, 2, 4, 8, 16, 20];
const FANS: [usize; 4] = [1, 4, 16, 64];
/// Frames in memory; they are in the cache, like a batch just received.
const STORED: u64 = 256;
/// FFPF's Table 4.1, in thousands of packets per second on its network processor.
const PAPER: [(&str, f64); 4] =
    [("index", 450.0), ("packet", 357.0), ("process", 305.0), ("save", 215.0)];

/// A case: the graph after the source, and the equivalent elements.
struct Case {
    name: String,
    graph: String,
    peer: Option<Pipeline>,
    /// Number of frames that all nodes together receive per frame of the source; `None` = not compared.
    visits: Option<u64>,
}

/// Runs the bench.
///
/// # Errors
/// [`BenchError::Mismatch`] if an element and its node received different frames.
pub fn run(options: &Options, progress: Progress) -> Result<Report, BenchError> {
    let all = cases();
    let there = all.iter().map(|case| case.name.clone()).chain([workers::CASE.to_owned()]);
    let there: Vec<_> = there.collect();
    let chosen: Vec<_> = all.into_iter().filter(|case| options.wants_case(&case.name)).collect();
    let wants_workers = options.wants_case(workers::CASE);
    if chosen.is_empty() && !wants_workers {
        return Err(BenchError::NothingChosen { there: there.join(", ") });
    }
    let mut report = Report::new(options);
    let total = chosen.len();
    for (index, mut case) in chosen.into_iter().enumerate() {
        progress(&case.name, index, total);
        measure(options, &mut case, &mut report)?;
    }
    if wants_workers {
        progress(workers::CASE, total, total);
        workers::run(options, &mut report)?;
    }
    progress("done", total, total);
    per_node(&mut report);
    report.note(format!(
        "{STORED} frames of 60 bytes from memory again and again, in batches of 256; the time of \
         the source is in every figure"
    ));
    let paper: Vec<_> = PAPER.iter().map(|(stage, kpps)| format!("{stage} {kpps}")).collect();
    report.note(format!("FFPF, Table 4.1, thousands of packets a second: {}", paper.join(", ")));
    Ok(report)
}

fn cases() -> Vec<Case> {
    let accepts = |count: usize, between: &str| {
        // Different parameters prevent the merge of equal nodes.
        let nodes: Vec<_> = (0..count).map(|n| format!("(through, {n})")).collect();
        nodes.join(between)
    };
    let mut cases = Vec::new();
    for length in CHAINS {
        cases.push(Case {
            name: format!("chain-{length}"),
            graph: accepts(length, " > "),
            peer: Some(Pipeline::chain(length)),
            visits: Some(length as u64),
        });
    }
    for width in FANS {
        cases.push(Case {
            name: format!("fan-{width}"),
            graph: format!("[{}]", accepts(width, " | ")),
            peer: Some(Pipeline::fan(width)),
            visits: Some(width as u64),
        });
    }
    cases.push(Case { name: "mixed-20".into(), graph: mixed(), peer: None, visits: None });
    let stages = [
        ("index", "(accept)"),
        ("packet", "(look)"),
        ("process", "(look) > (packetcount, mbufsize=8)"),
        ("save", "(look) > (packetcount, mbufsize=8) > (save)"),
    ];
    cases.extend(stages.map(|(name, graph)| Case {
        name: name.into(),
        graph: graph.into(),
        peer: None,
        visits: None,
    }));
    cases
}

/// Creates a graph of twenty working nodes.
fn mixed() -> String {
    let branch = |filter: &str, number: usize| {
        format!(
            "[(filter, \"{filter}\") > (packetcount) > (bytecount) > (sampler, {number}) > \
             (packetcount, mbufsize={number})]"
        )
    };
    let filters = ["udp", "host 10.0.0.1", "src port 1000", "ip and not tcp"];
    let branches: Vec<_> =
        filters.iter().zip(2..).map(|(filter, number)| branch(filter, number)).collect();
    format!("[{}]", branches.join(" | "))
}

/// Reads the first bytes of each frame, as any working node does.
struct Look(u64);

impl Node for Look {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for index in arrival.mask().iter() {
            let data = arrival.batch().frames()[index].data;
            self.0 = self.0.wrapping_add(u64::from(data.get(9).copied().unwrap_or(0)));
        }
        black_box(self.0);
        Ok(arrival.mask())
    }
}

/// Stores an index entry of 24 bytes for each frame in a ring: position, length and class value, as FFPF's index
/// buffer.
struct Save {
    ring: Vec<[u64; 3]>,
    written: usize,
}

impl Node for Save {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let first = arrival.batch().first_sequence;
        for index in arrival.mask().iter() {
            let frame = &arrival.batch().frames()[index];
            let class = u64::from(arrival.class(index));
            let place = self.written & (self.ring.len() - 1);
            self.ring[place] = [first + index as u64, u64::from(frame.wire_len), class];
            self.written += 1;
        }
        black_box(&self.ring);
        Ok(arrival.mask())
    }
}

fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(Class {
        name: "memory",
        kind: Kind::Source,
        open: |settings| Ok(Box::new(source(settings.number("expression", 1..=u64::MAX)?))),
        ..Class::NODE
    });
    if let Some(accept) = classes.find("accept") {
        classes.register(Class { name: "through", aliases: &[], parameters: EXPRESSION, ..accept });
    }
    classes.register(Class { name: "look", make: |_| Ok(Box::new(Look(0))), ..Class::NODE });
    classes.register(Class {
        name: "save",
        make: |_| Ok(Box::new(Save { ring: vec![[0; 3]; 4096], written: 0 })),
        ..Class::NODE
    });
    classes
}

/// Creates UDP frames over IPv4, repeated `times` times.
fn source(times: u64) -> MemorySource {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for number in 0..STORED {
        let mut bytes = [0; 60];
        bytes[12] = 8;
        bytes[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        bytes[26..34].copy_from_slice(&[10, 0, 0, number as u8, 10, 0, 1, 1]);
        bytes[34..38].copy_from_slice(&[3, 232 + (number % 4) as u8, 0, 53]);
        source.push(&Frame::new(LinkType::EN10MB, &bytes));
    }
    source.repeat(times);
    source
}

/// Runs a graph over the frames; returns the time and the number of frames its nodes received.
fn graph_turn(graph: &str, times: u64) -> Result<(Turn, u64), BenchError> {
    let text = if graph.is_empty() { "(memory)".into() } else { format!("(memory) > {graph}") };
    let given = vec![("memory", Made::Source(Box::new(source(times))))];
    let started = GraphHandle::start_with(&[&text], classes(), given);
    let (mut engine, _) = started.map_err(|error| BenchError::Other(error.to_string()))?;
    let mut result = Ok(());
    let time = time_of(true, || result = engine.run(&AtomicBool::new(false)));
    result.map_err(|error| BenchError::Other(error.to_string()))?;
    let view = engine.view();
    let nodes = view.nodes.iter().filter(|node| !node.feeds.is_empty());
    let visits = nodes.map(|node| node.counts.arrived).sum();
    Ok((Turn { time, units: (STORED * times) as usize }, visits))
}

/// Runs the equivalent elements.
fn peer_turn(peer: &mut Pipeline, times: u64) -> (Turn, u64) {
    let mut source = source(times);
    peer.reset();
    let time = time_of(true, || {
        while let Ok(Next::Frames(batch, _)) = source.next() {
            for frame in batch.frames() {
                peer.push(black_box(frame));
            }
        }
    });
    (Turn { time, units: (STORED * times) as usize }, peer.visits())
}

/// Reads the source without any node.
fn source_turn(times: u64) -> Turn {
    let mut source = source(times);
    let time = time_of(true, || {
        while let Ok(Next::Frames(batch, _)) = source.next() {
            black_box(batch.frames());
        }
    });
    Turn { time, units: (STORED * times) as usize }
}

fn measure(options: &Options, case: &mut Case, report: &mut Report) -> Result<(), BenchError> {
    let there = |name: &&&str| case.peer.is_some() || **name != "per-packet";
    let engines: Vec<_> =
        ENGINES.iter().filter(there).filter(|name| options.wants_engine(name)).collect();
    let (times, turns) = if options.smoke { (20, 1) } else { (4_000, 15) };
    let mut failure = None;
    let mut turn = |name: &str| match name {
        "fyke" => graph_turn(&case.graph, times).map(|(turn, visits)| {
            (turn, case.visits.is_none_or(|expected| visits == expected * STORED * times))
        }),
        "per-packet" => {
            let peer = case.peer.as_mut().map(|peer| peer_turn(peer, times));
            let (turn, visits) = peer.unwrap_or((source_turn(times), 0));
            Ok((turn, case.visits.is_none_or(|expected| visits == expected * STORED * times)))
        }
        _ => Ok((source_turn(times), true)),
    };
    let samples = rounds(
        &mut (),
        engines.len(),
        turns,
        |()| {},
        |(), engine| {
            match turn(engines[engine]) {
                Ok((turn, true)) => return turn,
                Ok((_, false)) => {
                    failure = failure.take().or(Some(mismatch(&case.name, engines[engine])))
                }
                Err(error) => failure = failure.take().or(Some(error)),
            }
            source_turn(1)
        },
    );
    if let Some(error) = failure {
        return Err(error);
    }
    for (engine, samples) in engines.iter().zip(&samples) {
        report.push(figure(&case.name, engine, samples, times));
    }
    Ok(())
}

fn figure(case: &str, engine: &str, samples: &Samples, times: u64) -> Measurement {
    let one = Measurement::per_packet(BENCH, case, engine, "cache", samples.median());
    Measurement { accepted: Some(STORED * times), ..one }.runs(samples.len())
}

fn mismatch(case: &str, engine: &str) -> BenchError {
    BenchError::Other(format!("{case}: a node or element of {engine} has not seen every frame"))
}

/// Adds the cost of one more node: the difference of two graphs of one run.
fn per_node(report: &mut Report) {
    for engine in ["fyke", "per-packet"] {
        for (short, long, more) in [
            ("chain-1", "chain-16", 15.0),
            ("chain-1", "chain-20", 19.0),
            ("fan-1", "fan-64", 63.0),
        ] {
            let found = |case: &str| {
                let mut all = report.measurements.iter();
                all.find(|one| one.case == case && one.engine == engine).map(|one| one.figure())
            };
            let (Some(one), Some(all)) = (found(short), found(long)) else { continue };
            let case = format!("{short} to {long}");
            let setting = "one node more, per packet";
            let value = (all - one) / more;
            let one = Measurement::value(BENCH, &case, engine, setting, value, "ns");
            report.push(one);
        }
    }
}
