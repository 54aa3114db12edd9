//! System calls of a supervised program that make or change packet sockets; each is held until it is answered (seccomp
//! user notification).
//!
//! ```text
//! thread of the program: socket(AF_PACKET, …) ─▶ stopped in the kernel ─▶ Listener::next ─▶ Call
//!   ─▶ Call::hand_over: the descriptor is in the program and the call returns, in one step
//! ```
//!
//! Every descendant of the program inherits the filter and cannot remove it. Calls that could evade it fail: those of
//! other instruction sets (32-bit programs), obsolete `SOCK_PACKET` sockets and `io_uring`. Sockets that the program
//! inherits or receives from other processes are not seen: this supervises programs and is not a sandbox.
//!
//! Cost: about 10 µs for each call that is held; all other system calls go through one classic BPF program.

use crate::sockets::PacketSocket;
use crate::sys::{self, notify};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Longest address that `bind` takes: `sockaddr_storage`.
const ADDRESS_BYTES: usize = 128;
/// Most instructions of a classic BPF filter.
const FILTER_LIMIT: usize = 4096;
/// The capability that packet sockets need.
const CAP_NET_RAW: u32 = 13;

/// Receiver of the system calls of supervised programs.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A request of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// `socket` for a packet socket.
    Socket {
        /// Type, with `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
        kind: i32,
        /// Protocol in network byte order; 0 receives nothing until the socket is bound.
        protocol: u16,
    },
    /// `bind` of a socket of any family.
    Bind {
        /// The program's number of the socket.
        descriptor: i32,
        /// Address of the socket address in the program's memory.
        address: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// `setsockopt` that changes the filter of a socket of any family.
    Filter {
        /// The program's number of the socket.
        descriptor: i32,
        /// The change.
        change: FilterChange,
    },
}

/// A change of a socket's filter, with the address and length of its value in the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterChange {
    name: i32,
    value: u64,
    len: u32,
}

/// A copy of one of the caller's sockets.
#[derive(Debug)]
pub enum Socket {
    /// A packet socket.
    Packet(PacketSocket),
    /// A socket of another family.
    Other(OwnedFd),
}

/// A system call that waits for its answer. The caller can be killed at any time; after that, answers have no effect.
#[derive(Debug)]
pub struct Call<'a> {
    listener: &'a Listener,
    id: u64,
    thread: u32,
    /// The caller's request.
    pub asked: Asked,
}

impl Listener {
    /// Makes a listener from the descriptor that [`crate::family::start`] received.
    pub(crate) fn new(descriptor: OwnedFd) -> Listener {
        Listener(descriptor)
    }

