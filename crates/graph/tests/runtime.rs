//! The running graph: accounting at every node, joins, class edges, sharing, failures, edits.

use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Counter, Kind, MakeError, Node, NodeError, Settings};
use fyke_graph::runtime::{NodeCounts, NodeView};
use fyke_graph::{Classes, GraphHandle, GraphView, Plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A source of `expression` frames; the first byte of frame n is n mod 256, and its length is 60 + n mod 7 bytes.
fn frames(settings: &Settings) -> Result<Box<dyn fyke_capture::Source>, MakeError> {
    let count = settings.number("expression", 0..=1_000_000)?;
    let mut source = fyke_capture::MemorySource::new(LinkType::RAW);
    source.batch_limit(100).repeat(settings.number_or("rounds", 1..=u64::MAX, 1)?);
    for number in 0..count {
        let mut bytes = vec![0; 60 + (number % 7) as usize];
        bytes[0] = number as u8;
        source.push(&Frame::new(LinkType::RAW, &bytes));
    }
    Ok(Box::new(source))
}

/// Passes frames whose first byte is below `expression`.
struct Below(u8);

impl Node for Below {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.select(|frame| frame.data[0] < self.0))
    }
}

/// Gives each frame its first byte modulo `expression` as class value.
struct Modulo(u32);

impl Node for Modulo {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            arrival.classify(index, u32::from(frame.data[0]) % self.0);
        }
        Ok(arrival.mask())
    }
}

/// Fails in its second batch.
struct Failing(u32);

impl Node for Failing {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.0 += 1;
        if self.0 == 2 { Err(NodeError::new("worn out")) } else { Ok(arrival.mask()) }
    }
}

/// Panics in its second batch.
struct Panicking(u32);

impl Node for Panicking {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.0 += 1;
        assert!(self.0 < 2, "batch {} is one too many", self.0);
        Ok(arrival.mask())
    }
}

/// Takes every frame and emits it twice, one byte shorter, the second time only at the end.
#[derive(Default)]
struct Twice(Vec<(u32, Vec<u8>)>);

impl Node for Twice {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            let data = &frame.data[..frame.data.len() - 1];
            arrival.take(index);
            arrival.emit(&Frame { data, ..*frame });
            self.0.push((arrival.source(), data.to_vec()));
        }
        Ok(Mask::EMPTY)
    }

    fn finish(&mut self, emitted: &mut fyke_graph::node::Emitted) -> Result<(), NodeError> {
        for (source, data) in self.0.drain(..) {
            emitted.push(source, &Frame::new(LinkType::RAW, &data));
        }
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("held", self.0.len() as u64)]
    }
}

static MADE: AtomicU64 = AtomicU64::new(0);

fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(Class {
        name: "frames",
        parameters: &[
            fyke_graph::node::Parameter { name: "expression", summary: "how many" },
            fyke_graph::node::Parameter { name: "rounds", summary: "how often" },
        ],
        kind: Kind::Source,
        open: |settings| {
            MADE.fetch_add(1, Ordering::Relaxed);
            frames(settings)
        },
        ..Class::NODE
    });
    let below: fyke_graph::node::Make =
        |settings| Ok(Box::new(Below(settings.number("expression", 0..=255)? as u8)));
    classes.register(Class { name: "below", make: below, ..Class::NODE });
    let modulo: fyke_graph::node::Make =
        |settings| Ok(Box::new(Modulo(settings.number("expression", 1..=255)? as u32)));
    classes.register(Class { name: "modulo", make: modulo, classifies: true, ..Class::NODE });
    classes.register(Class { name: "fail", make: |_| Ok(Box::new(Failing(0))), ..Class::NODE });
    classes.register(Class { name: "panic", make: |_| Ok(Box::new(Panicking(0))), ..Class::NODE });
    classes.register(Class {
        name: "twice",
        make: |_| Ok(Box::new(Twice::default())),
        ..Class::NODE
    });
    classes.register(Class {
        name: "refuses",
        check: Some(|_| Ok(())),
        make: |_| Err(MakeError::new("", "no memory left")),
        ..Class::NODE
    });
    classes
}

fn run(texts: &[&str]) -> GraphView {
    let (mut engine, _) =
        GraphHandle::start(texts, classes()).unwrap_or_else(|error| panic!("{texts:?}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact(), "{}: {:?}", node.text, node.counts);
        if node.feeds.len() == 1 && node.feeds[0].class.is_none() {
            let from = view.nodes[node.feeds[0].from].counts;
            assert_eq!(node.counts.arrived, from.passed + from.emitted, "{}", node.text);
        }
    }
    view
}

fn node<'v>(view: &'v GraphView, name: &str) -> &'v NodeView {
    view.nodes.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn counts(view: &GraphView, name: &str) -> NodeCounts {
    node(view, name).counts
}

