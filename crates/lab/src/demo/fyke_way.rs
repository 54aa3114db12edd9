//! fyke's side: a pipeline whose consumer writes the frames, tracks FTP and edits the filter it is fed by.

use super::latency::Latencies;
use super::tally::Tally;
use super::{Counts, DemoError, START_FILTER};
use fyke_capture::{Interface, Sink, Source, SourceStats, WriteError, WriteOptions, create_file};
use fyke_frame::{Frame, LinkType};
use fyke_graph::{Accounting, Consumer, FilterSet, Flow, Pipeline};
use fyke_track::{Event, Ftp, KeepError, Limits, PassKeeper, Tracker};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the capture leaves behind.
pub(super) struct Captured {
    pub(super) tally: Tally,
    pub(super) counts: Counts,
    pub(super) announced: u64,
    pub(super) updates: Latencies,
    pub(super) failed_updates: u64,
    pub(super) failure: Option<String>,
    pub(super) most_passes: usize,
    pub(super) most_ports: usize,
}

/// How to capture.
#[derive(Clone)]
pub(super) struct Settings<'a> {
    pub(super) limits: Limits,
    /// Suppress what the n-th announcement asks for.
    pub(super) skip_edit: Option<u64>,
    pub(super) write: Option<&'a Path>,
    /// Timestamps are the clock on the wall, so time passes without frames.
    pub(super) live: bool,
}

/// Captures until the source ends.
pub(super) fn capture(
    source: &mut dyn Source,
    settings: &Settings,
) -> Result<Captured, DemoError> {
    let failed = |error: &dyn std::fmt::Display| DemoError::part("fyke", error);
    let filters = FilterSet::new(Default::default());
    filters.set(START_FILTER).map_err(|error| failed(&error))?;
    let sink = settings.write.map(|path| create_file(path, WriteOptions::default()));
    let mut tracking = Tracking {
        filters: filters.clone(),
        tracker: Ftp::new(21, settings.limits),
        keeper: PassKeeper::new(LinkType::EN10MB),
        sink: sink.transpose().map_err(|error| failed(&error))?,
        tally: Tally::default(),
        events: Vec::new(),
        skip_edit: settings.skip_edit,
        live: settings.live,
        announced: 0,
        updates: Latencies::default(),
        failed_updates: 0,
        failure: None,
        most_passes: 0,
        most_ports: 0,
    };
    let mut pipeline = Pipeline::new(filters.reader(), true);
    let never = AtomicBool::new(false);
    pipeline.run(source, &mut tracking, &never).map_err(|error| failed(&error))?;
    if let Some(sink) = tracking.sink.take() {
        sink.finish().map_err(|error| failed(&error))?;
    }
    let (counts, stats) = (pipeline.accounting(), source.stats());
    Ok(Captured {
        tally: tracking.tally,
        counts: Counts {
            received: stats.received,
            seen: counts.seen,
            delivered: counts.delivered,
            late: counts.late,
            rejected: counts.rejected,
            lost: stats.dropped,
        },
        announced: tracking.announced,
        updates: tracking.updates,
        failed_updates: tracking.failed_updates,
        failure: tracking.failure,
        most_passes: tracking.most_passes,
        most_ports: tracking.most_ports,
    })
}

struct Tracking {
    filters: FilterSet,
    tracker: Ftp,
    keeper: PassKeeper,
    sink: Option<Box<dyn Sink>>,
    tally: Tally,
    events: Vec<Event>,
    skip_edit: Option<u64>,
    live: bool,
    announced: u64,
    updates: Latencies,
    failed_updates: u64,
    failure: Option<String>,
    most_passes: usize,
    most_ports: usize,
}

impl Consumer for Tracking {
    type Error = WriteError;

    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, WriteError> {
        self.tally.count(frame);
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
        let (announced, skip) = (&mut self.announced, self.skip_edit);
        self.events.retain(|event| {
            let opens = matches!(event, Event::Open(_));
            *announced += u64::from(opens);
            !(opens && skip == Some(*announced))
        });
        if self.events.is_empty() {
            return;
        }
        let begin = Instant::now();
        let edited = self.filters.edit_passes(LinkType::EN10MB, |passes| {
            self.keeper.apply(&self.events, passes)
        });
        let latency = begin.elapsed();
        self.events.clear();
        let failures: Vec<KeepError> = match edited {
            Ok(applied) => {
                if applied.changes > 0 {
                    self.updates.add(latency);
                }
                applied.failures
            }
            Err(error) => return self.fail(&error),
        };
        failures.iter().for_each(|failure| self.fail(failure));
        self.most_passes = self.most_passes.max(self.keeper.pass_count());
        self.most_ports = self.most_ports.max(self.keeper.connection_count());
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.failed_updates += 1;
        self.failure.get_or_insert_with(|| error.to_string());
    }
}

impl Captured {
    /// The largest filter, in words.
    pub(super) fn largest(&self) -> String {
        format!("{} passes", self.most_passes + 1)
    }
}

