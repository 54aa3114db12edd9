//! The system calls of seccomp user notification: installing the filter, receiving and answering, reading the caller's
//! memory, and acting on sockets in the caller's place.
//!
//! Minimum kernels: `SECCOMP_ADDFD_FLAG_SEND` 5.14, `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` 5.19 (used where it is
//! there), `PIDFD_THREAD` 6.9 (the same).

use super::owned;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A system call that waits for its answer.
pub type Raw = libc::seccomp_notif;

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Installs a filter with a listener in the calling thread and all that it will start. `no_new_privs` is set only where
/// the right to go without is missing. Makes no allocation, so it may run between fork and exec.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    const PLAIN: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    const KILLABLE: libc::c_ulong = PLAIN | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let text = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    let with = |flags: libc::c_ulong| {
        // SAFETY: the program is as long as said and only read.
        let made = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                std::ptr::from_ref(&text),
            )
        };
        owned(made)
    };
    let best = || match with(KILLABLE) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => with(PLAIN),
        other => other,
    };
    match best() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            // SAFETY: no pointers.
            done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
            best()
        }
        other => other,
    }
}

/// Sends one byte and a descriptor over a Unix socket, without an allocation.
pub(super) fn send_descriptor(line: BorrowedFd<'_>, sent: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [sent];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(line, &[io::IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a notification. `ENOENT` when the caller was killed in the meantime.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Raw> {
    // SAFETY: all zeros is valid, and what the kernel asks for.
    let mut raw: Raw = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours and of the size that the request's number has.
    done(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw)
    })?;
    Ok(raw)
}

/// Waits for a notification; true when nobody is left who could send one.
pub fn is_over(listener: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of ours.
    match done(unsafe { libc::poll(&raw mut polled, 1, -1) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(polled.revents & libc::POLLIN == 0 && polled.revents & libc::POLLHUP != 0),
    }
}

/// Answers a notification: with an error number, with 0, or, for `None`, by letting the system call happen.
pub fn respond(listener: BorrowedFd<'_>, id: u64, errno: Option<i32>) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: -errno.unwrap_or(0),
        flags: if errno.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
    };
    // SAFETY: the structure is ours and of the size that the request's number has.
    done(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            std::ptr::from_ref(&response),
        )
    })
}

/// Gives the caller a copy of a descriptor, whose number is the answer, in one step.
pub fn hand_over(
    listener: BorrowedFd<'_>,
    id: u64,
    given: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: given.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the structure is ours and of the size that the request's number has.
    done(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            std::ptr::from_ref(&request),
        )
    })
}

/// Whether the caller still waits for the answer, so that its number still means it.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the number is ours and of the size that the request's number has.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            std::ptr::from_ref(&id),
        ) == 0
    }
}

/// Reads another process's memory; `EFAULT` unless all of it is there.
pub fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local part is ours and as long as said; the remote address is the kernel's to check.
    let read = unsafe {
        libc::process_vm_readv(
            thread as libc::pid_t,
            std::ptr::from_ref(&local),
            1,
            std::ptr::from_ref(&remote),
            1,
            0,
        )
    };
    match usize::try_from(read) {
        Ok(read) if read == into.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// A descriptor of one thread, whose descriptors are then its own; of its process before Linux 6.9.
pub fn open_thread(thread: u32, process: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: no pointers.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, thread as libc::pid_t, PIDFD_THREAD) };
    match owned(made) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => super::open_process(process),
        other => other,
    }
}

/// Moves the calling thread into a network.
pub fn enter_net(net: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers; only the calling thread moves.
    done(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// The user namespace that owns a network.
pub fn owner_of_net(net: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument.
    owned(unsafe { libc::ioctl(net.as_raw_fd(), libc::NS_GET_USERNS) }.into())
}

/// A packet socket of the calling thread's network that receives nothing yet.
pub fn silent_packet_socket(kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. Protocol 0 receives nothing until the socket is bound.
    owned(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) }.into())
}

/// Binds a socket to an address as another process wrote it.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel copies the bytes, as many as said, before it looks at them.
    done(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) })
}

