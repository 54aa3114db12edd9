//! System calls of the live benches: a packet socket that sends, a capture ring that only counts, the end of a child.
//!
//! Source: packet(7), sendmmsg(2), wait4(2).

pub mod child;
pub mod count;
pub mod send;

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a packet socket that receives nothing until it is bound to a protocol.
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to a device of this thread's namespace and a protocol in network byte order.
fn bind(socket: &OwnedFd, device: &str, protocol: u16) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(device).map_err(io::Error::from)?;
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    let len = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `address`, which the call only reads.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of a packet socket; `T` is a plain structure of the kernel.
fn set<T: Copy>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (&raw const *value).cast());
    // SAFETY: the pointer and the length are those of `value`, which the call only reads.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
