//! Exports: each exported node has a ring with exactly the frames that it passes, stored once for all of them; with
//! joins, class values, cuts, edits and several workers.

use fyke_capture::MemorySource;
use fyke_frame::{Direction, Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, Plan};
use fyke_ring::packets::Copied;
use fyke_ring::{Read, Reader, Value};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn frame(number: u8) -> Vec<u8> {
    vec![number; 20 + usize::from(number % 5)]
}

/// A source of frames with different bytes, lengths and metadata.
fn source(count: u8) -> MemorySource {
    let mut source = MemorySource::new(LinkType::RAW);
    source.batch_limit(37);
    for number in 0..count {
        let data = frame(number);
        let mut one = Frame::new(LinkType::RAW, &data);
        one.timestamp_ns = 1_000 + u64::from(number);
        one.meta.direction = if number % 2 == 0 { Direction::Inbound } else { Direction::Outbound };
        one.meta.ifindex = 7;
        source.push(&one);
    }
    source
}

/// Passes the frames with a number below this; the class value is the number modulo 3.
struct Below(u8);

impl Node for Below {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            arrival.classify(index, u32::from(frame.data[0] % 3));
        }
        Ok(arrival.select(|frame| frame.data[0] < self.0))
    }
}

/// Cuts the first batch after three frames and emits five others.
struct Cutter(bool);

impl Node for Cutter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        if !std::mem::replace(&mut self.0, true) {
            for number in 200..205 {
                arrival.emit(&Frame::new(LinkType::RAW, &[number; 20]));
            }
            arrival.cut(3);
        }
        Ok(arrival.mask())
    }
}

fn classes(folder: &Path) -> Classes {
    let mut classes = Classes::new();
    classes.export_to(folder);
    let frames = Class { name: "frames", kind: Kind::Source, ..Class::NODE };
    classes.register_source(frames, |settings| {
        Ok(Box::new(source(settings.number_or("expression", 0..=200, 200)? as u8)))
    });
    classes.register(Class {
        name: "below",
        classifies: true,
        repeatable: true,
        parallel: true,
        make: |settings| Ok(Box::new(Below(settings.number("expression", 0..=255)? as u8))),
        ..Class::NODE
    });
    classes.register(Class {
        name: "cutter",
        cuts: |_| true,
        make: |_| Ok(Box::new(Cutter(false))),
        ..Class::NODE
    });
    classes
}

/// The frames that wait in a ring, with their metadata.
fn read(reader: &mut Reader) -> Vec<(u8, Copied)> {
    let mut all = Vec::new();
    loop {
        let mut data = Vec::new();
        match reader.next(&mut data) {
            Read::Frame(copied) => {
                let number = data[0];
                if number < 200 {
                    assert_eq!(data, frame(number));
                    let even = number % 2 == 0;
                    let direction = if even { Direction::Inbound } else { Direction::Outbound };
                    assert_eq!((copied.direction, copied.ifindex), (direction, 7));
                    assert_eq!(copied.timestamp_ns, 1_000 + u64::from(number));
                }
                all.push((number, copied));
            }
            Read::End => return all,
            other => panic!("{other:?}"),
        }
    }
}

fn numbers(reader: &mut Reader) -> Vec<u8> {
    read(reader).into_iter().map(|(number, _)| number).collect()
}

/// Runs a graph to its end, with a reader of each of these exports.
fn run(text: &str, names: &[&str]) -> Vec<Reader> {
    let folder = tempfile::tempdir().unwrap();
    let (mut engine, _) = GraphHandle::start(&[text], classes(folder.path())).unwrap();
    let connect = |name: &&str| Reader::connect(&folder.path().join(name)).unwrap();
    let readers: Vec<Reader> = names.iter().map(connect).collect();
    engine.run(&AtomicBool::new(false)).unwrap();
    readers
}

#[test]
fn exports_of_merging_branches_share_each_frame() {
    let text = "{in}(frames,export=y) > [{a}(below,50,export=y) | {b}(below,90,export=y)] > \
                {both}(packetcount,export=y)";
    let mut readers = run(text, &["in", "a", "b", "both"]);
    let all: Vec<Vec<(u8, Copied)>> = readers.iter_mut().map(read).collect();
    for (found, count) in all.iter().zip([200, 50, 90, 90]) {
        let found: Vec<u8> = found.iter().map(|(number, _)| *number).collect();
        assert_eq!(found, (0..count).collect::<Vec<u8>>());
    }
    for (at, exported) in all.iter().enumerate() {
        for (number, Copied { entry, .. }) in exported {
            let first = all[0][usize::from(*number)].1.entry;
            let places = [(first.place, first.sequence), (entry.place, entry.sequence)];
            assert_eq!(places[0], places[1], "each frame is stored once");
            let class = if at == 0 { 0 } else { u32::from(number % 3) };
            assert_eq!(entry.class, class, "the class that the exported node passes on");
        }
    }
}