#[test]
fn an_edit_before_the_run_names_the_missing_thread() {
    let (mut engine, handle) = GraphHandle::start(&["(frames,5)"], classes()).unwrap();
    let error = handle.add("(frames,6)").unwrap_err().to_string();
    assert_eq!(error, "no thread runs the graph: call Engine::run in another thread first");
    engine.run(&AtomicBool::new(false)).unwrap();
    assert_eq!(handle.add("(frames,6)").unwrap_err().to_string(), "the graph has ended");
}

#[test]
fn chains_count_exactly() {
    let view = run(&["(frames,1000) > {b}(below,100) > {s}(sampler,10) > {n}(packetcount,export)"]);
    // 1000 frames contain all values three times, and the values up to 231 once more.
    assert_eq!(counts(&view, "b").passed, 400);
    assert_eq!(counts(&view, "b").rejected, 600);
    assert_eq!(counts(&view, "s").passed, 40);
    assert_eq!(node(&view, "n").counters, [Counter::count("packets", 40)]);
    assert_eq!(node(&view, "n").memory.get(0), 40);
    assert!(node(&view, "n").exported && !node(&view, "s").exported);
}

#[test]
fn a_frame_of_two_branches_arrives_once_unless_asked() {
    let graph = |join: &str| {
        format!("(frames,256) > [(below,100) | (below,50)] > {{n}}(packetcount{join})")
    };
    let once = run(&[&graph("")]);
    assert_eq!((counts(&once, "n").arrived, counts(&once, "n").merged), (100, 50));
    assert_eq!(counts(&run(&[&graph(",duplicates=y")]), "n").arrived, 150);
    let warnings = |text: &str| Plan::new(&[text], &classes()).unwrap().warnings.concat();
    assert!(warnings(&graph("")).contains("arrives once"));
    assert!(warnings(&graph(",duplicates=y")).contains("once from each branch"));
}

#[test]
fn and_and_not_between_nodes() {
    let text = "(frames,256) > [(below,100) & !(below,50)] > {n}(packetcount)";
    assert_eq!(counts(&run(&[text]), "n").arrived, 50);
    let text = "(frames,256) > {a}(below,100) > !{b}(below,50) > {n}(packetcount)";
    assert_eq!(counts(&run(&[text]), "n").arrived, 50);
    let text = "(frames,256) > {all}(accept) > [{a}(below,99) | ![(below,200) > (below,150)]] \
                > {n}(packetcount)";
    assert_eq!(counts(&run(&[text]), "n").arrived, 99 + 106);
    let text = "[{s}(frames,256) > {a}(below,100) > {m}(accept)] | \
                [{s}() > !{a}() > {n}(packetcount)]";
    assert_eq!(counts(&run(&[text]), "n").arrived, 156);
}

#[test]
fn class_edges_carry_their_class_only() {
    let text = "(frames,256) > {m}(modulo,4) > (accept) -3-> {three}(packetcount) | \
                [{m}() -1-> {one}(packetcount) -1-> {again}(packetcount)] | \
                [{one}() -2-> {none}(packetcount)]";
    // The first edge leads to a group of three: its members that begin with a reference get the frames too.
    let text = text.replace("-3-> {three}(packetcount) |", "-3-> {three}(packetcount)] |");
    let view = run(&[&format!("[{text}")]);
    let arrived = |name| counts(&view, name).arrived;
    assert_eq!(
        [arrived("three"), arrived("one"), arrived("again"), arrived("none")],
        [64, 64, 64, 0]
    );
    let plan = Plan::new(&["(frames,9) -3-> (accept)"], &classes()).unwrap();
    assert!(plan.warnings[0].contains("no node before"), "{:?}", plan.warnings);
}

