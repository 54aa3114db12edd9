//! Counters of interfaces from rtnetlink(7), and offloads that merge frames from the ethtool ioctl. Neither needs a
//! privilege. Source: the kernel's if_link.h (`rtnl_link_stats64`), ethtool.h. Minimum kernel version: 2.6.35.

use super::lengths;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `IFLA_IFNAME`
const NAME: u16 = 3;
/// `IFLA_STATS64`
const STATS64: u16 = 23;
/// Positions of counters in `rtnl_link_stats64`, each of 8 bytes.
const RX_PACKETS: usize = 0;
const TX_PACKETS: usize = 1;
const RX_BYTES: usize = 2;
const TX_BYTES: usize = 3;
const RX_DROPPED: usize = 6;
const RX_MISSED_ERRORS: usize = 15;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;
const FLAG_LRO: u32 = 1 << 15;
/// Offloads with a query of their own, and their names for `ethtool -K`.
const OFFLOADS: [(u32, &str); 3] = [(0x2b, "gro"), (0x1e, "tso"), (0x23, "gso")];

/// Counters of one interface since it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) index: u32,
    pub(crate) traffic: Traffic,
    pub(crate) rx_dropped: u64,
    pub(crate) rx_missed_errors: u64,
}

/// Frames and bytes that an interface has received and sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames received.
    pub received_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// An open socket, to ask for counters later, in a sandbox too.
#[derive(Debug)]
pub(crate) struct Counting(OwnedFd);

impl Counting {
    /// Opens the socket in the namespace of this thread.
    pub(crate) fn open() -> io::Result<Counting> {
        lengths::open().map(Counting)
    }

    /// Counters of the interface with this index, of all for 0.
    ///
    /// # Errors
    /// If the kernel does not answer, or the interface does not exist.
    pub(crate) fn ask(&self, index: u32) -> io::Result<Vec<Counters>> {
        let mut found = Vec::new();
        lengths::messages(&self.0, index, None, &mut |message| found.extend(counters(message)))?;
        Ok(found)
    }

    /// The index of each interface that exists, by name.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub(crate) fn indices(&self) -> io::Result<Vec<(String, u32)>> {
        let mut found = Vec::new();
        lengths::messages(&self.0, 0, None, &mut |message| found.extend(named(message)))?;
        Ok(found)
    }
}

fn named(message: &[u8]) -> Option<(String, u32)> {
    let (_, name) = lengths::attributes(message).find(|(kind, _)| *kind == NAME)?;
    let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0').to_owned();
    Some((name, lengths::index_of(message)?))
}

fn counters(message: &[u8]) -> Option<Counters> {
    let index = lengths::index_of(message)?;
    let (_, values) = lengths::attributes(message).find(|(kind, _)| *kind == STATS64)?;
    let counter = |at: usize| {
        let bytes = values.get(at * 8..at * 8 + 8)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    let (rx_dropped, rx_missed_errors) = (counter(RX_DROPPED)?, counter(RX_MISSED_ERRORS)?);
    let traffic = Traffic {
        received_frames: counter(RX_PACKETS)?,
        sent_frames: counter(TX_PACKETS)?,
        received_bytes: counter(RX_BYTES)?,
        sent_bytes: counter(TX_BYTES)?,
    };
    Some(Counters { index, traffic, rx_dropped, rx_missed_errors })
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Offloads of an interface that merge frames, as `ethtool -K` names them; none if it does not answer.
pub(crate) fn merging(name: &str) -> Vec<&'static str> {
    let ask = |command| {
        let mut value = Value { command, data: 0 };
        let asked = socket().and_then(|socket| ethtool(socket.as_fd(), name, &mut value));
        asked.map_or(0, |()| value.data)
    };
    let lro = (ask(GET_FLAGS) & FLAG_LRO != 0).then_some("lro");
    let others = OFFLOADS.into_iter().filter(|&(command, _)| ask(command) != 0);
    others.map(|(_, name)| name).chain(lro).collect()
}

/// `struct ethtool_channels`: after the command, the limits and the numbers of queues that receive, send, do something
/// else, or receive and send.
#[repr(C)]
struct Channels {
    command: u32,
    limits: [u32; 4],
    numbers: [u32; 4],
}

/// Number of queues on which an interface receives.
pub(crate) fn queues(name: &str) -> io::Result<u32> {
    queues_by(socket()?.as_fd(), name)
}

/// The same by a socket of any kind, for a process that may open none.
pub(crate) fn queues_by(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut channels = Channels { command: GET_CHANNELS, limits: [0; 4], numbers: [0; 4] };
    ethtool(socket, name, &mut channels)?;
    let [receive, _, _, both] = channels.numbers;
    Ok(receive.saturating_add(both))
}

/// A structure of an ethtool command that the kernel fills in: it begins with the command, and any bytes are valid.
trait Query {}

impl Query for Value {}

impl Query for Channels {}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn ethtool<T: Query>(socket: BorrowedFd<'_>, name: &str, value: &mut T) -> io::Result<()> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut *value).cast();
    // SAFETY: the request names an interface and points to the structure of its command, which the kernel fills in.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_a_message() {
        let mut values = vec![0; 24 * 8];
        values[TX_BYTES * 8] = 9;
        values[RX_DROPPED * 8] = 5;
        values[RX_MISSED_ERRORS * 8] = 7;
        let mut message = vec![0; 16];
        message[4] = 3;
        for (kind, value) in [(1u16, &[0; 4][..]), (STATS64, &values)] {
            message.extend((value.len() as u16 + 4).to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(value);
        }
        let traffic = Traffic { sent_bytes: 9, ..Traffic::default() };
        let expected = Counters { index: 3, traffic, rx_dropped: 5, rx_missed_errors: 7 };
        assert_eq!(counters(&message), Some(expected));
        // A message that is cut has no counters, and is no reason to panic.
        assert!(
            (0..message.len())
                .all(|len| { counters(&message[..len]).is_none_or(|found| found == expected) })
        );
    }

    #[test]
    fn the_kernel_answers() {
        let counting = Counting::open().unwrap();
        let all = counting.ask(0).unwrap();
        let first = all.first().unwrap();
        assert_eq!(counting.ask(first.index).unwrap()[0].index, first.index);
        let lo = counting.indices().unwrap().into_iter().find(|(name, _)| name == "lo").unwrap();
        assert_eq!(counting.ask(lo.1).unwrap()[0].index, lo.1);
        assert!(counting.ask(u32::MAX >> 1).is_err());
        assert!(merging("no such device").is_empty());
    }
}
