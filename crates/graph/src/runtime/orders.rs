//! Orders of the engine to its workers, and the state that they have in common.

use super::nodes::{Counted, Fresh, Nodes};
use crate::node::Emitted;
use crate::plan::PlanNode;
use fyke_capture::{Account, Bell, Interface, Source, processor_time};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of attempts to publish the last counts, a millisecond apart.
const LAST_TRIES: usize = 100;
/// Longest time until a worker that waits for the others notices that one of them is gone.
const LOOK: Duration = Duration::from_millis(20);

/// Frames for a worker.
pub(super) struct Parcel {
    /// Index of the slot of their source.
    pub at: usize,
    pub source: u32,
    pub interfaces: Arc<[Interface]>,
    pub frames: Emitted,
    pub count: usize,
    /// True if the frames are lost, because the graph was paused when they were read.
    pub is_lost: bool,
}

/// An order to a worker.
pub(super) enum Order {
    Frames(Parcel),
    /// Publishes all counts, including those of filters, and answers with them.
    Show(Asked),
    /// Accounts of live interfaces; for the first worker.
    Account(Vec<(Interface, Account)>),
    Edit(Edit),
}

/// A question to a worker for all counts.
pub(super) struct Asked {
    /// Number of the worker.
    pub place: usize,
    pub done: SyncSender<Shown>,
}

/// All counts of a worker.
pub(super) struct Shown {
    /// Number of the worker.
    pub place: usize,
    /// `None` if an edit of filters is being committed.
    pub counted: Option<Counted>,
    /// Processor time that they took.
    pub took: Duration,
}

/// A new graph for a worker.
pub(super) struct Edit {
    pub plan: Vec<PlanNode>,
    pub fresh: Fresh,
    pub stays: HashMap<u64, u64>,
    pub rings: Vec<WorkerRing>,
    /// Point at which workers wait for each other, so that none evaluates a frame between two graphs.
    pub meeting: Arc<Meeting>,
    pub done: SyncSender<()>,
}

/// A point at which all workers wait for each other, unless one of them is gone.
pub(super) struct Meeting {
    workers: usize,
    /// Number of workers that have come, in all rounds.
    come: Mutex<usize>,
    all_there: Condvar,
}

impl Meeting {
    pub fn new(workers: usize) -> Meeting {
        Meeting { workers, come: Mutex::new(0), all_there: Condvar::new() }
    }

    /// Waits for the other workers, unless the graph is broken: then some will not come.
    pub fn wait(&self, signs: &Signs) {
        let mut come = lock(&self.come);
        *come += 1;
        let round_end = come.div_ceil(self.workers) * self.workers;
        self.all_there.notify_all();
        while *come < round_end && !signs.broken.load(Ordering::Relaxed) {
            let waited = self.all_there.wait_timeout(come, LOOK);
            come = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Edit {
    /// Rebuilds the nodes of a worker while no worker evaluates a frame. The first one does it first: it has the nodes
    /// that exist once, and changes what the others read.
    pub fn rebuild(self, place: usize, nodes: &mut Nodes, signs: &Signs) -> SyncSender<()> {
        self.meeting.wait(signs);
        if place > 0 {
            self.meeting.wait(signs);
        }
        nodes.rebuild(self.plan, self.fresh, &self.stays);
        if place == 0 {
            self.meeting.wait(signs);
        }
        self.done
    }
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

/// Answers with all counts of a worker, which `count` returns; `None` is an answer, too: it has none now.
///
/// The answer has the counts themselves: those that are published may be replaced by others, without counts of filters,
/// before all workers have answered.
pub(super) fn answer(asked: &Asked, count: impl FnOnce() -> Option<Counted>) {
    let began = processor_time();
    let counted = count();
    let took = processor_time().saturating_sub(began);
    // The receiver is gone if the engine has stopped waiting.
    let _ended = asked.done.send(Shown { place: asked.place, counted, took });
}

/// Publishes the counts of a worker, without those of filters.
pub(super) fn show(nodes: &Nodes, shown: &Mutex<Counted>) {
    if let Some(counted) = nodes.counted(false) {
        *lock(shown) = counted;
    }
}

/// Publishes all counts of a worker and returns them; `None` if an edit of filters is being committed.
pub(super) fn show_all(nodes: &Nodes, shown: &Mutex<Counted>) -> Option<Counted> {
    let counted = nodes.counted(true)?;
    lock(shown).clone_from(&counted);
    Some(counted)
}

/// Publishes the last counts of a worker, with those of filters unless an edit of them takes too long.
pub(super) fn show_last(nodes: &Nodes, shown: &Mutex<Counted>) {
    for _ in 0..LAST_TRIES {
        if show_all(nodes, shown).is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    show(nodes, shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that waits for its turn, or for a lock, does nothing meanwhile. If the wait counted, counts of a busy
    /// machine would be shown seldom.
    #[test]
    fn a_wait_of_a_worker_is_no_time_that_its_counts_take() {
        let (done, all_done) = std::sync::mpsc::sync_channel(1);
        let asked = Asked { place: 3, done };
        let pause = Duration::from_millis(100);
        answer(&asked, || {
            std::thread::sleep(pause);
            Some(Counted::default())
        });
        let shown = all_done.recv().unwrap();
        assert!(shown.took < pause / 2 && shown.place == 3);
        answer(&asked, || None);
        assert!(all_done.recv().unwrap().counted.is_none(), "there are none during a commit");
    }

    /// A worker that is gone does not come: the others continue, so that the run can end.
    #[test]
    fn a_meeting_ends_when_all_have_come_or_the_graph_is_broken() {
        let (signs, meeting) = (Signs::default(), Meeting::new(3));
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..50 {
                        meeting.wait(&signs);
                        assert!(rounds.fetch_add(1, Ordering::SeqCst) >= 3 * round);
                        meeting.wait(&signs);
                        assert!(rounds.load(Ordering::SeqCst) >= 3 * (round + 1));
                    }
                });
            }
        });
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| meeting.wait(&signs));
            assert!(!waits.is_finished());
            signs.broken.store(true, Ordering::Relaxed);
        });
    }
}
