//! Look-back after rows of trackers, which evaluates the frames with the ports of the rows: the same frames as if it
//! evaluated all that are held.

use fyke_capture::MemorySource;
use fyke_filters::{FilterSet, Row};
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, Made};
use fyke_pass::FilterId;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::{Random, rounds};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The frames that arrived, by their time, which is their number.
type Came = Vec<(u64, bool)>;

/// Edits the filter at each frame that was not late and has this byte at its end.
const EDITS: u8 = 0xed;

/// Adds and removes rows, as a tracker does.
struct Editor {
    came: Arc<Mutex<Came>>,
    filters: Option<FilterSet>,
    random: Random,
    /// Rows carry their ports.
    tells: bool,
    /// Number of the row, and filter.
    rows: VecDeque<(u64, FilterId)>,
}

impl Editor {
    fn edit(&mut self) {
        let filters = self.filters.as_ref().expect("a filter is before it");
        if self.random.chance(12) {
            let port = self.random.below(9);
            filters.add(&format!("udp port {port}")).unwrap();
            return;
        }
        let six = self.random.chance(4);
        let row = |random: &mut Random| {
            let port = 2 + random.below(9) as u16;
            let host = if six { "ip6 host 2::2" } else { "ip host 10.0.0.2" };
            let text = format!("{host} and udp port {port}");
            Row { text, port: self.tells.then_some(port) }
        };
        let added: Vec<Row> = (0..self.random.below(4)).map(|_| row(&mut self.random)).collect();
        let count = self.random.below(3).min(self.rows.len());
        let gone: Vec<_> = self.rows.drain(..count).collect();
        let removed: Vec<u64> = gone.iter().map(|row| row.0).collect();
        let (options, fragments) = filters.reading();
        let (made, rows) = filters
            .edit_rows(LinkType::EN10MB, &added, &removed, |passes| {
                let mut edit = passes.edit();
                for (_, filter) in &gone {
                    let _ = edit.remove_filter(*filter);
                }
                let add = |row: &Row| {
                    let read = fyke_filter::compile_with(&row.text, &options, &fragments).unwrap();
                    edit.add_filter(&read).unwrap()
                };
                let made: Vec<FilterId> = added.iter().map(add).collect();
                edit.commit();
                made
            })
            .unwrap();
        self.rows.extend(rows.into_iter().zip(made));
    }
}

impl Node for Editor {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            self.came.lock().unwrap().push((frame.timestamp_ns, frame.meta.late));
            if !frame.meta.late && frame.data.last() == Some(&EDITS) {
                self.edit();
                arrival.cut(index + 1);
                return Ok(arrival.mask() & Mask::first(index + 1));
            }
        }
        Ok(arrival.mask())
    }

    fn connect(&mut self, filters: &FilterSet) {
        filters.tracked_by("editor".to_owned());
        self.filters = Some(filters.clone());
    }
}

/// A frame of any shape that a tracker meets.
fn frame(random: &mut Random) -> Vec<u8> {
    let hosts = random.pick(&[[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]]);
    let ports = (2 + random.below(9) as u16, 2 + random.below(9) as u16);
    let mut packet = Packet::ethernet();
    if random.chance(5) {
        packet = packet.vlan(7);
    }
    if random.chance(8) {
        packet = packet.mpls(9);
    }
    if random.chance(10) {
        packet = packet.ipv4([10, 0, 0, 2], [10, 0, 0, 3]).gtpu(7);
    }
    let six = random.chance(5);
    packet = if six { packet.ipv6([2; 16], [3; 16]) } else { packet.ipv4(hosts, [10, 0, 0, 2]) };
    if random.chance(10) && !six {
        let offset = 8 * random.below(3) as u16;
        return packet
            .fragment(random.below(3) as u16, offset, true)
            .ip_payload(17, &[0; 24])
            .build();
    }
    let mut bytes = packet.udp(ports.0, ports.1).payload(&[1; 9]).build();
    if random.chance(10) {
        bytes.truncate(random.below(bytes.len()).max(14));
    }
    bytes
}

fn run(frames: &[Vec<u8>], options: &str, held: u64, seed: u64, tells: bool) -> Came {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for (place, bytes) in (0..).zip(frames) {
        source.push(&Frame { timestamp_ns: place, ..Frame::new(LinkType::EN10MB, bytes) });
    }
    source.look_back(held);
    let came = Arc::<Mutex<Came>>::default();
    let (random, rows) = (Random::new(seed), VecDeque::new());
    let editor = Editor { came: Arc::clone(&came), filters: None, random, tells, rows };
    let mut classes = Classes::new();
    classes.register(Class { name: "frames", kind: Kind::Source, ..Class::NODE });
    let given = Class { check: Some(|_| Ok(())), ..Class::NODE };
    classes.register(Class { name: "editor", cuts: |_| true, edits: true, ..given });
    let text = format!("(frames) > (filter, \"udp dst port 1\", lookback=y{options}) > (editor)");
    let given =
        vec![("frames", Made::Source(Box::new(source))), ("editor", Made::Node(Box::new(editor)))];
    let (mut engine, _) = GraphHandle::start_with(&[&text], classes, given).unwrap();
    engine.run(&AtomicBool::new(false)).unwrap();
    for node in &engine.view().nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    std::mem::take(&mut came.lock().unwrap())
}

#[test]
fn the_frames_with_the_ports_of_rows_are_all_that_rows_accept() {
    rounds(30, |random| {
        let late: usize = (0..8).map(|_| compare(random)).sum();
        assert!(late > 500, "only {late} frames were late");
    });
}

/// Runs a random program in both ways; returns the number of frames that were late.
fn compare(random: &mut Random) -> usize {
    let frames: Vec<_> = (0..2_000)
        .map(|_| match random.chance(12) {
            true => {
                let packet = Packet::ethernet().ipv4([9; 4], [8; 4]).udp(1, 1);
                packet.payload(&[0, 0, 0, 0, EDITS]).build()
            }
            false => frame(random),
        })
        .collect();
    let (held, seed) = (random.below(1_500) as u64, random.number());
    let options = random.pick(&["", ", tags=skip", ", scoped=y"]);
    let [quick, slow] = [true, false].map(|tells| run(&frames, options, held, seed, tells));
    assert_eq!(quick, slow, "{options}, {held} held");
    quick.iter().filter(|frame| frame.1).count()
}
