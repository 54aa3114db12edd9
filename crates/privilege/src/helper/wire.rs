//! Messages between a process and its helper: a header of fixed size; in requests, a name or path may follow.

use super::Presence;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Longest name or path.
pub(super) const MAX_TEXT: usize = 4096;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hold,
    HoldGroup,
    WillRemove,
    Seal,
    Named,
    Look,
    Bind,
    Fetch,
    Remove,
}

const KINDS: [Kind; 9] = [
    Kind::Hold,
    Kind::HoldGroup,
    Kind::WillRemove,
    Kind::Seal,
    Kind::Named,
    Kind::Look,
    Kind::Bind,
    Kind::Fetch,
    Kind::Remove,
];

/// Bytes of the name of an interface, the final zero included.
pub(super) const NAME_LEN: usize = 16;

/// Receives a message, and the first of the descriptors that come with it; a length of zero means the end.
pub(super) fn receive(
    channel: &OwnedFd,
    bytes: &mut [u8],
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(channel, &mut [IoSliceMut::new(bytes)], &mut rights, flags)?;
    let mut socket = None;
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = message {
            socket = socket.or(sockets.into_iter().next());
        }
    }
    Ok((received.bytes, socket))
}

/// Header of a request; its text follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub kind: Kind,
    pub number: u32,
    pub flag: bool,
    /// Number of the request; the answer has the same.
    pub sequence: u32,
}

impl Request {
    pub const LEN: usize = 10;

    pub fn to_bytes(self) -> [u8; Request::LEN] {
        let [a, b, c, d] = self.number.to_ne_bytes();
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(KINDS.len());
        let [e, f, g, h] = self.sequence.to_ne_bytes();
        [kind as u8, a, b, c, d, u8::from(self.flag), e, f, g, h]
    }

    /// Parses a request and its text.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Request, &[u8])> {
        let (&[kind, a, b, c, d, flag, e, f, g, h], text) =
            bytes.split_first_chunk::<{ Request::LEN }>()?;
        let kind = *KINDS.get(usize::from(kind))?;
        let number = u32::from_ne_bytes([a, b, c, d]);
        let sequence = u32::from_ne_bytes([e, f, g, h]);
        Some((Request { kind, number, flag: flag != 0, sequence }, text))
    }
}

/// Answer of the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Answer {
    /// Error number (errno); 0 means success.
    pub error: i32,
    /// Number assigned to the socket or group that was handed over; number of a generation.
    pub number: u32,
    /// Number of blocks of the ring of the socket that comes with the answer.
    pub blocks: u32,
    /// True if the interface exists; `presence` is valid only then.
    pub present: bool,
    pub presence: Presence,
    /// Name of an interface; the rest is zero.
    pub name: [u8; NAME_LEN],
    /// Number of the request.
    pub sequence: u32,
}

impl Answer {
    pub const LEN: usize = 30 + NAME_LEN;

    pub fn to_bytes(self) -> [u8; Answer::LEN] {
        let Presence { ifindex, link, loopback, up } = self.presence;
        let mut bytes = [0; Answer::LEN];
        bytes[..4].copy_from_slice(&self.error.to_ne_bytes());
        let numbers = [self.number, ifindex, link, loopback];
        for (place, number) in bytes[4..20].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        (bytes[20], bytes[21]) = (u8::from(self.present), u8::from(up));
        bytes[22..26].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[26..30].copy_from_slice(&self.blocks.to_ne_bytes());
        bytes[30..].copy_from_slice(&self.name);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; Answer::LEN] = bytes.try_into().ok()?;
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (ifindex, link, loopback) = (number(8), number(12), number(16));
        let mut name = [0; NAME_LEN];
        name.copy_from_slice(&bytes[30..]);
        Some(Answer {
            error: number(0) as i32,
            number: number(4),
            present: bytes[20] != 0,
            presence: Presence { ifindex, link, loopback, up: bytes[21] != 0 },
            name,
            sequence: number(22),
            blocks: number(26),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        for kind in KINDS {
            let request =
                Request { kind, number: 0x0102_0304, flag: kind == Kind::Hold, sequence: 9 };
            let mut bytes = request.to_bytes().to_vec();
            bytes.extend(b"eth0");
            assert_eq!(Request::from_bytes(&bytes), Some((request, &b"eth0"[..])));
        }
        let presence = Presence { ifindex: 7, link: 276, loopback: 1, up: true };
        let name = *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0";
        let answer =
            Answer { error: 13, number: 2, blocks: 3, present: true, presence, name, sequence: 7 };
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
    }

    #[test]
    fn other_bytes_are_no_message() {
        assert_eq!(Request::from_bytes(&[]), None);
        assert_eq!(Request::from_bytes(&[0; Request::LEN - 1]), None);
        assert_eq!(Request::from_bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Answer::from_bytes(&[0; Answer::LEN - 1]), None);
    }
}
