//! Packet sockets of other processes: finding them, looking at their filter, taking a copy of the descriptor.
//!
//! A copy of a descriptor is the same socket: a filter attached through it is the other process's filter, and the
//! other process notices nothing. Needs `pidfd_getfd` (Linux 5.6) and the right to trace the process.

use crate::sys;
use fyke_frame::LinkType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;

/// Return with a constant, in a classic filter.
const RETURN_CONSTANT: u16 = 0x06;

/// A process, found by its number and the same whatever becomes of the number.
#[derive(Debug)]
pub struct Process {
    number: u32,
    descriptor: OwnedFd,
}

/// A packet socket of another process.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// Identifies the socket; its descriptors in all processes have the same.
    pub inode: u64,
}

/// What a classic filter is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassicFilter {
    /// Instructions; 0 when there is no classic filter.
    pub instructions: usize,
    /// Most bytes that it keeps of a frame; 0 when it rejects every frame, as libpcap's does for a moment while it
    /// changes filters.
    pub keeps: u32,
}

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    /// It is gone, or may not be looked at.
    pub fn open(number: u32) -> io::Result<Process> {
        Ok(Process { number, descriptor: sys::open_process(number)? })
    }

    /// The packet sockets that it has open now, each once.
    ///
    /// # Errors
    /// The process is gone, or its descriptors may not be copied.
    pub fn packet_sockets(&self) -> io::Result<Vec<PacketSocket>> {
        let mut found: Vec<PacketSocket> = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.number))? {
            let entry = entry?;
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            let Some(inode) = inode.and_then(|inode| inode.parse().ok()) else { continue };
            let number = entry.file_name().to_string_lossy().parse();
            let Ok(number) = number else { continue };
            if found.iter().any(|socket| socket.inode == inode) {
                continue;
            }
            let socket = match sys::descriptor_of(self.descriptor.as_fd(), number) {
                Ok(socket) => socket,
                // Closed in the meantime.
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue,
                Err(error) => return Err(error),
            };
            if sys::domain(socket.as_fd()).is_ok_and(|domain| domain == libc::AF_PACKET) {
                found.push(PacketSocket { socket, inode });
            }
        }
        Ok(found)
    }
}

impl PacketSocket {
    /// The filter that the socket has.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn classic_filter(&self) -> io::Result<ClassicFilter> {
        let program = sys::classic_filter(self.socket.as_fd())?;
        let returns = program.iter().filter(|instruction| instruction.code == RETURN_CONSTANT);
        let keeps = returns.map(|instruction| instruction.k).max().unwrap_or(0);
        Ok(ClassicFilter { instructions: program.len(), keeps })
    }

    /// What the frames are that its filter sees: a cooked socket's (`-i any`) have no link header, and texts are read
    /// for the one that they get in files; others have that of the interface that the socket is bound to.
    ///
    /// # Errors
    /// The interface is of a kind that texts are not read for here.
    pub fn link(&self) -> io::Result<LinkType> {
        const ETHERNET: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
        /// Interfaces whose frames begin with the IP header: tunnels.
        const BARE: [u16; 5] = [libc::ARPHRD_NONE, 519, 768, 776, 778];
        if sys::kind(self.socket.as_fd())? != libc::SOCK_RAW {
            return Ok(LinkType::LINUX_SLL2);
        }
        match sys::hardware(self.socket.as_fd())? {
            kind if ETHERNET.contains(&kind) => Ok(LinkType::EN10MB),
            kind if BARE.contains(&kind) => Ok(LinkType::RAW),
            kind => Err(io::Error::other(format!(
                "its interface is of kind {kind}; Ethernet, tunnels and cooked sockets are known"
            ))),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ends the command's process with SIGTERM when this one ends, however that happens. A process that changes its user
/// gets rid of this.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    sys::die_with_parent(command)
}

/// A packet socket that receives all frames of an interface. Needs root or `CAP_NET_RAW`.
///
/// # Errors
/// There is no such interface, or the privilege is missing.
pub fn open(interface: &str) -> io::Result<OwnedFd> {
    sys::packet_socket(interface)
}

/// Asks for a receive queue of this many bytes, beyond the system's limit where the privilege is there.
///
/// # Errors
/// The descriptor is no socket, or the privilege is missing.
pub fn set_queue(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    sys::set_queue(socket, bytes)
}
