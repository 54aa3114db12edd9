//! Clock steps: frame times step back and forth, up to the limits of a timestamp, through every class that depends on
//! time. Nothing panics or hangs, every account closes, and results that do not depend on time stay correct.

use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle, GraphView};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

const FRAMES: usize = 2000;
const SECOND: u64 = 1_000_000_000;

/// Times of frames: mostly some microseconds apart, sometimes anywhere.
fn times(seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut now = 1_700_000_000 * SECOND;
    let next = |_| {
        now = match random.below(40) {
            0 => now.saturating_sub(random.number() % SECOND),
            1 => now.saturating_sub(random.number() % (100_000 * SECOND)),
            2 => now.saturating_add(random.number() % (100_000 * SECOND)),
            3 => random.pick(&[0, 1, SECOND - 1, i64::MAX as u64, u64::MAX - 1, u64::MAX]),
            4 => random.number(),
            5 => 1_700_000_000 * SECOND,
            6 => now,
            _ => now.saturating_add(random.number() % 1_000_000),
        };
        now
    };
    (0..FRAMES).map(next).collect()
}

/// Segments of 50 connections in order; all frames differ, except that each seventh is followed by its copy.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while frames.len() < FRAMES {
        let number = frames.len();
        if number % 7 == 6 {
            frames.push(frames[number - 1].clone());
            continue;
        }
        let (port, place) = (1000 + (number % 50) as u16, number as u32 / 50 * 4);
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(port, 80);
        let payload = (number as u32).to_be_bytes();
        let mut bytes = packet.payload(&payload).build();
        // The sequence number; the checksum is not verified here.
        bytes[38..42].copy_from_slice(&(1 + place).to_be_bytes());
        frames.push(bytes);
    }
    frames
}

static SEED: Mutex<u64> = Mutex::new(0);

fn classes() -> Classes {
    let mut classes = Classes::new();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::EN10MB);
        let times = times(*SEED.lock().unwrap());
        for (bytes, timestamp_ns) in frames().iter().zip(times) {
            source.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) });
        }
        source.repeat(1);
        Ok(Box::new(source))
    };
    classes.register(Class { name: "frames", kind: Kind::Source, open, ..Class::NODE });
    classes
}

fn run(graph: &str, seed: u64) -> GraphView {
    let text = format!("(frames) > {graph}");
    *SEED.lock().unwrap() = seed;
    let started = GraphHandle::start(&[&text], classes());
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        let sound = node.counts.is_exact() && node.failed.is_none();
        assert!(sound, "{graph}, seed {seed}: {node:?}");
    }
    assert_eq!(view.nodes[0].counts.arrived, FRAMES as u64, "{graph}, seed {seed}");
    view
}

fn counter(view: &GraphView, name: &str) -> f64 {
    let counters = &view.nodes.last().unwrap().counters;
    let found = counters.iter().find(|counter| counter.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {counters:?}")).value
}

#[test]
fn times_that_step_are_no_harm_to_any_class() {
    let doubles = (0..FRAMES).filter(|number| number % 7 == 6).count() as u64;
    for seed in 0..12 {
        println!("seed {seed}");
        let steps = times(seed).windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(steps > 50, "{steps}");
        assert_eq!(counter(&run("(gap)", seed), "backwards"), steps as f64);
        let bursts = counter(&run("(burst)", seed), "bursts");
        assert!((1.0..=FRAMES as f64).contains(&bursts), "{bursts}");
        for interval in [1, 1000, 3_600_000] {
            let view = run(&format!("(ratemeter,{interval})"), seed);
            let highest = counter(&view, "highest_packets_per_s");
            assert!(highest.is_finite() && highest >= 0.0, "{highest}");
        }
        let threshold = run("(threshold,4,interval=100)", seed);
        assert!(threshold.nodes.last().unwrap().counts.passed > 0);
        // Frames that differ are never duplicates.
        let different = FRAMES as u64 - doubles;
        let counts = run("(dedup)", seed).nodes.last().unwrap().counts;
        assert!((different..=FRAMES as u64).contains(&counts.passed), "{counts:?}");
        assert!(counts.rejected > doubles / 2, "{counts:?}");
        // A connection that expired because of a clock step begins anew, so a duplicate after the step is delivered
        // too.
        let delivered = counter(&run("(tcp)", seed), "delivered_bytes");
        assert!((1.0..=4.0 * FRAMES as f64).contains(&delivered), "{delivered}");
    }
}
