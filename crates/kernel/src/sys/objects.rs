//! System calls for objects of the kernel that have numbers: maps and programs of other processes, links to interfaces.
//!
//! Minimum kernels: numbers 4.13, links at XDP 5.9.

use super::owned;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// XDP in the driver.
pub const XDP_DRIVER: u32 = 1 << 2;
/// XDP in the network stack.
pub const XDP_GENERIC: u32 = 1 << 1;
/// The attach type of XDP.
pub const XDP: u32 = 37;

const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_BY_NUMBER: libc::c_int = 13;
const MAP_BY_NUMBER: libc::c_int = 14;
const FACTS: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;

/// Bytes of the name of an object, with a final zero.
const NAME_BYTES: usize = 16;

/// Calls `bpf` with arguments that are laid out as the start of union bpf_attr for the command.
///
/// # Safety
/// Addresses in the arguments are valid for the command.
unsafe fn bpf<T>(command: libc::c_int, arguments: &mut T) -> libc::c_long {
    // SAFETY: the size of the arguments is passed; the caller vouches for what they point to.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(arguments), size_of::<T>()) }
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Stores a program in the first place of an array of programs.
pub fn set_program(map: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (key, value) = (0_u32, program.as_raw_fd() as u32);
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    let mut element = Element { map: map.as_raw_fd() as u32, unused: 0, key, value, flags: 0 };
    // SAFETY: key and value are words of this function, as long as those of such a map.
    done(unsafe { bpf(MAP_UPDATE, &mut element) })
}

#[repr(C)]
struct Number {
    number: u32,
    next: u32,
    flags: u32,
}

fn by_number(command: libc::c_int, number: u32) -> io::Result<OwnedFd> {
    let mut arguments = Number { number, next: 0, flags: 0 };
    // SAFETY: no addresses.
    owned(unsafe { bpf(command, &mut arguments) })
}

/// Opens a map by its number. Needs root (`CAP_SYS_ADMIN`).
pub fn map_by_number(number: u32) -> io::Result<OwnedFd> {
    by_number(MAP_BY_NUMBER, number)
}

#[repr(C)]
struct FactsArguments {
    object: u32,
    len: u32,
    to: u64,
}

/// Fills the first bytes of an object's description.
fn facts<const BYTES: usize>(object: BorrowedFd<'_>) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0_u8; BYTES];
    let to = bytes.as_mut_ptr() as u64;
    let object = object.as_raw_fd() as u32;
    let mut arguments = FactsArguments { object, len: BYTES as u32, to };
    // SAFETY: the kernel writes at most `len` bytes to `to`; all addresses in what it reads there are 0.
    done(unsafe { bpf(FACTS, &mut arguments) })?;
    Ok(bytes)
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Facts about a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapFacts {
    /// Its number.
    pub number: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
}

/// Returns the facts about a map.
pub fn map_facts(map: BorrowedFd<'_>) -> io::Result<MapFacts> {
    let bytes: [u8; 24] = facts(map)?;
    Ok(MapFacts { number: word_at(&bytes, 4), value_bytes: word_at(&bytes, 12) })
}

/// Returns the name of a program. Needs root (`CAP_SYS_ADMIN`).
pub fn program_name(number: u32) -> io::Result<String> {
    const NAME_AT: usize = 64;
    let program = by_number(PROGRAM_BY_NUMBER, number)?;
    let bytes: [u8; NAME_AT + NAME_BYTES] = facts(program.as_fd())?;
    let name = bytes[NAME_AT..].split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[repr(C)]
struct LinkArguments {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Attaches a program to an interface at XDP, until the link is closed.
pub fn attach_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let mut arguments = LinkArguments { program, interface, kind: XDP, flags };
    // SAFETY: no addresses.
    owned(unsafe { bpf(LINK_CREATE, &mut arguments) })
}

/// True if the interface of a link is gone.
pub fn is_detached(link: &OwnedFd) -> io::Result<bool> {
    const INTERFACE_AT: usize = 16;
    let bytes: [u8; INTERFACE_AT + 4] = facts(link.as_fd())?;
    Ok(word_at(&bytes, INTERFACE_AT) == 0)
}

/// Waits until a process ends.
pub fn wait_for_end(process: &OwnedFd) {
    let mut ended = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of this function.
    while unsafe { libc::poll(&raw mut ended, 1, -1) } < 1 {}
}

/// Waits for changes of a pipe.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Begins to watch a pipe that is open for reading only.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn of(pipe: BorrowedFd<'_>) -> io::Result<Watch> {
        // SAFETY: no pointers.
        let watch = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())?;
        let changes = libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: changes as u32, u64: 0 };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: the event is of this function.
        let added =
            unsafe { libc::epoll_ctl(watch.as_raw_fd(), add, pipe.as_raw_fd(), &raw mut event) };
        done(added.into())?;
        Ok(Watch(watch))
    }

    /// Waits until data have come, or the last writer has gone, since the last call.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn wait(&self) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event, of this function.
        let waited = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, -1) };
        match done(waited.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            waited => waited,
        }
    }
}

