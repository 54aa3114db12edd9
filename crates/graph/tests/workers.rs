//! Several workers: the same counts as with one, and the order of each conversation.

use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Counter, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, GraphView};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::thread::ThreadId;

const FRAMES: u32 = 20_000;

/// Frames between 97 pairs of hosts, both directions; the number of the frame is in its last four bytes.
fn source() -> MemorySource {
    let mut source = MemorySource::new(LinkType::RAW);
    source.batch_limit(200);
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

/// Fails when a pair's frames come out of order; notes which threads have brought them.
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
            if last.is_some_and(|last| last >= number) {
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
    let open: fyke_graph::node::Open = |_| Ok(Box::new(source()));
    classes.register(Class { name: "frames", kind: Kind::Source, open, ..Class::NODE });
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
             {{p}}(field, sourceport) -9-> {{b}}(bytecount) > {{k}}(sampler,7)]",
            file(workers).to_str().unwrap()
        )
        .replace("[{f}", "[[{f}")
        .replace("| {p}", "] | [{p}")
        .replace("7)]", "7)]]")
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
    assert!(refused("(frames) > (limit,3)").contains("(limit, expression=3) does not run with"));
    let started = GraphHandle::start_workers(&["(frames) > (accept)"], classes(), 2);
    let (mut engine, handle) = started.unwrap();
    let edited = handle.add("(frames) > (drop)").unwrap_err().to_string();
    assert!(edited.contains("not edited with several workers"), "{edited}");
    engine.run(&AtomicBool::new(false)).unwrap();
}
