//! Edits by programs without privilege: a privileged process lends them the memory of a filter, and a socket that runs
//! the filter.
//!
//! A process that holds the socket can bind it to another interface and send on it. So lend to root only; the
//! command has `fyke serve` for other users.
//!
//! ```text
//! privileged: Space, packet socket, filter locked ──(a Unix socket: four descriptors)──▶ client: stores, and frames
//!             Lent::revoke ─▶ the program rejects everything
//! ```
//!
//! Each client has a space of its own, so it can affect only its own verdicts. Whatever the client stores, the program
//! ends after at most [`BUDGET_LIMIT`](crate::layout::BUDGET_LIMIT) instructions and accesses only this memory, because
//! it masks every offset and size that it reads there (the verifier has proved this). The word that revokes the loan,
//! and the program itself, are not in lent memory. After lending, the lender only reads counters, and trusts none of
//! them.
//!
//! The client sees the frames that its socket receives: the lender chooses the client and the socket's interface. If
//! the lender ends first, the client keeps the memory and the socket.

use crate::counters::Counters;
use crate::options::Options;
use crate::passes::KernelPasses;
use crate::space::{Space, Tallies};
use crate::sys::{self, COUNTERS_BYTES, Mapped, ROWS_BYTES};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Start of the message; its last byte is the version of the layout.
const GREETING: &[u8; 8] = b"fyke\0\0\0\x01";
const MESSAGE_BYTES: usize = 16;
/// Passes, rows, counters, socket.
const DESCRIPTORS: usize = 4;
/// More processors than any machine has.
const MOST_PROCESSORS: usize = 8192;

/// User id of the process at the other end of a stream, from the kernel.
///
/// # Errors
/// The system does not know it.
pub fn user_of(client: &UnixStream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(client)?.uid.as_raw())
}

/// A filter that was lent to a client.
#[derive(Debug)]
pub struct Lent {
    space: Space,
}

impl Lent {
    /// Attaches the space to a packet socket, locks the socket's filter, and sends both over the stream. From now on,
    /// the client is the writer of the space.
    ///
    /// # Errors
    /// The socket cannot run passes, or the client has closed the stream.
    pub fn lend(
        space: Space,
        socket: BorrowedFd<'_>,
        client: &UnixStream,
    ) -> Result<Lent, crate::AttachError> {
        space.attach(socket)?;
        sys::lock_filter(socket)?;
        let (maps, processors) = space.lent_maps()?;
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(GREETING);
        message[8..].copy_from_slice(&(processors as u64).to_ne_bytes());
        let descriptors = [maps[0].as_fd(), maps[1].as_fd(), maps[2].as_fd(), socket];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(client, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL);
        match sent.map_err(io::Error::from)? {
            MESSAGE_BYTES => Ok(Lent { space }),
            _ => Err(io::Error::other("the client received only a part of the message").into()),
        }
    }

    /// Makes the program reject every frame from now on; the client cannot change that.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn revoke(&mut self) -> io::Result<()> {
        self.space.revoke()
    }

    /// Counts of outcomes, as the client's memory has them.
    pub fn tallies(&self) -> Tallies {
        self.space.tallies()
    }
}

/// A filter and a socket that were lent to this process.
#[derive(Debug)]
pub struct Borrowed {
    /// The writer's side of the filter; it begins empty and accepts every frame.
    pub passes: KernelPasses,
    /// The socket that runs it.
    pub socket: OwnedFd,
}

impl Borrowed {
    /// Receives a loan from the stream. Needs no privilege. Linux 5.5.
    ///
    /// # Errors
    /// The stream ends or carries something else; the message of [`io::ErrorKind::InvalidData`] describes it.
    pub fn receive(stream: &UnixStream) -> io::Result<Borrowed> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut message = [0; MESSAGE_BYTES];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut parts = [IoSliceMut::new(&mut message)];
        let got = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = part {
                descriptors.extend(all);
            }
        }
        if got.bytes != MESSAGE_BYTES || &message[..8] != GREETING {
            return Err(wrong("expected the greeting of a fyke of this version".into()));
        }
        let mut number = [0; 8];
        number.copy_from_slice(&message[8..]);
        let processors = usize::try_from(u64::from_ne_bytes(number)).unwrap_or(usize::MAX);
        if !(1..=MOST_PROCESSORS).contains(&processors) {
            return Err(wrong(format!("{processors} processors, expected 1 to {MOST_PROCESSORS}")));
        }
        let given = descriptors.len();
        let [passes, rows, counters, socket] = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors)
            .map_err(|_| wrong(format!("{given} descriptors, expected {DESCRIPTORS}")))?;
        let memory = Mapped::new(counters.as_fd(), processors * COUNTERS_BYTES)?;
        let counters = Arc::new(Counters::new(memory, processors));
        let passes = Mapped::new(passes.as_fd(), KernelPasses::BYTES)?;
        let rows = Mapped::new(rows.as_fd(), ROWS_BYTES)?;
        let passes = KernelPasses::new(passes, rows, counters, Options::default());
        Ok(Borrowed { passes, socket })
    }

    /// Writes a word at any offset of the shared memory, as a hostile client could; for tests.
    #[doc(hidden)]
    pub fn scribble(&mut self, at: u64, value: u64) {
        self.passes.scribble(at, value);
    }
}
