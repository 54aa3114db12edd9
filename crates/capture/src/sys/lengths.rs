//! The longest frames that the interfaces of this network namespace may show, from rtnetlink(7). Segments that the
//! kernel merges are one frame to a capture: 65,536 bytes on most interfaces, more with BIG TCP (`gso_max_size`,
//! `gro_max_size` of ip-link(8)). A virtual interface shows what its other end sends, so that end counts, too, in
//! another namespace as well. Minimum kernel version: 4.19 for the other end of a veth pair; older ones tell less.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of a netlink header, and of an interface message after it.
const HEADER_LEN: usize = 16;
const MESSAGE_LEN: usize = 16;
/// Most bytes of an answer of the kernel.
const ANSWER_LEN: usize = 1 << 16;
/// Most answers to one question: the kernel sends one for dozens of interfaces.
const ANSWERS: usize = 1 << 16;
/// Seconds that the kernel may take for an answer.
const PATIENCE_S: libc::time_t = 1;

// Attributes of an interface. Source: the kernel's if_link.h.
const LINK: u16 = 5;
const LINK_NETNSID: u16 = 37;
const TARGET_NETNSID: u16 = 46;
const GSO_MAX_SIZE: u16 = 41;
const GRO_MAX_SIZE: u16 = 58;
const GSO_IPV4_MAX_SIZE: u16 = 63;
const GRO_IPV4_MAX_SIZE: u16 = 64;

/// An interface, as the kernel describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    longest: u32,
    /// The other end of a pair, or the interface below.
    other: Option<u32>,
    /// Number of the namespace of the other end, if it is not this one.
    namespace: Option<u32>,
}

/// Length of the longest frames of the interface with this index, of all for 0. Without link headers.
///
/// # Errors
/// If the kernel does not answer.
pub(crate) fn longest(index: u32) -> io::Result<u32> {
    let socket = open()?;
    let links = ask(&socket, 0, None)?;
    let own: BTreeMap<u32, u32> = links.iter().map(|link| (link.index, link.longest)).collect();
    let asked = links.iter().filter(|link| index == 0 || link.index == index);
    let of = |link: &Link| {
        let other = match (link.other, link.namespace) {
            (Some(other), None) => own.get(&other).copied(),
            // A process without rights in that namespace gets no answer.
            (Some(other), namespace) => {
                let links = ask(&socket, other, namespace).unwrap_or_default();
                links.iter().map(|link| link.longest).max()
            }
            (None, _) => None,
        };
        link.longest.max(other.unwrap_or(0))
    };
    Ok(asked.map(of).max().unwrap_or(0))
}

/// Opens a socket to the kernel's table of interfaces, in the namespace of this thread.
pub(super) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let patience = libc::timeval { tv_sec: PATIENCE_S, tv_usec: 0 };
    let len = mem::size_of::<libc::timeval>() as libc::socklen_t;
    let value = (&raw const patience).cast();
    // SAFETY: `value` points to `len` bytes that live through the call, which only reads them.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, len) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// The question for one interface, or for all (0), in a namespace.
fn question(index: u32, namespace: Option<u32>) -> Vec<u8> {
    let dump = if index == 0 { libc::NLM_F_DUMP } else { 0 };
    let attribute_len = if namespace.is_some() { 8 } else { 0 };
    let len = HEADER_LEN + MESSAGE_LEN + attribute_len;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&(len as u32).to_ne_bytes());
    bytes.extend_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    bytes.extend_from_slice(&((libc::NLM_F_REQUEST | dump) as u16).to_ne_bytes());
    // Sequence number and sender; family, padding and hardware.
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(&index.to_ne_bytes());
    // Flags and a mask of flags.
    bytes.extend_from_slice(&[0; 8]);
    if let Some(namespace) = namespace {
        bytes.extend_from_slice(&8u16.to_ne_bytes());
        bytes.extend_from_slice(&TARGET_NETNSID.to_ne_bytes());
        bytes.extend_from_slice(&namespace.to_ne_bytes());
    }
    bytes
}