/// Number of an interface of the calling thread's network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name ends in zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Facts about an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// Number of the program that it runs at XDP.
    pub xdp_program: Option<u32>,
    /// Number of the interface of which it is a port.
    pub master: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its address, if it is an Ethernet interface.
    pub address: [u8; 6],
    /// Its kind, such as `bridge`; empty for hardware.
    pub kind: String,
    /// Kind of its frames (`ARPHRD_…`).
    pub hardware: u16,
}

/// Returns the facts about an interface of the calling thread's network namespace.
pub fn link_facts(interface: u32) -> io::Result<LinkFacts> {
    let answer = Netlink::ask(libc::NETLINK_ROUTE, &link_request(interface))?.receive()?;
    facts_of_answer(&answer)
}

/// Returns the interfaces on top of another one, such as a VLAN or a macvlan, in the calling thread's network
/// namespace.
pub fn uppers(interface: u32) -> io::Result<Vec<LinkFacts>> {
    let mut uppers = Vec::new();
    Netlink::list(&listed(link_request(0)), |message| {
        let attributes = message.get(HEADER_BYTES + LINK_BYTES..).unwrap_or_default();
        let below = attribute(attributes, IFLA_LINK).map(|value| word_at(value, 0));
        let is_here = attribute(attributes, IFLA_LINK_NAMESPACE).is_none();
        if below == Some(interface) && is_here {
            uppers.extend(facts_of_answer(message));
        }
    })?;
    // The other end of a pair is not on top.
    uppers.retain(|upper| upper.kind != "veth");
    Ok(uppers)
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Network and length of its prefix; `None` for the default route.
    pub net: Option<(IpAddr, u8)>,
    /// Number of the table, 254 for the main one.
    pub table: u32,
}

/// Returns the routes that leave by an interface, of all tables, in the calling thread's network namespace. Those of
/// broadcasts, multicast and own addresses are not among them.
pub fn routes(interface: u32) -> io::Result<Vec<Route>> {
    let mut routes = Vec::new();
    Netlink::list(&listed(request(RTM_GETROUTE, ROUTE_BYTES)), |message| {
        routes.extend(route_in(message, interface));
    })?;
    Ok(routes)
}

