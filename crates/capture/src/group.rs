//! The rings of one interface, one for each worker, and one source that represents all of them.
//!
//! A worker reads its [`RingShare`]: the kernel puts all frames of a conversation into one ring, in order
//! ([`RingSource::open_several`], at the driver [`XdpSource::open_several`]). The [`RingGroup`] returns no frames. It
//! has the counts of all rings, stops them, and ends or fails when all of them have ended. Counts are those that the
//! shares published last: a share publishes them whenever its worker reads them, and when it ends.
//!
//! An interface that is deleted and made again gets new rings (`renewal.rs`).
//! Cost: one atomic load per batch.

use crate::error::{LiveError, ReadError};
use crate::ring::{RingOptions, RingSource};
use crate::source::{Interface, Next, Notice, SocketFilter, Source, SourceStats};
use crate::sys::poll::{Bell, Edge};
use crate::xdp::{Queues, XdpSource};
use fyke_frame::Batch;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most notices that wait to be taken.
const NOTICES: usize = 64;

/// State that the group and its shares have in common.
#[derive(Debug)]
struct Board {
    stopping: AtomicBool,
    /// Number of rings that have not ended.
    left: AtomicUsize,
    stats: Mutex<Vec<SourceStats>>,
    events: Mutex<Events>,
    /// Rings for a notice, a failure and an end.
    changed: Bell,
}

#[derive(Debug, Default)]
struct Events {
    notices: VecDeque<Notice>,
    failed: Option<ReadError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All rings of an interface as one source without frames of its own.
#[derive(Debug)]
pub struct RingGroup {
    interfaces: Vec<Interface>,
    board: Arc<Board>,
    /// Ends a wait when a share or the caller's bell rings.
    edge: Edge,
    patience: Duration,
    /// At the driver: the counts that no ring has.
    queues: Option<Arc<Queues>>,
}

/// The ring of one worker.
pub struct RingShare {
    // Dropped before the place: its counts are final then.
    ring: Box<dyn Source>,
    place: Place,
    stopped: bool,
}

/// The place of a share on the board.
struct Place {
    number: usize,
    board: Arc<Board>,
    failed: Option<ReadError>,
}

impl RingGroup {
    /// Starts a capture with `rings` rings (2 to 256) of the size in `options`; each share belongs to a worker.
    ///
    /// # Errors
    /// As [`RingSource::open_several`].
    pub fn open(
        options: &RingOptions,
        rings: usize,
    ) -> Result<(RingGroup, Vec<RingShare>), ReadError> {
        let rings = RingSource::open_several(options, rings)?;
        let rings = rings.into_iter().map(|ring| Box::new(ring) as Box<dyn Source>).collect();
        RingGroup::of(rings, Duration::from_millis(options.timeout_ms.into()), None)
    }

    /// The rings of a capture at the driver, in the order of its workers ([`XdpSource::open_several`]).
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub fn at_driver(sources: Vec<XdpSource>) -> Result<(RingGroup, Vec<RingShare>), ReadError> {
        let queues = sources.first().map(XdpSource::common);
        let rings = sources.into_iter().map(|one| Box::new(one) as Box<dyn Source>).collect();
        RingGroup::of(rings, Duration::from_millis(20), queues)
    }

