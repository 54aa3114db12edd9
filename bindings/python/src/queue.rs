//! Batches on their way from the thread of a graph to Python: a bounded queue, and the result of the run.
//!
//! Locks are held for a few instructions; no thread waits for the interpreter while it holds one.

use crate::errors::Failure;
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most batches that wait for Python.
const CAPACITY: usize = 3;

/// The queue, shared by the class `arrow`, the thread of the graph, and Python.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends the graph.
    pub stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<RecordBatch>,
    /// Frames of batches that were discarded when Python closed the capture.
    discarded: u64,
    closed: bool,
    ended: bool,
    /// Reason for the end, until one call has reported it.
    failure: Option<Failure>,
}

/// Result of a wait for a batch.
#[derive(Debug)]
pub enum Taken {
    /// The next batch.
    Batch(RecordBatch),
    /// None came in time.
    None,
    /// None will come.
    End,
    /// The run has failed; reported once.
    Failed(Failure),
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is changed in steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a batch. Returns false if Python has closed the capture.
    pub fn push(&self, batch: RecordBatch) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        state.ready.push_back(batch);
        self.changed.notify_all();
        true
    }

    /// Waits until there is room for a batch; at most `patience`.
    pub fn has_room(&self, patience: Duration) -> bool {
        self.wait(patience, |state| state.ready.len() < CAPACITY || state.closed)
    }

    /// Waits until Python has taken all batches; at most `patience`.
    pub fn is_empty(&self, patience: Duration) -> bool {
        self.wait(patience, |state| state.ready.is_empty() || state.closed)
    }

    fn wait(&self, patience: Duration, done: impl Fn(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), patience, |state| !done(state));
        let (state, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        done(&state)
    }

    /// Waits for a batch; at most `patience`.
    pub fn take(&self, patience: Duration) -> Taken {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.ready.pop_front() {
                self.changed.notify_all();
                return Taken::Batch(batch);
            }
            if let Some(failure) = state.failure.take() {
                return Taken::Failed(failure);
            }
            if state.ended || state.closed {
                return Taken::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Taken::None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the graph from Python: batches that wait are discarded.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        state.closed = true;
        let discarded: usize = state.ready.drain(..).map(|batch| batch.num_rows()).sum();
        state.discarded += discarded as u64;
        self.changed.notify_all();
    }

    /// Ends the graph from Python; batches that it still gives are delivered.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Frames that were discarded by [`close`](Self::close).
    pub fn discarded(&self) -> u64 {
        self.lock().discarded
    }

    /// The thread of the graph ends.
    pub fn end(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        state.ended = true;
        state.failure = failure;
        self.changed.notify_all();
    }

    /// Waits for the end of the graph's thread; at most `patience`.
    pub fn has_ended(&self, patience: Duration) -> bool {
        self.wait(patience, |state| state.ended)
    }
}
