//! Messages as packets of a Unix socket of type `SOCK_SEQPACKET`.
//!
//! A message is one line. One that is longer than a packet is sent in several packets; the last one ends with the line
//! end, and carries the descriptors if there are any. The receiver bounds the length of a packet and of a message.
//! A receiver takes descriptors only on request; the kernel closes all others.

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most bytes of a packet.
pub const MAX_PACKET: usize = 32 << 10;
/// Most bytes of a message, whatever the limits of a reader.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Most descriptors of a message. A receiver takes one more at least, so that it sees a message with too many.
pub const DESCRIPTORS: usize = 8;
/// Descriptors with [`Response::Opened`](crate::message::Response::Opened) that are buffers; a third one wakes the
/// reader.
pub const BUFFERS: usize = 2;

/// Result of adding a packet to a message, or of waiting for one.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole message, without its line end.
    Message(Vec<u8>),
    /// The message continues in the next packet.
    More,
    /// No packet arrived in time.
    Quiet,
    /// The peer has closed the connection.
    Closed,
    /// A packet or a message is longer than the limit.
    TooLong,
}

/// Puts the packets of a message together.
#[derive(Debug)]
pub struct Assembler {
    buffer: Vec<u8>,
    limit: usize,
}

impl Assembler {
    /// Accepts messages of at most `limit` bytes.
    pub fn new(limit: usize) -> Assembler {
        Assembler { buffer: Vec::new(), limit: limit.min(MAX_MESSAGE) }
    }

    /// Changes the limit.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(MAX_MESSAGE);
    }

    /// Adds a packet. An empty one is the end of the connection.
    pub fn push(&mut self, packet: &[u8]) -> Incoming {
        if packet.is_empty() {
            return Incoming::Closed;
        }
        if packet.len() > MAX_PACKET || self.buffer.len() + packet.len() > self.limit + 1 {
            return Incoming::TooLong;
        }
        self.buffer.extend_from_slice(packet);
        if packet.last() != Some(&b'\n') {
            return Incoming::More;
        }
        self.buffer.pop();
        Incoming::Message(std::mem::take(&mut self.buffer))
    }

    /// Waits for the next message; `patience` bounds the wait for each packet, `None` waits without limit. Descriptors
    /// of the message are added to `descriptors` if it is given.
    ///
    /// # Errors
    /// The error of the system, except time-outs.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        patience: Option<Duration>,
        mut descriptors: Option<&mut Vec<OwnedFd>>,
    ) -> io::Result<Incoming> {
        let mut packet = vec![0; MAX_PACKET + 1];
        sockopt::set_socket_timeout(&socket, Timeout::Recv, patience)?;
        loop {
            let got = match &mut descriptors {
                None => recv(&socket, &mut packet[..], RecvFlags::empty()).map(|(_, len)| len),
                Some(into) => receive_with(socket.as_fd(), &mut packet, into),
            };
            let len = match got.map_err(io::Error::from) {
                Ok(len) => len.min(packet.len()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Incoming::Quiet),
                // A peer that closes with our packets unread resets the connection once; what it sent before follows.
                Err(error)
                    if [ErrorKind::Interrupted, ErrorKind::ConnectionReset]
                        .contains(&error.kind()) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.push(&packet[..len]) {
                Incoming::More => {}
                other => return Ok(other),
            }
        }
    }
}

fn receive_with(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
    into: &mut Vec<OwnedFd>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS + 1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(packet)];
    let got = recvmsg(socket, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            into.extend(given);
        }
    }
    Ok(got.bytes)
}

/// Sends a message, with descriptors or none; waits at most `patience` for each packet while the peer does not read.
///
/// # Errors
/// `WouldBlock` if the peer does not read, or the error of the system.
pub fn send(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> io::Result<()> {
    let line: Vec<u8> = message.iter().copied().chain([b'\n']).collect();
    send_line(socket.as_fd(), &line, descriptors, patience).1
}

/// Sends a line, or the rest of one, as [`send`] does; returns the number of bytes that were sent.
pub(crate) fn send_line(
    socket: BorrowedFd<'_>,
    line: &[u8],
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> (usize, io::Result<()>) {
    let limit = Some(patience.max(Duration::from_millis(1)));
    if let Err(error) = sockopt::set_socket_timeout(socket, Timeout::Send, limit) {
        return (0, Err(error.into()));
    }
    let mut sent = 0;
    for packet in line.chunks(MAX_PACKET) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if sent + packet.len() == line.len() && !descriptors.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        loop {
            let done = sendmsg(socket, &[IoSlice::new(packet)], &mut rights, SendFlags::NOSIGNAL);
            match done {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return (sent, Err(error.into())),
            }
        }
        sent += packet.len();
    }
    (sent, Ok(()))
}

/// Sends a message of serde; see [`send`].
///
/// # Errors
/// As for [`send`].
pub fn send_json(
    socket: impl AsFd,
    message: &impl serde::Serialize,
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    send(socket, &bytes, descriptors, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn a_long_message_comes_in_packets_and_is_bounded() {
        let (ours, theirs) = pair();
        for len in [0, 1, MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 1, 3 * MAX_PACKET] {
            let message = vec![b'x'; len];
            send(&ours, &message, &[], PATIENCE).unwrap();
            let mut assembler = Assembler::new(len);
            let got = assembler.receive(&theirs, Some(PATIENCE), None).unwrap();
            assert_eq!(got, Incoming::Message(message), "{len}");
        }
        send(&ours, &[b'x'; 100], &[], PATIENCE).unwrap();
        let mut small = Assembler::new(99);
        assert_eq!(small.receive(&theirs, Some(PATIENCE), None).unwrap(), Incoming::TooLong);
        let quiet = small.receive(&theirs, Some(Duration::from_millis(1)), None).unwrap();
        assert_eq!(quiet, Incoming::Quiet);
        drop(ours);
        assert_eq!(small.receive(&theirs, Some(PATIENCE), None).unwrap(), Incoming::Closed);
    }

    #[test]
    fn packets_that_never_end_are_refused_at_the_limit() {
        let mut assembler = Assembler::new(1000);
        let mut packets = 0;
        while assembler.push(&[b'x'; 10]) == Incoming::More {
            packets += 1;
        }
        assert_eq!(packets, 100);
        assert_eq!(Assembler::new(usize::MAX).push(&vec![b'x'; MAX_PACKET + 1]), Incoming::TooLong);
    }

    #[test]
    fn descriptors_reach_only_who_asks_for_them() {
        let (ours, theirs) = pair();
        let file = tempfile::tempfile().unwrap();
        send(&ours, b"two", &[file.as_fd(), file.as_fd()], PATIENCE).unwrap();
        send(&ours, b"none", &[file.as_fd()], PATIENCE).unwrap();
        let (mut assembler, mut got) = (Assembler::new(100), Vec::new());
        let with = assembler.receive(&theirs, Some(PATIENCE), Some(&mut got)).unwrap();
        assert_eq!((with, got.len()), (Incoming::Message(b"two".to_vec()), 2));
        let without = assembler.receive(&theirs, Some(PATIENCE), None).unwrap();
        assert_eq!(without, Incoming::Message(b"none".to_vec()));
    }
}
