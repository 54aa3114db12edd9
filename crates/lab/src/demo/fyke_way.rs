//! fyke's side: a pipeline whose consumer writes the frames, tracks FTP and edits the filter it is fed by.

use super::latency::Latencies;
use super::tally::Tally;
use super::{Counts, DemoError, START_FILTER};
use crate::ftp::CONTROL_PORT;
use crate::net::CLIENTS_DEVICE;
use fyke_capture::{Interface, Sink, Source, SourceStats, WriteError, WriteOptions, create_file};
use fyke_frame::{Frame, LinkType};
use fyke_graph::{Accounting, Consumer, FilterSet, Flow, Pipeline};
use fyke_track::{Event, Ftp, KeepError, Limits, PassKeeper, Tracker};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How to capture.
#[derive(Debug, Clone)]
pub(crate) struct Settings<'a> {
    pub(crate) limits: Limits,
    /// Suppress what the n-th announcement asks for.
    pub(crate) skip_edit: Option<u64>,
    pub(crate) write: Option<&'a Path>,
    /// Timestamps are the clock on the wall, so time passes without frames.
    pub(crate) live: bool,
}

/// fyke's side, ready to capture.
pub(crate) struct FykeWay {
    pipeline: Pipeline,
    tracking: Tracking,
}

/// What the capture leaves behind.
pub(crate) struct Captured {
    pub(crate) results: Results,
    pub(crate) counts: Counts,
}

/// What the consumer has counted.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) tally: Tally,
    pub(crate) announced: u64,
    /// Whether the edit that should be suppressed has come up.
    pub(crate) skipped: bool,
    pub(crate) updates: Latencies,
    pub(crate) failed_updates: u64,
    pub(crate) failure: Option<String>,
    pub(crate) most_passes: usize,
}

struct Tracking {
    filters: FilterSet,
    tracker: Ftp,
    keeper: PassKeeper,
    sink: Option<Box<dyn Sink>>,
    events: Vec<Event>,
    skip_edit: Option<u64>,
    live: bool,
    results: Results,
}

impl FykeWay {
    /// Creates the file and sets the filter to begin with.
    pub(crate) fn new(settings: &Settings) -> Result<FykeWay, DemoError> {
        let filters = FilterSet::new(Default::default());
        filters.set(START_FILTER).map_err(failed)?;
        let options = WriteOptions {
            interfaces: vec![Interface::new(CLIENTS_DEVICE, LinkType::EN10MB)],
            ..WriteOptions::default()
        };
        let sink = settings.write.map(|path| create_file(path, options));
        let tracking = Tracking {
            filters: filters.clone(),
            tracker: Ftp::new(CONTROL_PORT, settings.limits),
            keeper: PassKeeper::new(LinkType::EN10MB),
            sink: sink.transpose().map_err(failed)?,
            events: Vec::new(),
            skip_edit: settings.skip_edit,
            live: settings.live,
            results: Results::default(),
        };
        Ok(FykeWay { pipeline: Pipeline::new(filters.reader(), true), tracking })
    }

    /// Captures until the source ends.
    pub(crate) fn capture(mut self, source: &mut dyn Source) -> Result<Captured, DemoError> {
        let never = AtomicBool::new(false);
        self.pipeline.run(source, &mut self.tracking, &never).map_err(failed)?;
        if let Some(sink) = self.tracking.sink.take() {
            sink.finish().map_err(failed)?;
        }
        let (counts, stats) = (self.pipeline.accounting(), source.stats());
        let counts = Counts {
            received: stats.received,
            seen: counts.seen,
            delivered: counts.delivered,
            late: counts.late,
            rejected: counts.rejected,
            lost: stats.dropped,
        };
        Ok(Captured { results: self.tracking.results, counts })
    }
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::part("fyke", error)
}

impl Consumer for Tracking {
    type Error = WriteError;

    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, WriteError> {
        self.results.tally.count(frame);
        if let Some(sink) = &mut self.sink {
            sink.write(interface, frame)?;
        }
        self.tracker.frame(frame, &mut self.events);
        self.edit();
        Ok(Flow::Continue)
    }

    fn between(&mut self, _: &Accounting, _: &SourceStats) -> Result<Flow, WriteError> {
        if self.live {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            self.tracker.expire(now_ns, &mut self.events);
            self.edit();
        }
        Ok(Flow::Continue)
    }
}

impl Tracking {
    /// Carries out what the events ask for; it is in force for the next frame.
    fn edit(&mut self) {
        let (results, skip) = (&mut self.results, self.skip_edit);
        self.events.retain(|event| {
            let opens = matches!(event, Event::Open(_));
            results.announced += u64::from(opens);
            let skipped = opens && skip == Some(results.announced);
            results.skipped |= skipped;
            !skipped
        });
        if self.events.is_empty() {
            return;
        }
        let begin = Instant::now();
        let edited = self
            .filters
            .edit_passes(LinkType::EN10MB, |passes| self.keeper.apply(&self.events, passes));
        let latency = begin.elapsed();
        self.events.clear();
        let failures: Vec<KeepError> = match edited {
            Ok(applied) => {
                if applied.changes > 0 {
                    self.results.updates.add(latency);
                }
                applied.failures
            }
            Err(error) => return self.fail(&error),
        };
        failures.iter().for_each(|failure| self.fail(failure));
        let passes = self.results.most_passes.max(self.keeper.pass_count());
        self.results.most_passes = passes;
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.results.failed_updates += 1;
        self.results.failure.get_or_insert_with(|| error.to_string());
    }
}

impl Captured {
    /// The largest filter, in words.
    pub(crate) fn largest(&self) -> String {
        // One more for the control connections.
        format!("{} passes", self.results.most_passes + 1)
    }
}
