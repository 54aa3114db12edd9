//! A running fyke that can be looked at and edited: filters and counts behind the control socket.

use fyke_capture::{Interface, SourceStats};
use fyke_control::{
    Controlled, Description, FilterCount, FilterPasses, PassCount, Request, Response, Stats,
};
use fyke_graph::{Accounting, FilterSet};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Filters and counts of one run, shared between the packet loop and the control socket.
#[derive(Debug)]
pub struct Live {
    filters: FilterSet,
    description: Description,
    started: Instant,
    counts: Mutex<(Accounting, SourceStats)>,
}

impl Live {
    /// Shares the filters of a run over these interfaces.
    pub fn new(filters: FilterSet, interfaces: &[Interface]) -> Arc<Live> {
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let link = interfaces.first().map_or_else(String::new, |first| first.link.to_string());
        Arc::new(Live {
            filters,
            description: Description::of_this_process(names.join(", "), link),
            started: Instant::now(),
            counts: Mutex::default(),
        })
    }

    /// Takes over the counts of the packet loop and its source.
    pub fn report(&self, accounting: &Accounting, source: &SourceStats) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = (*accounting, *source);
    }

    /// The counts for people; with `filters`, hits per filter too.
    pub fn summary(&self, filters: bool) -> String {
        let mut text = String::new();
        let stats = self.stats();
        let late = self.counts.lock().unwrap_or_else(PoisonError::into_inner).0.late;
        let late = if late == 0 { String::new() } else { format!(" ({late} by look-back)") };
        let lost: Vec<_> = stats
            .accounting
            .lost
            .iter()
            .map(|(why, count)| format!("{count} lost ({why})"))
            .collect();
        let _infallible = writeln!(
            text,
            "{} seen = {} accepted{late} + {} rejected + {}; {} edits",
            stats.accounting.seen,
            stats.accounting.delivered,
            stats.accounting.rejected,
            if lost.is_empty() { "0 lost".to_owned() } else { lost.join(" + ") },
            stats.epoch.saturating_sub(1),
        );
        let orphans = self.filters.orphans();
        if orphans > 0 {
            let _infallible =
                writeln!(text, "  {orphans} fragments without their first: not judged by ports");
        }
        for filter in stats.filters.iter().filter(|_| filters) {
            let _infallible =
                writeln!(text, "  filter {}: {} {}", filter.id, filter.accepted, filter.text);
        }
        text
    }

    fn stats(&self) -> Stats {
        let (counts, source) = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = BTreeMap::new();
        if source.dropped > 0 {
            lost.insert("capture ring full".to_owned(), source.dropped);
        }
        Stats {
            epoch: self.filters.epoch(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            accounting: fyke_control::Accounting {
                seen: counts.seen + source.dropped,
                delivered: counts.delivered,
                rejected: counts.rejected,
                lost,
            },
            filters: self
                .filters
                .view()
                .into_iter()
                .map(|filter| FilterCount {
                    id: filter.id,
                    text: filter.text,
                    accepted: filter.accepted,
                })
                .collect(),
        }
    }

    fn passes(&self) -> Response {
        let filters = self.filters.view().into_iter().map(|filter| FilterPasses {
            id: filter.id,
            text: filter.text,
            accepted: filter.accepted,
            passes: filter
                .passes
                .into_iter()
                .map(|pass| PassCount { id: pass.id, text: pass.text, accepted: pass.accepted })
                .collect(),
        });
        Response::Passes { epoch: self.filters.epoch(), filters: filters.collect() }
    }
}

impl Controlled for Live {
    fn handle(&self, request: Request) -> Response {
        let started = Instant::now();
        let edited = match request {
            Request::Set { text } => self.filters.set(&text).map(|id| id.into_iter().collect()),
            Request::Add { text } => self.filters.add(&text).map(|id| vec![id]),
            Request::Delete { id } => self.filters.remove(id).map(|()| Vec::new()),
            Request::Show => return self.passes(),
            Request::Stats | Request::Describe | Request::Watch { .. } => {
                return Response::Stats(self.stats());
            }
        };
        let latency_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match edited {
            Ok(ids) => Response::Ok { epoch: self.filters.epoch(), ids, latency_ns },
            Err(error) => Response::Error { message: error.to_string() },
        }
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}
