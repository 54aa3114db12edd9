//! Several workers: counts equal to those of one, and the order of each conversation.

use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Counter, Kind, Node, NodeError, Parameter};
use fyke_graph::{Classes, GraphHandle, GraphView};
use fyke_testkit::packet::Packet;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

const FRAMES: u32 = 20_000;

/// Frames between 97 pairs of hosts, in both directions; the last four bytes are the number of the frame.
fn source(rounds: u64) -> MemorySource {
    let mut source = MemorySource::new(LinkType::RAW);
    source.batch_limit(200).repeat(rounds);
    for number in 0..FRAMES {
        let pair = (number * 7 % 97) as u8;
        let (mut near, mut far) = ([10, 0, 0, pair], [10, 0, 1, pair]);
        if number % 3 == 0 {
            (near, far) = (far, near);
        }
        let mut bytes = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([near, far].concat());
        bytes.extend([0, 9, 0, 53, 0, 12, 0, 0]);
        bytes.extend(number.to_be_bytes());
        source.push(&Frame::new(LinkType::RAW, &bytes));
    }
    source
}

/// Fails if a pair's frames arrive out of order; records the threads that deliver them.
#[derive(Default)]
struct InOrder {
    last: HashMap<u8, u32>,
    threads: HashSet<ThreadId>,
}

impl Node for InOrder {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.threads.insert(std::thread::current().id());
        for (_, frame) in arrival.frames() {
            let number = frame.data[28..].try_into().map(u32::from_be_bytes).unwrap();
            let last = self.last.insert(frame.data[15], number);
            // The numbers start again in the next round.
            if last.is_some_and(|last| last >= number && last - number < FRAMES / 2) {
                return Err(NodeError::new(format!("{number} after {last:?}")));
            }
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("threads", self.threads.len() as u64)]
    }
}

fn classes() -> Classes {
    let mut classes = Classes::new();
    let open: fyke_graph::node::Open =
        |settings| Ok(Box::new(source(settings.number_or("rounds", 1..=u64::MAX, 1)?)));
    let parameters = &[Parameter { name: "rounds", summary: "how often" }];
    classes.register(Class { name: "frames", kind: Kind::Source, parameters, open, ..Class::NODE });
    let make: fyke_graph::node::Make = |_| Ok(Box::<InOrder>::default());
    classes.register(Class { name: "inorder", make, ..Class::NODE });
    classes
}

fn run(text: &str, workers: usize) -> GraphView {
    let (mut engine, _) = GraphHandle::start_workers(&[text], classes(), workers).unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    view
}

#[test]
fn several_workers_count_as_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = |workers: usize| folder.path().join(format!("{workers}.pcap"));
    let graph = |workers: usize| {
        format!(
            "(frames) > {{o}}(inorder) > [{{f}}(filter, \"src net 10.0.0.0/26\") > {{s}}(snap,28) \
             > {{c}}(packetcount, mbufsize=8) > (tofile, \"{}\") | \
             {{p}}(field, sourceport) -9-> {{b}}(bytecount)]",
            file(workers).to_str().unwrap()
        )
        .replace("[{f}", "[[{f}")
        .replace("| {p}", "] | [{p}")
        .replace("bytecount)]", "bytecount)]]")
    };
    let (one, four) = (run(&graph(1), 1), run(&graph(4), 4));
    for (single, several) in one.nodes.iter().zip(&four.nodes) {
        assert_eq!(single.counts, several.counts, "{}", single.text);
        if single.name != "o" {
            assert_eq!(single.counters, several.counters, "{}", single.text);
        }
    }
    assert!(four.node("o").unwrap().counters[0].value > 1.0, "one thread did everything");
    assert_eq!(four.node("c").unwrap().memory.get(0), one.node("c").unwrap().counts.passed);
    let len = |workers| std::fs::metadata(file(workers)).unwrap().len();
    assert_eq!(len(1), len(4));
}

