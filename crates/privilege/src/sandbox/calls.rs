//! System call rules (seccomp): the calls needed to read, filter and write frames and to answer clients.
//!
//! Calls that could do more are allowed with fixed arguments only: clone makes threads but no processes; fcntl, ioctl,
//! prctl and setsockopt have only the operations that the standard library uses; signals reach only this process.
//! A filter cannot see the arguments of clone3, so it fails with ENOSYS and the C library uses clone. The call numbers
//! of the 32-bit and x32 ABIs are denied.

use super::{Rules, SandboxError};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::io;

/// Calls that are allowed with any arguments. Landlock and the open descriptors limit the files they reach.
const ALWAYS: &[c_long] = &[
    // Descriptors that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_wait4,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Sockets that are open.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_socketpair,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_getrandom,
    // Threads and signals.
    libc::SYS_futex,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Identity of the process and the machine.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Older forms of the same calls, on processors that have them.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_dup2,
    libc::SYS_unlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

#[cfg(target_arch = "x86_64")]
const OPENS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_open,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
];

const SOCKETS: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_memfd_create,
];

const FCNTL: &[c_long] = &[
    libc::F_GETFD as c_long,
    libc::F_SETFD as c_long,
    libc::F_GETFL as c_long,
    libc::F_SETFL as c_long,
    libc::F_DUPFD as c_long,
    libc::F_DUPFD_CLOEXEC as c_long,
    libc::F_ADD_SEALS as c_long,
    libc::F_GET_SEALS as c_long,
];

/// TCGETS2, which libc does not name everywhere.
const TCGETS2: c_long = 0x802c_542a;
/// `BPF_PROG_LOAD`, an operation of bpf(2).
const PROGRAM_LOAD: c_long = 5;
/// PR_SET_VMA, with which the C library names its memory mappings.
const PR_SET_VMA: c_long = 0x5356_4d41;

const IOCTL: &[c_long] = &[
    libc::TCGETS as c_long,
    TCGETS2,
    libc::TIOCGWINSZ as c_long,
    libc::FIONBIO as c_long,
    libc::FIONREAD as c_long,
    // Without capabilities it only reads: the number of queues of an interface.
    libc::SIOCETHTOOL as c_long,
];
const IOCTL_INTERFACES: &[c_long] = &[
    libc::SIOCGIFHWADDR as c_long,
    libc::SIOCGIFFLAGS as c_long,
    libc::SIOCGIFINDEX as c_long,
    libc::SIOCGIFNAME as c_long,
];

/// `asm-generic/socket.h`, the same on all architectures that fyke supports.
const SO_RCVTIMEO_NEW: c_long = 66;
const SO_SNDTIMEO_NEW: c_long = 67;

const SETSOCKOPT: &[c_long] = &[
    libc::SO_RCVTIMEO as c_long,
    libc::SO_SNDTIMEO as c_long,
    // The same with times of 64 bits, which rustix uses.
    SO_RCVTIMEO_NEW,
    SO_SNDTIMEO_NEW,
    // Edits of the filters of a capture, and its end: a filter that accepts nothing stops the flow of frames.
    libc::SO_ATTACH_FILTER as c_long,
    libc::SO_DETACH_FILTER as c_long,
    // Attaches only a program that the process has loaded before.
    libc::SO_ATTACH_BPF as c_long,
];

/// Options of packet sockets that share the frames of an interface, each with a ring.
const RINGS: &[c_long] = &[
    libc::PACKET_VERSION as c_long,
    libc::PACKET_RESERVE as c_long,
    libc::PACKET_RX_RING as c_long,
    libc::PACKET_FANOUT as c_long,
    libc::PACKET_FANOUT_DATA as c_long,
    libc::PACKET_IGNORE_OUTGOING as c_long,
];

type List = BTreeMap<i64, Vec<SeccompRule>>;

/// Builds a condition on the low 32 bits of an argument.
fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: c_long,
) -> Result<SeccompCondition, SandboxError> {
    let value = value as u64 & 0xffff_ffff;
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// Builds a condition that holds if an argument, a 64-bit pointer, is null.
fn when_null(argument: u8) -> Result<SeccompCondition, SandboxError> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?)
}

/// Allows a call if at least one of the lists of conditions holds completely.
fn add(
    list: &mut List,
    call: c_long,
    any_of: impl IntoIterator<Item = Vec<SeccompCondition>>,
) -> Result<(), SandboxError> {
    let rules = list.entry(call).or_default();
    for conditions in any_of {
        rules.push(SeccompRule::new(conditions)?);
    }
    Ok(())
}

/// Allows a call if an argument has one of the values.
fn add_values(
    list: &mut List,
    call: c_long,
    argument: u8,
    values: &[c_long],
) -> Result<(), SandboxError> {
    let conditions = values.iter().map(|&value| Ok(vec![when(argument, SeccompCmpOp::Eq, value)?]));
    add(list, call, conditions.collect::<Result<Vec<_>, SandboxError>>()?)
}

