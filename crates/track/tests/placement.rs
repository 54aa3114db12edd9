//! Filters in a space below the graph: look-back, trackers and edits of the graph, over a model of the kernel. The
//! model filters a frame when it arrives, and the graph reads it some frames later, as from a ring.

use fyke_capture::{
    FilterSocket, HeldFrames, HeldMark, Interface, LookBack, Next, ReadError, SocketFilter, Source,
    SourceStats,
};
use fyke_filter::Options;
use fyke_filters::{Listing, Superset};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_graph::node::Class;
use fyke_graph::placement::{LowerFilter, Space, describe};
use fyke_graph::{Classes, Engine, GraphHandle, Made, Plan};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use fyke_track::{Event, Tracker};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SECOND: u64 = 1_000_000_000;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// The model of the filter in the kernel.
#[derive(Debug, Default)]
struct Lower {
    state: Mutex<State>,
    rejected: AtomicU64,
}

#[derive(Debug)]
struct State {
    texts: Listing,
    open: bool,
    for_good: Option<&'static str>,
}

impl Default for State {
    fn default() -> State {
        State { texts: Listing::new(), open: true, for_good: None }
    }
}

impl Superset for Lower {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let mut state = self.state.lock().unwrap();
        state.open |= unfiltered;
        for (id, text) in added {
            assert!(state.texts.insert(*id, (*text).into()).is_none(), "{id} is there twice");
        }
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        let mut state = self.state.lock().unwrap();
        removed.iter().for_each(|id| drop(state.texts.remove(id)));
        let all = texts();
        state.open = all.is_empty();
        assert!(state.open || all == state.texts, "{all:?} are not {:?}", state.texts);
    }

    fn open_for_good(&self, reason: &'static str) {
        self.state.lock().unwrap().for_good = Some(reason);
    }
}

impl Lower {
    fn passes(&self, frame: &[u8]) -> bool {
        let state = self.state.lock().unwrap();
        let options = Options { live: true, netmask: Some(0), ..Options::default() };
        let accepts = |text: &Arc<str>| {
            let predicate = fyke_filter::compile(text, &options).unwrap();
            predicate.accepts(&Frame::new(LinkType::EN10MB, frame))
        };
        state.open || state.for_good.is_some() || state.texts.values().any(accepts)
    }

    /// The texts that decide; `None` while every frame passes.
    fn texts(&self) -> Option<BTreeSet<String>> {
        let state = self.state.lock().unwrap();
        let decide = !state.open && state.for_good.is_none();
        decide.then(|| state.texts.values().map(|text| text.to_string()).collect())
    }
}

/// Shares the model with the test.
#[derive(Debug)]
struct Shared(Arc<Lower>);

impl Superset for Shared {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        self.0.widen(added, unfiltered);
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        self.0.narrow(texts, removed);
    }

    fn open_for_good(&self, reason: &'static str) {
        self.0.open_for_good(reason);
    }
}

impl SocketFilter for Shared {
    fn take_socket(&self, _: Arc<FilterSocket>) -> std::io::Result<()> {
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        Some(self.0.rejected.load(Ordering::Relaxed))
    }
}

impl LowerFilter for Shared {
    fn passes_all(&self) -> Option<String> {
        self.0.texts().is_none().then(|| "the model is open".to_owned())
    }

    fn form(&self) -> String {
        "model".to_owned()
    }
}

struct Below(Arc<Lower>);

impl Space for Below {
    fn filter(&self, _: &Interface, reading: Options) -> Result<Arc<dyn LowerFilter>, String> {
        assert!(reading.live);
        Ok(Arc::new(Shared(Arc::clone(&self.0))))
    }
}

/// Frames that arrive some frames before they are read.
struct Ring {
    interfaces: [Interface; 1],
    lower: Arc<Lower>,
    /// Time and bytes of frames that have not arrived yet.
    coming: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<(u64, Vec<u8>)>,
    /// Frames of the last batch.
    lent: Vec<(u64, Vec<u8>)>,
    /// Number of frames that arrive before the first of them is read.
    ahead: usize,
    filtered: bool,
    read: u64,
    /// Ends only if this is set.
    ends: Arc<AtomicBool>,
}

