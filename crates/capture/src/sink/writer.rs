//! A thread that writes the blocks of an [`Output`](super::Output) to a regular file, so that the packet loop waits
//! neither for the copy into the page cache nor for compression.
//!
//! Blocks are written in order, [`QUEUED`] wait at most, and each ends with a complete record. After an error nothing
//! more is written, and the counts are those of a direct write: `written` is the number of bytes in the file.

use super::channel::Channel;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most blocks that wait.
const QUEUED: usize = 4;
/// Longest wait in one system call.
const SLICE: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// A block waits, or there will be no more.
    work: Condvar,
    /// A block has been written, or writing has failed.
    done: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Empty buffers.
    pool: Vec<Vec<u8>>,
    is_busy: bool,
    written: u64,
    error: Option<io::Error>,
    has_failed: bool,
    is_over: bool,
}

impl Writer {
    /// Starts the thread for a channel to which `written` bytes have been written.
    pub(super) fn start(channel: Arc<dyn Channel>, written: u64) -> io::Result<Writer> {
        let state = Mutex::new(State { written, ..State::default() });
        let shared = Arc::new(Shared { state, work: Condvar::new(), done: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let run = move || of_thread.run(&*channel);
        let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(run)?;
        Ok(Writer { shared, thread: Some(thread) })
    }

    /// Queues the bytes, which become empty. Waits while the queue is full.
    pub(super) fn push(&self, bytes: &mut Vec<u8>) {
        let mut state = self.shared.lock();
        while state.queue.len() >= QUEUED && !state.has_failed {
            state = wait(self.shared.done.wait(state));
        }
        let next = state.pool.pop().unwrap_or_default();
        state.queue.push_back(std::mem::replace(bytes, next));
        drop(state);
        self.shared.work.notify_one();
    }

    /// Waits until everything is written or writing has failed.
    pub(super) fn wait(&self) {
        let mut state = self.shared.lock();
        while (state.is_busy || !state.queue.is_empty()) && !state.has_failed {
            state = wait(self.shared.done.wait(state));
        }
    }

    /// Number of bytes that have been written, and the error after them, once.
    pub(super) fn progress(&self) -> (u64, Option<io::Error>) {
        let mut state = self.shared.lock();
        (state.written, state.error.take())
    }
}

impl Drop for Writer {
    /// Waits for the thread, so that the file is closed and its lock free.
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; if it did, the error of the next write would say so.
            let _ = thread.join();
        }
    }
}

type Waited<'s> = Result<MutexGuard<'s, State>, PoisonError<MutexGuard<'s, State>>>;

fn wait(result: Waited<'_>) -> MutexGuard<'_, State> {
    result.unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, channel: &dyn Channel) {
        let mut state = self.lock();
        loop {
            let Some(mut bytes) = state.queue.pop_front() else {
                if state.is_over {
                    return;
                }
                state = wait(self.work.wait(state));
                continue;
            };
            if state.has_failed {
                continue;
            }
            state.is_busy = true;
            drop(state);
            let error = self.write(channel, &bytes).err();
            bytes.clear();
            state = self.lock();
            state.is_busy = false;
            state.has_failed = error.is_some();
            state.error = error;
            if state.pool.len() < QUEUED {
                state.pool.push(bytes);
            }
            self.done.notify_one();
        }
    }

    fn write(&self, channel: &dyn Channel, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match channel.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.lock().written += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => channel.wait(SLICE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
