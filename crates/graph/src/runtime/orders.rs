//! Orders of the engine to its workers, and the state that they have in common.

use super::nodes::{Counted, Fresh, Nodes};
use crate::node::Emitted;
use crate::plan::PlanNode;
use fyke_capture::{Account, Bell, Interface, Source, processor_time};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Frames for a worker.
pub(super) struct Parcel {
    /// Index of the slot of their source.
    pub at: usize,
    pub source: u32,
    pub interfaces: Arc<[Interface]>,
    pub frames: Emitted,
    pub count: usize,
}

/// An order to a worker.
pub(super) enum Order {
    Frames(Parcel),
    /// Publishes all counts, including those of filters; the answer is the processor time that this took.
    Show(SyncSender<Duration>),
    /// Accounts of live interfaces; for the first worker.
    Account(Vec<(Interface, Account)>),
    Edit(Edit),
}

/// A new graph for a worker.
pub(super) struct Edit {
    pub plan: Vec<PlanNode>,
    pub fresh: Fresh,
    pub stays: HashMap<u64, u64>,
    pub rings: Vec<WorkerRing>,
    /// Barrier at which workers with rings wait for each other, so that none evaluates a frame between two graphs.
    pub meeting: Arc<Barrier>,
    pub done: SyncSender<()>,
}

/// State that the engine and all workers have in common.
#[derive(Default)]
pub(super) struct Signs {
    /// While true, frames of sources are lost instead of being evaluated.
    pub paused: Arc<AtomicBool>,
    /// True if workers give up output that is not consumed.
    pub give_up: AtomicBool,
    /// True if a node has ended the graph.
    pub ended: AtomicBool,
    /// True if a worker has no branch left.
    pub broken: AtomicBool,
    /// Number of nodes that have failed.
    pub failures: AtomicUsize,
    /// Order of evaluations of the front, if it has nodes that exist once ([`Nodes::front_gate`]).
    pub front: Arc<Mutex<()>>,
    /// For each worker with rings, the earliest time of a frame that it may still pass on, in nanoseconds.
    pub clocks: Arc<[AtomicU64]>,
    /// Time of one of the last frames that a worker with rings has read, in nanoseconds.
    pub last: AtomicU64,
    /// For each worker with rings, what ends its wait for frames; `None` if the system refused it.
    pub bells: Vec<Option<Bell>>,
}

impl Signs {
    /// Ends the wait of a worker for frames.
    pub fn ring(&self, place: usize) {
        self.bells.get(place).iter().copied().flatten().for_each(Bell::ring);
    }
}

/// A new interface: the key of its node, its number, and a ring for each worker.
pub(super) struct NewRings {
    pub key: u64,
    pub number: u32,
    pub shares: Vec<Box<dyn Source>>,
}

/// A ring of a worker.
pub(super) struct WorkerRing {
    pub key: u64,
    pub number: u32,
    pub source: Box<dyn Source>,
    /// Index of the slot of its interface.
    pub at: usize,
    /// Earliest time of a frame that it may still return, in nanoseconds.
    pub clock: u64,
    pub ended: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publishes all counts of a worker by `show`, and answers with the processor time that this took.
pub(super) fn answer(done: &SyncSender<Duration>, show: impl FnOnce() -> bool) {
    let began = processor_time();
    if show() {
        // The receiver is gone if the engine has stopped waiting.
        let _ended = done.send(processor_time().saturating_sub(began));
    }
}

/// Publishes the counts of a worker; false if an edit of filters is being committed.
pub(super) fn show(nodes: &Nodes, shown: &Mutex<Counted>, filters: bool) -> bool {
    let counted = nodes.counted(filters);
    let is_shown = counted.is_some();
    if let Some(counted) = counted {
        *lock(shown) = counted;
    }
    is_shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that waits for its turn, or for a lock, does nothing meanwhile. If the wait counted, counts of a busy
    /// machine would be shown seldom.
    #[test]
    fn a_wait_of_a_worker_is_no_time_that_its_counts_take() {
        let (done, all_done) = std::sync::mpsc::sync_channel(1);
        let pause = Duration::from_millis(100);
        answer(&done, || {
            std::thread::sleep(pause);
            true
        });
        assert!(all_done.recv().unwrap() < pause / 2);
        answer(&done, || false);
        assert!(all_done.try_recv().is_err(), "counts that are not published are not answered");
    }
}
