//! A group of thousands of sensors without a server: the real state machine ([`fyke_fleet::state`]), real signatures,
//! and a network that delays, loses and partitions, with clocks that are wrong. Seeded; the seed is printed.
//!
//! `FYKE_SENSORS`, `FYKE_EDITS` and `FYKE_SEED` set other numbers, and `--nocapture` prints the table of docs/scale.md.

use fyke_fleet::Name;
use fyke_fleet::edit::{Accepted, Change, Edit, Labels, VERSION};
use fyke_fleet::keys::{Author, Trusted};
use fyke_fleet::snapshot::{EVERY, Snapshot};
use fyke_fleet::state::State;
use fyke_testkit::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times are microseconds of the simulation.
const MS: u64 = 1_000;
/// A sensor compares with the stream this often.
const HEARTBEAT: u64 = 2_000 * MS;
/// A request without an answer is made again after this time.
const AGAIN: u64 = 200 * MS;
/// The server's work for one message: some 200,000 in a second.
const SERVED: u64 = 5;
/// Time between two edits.
const PAUSE: u64 = 50 * MS;

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// An event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The author makes the next edit.
    Edit,
    /// The news of an edit reaches a sensor.
    News { sensor: usize },
    /// A sensor compares with the stream.
    Beat { sensor: usize },
    /// A request of a sensor for the edit after its last one reaches the server.
    Request { sensor: usize, after: u64, number: u64 },
    /// The answer reaches the sensor: edits up to this one.
    Answer { sensor: usize, last: u64, number: u64 },
    /// The sensor has waited long enough for the answer to a request.
    Late { sensor: usize, number: u64 },
}

/// A sensor.
struct Sensor {
    state: State,
    /// Number of the request that waits for its answer; 0 for none.
    waits: u64,
    requests: u64,
    /// It is cut off in this span of time.
    cut: (u64, u64),
    /// Error of its clock, in milliseconds: it is in no decision.
    skew_ms: i64,
    answered: u64,
}

struct Group {
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    /// The time until which the server works on what it has.
    busy: u64,
    edits: Vec<(Vec<u8>, u64)>,
    state: State,
    sensors: Vec<Sensor>,
    author: Author,
    trusted: Trusted,
    edge: Name,
    /// For each edit: sensors that have it, and the time of the last of those that were reachable.
    arrived: Vec<(usize, u64)>,
    messages: u64,
    lost: u64,
}

