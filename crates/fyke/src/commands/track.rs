//! `fyke track`: follow a protocol that negotiates ports and capture everything that belongs to it.

use super::dump::{serve, wrong_filter};
use super::live::Live;
use super::{Failure, open, snaplen, stop_on_signals};
use crate::cli::TrackArgs;
use fyke_capture::{Interface, Sink, SourceStats, WriteOptions};
use fyke_filter::Options;
use fyke_frame::{Frame, LinkType};
use fyke_graph::pipeline::RunError;
use fyke_graph::{Accounting, Consumer, FilterSet, Flow, Pipeline};
use fyke_track::keeper::PassKeeper;
use fyke_track::{Event, Ftp, Tracker};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs the command.
pub fn run(args: TrackArgs) -> Result<(), Failure> {
    let live_capture = args.source.read.is_none();
    let mut source = open(&args.source, live_capture)?;
    let link = source.interfaces().first().map_or(LinkType::EN10MB, |interface| interface.link);
    let snaplen = snaplen(args.source.snaplen);
    let filters = FilterSet::new(Options { link, snaplen, ..Options::default() });
    let tracker = Ftp::default();
    filters.set(tracker.start_filter()).map_err(wrong_filter)?;
    let live = Live::new(filters.clone(), source.interfaces());
    let _server = serve(&live, live_capture);
    let stop = stop_on_signals()?;
    let interfaces = source.interfaces().to_vec();
    let options = WriteOptions { snaplen, interfaces, ..WriteOptions::default() };
    let mut follower = Follower {
        tracker,
        keepers: HashMap::new(),
        filters: filters.clone(),
        sink: fyke_capture::create_file(&args.write, options)?,
        live: &live,
        events: Vec::new(),
        live_capture,
        limit: args.count_limit.unwrap_or(u64::MAX),
        opened: 0,
        closed: 0,
        taken: 0,
    };
    let mut pipeline = Pipeline::new(filters.reader(), live_capture);
    let result = pipeline.run(source.as_mut(), &mut follower, &stop);
    live.report(&pipeline.accounting(), &source.stats());
    // What is still open now is closed with the capture.
    follower.tracker.expire(u64::MAX, &mut follower.events);
    follower.closed += follower.events.len() as u64;
    eprintln!("{} data connections announced, {} closed", follower.opened, follower.closed);
    eprint!("{}", live.summary(false));
    let finished = follower.sink.finish();
    match result {
        Ok(()) => finished.map(drop).map_err(Failure::from),
        Err(RunError::Consumer(failure)) => Err(failure),
        Err(RunError::Filter(error)) => Err(wrong_filter(error)),
        Err(RunError::Read(error)) => Err(error.into()),
    }
}

/// Writes the frames, shows them to the tracker and carries out what it asks for.
struct Follower<'a> {
    tracker: Ftp,
    keepers: HashMap<LinkType, PassKeeper>,
    filters: FilterSet,
    sink: Box<dyn Sink>,
    live: &'a Live,
    events: Vec<Event>,
    /// Whether time passes without frames.
    live_capture: bool,
    limit: u64,
    opened: u64,
    closed: u64,
    taken: u64,
}

impl Follower<'_> {
    /// Carries out what the events ask for; it is in force for the next frame.
    fn edit(&mut self, link: LinkType) -> Result<(), Failure> {
        if self.events.is_empty() {
            return Ok(());
        }
        let opened = self.events.iter().filter(|event| matches!(event, Event::Open(_))).count();
        self.opened += opened as u64;
        self.closed += (self.events.len() - opened) as u64;
        let keeper = self.keepers.entry(link).or_insert_with(|| PassKeeper::new(link));
        let events = &self.events;
        let applied = self.filters.edit_passes(link, |passes| keeper.apply(events, passes))?;
        self.events.clear();
        for failure in applied.failures {
            eprintln!("fyke: {failure}");
        }
        Ok(())
    }
}

impl Consumer for Follower<'_> {
    type Error = Failure;

    fn frame(&mut self, frame: &Frame<'_>, interface: &Interface) -> Result<Flow, Failure> {
        self.sink.write(interface, frame)?;
        self.taken += 1;
        self.tracker.frame(frame, &mut self.events);
        self.edit(frame.link)?;
        Ok(if self.taken >= self.limit { Flow::Stop } else { Flow::Continue })
    }

    fn between(&mut self, counts: &Accounting, source: &SourceStats) -> Result<Flow, Failure> {
        self.live.report(counts, source);
        if self.live_capture {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            self.tracker.expire(now_ns, &mut self.events);
            let links: Vec<_> = self.keepers.keys().copied().collect();
            for link in links {
                self.edit(link)?;
            }
        }
        Ok(Flow::Continue)
    }
}