#[test]
fn what_several_workers_cannot_do_is_said() {
    let refused = |text: &str| {
        let started = GraphHandle::start_workers(&[text], classes(), 2);
        started.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let said = refused("(frames) > (limit,3)");
    assert!(said.contains("(limit, expression=3) does not run with several workers"), "{said}");
    assert!(refused("(frames) > (limit,3)").contains("run the graph with one"));
    let started = GraphHandle::start_workers(&["(frames,rounds=1000000) > (accept)"], classes(), 2);
    let (mut engine, handle) = started.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let running = std::thread::spawn(move || engine.run(&ended));
    let edited = handle.add("(frames) > (limit,4)").unwrap_err().to_string();
    assert!(edited.contains("(limit, expression=4) does not run with several workers"), "{edited}");
    let edited = handle.add("(frames) > (burst)").unwrap_err().to_string();
    assert!(edited.contains("depends on the order of all frames"), "{edited}");
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap().unwrap();
}

/// Adds and removes branches and changes a parameter while four workers run: other nodes lose nothing, and every
/// frame runs through one graph.
#[test]
fn edits_reach_all_workers_and_lose_nothing() {
    let base = "(frames,rounds=1000000) > {o}(inorder) > {n}(packetcount)";
    let (mut engine, handle) = GraphHandle::start_workers(&[base], classes(), 4).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let running = std::thread::spawn(move || {
        engine.run(&ended).unwrap();
        engine.view()
    });
    let mut ids = Vec::new();
    for net in 1..6 {
        let text = format!("{{o}}() > {{f{net}}}(filter, \"net 10.0.0.0/2{net}\") > (bytecount)");
        ids.push(handle.add(&text).unwrap());
        if net > 2 {
            handle.remove(ids.remove(0)).unwrap();
        }
    }
    handle.add("{o}() > {all}(filter, \"len < 0\") > {count}(packetcount,mbufsize=8)").unwrap();
    handle.remove(handle.texts().keys().next_back().copied().unwrap()).unwrap();
    handle.add("{o}() > [{a}(filter, \"net 10\") | {b}(filter, \"not net 10.0.0.0/27\")]").unwrap();
    handle.add("{o}() > {t}(inorder,late)").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let view = running.join().unwrap();
    let counts = |name: &str| view.node(name).unwrap().counts;
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    assert_eq!(counts("n").arrived, view.sources[0].stats.delivered);
    assert_eq!(counts("a").arrived, counts("b").arrived, "made by one edit");
    assert!(counts("a").arrived > 0 && counts("a").arrived < counts("n").arrived);
    // Every worker with frames delivers them to the branch that was added last.
    let threads = |name: &str| view.node(name).unwrap().counters[0].value;
    assert!(threads("t") > 1.0 && threads("t") == threads("o"), "{}", threads("t"));
    assert!(counts("a").passed == counts("a").arrived && counts("b").rejected > 0);
    assert!(view.node("f4").is_some() && view.node("f1").is_none() && view.node("count").is_none());
}

/// A filter has one set of texts, which all workers read, also where one thread distributes the frames.
#[test]
fn an_edit_of_a_filter_is_in_force_on_every_worker() {
    let text = "(frames) > {o}(inorder) > {f}(filter, \"len < 0\") > {n}(packetcount)";
    let (mut engine, handle) = GraphHandle::start_workers(&[text], classes(), 4).unwrap();
    let filters = engine.filters("f").unwrap();
    assert!(handle.filters_of(Some("f")).is_ok(), "its passes can be edited, too");
    let set = filters.set("src net 10.0.0.0/24").unwrap();
    let added = filters.add("src net 10.0.1.0/24").unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    let counts = |name: &str| view.node(name).unwrap().counts;
    assert_eq!(counts("n").arrived, u64::from(FRAMES));
    assert!(view.node("o").unwrap().counters[0].value > 1.0, "one thread did everything");
    let accepted: HashMap<u64, u64> =
        filters.counts().into_iter().map(|filter| (filter.id, filter.accepted)).collect();
    // Every third frame has the other direction.
    let third = u64::from(FRAMES.div_ceil(3));
    assert_eq!((accepted[&set.unwrap()], accepted[&added]), (u64::from(FRAMES) - third, third));
}

/// Two filters get new texts by one edit of the graph, again and again: no worker evaluates a frame between the two.
#[test]
fn an_edit_of_two_filters_is_one_for_all_workers() {
    let text = |net: &str| {
        format!(
            "(frames,rounds=1000000) > [{{a}}(filter, \"net 10.0.0.0/2{net}\") | \
             {{b}}(filter, \"ip and net 10.0.0.0/2{net}\")]"
        )
    };
    let (mut engine, handle) = GraphHandle::start_workers(&[&text("6")], classes(), 4).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let running = std::thread::spawn(move || {
        engine.run(&ended).unwrap();
        engine.view()
    });
    for net in ["7", "5", "8", "6"].into_iter().cycle().take(40) {
        handle.replace(1, &text(net)).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let view = running.join().unwrap();
    let counts = |name: &str| view.node(name).unwrap().counts;
    assert!(counts("a").arrived > 0 && counts("a").is_exact());
    assert_eq!(counts("a"), counts("b"));
}

/// A snapshot has the counts of filters, whatever workers publish at the same time.
#[test]
fn every_snapshot_has_the_counts_of_filters() {
    let text = "(frames,rounds=1000000) > {f}(filter, ip) > (packetcount)";
    let (mut engine, handle) = GraphHandle::start_workers(&[text], classes(), 4).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let running = std::thread::spawn(move || engine.run(&ended));
    for number in 0..400 {
        let view = handle.snapshot();
        assert!(view.node("f").unwrap().filters.is_some(), "snapshot {number}");
    }
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap().unwrap();
    assert!(handle.snapshot().node("f").unwrap().filters.is_some(), "the last one");
}

/// A node with counts that take longer than the thread that distributes frames waits for them.
struct Slow;

impl Node for Slow {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        std::thread::sleep(Duration::from_millis(60));
        vec![Counter::count("one", 1)]
    }
}

#[test]
fn counts_that_take_long_come_late_and_then_are_right() {
    let mut classes = classes();
    let make: fyke_graph::node::Make = |_| Ok(Box::new(Slow));
    classes.register(Class { name: "slow", make, parallel: true, ..Class::NODE });
    let text = "(frames,rounds=1000000) > (slow) > {f}(filter,\"udp port 53\") > (drop)";
    let (mut engine, handle) = GraphHandle::start_workers(&[text], classes, 2).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut last = 0;
            for _ in 0..5 {
                let passed = handle.snapshot().node("f").map_or(0, |node| node.counts.passed);
                if passed <= last {
                    stop.store(true, Ordering::Relaxed);
                    panic!("the counts stay: {passed} after {last}");
                }
                last = passed;
            }
            stop.store(true, Ordering::Relaxed);
        });
        engine.run(&stop).unwrap();
    });
}

