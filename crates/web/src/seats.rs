//! The connections of a server: a bounded number, of which those that have not shown the token are closed first.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Most connections at a time.
pub const MAX_CONNECTIONS: usize = 64;
/// Most streams of events at a time.
pub const MAX_STREAMS: usize = 16;

/// State of a connection; of two, the lower is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has not shown the token.
    Unknown,
    /// It has shown the token.
    Trusted,
    /// It carries a stream of events.
    Streams,
}

#[derive(Debug)]
struct Seat {
    standing: Standing,
    task: AbortHandle,
}

/// The open connections, by their numbers.
#[derive(Debug, Default)]
pub struct Seats {
    open: Mutex<BTreeMap<u64, Seat>>,
}

impl Seats {
    /// Adds a connection; if there are too many, ends one: the oldest of the lowest standing.
    pub fn add(&self, number: u64, task: AbortHandle) {
        let ended = {
            let mut open = self.lock();
            let first = open.iter().min_by_key(|(number, seat)| (seat.standing, **number));
            let first = first.map(|(number, _)| *number).filter(|_| open.len() >= MAX_CONNECTIONS);
            open.insert(number, Seat { standing: Standing::Unknown, task });
            first.and_then(|first| open.remove(&first))
        };
        if let Some(ended) = ended {
            ended.task.abort();
        }
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Records that a connection has shown the token.
    pub fn trust(&self, number: u64) {
        if let Some(seat) = self.lock().get_mut(&number) {
            seat.standing = seat.standing.max(Standing::Trusted);
        }
    }

    /// Records that a connection carries a stream; false if there are too many streams.
    pub fn stream(&self, number: u64) -> bool {
        let mut open = self.lock();
        let streams = open.values().filter(|seat| seat.standing == Standing::Streams).count();
        match open.get_mut(&number) {
            Some(seat) if streams < MAX_STREAMS => {
                seat.standing = Standing::Streams;
                true
            }
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Seat>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    /// Connections that never end by themselves.
    fn idle() -> JoinHandle<()> {
        tokio::spawn(std::future::pending())
    }

    #[test]
    fn strangers_are_closed_before_those_with_the_token() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let seats = Seats::default();
            let tasks: Vec<_> = (0..MAX_CONNECTIONS).map(|_| idle()).collect();
            for (number, task) in (0..).zip(&tasks) {
                seats.add(number, task.abort_handle());
            }
            (0..MAX_STREAMS as u64).for_each(|number| assert!(seats.stream(number)));
            assert!(!seats.stream(20), "one too many");
            seats.trust(20);
            // A thousand strangers more.
            for number in 100..1_100 {
                seats.add(number, idle().abort_handle());
            }
            // The runtime ends some tasks in each of its rounds.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            for (number, task) in tasks.iter().enumerate() {
                assert_eq!(task.is_finished(), number >= MAX_STREAMS && number != 20, "{number}");
            }
            assert_eq!(seats.lock().len(), MAX_CONNECTIONS);
            seats.remove(3);
            assert!(seats.stream(1_099), "a stream has ended");
        });
    }
}
