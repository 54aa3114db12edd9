//! Nodes that cut batches: edits between frames, look-back, limits, exact accounting.

use fyke_capture::MemorySource;
use fyke_filters::FilterSet;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Kind, Node, NodeError};
use fyke_graph::runtime::NodeCounts;
use fyke_graph::{Classes, GraphHandle, GraphView, Made, Plan};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

static NEVER: AtomicBool = AtomicBool::new(false);

/// UDP to these ports, in order; the timestamp is the index of the frame.
fn source(ports: &[u16]) -> MemorySource {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for (place, &port) in (0..).zip(ports) {
        let bytes = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, port).build();
        source.push(&Frame { timestamp_ns: place, ..Frame::new(LinkType::EN10MB, &bytes) });
    }
    source
}

fn port_of(frame: &Frame<'_>) -> u16 {
    u16::from_be_bytes([frame.data[36], frame.data[37]])
}

type Came = Vec<(u64, u16, bool)>;
/// Called for every frame with its port and the filters before the node; true if it has edited them.
type Edit = Box<dyn FnMut(u16, &FilterSet) -> bool + Send>;

/// Records the frames that arrive: index, port, late or not.
struct Recorder {
    came: Arc<Mutex<Came>>,
    filters: Option<FilterSet>,
    edit: Edit,
}

impl Node for Recorder {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let filters = self.filters.as_ref().expect("a filter is before it");
        for (index, frame) in arrival.frames() {
            let port = port_of(frame);
            self.came.lock().unwrap().push((frame.timestamp_ns, port, frame.meta.late));
            if (self.edit)(port, filters) {
                arrival.cut(index + 1);
                return Ok(arrival.mask() & Mask::first(index + 1));
            }
        }
        Ok(arrival.mask())
    }

    fn connect(&mut self, filters: &FilterSet) {
        self.filters = Some(filters.clone());
    }
}

fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(Class { name: "frames", kind: Kind::Source, ..Class::NODE });
    let given = Class { check: Some(|_| Ok(())), ..Class::NODE };
    classes.register(Class { name: "recorder", cuts: |_| true, edits: true, ..given });
    classes
}

/// Runs a graph; returns the frames that arrived at the recorder, the counts, and the frames that filters accepted.
fn run_graph(text: &str, ports: &[u16], held: u64, edit: Edit) -> (Came, GraphView, u64) {
    let mut frames = source(ports);
    frames.look_back(held);
    let came = Arc::<Mutex<Came>>::default();
    let recorder = Recorder { came: Arc::clone(&came), filters: None, edit };
    let given = vec![
        ("frames", Made::Source(Box::new(frames))),
        ("recorder", Made::Node(Box::new(recorder))),
    ];
    let started = GraphHandle::start_with(&[text], classes(), given);
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&NEVER).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    let filters = engine.filters("f").map(|filters| filters.counts()).unwrap_or_default();
    let accepted = filters.iter().map(|filter| filter.accepted).sum();
    (std::mem::take(&mut came.lock().unwrap()), view, accepted)
}

/// Runs a filter, a limit and a recorder; returns also the counts of the filter and the number of accepted frames.
fn run(
    ports: &[u16],
    look_back: Option<u64>,
    limit: usize,
    edit: impl FnMut(u16, &FilterSet) -> bool + Send + 'static,
) -> (Came, NodeCounts, u64) {
    let back = if look_back.is_some() { ", lookback=y" } else { "" };
    let text = format!(
        "(frames) > {{f}}(filter, \"udp dst port 1\"{back}) > (limit, {limit}) > (recorder) > \
         {{n}}(packetcount)"
    );
    let (came, view, accepted) = run_graph(&text, ports, look_back.unwrap_or(0), Box::new(edit));
    let filter = view.node("f").unwrap();
    assert_eq!(view.node("n").unwrap().counts.arrived, came.len() as u64);
    (came, filter.counts, accepted)
}

