//! System calls of wake-ups: a counter that another process can wait for, and the clock that all
//! processes of a machine share.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A counter (eventfd) that is readable while it is not 0.
///
/// # Errors
/// The system refuses.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: the call has no conditions.
    let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    match number {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        number => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
    }
}

/// Makes a counter readable. A full counter is readable already.
pub fn signal(event: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight readable bytes; the descriptor is open.
    let _full = unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Sets a counter to 0.
pub fn clear(event: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: eight writable bytes; the descriptor is open.
    let _empty = unsafe { libc::read(event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Waits until a descriptor is readable or closed at its other end, at most `patience`. Returns for
/// each of them whether it is; all false after an interruption.
pub fn wait(fds: &[BorrowedFd<'_>], patience: Duration) -> Vec<bool> {
    let one =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: Vec<libc::pollfd> = fds.iter().map(one).collect();
    let patience_ms = patience.as_millis().min(60_000) as libc::c_int;
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
