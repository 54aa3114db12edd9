//! The old way: for every data connection that starts or ends, libpcap compiles the whole expression and attaches
//! it to the socket, in the thread that captures, as FTPCap-LSF did.
//!
//! It has two advantages over plain libpcap: there is no reject-all filter and no draining during the exchange, by
//! which libpcap loses packets by design; and its ring delivers frames within a millisecond, because it must read a
//! reply before it can accept the data. fyke needs neither.

use super::expression::{Expression, START};
use super::latency::Latencies;
use super::tally::Tally;
use crate::ftp::Stop;
use crate::peers::libpcap::{Libpcap, Program};
use fyke_capture::{Next, RingSource, Source};
use fyke_frame::{Frame, LinkType};
use fyke_track::{Event, Ftp, Limits, Tracker};
use socket2::{SockFilter, SockRef};
use std::time::{Duration, Instant};

const SNAPLEN: u32 = 262_144;

/// The old way in operation, with its results.
pub(crate) struct OldWay {
    libpcap: Libpcap,
    tracker: Ftp,
    expression: Expression,
    events: Vec<Event>,
    pub(crate) tally: Tally,
    pub(crate) announced: u64,
    pub(crate) updates: Latencies,
    pub(crate) failed_updates: u64,
    pub(crate) failure: Option<String>,
    pub(crate) most_instructions: usize,
    pub(crate) ring_lost: u64,
}

impl OldWay {
    /// Loads libpcap; returns the reason if there is none.
    pub(crate) fn new(limits: Limits) -> Result<OldWay, String> {
        let libpcap = Libpcap::load().map_err(|error| error.to_string())?;
        Ok(OldWay {
            libpcap,
            tracker: Ftp::new(21, limits),
            expression: Expression::default(),
            events: Vec::new(),
            tally: Tally::default(),
            announced: 0,
            updates: Latencies::default(),
            failed_updates: 0,
            failure: None,
            most_instructions: 0,
            ring_lost: 0,
        })
    }

    /// Name and version, as reported by the library.
    pub(crate) fn name(&self) -> String {
        let version = self.libpcap.version();
        version.split(" (").next().unwrap_or("libpcap").replace(" version ", " ")
    }

    /// Captures until `stop`; calls `ready` once the first filter is attached.
    pub(crate) fn capture(
        mut self,
        mut source: RingSource,
        stop: &Stop,
        ready: impl FnOnce(),
    ) -> Result<OldWay, String> {
        let program = self.compile(START)?;
        attach(&source, &program)?;
        ready();
        loop {
            let is_over = stop.is_over();
            let wanted = match source.next().map_err(|error| error.to_string())? {
                Next::End => break,
                Next::Idle if is_over => break,
                Next::Idle => self.expire(),
                // One update per batch would be faster, but FTPCap made one for each connection.
                Next::Frames(batch, _) => {
                    let mut texts = Vec::new();
                    for frame in batch.frames() {
                        texts.extend(self.frame(frame));
                    }
                    texts
                }
            };
            for text in wanted {
                let begin = Instant::now();
                let updated = self.compile(&text).and_then(|program| attach(&source, &program));
                self.updated(begin.elapsed(), updated);
            }
        }
        self.ring_lost = source.stats().dropped;
        Ok(self)
    }

    /// Captures frames with timestamps from memory. An update takes effect, on the clock of the frames, after the
    /// time that the compilation actually took.
    pub(crate) fn replay(&mut self, frames: &mut dyn Source) -> Result<(), String> {
        let mut current = self.compile(START)?;
        let mut pending: Vec<(u64, Program)> = Vec::new();
        let mut busy_until_ns = 0;
        loop {
            let batch = match frames.next().map_err(|error| error.to_string())? {
                Next::End => return Ok(()),
                Next::Idle => continue,
                Next::Frames(batch, _) => batch,
            };
            for frame in batch.frames() {
                while pending.first().is_some_and(|(at, _)| *at <= frame.timestamp_ns) {
                    current = pending.remove(0).1;
                }
                if !current.matches(frame.data, frame.wire_len) {
                    continue;
                }
                for text in self.frame(frame) {
                    let begin = Instant::now();
                    let compiled = self.compile(&text);
                    let latency = begin.elapsed();
                    busy_until_ns =
                        frame.timestamp_ns.max(busy_until_ns) + latency.as_nanos() as u64;
                    let updated = compiled.map(|program| pending.push((busy_until_ns, program)));
                    self.updated(latency, updated);
                }
            }
        }
    }

    /// Processes a captured frame; returns the texts to compile, one for each change.
    fn frame(&mut self, frame: &Frame) -> Vec<String> {
        self.tally.count(frame);
        self.tracker.frame(frame, &mut self.events);
        self.texts()
    }

    fn expire(&mut self) -> Vec<String> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_ns = u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        self.tracker.expire(now_ns, &mut self.events);
        self.texts()
    }

    fn texts(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        for event in self.events.drain(..) {
            let changed = match &event {
                Event::Open(connection) => {
                    self.announced += 1;
                    self.expression.add(connection)
                }
                Event::Close(closed) => self.expression.remove(&closed.connection),
            };
            if changed {
                texts.push(self.expression.text());
            }
        }
        texts
    }

    fn compile(&mut self, text: &str) -> Result<Program, String> {
        let program = self.libpcap.compile(LinkType::EN10MB, SNAPLEN, text, true)?;
        self.most_instructions = self.most_instructions.max(program.instructions().len());
        Ok(program)
    }

    fn updated(&mut self, latency: Duration, result: Result<(), String>) {
        match result {
            Ok(()) => self.updates.add(latency),
            Err(error) => {
                self.failed_updates += 1;
                self.failure.get_or_insert(error);
            }
        }
    }
}

fn attach(source: &RingSource, program: &Program) -> Result<(), String> {
    let instructions: Vec<SockFilter> = program
        .instructions()
        .iter()
        .map(|one| SockFilter::new(one.code, one.jt, one.jf, one.k))
        .collect();
    let attached = SockRef::from(source).attach_filter(&instructions);
    attached.map_err(|error| format!("attaching {} instructions: {error}", instructions.len()))
}
