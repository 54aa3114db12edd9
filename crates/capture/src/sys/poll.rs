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

/// Change of a descriptor that ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Bytes, or a connection.
    Read,
    /// Space.
    Write,
}

/// Waits until one of several descriptors is ready. False after the time-out and after a signal.
pub(crate) fn any(fds: &[(BorrowedFd<'_>, Interest)], timeout_ms: u16) -> io::Result<bool> {
    let entry = |(fd, interest): &(BorrowedFd<'_>, Interest)| {
        let events = if *interest == Interest::Read { libc::POLLIN } else { libc::POLLOUT };
        libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
    };
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
#[derive(Debug)]
pub(crate) struct Edge(OwnedFd);

impl Edge {
    /// Starts to watch `fd`, which must stay open as long as the watch.
    pub(crate) fn watch(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let edge = Edge::new()?;
        edge.add(fd)?;
        Ok(edge)
    }

    /// A watch of nothing yet.
    pub(crate) fn new() -> io::Result<Edge> {
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
        self.add_as(fd, CHANGE)
    }

    /// Has waits end when the bell rings, too. The watch ends with the bell.
    pub(crate) fn listen(&self, bell: &Bell) -> io::Result<()> {
        match self.add_as(bell.0.as_fd(), CALL) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            added => added,
        }
    }

    fn add_as(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, EDGE, number)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        events: libc::c_int,
        number: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: number };
        let (epoll_fd, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: `event` is a valid epoll_event, which the call only reads.
        let done = unsafe { libc::epoll_ctl(epoll_fd, operation, fd, &raw mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for `timeout_ms`, whatever becomes readable on the watched `fd`: only a bell, a signal or an error of the
    /// descriptor ends it early. The next wait ends at once if `fd` is readable then.
    pub(crate) fn rest(&self, fd: BorrowedFd<'_>, timeout_ms: u16) -> io::Result<Woken> {
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLET, CHANGE)?;
        let woken = self.wait(timeout_ms);
        self.control(libc::EPOLL_CTL_MOD, fd, EDGE, CHANGE)?;
        woken
    }

    /// Descriptor that is readable after a change since the last wait.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for a change or a ring of a bell since the last wait, the time-out or a signal.
    pub(crate) fn wait(&self, timeout_ms: u16) -> io::Result<Woken> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` has space for one event, and the count is one.
        let ready = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, i32::from(timeout_ms))
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let is_signal = error.kind() == io::ErrorKind::Interrupted;
            return if is_signal {
                Ok(Woken { is_called: true, has_error: false })
            } else {
                Err(error)
            };
        }
        let (events, number) = (event.events, event.u64);
        Ok(Woken {
            is_called: ready > 0 && number == CALL,
            has_error: ready > 0 && events & libc::EPOLLERR as u32 != 0,
        })
    }
}

/// End of a wait for an [`Edge`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Woken {
    /// True after a bell and after a signal: the caller may have other work.
    pub(crate) is_called: bool,
    /// True if the descriptor reports an error.
    pub(crate) has_error: bool,
}

/// Changes that end a wait.
const EDGE: libc::c_int = libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLET;

/// Numbers of an edge's events: a change of a watched descriptor, and a bell.
const CHANGE: u64 = 0;
const CALL: u64 = 1;

/// Ends the waits of sources early, from any thread ([`Source::listen`](crate::Source::listen)). A ring before a wait
/// ends that wait, too. Cost: a system call.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Makes a bell.
    ///
    /// # Errors
    /// The system refuses another descriptor.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor, and nothing else owns it.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Rings.
    pub fn ring(&self) {
        let one = 1_u64;
        // The sum does not overflow in the life of a process, and the watches wait for its changes.
        // SAFETY: eight bytes of a valid number are read.
        let _written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

fn woken(ready: libc::c_int) -> io::Result<bool> {
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A wait of a minute, which the test's own time-out would end.
    const LONG_MS: u16 = 60_000;

    #[test]
    fn a_bell_ends_the_next_wait_once_and_none_is_missed() {
        let (watched, _other) = UnixStream::pair().unwrap();
        let edge = Edge::watch(watched.as_fd()).unwrap();
        let bell = Bell::new().unwrap();
        edge.listen(&bell).unwrap();
        edge.listen(&bell).expect("it listens already");
        assert!(!edge.wait(0).unwrap().is_called, "nothing has rung");
        for _ in 0..3 {
            bell.ring();
            bell.ring();
            assert!(edge.wait(LONG_MS).unwrap().is_called, "before the wait");
            assert!(!edge.wait(0).unwrap().is_called, "the rings before a wait end one");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert!(edge.wait(LONG_MS).unwrap().is_called, "during the wait");
        });
    }

    #[test]
    fn a_rest_ends_with_a_bell_only_and_hides_no_change() {
        use std::io::Write;
        let (watched, mut other) = UnixStream::pair().unwrap();
        let edge = Edge::watch(watched.as_fd()).unwrap();
        let bell = Bell::new().unwrap();
        edge.listen(&bell).unwrap();
        other.write_all(b"x").unwrap();
        let begun = std::time::Instant::now();
        let rested = edge.rest(watched.as_fd(), 30).unwrap();
        assert!(!rested.is_called && !rested.has_error);
        assert!(begun.elapsed().as_millis() >= 30, "the byte does not end it");
        bell.ring();
        assert!(edge.rest(watched.as_fd(), LONG_MS).unwrap().is_called);
        assert!(!edge.wait(LONG_MS).unwrap().is_called, "the byte ends this wait");
        drop(other);
        assert!(!edge.wait(LONG_MS).unwrap().is_called, "so does a later change");
    }

    #[test]
    fn a_bell_hides_no_change() {
        use std::io::Write;
        let (watched, mut other) = UnixStream::pair().unwrap();
        let edge = Edge::watch(watched.as_fd()).unwrap();
        let bell = Bell::new().unwrap();
        edge.listen(&bell).unwrap();
        other.write_all(b"x").unwrap();
        bell.ring();
        let both = [edge.wait(LONG_MS).unwrap(), edge.wait(LONG_MS).unwrap()];
        assert_eq!(both.iter().filter(|woken| woken.is_called).count(), 1, "{both:?}");
        drop(bell);
        assert!(!edge.wait(0).unwrap().is_called, "the watch has ended with the bell");
    }
}