fn ask(socket: &OwnedFd, index: u32, namespace: Option<u32>) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    messages(socket, index, namespace, &mut |content| links.extend(link(content)))?;
    Ok(links)
}

/// Asks for one interface, or for all (0), and passes on each message about one.
pub(super) fn messages(
    socket: &OwnedFd,
    index: u32,
    namespace: Option<u32>,
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let question = question(index, namespace);
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer and the length are those of `question`.
    if unsafe { libc::send(fd, question.as_ptr().cast(), question.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0; ANSWER_LEN];
    for _ in 0..ANSWERS {
        // SAFETY: the pointer and the length are those of `answer`.
        let len = unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) };
        let Ok(len) = usize::try_from(len) else { return Err(io::Error::last_os_error()) };
        if read(&answer[..len], each)? || index != 0 {
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Reads the messages of an answer; true after the last one.
fn read(mut answer: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
    while let Some((message, kind, rest)) = message(answer) {
        match libc::c_int::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => return Err(io::ErrorKind::InvalidInput.into()),
            _ if kind == libc::RTM_NEWLINK => each(message),
            _ => {}
        }
        answer = rest;
    }
    Ok(false)
}

/// Splits off a message: its content, its kind, and what follows.
fn message(answer: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    let len = word(answer, 0)? as usize;
    let content = answer.get(HEADER_LEN..len)?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let rest = answer.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((content, kind, rest))
}

/// Index of the interface that a message is about.
pub(super) fn index_of(message: &[u8]) -> Option<u32> {
    word(message, 4)
}

/// Types and values of the attributes of a message.
pub(super) fn attributes(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(MESSAGE_LEN..).unwrap_or_default();
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = rest.first_chunk::<4>()?;
        let (len, kind) = (u16::from_ne_bytes([l0, l1]) as usize, u16::from_ne_bytes([k0, k1]));
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn link(message: &[u8]) -> Option<Link> {
    let mut link = Link { index: index_of(message)?, ..Link::default() };
    for (kind, value) in attributes(message) {
        let number = word(value, 0);
        match kind {
            LINK => link.other = number.filter(|&other| other != 0),
            LINK_NETNSID => link.namespace = number,
            GSO_MAX_SIZE | GRO_MAX_SIZE | GSO_IPV4_MAX_SIZE | GRO_IPV4_MAX_SIZE => {
                link.longest = link.longest.max(number.unwrap_or(0));
            }
            _ => {}
        }
    }
    Some(link)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
    field.map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: u32) -> Vec<u8> {
        [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
    }

    #[test]
    fn answers_are_read() {
        let mut content = vec![0; MESSAGE_LEN];
        content[4..8].copy_from_slice(&7u32.to_ne_bytes());
        content.extend(attribute(LINK, 3));
        content.extend(attribute(GSO_MAX_SIZE, 400_000));
        content.extend(attribute(GRO_MAX_SIZE, 65_536));
        content.extend(attribute(LINK_NETNSID, 1));
        let message = |kind: u16, content: &[u8]| {
            let len = (HEADER_LEN + content.len()) as u32;
            [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], content].concat()
        };
        let done = message(libc::NLMSG_DONE as u16, &[0; 4]);
        let answer = [message(libc::RTM_NEWLINK, &content), done].concat();
        let mut links = Vec::new();
        assert!(read(&answer, &mut |content| links.extend(super::link(content))).unwrap());
        let expected = Link { index: 7, longest: 400_000, other: Some(3), namespace: Some(1) };
        assert_eq!(links, [expected]);
        // No length of a damaged answer makes it panic or run forever.
        for cut in 0..answer.len() {
            let mut any = |content: &[u8]| _ = super::link(content);
            let _any = read(&answer[..cut], &mut any);
            let mut damaged = answer.clone();
            damaged[cut] ^= 0xff;
            let _any = read(&damaged, &mut any);
        }
    }

    #[test]
    fn the_kernel_answers() {
        assert!(longest(0).unwrap() >= 65_536);
    }
}
