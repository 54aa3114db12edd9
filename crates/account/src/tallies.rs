//! Frames and bytes of the open intervals, and the rows that become of them.
//!
//! An interval begins and ends at multiples of its length since 1970, so those of several machines are the same; the
//! first begins with the capture, the last ends with it. A frame belongs to the interval of its time. An interval is
//! closed [`GRACE_NS`] after its end; a frame that is older counts in the oldest open one, and as late. A single frame
//! with a wrong time closes nothing ([`Clock`]). Memory: 16 bytes for each filter that has frames, of each interface,
//! direction and open interval; at most [`MAX_OPEN`] intervals are open.

use crate::row::{Kind, Row, Tally, Way};
use fyke_capture::Traffic;
use fyke_capture::traffic::Reading;
use fyke_flow::Clock;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Time after the end of an interval for frames that arrive late.
pub const GRACE_NS: u64 = 1_000_000_000;
/// Most open intervals: frames with times far in the future open some.
pub const MAX_OPEN: usize = 256;
/// Most interfaces with rows of their own; a file may describe any number.
pub const MAX_INTERFACES: usize = 4_096;
/// Most removed filters without frames that have a row for their last interval.
pub const MAX_REMOVED: usize = 4_096;
/// Name of all further interfaces.
pub const FURTHER: &str = "further interfaces";
/// Name of the frames that no filter accepts.
pub const OTHER: &str = "other";
/// Name of the frames of no class.
pub const UNKNOWN: &str = "unknown";

/// A filter or a class, by its class value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Class value of its frames.
    pub value: u32,
    /// [`Kind::Filter`] or [`Kind::Class`].
    pub kind: Kind,
    /// Its name. Several classes with one name are one.
    pub name: Arc<str>,
}

/// A filter or class, and the intervals in which it was counted.
#[derive(Debug, Clone)]
struct Counted {
    entry: Entry,
    /// Number of its first interval.
    first: u64,
    /// Number of its last one; `None` while it is there.
    last: Option<u64>,
}

impl Counted {
    /// True if it has a row in an interval: it was there then, or has frames.
    fn is_in(&self, number: u64, cell: &Cell) -> bool {
        let was_there = self.first <= number && self.last.is_none_or(|last| number <= last);
        was_there || cell.entries.contains_key(&self.entry.value)
    }
}

/// Counts of one direction of an interface.
#[derive(Debug, Default)]
pub struct Cell {
    /// All frames.
    pub seen: Tally,
    /// Frames that a filter accepts.
    pub filtered: Tally,
    /// Frames that have a class.
    pub classed: Tally,
    /// Frames of filters and classes, by class value.
    pub entries: HashMap<u32, Tally>,
}

/// Counters of interfaces, by name.
pub type Readings = Vec<Reading>;

/// An interval.
#[derive(Debug, Default)]
pub struct Interval {
    cells: BTreeMap<(usize, Way), Cell>,
    /// Lost frames by interface.
    lost: BTreeMap<usize, u64>,
    /// Counters at its end, if they were read.
    readings: Option<Readings>,
}

impl Interval {
    /// The counts of one direction of an interface.
    pub fn cell(&mut self, interface: usize, way: Way) -> &mut Cell {
        self.cells.entry((interface, way)).or_default()
    }
}

/// The open intervals, and what rows need beside them.
#[derive(Debug)]
pub struct Account {
    /// Length of an interval; `None`: the whole run is one.
    every_ns: Option<u64>,
    live: bool,
    /// True if filters and classes without frames have no row.
    nonzero: bool,
    /// The filters and classes, and those that were removed, while open intervals may have rows of them.
    entries: Vec<Counted>,
    interfaces: Vec<Arc<str>>,
    /// Their numbers by name.
    numbers: HashMap<Arc<str>, usize>,
    open: BTreeMap<u64, Interval>,
    clock: Clock,
    /// Number of the first interval that has not been closed.
    floor: u64,
    start_ns: Option<u64>,
    last_ns: u64,
    late: u64,
    total: Tally,
    total_lost: u64,
    /// Counters at the last reading, and frames seen since, by interface.
    last: HashMap<usize, Reading>,
    since: HashMap<(usize, Way), Tally>,
}

