//! The graph class `account`: counts frames and bytes of each interface and direction, by the class values that a
//! demultiplexer before it gave them, and writes rows for each interval. Passes every frame.
//!
//! Parameters: `expression`, a file, `-` (default) or `udp:HOST:PORT`; `format`, `table` (default for `-`), `csv`
//! (default for files), `ipfix` (`.ipfix`, `udp:`), `arrow` (`.arrow`), `arrow-stream` (`.arrows`) or `parquet`
//! (`.parquet`); `every`, milliseconds of an interval (the whole run if not given); `filter` and `class`, `VALUE NAME`,
//! may be repeated, a class also `VALUE NAME PROTOCOL[,PROTOCOL]` for the frames that these trackers recognise;
//! `live=y`, time passes without frames, and the interface's counters are compared; `nonzero=y`, no rows for filters
//! and classes without frames; `domain`, the observation domain of IPFIX. Counters: `frames`, `bytes`, `lost` frames,
//! `rows`, `late` frames, `lost_writes` or `refused_datagrams`.
//!
//! Of classes a frame has the first one only. A tracker sees the frames that no class before it has, and recognises
//! those of the connections that it follows from the frame on that made it sure. Cost: a population count for each
//! filter that has frames in a batch and one addition for each of these frames; that of trackers is a walk of the
//! headers.

use crate::counters::Counters;
use crate::row::{CSV_HEADER, Kind, Row, Tally, Way};
use crate::table;
use crate::tallies::{Account, Entry};
use fyke_flow::clock;
use fyke_frame::Mask;
use fyke_graph::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens};
use fyke_graph::node::{Parameter, Settings};
use fyke_graph::records::{Format, Records, domain};
use fyke_track::{Event, Limits, Several, Tracker, registry};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Age of frames that wait in the capture ring, at most; older intervals are complete.
const BACKLOG_NS: u64 = 10_000_000_000;
/// Longest interval, in milliseconds: a day.
pub const MAX_EVERY_MS: u64 = 86_400_000;
/// Shortest interval.
pub const MIN_EVERY_MS: u64 = 100;
/// Most bytes of a name.
pub const MAX_NAME: usize = 64;

const FORMATS: [&str; 6] = ["table", "csv", "ipfix", "arrow", "arrow-stream", "parquet"];

/// A class of applications that trackers recognise.
struct Followed {
    value: u32,
    tracker: Several,
}

/// Frames of a batch that belong to one direction of an interface in one interval.
type Group = ((u64, usize, Way), Mask);

struct AccountNode {
    account: Account,
    /// Classes in their order.
    classes: Vec<u32>,
    followed: Vec<Followed>,
    events: Vec<Event>,
    /// Numbers of the interfaces of sources.
    interfaces: HashMap<(u32, u32), usize>,
    groups: Vec<Group>,
    records: Records<Row>,
    is_table: bool,
    every_ns: Option<u64>,
    counters: Option<Counters>,
    /// Lost frames of each interface so far.
    lost: HashMap<usize, u64>,
    /// True if no frame has arrived since the last tick.
    is_idle: bool,
    is_finished: bool,
    rows: u64,
}

impl AccountNode {
    /// Groups the frames of a batch by interval, interface and direction.
    fn group(&mut self, arrival: &Arrival<'_>) {
        self.groups.clear();
        for (index, frame) in arrival.frames() {
            let place = (arrival.source(), frame.interface);
            let account = &mut self.account;
            let interface = *self
                .interfaces
                .entry(place)
                .or_insert_with(|| account.interface(&arrival.interface(frame).name));
            let key = (account.place(frame.timestamp_ns), interface, Way::of(&frame.meta));
            match self.groups.iter_mut().rev().find(|(known, _)| *known == key) {
                Some((_, frames)) => frames.set(index),
                None => {
                    let mut frames = Mask::EMPTY;
                    frames.set(index);
                    self.groups.push((key, frames));
                }
            }
        }
    }

