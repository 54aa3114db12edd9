//! Options of sockets.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// Types for which any bytes are a valid value.
pub(super) trait Plain {}

impl Plain for libc::c_int {}

/// Sets an option.
pub(super) fn set<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    let value = (&raw const *value).cast();
    // SAFETY: `value` points to `len` bytes that live through the call, which only reads them.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option; the kernel fills in any bytes.
pub(super) fn get<T: Plain>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    let value = (&raw mut *value).cast();
    // SAFETY: `value` points to `len` bytes that may be written, and any bytes make a `T` because it is Plain.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