    fn of(
        rings: Vec<Box<dyn Source>>,
        patience: Duration,
        queues: Option<Arc<Queues>>,
    ) -> Result<(RingGroup, Vec<RingShare>), ReadError> {
        let interfaces = rings.first().map(|ring| ring.interfaces().to_vec()).unwrap_or_default();
        let failed = |call| {
            let interface = interfaces.first().map(|one| one.name.clone()).unwrap_or_default();
            move |source| LiveError::Call { interface, call, source }
        };
        let changed = Bell::new().map_err(failed("eventfd"))?;
        let edge = Edge::new().map_err(failed("epoll"))?;
        edge.listen(&changed).map_err(failed("epoll"))?;
        let board = Arc::new(Board {
            stopping: AtomicBool::new(false),
            left: AtomicUsize::new(rings.len()),
            stats: Mutex::new(vec![SourceStats::default(); rings.len()]),
            events: Mutex::default(),
            changed,
        });
        let share = |(number, ring)| {
            let place = Place { number, board: Arc::clone(&board), failed: None };
            RingShare { ring, place, stopped: false }
        };
        let shares = rings.into_iter().enumerate().map(share).collect();
        Ok((RingGroup { interfaces, board, edge, patience, queues }, shares))
    }
}

impl Source for RingGroup {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Waits for an event of the rings, and returns [`Next::End`] after all of them have ended.
    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let left = || self.board.left.load(Ordering::Acquire);
        // A ring of a bell after this look ends the wait.
        if lock(&self.board.events).notices.is_empty() && left() > 0 {
            let patience_ms = self.patience.as_millis().min(1_000) as u16;
            let interface = || self.interfaces.first().map(|one| one.name.clone());
            let failed = |source| LiveError::Call {
                interface: interface().unwrap_or_default(),
                call: "epoll_wait",
                source,
            };
            self.edge.wait(patience_ms).map_err(failed)?;
        }
        if left() > 0 {
            return Ok(Next::Idle);
        }
        lock(&self.board.events).failed.take().map_or(Ok(Next::End), Err)
    }

    fn stats(&mut self) -> SourceStats {
        // Before the counts: those of a share are published first.
        let is_final = self.board.left.load(Ordering::Acquire) == 0;
        let all = lock(&self.board.stats);
        let sum = all.iter().fold(SourceStats::default(), |sum, one| sum.plus(one));
        self.queues.as_ref().map_or(sum, |queues| queues.complete(sum, is_final))
    }

    fn stats_by_ring(&self) -> Vec<SourceStats> {
        lock(&self.board.stats).clone()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.edge.fd())
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn listen(&mut self, bell: &Bell) -> bool {
        self.edge.listen(bell).is_ok()
    }

    fn stop(&mut self) -> bool {
        self.board.stopping.store(true, Ordering::Release);
        true
    }

    fn take_notice(&mut self) -> Option<Notice> {
        lock(&self.board.events).notices.pop_front()
    }
}

impl Source for RingShare {
    fn interfaces(&self) -> &[Interface] {
        self.ring.interfaces()
    }

    /// Returns [`Next::End`] after a failure, too: the group reports it once the share is dropped.
    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if !self.stopped && self.place.board.stopping.load(Ordering::Acquire) {
            self.stop();
        }
        while let Some(notice) = self.ring.take_notice() {
            // Every ring has the same ones.
            let mut events = lock(&self.place.board.events);
            if self.place.number == 0 && events.notices.len() < NOTICES {
                events.notices.push_back(notice);
                self.place.board.changed.ring();
            }
        }
        self.ring.next().or_else(|error| {
            self.place.failed = Some(error);
            Ok(Next::End)
        })
    }

    fn take_back(&mut self, batch: Batch<'static>) {
        self.ring.take_back(batch);
    }

    /// The counts of this ring. Those of a filter, which all rings have in common, are counted for the first one.
    fn stats(&mut self) -> SourceStats {
        let mut stats = self.ring.stats();
        if self.place.number > 0 {
            (stats.filtered, stats.later) = (0, Default::default());
        }
        lock(&self.place.board.stats)[self.place.number] = stats;
        stats
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.ring.readiness()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.ring.set_patience(patience);
    }

    fn listen(&mut self, bell: &Bell) -> bool {
        self.ring.listen(bell)
    }

    fn stop(&mut self) -> bool {
        self.stopped = true;
        self.ring.stop()
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        self.ring.set_filter(filter)
    }
}

/// The worker has read all frames, or gives them up.
impl Drop for RingShare {
    fn drop(&mut self) {
        self.stats();
    }
}

/// The ring is closed: its counts are final.
impl Drop for Place {
    fn drop(&mut self) {
        let mut events = lock(&self.board.events);
        if let Some(error) = self.failed.take() {
            events.failed.get_or_insert(error);
            // The frames in the other rings are still read.
            self.board.stopping.store(true, Ordering::Release);
        }
        self.board.left.fetch_sub(1, Ordering::AcqRel);
        self.board.changed.ring();
    }
}
