//! Descriptors by which a thread waits for frames, or a program's own `poll` does.
//!
//! There is one descriptor for all: it is readable when the service wakes this process, when frames are left, and when
//! the connection ends. The thread that waits also returns after `pcap_breakloop`.

use crate::fork;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait without a look.
const LONGEST: Duration = Duration::from_secs(1);
/// The same after a fork: a child that reads may take the message of the service that was for this process.
const LONGEST_SHARED: Duration = Duration::from_millis(50);

/// The descriptors.
#[derive(Debug)]
pub struct Wakes {
    /// All of the others.
    all: OwnedFd,
    /// Readable after `pcap_breakloop`.
    broken: Arc<OwnedFd>,
    /// Readable while frames are left.
    ready: OwnedFd,
    /// True if it is readable.
    is_ready: AtomicBool,
    count: u64,
}

impl Wakes {
    /// Descriptors of our own only.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Wakes> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let broken = Arc::new(eventfd(0, flags)?);
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ready = eventfd(0, flags)?;
        let is_ready = AtomicBool::new(false);
        let mut wakes = Wakes { all, broken, ready, is_ready, count: 0 };
        wakes.add_own()?;
        Ok(wakes)
    }

    fn add_own(&mut self) -> io::Result<()> {
        for own in [self.broken.as_fd(), self.ready.as_fd()] {
            epoll::add(
                &self.all,
                own,
                epoll::EventData::new_u64(self.count),
                epoll::EventFlags::IN,
            )?;
            self.count += 1;
        }
        Ok(())
    }

    /// Adds a descriptor, which must stay open as long as this set.
    ///
    /// # Errors
    /// The system refuses.
    pub fn add(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.count);
        self.count += 1;
        Ok(epoll::add(&self.all, other, data, epoll::EventFlags::IN)?)
    }

    /// The descriptor for the program's own `poll`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// The number of the descriptor that `pcap_breakloop` writes to.
    pub fn breaker(&self) -> RawFd {
        self.broken.as_raw_fd()
    }

    /// Keeps that descriptor open for good: a thread may be about to write to it.
    pub fn keep_breaker(&self) {
        std::mem::forget(Arc::clone(&self.broken));
    }

    /// Makes the descriptor readable, or not. For one thread at a time.
    pub fn set_ready(&self, is_ready: bool) {
        if self.is_ready.swap(is_ready, Ordering::Relaxed) == is_ready {
            return;
        }
        match is_ready {
            true => drop(rustix::io::write(&self.ready, &1_u64.to_ne_bytes())),
            false => clear(self.ready.as_fd()),
        }
    }

    /// Forgets a `pcap_breakloop`.
    pub fn clear_break(&self) {
        clear(self.broken.as_fd());
    }

    /// Waits until there may be frames. Returns after signals, and after a time, too.
    pub fn wait(&self, patience: Option<Duration>) {
        let longest = if fork::is_shared() { LONGEST_SHARED } else { LONGEST };
        let patience = patience.map_or(longest, |patience| patience.min(longest));
        // In a child, the descriptor of `pcap_breakloop` is not among the others.
        let (all, broken) = (&self.all, &*self.broken);
        wait_for(
            &mut [PollFd::new(all, PollFlags::IN), PollFd::new(broken, PollFlags::IN)],
            patience,
        );
    }

    /// Waits for `pcap_breakloop` only.
    pub fn rest(&self, patience: Duration) {
        wait_for(&mut [PollFd::new(&*self.broken, PollFlags::IN)], patience);
    }
}

fn clear(event: BorrowedFd<'_>) {
    let _nothing_there = rustix::io::read(event, &mut [0_u8; 8]);
}

fn wait_for(descriptors: &mut [PollFd<'_>], patience: Duration) {
    let limit = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    let _interrupted = poll(descriptors, Some(&limit));
}
