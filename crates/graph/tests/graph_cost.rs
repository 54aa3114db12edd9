//! What a node costs: chains of 1 to 16 `accept`s and fans of 1 to 64, from memory in full batches, beside a plain
//! chain of virtual calls per frame as a per-packet framework makes them.
//!
//! `cargo test --release -p fyke-graph --test graph_cost -- --nocapture` prints the table; as a test it runs at smoke
//! size and checks that every node saw every frame.

use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const STORED: u64 = 256;
static ROUNDS: AtomicU64 = AtomicU64::new(20);

fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(Class {
        name: "memory",
        kind: Kind::Source,
        open: |_| {
            let mut source = fyke_capture::MemorySource::new(LinkType::RAW);
            for _ in 0..STORED {
                source.push(&Frame::new(LinkType::RAW, &[0; 60]));
            }
            source.repeat(ROUNDS.load(Ordering::Relaxed));
            Ok(Box::new(source))
        },
        ..Class::NODE
    });
    classes
}

/// Nanoseconds per frame, the smallest of five runs.
fn graph_ns(text: &str) -> f64 {
    let frames = STORED * ROUNDS.load(Ordering::Relaxed);
    let one = || {
        let (mut engine, _) = GraphHandle::start(&[text], classes()).unwrap();
        let started = Instant::now();
        engine.run(&AtomicBool::new(false)).unwrap();
        let elapsed = started.elapsed().as_nanos() as f64 / frames as f64;
        let view = engine.view();
        assert!(view.nodes.iter().all(|node| node.counts.arrived == frames));
        elapsed
    };
    (0..5).map(|_| one()).fold(f64::INFINITY, f64::min)
}

/// One element of a framework that calls per packet.
trait Element {
    fn push(&mut self, frame: &Frame<'_>);
}

struct Pass(u64, Option<Box<dyn Element>>);

impl Element for Pass {
    fn push(&mut self, frame: &Frame<'_>) {
        self.0 += 1;
        if let Some(next) = &mut self.1 {
            next.push(frame);
        }
    }
}

fn per_packet_ns(length: usize) -> f64 {
    let frames = STORED * ROUNDS.load(Ordering::Relaxed);
    let data = [0; 60];
    let frame = Frame::new(LinkType::RAW, &data);
    let mut chain: Option<Box<dyn Element>> = None;
    for _ in 0..length {
        chain = Some(Box::new(Pass(0, chain.take())));
    }
    let Some(mut chain) = chain else { return 0.0 };
    let mut one = || {
        let started = Instant::now();
        for _ in 0..frames {
            black_box(&mut chain).push(black_box(&frame));
        }
        started.elapsed().as_nanos() as f64 / frames as f64
    };
    (0..5).map(|_| one()).fold(f64::INFINITY, f64::min)
}

#[test]
fn cost_of_a_node() {
    if !cfg!(debug_assertions) {
        ROUNDS.store(20_000, Ordering::Relaxed);
    }
    let accept = |number: usize| format!("(accept, mbufsize={number})");
    let none = graph_ns("(memory)");
    println!("source alone: {none:.2} ns per frame");
    for length in [1, 2, 4, 8, 16, 20] {
        let chain: Vec<_> = (0..length).map(accept).collect();
        let ns = graph_ns(&format!("(memory) > {}", chain.join(" > ")));
        println!(
            "chain of {length:>2}: {ns:.2} ns per frame, {:.3} per node; per-packet calls {:.2}",
            (ns - none) / length as f64,
            per_packet_ns(length)
        );
    }
    for width in [1, 4, 16, 64] {
        let fan: Vec<_> = (0..width).map(accept).collect();
        let ns = graph_ns(&format!("(memory) > [{}]", fan.join(" | ")));
        println!(
            "fan of {width:>2}: {ns:.2} ns per frame, {:.3} per node",
            (ns - none) / width as f64
        );
    }
}
