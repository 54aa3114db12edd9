//! A small process with one end of a socket pair and no other descriptor, for work that the process must not do itself.
//!
//! It is forked, so it needs no program file and no rights to one. It ignores the signals that stop a capture, cannot
//! be traced by other processes of its user, and ends when its function returns: the function reads end of file once
//! the parent has ended, even if it was killed. The function limits its rights ([`crate::sandbox`], [`crate::user`]).

use crate::{sys, user};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Longest wait for a process that has closed its end to be gone.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// The end of a process that this one did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Number of the process.
    pub pid: i32,
    /// The signal that has ended it, if it is known.
    pub signal: Option<i32>,
}

impl std::fmt::Display for Ended {
    /// The process and the reason, for example `process 4711 has ended by signal 9`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} has ended", self.pid)?;
        self.signal.map_or(Ok(()), |signal| write!(f, " by signal {signal}"))
    }
}

/// Waits, without a limit, until the process at the other end of a channel has ended, and removes it from the list of
/// processes.
pub(crate) fn wait_for_end(channel: BorrowedFd<'_>, pid: i32) -> Ended {
    // Without events, poll(2) returns at a hang-up only.
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(&channel, PollFlags::empty())], None) {}
    Ended { pid, signal: sys::reap(pid, LAST_STEPS).flatten() }
}

/// A process that [`start`] has forked.
#[derive(Debug)]
pub struct Child {
    channel: OwnedFd,
    pid: i32,
    /// The process itself, whatever its number means later; `None` before Linux 5.3.
    process: Option<OwnedFd>,
}

/// Forks a process that runs `serve` with its end of a socket pair of packets (SOCK_SEQPACKET). `name` is shown in
/// process lists. This process must have a single thread.
///
/// # Errors
/// When there are several threads, or the system refuses.
pub fn start(name: &CStr, serve: impl FnOnce(OwnedFd)) -> io::Result<Child> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let pid = sys::fork()?;
    if pid == 0 {
        let run = || {
            sys::ignore_signals();
            let is_alone = sys::keep_only(theirs.as_raw_fd()).is_ok();
            if is_alone && user::close_to_others().is_ok() {
                let _ = rustix::thread::set_name(name);
                serve(sys::kept());
            }
        };
        // A panic must not unwind into the parent's code.
        let _ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        sys::end();
    }
    drop(theirs);
    let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Ok(Child { channel: ours, pid, process })
}

impl Child {
    /// Number of the process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits, without a limit, until the process has ended, for a thread of its own. So it does not stay in the list of
    /// processes.
    pub fn wait_for_end(&self) -> Ended {
        wait_for_end(self.channel.as_fd(), self.pid)
    }

    /// Ends the process and waits for it; kills it after half of the time if that is permitted. Returns false if it
    /// still runs. The channel is of no use afterwards.
    #[must_use]
    pub fn end(&self, patience: Duration) -> bool {
        // It then reads end of file, and so does a thread of this process that waits for an answer.
        let _gone = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        if sys::wait_for(self.pid, patience / 2) {
            return true;
        }
        if let Some(process) = &self.process {
            // Not permitted after a change of the user; then the other half remains.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        sys::wait_for(self.pid, patience / 2)
    }
}

impl AsFd for Child {
    /// This process's end of the socket pair.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
