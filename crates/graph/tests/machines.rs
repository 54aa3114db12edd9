//! Class `mpf` in complete graphs: Appendix B of the MPF paper with fragments out of order, several recipients,
//! values of single programs, programs that are added and removed.

use fyke_capture::{Interface, MemorySource, Next, ReadError, Source, SourceStats};
use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind, Open};
use fyke_graph::{Classes, GraphHandle, GraphView};
use fyke_testkit::packet::Packet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HERE: [u8; 4] = [10, 0, 0, 1];

/// A program of the register machines that accepts frames from UDP port `port`, without a match.
const UDP: &str =
    "begin\nldb [23]\njeq #17, L, N\nL: ldh [34]\njeq #port, Y, N\nY: ret #ALL\nN: ret #0\n";

/// Accepts TCP over IPv4 from `src_addr`, fragments included.
const FROM: &str =
    "begin\nldb [23]\njeq #6, L, N\nL: ld [26]\njeq #src_addr, Y, N\nY: ret #ALL\nN: ret #0\n";

/// Three fragments of a TCP segment from 10.0.0.`host`, port 4000 to 80; then an unfragmented one.
fn datagram(host: u8) -> Vec<Vec<u8>> {
    let packet = || Packet::ethernet().ipv4([10, 0, 0, host], HERE);
    let id = 100 + u16::from(host);
    let first = packet().fragment(id, 0, true).tcp(4000, 80).payload(&[1; 4]).build();
    let rest =
        |part: u16| packet().fragment(id, part * 24, part < 2).ip_payload(6, &[2; 24]).build();
    vec![first, rest(1), rest(2), packet().tcp(4000, 80).payload(&[3; 9]).build()]
}

fn source(frames: &[Vec<u8>], batch: usize) -> MemorySource {
    let mut source = MemorySource::new(LinkType::EN10MB);
    source.batch_limit(batch);
    frames.iter().for_each(|bytes| source.push(&Frame::new(LinkType::EN10MB, bytes)));
    source.repeat(1);
    source
}

/// Fragments of hosts 2 and 3 in several orders, and UDP frames: 3 from port 53, 2 from port 54.
fn classes() -> Classes {
    let open: Open = |settings| {
        let mut frames = Vec::new();
        for (host, order) in [(2, [1, 2, 0, 3]), (3, [2, 0, 1, 3]), (9, [1, 2, 0, 3])] {
            frames.extend(order.map(|at| datagram(host)[at].clone()));
        }
        for port in [53, 54, 53, 54, 53] {
            frames.push(Packet::ethernet().ipv4([10, 0, 0, 2], HERE).udp(port, 9).build());
        }
        Ok(Box::new(source(&frames, settings.number_or("batch", 1..=100, 100)? as usize)))
    };
    let parameters = &[fyke_graph::node::Parameter { name: "batch", summary: "frames a batch" }];
    let mut classes = Classes::new();
    classes.register(Class { name: "frames", kind: Kind::Source, parameters, open, ..Class::NODE });
    classes.register(Class { name: "phases", kind: Kind::Source, open: phases, ..Class::NODE });
    classes
}

struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Programs {
        let folder = tempfile::tempdir().unwrap();
        let paper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/machine");
        let fragments = std::fs::read_to_string(paper.join("appendix_b.mpf")).unwrap();
        // The same program with another time has another shape, so it is in a group of its own.
        let slower = fragments.replace("POSTPONE (time_out)", "POSTPONE (29000)");
        for (name, text) in [("b", &*fragments), ("c", &*slower), ("udp", UDP), ("from", FROM)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Programs(folder)
    }

    /// `(mpf, …)` of programs, written as `NAME:VALUES`.
    fn node(&self, programs: &[&str]) -> String {
        let folder = self.0.path().to_str().unwrap();
        let texts: Vec<_> =
            programs.iter().map(|program| format!("expression=\"{folder}/{program}\"")).collect();
        format!("{{m}}(mpf, {})", texts.join(", "))
    }

    fn session(name: &str, host: u8) -> String {
        format!("{name}:dest_addr=10.0.0.1,src_addr=10.0.0.{host},src_port=4000,dst_port=80")
    }
}

