//! System calls without a safe wrapper: lookup of users, change of user in all threads, fork.
//!
//! The C library function changes the user of every thread; the plain system call changes only the calling thread.
//! Source: nptl(7), credentials(7), fork(2).

pub(crate) mod signals;

use crate::user::User;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// Option of a socket: a descriptor of the process at its other end.
const SO_PEERPIDFD: libc::c_int = 77;
/// Bytes for the strings of a user entry, at first and at most. A longer entry is an error.
const FIRST_ROOM: usize = 1 << 12;
const MOST_ROOM: usize = 1 << 20;

/// A descriptor of the process that has connected a Unix socket (pidfd; Linux 6.5). It is that process also when its
/// number is given to another one.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (mut number, mut len): (libc::c_int, libc::socklen_t) = (-1, 4);
    // SAFETY: four writable bytes, and their number.
    let done = unsafe {
        let into = (&raw mut number).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, into, &raw mut len)
    };
    match (done, number) {
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        (0, 0..) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True if the kernel has started this program with more rights than its user has (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: reads a number that the kernel has left.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Looks up a user by name; `None` if there is none.
pub(crate) fn user_by_name(name: &str) -> io::Result<Option<User>> {
    let Ok(text) = CString::new(name) else { return Ok(None) };
    look_up(|entry, room, found| {
        // SAFETY: `text` is NUL-terminated; `entry` and `found` are writable, and `room` for the length given.
        unsafe {
            libc::getpwnam_r(text.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found)
        }
    })
}

/// Looks up a user by number; `None` if there is none.
pub(crate) fn user_by_id(uid: u32) -> io::Result<Option<User>> {
    look_up(|entry, room, found| {
        // SAFETY: `entry` and `found` are writable, and `room` for the length given.
        unsafe { libc::getpwuid_r(uid, entry, room.as_mut_ptr().cast(), room.len(), found) }
    })
}

fn look_up(
    mut ask: impl FnMut(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    let mut room = vec![0u8; FIRST_ROOM];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut room, &raw mut found) {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded and filled in the entry.
                let entry = unsafe { entry.assume_init_ref() };
                // SAFETY: the name points into `room` and is NUL-terminated.
                let name = unsafe { CStr::from_ptr(entry.pw_name) }.to_string_lossy().into_owned();
                return Ok(Some(User { name, uid: entry.pw_uid, gid: entry.pw_gid }));
            }
            libc::EINTR => {}
            libc::ERANGE if room.len() < MOST_ROOM => room.resize(room.len() * 4, 0),
            // Error numbers of the C library for an unknown user, as listed in getpwnam(3).
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Becomes a user permanently: sets the real, effective and saved ids, and keeps only the user's own group.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the list has one group, which outlives the call.
    done(unsafe { libc::setgroups(1, &raw const gid) })?;
    // SAFETY: no memory is passed.
    done(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: no memory is passed.
    done(unsafe { libc::setresuid(uid, uid, uid) })?;
    // SAFETY: no memory is passed.
    let back = uid != 0 && unsafe { libc::setresuid(u32::MAX, 0, u32::MAX) } == 0;
    // If root can be regained, it was not given up.
    if back { Err(io::Error::other("the process could still regain root")) } else { Ok(()) }
}

/// Runs a closure with another effective user, then restores the old one.
pub(crate) fn with_effective_user<T>(
    uid: u32,
    gid: u32,
    what: impl FnOnce() -> T,
) -> io::Result<T> {
    // SAFETY: with size 0, the call only returns the number of groups.
    let count = unsafe { libc::getgroups(0, ptr::null_mut()) };
    done(count)?;
    let mut groups = vec![0; count as usize];
    // SAFETY: `groups` has room for `count` ids.
    done(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
    // SAFETY: no memory is passed.
    let (old_uid, old_gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let back = || -> io::Result<()> {
        // SAFETY: no memory is passed.
        done(unsafe { libc::seteuid(old_uid) })?;
        // SAFETY: no memory is passed.
        done(unsafe { libc::setegid(old_gid) })?;
        // SAFETY: `groups` outlives the call.
        done(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })
    };
    let there = || -> io::Result<()> {
        // SAFETY: the list has one group, which outlives the call.
        done(unsafe { libc::setgroups(1, &raw const gid) })?;
        // SAFETY: no memory is passed.
        done(unsafe { libc::setegid(gid) })?;
        // SAFETY: no memory is passed.
        done(unsafe { libc::seteuid(uid) })
    };
    let result = there().map(|()| what());
    // No code can handle a half-restored user.
    if back().is_err() {
        std::process::abort();
    }
    result
}

/// Forks; returns zero in the child.
///
/// # Errors
/// When this process has several threads: the child would have only one of them, and locks that the others hold would
/// stay locked.
pub(crate) fn fork() -> io::Result<libc::pid_t> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("the process already has {threads} threads")));
    }
    // SAFETY: there is one thread, so no lock is held and the child's memory is consistent.
    let pid = unsafe { libc::fork() };
    done(pid)?;
    Ok(pid)
}