#[test]
fn a_cut_exports_each_frame_once_and_in_order() {
    let mut readers =
        run("(frames,30) > {f}(below,25,export=y) > {c}(cutter,export=y)", &["f", "c"]);
    assert_eq!(numbers(&mut readers[0]), (0..25).collect::<Vec<u8>>());
    let expected: Vec<u8> = (0..3).chain(200..205).chain(3..25).collect();
    assert_eq!(numbers(&mut readers[1]), expected);
}

#[test]
fn frames_that_a_node_makes_are_exported_too() {
    let mut readers = run("(frames,9) > {s}(snap,10,export=y) > (packetcount)", &["s"]);
    let mut data = Vec::new();
    for number in 0..9 {
        data.clear();
        assert!(matches!(readers[0].next(&mut data), Read::Frame(_)));
        assert_eq!(data, [number; 10]);
    }
    assert_eq!(readers[0].next(&mut data), Read::End);
}

#[test]
fn several_workers_fill_one_ring() {
    let folder = tempfile::tempdir().unwrap();
    let text = "(frames) > {f}(below,150,export=y)";
    let classes = classes(folder.path());
    let (mut engine, _) = GraphHandle::start_workers(&[text], classes, 3).unwrap();
    let mut reader = Reader::connect(&folder.path().join("f")).unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    let mut found = numbers(&mut reader);
    found.sort_unstable();
    assert_eq!(found, (0..150).collect::<Vec<u8>>());
}

#[test]
fn an_edit_opens_and_closes_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let mut classes = classes(folder.path());
    let endless = Class { name: "endless", kind: Kind::Source, ..Class::NODE };
    classes.register_source(endless, |_| {
        let mut source = source(200);
        source.repeat(u64::MAX);
        Ok(Box::new(source))
    });
    let text = "{in}(endless) > {f}(below,50)";
    let (mut engine, handle) = GraphHandle::start(&[text], classes).unwrap();
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let running = std::thread::spawn(move || engine.run(&stopped));
    assert!(Reader::connect(&folder.path().join("f")).is_err());
    let kept = handle.view().node("f").map(|node| node.id);
    let added = handle.add("{in}(endless) > {f}(below,50,export=y) > (drop)").unwrap();
    assert_eq!(handle.view().node("f").map(|node| node.id), kept, "the node itself stays");
    let mut reader = Reader::connect(&folder.path().join("f")).unwrap();
    let start = Instant::now();
    while reader.read() < 1_000 {
        if reader.next(&mut Vec::new()) == Read::Nothing {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    handle.remove(added).unwrap();
    while reader.next(&mut Vec::new()) != Read::End {
        assert!(start.elapsed() < Duration::from_secs(40));
    }
    assert!(!folder.path().join("f").exists());
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap().unwrap();
}

#[test]
fn readers_see_the_values_of_the_exported_node() {
    let text = "(frames) > {f}(below,50,export=y) > {n}(packetcount,export=y)";
    let readers = run(text, &["f", "n"]);
    let value = |reader: &Reader, name: &str| reader.values().unwrap().named(name);
    for (name, count) in [("arrived", 200), ("passed", 50), ("rejected", 150), ("lost", 0)] {
        assert_eq!(value(&readers[0], name), Some(Value::Count(count)), "{name}");
    }
    assert_eq!(value(&readers[0], "memory 0"), None, "the class has no memory");
    assert_eq!(value(&readers[1], "memory 0"), Some(Value::Count(50)));
    assert_eq!(value(&readers[1], "counter packets"), Some(Value::Number(50.0)));
}

/// Frames that pass while nothing reads are counted, and not stored.
#[test]
fn an_export_without_readers_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = "(frames) > {f}(below,50,export=y)";
    let (mut engine, handle) = GraphHandle::start(&[text], classes(folder.path())).unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = handle.view();
    let ring = view.node("toring").unwrap();
    let counters: Vec<_> = ring.counters.iter().map(|one| (one.name.as_str(), one.value)).collect();
    assert_eq!(counters, [("written", 0.0), ("refused", 0.0), ("unread", 50.0)]);
}

#[test]
fn names_and_sizes_are_checked_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let classes = classes(folder.path());
    for (text, part) in [
        ("(frames) > [(below,5,export=y) | (below,9,export=y)]", "two nodes would be exported"),
        ("(frames) > (toring,x,buffer=64X)", "64X is not a size from 8K to 1G"),
        ("(frames) > (toring,x,buffer=4G)", "4G is not a size"),
        ("(frames) > (toring,x,frames=1)", "1 is not a whole number from 16 to 16777216"),
        ("(frames) > (toring,x,prefer=all)", "fast, slow"),
    ] {
        let error = Plan::new(&[text], &classes).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains('^'), "{text}: {error}");
    }
    // The same node in two texts has one ring, and a node without `export` has none.
    let texts = ["(frames) > (below,5,export=y)", "(frames) > (below,5) > (drop)"];
    let plan = Plan::new(&texts, &classes).unwrap();
    assert_eq!(plan.nodes.iter().filter(|node| node.class.name == "toring").count(), 1);
    let plan = Plan::new(&texts[..1], &Classes::new());
    assert!(plan.is_err(), "`frames` is a class of this test");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
