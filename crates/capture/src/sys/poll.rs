//! Waits for descriptors, with a time-out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Waits until `fd` is readable (or the other end is gone, or the descriptor reports an error). False after the
/// time-out and after a signal.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout_ms: u16) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `entry` is one valid pollfd, and the count is one.
    let ready = unsafe { libc::poll(&raw mut entry, 1, i32::from(timeout_ms)) };
    woken(ready)
}

/// Waits until `fd` is writable (or the other end is gone). False after the time-out and after a signal.
pub(crate) fn writable(fd: BorrowedFd<'_>, timeout_ms: u16) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `entry` is one valid pollfd, and the count is one.
    let ready = unsafe { libc::poll(&raw mut entry, 1, i32::from(timeout_ms)) };
    woken(ready)
}

/// Waits until one of several descriptors is readable. False after the time-out and after a signal.
pub(crate) fn any_readable(fds: &[BorrowedFd<'_>], timeout_ms: u16) -> io::Result<bool> {
    let entry =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    let count = entries.len() as libc::nfds_t;
    // SAFETY: `entries` has `count` valid pollfds.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), count, i32::from(timeout_ms)) };
    woken(ready)
}

/// Waits for *changes* of one descriptor.
///
/// A packet ring counts as readable until its last block is released, which takes long if blocks are held. So this
/// waits for the edge: the wake-up that comes with every filled block.
pub(crate) struct Edge(OwnedFd);

impl Edge {
    /// Starts to watch `fd`, which must stay open as long as the watch.
    pub(crate) fn watch(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let edge = Edge::new()?;
        edge.add(fd)?;
        Ok(edge)
    }

    fn new() -> io::Result<Edge> {
        // SAFETY: no memory is passed.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor, and nothing else owns it.
        Ok(Edge(unsafe { OwnedFd::from_raw_fd(epoll) }))
    }

    /// Watches another descriptor, too, which must stay open as long as the watch.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events, u64: 0 };
        let (epoll_fd, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: `event` is a valid epoll_event, which the call only reads.
        let added = unsafe { libc::epoll_ctl(epoll_fd, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if added < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Descriptor that is readable after a change since the last wait.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for a change since the last wait, the time-out or a signal. True if the descriptor reports an error.
    pub(crate) fn wait(&self, timeout_ms: u16) -> io::Result<bool> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` has space for one event, and the count is one.
        let ready = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, i32::from(timeout_ms))
        };
        let events = event.events;
        Ok(woken(ready)? && events & libc::EPOLLERR as u32 != 0)
    }
}

fn woken(ready: libc::c_int) -> io::Result<bool> {
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}