/// Waits for a child to end; false if it has not ended after `patience`.
pub(crate) fn wait_for(pid: libc::pid_t, patience: Duration) -> bool {
    reap(pid, patience).is_some()
}

/// Waits for a child to end and removes it from the list of processes; `None` if it has not ended after `patience`.
/// Returns the signal that has ended it, if one has and the child was not removed before.
pub(crate) fn reap(pid: libc::pid_t, patience: Duration) -> Option<Option<libc::c_int>> {
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the status is writable.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        let interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        match waited {
            0 if start.elapsed() >= patience => return None,
            0 => std::thread::sleep(Duration::from_millis(1)),
            -1 if interrupted() => {}
            -1 => return Some(None),
            _ => return Some(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))),
        }
    }
}

/// Ends this process without running exit handlers of its parent.
pub(crate) fn end() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Ignores the signals that a terminal or a user sends to stop a capture.
pub(crate) fn ignore_signals() {
    // Those that the parent keeps are not for this process.
    let _of_the_parent = signals::take();
    let ignored = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGPIPE,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGXFSZ,
    ];
    for signal in ignored {
        // SAFETY: no handler is passed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes all descriptors but one, which becomes descriptor 3; 0, 1 and 2 become the null device.
pub(crate) fn keep_only(fd: libc::c_int) -> io::Result<()> {
    const KEPT: libc::c_int = 3;
    // SAFETY: the path ends with zero.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    done(null)?;
    // The socket may be one of the descriptors that are overwritten below.
    // SAFETY: no memory is passed.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, KEPT + 1) };
    done(high)?;
    for standard in 0..3 {
        // SAFETY: no memory is passed; both descriptors are ours.
        done(unsafe { libc::dup2(null, standard) })?;
    }
    // SAFETY: no memory is passed; the parent's descriptor 3 is not used here.
    done(unsafe { libc::dup2(high, KEPT) })?;
    // SAFETY: no memory is passed.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0) };
    if closed < 0 {
        // Linux before 5.9 has no close_range: close each descriptor below the default hard limit.
        for other in KEPT + 1..4096 {
            // SAFETY: nothing in this process uses these.
            unsafe { libc::close(other) };
        }
    }
    Ok(())
}

/// Returns the descriptor that [`keep_only`] kept.
pub(crate) fn kept() -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: `keep_only` has made descriptor 3, and nothing else owns it in the child.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(3) }
}

/// Makes a raw system call, for tests of forbidden calls.
#[cfg(test)]
pub(crate) fn call(number: libc::c_long, arguments: [libc::c_long; 4]) -> io::Result<libc::c_long> {
    let [a, b, c, d] = arguments;
    // SAFETY: tests pass numbers only, none of which is a valid address of this process.
    let result = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes `count` descriptors from number `first` on, once in the life of the process; a second call returns none.
/// They are closed on `exec`.
///
/// # Errors
/// One of them is not open.
pub(crate) fn take_from(first: i32, count: usize) -> io::Result<Vec<std::os::fd::OwnedFd>> {
    use std::os::fd::FromRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let numbers = first..first.saturating_add(i32::try_from(count).unwrap_or(0));
    for number in numbers.clone() {
        // SAFETY: no memory is passed.
        done(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    }
    // SAFETY: they are open, the service manager has opened them for this process, and this function runs once, so
    // nothing else owns them.
    let own = |number| unsafe { std::os::fd::OwnedFd::from_raw_fd(number) };
    Ok(numbers.map(own).collect())
}
