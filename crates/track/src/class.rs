//! The graph class `track`: follows protocols that negotiate ports, and edits the filter before
//! it, so that the filter accepts an announced connection from the next frame on. Passes every
//! frame; with `fragments=y` not the fragments of packets without a first fragment.
//!
//! Parameters: `expression`, the protocols, `sip,rtsp` (by default `ftp`, the first of the
//! [registry]); `port`, the control ports of one protocol (by default its own); `live=y`:
//! time passes without frames too. Counters: `announced`, `closed`, `refused`
//! (announcements that the filter did not accept), `data_frames` (of closed data connections), the
//! [`NOTICES`](crate::NOTICES) of the tracker,
//! `edit_us_p50` and `edit_us_p99` (time of the last 4,096 edits of the filter).
//! Bounded by the tracker's [`Limits`]. Source: Swift, section 5.2 (FTPCap); MAPI's TRACK_FTP.
//!
//! [`Limits`]: crate::Limits

use crate::registry;
use crate::whole::Whole;
use crate::{Connection, Event, Expected, Limits, PassKeeper, Protocol, Tracker};
use fyke_filter::Options;
use fyke_filters::FilterSet;
use fyke_frame::{LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError};
use fyke_graph::node::{Opens, Parameter, Settings};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

struct Track {
    tracker: Box<dyn Tracker>,
    whole: Whole,
    rejects_fragments: bool,
    live: bool,
    filters: Option<FilterSet>,
    keepers: HashMap<LinkType, PassKeeper>,
    events: Vec<Event>,
    announced: u64,
    closed: u64,
    refused: u64,
    data_frames: u64,
    edits: EditTimes,
}

/// Times of the last edits: how long after its frame was read a connection's row is in force.
#[derive(Default)]
struct EditTimes {
    last_ns: Vec<u64>,
    next: usize,
}

impl EditTimes {
    /// Most edits that are kept.
    const KEPT: usize = 4_096;

    fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self.last_ns.get_mut(self.next) {
            Some(place) => *place = ns,
            None => self.last_ns.push(ns),
        }
        self.next = (self.next + 1) % EditTimes::KEPT;
    }

    /// The time within which this part of the edits was done, in microseconds.
    fn percentile_us(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.last_ns.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        Some(sorted[at] as f64 / 1_000.0)
    }
}

impl Track {
    fn new(tracker: Box<dyn Tracker>, live: bool) -> Track {
        Track {
            tracker,
            whole: Whole::new(),
            rejects_fragments: false,
            live,
            filters: None,
            keepers: HashMap::new(),
            events: Vec::new(),
            announced: 0,
            closed: 0,
            refused: 0,
            data_frames: 0,
            edits: EditTimes::default(),
        }
    }

    /// Applies the edits that events require to the passes of a link type.
    fn edit(&mut self, link: LinkType, events: &[Event]) -> Result<(), NodeError> {
        let Some(filters) = &self.filters else { return Ok(()) };
        let keeper = self.keepers.entry(link).or_insert_with(|| {
            let (options, fragments) = filters.reading();
            PassKeeper::reading(Options { link, ..options }, fragments)
        });
        let begin = Instant::now();
        let applied = keeper.edit(link, events, filters);
        self.edits.add(begin.elapsed());
        self.refused += applied.map_err(NodeError::new)?.failures.len() as u64;
        Ok(())
    }

    /// The events since the last call, counted.
    fn take_events(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut self.events);
        for event in &events {
            match event {
                Event::Open(_) => self.announced += 1,
                Event::Close(closed) => {
                    self.closed += 1;
                    self.data_frames += closed.frame_count;
                }
            }
        }
        events
    }
}

impl Track {
    /// Describes an expectation: its call, its end, its cause and its age.
    fn describe(&self, expected: &Expected) -> String {
        let Connection { server, port, protocol, client, .. } = expected.connection;
        let Connection { call, label, cause, announced_ns, .. } = expected.connection;
        let (name, number) = self.tracker.name_of(call);
        let at = match protocol {
            Protocol::Gre => format!("{server} gre"),
            protocol => format!("{server} {} port {port}", protocol.word()),
        };
        let with = if expected.connection.pair { format!(" with {client}") } else { String::new() };
        let state = match (expected.closing, expected.arrived) {
            (true, _) => "ends",
            (false, true) => "in use",
            (false, false) => "expected",
        };
        let (seconds, millis) = (announced_ns / 1_000_000_000, announced_ns / 1_000_000 % 1_000);
        let cause = cause.name();
        let bytes = expected.wire_bytes;
        format!(
            "{name} call {number}: {label} at {at}{with}, {state}; {cause}, \
             announced at {seconds}.{millis:03}; {bytes} bytes"
        )
    }
}

