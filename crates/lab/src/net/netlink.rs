//! Netlink, limited to the needs of a world: builds a request, sends it, waits for its acknowledgement.
//!
//! Messages have a header, a fixed part and attributes (length, type, padded to 4 bytes), in the machine's byte
//! order. A request has at most one answer, followed by an acknowledgement. Source: netlink(7), rtnetlink(7),
//! genetlink.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::time::Duration;

const NETLINK: i32 = 16;
const HEADER_LEN: usize = 16;
const ERROR: u16 = 2;
const REQUEST_AND_ACK: u16 = 1 | 4;
/// `NLA_F_NESTED`
const NESTED: u16 = 1 << 15;
/// Time limit for an answer; the kernel answers immediately, so this guards only against faults.
const PATIENCE: Duration = Duration::from_secs(5);

/// Families of netlink sockets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    /// Devices and addresses.
    Route = 0,
    /// All newer interfaces; used here for offloads.
    Generic = 16,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused it.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The answer is malformed.
    #[error("the kernel's answer of {len} bytes cannot be understood")]
    Answer {
        /// Its length.
        len: usize,
    },
}

/// A request under construction.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request. `flags` are added to "request, acknowledge"; `fixed` is the part before the attributes.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST_AND_ACK).to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request { bytes }
    }

    pub(super) fn put(mut self, kind: u16, value: &[u8]) -> Request {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value);
        self.close(start);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Request {
        let bytes: Vec<u8> = value.bytes().chain([0]).collect();
        self.put(kind, &bytes)
    }

    pub(super) fn nest(
        mut self,
        kind: u16,
        fixed: &[u8],
        inner: impl FnOnce(Request) -> Request,
    ) -> Request {
        let start = self.open(kind | NESTED);
        self.bytes.extend_from_slice(fixed);
        let mut request = inner(self);
        request.close(start);
        request
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// Ends an attribute. Requests here have a few hundred bytes, far below the 64 KiB limit of an attribute.
    fn close(&mut self, start: usize) {
        let len = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

/// A socket to the kernel, in the namespace of the thread that opens it.
pub(super) struct Netlink {
    socket: Socket,
}

impl Netlink {
    pub(super) fn open(family: Family) -> Result<Netlink, NetlinkError> {
        let protocol = Protocol::from(family as i32);
        let socket = Socket::new(Domain::from(NETLINK), Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Netlink { socket })
    }

    /// Sends a request and returns the answer before the acknowledgement: a message without its header.
    pub(super) fn ask(&mut self, request: Request) -> Result<Vec<u8>, NetlinkError> {
        self.socket.write_all(&request.finish())?;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let len = self.socket.read(&mut buffer)?;
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                let (kind, body, next) = message(rest).ok_or(NetlinkError::Answer { len })?;
                rest = next;
                if kind != ERROR {
                    answer = body.to_vec();
                    continue;
                }
                let code = body.get(..4).and_then(|code| code.try_into().ok());
                return match code.map(i32::from_ne_bytes) {
                    Some(0) => Ok(answer),
                    Some(code) => {
                        let source = io::Error::from_raw_os_error(code.saturating_neg());
                        Err(NetlinkError::Refused(source))
                    }
                    None => Err(NetlinkError::Answer { len }),
                };
            }
        }
    }
}

fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_LEN..len)?;
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

/// Returns the value of the first attribute of this type.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(header) = bytes.get(..4) {
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !NESTED;
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
    None
}
