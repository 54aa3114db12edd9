//! fyke's side: a graph with a last node that writes the frames, tracks FTP and edits the filter before it, as the
//! class `track` does, and measures the time of the edits.

use super::latency::Latencies;
use super::tally::Tally;
use super::{Counts, DemoError, START_FILTER};
use crate::ftp::CONTROL_PORT;
use crate::net::CLIENTS_DEVICE;
use fyke_capture::{Interface, Sink, Source, WriteOptions, create_file};
use fyke_filters::FilterSet;
use fyke_frame::{LinkType, Mask};
use fyke_graph::language::quoted;
use fyke_graph::node::{Arrival, Class, Emitted, Kind, Node, NodeError};
use fyke_graph::placement::{self, Space};
use fyke_graph::{Classes, GraphHandle, Made};
use fyke_track::{Event, Ftp, KeepError, Limits, PassKeeper, Tracker};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Options of the capture.
#[derive(Clone)]
pub(crate) struct Settings<'a> {
    pub(crate) limits: Limits,
    /// Suppresses the edit for the n-th announcement.
    pub(crate) skip_edit: Option<u64>,
    pub(crate) write: Option<&'a Path>,
    /// True if timestamps are wall-clock time, so that time passes without frames too.
    pub(crate) live: bool,
    /// The space below the graph, in which its filter runs, too.
    pub(crate) below: Below,
}

/// fyke's side, ready to capture.
pub(crate) struct FykeWay {
    tracking: Tracking,
    below: Below,
}

/// Space below the graph, if there is one.
pub(crate) type Below = Option<&'static (dyn Space + Sync)>;

/// Results of the capture.
pub(crate) struct Captured {
    pub(crate) results: Results,
    pub(crate) counts: Counts,
    /// Description of the place of the filter; `None` without a space below.
    pub(crate) placement: Option<String>,
}

/// Counts of the consumer.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) tally: Tally,
    pub(crate) announced: u64,
    /// True if the edit to be suppressed has occurred.
    pub(crate) skipped: bool,
    pub(crate) updates: Latencies,
    pub(crate) failed_updates: u64,
    pub(crate) failure: Option<String>,
    pub(crate) most_passes: usize,
}

struct Tracking {
    filters: Option<FilterSet>,
    tracker: Ftp,
    keeper: PassKeeper,
    sink: Option<Box<dyn Sink>>,
    events: Vec<Event>,
    skip_edit: Option<u64>,
    live: bool,
    results: Results,
}

impl FykeWay {
    /// Creates the file and installs the initial filter.
    pub(crate) fn new(settings: &Settings<'_>) -> Result<FykeWay, DemoError> {
        let options = WriteOptions {
            interfaces: vec![Interface::new(CLIENTS_DEVICE, LinkType::EN10MB)],
            ..WriteOptions::default()
        };
        let sink = settings.write.map(|path| create_file(path, options));
        let tracking = Tracking {
            filters: None,
            tracker: Ftp::new(CONTROL_PORT, settings.limits),
            keeper: PassKeeper::new(LinkType::EN10MB),
            sink: sink.transpose().map_err(failed)?,
            events: Vec::new(),
            skip_edit: settings.skip_edit,
            live: settings.live,
            results: Results::default(),
        };
        Ok(FykeWay { tracking, below: settings.below })
    }