impl Node for Track {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut foreign = Mask::EMPTY;
        self.tracker.load(&mut arrival.frames().map(|(_, frame)| frame));
        for (index, frame) in arrival.frames() {
            // What has ended before this frame is over for it: the filter judges it again.
            self.tracker.expire(frame.timestamp_ns, &mut self.events);
            let mut read = index;
            if self.events.is_empty() {
                let taken = self.whole.frame(&mut *self.tracker, frame, &mut self.events);
                if taken.is_foreign && self.rejects_fragments {
                    foreign.set(index);
                }
                read += 1;
            }
            if !self.events.is_empty() {
                // With what has ended before the next frame, so that this is one edit and the next frame is read then.
                if let Some(next) = arrival.batch().frames().get(read) {
                    self.tracker.expire(next.timestamp_ns, &mut self.events);
                }
                let events = self.take_events();
                self.edit(frame.link, &events)?;
                arrival.cut(read);
                return Ok((arrival.mask() & Mask::first(read)).without(foreign));
            }
        }
        Ok(arrival.mask().without(foreign))
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        if !self.live {
            return Ok(());
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.tracker.expire(now_ns, &mut self.events);
        let events = self.take_events();
        if events.is_empty() {
            return Ok(());
        }
        // A connection is closed in the passes of the link type on which it was announced; others
        // do not know it.
        let links: Vec<_> = self.keepers.keys().copied().collect();
        links.into_iter().try_for_each(|link| self.edit(link, &events))
    }

    /// Closes the connections that are still open at the end of the capture.
    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.tracker.expire(u64::MAX, &mut self.events);
        self.take_events();
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = vec![
            Counter::count("announced", self.announced),
            Counter::count("closed", self.closed),
            Counter::count("refused", self.refused),
            Counter::count("data_frames", self.data_frames),
        ];
        let times = [("edit_us_p50", 50), ("edit_us_p99", 99)];
        let times = times.into_iter().filter_map(|(name, percent)| {
            Some(Counter::new(name, self.edits.percentile_us(percent)?).common())
        });
        counters.extend(times);
        let notices = self.tracker.notices().into_iter();
        counters.extend(notices.map(|(name, count)| Counter::count(name, count)));
        counters
    }

    /// The expectations of the oldest calls, with their frames.
    fn entries(&self) -> Vec<(String, u64)> {
        let mut expected = self.tracker.expected();
        expected.sort_unstable_by_key(|one| one.connection.id);
        let left = expected.len().saturating_sub(ENTRY_LIMIT);
        let listed = expected.iter().take(ENTRY_LIMIT);
        let mut entries: Vec<_> = listed.map(|one| (self.describe(one), one.frame_count)).collect();
        if left > 0 {
            let frames = expected.iter().skip(ENTRY_LIMIT).map(|one| one.frame_count).sum();
            entries.push((format!("{left} more expectations"), frames));
        }
        entries
    }

    fn held(&self) -> Option<String> {
        self.tracker.held().map(str::to_owned)
    }

    fn connect(&mut self, filters: &FilterSet) {
        filters.tracked_by(format!("track {}", self.tracker.name()));
        self.filters = Some(filters.clone());
    }
}

/// Most expectations that are listed.
const ENTRY_LIMIT: usize = 999;
/// Most control ports of a tracker.
const MAX_PORTS: usize = 16;

/// Parses control ports such as `21,2121`.
///
/// # Errors
/// When one is not a port, or there are more than 16.
pub fn ports(text: &str) -> Result<Vec<u16>, String> {
    let port = |word: &str| match word.trim().parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(format!("{word:?} is not a port from 1 to 65535; expected N[,N]")),
    };
    let ports: Vec<u16> = text.split(',').map(port).collect::<Result<_, _>>()?;
    match ports.len() {
        1..=MAX_PORTS => Ok(ports),
        given => Err(format!("{given} ports given, the limit is {MAX_PORTS}")),
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let kinds = registry::parse(settings.text("expression").unwrap_or(registry::TRACKERS[0].name));
    let kinds = kinds.map_err(|message| MakeError::new("expression", message))?;
    let ports = settings.text("port").map(ports).transpose();
    let ports = ports.map_err(|message| MakeError::new("port", message))?;
    if ports.is_some() && kinds.len() > 1 {
        return Err(MakeError::new(
            "port",
            "control ports are for one protocol; several are given",
        ));
    }
    let tracker = registry::make(&kinds, ports.as_deref(), Limits::default());
    let track = Track::new(Box::new(tracker), settings.flag("live")?);
    Ok(Box::new(Track { rejects_fragments: settings.flag("fragments")?, ..track }))
}

/// A node that follows any tracker, for classes of programs with trackers of their own:
/// `make: |settings| Ok(node(Box::new(MyTracker::new()), settings.flag("live")?))` and
/// `..CLASS` for the rest. With `live`, time passes without frames too.
pub fn node(tracker: Box<dyn Tracker>, live: bool) -> Box<dyn Node> {
    Box::new(Track::new(tracker, live))
}

/// The class, for registration.
pub const CLASS: Class = Class {
    name: "track",
    aliases: &["track_ftp"],
    summary: "follows the protocols `expression` and edits the filter before it",
    parameters: &[
        Parameter { name: "expression", summary: registry::CHOICES },
        Parameter { name: "port", summary: "control ports, N[,N] (those of the protocol)" },
        Parameter { name: "live", summary: "y: entries expire even while no frame arrives" },
        Parameter { name: "fragments", summary: "y: reject fragments of packets not captured" },
    ],
    cuts: |_| true,
    edits: true,
    opens: Opens::nothing,
    make,
    ..Class::NODE
};
