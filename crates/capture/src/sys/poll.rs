//! Waiting for a descriptor, with a time-out.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Waits until something can be read (or the other end is gone, or the descriptor reports an error). False after the
/// time-out, and when a signal came.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout_ms: u16) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `entry` is one valid pollfd, and the count says one.
    let ready = unsafe { libc::poll(&raw mut entry, 1, i32::from(timeout_ms)) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}