    /// The frames of each class: a frame has the first class that it belongs to.
    fn classify(&mut self, arrival: &Arrival<'_>, values: &[(u32, Mask)]) -> Vec<(u32, Mask)> {
        let mut left = arrival.mask();
        let mut all = Vec::new();
        for &value in &self.classes {
            let followed = self.followed.iter_mut().find(|one| one.value == value);
            let frames = match followed {
                None => values.iter().find(|(one, _)| *one == value).map(|(_, frames)| *frames),
                Some(Followed { tracker, .. }) => {
                    let mut frames = Mask::EMPTY;
                    for index in left.iter() {
                        tracker.frame(&arrival.batch().frames()[index], &mut self.events);
                        if tracker.call().is_some() {
                            frames.set(index);
                        }
                    }
                    self.events.clear();
                    Some(frames)
                }
            };
            let frames = frames.unwrap_or(Mask::EMPTY) & left;
            left = left.without(frames);
            if !frames.is_empty() {
                all.push((value, frames));
            }
        }
        all
    }

    fn count(&mut self, arrival: &Arrival<'_>) {
        self.group(arrival);
        let values = arrival.classified();
        let classes = self.classify(arrival, &values);
        // The value 0 is that of all frames.
        let is_filter = |value: u32| value != 0 && !self.classes.contains(&value);
        let filters: Vec<_> = values.into_iter().filter(|(value, _)| is_filter(*value)).collect();
        let any =
            |sets: &[(u32, Mask)]| sets.iter().fold(Mask::EMPTY, |all, (_, frames)| all | *frames);
        let (filtered, classed) = (any(&filters), any(&classes));
        let frames = arrival.batch().frames();
        let tally = |mask: Mask| Tally {
            frames: mask.count() as u64,
            bytes: mask.iter().map(|index| u64::from(frames[index].wire_len)).sum(),
        };
        for &((interval, interface, way), group) in &self.groups {
            let seen = tally(group);
            self.account.read(seen);
            let cell = self.account.interval(interval).cell(interface, way);
            cell.seen.add(seen);
            cell.filtered.add(tally(filtered & group));
            cell.classed.add(tally(classed & group));
            for (value, frames) in filters.iter().chain(&classes) {
                let own = *frames & group;
                if !own.is_empty() {
                    cell.entries.entry(*value).or_default().add(tally(own));
                }
            }
        }
    }

    /// Writes the rows of closed intervals.
    fn write(&mut self, intervals: &[Vec<Row>]) {
        for rows in intervals.iter().filter(|rows| !rows.is_empty()) {
            self.rows += rows.len() as u64;
            if self.is_table {
                self.records.add_text(&table::text(rows));
            } else {
                rows.iter().for_each(|row| self.records.add(row));
            }
        }
    }

    /// Takes the counters that were read since the last call.
    fn take_counters(&mut self) {
        for (number, readings) in self.counters.iter().flat_map(Counters::take) {
            self.account.note(number, readings);
        }
    }

    /// Closes the intervals that are complete at this time.
    fn close(&mut self, now_ns: u64) {
        self.take_counters();
        let closed = self.account.close(now_ns);
        self.write(&closed);
    }
}

impl Node for AccountNode {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.is_idle = false;
        self.count(arrival);
        self.close(self.account.now_ns());
        self.records.advance_batches();
        if self.records.is_full() {
            self.records.drain(Duration::ZERO)?;
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        if let Some(counters) = &mut self.counters {
            if let Some(every_ns) = self.every_ns {
                counters.start(every_ns).map_err(NodeError::new)?;
            }
            let now_ns = clock::system_ns();
            let is_idle = std::mem::replace(&mut self.is_idle, true);
            self.close(if is_idle { now_ns } else { now_ns.saturating_sub(BACKLOG_NS) });
        }
        self.records.advance();
        self.records.drain(Duration::ZERO).map(drop)
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let records = &mut self.records;
        if records.is_full() || self.is_finished { records.drain(patience) } else { Ok(true) }
    }