impl Account {
    /// An account without frames. `begin` is the time of the begin of a live capture, and its counters then.
    #[must_use]
    pub fn new(
        every_ns: Option<u64>,
        nonzero: bool,
        entries: Vec<Entry>,
        begin: Option<(u64, Readings)>,
    ) -> Account {
        let mut account = Account {
            every_ns: every_ns.map(|every_ns| every_ns.max(1)),
            live: begin.is_some(),
            nonzero,
            entries: Vec::new(),
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            open: BTreeMap::new(),
            clock: Clock::default(),
            floor: 0,
            start_ns: None,
            last_ns: 0,
            late: 0,
            total: Tally::default(),
            total_lost: 0,
            last: HashMap::new(),
            since: HashMap::new(),
        };
        let first = |entry| Counted { entry, first: 0, last: None };
        account.entries = entries.into_iter().map(first).collect();
        if let Some((begin_ns, readings)) = begin {
            account.start_ns = Some(begin_ns);
            account.floor = account.number(begin_ns);
            for reading in readings {
                let interface = account.interface(&reading.name);
                account.last.insert(interface, reading);
            }
        }
        account
    }

    /// The number of an interface, which is new if its name is. Control characters of the name are replaced, and after
    /// [`MAX_INTERFACES`] names all are one.
    pub fn interface(&mut self, name: &str) -> usize {
        let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut name: Arc<str> = name.chars().map(visible).collect::<String>().into();
        if self.interfaces.len() >= MAX_INTERFACES && !self.numbers.contains_key(&name) {
            name = FURTHER.into();
        }
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.interfaces.push(Arc::clone(name));
            self.interfaces.len() - 1
        })
    }

    /// Replaces the filters and classes at this time; counts of those with the same value stay. Intervals before have
    /// rows of the former ones.
    pub fn set_entries(&mut self, entries: Vec<Entry>, now_ns: u64) {
        let number = self.number(now_ns).max(self.floor);
        let mut former = std::mem::take(&mut self.entries);
        let firsts = former.iter().map(|counted| (counted.entry.value, counted.first));
        let firsts: HashMap<u32, u64> = firsts.collect();
        let values: HashSet<u32> = entries.iter().map(|entry| entry.value).collect();
        self.entries.extend(entries.into_iter().map(|entry| {
            let first = firsts.get(&entry.value).copied().unwrap_or(number);
            Counted { entry, first, last: None }
        }));
        // One that comes back is not counted twice.
        former.retain(|counted| !values.contains(&counted.entry.value));
        former.iter_mut().for_each(|counted| {
            counted.last.get_or_insert(number);
        });
        self.entries.extend(former);
        self.forget();
    }

    /// Frames that were read so far, of which each was counted.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.total
    }

    /// Frames that were lost so far.
    #[must_use]
    pub fn total_lost(&self) -> u64 {
        self.total_lost
    }

    /// Frames that were older than all open intervals.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    fn number(&self, time_ns: u64) -> u64 {
        self.every_ns.map_or(0, |every_ns| time_ns / every_ns)
    }

    /// Number of the interval of a frame with this time, which is counted there.
    pub fn place(&mut self, timestamp_ns: u64) -> u64 {
        self.clock.advance(timestamp_ns);
        let number = self.number(timestamp_ns);
        if number < self.floor {
            // In a live capture, frames that arrive before the counters are first read are early, not late.
            let is_early = self.live && self.start_ns.is_some_and(|start| timestamp_ns < start);
            self.late += u64::from(!is_early);
            return self.floor;
        }
        if !self.live {
            self.start_ns =
                Some(self.start_ns.map_or(timestamp_ns, |start_ns| start_ns.min(timestamp_ns)));
        }
        self.last_ns = self.last_ns.max(timestamp_ns);
        number
    }

    /// The interval with this number.
    pub fn interval(&mut self, number: u64) -> &mut Interval {
        self.open.entry(number).or_default()
    }

    /// Adds frames that were read to the total.
    pub fn read(&mut self, tally: Tally) {
        self.total.add(tally);
    }

    /// Adds lost frames of an interface to the interval of this time.
    pub fn lose(&mut self, interface: usize, frames: u64, now_ns: u64) {
        self.total_lost += frames;
        let number = self.number(now_ns).max(self.floor);
        *self.interval(number).lost.entry(interface).or_default() += frames;
    }

    /// Notes the counters at the end of an interval.
    pub fn note(&mut self, number: u64, readings: Readings) {
        let number = number.max(self.floor);
        self.interval(number).readings = Some(readings);
    }

    /// Time of the last frame, as the clock of the frames sees it.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Closes the intervals that ended a while before this time, and returns the rows of each.
    pub fn close(&mut self, now_ns: u64) -> Vec<Vec<Row>> {
        let (number, before) = (self.number(now_ns.saturating_sub(GRACE_NS)), self.floor);
        let mut all = Vec::new();
        while let Some(first) = self.open.first_entry() {
            if *first.key() >= number {
                break;
            }
            let (number, interval) = first.remove_entry();
            all.push(self.rows(number, interval, None));
        }
        self.floor = self.floor.max(number);
        while self.open.len() > MAX_OPEN {
            let Some((number, interval)) = self.open.pop_first() else { break };
            all.push(self.rows(number, interval, None));
            self.floor = self.floor.max(number + 1);
        }
        if self.floor > before {
            self.forget();
        }
        all
    }

    /// Closes all intervals: in a live capture at this time with these counters.
    pub fn finish(&mut self, now: Option<(u64, Readings)>) -> Vec<Vec<Row>> {
        let end_ns = match now {
            Some((now_ns, readings)) => {
                self.note(self.number(now_ns), readings);
                now_ns
            }
            None => self.last_ns,
        };
        let mut all = Vec::new();
        while let Some((number, interval)) = self.open.pop_first() {
            all.push(self.rows(number, interval, Some(end_ns)));
        }
        all
    }

    /// Forgets removed filters of which no further interval has a row.
    fn forget(&mut self) {
        let cells: Vec<&Cell> =
            self.open.values().flat_map(|interval| interval.cells.values()).collect();
        let has = |entry: &Entry| cells.iter().any(|cell| cell.entries.contains_key(&entry.value));
        let (floor, mut removed) = (self.floor, 0);
        // The last ones that were removed come first.
        self.entries.retain(|Counted { entry, last, .. }| {
            let Some(last) = *last else { return true };
            removed += 1;
            (last >= floor && removed <= MAX_REMOVED) || has(entry)
        });
    }

    /// Begin and end of an interval; `last_ns` is the end of the account.
    fn bounds(&self, number: u64, last_ns: Option<u64>) -> (u64, u64) {
        let start_ns = self.start_ns.unwrap_or(0);
        let Some(every_ns) = self.every_ns else {
            return (start_ns, last_ns.unwrap_or(start_ns).max(start_ns));
        };
        let begin_ns = number.saturating_mul(every_ns).max(start_ns);
        let end_ns = number.saturating_add(1).saturating_mul(every_ns);
        let end_ns = last_ns.map_or(end_ns, |last_ns| end_ns.min(last_ns.max(begin_ns)));
        (begin_ns, end_ns)
    }

    fn rows(&mut self, number: u64, mut interval: Interval, last_ns: Option<u64>) -> Vec<Row> {
        if self.live {
            for interface in 0..self.interfaces.len() {
                for way in [Way::Sent, Way::Received] {
                    interval.cell(interface, way);
                }
                interval.lost.entry(interface).or_default();
            }
        }
        let (begin_ns, end_ns) = self.bounds(number, last_ns);
        let mut rows = Vec::new();
        for (&(interface, way), cell) in &interval.cells {
            let mut add = |kind, name: &Arc<str>, frames: i64, bytes| {
                let interface = Arc::clone(&self.interfaces[interface]);
                let name = Arc::clone(name);
                rows.push(Row { begin_ns, end_ns, interface, way, kind, name, frames, bytes });
            };
            for (kind, name, tally) in self.named(number, cell) {
                if !self.nonzero || tally.frames > 0 {
                    add(kind, &name, signed(tally.frames), Some(signed(tally.bytes)));
                }
            }
            let nameless: Arc<str> = "".into();
            add(Kind::Seen, &nameless, signed(cell.seen.frames), Some(signed(cell.seen.bytes)));
        }
        self.compare(&mut rows, &interval, (begin_ns, end_ns));
        for (&interface, &frames) in &interval.lost {
            let interface = Arc::clone(&self.interfaces[interface]);
            let (way, kind, name, frames) = (Way::Unknown, Kind::Lost, "".into(), signed(frames));
            rows.push(Row { begin_ns, end_ns, interface, way, kind, name, frames, bytes: None });
        }
        // Of each interface and direction: filters, classes, sums; the order within these stays.
        rows.sort_by(|a, b| (&a.interface, a.way).cmp(&(&b.interface, b.way)));
        rows
    }

    /// The filters and classes of a cell of an interval with their counts, and the rests.
    fn named(&self, number: u64, cell: &Cell) -> Vec<(Kind, Arc<str>, Tally)> {
        let mut all: Vec<(Kind, Arc<str>, Tally)> = Vec::new();
        let mut places: HashMap<(Kind, &str), usize> = HashMap::new();
        let counted = self.entries.iter().filter(|counted| counted.is_in(number, cell));
        let entries: Vec<_> = counted.map(|counted| &counted.entry).collect();
        for (kind, rest, taken) in
            [(Kind::Filter, OTHER, cell.filtered), (Kind::Class, UNKNOWN, cell.classed)]
        {
            let of_kind = entries.iter().filter(|entry| entry.kind == kind);
            let mut is_there = false;
            for entry in of_kind {
                is_there = true;
                let tally = cell.entries.get(&entry.value).copied().unwrap_or_default();
                let place = *places.entry((kind, &*entry.name)).or_insert_with(|| {
                    all.push((kind, Arc::clone(&entry.name), Tally::default()));
                    all.len() - 1
                });
                all[place].2.add(tally);
            }
            if is_there {
                all.push((kind, rest.into(), cell.seen.without(taken)));
            }
        }
        all
    }

    /// Adds the counters at the end of an interval, and the differences from what was seen since the last reading. The
    /// counters of an interface that was made again do not include what the one before it counted last, so they are
    /// compared from then on.
    fn compare(&mut self, rows: &mut Vec<Row>, interval: &Interval, bounds: (u64, u64)) {
        for (&place, cell) in &interval.cells {
            self.since.entry(place).or_default().add(cell.seen);
        }
        let (begin_ns, end_ns) = bounds;
        for reading in interval.readings.iter().flatten() {
            let interface = self.interface(&reading.name);
            let last = self.last.insert(interface, reading.clone());
            let last = last.filter(|last| last.index == reading.index).map(|last| last.traffic);
            let now = &reading.traffic;
            for (way, count) in [(Way::Sent, sent(now)), (Way::Received, received(now))] {
                let seen =
                    self.since.insert((interface, way), Tally::default()).unwrap_or_default();
                let Some(last) = &last else { continue };
                let before = if way == Way::Sent { sent(last) } else { received(last) };
                let counted = count.without(before);
                let row = |kind, frames, bytes| Row {
                    begin_ns,
                    end_ns,
                    interface: Arc::clone(&self.interfaces[interface]),
                    way,
                    kind,
                    name: "".into(),
                    frames,
                    bytes: Some(bytes),
                };
                rows.push(row(Kind::Counter, signed(counted.frames), signed(counted.bytes)));
                rows.push(row(
                    Kind::Difference,
                    signed(counted.frames).saturating_sub(signed(seen.frames)),
                    signed(counted.bytes).saturating_sub(signed(seen.bytes)),
                ));
            }
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn sent(traffic: &Traffic) -> Tally {
    Tally { frames: traffic.sent_frames, bytes: traffic.sent_bytes }
}

fn received(traffic: &Traffic) -> Tally {
    Tally { frames: traffic.received_frames, bytes: traffic.received_bytes }
}

#[cfg(test)]
mod tests;