/// A frame that several filters accept passes the edges of all of them; other nodes are not visited.
#[test]
fn frames_of_several_classes_go_over_all_their_edges() {
    let rules = "\"len >= 60 => 1\", expression=\"len >= 64 => 2\", expression=\"len >= 64 => 3\", \
                 expression=\"len >= 65 => 2\", expression=\"len > 900 => 9\"";
    let graph = |more: &str| {
        format!(
            "[(frames,700) > {{d}}(demux, {rules}{more}) -1-> {{one}}(packetcount)] | \
             [{{d}}() -2-> {{two}}(bytecount)] | [{{d}}() > (accept) -3-> {{three}}(packetcount)] | \
             [{{d}}() -9-> {{none}}(packetcount)] | \
             [{{d}}() -2-> {{join}}(snap,50) -3-> {{cut}}(packetcount)]"
        )
    };
    let view = run(&[&graph("")]);
    let arrived = |view: &GraphView, name| counts(view, name).arrived;
    let names = ["one", "two", "three", "none", "join", "cut"];
    assert_eq!(names.map(|name| arrived(&view, name)), [700, 300, 300, 0, 300, 300]);
    let counted: Vec<_> = node(&view, "d").counters.iter().map(|one| one.value).collect();
    assert_eq!(counted, [700.0, 300.0, 300.0, 200.0, 0.0, 0.0]);
    let first = run(&[&graph(",first=y")]);
    assert_eq!(names.map(|name| arrived(&first, name)), [700, 0, 0, 0, 0, 0]);
}

#[test]
fn equal_beginnings_are_one_node_and_others_are_not() {
    let first = "(frames,300,rounds=1) > (below,100) > {a}(packetcount)";
    let second = "(frames,300,rounds=1) > (below,100) > (sampler,2) > {b}(packetcount)";
    let view = run(&[first, second]);
    assert_eq!(view.nodes.len(), 5);
    assert_eq!((counts(&view, "a").arrived, counts(&view, "b").arrived), (144, 72));
    let keys = |texts: &[&str]| -> Vec<u64> {
        Plan::new(texts, &classes()).unwrap().nodes.iter().map(|node| node.key).collect()
    };
    let (one, both) = (keys(&[first]), keys(&[first, second]));
    assert!(one.iter().all(|key| both.contains(key)));
    assert_ne!(keys(&["(frames,1) > (accept)"])[1], keys(&["(frames,2) > (accept)"])[1]);
}

#[test]
fn a_node_that_fails_stops_its_branch_only() {
    let view = run(&["(frames,1000) > [[{f}(fail) > {after}(packetcount)] | {n}(packetcount)]"]);
    assert_eq!((counts(&view, "f").passed, counts(&view, "f").lost), (100, 900));
    assert_eq!((counts(&view, "after").arrived, counts(&view, "n").arrived), (100, 1000));
    assert_eq!(node(&view, "f").failed.as_ref().unwrap().to_string(), "worn out");
}

#[test]
fn a_node_that_panics_stops_its_branch_only() {
    let view = run(&["(frames,1000) > [[{f}(panic) > {after}(packetcount)] | {n}(packetcount)]"]);
    assert_eq!((counts(&view, "f").passed, counts(&view, "f").lost), (100, 900));
    assert_eq!((counts(&view, "after").arrived, counts(&view, "n").arrived), (100, 1000));
    let failed = node(&view, "f").failed.as_ref().unwrap().to_string();
    assert_eq!(failed, "error in the class: batch 2 is one too many");
}

#[test]
fn a_graph_ends_when_no_branch_is_left() {
    let text = "(frames,1000,rounds=10000000) > [[{f}(fail) > (packetcount)] | {g}(panic)]";
    let view = run(&[text]);
    assert_eq!(view.sources[0].stats.delivered, 200);
    assert!(node(&view, "f").failed.is_some() && node(&view, "g").failed.is_some());
}

#[test]
fn emitted_frames_go_on_at_once_and_at_the_end() {
    let view =
        run(&["(frames,1000) > {t}(twice) > {n}(bytecount) > (sampler,2) > {s}(packetcount)"]);
    assert_eq!((counts(&view, "t").taken, counts(&view, "t").emitted), (1000, 2000));
    // Frames emitted at once keep their length on the wire.
    let bytes: usize = (0..1000).map(|n| 2 * (59 + n % 7) + 1).sum();
    assert_eq!(node(&view, "n").counters[0], Counter::count("bytes", bytes as u64));
    assert_eq!(counts(&view, "s").arrived, 1000);
    assert_eq!(node(&view, "t").counters[0].value, 0.0);
}

/// Records that it exists, until it is dropped.
struct Present;

static PRESENT: AtomicU64 = AtomicU64::new(0);

impl Drop for Present {
    fn drop(&mut self) {
        PRESENT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node for Present {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.mask())
    }
}

