//! The network interfaces of this machine (of this network namespace): if_nameindex(3) for names, ioctl(2) for
//! properties, getifaddrs(3) for addresses. (getifaddrs alone omits interfaces without addresses.)

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// One network interface.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// `ARPHRD_…`
    pub(crate) hardware: u16,
    /// Address of an Ethernet interface.
    pub(crate) address: [u8; 6],
    pub(crate) up: bool,
    pub(crate) running: bool,
    pub(crate) loopback: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// Netmask of its first IPv4 address.
    pub(crate) netmask: Option<u32>,
}

/// Lists all interfaces, in the kernel's order. Needs no privilege.
pub(crate) fn devices() -> io::Result<Vec<Device>> {
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut devices = Vec::new();
    for (index, name) in names()? {
        // An interface that has disappeared in between is left out.
        if let Some(device) = describe(&socket, index, &name) {
            devices.push(device);
        }
    }
    for Address { name, address, netmask } in addresses()? {
        // An address may belong to a label such as `eth0:1`.
        let owner = name.split(':').next().unwrap_or_default();
        if let Some(device) = devices.iter_mut().find(|device| device.name == owner) {
            device.addresses.push(address);
            device.netmask = device.netmask.or(netmask);
        }
    }
    Ok(devices)
}

/// The index of the interface with this name, if it exists now.
pub(crate) fn index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the name ends with zero and lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

fn names() -> io::Result<Vec<(u32, String)>> {
    // SAFETY: no memory is passed; the list is freed below.
    let first = unsafe { libc::if_nameindex() };
    if first.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut entry = first;
    loop {
        // SAFETY: `entry` is in the list, which ends with index 0 and a null name.
        let here = unsafe { &*entry };
        if here.if_index == 0 || here.if_name.is_null() {
            break;
        }
        // SAFETY: the name is a text that ends with zero.
        let name = unsafe { CStr::from_ptr(here.if_name) };
        names.push((here.if_index, name.to_string_lossy().into_owned()));
        // SAFETY: this entry was not the last.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: `first` came from if_nameindex and is freed once; nothing borrowed from the list is left.
    unsafe { libc::if_freenameindex(first) };
    Ok(names)
}

fn describe(socket: &OwnedFd, index: u32, name: &str) -> Option<Device> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let fd = socket.as_raw_fd();
    // The type of a request's number differs between C libraries.
    // SAFETY: the request is an ifreq with a name that ends with zero; the kernel fills in its address.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFHWADDR as _, &raw mut request) } < 0 {
        return None;
    }
    // SAFETY: the call above has filled in this member; any bytes are a sockaddr.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
    let (hardware, address) = (hardware.sa_family, hardware.sa_data);
    // SAFETY: as above; the name has not changed.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFFLAGS as _, &raw mut request) } < 0 {
        return None;
    }
    // SAFETY: the call above has filled in this member; any bytes are a number.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    Some(Device {
        name: name.to_owned(),
        index,
        hardware,
        address: std::array::from_fn(|at| address[at] as u8),
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        addresses: Vec::new(),
        netmask: None,
    })
}

/// An address of the interface, or of the label, with this name.
struct Address {
    name: String,
    address: IpAddr,
    netmask: Option<u32>,
}

fn addresses() -> io::Result<Vec<Address>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut entry = first;
    // SAFETY: `entry` is null or a node of the list, which lives until freeifaddrs.
    while let Some(node) = unsafe { entry.as_ref() } {
        entry = node.ifa_next;
        // SAFETY: the address of a node is null or a sockaddr.
        let Some(family) = unsafe { node.ifa_addr.as_ref() }.map(|any| any.sa_family) else {
            continue;
        };
        let mut netmask = None;
        let address = match libc::c_int::from(family) {
            libc::AF_INET => {
                // SAFETY: an address of this family is a sockaddr_in; its alignment is not guaranteed.
                let v4 = unsafe { node.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                if !node.ifa_netmask.is_null() {
                    // SAFETY: the netmask of an IPv4 address is a sockaddr_in, too.
                    let mask =
                        unsafe { node.ifa_netmask.cast::<libc::sockaddr_in>().read_unaligned() };
                    netmask = Some(u32::from_be(mask.sin_addr.s_addr));
                }
                IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: an address of this family is a sockaddr_in6; its alignment is not guaranteed.
                let v6 = unsafe { node.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        // SAFETY: the name of a node is a text that ends with zero.
        let name = unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned();
        addresses.push(Address { name, address, netmask });
    }
    // SAFETY: `first` came from getifaddrs and is freed once; nothing borrowed from the list is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}
