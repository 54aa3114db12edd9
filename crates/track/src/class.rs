//! The graph class `track`: follows a protocol that negotiates ports, and lets the filter before it accept what it
//! announces from the next frame on. Passes every frame.
//!
//! Parameters: `expression`, the protocol (`ftp`, the default); `live=y`: time passes without frames too. Counters:
//! `announced`, `closed`, `refused` (announcements that the filter did not take). Bounded by the tracker's [`Limits`].
//! Source: Swift, section 5.2 (FTPCap); MAPI's TRACK_FTP.
//!
//! [`Limits`]: crate::Limits

use crate::{Event, Ftp, PassKeeper, Tracker};
use fyke_frame::{LinkType, Mask};
use fyke_graph::FilterSet;
use fyke_graph::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError};
use fyke_graph::node::{Parameter, Settings};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

struct Track {
    tracker: Box<dyn Tracker>,
    live: bool,
    filters: Option<FilterSet>,
    keepers: HashMap<LinkType, PassKeeper>,
    events: Vec<Event>,
    announced: u64,
    closed: u64,
    refused: u64,
}

impl Track {
    /// Carries out what events ask for in the passes of a link type.
    fn edit(&mut self, link: LinkType, events: &[Event]) -> Result<(), NodeError> {
        let Some(filters) = &self.filters else { return Ok(()) };
        let keeper = self.keepers.entry(link).or_insert_with(|| PassKeeper::new(link));
        let applied = filters.edit_passes(link, |passes| keeper.apply(events, passes));
        self.refused += applied.map_err(NodeError::new)?.failures.len() as u64;
        Ok(())
    }

    /// The events since the last call, counted.
    fn take_events(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut self.events);
        let opened = events.iter().filter(|event| matches!(event, Event::Open(_))).count();
        self.announced += opened as u64;
        self.closed += (events.len() - opened) as u64;
        events
    }
}

impl Node for Track {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (index, frame) in arrival.frames() {
            self.tracker.frame(frame, &mut self.events);
            if !self.events.is_empty() {
                let events = self.take_events();
                self.edit(frame.link, &events)?;
                arrival.cut(index + 1);
                return Ok(arrival.mask() & Mask::first(index + 1));
            }
        }
        Ok(arrival.mask())
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
        // A connection is closed in the passes of the link type that it was announced on; others do not know it.
        let links: Vec<_> = self.keepers.keys().copied().collect();
        links.into_iter().try_for_each(|link| self.edit(link, &events))
    }

    /// What is still open now is closed with the capture.
    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.tracker.expire(u64::MAX, &mut self.events);
        self.take_events();
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("announced", self.announced),
            Counter::count("closed", self.closed),
            Counter::count("refused", self.refused),
        ]
    }

    fn connect(&mut self, filters: &FilterSet) {
        filters.tracked_by(format!("track {}", self.tracker.name()));
        self.filters = Some(filters.clone());
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    settings.choice("expression", &["ftp"])?;
    Ok(Box::new(Track {
        tracker: Box::new(Ftp::default()),
        live: settings.flag("live")?,
        filters: None,
        keepers: HashMap::new(),
        events: Vec::new(),
        announced: 0,
        closed: 0,
        refused: 0,
    }))
}

/// The class, to be registered with the others.
pub const CLASS: Class = Class {
    name: "track",
    aliases: &["track_ftp"],
    summary: "follows the protocol `expression` and edits the filter before it",
    parameters: &[
        Parameter { name: "expression", summary: "ftp (default)" },
        Parameter { name: "live", summary: "y: time passes without frames" },
    ],
    cuts: |_| true,
    edits: true,
    make,
    ..Class::NODE
};