impl Source for Ring {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        while self.arrived.len() < self.ahead.max(1) && !self.coming.is_empty() {
            let frame = self.coming.pop_front().unwrap();
            if self.filtered && !self.lower.passes(&frame.1) {
                self.lower.rejected.fetch_add(1, Ordering::Relaxed);
            } else {
                self.arrived.push_back(frame);
            }
        }
        self.lent.clear();
        self.lent.extend(self.arrived.pop_front());
        if self.lent.is_empty() {
            return Ok(if self.ends.load(Ordering::Relaxed) { Next::End } else { Next::Idle });
        }
        let mut batch = Batch::new();
        batch.first_sequence = self.read;
        self.read += 1;
        for (timestamp_ns, bytes) in &self.lent {
            let frame =
                Frame { timestamp_ns: *timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) };
            batch.push(frame).unwrap();
        }
        Ok(Next::Frames(batch, LookBack::new(&Nothing, [0; 4], &self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let filtered = self.lower.rejected.load(Ordering::Relaxed);
        SourceStats { received: self.read, delivered: self.read, filtered, ..Default::default() }
    }

    fn set_filter(&mut self, _: Arc<dyn SocketFilter>) -> std::io::Result<()> {
        self.filtered = true;
        Ok(())
    }
}

struct Nothing;

impl HeldFrames for Nothing {
    fn frames(&self, _: HeldMark) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_> {
        Box::new(std::iter::empty())
    }
}

/// A tracker that declares nothing about look-back.
struct Silent;

impl Tracker for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn start_filter(&self) -> &str {
        "udp port 1"
    }

    fn frame(&mut self, _: &Frame, _: &mut Vec<Event>) {}

    fn expire(&mut self, _: u64, _: &mut Vec<Event>) {}
}

fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(fyke_track::CLASS);
    classes.register(Class {
        name: "silent",
        aliases: &[],
        make: |_| Ok(fyke_track::class::node(Box::new(Silent), false)),
        ..fyke_track::CLASS
    });
    classes
}

struct Run {
    engine: Engine,
    handle: GraphHandle,
    lower: Arc<Lower>,
    ends: Arc<AtomicBool>,
}

fn start(text: &str, frames: Vec<(u64, Vec<u8>)>, ahead: usize) -> Run {
    let (lower, ends) = (Arc::<Lower>::default(), Arc::<AtomicBool>::default());
    let source = Ring {
        interfaces: [Interface::new("v", LinkType::EN10MB)],
        lower: Arc::clone(&lower),
        coming: frames.into(),
        arrived: VecDeque::new(),
        lent: Vec::new(),
        ahead,
        filtered: false,
        read: 0,
        ends: Arc::clone(&ends),
    };
    let given = vec![("device", Made::Source(Box::new(source)))];
    let mut opened = GraphHandle::open_with(&[text], classes(), given, 1).unwrap();
    opened.place(&Below(Arc::clone(&lower)));
    let (engine, handle) = opened.start().unwrap();
    Run { engine, handle, lower, ends }
}

impl Run {
    /// Runs to the end; returns the frames that passed, all frames, and those that the model rejected.
    fn end(mut self) -> (u64, u64, u64) {
        self.ends.store(true, Ordering::Relaxed);
        self.engine.run(&AtomicBool::new(false)).unwrap();
        let view = self.engine.view();
        let outcome = &view.outcome;
        assert_eq!(outcome.seen(), outcome.accepted + outcome.rejected);
        (outcome.accepted, outcome.seen(), self.lower.rejected.load(Ordering::Relaxed))
    }