    /// Waits for a call; `None` if every supervised process has ended.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn next(&self) -> io::Result<Option<Call<'_>>> {
        loop {
            // A hang-up also makes the descriptor readable, without a call to receive: poll distinguishes the two.
            if sys::notify::is_over(self.0.as_fd())? {
                return Ok(None);
            }
            match notify::receive(self.0.as_fd()) {
                Ok(raw) => {
                    let asked = asked(&raw);
                    return Ok(Some(Call { listener: self, id: raw.id, thread: raw.pid, asked }));
                }
                // The caller was killed before the call was received, or this process received a signal.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn asked(raw: &notify::Raw) -> Asked {
    let argument = raw.data.args;
    match libc::c_long::from(raw.data.nr) {
        libc::SYS_socket => {
            Asked::Socket { kind: argument[1] as i32, protocol: argument[2] as u16 }
        }
        libc::SYS_bind => Asked::Bind {
            descriptor: argument[0] as i32,
            address: argument[1],
            len: argument[2] as u32,
        },
        _ => Asked::Filter {
            descriptor: argument[0] as i32,
            change: FilterChange {
                name: argument[2] as i32,
                value: argument[3],
                len: argument[4] as u32,
            },
        },
    }
}

impl Call<'_> {
    /// Lets the kernel execute the system call unchanged.
    pub fn go_on(self) {
        self.answer(None);
    }

    /// Returns from the system call with success or with the error, without executing it.
    pub fn finish(self, result: io::Result<()>) {
        let errno = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        self.answer(Some(errno));
    }

    fn answer(&self, errno: Option<i32>) {
        // Fails only if the caller has ended.
        let _gone = notify::respond(self.listener.0.as_fd(), self.id, errno);
    }

    /// Returns from `socket` with a copy of this socket.
    ///
    /// # Errors
    /// The caller has ended (`ENOENT`), or has no free descriptor: then it still waits.
    pub fn hand_over(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let close = |kind: i32| kind & libc::SOCK_CLOEXEC != 0;
        let close = matches!(self.asked, Asked::Socket { kind, .. } if close(kind));
        notify::hand_over(self.listener.0.as_fd(), self.id, socket, close)
    }

    /// Copies one of the caller's sockets. Calls on the copy affect this socket, even if the caller's number refers to
    /// another socket meanwhile.
    ///
    /// # Errors
    /// The caller has no such descriptor (`EBADF`), or it is not a socket (`ENOTSOCK`).
    pub fn socket(&self, number: i32) -> io::Result<Socket> {
        let copy = self.descriptor(number)?;
        Ok(match sys::domain(copy.as_fd())? {
            libc::AF_PACKET => Socket::Packet(PacketSocket::new(copy)),
            _ => Socket::Other(copy),
        })
    }

    fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        let process = self.status("Tgid:").and_then(|number| number.parse().ok());
        let process = process.unwrap_or(self.thread);
        let opened = notify::open_thread(self.thread, process)?;
        self.check()?;
        sys::descriptor_of(opened.as_fd(), number)
    }

    /// Reads the address of a `bind`.
    ///
    /// # Errors
    /// `EFAULT` and `EINVAL` in the same cases as the kernel.
    pub fn address(&self, at: u64, len: u32) -> io::Result<Vec<u8>> {
        match len as usize {
            len if len > ADDRESS_BYTES => Err(errno(libc::EINVAL)),
            len => self.memory(at, len),
        }
    }

    /// Applies a change, including a lock, to a socket that is not a packet socket, on behalf of the caller.
    ///
    /// # Errors
    /// The errors that the kernel gives for the same call.
    pub fn change_other(&self, change: FilterChange, socket: BorrowedFd<'_>) -> io::Result<()> {
        match change.name {
            libc::SO_LOCK_FILTER => notify::lock_filter(socket, self.number(change)?),
            _ => self.change_filter(change, socket).map(drop),
        }
    }

    /// Applies a change to a packet socket on behalf of the caller. Returns the number of bytes of a frame that the new
    /// filter keeps; 0 if that is unknown or none. A lock is not applied, so this process can still change the filter.
    ///
    /// # Errors
    /// The errors that the kernel gives for the same call.
    pub fn change_filter(&self, change: FilterChange, socket: BorrowedFd<'_>) -> io::Result<u32> {
        match change.name {
            libc::SO_ATTACH_FILTER => {
                let program = self.classic_filter(change)?;
                notify::attach_classic(socket, &program)?;
                return Ok(crate::sockets::keeps(&program));
            }
            libc::SO_ATTACH_BPF => {
                let program = self.descriptor(self.number(change)?)?;
                sys::attach(socket, program.as_fd())?;
            }
            libc::SO_DETACH_FILTER => sys::detach(socket)?,
            _ => {
                self.number(change)?;
            }
        }
        Ok(0)
    }

    fn classic_filter(&self, change: FilterChange) -> io::Result<Vec<libc::sock_filter>> {
        const HEAD: usize = size_of::<libc::sock_fprog>();
        if change.len as usize != HEAD {
            return Err(errno(libc::EINVAL));
        }
        let head = self.memory(change.value, HEAD)?;
        let (count, place) = (u16::from_ne_bytes([head[0], head[1]]), &head[HEAD - 8..]);
        let place = u64::from_ne_bytes(<[u8; 8]>::try_from(place).map_err(io::Error::other)?);
        if count == 0 || usize::from(count) > FILTER_LIMIT {
            return Err(errno(libc::EINVAL));
        }
        let bytes = self.memory(place, usize::from(count) * size_of::<libc::sock_filter>())?;
        let instruction = |bytes: &[u8]| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        Ok(bytes.chunks_exact(size_of::<libc::sock_filter>()).map(instruction).collect())
    }

