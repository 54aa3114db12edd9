//! Every class with one worker and with four: equal counts and counters, or a refusal before anything is opened.
//!
//! The frames are conversations with times that drift apart, with TCP segments that are late, lost, repeated and
//! contradicting, and connections that are silent for longer than their idle time; then real captures.

use fyke_capture::{MemorySource, Source, open_file};
use fyke_flow::streams::Event;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Counter, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, GraphView};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

const SECOND: u64 = 1_000_000_000;

/// Times and bytes of frames.
fn traffic() -> &'static [(u64, Vec<u8>)] {
    static FRAMES: OnceLock<Vec<(u64, Vec<u8>)>> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let mut random = Random::new(11);
        let mut frames = Vec::new();
        for pair in 0..40u8 {
            let (near, far) = ([10, 0, 0, pair], [10, 0, 1, pair]);
            let mut now = 1_000 * SECOND + u64::from(pair) * 7 * SECOND;
            let mut sequence = 1_000;
            for number in 0..400u32 {
                // Some wait for longer than the gap time, some for longer than the idle time.
                let wait = [SECOND / 1000, SECOND / 10, SECOND, 12 * SECOND, 400 * SECOND];
                now += wait[[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3][random.below(13)]];
                now += if random.below(150) == 0 { wait[4] } else { 0 };
                let text = format!("{number} needle {}", "x".repeat(random.below(40)));
                let port = 80 + u16::from(pair % 3);
                let at = match random.below(12) {
                    // Repeated with other bytes, early, or after a lost segment.
                    0 => sequence - 5,
                    1 => sequence + 30,
                    2 => {
                        sequence += 9;
                        sequence
                    }
                    _ => sequence,
                };
                if at == sequence {
                    sequence += text.len() as u32;
                }
                let flags = if random.below(90) == 0 { 0x11 } else { 0x18 };
                let packet = match random.below(10) {
                    0 => Packet::ethernet().ipv4(near, far).udp(53, port),
                    _ => {
                        let packet = Packet::ethernet().ipv4(near, far).tcp(4_000, port);
                        packet.seq_ack(at, 0).flags(flags)
                    }
                };
                let packet = packet.payload(text.as_bytes());
                frames.push((now, packet.build()));
            }
        }
        // Sorted by their index in the conversation, so that conversations alternate and their times are far apart.
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.sort_by_key(|&index| (index % 400, index / 400));
        order.into_iter().map(|index| frames[index].clone()).collect()
    })
}

/// Hashes the bytes of each stream; the sum over all streams does not depend on their order.
#[derive(Default)]
struct Digest {
    streams: HashMap<u64, DefaultHasher>,
    pieces: u64,
}

impl Digest {
    fn add(&mut self, stream: u64, bytes: &[u8], missing: u64) {
        let hasher = self.streams.entry(stream).or_default();
        bytes.iter().for_each(|byte| byte.hash(hasher));
        // The position of an end, or of missing bytes, counts too.
        (bytes.is_empty(), missing).hash(hasher);
        self.pieces += 1;
    }
}

impl Node for Digest {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        if let Some(flows) = arrival.flows() {
            let batch = arrival.batch();
            for one in (0..flows.len()).filter_map(|number| flows.event(number, batch)) {
                if let Event::Piece(piece) = one.event {
                    let stream = piece.connection * 2 + u64::from(piece.forward);
                    self.add(stream, piece.bytes, piece.missing);
                }
            }
            return Ok(arrival.mask());
        }
        for (index, frame) in arrival.frames() {
            let stream = arrival.stream(index).ok_or_else(|| NodeError::new("a frame"))?;
            self.add(stream.get(), frame.data, 0);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        // Small enough to add up exactly, also over workers.
        let sum: u64 = self.streams.values().map(|one| one.finish() >> 24).sum();
        vec![
            Counter::count("streams", self.streams.len() as u64),
            Counter::count("pieces", self.pieces),
            Counter::count("digest", sum),
        ]
    }
}

fn classes() -> Classes {
    let mut classes = Classes::new();
    let open: fyke_graph::node::Open = |_| {
        let mut source = MemorySource::new(LinkType::EN10MB);
        source.batch_limit(200);
        for (time, bytes) in traffic() {
            source.push(&Frame { timestamp_ns: *time, ..Frame::new(LinkType::EN10MB, bytes) });
        }
        source.repeat(1);
        Ok(Box::new(source))
    };
    classes.register(Class { name: "traffic", kind: Kind::Source, open, ..Class::NODE });
    let make: fyke_graph::node::Make = |_| Ok(Box::<Digest>::default());
    let digest = Class { name: "digest", make, wants_pieces: |_| true, ..Class::NODE };
    // Connections have numbers of their worker.
    classes.register(Class { parallel: true, ..digest });
    classes
}