fn route_in(message: &[u8], interface: u32) -> Option<Route> {
    const UNICAST: u8 = 1;
    const NEXT_HOP_BYTES: usize = 8;
    let header: &[u8; ROUTE_BYTES] = message.get(HEADER_BYTES..)?.first_chunk()?;
    let attributes = message.get(HEADER_BYTES + ROUTE_BYTES..)?;
    let mut leaves = attribute(attributes, RTA_OIF).is_some_and(|to| word_at(to, 0) == interface);
    let mut hops = attribute(attributes, RTA_MULTIPATH).unwrap_or_default();
    while let Some(&[low, high, ..]) = hops.first_chunk::<NEXT_HOP_BYTES>() {
        leaves |= word_at(hops, 4) == interface;
        let len = usize::from(u16::from_ne_bytes([low, high])).max(NEXT_HOP_BYTES);
        hops = hops.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    let table = attribute(attributes, RTA_TABLE);
    let table = table.map_or(u32::from(header[4]), |value| word_at(value, 0));
    let net = attribute(attributes, RTA_DST).and_then(|address| match address.len() {
        4 => Some(IpAddr::from(*address.first_chunk::<4>()?)),
        _ => Some(IpAddr::from(*address.first_chunk::<16>()?)),
    });
    // Before Linux 5.4, the route of IPv6 multicast is like any other.
    let wanted = leaves && header[7] == UNICAST && !net.is_some_and(|net| net.is_multicast());
    wanted.then(|| Route { net: net.map(|net| (net, header[1])), table })
}

/// A request to the kernel's routing sockets.
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    /// Sends a request to a protocol of netlink.
    pub(super) fn ask(protocol: libc::c_int, request: &[u8]) -> io::Result<Netlink> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        let socket = owned(socket.into())?;
        let (from, len) = (request.as_ptr().cast(), request.len());
        // SAFETY: `request` is a slice, and its length is passed.
        let sent = unsafe { libc::send(socket.as_raw_fd(), from, len, libc::MSG_DONTWAIT) };
        done(sent as libc::c_long)?;
        Ok(Netlink(socket))
    }

    /// Returns the next datagram of the answer, which is there when the request returns, or when the one before it has
    /// been taken.
    pub(super) fn receive(&self) -> io::Result<Vec<u8>> {
        let mut answer = vec![0_u8; 64 << 10];
        let (to, room) = (answer.as_mut_ptr().cast(), answer.len());
        // SAFETY: `answer` is ours, and its length is passed.
        let received = unsafe { libc::recv(self.0.as_raw_fd(), to, room, libc::MSG_DONTWAIT) };
        done(received as libc::c_long)?;
        answer.truncate(usize::try_from(received).unwrap_or(0));
        Ok(answer)
    }

    /// Fails if an answer is a refusal.
    pub(super) fn refusal(answer: &[u8]) -> io::Result<()> {
        let kind = answer.get(4..).and_then(|rest| rest.first_chunk()).copied();
        match kind.map(u16::from_ne_bytes) {
            Some(NLMSG_ERROR) => {
                Err(io::Error::from_raw_os_error(-(word_at(answer, HEADER_BYTES) as i32)))
            }
            _ => Ok(()),
        }
    }

    /// Calls `each` with every message of a list.
    fn list(request: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
        const DONE: u16 = 3;
        let socket = Netlink::ask(libc::NETLINK_ROUTE, request)?;
        loop {
            let answer = socket.receive()?;
            let mut rest = &answer[..];
            while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
                match u16::from_ne_bytes([header[4], header[5]]) {
                    DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let number = -(word_at(rest, HEADER_BYTES) as i32);
                        return Err(io::Error::from_raw_os_error(number));
                    }
                    _ => {}
                }
                let len = (word_at(rest, 0) as usize).max(HEADER_BYTES);
                each(&rest[..len.min(rest.len())]);
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

pub(super) const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const RTM_GETROUTE: u16 = 26;
const ROUTE_BYTES: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const IFLA_ADDRESS: u16 = 1;
const IFLA_NAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINK_NAMESPACE: u16 = 37;
const IFLA_MASTER: u16 = 10;
const IFLA_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
/// Numbers of the programs: any, driver, generic, hardware.
const XDP_NUMBERS: [u16; 4] = [4, 5, 6, 7];

/// Makes a request with an empty body.
pub(super) fn request(kind: u16, body: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; HEADER_BYTES + body];
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&1_u16.to_ne_bytes());
    bytes
}

/// Appends an attribute to a request.
pub(super) fn put_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
}

/// Makes a request one for a list.
fn listed(mut request: Vec<u8>) -> Vec<u8> {
    const REQUEST_AND_DUMP: u16 = 0x301;
    request[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    request
}

fn link_request(interface: u32) -> Vec<u8> {
    let mut bytes = request(RTM_GETLINK, LINK_BYTES);
    bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&interface.to_ne_bytes());
    bytes
}

