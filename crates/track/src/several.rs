//! Several trackers as one: each reads every frame, and their numbers are made distinct.
//!
//! Connection *n* of tracker *i* of *k* becomes *n · k + i*; calls likewise, so [`Several::protocol_of`] names the
//! protocol of a call. Cost: the sum of the trackers.

use crate::{CallFrame, Closed, Connection, Event, Expected, Tracker};
use fyke_frame::Frame;

/// Trackers of several protocols.
pub struct Several {
    trackers: Vec<Box<dyn Tracker>>,
    name: String,
    start_filter: String,
    held: Option<String>,
    call: Option<CallFrame>,
}

impl Several {
    /// Joins trackers.
    pub fn new(trackers: Vec<Box<dyn Tracker>>) -> Several {
        let join = |parts: Vec<&str>, by: &str| match parts.as_slice() {
            [one] => (*one).to_owned(),
            parts => parts.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(by),
        };
        let names: Vec<_> = trackers.iter().map(|tracker| tracker.name()).collect();
        let filters = trackers.iter().map(|tracker| tracker.start_filter()).collect();
        let mut held: Option<Vec<&str>> = trackers.iter().map(|tracker| tracker.held()).collect();
        if let Some(held) = &mut held {
            held.sort_unstable();
            held.dedup();
        }
        let held = held.map(|held| join(held, " or "));
        let (name, start_filter) = (names.join(","), join(filters, " or "));
        Several { trackers, name, start_filter, held, call: None }
    }

    /// Name of the protocol of a call, and the number that its tracker gave it.
    pub fn protocol_of(&self, call: u64) -> Option<(&str, u64)> {
        let count = self.trackers.len() as u64;
        let tracker = self.trackers.get(usize::try_from(call % count.max(1)).ok()?)?;
        Some((tracker.name(), call / count))
    }

    /// Passes a frame or the time to each tracker, and makes the numbers of its events distinct.
    fn each(
        &mut self,
        events: &mut Vec<Event>,
        mut act: impl FnMut(&mut dyn Tracker, &mut Vec<Event>),
    ) {
        let count = self.trackers.len() as u64;
        for (tracker, index) in self.trackers.iter_mut().zip(0..) {
            let first = events.len();
            act(&mut **tracker, events);
            for event in &mut events[first..] {
                match event {
                    Event::Open(connection) | Event::Close(Closed { connection, .. }) => {
                        renumber(connection, count, index);
                    }
                }
            }
        }
    }
}

fn renumber(connection: &mut Connection, count: u64, index: u64) {
    connection.id = connection.id * count + index;
    connection.call = connection.call * count + index;
}

impl Tracker for Several {
    fn name(&self) -> &str {
        &self.name
    }

    fn start_filter(&self) -> &str {
        &self.start_filter
    }

    fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        self.each(events, |tracker, events| tracker.frame(frame, events));
        let count = self.trackers.len() as u64;
        let calls = self.trackers.iter().zip(0..);
        self.call = calls
            .filter_map(|(tracker, at)| {
                let part = tracker.call()?;
                Some(CallFrame { call: part.call * count + at, ..part })
            })
            .next();
    }

    fn load(&self, frames: &mut dyn Iterator<Item = &Frame<'_>>) {
        match self.trackers.as_slice() {
            [one] => one.load(frames),
            trackers => {
                let frames: Vec<_> = frames.collect();
                trackers.iter().for_each(|one| one.load(&mut frames.iter().copied()));
            }
        }
    }

    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.each(events, |tracker, events| tracker.expire(now_ns, events));
    }

    fn call(&self) -> Option<CallFrame> {
        self.call
    }

    fn name_of(&self, call: u64) -> (&str, u64) {
        self.protocol_of(call).unwrap_or((&self.name, call))
    }

    fn expected(&self) -> Vec<Expected> {
        let count = self.trackers.len() as u64;
        let mut all = Vec::new();
        for (tracker, index) in self.trackers.iter().zip(0..) {
            let mut list = tracker.expected();
            list.iter_mut().for_each(|one| renumber(&mut one.connection, count, index));
            all.append(&mut list);
        }
        all
    }

    fn notices(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for (name, count) in self.trackers.iter().flat_map(|tracker| tracker.notices()) {
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name, count)),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ftp, Sip};

    #[test]
    fn texts_are_joined_and_calls_tell_their_protocol() {
        let several = Several::new(vec![Box::new(Ftp::default()), Box::new(Sip::default())]);
        assert_eq!(several.name(), "ftp,sip");
        for text in [several.start_filter(), several.held().unwrap()] {
            fyke_filter::compile(text, &fyke_filter::Options::default()).expect(text);
            assert!(
                text.contains("tcp") && text.contains("udp") && text.contains(") or ("),
                "{text}"
            );
        }
        assert_eq!(several.protocol_of(2 * 7 + 1), Some(("sip", 7)));
        let one = Several::new(vec![Box::new(Ftp::default())]);
        assert_eq!((one.start_filter(), one.held()), ("tcp port ftp", Some("tcp")));
    }
}
