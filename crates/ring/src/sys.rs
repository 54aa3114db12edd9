//! System calls of wake-ups: a message that another process waits for, and the clock that all
//! processes of a machine share.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most messages that are taken at a time.
const MOST_MESSAGES: usize = 1 << 10;

/// A pair of sockets: a message to the first makes the second readable. `DEPARTURE:` not an eventfd, because its
/// non-blocking mode belongs to all its holders: a hostile reader could fill it and make the writer wait. Here each
/// call of the writer is non-blocking, whatever the reader does.
///
/// # Errors
/// The system refuses.
pub fn event() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Wakes the other end. If messages wait there, it is readable already.
pub fn signal(event: BorrowedFd<'_>) {
    let _full_or_gone = send(event, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the messages that wait; a writer that sends without end does not hold the caller.
pub fn clear(event: BorrowedFd<'_>) {
    let mut byte = [0];
    for _ in 0..MOST_MESSAGES {
        if !matches!(recv(event, &mut byte, RecvFlags::DONTWAIT), Ok((_, 1..))) {
            return;
        }
    }
}

/// Waits until a descriptor is readable or closed at its other end, at most `patience`. Returns for
/// each of them whether it is; all false after an interruption.
pub fn wait(fds: &[BorrowedFd<'_>], patience: Duration) -> Vec<bool> {
    let one =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: Vec<libc::pollfd> = fds.iter().map(one).collect();
    // Rounded up: a rest below a millisecond would be many calls that do not wait.
    let patience_ms = patience.as_nanos().div_ceil(1_000_000).min(60_000) as libc::c_int;
    // SAFETY: the list has this many entries, and the descriptors are open.
    let found = unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, patience_ms) };
    list.iter().map(|one| found > 0 && one.revents != 0).collect()
}

/// True if the other end of a connection is closed.
pub fn is_closed(connection: BorrowedFd<'_>) -> bool {
    let events = libc::POLLRDHUP;
    let mut one = libc::pollfd { fd: connection.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry, and the descriptor is open.
    let found = unsafe { libc::poll(&mut one, 1, 0) };
    found > 0 && one.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// Nanoseconds of the clock that never jumps and is equal in all processes; never 0.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}