fn counts(arrived: u64, passed: u64, rejected: u64, late: u64) -> NodeCounts {
    NodeCounts { arrived, passed, rejected, late, ..NodeCounts::default() }
}

#[test]
fn an_edit_made_for_a_frame_is_in_force_for_the_next_one() {
    let mut edits = 0;
    let (came, counted, hits) = run(&[2, 1, 2, 3, 2, 1, 2], None, 100, move |port, filters| {
        let edit = port == 1 && edits == 0;
        if edit {
            edits += 1;
            filters.add("udp dst port 2").unwrap();
        }
        edit
    });
    let places: Vec<u64> = came.iter().map(|frame| frame.0).collect();
    assert_eq!(places, [1, 2, 4, 5, 6]);
    assert_eq!(counted, counts(7, 5, 2, 0));
    assert_eq!(hits, 5, "a frame judged again counts once");
}

#[test]
fn look_back_delivers_earlier_frames_once_in_order_before_the_next() {
    let mut edits = 0;
    let (came, counted, _) = run(&[2, 3, 2, 1, 2, 1], Some(100), 100, move |port, filters| {
        if port == 1 {
            edits += 1;
            filters.add(&format!("udp dst port {}", edits + 1)).unwrap();
        }
        port == 1
    });
    let expected =
        [(3, 1, false), (0, 2, true), (2, 2, true), (4, 2, false), (5, 1, false), (1, 3, true)];
    assert_eq!(came, expected);
    assert_eq!(counted, counts(6, 6, 0, 3));
}

#[test]
fn look_back_reaches_into_earlier_batches_as_far_as_the_source_holds() {
    // 600 frames are three batches; the last one looks back at all earlier frames.
    let mut ports = vec![2; 600];
    ports[599] = 1;
    let (came, counted, _) = run(&ports, Some(400), 1_000, |port, filters| {
        if port == 1 {
            filters.add("udp dst port 2").unwrap();
        }
        port == 1
    });
    let late = came.iter().filter(|frame| frame.2).count() as u64;
    assert!(late >= 400, "{late}");
    assert_eq!(counted, counts(600, late + 1, 600 - late - 1, late));
    let places: Vec<u64> = came[1..].iter().map(|frame| frame.0).collect();
    assert!(places.is_sorted() && places.last() == Some(&598));
}

#[test]
fn a_limit_counts_what_was_judged_and_nothing_else() {
    let (came, counted, _) = run(&[2, 1, 2, 1, 1, 2], None, 2, |_, _| false);
    assert_eq!(came.len(), 2);
    assert_eq!(counted, counts(4, 2, 2, 0));
}

#[test]
fn random_edits_keep_the_accounting_exact() {
    let (mut random, seed) = Random::seeded(7);
    for round in 0..50 {
        let ports: Vec<u16> = (0..700).map(|_| random.below(6) as u16 + 1).collect();
        let look_back = random.chance(2).then_some(300);
        let mut dice = Random::new(random.number());
        let (came, counted, hits) = run(&ports, look_back, usize::MAX, move |_, filters| {
            let edit = dice.chance(20);
            if edit {
                let port = dice.below(6) + 1;
                filters.add(&format!("udp dst port {port}")).unwrap();
            }
            edit
        });
        let what = format!("seed {seed}, round {round}");
        assert_eq!(counted.arrived, 700, "{what}");
        assert_eq!(counted.passed, came.len() as u64, "{what}");
        let mut places: Vec<u64> = came.iter().map(|frame| frame.0).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), came.len(), "delivered twice: {what}");
        assert_eq!(hits, came.len() as u64, "{what}");
    }
}