/// Calls that connect by TCP.
fn add_connections(list: &mut List) -> Result<(), SandboxError> {
    use SeccompCmpOp::Eq;
    list.insert(libc::SYS_connect, Vec::new());
    for family in [libc::AF_INET, libc::AF_INET6] {
        let stream = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as c_long;
        let kind = vec![when(0, Eq, family as c_long)?, when(1, Eq, stream)?];
        add(list, libc::SYS_socket, [kind])?;
    }
    let level = when(1, Eq, libc::IPPROTO_TCP as c_long)?;
    let option = when(2, Eq, libc::TCP_NODELAY as c_long)?;
    add(list, libc::SYS_setsockopt, [vec![level, option]])
}

fn list(rules: &Rules) -> Result<List, SandboxError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let mut list = List::new();
    let mut plain: Vec<&[c_long]> = vec![ALWAYS, OLD];
    plain.extend(rules.opens_files().then_some(OPENS));
    plain.extend(rules.opens_sockets.then_some(SOCKETS));
    let makes = rules.makes_memory.then_some(&[libc::SYS_memfd_create][..]);
    plain.extend(makes);
    let binds = rules.looks_at_interfaces.then_some(&[libc::SYS_bind][..]);
    plain.extend(binds);
    plain.into_iter().flatten().for_each(|&call| drop(list.insert(call, Vec::new())));
    add_values(&mut list, libc::SYS_fcntl, 1, FCNTL)?;
    add_values(&mut list, libc::SYS_ioctl, 1, IOCTL)?;
    add_values(&mut list, libc::SYS_prctl, 0, &[libc::PR_SET_NAME as c_long, PR_SET_VMA])?;
    for &option in SETSOCKOPT {
        let level = when(1, Eq, libc::SOL_SOCKET as c_long)?;
        add(&mut list, libc::SYS_setsockopt, [vec![level, when(2, Eq, option)?]])?;
    }
    // Selects the ring of a frame by a program that the process has loaded before.
    let option = when(2, Eq, libc::PACKET_FANOUT_DATA as c_long)?;
    add(&mut list, libc::SYS_setsockopt, [vec![when(1, Eq, libc::SOL_PACKET as c_long)?, option]])?;
    let thread = libc::CLONE_THREAD as c_long;
    add(&mut list, libc::SYS_clone, [vec![when(0, MaskedEq(thread as u64), thread)?]])?;
    // Reads limits; does not set them.
    add(&mut list, libc::SYS_prlimit64, [vec![when_null(2)?]])?;
    // A process that runs the sandbox has one such descriptor, of its helper.
    add_values(&mut list, libc::SYS_pidfd_send_signal, 1, &[libc::SIGKILL as c_long])?;
    let own = std::process::id() as c_long;
    add_values(&mut list, libc::SYS_tgkill, 0, &[own])?;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        match rules.makes_code {
            true => drop(list.insert(call, Vec::new())),
            false => {
                let code = libc::PROT_EXEC as u64;
                add(&mut list, call, [vec![when(2, MaskedEq(code), 0)?]])?;
            }
        }
    }
    let sends_to_any = rules.sends_frames || rules.opens_sockets || rules.looks_at_interfaces;
    match sends_to_any {
        true => drop(list.insert(libc::SYS_sendto, Vec::new())),
        // With an address, a packet socket could send through any interface.
        false => add(&mut list, libc::SYS_sendto, [vec![when_null(4)?]])?,
    }
    let mut families: Vec<c_long> = Vec::new();
    if rules.opens_sockets {
        families.extend([libc::AF_UNIX as c_long, libc::AF_INET as _, libc::AF_INET6 as _]);
    }
    if rules.looks_at_interfaces {
        families.extend([libc::AF_INET as c_long, libc::AF_NETLINK as _]);
        add_values(&mut list, libc::SYS_ioctl, 1, IOCTL_INTERFACES)?;
        let level = when(1, Eq, libc::SOL_PACKET as c_long)?;
        let option = when(2, Eq, libc::PACKET_ADD_MEMBERSHIP as c_long)?;
        add(&mut list, libc::SYS_setsockopt, [vec![level, option]])?;
    }
    if rules.opens_packet_rings {
        families.push(libc::AF_PACKET as c_long);
        for &option in RINGS {
            let level = when(1, Eq, libc::SOL_PACKET as c_long)?;
            add(&mut list, libc::SYS_setsockopt, [vec![level, when(2, Eq, option)?]])?;
        }
    }
    if rules.loads_programs {
        add_values(&mut list, libc::SYS_bpf, 0, &[PROGRAM_LOAD])?;
    }
    if !rules.connects_to.is_empty() {
        add_connections(&mut list)?;
    }
    if !families.is_empty() {
        add_values(&mut list, libc::SYS_socket, 0, &families)?;
    }
    Ok(list)
}

fn program(
    list: List,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let processor: TargetArch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(list, otherwise, listed, processor)?.try_into()?)
}

/// Restricts all threads. Returns false if the kernel has no seccomp.
pub(super) fn restrict(rules: &Rules) -> Result<bool, SandboxError> {
    let errno = |error: i32| SeccompAction::Errno(error as u32);
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let programs = [
        program(unknown, SeccompAction::Allow, errno(libc::ENOSYS))?,
        // Must be last: it forbids the installation of another filter.
        program(list(rules)?, errno(libc::EPERM), SeccompAction::Allow)?,
    ];
    for program in &programs {
        match apply_filter_all_threads(program) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(error)) if is_missing(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// True if the error means that the kernel has no seccomp filters.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}