    /// Captures until the source ends; calls `ready` before the first frame is read.
    pub(crate) fn capture(
        self,
        source: Box<dyn Source>,
        ready: impl FnOnce(),
    ) -> Result<Captured, DemoError> {
        let never = AtomicBool::new(false);
        // Only classes of devices are placed in spaces below.
        let (class, device) = match self.tracking.live {
            true => ("device", format!("(device, {CLIENTS_DEVICE})")),
            false => ("wire", "(wire)".to_owned()),
        };
        let live = if self.tracking.live { ", live=y" } else { "" };
        let tracking = Arc::new(Mutex::new(self.tracking));
        let given = vec![
            (class, Made::Source(source)),
            ("tracking", Made::Node(Box::new(Shared(Arc::clone(&tracking))))),
        ];
        let start = quoted(START_FILTER);
        let graph =
            format!("{device} > {{filter}}(filter, {start}{live}, lookback=y) > (tracking)");
        let opened = GraphHandle::open_with(&[&graph], classes(), given, 1);
        let mut opened = opened.map_err(failed)?;
        if let Some(space) = self.below {
            opened.place(space);
        }
        let (mut engine, handle) = opened.start().map_err(failed)?;
        engine.end_at_first_failure();
        ready();
        engine.run(&never).map_err(failed)?;
        let placement = self.below.and_then(|_| placement::in_words(&handle.placements()));
        let view = engine.view();
        if let Some(error) = view.nodes.iter().find_map(|node| node.failed.as_ref()) {
            return Err(failed(error));
        }
        let counts = view.node("filter").map(|node| node.counts).unwrap_or_default();
        let stats = view.sources.first().map(|source| source.stats).unwrap_or_default();
        let counts = Counts {
            received: stats.received + stats.filtered,
            seen: counts.arrived + stats.filtered,
            delivered: counts.passed,
            late: counts.late,
            rejected: counts.rejected + stats.filtered,
            in_kernel: stats.filtered,
            lost: stats.dropped,
        };
        let results = std::mem::take(&mut lock(&tracking).results);
        Ok(Captured { results, counts, placement })
    }
}

/// Classes of the graph, with those of the demo itself.
fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(Class { name: "wire", kind: Kind::Source, ..Class::NODE });
    classes.register(Class {
        name: "tracking",
        cuts: |_| true,
        edits: true,
        check: Some(|_| Ok(())),
        ..Class::NODE
    });
    classes
}

/// The node; its results outlive it.
struct Shared(Arc<Mutex<Tracking>>);

fn lock(tracking: &Mutex<Tracking>) -> MutexGuard<'_, Tracking> {
    tracking.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::part("fyke", error)
}

impl Node for Shared {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut tracking = lock(&self.0);
        let tracking = &mut *tracking;
        for (index, frame) in arrival.frames() {
            tracking.results.tally.count(frame);
            if let Some(sink) = &mut tracking.sink {
                sink.write(arrival.interface(frame), frame).map_err(NodeError::new)?;
            }
            tracking.tracker.frame(frame, &mut tracking.events);
            if tracking.edit() {
                arrival.cut(index + 1);
                return Ok(arrival.mask() & Mask::first(index + 1));
            }
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let mut tracking = lock(&self.0);
        if tracking.live {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            let Tracking { tracker, events, .. } = &mut *tracking;
            tracker.expire(now_ns, events);
            tracking.edit();
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        let sink = lock(&self.0).sink.take();
        sink.map_or(Ok(()), |sink| sink.finish().map(drop)).map_err(NodeError::new)
    }

    fn held(&self) -> Option<String> {
        lock(&self.0).tracker.held().map(str::to_owned)
    }

    fn connect(&mut self, filters: &FilterSet) {
        lock(&self.0).filters = Some(filters.clone());
    }
}

impl Tracking {
    /// Makes the edits for the events; returns true if there were any.
    fn edit(&mut self) -> bool {
        let Some(filters) = &self.filters else { return false };
        let (results, skip) = (&mut self.results, self.skip_edit);
        self.events.retain(|event| {
            let opens = matches!(event, Event::Open(_));
            results.announced += u64::from(opens);
            let skipped = opens && skip == Some(results.announced);
            results.skipped |= skipped;
            !skipped
        });
        if self.events.is_empty() {
            return false;
        }
        let begin = Instant::now();
        let edited = self.keeper.edit(LinkType::EN10MB, &self.events, filters);
        let latency = begin.elapsed();
        self.events.clear();
        let failures: Vec<KeepError> = match edited {
            Ok(applied) => {
                if applied.changes > 0 {
                    self.results.updates.add(latency);
                }
                applied.failures
            }
            Err(error) => {
                self.fail(&error);
                return true;
            }
        };
        failures.iter().for_each(|failure| self.fail(failure));
        let passes = self.results.most_passes.max(self.keeper.pass_count());
        self.results.most_passes = passes;
        true
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.results.failed_updates += 1;
        self.results.failure.get_or_insert_with(|| error.to_string());
    }
}

impl Captured {
    /// Size of the largest filter, as text.
    pub(crate) fn largest(&self) -> String {
        // One more pass for the control connections.
        format!("{} passes", self.results.most_passes + 1)
    }
}