    fn give_up(&mut self) {
        self.records.give_up();
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.take_counters();
        let now = self.counters.take().map(|counters| (clock::system_ns(), counters.now()));
        let closed = self.account.finish(now);
        self.write(&closed);
        self.records.end();
        self.is_finished = true;
        Ok(())
    }

    /// Notes the frames that each live interface has lost since the last call.
    fn account(&mut self, accounts: &[(fyke_capture::Interface, fyke_capture::Account)]) {
        if self.is_finished {
            return;
        }
        for (interface, account) in accounts {
            let interface = self.account.interface(&interface.name);
            let dropped = account.dropped.unwrap_or(0);
            let before = self.lost.insert(interface, dropped).unwrap_or(0);
            if let Some(more @ 1..) = dropped.checked_sub(before) {
                self.account.lose(interface, more, clock::system_ns());
            }
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let total = self.account.total();
        let all = [
            ("frames", total.frames),
            ("bytes", total.bytes),
            ("lost", self.account.total_lost()),
            ("rows", self.rows),
            ("late", self.account.late()),
            self.records.lost(),
        ];
        all.map(|(name, count)| Counter::count(name, count)).into()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(entries) = entries(settings) else { return false };
        let now_ns = match &self.counters {
            Some(_) => clock::system_ns(),
            None => self.account.now_ns(),
        };
        self.account.set_entries(entries, now_ns);
        true
    }
}

/// Reads `VALUE NAME` and `VALUE NAME PROTOCOL[,PROTOCOL]`.
fn read<'t>(
    parameter: &'static str,
    text: &'t str,
) -> Result<(u32, &'t str, Option<&'t str>), MakeError> {
    let wrong = |why: &str| MakeError::new(parameter, why).of(text);
    let mut words = text.split_whitespace();
    let value = words.next().and_then(|word| word.parse().ok());
    let (Some(value), Some(name)) = (value, words.next()) else {
        return Err(wrong("expected VALUE NAME: the class value of the frames, and a name"));
    };
    check_name(name).map_err(|why| wrong(&why))?;
    let protocols = words.next();
    let is_whole = words.next().is_none() && (protocols.is_none() || parameter == "class");
    if is_whole { Ok((value, name, protocols)) } else { Err(wrong("a name is one word")) }
}

/// Checks the name of a filter or a class.
///
/// # Errors
/// If it is empty, too long, or has spaces, control characters or one of `=:#`.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_wrong = |c: char| c.is_control() || c.is_whitespace() || "=:#".contains(c);
    match name {
        "" => Err("a name is missing".to_owned()),
        _ if name.len() > MAX_NAME => {
            Err(format!("the name `{name}` has more than {MAX_NAME} bytes"))
        }
        _ if name.contains(is_wrong) => {
            Err(format!("the name `{name}` has a space, a control character or one of `= : #`"))
        }
        _ => Ok(()),
    }
}

/// The values of a parameter that may be repeated.
fn all<'s>(settings: &'s Settings, parameter: &'static str) -> impl Iterator<Item = &'s str> {
    let pairs = settings.pairs().iter();
    pairs.filter(move |(name, _)| name == parameter).map(|(_, text)| text.as_str())
}

fn entries(settings: &Settings) -> Result<Vec<Entry>, MakeError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut values = HashSet::from([0]);
    for (parameter, kind) in [("filter", Kind::Filter), ("class", Kind::Class)] {
        for text in all(settings, parameter) {
            let (value, name, _) = read(parameter, text)?;
            if !values.insert(value) {
                let message = "its class value is 0, that of all frames, or taken";
                return Err(MakeError::new(parameter, message).of(text));
            }
            entries.push(Entry { value, kind, name: name.into() });
        }
    }
    Ok(entries)
}

