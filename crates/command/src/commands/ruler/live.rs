//! Control socket of a running `fyke ruler run`: shows its counts; refuses edits, with advice.
//!
//! The packet loop publishes its counts after every batch, under a lock that is held only while they are copied.

use super::super::{description, edits};
use super::Runner;
use fyke_capture::{Interface, SourceStats};
use fyke_control::{
    Controlled, Description, EntryKind, FilterCount, FilterPasses, Request, Response, Stats,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The counts of one run, shared between the packet loop and the control socket.
pub struct Live {
    description: Description,
    started: Instant,
    stats: Mutex<Stats>,
}

impl Live {
    /// Shares the counts of a run on these interfaces; `live` is true for network interfaces, false for a file.
    pub fn new(interfaces: &[Interface], live: bool) -> Arc<Live> {
        let description = description(interfaces, live);
        let stats = Mutex::new(Stats::default());
        Arc::new(Live { description, started: Instant::now(), stats })
    }

    /// Publishes the counts between two batches.
    pub(super) fn show(&self, runner: &Runner, source: &SourceStats) {
        let filter = |(number, counts): (usize, &BTreeMap<_, u64>)| {
            let passed =
                counts.iter().filter(|(verdict, _): &(&fyke_ruler::Verdict, _)| verdict.passes());
            FilterCount {
                id: number as u64 + 1,
                text: runner.ruler.program().filters[runner.roots[number]].name.clone(),
                kind: EntryKind::Filter,
                accepted: passed.map(|(_, count)| count).sum(),
                label: None,
            }
        };
        let filters = runner.counts.iter().enumerate().map(filter).collect();
        let accounting = runner.accounting(source);
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        (stats.filters, stats.accounting) = (filters, accounting);
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stats.uptime_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        stats
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        match request {
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                Response::Stats(self.stats())
            }
            Request::Show => {
                let entry = |FilterCount { id, text, kind, accepted, label }| FilterPasses {
                    id,
                    text,
                    kind,
                    accepted,
                    label,
                    passes: Vec::new(),
                };
                Response::Passes {
                    epoch: 0,
                    filters: self.stats().filters.into_iter().map(entry).collect(),
                    nodes: Vec::new(),
                    own_filter: None,
                    no_counts: None,
                    kernel: None,
                }
            }
            Request::Rules { .. } => {
                let message = "`fyke ruler run` has no pre-filter; `fyke dump` has one";
                Response::Error { message: message.to_owned() }
            }
            Request::Pause | Request::Start | Request::PauseReader { .. } => {
                Response::Error { message: edits::NO_PAUSE.to_owned() }
            }
            Request::Try { .. }
            | Request::Why { .. }
            | Request::Frames { .. }
            | Request::Save { .. } => Response::Error { message: edits::NO_FRAMES.to_owned() },
            _ => {
                let message = "the rules of `fyke ruler run` cannot change while it runs; those of a \
                               graph can: fyke run '(device, IF) > (ruler, FILE) > …', then \
                               `fyke ctl set`";
                Response::Error { message: message.to_owned() }
            }
        }
    }

    fn is_long(&self, _: &Request) -> bool {
        false
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