fn run(graph: &str) -> GraphView {
    let started = GraphHandle::start(&[graph], classes());
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{graph}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    view
}

fn arrived(view: &GraphView, tag: &str) -> u64 {
    view.node(tag).unwrap_or_else(|| panic!("no {tag}")).counts.arrived
}

fn counter(view: &GraphView, name: &str) -> f64 {
    let counters = &view.node("m").unwrap().counters;
    counters.iter().find(|counter| counter.name == name).unwrap().value
}

/// Counts of all frames, and of those with the first three class values.
fn fan(node: &str) -> String {
    let edges: Vec<_> =
        (1..=3).map(|class| format!("-{class}-> {{c{class}}}(packetcount)")).collect();
    let rest: Vec<_> = edges[1..].iter().map(|edge| format!("[{{m}}() {edge}]")).collect();
    format!("[{node} {}] | {} | [{{m}}() > {{all}}(packetcount)]", edges[0], rest.join(" | "))
}

#[test]
fn late_fragments_keep_their_class_value() {
    let programs = Programs::new();
    let sessions = [Programs::session("b", 2), Programs::session("b", 3)];
    let node = programs.node(&[&sessions[0], &sessions[1]]);
    for batch in [1, 2, 3, 100] {
        let view = run(&format!("(frames,batch={batch}) > {}", fan(&node)));
        let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
        assert_eq!(counts, [4, 4, 0, 8], "batches of {batch}");
        assert_eq!((counter(&view, "given_up"), counter(&view, "groups")), (2.0, 1.0));
        assert_eq!((counter(&view, "postponed"), counter(&view, "waiting")), (5.0, 0.0));
        // Five were held: three became late, and two belong to no program's session.
        assert_eq!(view.node("m").unwrap().counts.taken, 5);
    }
}

#[test]
fn every_recipient_gets_every_frame_and_each_passes_once() {
    let programs = Programs::new();
    let (b, c) = (Programs::session("b", 2), Programs::session("c", 2));
    for batch in [1, 2, 3, 100] {
        // Two groups, and both postpone.
        let view = run(&format!("(frames,batch={batch}) > {}", fan(&programs.node(&[&b, &c]))));
        let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
        assert_eq!(counts, [4, 4, 0, 4], "batches of {batch}");
        assert_eq!(counter(&view, "groups"), 2.0);
        // One program that postpones, one in the same group with equal keys, and one that accepts all of host 2 at
        // once.
        let node = programs.node(&["from:src_addr=10.0.0.2", &b, &b]);
        let view = run(&format!("(frames,batch={batch}) > {}", fan(&node)));
        let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
        assert_eq!(counts, [4, 4, 4, 4], "batches of {batch}");
        // Frames that only the first program accepts pass at the end, although the group has waited in vain.
        let node = programs.node(&["from:src_addr=10.0.0.9", &b]);
        let view = run(&format!("(frames,batch={batch}) > {}", fan(&node)));
        let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
        assert_eq!(counts, [4, 4, 0, 8], "batches of {batch}");
        assert_eq!(counter(&view, "given_up"), 2.0);
    }
}

#[test]
fn programs_have_values_of_their_own_and_run_either_way() {
    let programs = Programs::new();
    let node = programs.node(&["udp:port=53", "udp:port=54", &Programs::session("b", 3)]);
    for rest in ["", ", interpret=y"] {
        let node = node.replace(")", &format!("{rest})"));
        for batch in [1, 7, 100] {
            let view = run(&format!("(frames,batch={batch}) > {}", fan(&node)));
            let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
            assert_eq!(counts, [3, 2, 4, 9], "batches of {batch}{rest}");
        }
    }
    // A shared value defines a name that a program leaves undefined.
    let shared = programs.node(&["udp:port=53", "udp"]).replace(')', ", define=\"port=54\")");
    assert_eq!(arrived(&run(&format!("(frames) > {}", fan(&shared))), "c2"), 2);
}

