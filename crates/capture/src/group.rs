//! The rings of one interface, one for each worker, and one source that represents all of them.
//!
//! A worker reads its [`RingShare`]: the kernel puts all frames of a conversation into one ring, in order
//! ([`RingSource::open_several`]). The [`RingGroup`] returns no frames. It has the counts of all rings, stops them, and
//! ends or fails when all of them have ended. Counts are those that the shares published last: a share publishes them
//! whenever its worker reads them, and when it ends.
//!
//! An interface that is deleted and made again gets new rings (`renewal.rs`).
//! Cost: one atomic load per batch.

use crate::error::ReadError;
use crate::ring::{RingOptions, RingSource};
use crate::source::{Interface, Next, Notice, SocketFilter, Source, SourceStats};
use crate::sys::poll::Bell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most notices that wait to be taken.
const NOTICES: usize = 64;

/// State that the group and its shares have in common.
#[derive(Debug, Default)]
struct Board {
    stopping: AtomicBool,
    /// Number of rings that have not ended.
    left: AtomicUsize,
    stats: Mutex<Vec<SourceStats>>,
    events: Mutex<Events>,
    /// Signals a notice, a failure or an end.
    changed: Condvar,
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
    patience: Duration,
}

/// The ring of one worker.
pub struct RingShare {
    ring: RingSource,
    number: usize,
    board: Arc<Board>,
    stopped: bool,
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
        let interfaces = rings.first().map(|ring| ring.interfaces().to_vec()).unwrap_or_default();
        let board = Arc::new(Board {
            left: AtomicUsize::new(rings.len()),
            stats: Mutex::new(vec![SourceStats::default(); rings.len()]),
            ..Board::default()
        });
        let share = |(number, ring)| {
            let board = Arc::clone(&board);
            RingShare { ring, number, board, stopped: false, failed: None }
        };
        let shares = rings.into_iter().enumerate().map(share).collect();
        let patience = Duration::from_millis(options.timeout_ms.into());
        Ok((RingGroup { interfaces, board, patience }, shares))
    }
}

impl Source for RingGroup {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Waits for an event of the rings, and returns [`Next::End`] after all of them have ended.
    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let left = || self.board.left.load(Ordering::Acquire);
        let events = lock(&self.board.events);
        let waits = |events: &mut Events| events.notices.is_empty() && left() > 0;
        let waited = self.board.changed.wait_timeout_while(events, self.patience, waits);
        let mut events = waited.unwrap_or_else(PoisonError::into_inner).0;
        match (left(), events.failed.take()) {
            (0, Some(error)) => Err(error),
            (0, None) => Ok(Next::End),
            (_, failed) => {
                events.failed = failed;
                Ok(Next::Idle)
            }
        }
    }

    fn stats(&mut self) -> SourceStats {
        lock(&self.board.stats).iter().fold(SourceStats::default(), |sum, one| sum.plus(one))
    }

    fn stats_by_ring(&self) -> Vec<SourceStats> {
        lock(&self.board.stats).clone()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
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
        if !self.stopped && self.board.stopping.load(Ordering::Acquire) {
            self.stop();
        }
        while let Some(notice) = self.ring.take_notice() {
            // Every ring has the same ones.
            let mut events = lock(&self.board.events);
            if self.number == 0 && events.notices.len() < NOTICES {
                events.notices.push_back(notice);
                self.board.changed.notify_all();
            }
        }
        self.ring.next().or_else(|error| {
            self.failed = Some(error);
            Ok(Next::End)
        })
    }

    /// The counts of this ring. Those of a filter, which all rings have in common, are counted for the first one.
    fn stats(&mut self) -> SourceStats {
        let mut stats = self.ring.stats();
        if self.number > 0 {
            stats.filtered = 0;
        }
        lock(&self.board.stats)[self.number] = stats;
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

/// The worker has read all frames, or gives them up: the counts of the ring are final.
impl Drop for RingShare {
    fn drop(&mut self) {
        self.stats();
        let mut events = lock(&self.board.events);
        if let Some(error) = self.failed.take() {
            events.failed.get_or_insert(error);
            // The frames in the other rings are still read.
            self.board.stopping.store(true, Ordering::Release);
        }
        self.board.left.fetch_sub(1, Ordering::AcqRel);
        self.board.changed.notify_all();
    }
}
