//! System calls that no other crate wraps: mapping a BPF map, attaching a program to a descriptor, waiting until no
//! program runs on old memory, running a program on given bytes, copying a descriptor of another process.
//!
//! Minimum kernels: mapped maps 5.5, `pidfd_getfd` 5.6, `SO_ATTACH_BPF` 3.19, `membarrier` 4.3.

pub mod netdev;
pub mod notify;
pub mod objects;

use crate::layout::{ADDRESS_REACH, ADDRESSES, Address, BUCKET_ROWS, BUCKETS, COUNTERS, HINTS};
use fyke_pass::Instruction;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Shared memory of one map, as 32-bit words. Other processes and the kernel program also read and write it, so every
/// access is an atomic access to a word, and no reference to plain data in it exists.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory lives until the drop and every access is atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `len` bytes of a map's values.
    pub fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<Mapped> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing is overwritten.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapped { start, len })
    }

    /// Private memory as large as a map's, for tests without a kernel program.
    #[cfg(test)]
    pub fn anonymous(len: usize) -> io::Result<Mapped> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses; nothing is overwritten.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapped { start, len })
    }

    /// The word at a byte offset.
    ///
    /// # Panics
    /// If the word is not inside the mapping or not aligned, which is a bug in the caller.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "word {at} of {}", self.len);
        // SAFETY: inside the mapping (checked), aligned (checked, the start is page-aligned), and only ever accessed
        // atomically by this process.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn double(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "double word {at} of {}", self.len);
        // SAFETY: as in `word`.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Reads a word.
    pub fn get(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Reads a word, and sees what was written before it was published.
    pub fn get_published(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Writes a word that no reader can reach yet.
    pub fn prepare(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Writes a word that makes earlier prepared words visible.
    pub fn publish(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Writes an instruction that no reader can reach yet.
    pub fn prepare_instruction(&self, at: usize, instruction: &Instruction) {
        self.prepare(at, instruction.command);
        for (index, &param) in instruction.params.iter().enumerate() {
            self.prepare(at + 4 + 4 * index, param);
        }
    }

    /// Reads a double word.
    pub fn get_double(&self, at: usize) -> u64 {
        self.double(at).load(Ordering::Relaxed)
    }

    /// Writes a double word that makes earlier prepared words visible.
    pub fn publish_double(&self, at: usize, value: u64) {
        self.double(at).store(value, Ordering::Release);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Byte offset of the hints in the map of rows.
pub const HINTS_AT: usize = BUCKETS * BUCKET_ROWS * 8;
/// Byte offset of the addresses in the map of rows.
pub const ADDRESSES_AT: usize = HINTS_AT + HINTS * 8;
/// Byte offset of the number of rows in the hash map.
pub const MORE_AT: usize = ADDRESSES_AT + (ADDRESSES + ADDRESS_REACH) * size_of::<Address>();
/// Length in bytes of the map of rows.
pub const ROWS_BYTES: usize = MORE_AT + 8;
/// Length in bytes of one processor's counters.
pub const COUNTERS_BYTES: usize = COUNTERS * 8;

/// Waits until every earlier program run has ended. Takes milliseconds; never called during an edit.
pub fn wait_for_readers() -> io::Result<()> {
    fence(Ordering::SeqCst);
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: no pointers. The command waits for an RCU grace period, and programs run inside RCU.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn option(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and len are ours, and len is the value's size.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The address family of a socket.
pub fn domain(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    option(socket, libc::SO_DOMAIN)
}

/// The type of a socket.
pub fn kind(socket: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    option(socket, libc::SO_TYPE)
}

/// The kind of interface (`ARPHRD_…`) to which a packet socket is bound; Ethernet if it is not bound.
pub fn hardware(socket: BorrowedFd<'_>) -> io::Result<u16> {
    let address = bound_to(socket)?;
    Ok(if address.sll_ifindex == 0 { libc::ARPHRD_ETHER } else { address.sll_hatype })
}

/// Number of the interface to which a packet socket is bound; 0 if it is not bound.
pub fn interface(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(bound_to(socket)?.sll_ifindex.unsigned_abs())
}

/// Number of the network namespace of a socket, which no other has had since the machine was started. Linux 5.14.
pub fn namespace(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// `SO_NETNS_COOKIE`, `asm-generic/socket.h`.
    const COOKIE: libc::c_int = 71;
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the value and len are ours, and len is the value's size.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

fn bound_to(socket: BorrowedFd<'_>) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is ours, and len is its size.
    let done =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(address)
}

/// Replaces the socket's filter with a program, in one step.
pub fn attach(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

/// Removes the socket's filter.
pub fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_DETACH_FILTER, 0)
}

/// See [`crate::sockets::set_queue`].
pub fn set_queue(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::SO_RCVBUFFORCE, bytes)
}

/// Opens a packet socket that receives all frames of one interface of the calling thread's network namespace.
pub fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: the name ends in zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers. Protocol 0 receives nothing until the socket is bound.
    let socket = owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }.into())?;
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: a sockaddr_ll begins as every sockaddr does, and `len` is its size.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// Locks the socket's filter; after that, not even the socket's owner can change it. Linux 3.10.
pub fn lock_filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_LOCK_FILTER, 1)
}

fn set_option(socket: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value is ours, and len is its size.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const value).cast(), len)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a descriptor of a process, which refers to this process even if its number is reused.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    owned(descriptor)
}