/// Reads an answer. Source: rtnetlink(7), `linux/if_link.h`.
fn facts_of_answer(answer: &[u8]) -> io::Result<LinkFacts> {
    let short = || io::Error::other("the kernel's answer about the interface is too short");
    Netlink::refusal(answer)?;
    let attributes = answer.get(HEADER_BYTES + LINK_BYTES..).ok_or_else(short)?;
    let info = attribute(attributes, IFLA_INFO).unwrap_or_default();
    let text = |value: Option<&[u8]>| {
        let bytes = value.unwrap_or_default().split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(LinkFacts {
        xdp_program: attribute(attributes, IFLA_XDP).and_then(program_in),
        master: attribute(attributes, IFLA_MASTER).map(|value| word_at(value, 0)),
        address: attribute(attributes, IFLA_ADDRESS)
            .and_then(|value| value.first_chunk().copied())
            .unwrap_or_default(),
        name: text(attribute(attributes, IFLA_NAME)),
        kind: text(attribute(info, INFO_KIND)),
        hardware: u16::from_ne_bytes([answer[HEADER_BYTES + 2], answer[HEADER_BYTES + 3]]),
    })
}

fn program_in(xdp: &[u8]) -> Option<u32> {
    let how = attribute(xdp, XDP_ATTACHED)?;
    let numbers = XDP_NUMBERS.iter().filter_map(|&kind| attribute(xdp, kind));
    let mut numbers = numbers.map(|value| word_at(value, 0));
    if how.first() == Some(&0) { None } else { numbers.find(|&number| number != 0) }
}

/// Addresses of an interface of the calling thread's network namespace.
pub fn addresses(interface: &str) -> io::Result<Vec<IpAddr>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is ours; the call stores a list there, which is freed below.
    done(unsafe { libc::getifaddrs(&raw mut list) }.into())?;
    let (mut found, mut entry) = (Vec::new(), list);
    while !entry.is_null() {
        // SAFETY: an entry of the list, which lives until it is freed; its name ends in zero.
        let (one, name) = unsafe { (*entry, CStr::from_ptr((*entry).ifa_name)) };
        if name.to_bytes() == interface.as_bytes() && !one.ifa_addr.is_null() {
            // SAFETY: an address of the list, as long as its family tells.
            found.extend(unsafe { address_at(one.ifa_addr) });
        }
        entry = one.ifa_next;
    }
    // SAFETY: the list of the call, of which nothing is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Reads an address of the internet; `None` for other families.
///
/// # Safety
/// `at` is an address as long as its family tells.
unsafe fn address_at(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as promised; the reads do not need the types' alignment.
    unsafe {
        match i32::from(at.read_unaligned().sa_family) {
            libc::AF_INET => {
                let address = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let address = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(address.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

/// Finds an attribute in a list.
pub(super) fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    const NESTED: u16 = 1 << 15;
    while let Some(&[low, high, kind_low, kind_high]) = list.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let kind = u16::from_ne_bytes([kind_low, kind_high]) & !NESTED;
        let value = list.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        list = list.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_other_attributes() {
        let mut answer = link_request(7);
        put_attribute(&mut answer, IFLA_NAME, b"near\0");
        let mut inner = Vec::new();
        for (kind, value) in [(XDP_ATTACHED, vec![1]), (4, 77_u32.to_ne_bytes().to_vec())] {
            inner.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            inner.extend_from_slice(&u16::to_ne_bytes(kind));
            inner.extend_from_slice(&value);
            inner.resize(inner.len().next_multiple_of(4), 0);
        }
        put_attribute(&mut answer, IFLA_XDP | 1 << 15, &inner);
        let facts = facts_of_answer(&answer).unwrap();
        assert_eq!((facts.xdp_program, &*facts.name), (Some(77), "near"));
        assert_eq!(facts_of_answer(&link_request(7)).unwrap(), LinkFacts::default());
        for end in 0..answer.len() {
            // Never panics, whatever is cut off.
            let _read = facts_of_answer(&answer[..end]);
        }
    }
}
