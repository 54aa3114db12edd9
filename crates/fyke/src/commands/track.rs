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
use fyke_track::{Event, Ftp, Keeper, Tracker};

/// Runs the command.
pub fn run(args: TrackArgs) -> Result<(), Failure> {
    let live_capture = args.source.read.is_none();
    let mut source = open(&args.source, live_capture)?;
    let link = source.interfaces().first().map_or(LinkType::EN10MB, |interface| interface.link);
    let options = Options { link, snaplen: snaplen(args.source.snaplen), ..Options::default() };
    let filters = FilterSet::new(options);
    let tracker = Ftp::default();
    filters.set(tracker.start_filter()).map_err(wrong_filter)?;
    let live = Live::new(filters.clone(), source.interfaces());
    let _server = serve(&live, live_capture);
    let stop = stop_on_signals()?;
    let options = WriteOptions { snaplen: snaplen(args.source.snaplen), ..WriteOptions::default() };
    let mut follower = Follower {
        tracker,
        keeper: Keeper::default(),
        filters: filters.clone(),
        sink: Some(fyke_capture::create_file(&args.write, options)?),
        live: &live,
        events: Vec::new(),
        limit: args.count_limit.unwrap_or(u64::MAX),
        opened: 0,
        closed: 0,
        taken: 0,
    };
    let mut pipeline = Pipeline::new(filters.reader(), live_capture);
    let result = pipeline.run(source.as_mut(), &mut follower, &stop);
    live.report(&pipeline.accounting(), &source.stats());
    let finished = follower.sink.take().map(Sink::finish).transpose();
    eprintln!("{} data connections announced, {} closed", follower.opened, follower.closed);
    eprint!("{}", live.summary(false));
    match result {
        Ok(()) => finished.map(drop).map_err(Failure::from),
        Err(RunError::Consumer(failure)) => Err(failure),
        Err(RunError::Filter(error)) => Err(wrong_filter(error)),
        Err(RunError::Read(error)) => Err(error.into()),
    }
}
