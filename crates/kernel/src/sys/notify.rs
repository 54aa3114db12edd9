//! System calls of seccomp user notification: installing the filter, receiving and answering, reading the caller's
//! memory, and acting on sockets on behalf of the caller.
//!
//! Minimum kernels: `SECCOMP_ADDFD_FLAG_SEND` 5.14; `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` 5.19 and `PIDFD_THREAD`
//! 6.9 are used if the kernel has them.

use super::owned;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A system call that waits for its answer.
pub type Raw = libc::seccomp_notif;

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Installs a filter with a listener in the calling thread and all its future descendants. Sets `no_new_privs` only if
/// the process lacks the right to install a filter without it. Allocates nothing, so it may run between fork and exec.
pub(super) fn install(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    const PLAIN: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    const KILLABLE: libc::c_ulong = PLAIN | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let text = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    let with = |flags: libc::c_ulong| {
        // SAFETY: the length is the program's, and the kernel only reads it.
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

/// Sends one byte and a descriptor over a Unix socket, without allocating.
pub(super) fn send_descriptor(line: BorrowedFd<'_>, sent: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [sent];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(line, &[io::IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a notification. `ENOENT` if the caller was killed meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Raw> {
    // SAFETY: all zeros is valid, and the kernel requires zeros.
    let mut raw: Raw = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours and has the size that is encoded in the request.
    done(unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw)
    })?;
    Ok(raw)
}

/// Waits for a notification; true if no process is left that could send one.
pub fn is_over(listener: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of ours.
    match done(unsafe { libc::poll(&raw mut polled, 1, -1) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(polled.revents & libc::POLLIN == 0 && polled.revents & libc::POLLHUP != 0),
    }
}

/// Answers a notification: with an error number, with 0, or, for `None`, by letting the kernel execute the call.
pub fn respond(listener: BorrowedFd<'_>, id: u64, errno: Option<i32>) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: -errno.unwrap_or(0),
        flags: if errno.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
    };
    // SAFETY: the structure is ours and has the size that is encoded in the request.
    done(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            std::ptr::from_ref(&response),
        )
    })
}

/// Gives the caller a copy of a descriptor and returns its number from the call, in one step.
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
    // SAFETY: the structure is ours and has the size that is encoded in the request.
    done(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            std::ptr::from_ref(&request),
        )
    })
}

/// True if the caller still waits for the answer, so that its process number still refers to it.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the number is ours and has the size that is encoded in the request.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            std::ptr::from_ref(&id),
        ) == 0
    }
}

/// Reads memory of another process; `EFAULT` unless all of it is mapped.
pub fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local buffer is ours and the length is its size; the kernel checks the remote address.
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

/// Opens a descriptor of one thread, which may have descriptors of its own; of its process before Linux 6.9.
pub fn open_thread(thread: u32, process: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: no pointers.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, thread as libc::pid_t, PIDFD_THREAD) };
    match owned(made) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => super::open_process(process),
        other => other,
    }
}

/// Moves the calling thread into a network namespace.
pub fn enter_net(net: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers; only the calling thread moves.
    done(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// The user namespace that owns a network namespace.
pub fn owner_of_net(net: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument.
    owned(unsafe { libc::ioctl(net.as_raw_fd(), libc::NS_GET_USERNS) }.into())
}

/// Opens a packet socket in the calling thread's network namespace that receives nothing yet.
pub fn silent_packet_socket(kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. Protocol 0 receives nothing until the socket is bound.
    owned(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) }.into())
}

/// Binds a socket to an address that another process wrote.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel copies `len` bytes, which is the slice's length, before it reads them.
    done(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) })
}

/// The kind of an interface (`ARPHRD_…`) in the network namespace of a socket.
pub fn hardware_at(socket: BorrowedFd<'_>, interface: i32) -> io::Result<u16> {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = interface;
    let (name, kind) = (libc::SIOCGIFNAME as _, libc::SIOCGIFHWADDR as _);
    // SAFETY: the request is ours; the kernel writes the name into it.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), name, &raw mut request) })?;
    // SAFETY: as above; it writes the address.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), kind, &raw mut request) })?;
    // SAFETY: the call has filled in the address.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Gives a socket a classic BPF filter; the kernel checks that it is valid.
pub fn attach_classic(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let text = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the length is the program's, and the kernel only reads it.
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

/// Locks a socket's filter; the kernel refuses 0 for a locked one.
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

/// Makes a descriptor that becomes readable when one of these signals arrives; the signals have no other effect.
pub fn signals(wanted: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: all zeros is valid memory for the set, which the next call fills.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours; so for the calls below.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in wanted {
        // SAFETY: as above; the call refuses a number that is not a signal.
        done(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    // SAFETY: as above.
    done(-unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: as above.
    owned(unsafe { libc::signalfd(-1, &raw const set, flags) }.into())
}

/// The next signal, and true if a terminal or the kernel sent it instead of a process.
pub fn next_signal(descriptor: BorrowedFd<'_>) -> Option<(i32, bool)> {
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: all zeros is valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the structure is ours and `len` is its size.
    let read = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), len) };
    let all = usize::try_from(read).is_ok_and(|read| read == len);
    all.then_some((info.ssi_signo as i32, info.ssi_code == SI_KERNEL))
}

/// Waits until one of two descriptors is readable or hung up, or the time has passed; -1 waits without limit.
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

/// Makes this process adopt the orphans of its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Runs `guard` in a process between this one and the command's, and installs the filter in the command's process,
/// which sends the listener over `line`. The caller must have one thread.
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
        // SAFETY: no pointers. The process has one thread, so both sides may call any function.
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
                // SAFETY: ends this process without running destructors or exit handlers of the process it was forked
                // from.
                unsafe { libc::_exit(status) }
            }
        }
    };
    // SAFETY: the caller has one thread, so after the fork no lock is held by a thread that does not exist.
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

/// Closes every descriptor of the process except one. The owners of the others must never run again.
fn close_all_but(kept: RawFd) {
    let kept = kept as libc::c_uint;
    // SAFETY: no pointers. The process ends without dropping the owners of the closed descriptors.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}

/// Sends a signal to a process; a process that has ended is not an error.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: no pointers. A number of 0 or below, which would address several processes, is refused.
    if process > 1 && libc::pid_t::try_from(process).is_ok() {
        // SAFETY: takes two numbers and touches no memory.
        unsafe { libc::kill(process as libc::pid_t, signal) };
    }
}

/// Collects a child that has ended: its number and wait status; `None` if none has ended, an error if there is no
/// child.
pub fn collect() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: the status is ours.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some((child, status))),
    }
}
