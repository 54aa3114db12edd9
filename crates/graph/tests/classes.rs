//! What the classes do with frames, each through a whole graph.

use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle, GraphView};
use std::sync::atomic::AtomicBool;

/// 100 UDP frames of IPv4, 10 ms apart: source 10.0.0.(n mod 5), ports n mod 4 to 53, payload `n=<n>`.
fn classes() -> Classes {
    let mut classes = Classes::new();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::RAW);
        for number in 0..100u32 {
            let payload = format!("n={number}");
            let mut bytes = vec![0x45, 0, 0, 28 + payload.len() as u8, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend([10, 0, 0, (number % 5) as u8, 10, 0, 1, 1]);
            bytes.extend([0, (number % 4) as u8, 0, 53, 0, 8 + payload.len() as u8, 0, 0]);
            bytes.extend(payload.as_bytes());
            let mut frame = Frame::new(LinkType::RAW, &bytes);
            frame.timestamp_ns = 1_000_000_000 + u64::from(number) * 10_000_000;
            source.push(&frame);
        }
        source.repeat(1);
        Ok(Box::new(source))
    };
    classes.register(Class { name: "frames", kind: Kind::Source, open, ..Class::NODE });
    classes
}

fn run(graph: &str) -> GraphView {
    let text = format!("(frames) > {graph}");
    let started = GraphHandle::start(&[&text], classes());
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    view
}

fn passed(graph: &str) -> u64 {
    run(graph).nodes.last().unwrap().counts.passed
}

fn counter(graph: &str, name: &str) -> f64 {
    let view = run(graph);
    let counters = &view.nodes.last().unwrap().counters;
    let found = counters.iter().find(|counter| counter.name == name);
    found.unwrap_or_else(|| panic!("{graph}: no {name} in {counters:?}")).value
}

#[test]
fn filters() {
    assert_eq!(passed("(bpf, \"src host 10.0.0.3\")"), 20);
    assert_eq!(passed("(bpf)"), 100);
    // 1, 10 to 19, and 100 is not there.
    assert_eq!(passed("(strsearch, expression=\"n=1\")"), 11);
    assert_eq!(passed("(strsearch, expression=\"N=1\", nocase=y, offset=28)"), 11);
    assert_eq!(passed("(strsearch, expression=\"n=1\", offset=29)"), 0);
    assert_eq!(passed("(strsearch, expression=\"n=1\", depth=30)"), 0);
    let two = "(strsearch, expression=\"n=1\", expression=\"|6e 3d|2\") -2-> (packetcount)";
    assert_eq!(passed(two), 11);
}

#[test]
fn samplers() {
    assert_eq!(passed("(sampler,3)"), 34);
    let probabilistic = passed("(sampler,2,mode=probabilistic,seed=5)");
    assert!((30..70).contains(&probabilistic));
    assert_eq!(passed("(sampler,2,mode=probabilistic,seed=5)"), probabilistic);
    // 20 conversations of 5 frames each: whole or not at all.
    let view = run("(sampler,2,mode=flow) > (topk,100,field=src)");
    let sampled = view.nodes.last().unwrap().counts.passed;
    assert!(sampled > 0 && sampled < 100 && sampled.is_multiple_of(5), "{sampled}");
}

#[test]
fn meters() {
    assert_eq!(counter("(bytecount)", "bytes"), (10 * 31 + 90 * 32) as f64);
    assert_eq!(counter("(ratemeter,100)", "highest_packets_per_s"), 100.0);
    assert_eq!(counter("(topk,2,field=src)", "10.0.0.0"), 20.0);
    assert_eq!(counter("(topk,2,field=port)", "53"), 100.0);
    assert_eq!(counter("(gap)", "largest_gap_ns"), 1e7);
    assert_eq!(counter("(gap)", "mean_bytes"), 31.9);
    assert_eq!(passed("(threshold,4,interval=100)"), 60);
    assert_eq!(passed("(field,sourceport) -3-> (packetcount)"), 25);
    assert_eq!(passed("(field,protocol) -17-> (packetcount)"), 100);
}

#[test]
fn cutting_and_doubles() {
    assert_eq!(counter("(snap,28) > (bytecount)", "captured_bytes"), 2800.0);
    assert_eq!(counter("(snap,28) > (bytecount)", "bytes"), 3190.0);
    assert_eq!(passed("(dedup)"), 100);
    // Cut to the IP header there are five sources and two lengths; frames 5 apart, 50 ms, are the same.
    assert_eq!(passed("(snap,20) > (dedup,1000)"), 10);
    assert_eq!(passed("(snap,20) > (dedup,1)"), 100);
    assert_eq!(passed("(snap,20) > (dedup,1000,memory=1)"), 100);
}

#[test]
fn a_written_file_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let view = run(&format!("(bpf,\"src host 10.0.0.3\") > (tofile,\"{path}\",limit=15)"));
        assert_eq!(view.nodes.last().unwrap().counts.passed, 20);
        let read = format!("(pcapin,\"{path}\") > (packetcount)");
        let (mut engine, _) = GraphHandle::start(&[&read], classes()).unwrap();
        engine.run(&AtomicBool::new(false)).unwrap();
        assert_eq!(engine.view().nodes[1].counts.passed, 15);
    }
}