/// Branches beside the one that cuts get every frame once and in order.
#[test]
fn other_branches_do_not_notice_cuts() {
    let text = "(frames) > [[{f}(filter, \"udp dst port 1\") > (recorder)] | \
                [{all}(packetcount) > {s}(sampler,7)] | \
                [(field,destport) -2-> {two}(packetcount)]]";
    let ports: Vec<u16> = (0..1000).map(|n| n % 5).collect();
    let edit = |_, filters: &FilterSet| filters.add("udp dst port 3").is_ok();
    let (_, view, _) = run_graph(text, &ports, 0, Box::new(edit));
    let arrived = |name| view.node(name).unwrap().counts.arrived;
    assert_eq!((arrived("all"), arrived("s"), arrived("two")), (1000, 1000, 200));
    assert_eq!(view.node("s").unwrap().counts.passed, 143);
    assert_eq!(view.node("f").unwrap().counts.passed, 400);
}

#[test]
fn what_may_not_stand_before_a_cut_is_refused_with_its_place() {
    for (text, part) in [
        (
            "(frames) > (sampler,2) > (limit,3)",
            "(sampler, expression=2) cannot evaluate a frame twice",
        ),
        ("(frames) > (recorder)", "no node before (recorder) has a filter"),
        ("(frames) > !(limit,3)", "NOT of a node that cuts"),
        ("(frames) > (filter) > (limit,3,duplicates=y)", "gets frames twice"),
    ] {
        let error = Plan::new(&[text], &classes()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("^"), "{text}\n{error}");
    }
}

#[test]
fn a_given_node_belongs_to_exactly_one_node() {
    let start = |text: &str, name: &str, made: fn() -> Made| {
        GraphHandle::start_with(&[text], classes(), vec![(name, made())]).map(drop)
    };
    let frames: fn() -> Made = || Made::Source(Box::new(source(&[1])));
    let one = "{in}(frames) > (packetcount)";
    let two = "[{a}(frames, 1) | {b}(frames, 2)] > (packetcount)";
    for (text, name) in [(one, "in"), (one, "frames"), (one, "FRAMES")] {
        start(text, name, frames).unwrap_or_else(|error| panic!("{text}, {name}: {error}"));
    }
    for (text, name, part) in [
        (one, "farmes", "the nodes are: in, packetcount"),
        (two, "frames", "it may be (frames, expression=1) or (frames, expression=2)"),
        (one, "packetcount", "(packetcount) is none"),
    ] {
        let error = start(text, name, frames).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{name}: {error:?}");
    }
    let recorder: fn() -> Made = || {
        let edit: Edit = Box::new(|_, _| false);
        Made::Node(Box::new(Recorder { came: Arc::default(), filters: None, edit }))
    };
    let error = start(one, "in", recorder).unwrap_err().to_string();
    assert!(error.contains("(frames) is one"), "{error}");
}

/// A class made with state of the program: a new one for each node of an edit, too.
#[test]
fn classes_hold_state_of_the_program() {
    let came = Arc::<Mutex<Came>>::default();
    let mut classes = classes();
    let class = classes.find("recorder").unwrap();
    let shared = Arc::clone(&came);
    classes.register_with(class, move |_| {
        let edit: Edit = Box::new(|_, _| false);
        Ok(Box::new(Recorder { came: Arc::clone(&shared), filters: None, edit }))
    });
    let class = classes.find("frames").unwrap();
    classes.register_source(class, |settings| {
        let port = settings.number("expression", 0..=65_535)?;
        Ok(Box::new(source(&[port as u16; 3])))
    });
    let texts = ["(frames, 7) > (filter, udp) > (recorder)", "(frames, 8) > (filter) > (recorder)"];
    let (mut engine, _) = GraphHandle::start(&texts, classes.clone()).unwrap();
    engine.run(&NEVER).unwrap();
    let mut ports: Vec<_> = came.lock().unwrap().iter().map(|(_, port, _)| *port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [7, 7, 7, 8, 8, 8]);
    let refused = GraphHandle::start(&["(frames, 70000) > (packetcount)"], classes).err().unwrap();
    assert!(refused.to_string().contains("whole number"), "{refused}");
}