/// The kind of an interface (`ARPHRD_…`) in the network of a socket.
pub fn hardware_at(socket: BorrowedFd<'_>, interface: i32) -> io::Result<u16> {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = interface;
    let (name, kind) = (libc::SIOCGIFNAME as _, libc::SIOCGIFHWADDR as _);
    // SAFETY: the request is ours; the kernel writes the name into it.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), name, &raw mut request) })?;
    // SAFETY: as above; it writes the address.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), kind, &raw mut request) })?;
    // SAFETY: the call has filled the address in.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Gives a socket a classic filter; the kernel says whether it is one.
pub fn attach_classic(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let text = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program is as long as said and only read.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&text).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
}

/// Locks a socket's filter; 0 of a locked one is refused.
pub fn lock_filter(socket: BorrowedFd<'_>, value: i32) -> io::Result<()> {
    // SAFETY: the value is ours and has the given length.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LOCK_FILTER,
            std::ptr::from_ref(&value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })
}

/// A descriptor that becomes readable when one of these signals comes; they have no other effect any more.
pub fn signals(wanted: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: all zeros is valid memory for the set, which the next call fills.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours; so for the calls below.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in wanted {
        // SAFETY: as above; a number that is no signal is refused.
        done(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    // SAFETY: as above.
    done(-unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: as above.
    owned(unsafe { libc::signalfd(-1, &raw const set, flags) }.into())
}

/// The next signal, and whether a terminal or the kernel sent it rather than a process.
pub fn next_signal(descriptor: BorrowedFd<'_>) -> Option<(i32, bool)> {
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: all zeros is valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the structure is ours and as long as said.
    let read = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), len) };
    let all = usize::try_from(read).is_ok_and(|read| read == len);
    all.then_some((info.ssi_signo as i32, info.ssi_code == SI_KERNEL))
}

/// Waits until one of two descriptors is readable or has been hung up, at most this long; -1 waits for ever.
pub fn wait_for(both: [BorrowedFd<'_>; 2], timeout_ms: i32) -> io::Result<[bool; 2]> {
    let mut polled =
        both.map(|one| libc::pollfd { fd: one.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: two structures of ours.
    match done(unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout_ms) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false, false]),
        Err(error) => Err(error),
        Ok(()) => Ok(polled.map(|one| one.revents != 0)),
    }
}

/// This process adopts what its descendants leave behind.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Runs `guard` in a process of its own, between this one and the command's, and installs the filter in the command's
/// process, whose listener goes over `line`. The caller has one thread.
pub fn guarded(
    command: &mut std::process::Command,
    line: std::os::unix::net::UnixStream,
    program: Vec<libc::sock_filter>,
    guard: fn(BorrowedFd<'_>, i32) -> i32,
) -> &mut std::process::Command {
    use std::os::fd::AsFd;
    use std::os::unix::process::CommandExt;
    let line = OwnedFd::from(line);
    let between = move || {
        adopt_orphans()?;
        // SAFETY: no pointers. The process has one thread, so both sides may do what they like.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                unblock_signals();
                let listener = install(&program)?;
                send_descriptor(line.as_fd(), listener.as_fd())
            }
            child => {
                close_all_but(line.as_raw_fd());
                let status = guard(line.as_fd(), child);
                // SAFETY: ends this process without running what belongs to the one that it was forked from.
                unsafe { libc::_exit(status) }
            }
        }
    };
    // SAFETY: the caller has one thread, so that no lock is held by a thread that is gone after the fork.
    unsafe { command.pre_exec(between) }
}

fn unblock_signals() {
    // SAFETY: all zeros is valid memory for the set, which the call fills.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours.
    unsafe {
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Closes every descriptor of the process but one. The owners of the others must never run again.
fn close_all_but(kept: RawFd) {
    let kept = kept as libc::c_uint;
    // SAFETY: no pointers. The process ends without dropping the owners of what is closed.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}

/// Ends a process, or asks it to; one that is gone is no error.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: no pointers. A number of 0 or below, which would mean many, is refused.
    if process > 1 && libc::pid_t::try_from(process).is_ok() {
        // SAFETY: takes two numbers and touches no memory.
        unsafe { libc::kill(process as libc::pid_t, signal) };
    }
}

/// Collects a child that has ended: its number and wait status; `None` when none has, an error when there is no child.
pub fn collect() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: the status is ours.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some((child, status))),
    }
}
