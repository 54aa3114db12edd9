//! The network interfaces of this machine (of this network namespace), by getifaddrs(3).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One network interface.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// `ARPHRD_…`
    pub(crate) hardware: u16,
    pub(crate) up: bool,
    pub(crate) running: bool,
    pub(crate) loopback: bool,
    pub(crate) addresses: Vec<IpAddr>,
}

/// All interfaces, in the kernel's order. Needs no privilege.
pub(crate) fn devices() -> io::Result<Vec<Device>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut devices: Vec<Device> = Vec::new();
    let mut addresses = Vec::new();
    let mut entry = first;
    // SAFETY: `entry` is null or a node of the list, which lives until freeifaddrs.
    while let Some(node) = unsafe { entry.as_ref() } {
        entry = node.ifa_next;
        // SAFETY: the name of a node is a text that ends with zero.
        let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: the address of a node is null or a sockaddr.
        let Some(family) = unsafe { node.ifa_addr.as_ref() }.map(|any| any.sa_family) else {
            continue;
        };
        match libc::c_int::from(family) {
            libc::AF_PACKET => {
                // SAFETY: an address of this family is a sockaddr_ll; nothing promises its alignment.
                let link = unsafe { node.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned() };
                let is = |flag: libc::c_int| node.ifa_flags & flag as u32 != 0;
                devices.push(Device {
                    name,
                    index: link.sll_ifindex as u32,
                    hardware: link.sll_hatype,
                    up: is(libc::IFF_UP),
                    running: is(libc::IFF_RUNNING),
                    loopback: is(libc::IFF_LOOPBACK),
                    addresses: Vec::new(),
                });
            }
            libc::AF_INET => {
                // SAFETY: an address of this family is a sockaddr_in.
                let v4 = unsafe { node.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                let bits = u32::from_be(v4.sin_addr.s_addr);
                addresses.push((name, IpAddr::V4(Ipv4Addr::from_bits(bits))));
            }
            libc::AF_INET6 => {
                // SAFETY: an address of this family is a sockaddr_in6.
                let v6 = unsafe { node.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                addresses.push((name, IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))));
            }
            _ => {}
        }
    }
    // SAFETY: `first` came from getifaddrs and is freed once; nothing borrowed from the list is left.
    unsafe { libc::freeifaddrs(first) };
    for (name, address) in addresses {
        // An address may belong to a label such as `eth0:1`.
        let owner = name.split(':').next().unwrap_or_default();
        if let Some(device) = devices.iter_mut().find(|device| device.name == owner) {
            device.addresses.push(address);
        }
    }
    Ok(devices)
}