/// Runs a graph; returns its last view, or the error with which it is refused.
fn run(text: &str, workers: usize) -> Result<GraphView, String> {
    let started = GraphHandle::start_workers(&[text], classes(), workers);
    let (mut engine, _) = started.map_err(|error| error.to_string())?;
    engine.run(&AtomicBool::new(false)).map_err(|error| error.to_string())?;
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{text}\n{node:?}");
    }
    Ok(view)
}

/// Checks that four workers give the results of one; returns false if several workers are refused.
fn runs_alike(text: &str) -> bool {
    let one = run(text, 1).unwrap_or_else(|error| panic!("{text}\n{error}"));
    for _ in 0..3 {
        let four = match run(text, 4) {
            Ok(view) => view,
            Err(error) => {
                assert!(error.contains("run the graph with one"), "{text}\n{error}");
                return false;
            }
        };
        for (single, several) in one.nodes.iter().zip(&four.nodes) {
            assert_eq!(single.counts, several.counts, "{text}\n{}", single.text);
            // The verdict about a flow ends the work of `tcp` at the next batch, which has other frames.
            if !(single.class == "tcp" && text.contains("stream=y")) {
                assert_eq!(single.counters, several.counters, "{text}\n{}", single.text);
            }
        }
    }
    true
}

/// Nodes of each class, some with other parameters; the second part is true if several workers refuse the node.
fn nodes(class: &str, folder: &Path) -> Vec<(String, bool)> {
    if let Some(nodes) = nodes_with_a_file(class, folder) {
        return nodes;
    }
    let (ok, refused) = (false, true);
    let list: &[(&str, bool)] = match class {
        "accept" => &[("", ok), (",direction=in", ok), (",direction=out", ok)],
        "drop" | "field" | "keep" | "packetcount" | "bytecount" | "tcp" => &[("", ok)],
        "bloom" => &[(",\"port=81\"", ok)],
        "bpf" => &[(",\"tcp port 80 or src host 10.0.0.3\"", ok)],
        "bucket" | "burst" | "dedup" | "gap" | "ratemeter" => &[("", refused)],
        "debug" => &[(",limit=0", ok)],
        "demux" => &[(",\"tcp => 1\",expression=\"port 80 => 70000\"", ok)],
        "distribution" => &[(",length", ok), (",class", ok), (",gap", refused)],
        "limit" => &[(",9", refused)],
        // Prints nothing; it would print the same lines in another order.
        "print" => return vec![("(bpf,\"port 9999\") > (print)".to_owned(), ok)],
        "sampler" => &[(",3", refused), (",3,mode=probabilistic", refused), (",3,mode=flow", ok)],
        "snap" => &[(",60", ok)],
        "strsearch" => {
            return vec![
                ("(strsearch,\"1 needle\")".to_owned(), ok),
                ("(tcp) > (strsearch,\"x1 needle\",stream=y)".to_owned(), ok),
                ("(tcp,payload=y) > (strsearch,\"x1 needle\",stream=y)".to_owned(), ok),
            ];
        }
        "table" => &[(",key=dport,\"80 = 70000\",expression=\"81 = 2\"", ok)],
        "threshold" => &[(",100", refused)],
        "topk" => &[(",5", ok), (",5,field=port", ok)],
        "tosocket" => &[(",\"udp:127.0.0.1:9\"", ok)],
        // Sources, and the class that sends frames to an interface.
        "device" | "pcapin" | "tointerface" => &[],
        other => panic!("say here how {other} is tried with several workers"),
    };
    list.iter().map(|(parameters, refused)| (format!("({class}{parameters})"), *refused)).collect()
}

/// As [`nodes`], for classes with nodes that read or write a file; `None` for the others.
fn nodes_with_a_file(class: &str, folder: &Path) -> Option<Vec<(String, bool)>> {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ok, refused) = (false, true);
    let nodes = match class {
        "cspf" => {
            let path = file("one.cspf", "PUSHWORD+6\nPUSHLIT | EQ #2048\n");
            vec![(format!("(cspf,\"{path}\")"), ok)]
        }
        // The order of all frames decides which flow the table has no room for.
        "flows" => vec![(format!("(flows,\"{}\")", file("records", "")), refused)],
        "ids" => {
            let rule = "alert udp any any -> any any (msg:\"one\"; content:\"needle\"; sid:1;)\n";
            vec![(format!("(ids,\"{}\")", file("one.rules", rule)), refused)]
        }
        "mpf" => {
            let program = "begin\n ldh P[12]\n jeq #2048, Y, N\nY: ret #ALL\nN: ret #0\n";
            let path = file("one.bpf", program);
            vec![(format!("(mpf,\"{path}\",isa=bpf)"), ok), (format!("(mpf,\"{path}\")"), refused)]
        }
        "ruler" => {
            let path = file("one.rul", "filter f\n* \"9 needle\" => accept 70000;\n");
            vec![
                (format!("(ruler,\"{path}\")"), ok),
                (format!("(tcp) > (ruler,\"{path}\",stream=y)"), ok),
                (format!("(tcp) > (ruler,\"{path}\",stream=y,conversation=y)"), refused),
            ]
        }
        "tofile" => {
            let path = file("out.pcap", "");
            vec![
                (format!("(tofile,\"{path}\")"), ok),
                (format!("(tofile,\"{path}\",limit=5)"), refused),
            ]
        }
        "toring" => {
            let path = folder.join("ring");
            vec![(format!("(toring,\"{}\")", path.to_str().unwrap()), ok)]
        }
        _ => return None,
    };
    Some(nodes)
}

