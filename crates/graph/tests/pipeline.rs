//! The loop: edits between frames, look-back, exact accounting.

use fyke_capture::{Interface, MemorySource};
use fyke_filter::Options;
use fyke_frame::{Frame, LinkType};
use fyke_graph::{Accounting, Consumer, FilterSet, Flow, Pipeline};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

const NEVER: AtomicBool = AtomicBool::new(false);

/// UDP to these ports, in order; the timestamp is the place in the row.
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

/// What came: place in the row, port, late or not. `edit` is called for every frame.
struct Recorder<F> {
    came: Vec<(u64, u16, bool)>,
    limit: usize,
    edit: F,
}

impl<F: FnMut(u16)> Consumer for Recorder<F> {
    type Error = Infallible;
    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, Infallible> {
        assert_eq!(interface.link, LinkType::EN10MB);
        self.came.push((frame.timestamp_ns, port_of(frame), frame.meta.late));
        (self.edit)(port_of(frame));
        Ok(if self.came.len() == self.limit { Flow::Stop } else { Flow::Continue })
    }
}

type Came = Vec<(u64, u16, bool)>;

fn run(
    filters: &FilterSet,
    ports: &[u16],
    look_back: Option<u64>,
    limit: usize,
    edit: impl FnMut(u16),
) -> (Came, Accounting) {
    let mut source = source(ports);
    if let Some(frames) = look_back {
        source.look_back(frames);
    }
    let mut recorder = Recorder { came: Vec::new(), limit, edit };
    let mut pipeline = Pipeline::new(filters.reader(), look_back.is_some());
    pipeline.run(&mut source, &mut recorder, &NEVER).unwrap();
    (recorder.came, pipeline.accounting())
}

fn filters(text: &str) -> FilterSet {
    let filters = FilterSet::new(Options::default());
    filters.set(text).unwrap();
    filters
}

#[test]
fn an_edit_made_for_a_frame_is_in_force_for_the_next_one() {
    let filters = filters("udp dst port 1");
    let ports = [2, 1, 2, 3, 2, 1, 2];
    let editor = filters.clone();
    let mut edits = 0;
    let (came, accounting) = run(&filters, &ports, None, 100, |port| {
        if port == 1 && edits == 0 {
            edits += 1;
            editor.add("udp dst port 2").unwrap();
        }
    });
    let places: Vec<u64> = came.iter().map(|frame| frame.0).collect();
    assert_eq!(places, [1, 2, 4, 5, 6]);
    assert_eq!(accounting, Accounting { seen: 7, delivered: 5, rejected: 2, late: 0 });
    let hits: Vec<u64> = filters.view().iter().map(|filter| filter.accepted).collect();
    assert_eq!(hits, [2, 3], "a frame judged again counts once");
}

#[test]
fn look_back_delivers_earlier_frames_once_in_order_before_the_next() {
    let filters = filters("udp dst port 1");
    let ports = [2, 3, 2, 1, 2, 1];
    let editor = filters.clone();
    let mut edits = 0;
    let (came, accounting) = run(&filters, &ports, Some(100), 100, |port| {
        if port == 1 {
            edits += 1;
            match edits {
                1 => drop(editor.add("udp dst port 2").unwrap()),
                2 => drop(editor.add("udp dst port 3").unwrap()),
                _ => {}
            }
        }
    });
    let expected =
        [(3, 1, false), (0, 2, true), (2, 2, true), (4, 2, false), (5, 1, false), (1, 3, true)];
    assert_eq!(came, expected);
    assert_eq!(accounting, Accounting { seen: 6, delivered: 6, rejected: 0, late: 3 });
}

#[test]
fn look_back_reaches_into_earlier_batches_as_far_as_the_source_holds() {
    // 600 frames are three batches; the last one asks for all that went before.
    let mut ports = vec![2; 600];
    ports[599] = 1;
    let filters = filters("udp dst port 1");
    let editor = filters.clone();
    let (came, accounting) = run(&filters, &ports, Some(400), 1_000, |port| {
        if port == 1 {
            editor.add("udp dst port 2").unwrap();
        }
    });
    let late = came.iter().filter(|frame| frame.2).count() as u64;
    assert!(late >= 400, "{late}");
    assert_eq!(accounting.late, late);
    assert_eq!(accounting.seen, 600);
    assert_eq!(accounting.delivered, late + 1);
    assert_eq!(accounting.rejected, 600 - late - 1);
    let places: Vec<u64> = came[1..].iter().map(|frame| frame.0).collect();
    assert!(places.is_sorted() && places.last() == Some(&598));
}

#[test]
fn stopping_counts_what_was_judged_and_nothing_else() {
    let filters = filters("udp dst port 1");
    let (came, accounting) = run(&filters, &[2, 1, 2, 1, 1, 2], None, 2, |_| {});
    assert_eq!(came.len(), 2);
    assert_eq!(accounting, Accounting { seen: 4, delivered: 2, rejected: 2, late: 0 });
}

#[test]
fn random_edits_keep_the_accounting_exact() {
    let (mut random, seed) = Random::seeded(7);
    for round in 0..50 {
        let ports: Vec<u16> = (0..700).map(|_| random.below(6) as u16 + 1).collect();
        let filters = filters("udp dst port 1");
        let editor = filters.clone();
        let look_back = random.chance(2).then_some(300);
        let mut dice = Random::new(random.number());
        let (came, accounting) = run(&filters, &ports, look_back, usize::MAX, |_| {
            if dice.chance(20) {
                let port = dice.below(6) + 1;
                editor.add(&format!("udp dst port {port}")).unwrap();
            }
        });
        let what = format!("seed {seed}, round {round}");
        assert_eq!(accounting.seen, 700, "{what}");
        assert_eq!(accounting.seen, accounting.delivered + accounting.rejected, "{what}");
        assert_eq!(accounting.delivered, came.len() as u64, "{what}");
        let mut places: Vec<u64> = came.iter().map(|frame| frame.0).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), came.len(), "delivered twice: {what}");
        let hits: u64 = filters.view().iter().map(|filter| filter.accepted).sum();
        assert_eq!(hits, accounting.delivered, "{what}");
    }
}
