//! A running fyke that can be looked at and edited: filters and counts behind the control socket.

use fyke_control::{Controlled, Description, FilterReport, PassReport, Request, Response, StatsReport};
use fyke_graph::{Accounting, FilterSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Filters and counts of one run, shared between the packet loop and the control socket.
#[derive(Debug)]
pub struct Live {
    filters: FilterSet,
    what: String,
    started: Instant,
    counts: Counts,
    lost: Mutex<Vec<(String, u64)>>,
}

#[derive(Debug, Default)]
struct Counts {
    seen: AtomicU64,
    delivered: AtomicU64,
    rejected: AtomicU64,
    late: AtomicU64,
}

impl Live {
    /// Shares `filters`; `what` says for people what this run does.
    pub fn new(filters: FilterSet, what: String) -> Arc<Live> {
        Arc::new(Live {
            filters,
            what,
            started: Instant::now(),
            counts: Counts::default(),
            lost: Mutex::default(),
        })
    }

    /// Takes over the counts of the packet loop.
    pub fn report(&self, accounting: &Accounting) {
        self.counts.seen.store(accounting.seen, Ordering::Relaxed);
        self.counts.delivered.store(accounting.delivered, Ordering::Relaxed);
        self.counts.rejected.store(accounting.rejected, Ordering::Relaxed);
        self.counts.late.store(accounting.late, Ordering::Relaxed);
    }

    /// Takes over what was lost before the filters saw it, by reason.
    pub fn report_lost(&self, lost: Vec<(String, u64)>) {
        if let Ok(mut current) = self.lost.lock() {
            *current = lost;
        }
    }
}
