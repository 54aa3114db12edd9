//! Search for packet sockets of other processes, and copies of their descriptors.
//!
//! A copy of a descriptor refers to the same socket: a filter attached through it is the other process's filter, and
//! the other process does not notice. A copy keeps the socket open, so none is kept longer than needed. Needs
//! `pidfd_getfd` (Linux 5.6) and the right to trace the process.

use crate::sys;
use fyke_frame::LinkType;
use fyke_frame::bpf::code;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A packet socket of another process.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// Calls `each` once for every packet socket that the processes have open now.
pub fn for_each(processes: &[u32], mut each: impl FnMut(&PacketSocket)) {
    let mut seen = HashSet::new();
    for &process in processes {
        // A process may end at any point; then it has no sockets left.
        let Ok(descriptor) = sys::open_process(process) else { continue };
        let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        for entry in entries.flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let is_socket = target.to_str().is_some_and(|target| target.starts_with("socket:["));
            let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
            let Some(number) = number.filter(|_| is_socket) else { continue };
            if !seen.insert(target) {
                continue;
            }
            let socket = sys::descriptor_of(descriptor.as_fd(), number).ok();
            if let Some(socket) = socket.and_then(PacketSocket::of) {
                each(&socket);
            }
        }
    }
}

impl PacketSocket {
    /// Makes a packet socket of a descriptor; `None` if the descriptor is something else.
    pub fn of(descriptor: OwnedFd) -> Option<PacketSocket> {
        let domain = sys::domain(descriptor.as_fd()).ok()?;
        (domain == libc::AF_PACKET).then_some(PacketSocket(descriptor))
    }

    /// Makes a packet socket of a descriptor that the caller knows to be one.
    pub(crate) fn new(descriptor: OwnedFd) -> PacketSocket {
        PacketSocket(descriptor)
    }

    /// Link type of the frames as the filter texts see them. Frames of a cooked socket (`-i any`) have no link header;
    /// texts use the one that such frames have in files. Other sockets have the link type of their interface.
    ///
    /// # Errors
    /// The interface is of a kind that is not supported here.
    pub fn link(&self) -> io::Result<LinkType> {
        self.link_at(sys::hardware(self.0.as_fd())?)
    }

    /// Number of the interface that the socket is bound to; 0 if it is not bound.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn interface(&self) -> io::Result<u32> {
        sys::interface(self.0.as_fd())
    }

    /// Number of the interface of an address (`sockaddr_ll`); 0 for all interfaces.
    pub fn interface_of(address: &[u8]) -> u32 {
        let bytes = address.get(4..8).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    /// Link type of the frames after the socket is bound to an address (`sockaddr_ll`).
    ///
    /// # Errors
    /// As [`PacketSocket::link`], or there is no such interface.
    pub fn link_when_bound(&self, address: &[u8]) -> io::Result<LinkType> {
        match PacketSocket::interface_of(address) as i32 {
            0 => self.link_at(libc::ARPHRD_ETHER),
            interface => self.link_at(sys::notify::hardware_at(self.0.as_fd(), interface)?),
        }
    }

    fn link_at(&self, hardware: u16) -> io::Result<LinkType> {
        const ETHERNET: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
        /// Kinds of interfaces with frames that begin with the IP header: tunnels.
        const BARE: [u16; 5] = [libc::ARPHRD_NONE, 519, 768, 776, 778];
        if sys::kind(self.0.as_fd())? != libc::SOCK_RAW {
            return Ok(LinkType::LINUX_SLL2);
        }
        match hardware {
            kind if ETHERNET.contains(&kind) => Ok(LinkType::EN10MB),
            kind if BARE.contains(&kind) => Ok(LinkType::RAW),
            kind => Err(io::Error::other(format!(
                "its interface is of kind {kind}; only Ethernet, tunnels and cooked sockets are supported"
            ))),
        }
    }
}

/// Most bytes of a frame that a classic BPF filter keeps. 0 if the filter rejects every frame, as libpcap's does for a
/// moment while it changes filters, or if it returns only computed values.
pub fn keeps(program: &[libc::sock_filter]) -> u32 {
    let returns = program.iter().filter(|instruction| instruction.code == code::RET_K);
    returns.map(|instruction| instruction.k).max().unwrap_or(0)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a packet socket that receives all frames of an interface. Needs root or `CAP_NET_RAW`.
///
/// # Errors
/// There is no such interface, or the privilege is missing.
pub fn open(interface: &str) -> io::Result<OwnedFd> {
    sys::packet_socket(interface)
}

/// Requests a receive queue of this many bytes; with the privilege, beyond the system's limit.
///
/// # Errors
/// The descriptor is not a socket, or the privilege is missing.
pub fn set_queue(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    sys::set_queue(socket, bytes)
}