fn followed(settings: &Settings) -> Result<Vec<Followed>, MakeError> {
    let mut followed = Vec::new();
    for text in all(settings, "class") {
        let (value, _, Some(protocols)) = read("class", text)? else { continue };
        let kinds = registry::parse(protocols);
        let kinds = kinds.map_err(|error| MakeError::new("class", error).of(text))?;
        let tracker = registry::make(&kinds, None, Limits::default());
        followed.push(Followed { value, tracker });
    }
    Ok(followed)
}

fn every_ns(settings: &Settings) -> Result<Option<u64>, MakeError> {
    if settings.text("every").is_none() {
        return Ok(None);
    }
    Ok(Some(settings.number("every", MIN_EVERY_MS..=MAX_EVERY_MS)? * 1_000_000))
}

/// The format, and true for a table.
fn format(settings: &Settings) -> Result<(Format, bool), MakeError> {
    let target = settings.text("expression").unwrap_or("-");
    let word = FORMATS[settings.choice("format", &FORMATS)?];
    let given = settings.text("format").map(|_| match word {
        "ipfix" => Format::Ipfix,
        "arrow" => Format::Arrow,
        "arrow-stream" => Format::ArrowStream,
        "parquet" => Format::Parquet,
        _ => Format::Text,
    });
    let format = Format::of(target, given)?;
    let is_table = if given.is_some() { word == "table" } else { target == "-" };
    Ok((format, is_table && format == Format::Text))
}

fn check(settings: &Settings) -> Result<(), MakeError> {
    entries(settings)?;
    followed(settings)?;
    every_ns(settings)?;
    format(settings)?;
    domain(settings)?;
    settings.flag("nonzero")?;
    settings.flag("live").map(drop)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let entries = entries(settings)?;
    let of_kind = entries.iter().filter(|entry| entry.kind == Kind::Class);
    let classes = of_kind.map(|entry| entry.value).collect();
    let (form, is_table) = format(settings)?;
    let target = settings.text("expression").unwrap_or("-");
    let mut records = Records::open(target, form, domain(settings)?, Row::csv)?;
    if !is_table {
        records.add_text(CSV_HEADER);
    }
    let names = settings.interfaces().iter().map(|interface| interface.name.as_str());
    let counters = settings.flag("live")?.then(|| Counters::open(names.clone()));
    let begin = counters.as_ref().map(|counters| (clock::system_ns(), counters.now()));
    let every_ns = every_ns(settings)?;
    let mut account = Account::new(every_ns, settings.flag("nonzero")?, entries, begin);
    for name in names {
        account.interface(name);
    }
    Ok(Box::new(AccountNode {
        account,
        classes,
        followed: followed(settings)?,
        events: Vec::new(),
        interfaces: HashMap::new(),
        groups: Vec::new(),
        records,
        is_table,
        every_ns,
        counters,
        lost: HashMap::new(),
        is_idle: true,
        is_finished: false,
        rows: 0,
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "account",
    summary: "frames and bytes of each interface and direction by class value, in intervals; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "a file, - (default), or udp:HOST:PORT" },
        Parameter {
            name: "format",
            summary: "table (-), csv (files), ipfix (.ipfix, udp), arrow (.arrow), arrow-stream (.arrows), parquet \
                      (.parquet)",
        },
        Parameter { name: "every", summary: "milliseconds of an interval (the whole run)" },
        Parameter { name: "filter", summary: "VALUE NAME of a filter; may be repeated" },
        Parameter {
            name: "class",
            summary: "VALUE NAME of a class, or VALUE NAME PROTOCOLS of trackers; may be repeated",
        },
        Parameter {
            name: "live",
            summary: "y: time passes without frames; counters of interfaces",
        },
        Parameter { name: "nonzero", summary: "y: no rows of filters and classes without frames" },
        Parameter { name: "domain", summary: "observation domain of IPFIX (1)" },
    ],
    live: &["filter"],
    lasting: true,
    waits: true,
    check: Some(check),
    make,
    opens: |settings| match settings.text("expression").is_some_and(|to| to.starts_with("udp:")) {
        true => Opens::Network,
        false => Opens::Device,
    },
    ..Class::NODE
};