#[test]
fn several_workers_answer_as_one_or_refuse() {
    let folder = tempfile::tempdir().unwrap();
    for class in Classes::new().all() {
        for (node, refused) in nodes(class.name, folder.path()) {
            let text = format!("(traffic) > {node} > (packetcount)");
            assert_eq!(runs_alike(&text), !refused, "{text}");
        }
    }
}

/// Checks that the bytes of streams depend neither on scheduling nor on the order of conversations.
#[test]
fn streams_are_the_same_with_any_number_of_workers() {
    for form in ["", ",payload=y"] {
        assert!(runs_alike(&format!("(traffic) > (tcp{form}) > (digest)")));
        assert!(runs_alike(&format!("(traffic) > (tcp,gap=1,idle=20,held=200{form}) > (digest)")));
    }
    assert!(runs_alike("(traffic) > (tcp,policy=linux) > (strsearch,\"8 needle\",stream=y)"));
    let corpus = Corpus::open();
    let own = ["everything-0.pcap", "gaps-0.pcap"].map(|name| corpus.own("tcp-streams").join(name));
    let shared = ["ndpi__sites.pcapng", "ndpi__heuristic_tcp_ack_payload.pcap"]
        .into_iter()
        .filter_map(|name| Some(corpus.shared("traces/tcp-streams")?.join(name)));
    for path in own.into_iter().chain(shared) {
        for form in ["", ",payload=y"] {
            let text = format!("(pcapin,\"{}\") > (tcp{form}) > (digest)", path.display());
            assert!(runs_alike(&text));
        }
    }
}

/// Checks that a graph that several workers refuse has opened nothing and has not changed its output file.
#[test]
fn what_several_workers_refuse_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pcap");
    std::fs::write(&path, "precious").unwrap();
    let text = format!("(traffic) > (gap) > (tofile,\"{}\")", path.display());
    let refused = run(&text, 2).unwrap_err();
    assert!(refused.contains("(gap) does not run with several workers"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// Compares the five most frequent values of real traffic with complete counts.
#[test]
fn the_most_frequent_are_those_of_exact_counts() {
    let corpus = Corpus::open();
    for path in corpus.busy().into_iter().chain(corpus.shared("traces/mixed/dev-mix.pcap")) {
        let name = path.display();
        let exact = exact(&path);
        for keys in [65_536, 200] {
            let text = format!("(pcapin,\"{}\") > (topk,5,field=src,keys={keys})", path.display());
            let view = run(&text, 1).unwrap();
            let counters = &view.nodes[1].counters;
            let bound = |name: &str| counters.iter().find(|one| one.name == name).unwrap().value;
            let (error, missing) = (bound("error"), bound("missing"));
            let shown: Vec<_> =
                counters.iter().take(5).map(|one| (&*one.name, one.value)).collect();
            if exact.len() <= keys {
                let expected = exact.iter().take(5).map(|(name, count)| (&**name, *count as f64));
                assert_eq!(shown, expected.collect::<Vec<_>>(), "{name}");
                assert_eq!((error, missing), (0.0, exact[5].1 as f64), "{name}");
            }
            for (name, count) in &exact {
                let count = *count as f64;
                match shown.iter().find(|(one, _)| *one == name) {
                    Some((_, known)) => assert!(*known <= count && count <= known + error),
                    None => assert!(count <= missing, "{name}: {count} and {missing}"),
                }
            }
        }
    }
}

/// Counts all source addresses, most frequent first.
fn exact(path: &Path) -> Vec<(String, u64)> {
    let mut counts: HashMap<std::net::IpAddr, u64> = HashMap::new();
    let mut source = open_file(path).unwrap();
    while let Ok(fyke_capture::Next::Frames(batch, _)) = source.next() {
        for frame in batch.frames() {
            if let Some(ip) = fyke_frame::walk(frame).innermost_ip() {
                *counts.entry(ip.source()).or_default() += 1;
            }
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    counts.into_iter().map(|(address, count)| (address.to_string(), count)).collect()
}
