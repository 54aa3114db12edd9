//! The end of a child process, with the processor time that it used.

use std::io;
use std::mem;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// A child that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// User and system time of it and of the children that it waited for.
    pub used: Duration,
}

/// Collects a child if it has ended; the child must not be waited for afterwards.
///
/// # Errors
/// The error of the system.
pub fn try_wait(child: &Child) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let pid = child.id() as libc::pid_t;
    // SAFETY: both pointers are to values that live through the call.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) } {
        0 => Ok(None),
        found if found == pid => {
            let time = |time: libc::timeval| {
                Duration::from_secs(time.tv_sec.unsigned_abs())
                    + Duration::from_micros(time.tv_usec.unsigned_abs())
            };
            let used = time(usage.ru_utime) + time(usage.ru_stime);
            Ok(Some(Ended { status: ExitStatus::from_raw(status), used }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}