/// Copies a descriptor of another process.
pub fn descriptor_of(process: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    owned(descriptor)
}

fn owned(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) })
}

/// Result of running a program on given bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRun {
    /// Return value of the program.
    pub returned: u32,
    /// Average nanoseconds per run.
    pub duration_ns: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRunArguments {
    program: u32,
    returned: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
    batch_size: u32,
    unused: u32,
}

/// Runs a program on at most a page of bytes, `repeat` times. The kernel removes the first 14 bytes before it runs a
/// socket filter.
pub fn test_run(program: BorrowedFd<'_>, data: &[u8], repeat: u32) -> io::Result<TestRun> {
    const BPF_PROG_TEST_RUN: libc::c_int = 10;
    let mut arguments = TestRunArguments {
        program: program.as_raw_fd() as u32,
        data_in_len: data.len() as u32,
        data_in: data.as_ptr() as u64,
        repeat,
        ..TestRunArguments::default()
    };
    // SAFETY: the arguments are laid out as union bpf_attr's member `test`, and their size is passed; `data` outlives
    // the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_TEST_RUN,
            &raw mut arguments,
            size_of::<TestRunArguments>(),
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TestRun { returned: arguments.returned, duration_ns: arguments.duration })
}

#[repr(C)]
#[derive(Default)]
struct MapArguments {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// Makes a map with a single value of `bytes` bytes, which can be mapped. Programs can address it without a look-up.
pub fn single_value_map(bytes: usize) -> io::Result<OwnedFd> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let mut arguments = MapArguments {
        kind: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: u32::try_from(bytes).map_err(io::Error::other)?,
        max_entries: 1,
        flags: BPF_F_MMAPABLE,
    };
    // SAFETY: the arguments are laid out as the start of union bpf_attr for this command, and their size is passed.
    let made = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw mut arguments, size_of::<MapArguments>())
    };
    owned(made)
}

#[repr(C)]
#[derive(Default)]
struct LoadArguments {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// Name of generated programs.
const MADE: [u8; 16] = *b"fyke_made\0\0\0\0\0\0\0";

/// Loads a program of a type given by its number. On refusal, the error includes the verifier's log.
pub fn load_program(kind: u32, code: &[u64]) -> Result<OwnedFd, (io::Error, String)> {
    load_with(code, LoadArguments { kind, name: MADE, ..LoadArguments::default() })
}

/// Loads a program for XDP that may ask the driver of an interface about frames. Linux 6.3.
pub fn load_bound_program(
    interface: u32,
    name: [u8; 16],
    code: &[u64],
) -> Result<OwnedFd, (io::Error, String)> {
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
    let (kind, flags, attach_type) = (BPF_PROG_TYPE_XDP, BPF_F_XDP_DEV_BOUND_ONLY, objects::XDP);
    let arguments =
        LoadArguments { kind, flags, name, interface, attach_type, ..Default::default() };
    load_with(code, arguments)
}

fn load_with(code: &[u64], arguments: LoadArguments) -> Result<OwnedFd, (io::Error, String)> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    let mut arguments = LoadArguments {
        instruction_count: u32::try_from(code.len()).unwrap_or(u32::MAX),
        instructions: code.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..arguments
    };
    let load = |arguments: &mut LoadArguments| {
        // SAFETY: the arguments are laid out as the start of union bpf_attr for this command, and their size is passed;
        // what they point to outlives the call.
        let made = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_LOAD,
                std::ptr::from_mut(arguments),
                size_of::<LoadArguments>(),
            )
        };
        owned(made)
    };
    let error = match load(&mut arguments) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    let mut log = vec![0_u8; 1 << 20];
    arguments.log_level = 1;
    arguments.log_size = log.len() as u32;
    arguments.log = log.as_mut_ptr() as u64;
    match load(&mut arguments) {
        Ok(program) => Ok(program),
        Err(_) => {
            let len = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            Err((error, String::from_utf8_lossy(&log[..len]).into_owned()))
        }
    }
}

/// See [`crate::run_before_others`].
pub fn run_before_others() -> io::Result<()> {
    // musl's has more fields, which Linux does not read.
    // SAFETY: all zeros is a valid sched_param.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: 0 is the calling thread; the parameter is ours.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