impl Group {
    fn new(seed: u64, sensors: usize, edits: usize, folder: &std::path::Path) -> Group {
        let mut random = Random::new(seed);
        let author = Author::create(&folder.join("key"), Name::new("anna").unwrap()).unwrap();
        let trusted = Trusted::from_text(&author.public_line()).unwrap();
        let end = edits as u64 * PAUSE;
        let mut sensor = |number: usize| {
            // One in ten is cut off for a part of the time.
            let from = random.number() % end;
            let cut = if number % 10 == 3 { (from, from + end / 4) } else { (0, 0) };
            let skew_ms = (random.number() % 7_200_000) as i64 - 3_600_000;
            let state = State::default();
            Sensor { state, waits: 0, requests: 0, cut, skew_ms, answered: 0 }
        };
        let sensors = (0..sensors).map(&mut sensor).collect();
        Group {
            random,
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            busy: 0,
            edits: Vec::new(),
            state: State::default(),
            sensors,
            author,
            trusted,
            edge: Name::new("edge").unwrap(),
            arrived: Vec::new(),
            messages: 0,
            lost: 0,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    /// Sends a message on its way to or from a sensor: it is lost, or late by 0.2 to 40 ms, mostly by little.
    fn send(&mut self, from: u64, sensor: usize, event: Event) {
        self.messages += 1;
        let (start, end) = self.sensors[sensor].cut;
        if (start..end).contains(&from) || self.random.number() % 1_000 < 5 {
            self.lost += 1;
            return;
        }
        let far = self.random.number() % 100;
        let delay = 200 + self.random.number() % if far < 90 { 2 * MS } else { 40 * MS };
        self.at(from + delay, event);
    }

    /// The server takes one message after the other.
    fn served(&mut self) -> u64 {
        self.busy = self.busy.max(self.now) + SERVED;
        self.busy
    }

    fn edit(&mut self) {
        let sequence = self.edits.len() as u64;
        let mut changes = vec![Change::Add { text: format!("udp port {}", sequence % 65_536) }];
        let oldest = self.state.filters.keys().next().copied();
        let oldest = oldest.filter(|_| self.state.filters.len() >= 50);
        changes.extend(oldest.map(|id| Change::Delete { id }));
        // The author's clock is wrong, too.
        let unix_ms = self.random.number() % 2_000_000_000_000;
        let group = "edge".to_owned();
        let edit = Edit {
            version: VERSION,
            group,
            after: sequence,
            unix_ms,
            only: Labels::new(),
            changes,
            undoes: None,
        };
        let message = edit.signed(&self.author).unwrap();
        let accepted = Accepted { edit, author: "anna".to_owned() };
        self.state.apply(sequence + 1, &accepted).unwrap();
        self.edits.push((message, self.now));
        self.arrived.push((0, 0));
        for sensor in 0..self.sensors.len() {
            let from = self.served();
            self.send(from, sensor, Event::News { sensor });
        }
    }

    /// A sensor asks for what follows its last edit, unless it waits for an answer.
    fn request(&mut self, sensor: usize) {
        let one = &mut self.sensors[sensor];
        if one.waits != 0 {
            return;
        }
        one.requests += 1;
        (one.waits, one.answered) = (one.requests, self.now);
        let (number, after) = (one.requests, one.state.sequence);
        self.at(self.now + AGAIN, Event::Late { sensor, number });
        self.send(self.now, sensor, Event::Request { sensor, after, number });
    }

    fn apply(&mut self, sensor: usize, last: u64) {
        let one = &mut self.sensors[sensor];
        let cut = one.cut;
        while one.state.sequence < last {
            let before = one.state.sequence;
            let (message, made) = &self.edits[before as usize];
            // Verified by one sensor in 64; the others take the same bytes.
            let accepted = match sensor % 64 {
                0 => Edit::read(message, &self.trusted, &self.edge, before).unwrap(),
                _ => unverified(message),
            };
            one.state.apply(before + 1, &accepted).unwrap();
            let (count, latest) = &mut self.arrived[before as usize];
            *count += 1;
            let was_reachable = cut.1 == 0 || *made + HEARTBEAT * 2 < cut.0 || *made > cut.1;
            if was_reachable {
                *latest = (*latest).max(self.now - made);
            }
        }
    }

    fn step(&mut self, event: Event, edits: usize) {
        match event {
            Event::Edit => {
                self.edit();
                if self.edits.len() < edits {
                    self.at(self.now + PAUSE, Event::Edit);
                }
            }
            Event::News { sensor } => self.request(sensor),
            Event::Beat { sensor } => {
                self.request(sensor);
                self.at(self.now + HEARTBEAT, Event::Beat { sensor });
            }
            Event::Request { sensor, after, number } => {
                let from = self.served();
                let last = self.edits.len() as u64;
                assert!(after <= last, "no sensor is ahead of the stream");
                self.send(from, sensor, Event::Answer { sensor, last, number });
            }
            Event::Answer { sensor, last, number } => {
                if self.sensors[sensor].waits == number {
                    self.sensors[sensor].waits = 0;
                }
                // Also an answer that comes late.
                self.apply(sensor, last);
            }
            Event::Late { sensor, number } => {
                if self.sensors[sensor].waits == number {
                    self.sensors[sensor].waits = 0;
                    let is_cut = self.now < self.sensors[sensor].cut.1;
                    // The next heartbeat asks again where nothing answers.
                    if !is_cut {
                        self.request(sensor);
                    }
                }
            }
        }
    }

    fn is_settled(&self, edits: usize) -> bool {
        self.edits.len() == edits
            && self.sensors.iter().all(|one| one.state.sequence == edits as u64)
    }

    fn run(&mut self, edits: usize) {
        self.at(0, Event::Edit);
        for sensor in 0..self.sensors.len() {
            // Heartbeats are spread: sensors were not started at once.
            let start = self.random.number() % HEARTBEAT;
            self.at(start, Event::Beat { sensor });
        }
        let end = edits as u64 * PAUSE * 3 + 60 * HEARTBEAT;
        while !self.is_settled(edits) {
            let Reverse((time, _, event)) = self.events.pop().expect("heartbeats never end");
            assert!(time < end, "the sensors do not catch up");
            self.now = time;
            self.step(event, edits);
        }
    }
}

/// The edit of a message that another sensor verifies.
fn unverified(message: &[u8]) -> Accepted {
    let signed: serde_json::Value = serde_json::from_slice(message).unwrap();
    let edit = serde_json::from_str(signed["edit"].as_str().unwrap()).unwrap();
    Accepted { edit, author: signed["author"].as_str().unwrap().to_owned() }
}

fn simulate(seed: u64, sensors: usize, edits: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut group = Group::new(seed, sensors, edits, folder.path());
    group.run(edits);
    // Every sensor has the same filters, whatever was lost, cut off or late, and whatever its clock shows.
    for (number, sensor) in group.sensors.iter().enumerate() {
        let (state, skew) = (&sensor.state, sensor.skew_ms);
        assert_eq!(*state, group.state, "seed {seed}, sensor {number}, skew {skew}");
    }
    let once = group.arrived.iter().all(|(count, _)| *count == sensors);
    assert!(once, "seed {seed}: each edit once at each sensor");
    let mut times: Vec<u64> = group.arrived.iter().map(|(_, time)| *time / MS).collect();
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    println!(
        "seed {seed}: {sensors} sensors, {edits} edits, {} messages, {} lost: at all that are reachable after {} ms \
         (median), {} ms (p99)",
        group.messages,
        group.lost,
        at(50),
        at(99)
    );
}

#[test]
fn thousands_of_sensors_come_to_the_same_filters() {
    let seed = number("FYKE_SEED", 27) as u64;
    let edits = number("FYKE_EDITS", 40);
    for sensors in [1, 10, 100, number("FYKE_SENSORS", 1_000)] {
        simulate(seed, sensors, edits);
    }
    for seed in 1..=20 {
        simulate(seed, 30, 20);
    }
}

/// A sensor that begins with a snapshot has the filters of one that has read every edit.
#[test]
fn a_snapshot_and_the_edits_after_it_are_all_edits() {
    let folder = tempfile::tempdir().unwrap();
    let edits = EVERY as usize + 200;
    let mut group = Group::new(3, 0, edits, folder.path());
    let mut snapshot = None;
    for sequence in 1..=edits as u64 {
        group.edit();
        if sequence == EVERY {
            let made = Snapshot::of(&group.state, "edge", &group.author, &group.trusted);
            snapshot = Some(made.unwrap().state("edge", &group.trusted).unwrap());
        }
    }
    let mut state = snapshot.unwrap();
    assert_eq!(state.sequence, EVERY);
    for sequence in EVERY..edits as u64 {
        let message = &group.edits[sequence as usize].0;
        let edit = Edit::read(message, &group.trusted, &group.edge, state.sequence).unwrap();
        state.apply(sequence + 1, &edit).unwrap();
    }
    assert_eq!(state, group.state);
}