#[test]
fn wrong_programs_are_refused_with_the_graph() {
    let programs = Programs::new();
    let refused =
        |node: String| match GraphHandle::start(&[&format!("(frames) > {node}")], classes()) {
            Ok(_) => panic!("{node} was taken"),
            Err(error) => error.to_string(),
        };
    for (program, part) in [
        ("nowhere", "No such file"),
        ("udp", "`port` has no value"),
        ("udp:port=53,prot=1", "no name `prot`"),
        ("udp:port=53,port=54", "`port` has two values"),
        ("udp:port=x", "expected a 32-bit number"),
    ] {
        let error = refused(programs.node(&[program]));
        assert!(error.contains(part), "{program}: {error}");
    }
    let unused = programs.node(&["udp:port=53"]).replace(')', ", define=\"port=54\")");
    assert!(refused(unused).contains("no program has a name `port`"));
}

/// Frames of a first phase, and of a second one after [`GO`] is set.
struct Phases {
    phases: [MemorySource; 2],
    first: u64,
}

static GO: AtomicBool = AtomicBool::new(false);

fn phases(_: &fyke_graph::node::Settings) -> Result<Box<dyn Source>, fyke_graph::node::MakeError> {
    let rest = |host| datagram(host)[1..3].to_vec();
    let first: Vec<_> = [2, 3, 4].into_iter().flat_map(rest).collect();
    let second: Vec<_> = [2, 3, 4].into_iter().map(|host| datagram(host)[0].clone()).collect();
    let phases = [source(&first, 4), source(&second, 1)];
    Ok(Box::new(Phases { phases, first: first.len() as u64 }))
}

impl Source for Phases {
    fn interfaces(&self) -> &[Interface] {
        self.phases[0].interfaces()
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.phases[0].stats().delivered < self.first {
            return self.phases[0].next();
        }
        if GO.load(Ordering::SeqCst) {
            return self.phases[1].next();
        }
        std::thread::sleep(Duration::from_millis(1));
        Ok(Next::Idle)
    }

    fn stats(&mut self) -> SourceStats {
        let [first, second] = self.phases.each_mut().map(|phase| phase.stats());
        SourceStats { delivered: first.delivered + second.delivered, ..first }
    }
}

#[test]
fn programs_come_and_go_and_what_others_wait_for_stays() {
    let programs = Programs::new();
    let [two, three, four] = [2, 3, 4].map(|host| Programs::session("b", host));
    let alone = Programs::session("c", 2);
    let graph = |list: &[&str]| format!("(phases) > {}", fan(&programs.node(list)));
    let started = GraphHandle::start(&[&graph(&[&three, &two, &alone])], classes());
    let (mut engine, handle) = started.unwrap_or_else(|error| panic!("{error}"));
    let runner = std::thread::spawn(move || {
        engine.run(&AtomicBool::new(false)).unwrap();
        engine.view()
    });
    // Six fragments wait, each of them in both groups.
    let waits = |handle: &GraphHandle, count: f64| {
        let view = handle.view();
        view.node("m").is_some() && counter(&view, "waiting") == count
    };
    while !waits(&handle, 6.0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Host 3 and its group are removed, host 4 is added; the text of host 2 stays, and is now the first one.
    handle.set(&graph(&[&two, &four])).unwrap();
    assert_eq!(handle.notes(), [] as [&str; 0]);
    GO.store(true, Ordering::SeqCst);
    let view = runner.join().unwrap();
    let counts = ["c1", "c2", "c3", "all"].map(|tag| arrived(&view, tag));
    assert_eq!(counts, [3, 3, 0, 6]);
    let node = view.node("m").unwrap();
    assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    // No count starts anew: all nine arrived at this node. The two of host 3 waited in vain.
    assert_eq!((node.counts.arrived, node.counts.taken), (9, 6));
    assert_eq!((counter(&view, "programs"), counter(&view, "groups")), (2.0, 1.0));
    assert_eq!((counter(&view, "postponed"), counter(&view, "given_up")), (12.0, 2.0));
}