/// Connections in a tunnel between two of many routers. Every third segment is in two fragments of the tunnel's packet;
/// the second one does not contain the inner header. No connection ends before the graph does.
fn tunnelled(frames: &mut MemorySource) {
    for number in 0..3_000u32 {
        let (pair, turn) = ((number % 97) as u8, number / 97);
        let outer = || Packet::ethernet().ipv4([192, 0, 2, pair], [192, 0, 2, 200 - pair]);
        let segment = outer().gre().ipv4([10, 0, 0, pair], [10, 0, 1, pair]).tcp(1_000, 80);
        let segment = segment.seq_ack(100 + 3 * turn, 0).flags(0x18).payload(b"abc").build();
        let all = match turn % 3 {
            1 => {
                let (id, packet) = (number as u16, &segment[34..]);
                let part = |at: usize, end: usize| {
                    let outer = outer().fragment(id, at as u16, end < packet.len());
                    outer.ip_payload(47, &packet[at..end]).build()
                };
                vec![part(0, 32), part(32, packet.len())]
            }
            _ => vec![segment],
        };
        let timestamp_ns = 1_700_000_000_000_000_000 + u64::from(number) * 1_000_000;
        for data in &all {
            frames.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, data) });
        }
    }
    frames.repeat(1);
}

/// Records the times of pieces.
#[derive(Default)]
struct Times {
    count: u64,
    sum: u64,
    earliest: u64,
}

impl Node for Times {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            if self.count == 0 {
                self.earliest = frame.timestamp_ns;
            }
            self.count += 1;
            self.sum += frame.timestamp_ns / 1_000_000 % 1_000_000;
            self.earliest = self.earliest.min(frame.timestamp_ns);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let all = [("pieces", self.count), ("sum", self.sum), ("earliest", self.earliest)];
        all.map(|(name, count)| Counter::count(name, count)).into()
    }
}

#[test]
fn tcp_streams_are_the_same_with_any_number_of_workers() {
    let run = |workers: usize| {
        let mut classes = Classes::new();
        let open: fyke_graph::node::Open = |_| {
            let mut source = MemorySource::new(LinkType::EN10MB);
            tunnelled(&mut source);
            Ok(Box::new(source))
        };
        classes.register(Class { name: "tunnel", kind: Kind::Source, open, ..Class::NODE });
        let make: fyke_graph::node::Make = |_| Ok(Box::<Times>::default());
        classes.register(Class { name: "times", make, ..Class::NODE });
        let text = "(tunnel) > {t}(tcp,payload=y) > {n}(times)";
        let (mut engine, _) = GraphHandle::start_workers(&[text], classes, workers).unwrap();
        engine.run(&AtomicBool::new(false)).unwrap();
        let view = engine.view();
        let counters = |name: &str| view.node(name).unwrap().counters.clone();
        (counters("t"), counters("n"))
    };
    let (streams, times) = run(1);
    let value = |name: &str| times.iter().find(|one| one.name == name).unwrap().value;
    // Each connection ends with an empty piece with the time of its last segment.
    assert!(value("pieces") > 2_000.0 && value("earliest") >= 1.7e18, "{times:?}");
    let counted = |name: &str| streams.iter().find(|one| one.name == name).unwrap().value;
    assert_eq!((counted("connections"), counted("delivered_bytes")), (97.0, 9_000.0));
    assert!(counted("packets_of_fragments") > 900.0);
    for workers in [2, 3, 5] {
        assert_eq!(run(workers), (streams.clone(), times.clone()), "{workers} workers");
    }
}