/// Nodes made before a node that cannot be made are dropped; the running graph is not affected.
#[test]
fn all_or_nothing_at_instantiation() {
    let mut classes = classes();
    let make: fyke_graph::node::Make = |_| {
        PRESENT.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Present))
    };
    classes.register(Class { name: "present", check: Some(|_| Ok(())), make, ..Class::NODE });
    let refused = "(frames,5) > (present,1) > [(present,2) | (refuses)]";
    let error = GraphHandle::start(&[refused], classes.clone()).err().unwrap();
    let said = error.to_string();
    assert!(said.starts_with("no memory left\n") && said.ends_with("^^^^^^^^^"), "{said}");
    assert_eq!(PRESENT.load(Ordering::Relaxed), 0);
    let started = GraphHandle::start(&["(frames,5) > (present,1)"], classes);
    let (mut engine, handle) = started.unwrap();
    assert!(handle.add(refused).is_err() && handle.add("(frames,5) > (presnt)").is_err());
    assert_eq!((PRESENT.load(Ordering::Relaxed), handle.texts().len(), handle.epoch()), (1, 1, 0));
    engine.run(&AtomicBool::new(false)).unwrap();
    assert_eq!(engine.view().nodes[1].counts.passed, 5);
}

/// Runs a graph until `edit` returns, and then to its end.
fn run_while(text: &str, edit: impl FnOnce(&GraphHandle)) -> GraphView {
    let (mut engine, handle) = GraphHandle::start(&[text], classes()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let loop_thread = std::thread::spawn(move || {
        engine.run(&ended).unwrap();
        engine.view()
    });
    edit(&handle);
    stop.store(true, Ordering::Relaxed);
    loop_thread.join().unwrap()
}

/// Giving the text again changes a parameter: the node with the tag, and all nodes after it, keep their counts.
#[test]
fn parameters_change_without_a_reset() {
    let text = |filter: &str| {
        format!(
            "(frames,1000,rounds=10000000) > {{f}}(filter, \"{filter}\") > (packetcount, \
             mbufsize=8) > {{m}}(bytecount)"
        )
    };
    // The first byte of a frame is its number; for link type RAW it contains the version of IP.
    let view = run_while(&text("len < 0"), |handle| {
        std::thread::sleep(Duration::from_millis(20));
        let first = handle.view();
        handle.set(&text("len >= 0")).unwrap();
        let wait = || handle.view().node("m").is_none_or(|node| node.counts.passed < 5_000);
        while wait() {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(first.node("m").map_or(0, |node| node.counts.passed), 0);
    });
    let (filter, count) = (node(&view, "f"), node(&view, "packetcount"));
    assert_eq!(filter.counts.arrived, view.sources[0].stats.delivered, "counts went on");
    assert!(filter.counts.rejected > 0 && filter.counts.passed >= 5_000);
    assert_eq!(count.counts.arrived, filter.counts.passed);
    assert_eq!(count.memory.get(0), count.counts.arrived, "its memory is the same");
    assert!(filter.text.contains("len >= 0"));
}

/// Parameters that classes accept while they run, each with its effect, and the note about a node that is made anew.
#[test]
fn classes_say_which_parameters_are_live() {
    let text = |sampler: &str, rest: &str| {
        format!(
            "[(frames,1000,rounds=10000000) > {{s}}(sampler,{sampler}) > {{n}}(packetcount)] | \
             [{{s}}() > {{d}}(demux, {rest}) -7-> {{m}}(packetcount)]"
        )
    };
    let view = run_while(&text("10", "\"len < 0 => 7\""), |handle| {
        std::thread::sleep(Duration::from_millis(20));
        handle.set(&text("2", "\"len >= 60 => 7\", expression=\"len < 0 => 8\"")).unwrap();
        assert_eq!(handle.notes(), [] as [&str; 0]);
        while handle.view().node("m").is_none_or(|node| node.counts.arrived == 0) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = handle.view().node("n").unwrap().counts.arrived;
        handle.set(&text("2,mode=probabilistic", "\"len >= 60 => 7\"")).unwrap();
        let notes = handle.notes();
        assert!(notes[0].starts_with("s is replaced and counts from 0: mode cannot"), "{notes:?}");
        assert!(notes[0].ends_with("(these can: expression)") && notes.len() == 4, "{notes:?}");
        assert!(before > 0);
    });
    let (s, d) = (node(&view, "s").counts, node(&view, "d"));
    assert!(s.arrived < view.sources[0].stats.delivered, "made anew");
    assert_eq!(d.counters[0].value, d.counts.arrived as f64);
}

#[test]
fn a_file_is_left_alone_when_the_graph_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(name("old.pcap"), "precious").unwrap();
    let graph = |other: &str| {
        format!(
            "(frames,5) > [(tofile, \"{}\") | (tofile, \"{}\") | (tofile, \"{other}\")]",
            name("old.pcap"),
            name("new.pcap")
        )
    };
    let refused = GraphHandle::start(&[&graph("/nowhere/at/all.pcap")], classes()).err().unwrap();
    assert!(refused.to_string().contains("/nowhere"), "{refused}");
    assert_eq!(std::fs::read(name("old.pcap")).unwrap(), b"precious");
    assert!(!folder.path().join("new.pcap").exists());
    run(&[&graph(&name("third.pcap"))]);
    let [old, new] = ["old.pcap", "new.pcap"].map(|file| std::fs::read(name(file)).unwrap());
    assert!(old == new && old.len() > 5 * 60, "{}", old.len());
}

#[test]
fn graphs_that_cannot_be_are_refused_with_their_place() {
    let refusal = |text| Plan::new(&[text], &classes()).unwrap_err().to_string();
    for (text, part) in [
        ("(accept)", "nothing feeds (accept)"),
        ("(frames,1) > {a}(accept) > (drop) > {a}()", "feeds itself"),
        ("(frames,1) > {a}()", "no node before this place"),
        ("(frames,1) > {a}(accept) > {a}(accept)", "is taken"),
        ("(frames,1) > (acept)", "did you mean \"accept\"?"),
        ("(frames,1) > (track)", "register it: classes.register(fyke::track::CLASS)"),
        ("(frames,1) > (below,expresion=2)", "did you mean \"expression\"?"),
        ("(frames,1) > (below)", "it needs `expression=…`"),
        ("(frames,1) > (below,256)", "256 is not a whole number from 0 to 255"),
        ("(frames,1) > (accept,export=maybe)", "neither `y` nor `n`"),
        ("(frames,1) > (packetcount,mbufsize=99999999999)", "memory of more than"),
        ("(frames,1) > (packetcount,mbufsize=40000000)", "whole number"),
        (
            "(frames,1) > (accept,mbufsize=8)",
            "classes that take it: bucket, bytecount, distribution",
        ),
        ("!(frames,1)", "`!` has no input"),
        ("(frames,1) > !(frames,2)", "takes no input"),
        (
            "(frames,1) > (accept) > {x}(frames,2) > (drop)",
            "                          ^^^^^^^^^^^^^\n",
        ),
        ("[(frames,1) > (accept) | (frames,2)] > (drop)", "around each branch"),
        ("{x}(frames,1) > (accept) > {x}() > (drop)", "{x}() is a source of frames"),
        ("(frames,1) > (bpf,\"tcp prot 1\")", "^"),
    ] {
        assert!(refusal(text).contains(part), "{text}\n{}", refusal(text));
    }
}

#[test]
fn edges_are_limited() {
    let group = vec!["(accept)"; 600].join("|");
    let text = format!("(frames,1) > [{group}] > [{group}]");
    assert!(Plan::new(&[&text], &classes()).unwrap_err().to_string().contains("edges"));
}

/// Edits while frames arrive: nodes that stay lose nothing and keep their counts.
#[test]
fn edits_lose_nothing_on_untouched_branches() {
    let base = "(frames,1000,rounds=10000000) > {n}(packetcount)";
    let (mut engine, handle) = GraphHandle::start(&[base], classes()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let loop_thread = std::thread::spawn(move || {
        engine.run(&ended).unwrap();
        engine.view()
    });
    let mut added = Vec::new();
    for modulo in 1..=20 {
        let text = format!("(frames,1000,rounds=10000000) > (sampler,{modulo}) > (bytecount)");
        added.push(handle.add(&text).unwrap());
    }
    assert!(handle.add("{n}() > (nonsense)").is_err());
    assert!(handle.add("{n}() > (refuses)").is_err());
    assert_eq!(handle.epoch(), 20);
    handle.add("{n}() > {late}(packetcount)").unwrap();
    assert!(handle.remove(1).is_err(), "another text refers to its tag");
    for id in added {
        handle.remove(id).unwrap();
    }
    assert!(handle.remove(999).is_err());
    std::thread::sleep(Duration::from_millis(150));
    assert!(handle.view().nodes.iter().any(|node| node.name == "late"));
    stop.store(true, Ordering::Relaxed);
    let view = loop_thread.join().unwrap();
    assert!(handle.add("(frames,1)").is_err(), "the graph has ended");
    assert_eq!(view.nodes.len(), 3);
    assert_eq!(counts(&view, "n").arrived, view.sources[0].stats.delivered);
    let late = counts(&view, "late").arrived;
    assert!(late > 0 && late < counts(&view, "n").arrived);
}