    fn number(&self, change: FilterChange) -> io::Result<i32> {
        if (change.len as usize) < size_of::<i32>() {
            return Err(errno(libc::EINVAL));
        }
        let bytes = self.memory(change.value, size_of::<i32>())?;
        Ok(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Opens the packet socket that the caller requested, in its network namespace; the socket receives nothing yet.
    ///
    /// # Errors
    /// `EPERM` if the caller may not open packet sockets; otherwise those of the system calls.
    pub fn silent_socket(&self, kind: i32) -> io::Result<PacketSocket> {
        let net = File::open(self.file("ns/net"))?;
        if !self.may_open_packet_sockets(&net)? {
            return Err(errno(libc::EPERM));
        }
        self.check()?;
        let ours = File::open("/proc/thread-self/ns/net")?.metadata()?.ino();
        if net.metadata()?.ino() != ours {
            notify::enter_net(net.as_fd())?;
        }
        let socket = PacketSocket::of(notify::silent_packet_socket(kind)?);
        socket.ok_or_else(|| errno(libc::ESOCKTNOSUPPORT))
    }

    /// True if the caller has `CAP_NET_RAW` in the user namespace that owns its network namespace.
    fn may_open_packet_sockets(&self, net: &File) -> io::Result<bool> {
        let set = self.status("CapEff:").and_then(|set| u64::from_str_radix(&set, 16).ok());
        if set.is_none_or(|set| set >> CAP_NET_RAW & 1 == 0) {
            return Ok(false);
        }
        let user = std::fs::metadata(self.file("ns/user"))?.ino();
        if user == std::fs::metadata("/proc/self/ns/user")?.ino() {
            return Ok(true);
        }
        let owner = File::from(notify::owner_of_net(net.as_fd())?);
        Ok(owner.metadata()?.ino() == user)
    }

    fn memory(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if len > 0 {
            notify::read_memory(self.thread, at, &mut bytes)?;
        }
        self.check()?;
        Ok(bytes)
    }

    /// Succeeds if the call still waits, so that data just read under the caller's process number is the caller's.
    fn check(&self) -> io::Result<()> {
        match notify::still_waits(self.listener.0.as_fd(), self.id) {
            true => Ok(()),
            false => Err(errno(libc::ESRCH)),
        }
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.thread)
    }

    fn status(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.file("status")).ok()?;
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Binds a packet socket to an address that another process wrote.
///
/// # Errors
/// Errors of the system call.
pub fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    notify::bind(socket, address)
}

/// Refuses an address of packet sockets for a socket that is none, as the kernel does.
///
/// # Errors
/// `EAFNOSUPPORT` for such an address.
pub fn check_other(address: &[u8]) -> io::Result<()> {
    match address.starts_with(&(libc::AF_PACKET as u16).to_ne_bytes()) {
        true => Err(errno(libc::EAFNOSUPPORT)),
        false => Ok(()),
    }
}

/// Lets a socket receive frames of a protocol (network byte order) from all interfaces, as `socket` with a protocol
/// does.
///
/// # Errors
/// Errors of the system call.
pub fn listen_everywhere(socket: BorrowedFd<'_>, protocol: u16) -> io::Result<()> {
    let mut address = [0; size_of::<libc::sockaddr_ll>()];
    address[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&protocol.to_ne_bytes());
    notify::bind(socket, &address)
}

mod number {
    //! Call numbers of the other instruction sets that the same kernel may run.
    #[cfg(target_arch = "x86_64")]
    pub const ARCH: (u32, u32) = (0xC000_003E, 0x4000_0003);
    /// i386: `socketcall`, `socket`, `bind`, `setsockopt`.
    #[cfg(target_arch = "x86_64")]
    pub const OTHERS: [u32; 4] = [102, 359, 361, 366];
    #[cfg(not(target_arch = "x86_64"))]
    pub const ARCH: (u32, u32) = (0xC000_00B7, 0x4000_0028);
    /// Arm: `socketcall`, `socket`, `bind`, `setsockopt`.
    #[cfg(not(target_arch = "x86_64"))]
    pub const OTHERS: [u32; 4] = [102, 281, 282, 294];
    /// The same number in every instruction set.
    pub const IO_URING_SETUP: u32 = 425;
    /// Calls of x32 have this bit.
    #[cfg(target_arch = "x86_64")]
    pub const X32: u32 = 0x4000_0000;
}

/// The classic BPF program that decides which calls are held.
pub(crate) fn program() -> Vec<libc::sock_filter> {
    use fyke_frame::bpf::code::{self, JEQ as EQUAL, JGE as AT_LEAST, RET_K as RETURN};
    const LOAD: u16 = code::LD_W_ABS;
    const AND: u16 = code::ALU | code::AND;
    let fails = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
    let (hold, allow) = (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW);
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    // The low half of an argument: both instruction sets are little-endian, and these arguments are `int`.
    let argument = |index: u32| step(LOAD, 16 + 8 * index);
    // A test, and the instructions that run only if it holds.
    let when = |code, k, then: &[libc::sock_filter]| {
        let mut all = vec![libc::sock_filter { code, jt: 0, jf: then.len() as u8, k }];
        all.extend_from_slice(then);
        all
    };
    let returns_if = |code, k, what| when(code, k, &[step(RETURN, what)]);

    let obsolete =
        [vec![argument(1), step(AND, 0xF)], returns_if(EQUAL, 10, fails(libc::ESOCKTNOSUPPORT))];
    let socket = [
        vec![argument(0)],
        returns_if(EQUAL, libc::AF_PACKET as u32, hold),
        when(EQUAL, libc::AF_INET as u32, &obsolete.concat()),
        vec![step(RETURN, allow)],
    ];
    let filters =
        [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER, libc::SO_LOCK_FILTER, libc::SO_ATTACH_BPF];
    let filters = filters.map(|name| returns_if(EQUAL, name as u32, hold)).concat();
    let option = [
        vec![argument(1)],
        when(EQUAL, libc::SOL_SOCKET as u32, &[vec![argument(2)], filters].concat()),
        vec![step(RETURN, allow)],
    ];
    // Addresses of packet sockets have at least 20 bytes; those of IPv4 and netlink have fewer.
    let bind = [
        vec![argument(2)],
        returns_if(AT_LEAST, size_of::<libc::sockaddr_ll>() as u32, hold),
        vec![step(RETURN, allow)],
    ];
    let missing = fails(libc::ENOSYS);
    let mut native = vec![step(LOAD, 0)];
    #[cfg(target_arch = "x86_64")]
    native.extend(returns_if(AT_LEAST, number::X32, missing));
    native.extend(returns_if(EQUAL, number::IO_URING_SETUP, missing));
    native.extend(when(EQUAL, libc::SYS_bind as u32, &bind.concat()));
    native.extend(when(EQUAL, libc::SYS_socket as u32, &socket.concat()));
    native.extend(when(EQUAL, libc::SYS_setsockopt as u32, &option.concat()));
    native.push(step(RETURN, allow));
    let mut other = vec![step(LOAD, 0)];
    other.extend(returns_if(EQUAL, number::IO_URING_SETUP, missing));
    for call in number::OTHERS {
        other.extend(returns_if(EQUAL, call, fails(libc::EPERM)));
    }
    other.push(step(RETURN, allow));
    [
        vec![step(LOAD, 4)],
        when(EQUAL, number::ARCH.0, &native),
        when(EQUAL, number::ARCH.1, &other),
        vec![step(RETURN, missing)],
    ]
    .concat()
}