    fn why(&self) -> Option<String> {
        self.handle.placements()[0].why_not_lower()
    }
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A transfer, other traffic, and frames to the data port after the transfer: control, data, others, late frames.
fn transfer() -> (Vec<(u64, Vec<u8>)>, [u64; 4]) {
    let client =
        |from, to, flags| Packet::ethernet().ipv4(CLIENT, SERVER).tcp(from, to).flags(flags);
    let server =
        |from, to, flags| Packet::ethernet().ipv4(SERVER, CLIENT).tcp(from, to).flags(flags);
    let reply = b"227 Entering Passive Mode (10,0,0,2,19,137)\r\n";
    let mut frames = Vec::new();
    let mut add = |ns, packet: Packet| frames.push((ns, packet.build()));
    for _ in 0..10 {
        add(SECOND, Packet::ethernet().ipv4(CLIENT, SERVER).udp(4000, 5001));
        add(SECOND, Packet::ethernet().arp(1, CLIENT, SERVER));
    }
    add(SECOND, client(4000, 21, SYN).seq_ack(100, 0));
    add(SECOND, server(21, 4000, SYN | ACK).seq_ack(500, 101));
    add(SECOND, server(21, 4000, ACK).seq_ack(501, 101).payload(reply));
    add(SECOND, client(4001, 5001, SYN).seq_ack(1, 0));
    for part in 0..5 {
        add(SECOND, server(5001, 4001, ACK).seq_ack(2 + part * 8, 2).payload(b"contents"));
        add(SECOND, Packet::ethernet().vlan(5).ipv4(CLIENT, SERVER).tcp(4001, 5001).seq_ack(2, 2));
    }
    add(SECOND, server(5001, 4001, RST).seq_ack(42, 2));
    // The connection is closed by the first frame after its last.
    add(9 * SECOND, client(4000, 21, ACK).seq_ack(101, 550));
    for _ in 0..7 {
        add(10 * SECOND, client(4009, 5001, ACK).seq_ack(1, 1));
    }
    (frames, [4, 12, 20, 7])
}

fn track(parameters: &str) -> String {
    format!(
        "(device,v) > {{f}}(filter,\"tcp port ftp\",live=y,tags=skip{parameters}) > \
         {{t}}(track,ftp) > {{n}}(packetcount)"
    )
}

#[test]
fn what_a_tracker_may_announce_is_held_for_look_back() {
    for ahead in [0, 3, 1_000] {
        let (frames, [control, data, others, late]) = transfer();
        let run = start(&track(",lookback=y"), frames, ahead);
        assert_eq!(run.why(), None);
        let texts = ["not ip and not ip6", "tcp", "tcp port ftp"].map(str::to_owned);
        assert_eq!(run.lower.texts(), Some(texts.into()));
        let (accepted, seen, rejected) = run.end();
        assert_eq!((accepted, seen), (control + data, control + data + others + late), "{ahead}");
        // ARP passes, because a frame with tags could look like it; UDP does not.
        assert_eq!(rejected, 10);
    }
}

#[test]
fn without_look_back_rows_reach_the_space_before_they_are_in_force() {
    let (frames, [control, data, others, late]) = transfer();
    let run = start(&track(""), frames, 0);
    assert_eq!(run.why(), None);
    let (accepted, seen, rejected) = run.end();
    assert_eq!((accepted, seen), (control + data, control + data + others + late));
    assert_eq!(rejected, 10 + late, "the row has left the space");
    // Frames that arrive before the announcement has been read are rejected: nothing is held.
    let (frames, _) = transfer();
    let (accepted, ..) = start(&track(""), frames, 1_000).end();
    // Those with a tag in their bytes always pass.
    assert_eq!(accepted, control + 5);
}

#[test]
fn a_tracker_that_says_nothing_keeps_the_filter_above() {
    for parameters in ["", ",lookback=y"] {
        let graph =
            format!("(device,v) > {{f}}(filter,\"udp port 1\",live=y{parameters}) > (silent)");
        let run = start(&graph, Vec::new(), 0);
        let why = run.why().unwrap();
        assert!(why.contains("silent edits f and does not declare"), "{why}");
        let plan = Plan::new(&[&graph], &classes()).unwrap();
        assert!(describe(&plan).contains("does not declare"));
    }
}

#[test]
fn edits_of_the_graph_leave_exactly_the_union_of_its_consumers() {
    let filter = |text: &str| format!("(device,v) > (bpf,\"{text}\",live=y) > (packetcount)");
    let demux = |texts: &[String]| {
        let rules = texts.iter().map(|text| format!(", expression=\"{text} => 1\""));
        let rules = rules.collect::<String>();
        format!("(device,v) > {{d}}(demux{rules}, live=y) -1-> (packetcount)")
    };
    let all = "(device,v) > {all}(packetcount)".to_owned();
    let two = "(device,v) > (bloom) > (bpf,\"arp\",live=y) > (packetcount)".to_owned();
    let Run { mut engine, handle, lower, .. } = start(&filter("udp port 1"), Vec::new(), 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| engine.run(&stop).unwrap());
        let mut random = Random::new(11);
        let port = |random: &mut Random| format!("udp port {}", random.below(6));
        // For each text of the graph the filter texts that it needs; none: every frame.
        let mut present = vec![(1, Some(BTreeSet::from(["udp port 1".to_owned()])))];
        for round in 0..300 {
            let (text, needs) = match random.below(8) {
                0..=2 => {
                    let text = port(&mut random);
                    (filter(&text), Some(BTreeSet::from([text])))
                }
                3 | 4 => {
                    let texts: Vec<_> =
                        (0..1 + random.below(3)).map(|_| port(&mut random)).collect();
                    (demux(&texts), Some(texts.into_iter().collect()))
                }
                5 => (all.clone(), None),
                6 => (two.clone(), Some(BTreeSet::from(["arp".to_owned()]))),
                _ => ("(device,v) > nonsense".to_owned(), None),
            };
            let is_demux = text.contains("demux");
            // Its tag is taken by another text with a demultiplexer; an edit replaces the texts then.
            if random.chance(3) && present.len() > 1 {
                let (id, _) = present.swap_remove(random.below(present.len()));
                handle.remove(id).unwrap();
            } else if is_demux || random.chance(9) {
                if let Ok(id) = handle.set(&text) {
                    present = vec![(id, needs)];
                }
            } else if let Ok(id) = handle.add(&text) {
                present.push((id, needs));
            }
            let union: Option<BTreeSet<String>> =
                present.iter().try_fold(BTreeSet::new(), |all, one| Some(&all | one.1.as_ref()?));
            assert_eq!(lower.texts(), union, "round {round}");
            assert_eq!(handle.placements()[0].why_not_lower().is_none(), union.is_some());
        }
        handle.set(&filter("udp port 3")).unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    // An edit that is refused after the space has been widened leaves it as it was.
    assert!(handle.add(&filter("udp port 4")).is_err(), "the graph has ended");
    assert!(handle.set(&demux(&["udp port 5".to_owned()])).is_err());
    assert!(handle.add(&all).is_err());
    assert_eq!(lower.texts(), Some(BTreeSet::from(["udp port 3".to_owned()])));
}
