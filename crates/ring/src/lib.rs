//! Frames in shared memory: one writer stores each frame once, and any number of other processes
//! read their frames.
//!
//! ```text
//!  Writer ── put(frame) ──▶ packet buffer (the frames)          ◀── Reader copies frames, or looks at them
//!         ── push(place) ─▶ index buffer, one for each endpoint ◀── Reader follows the index
//!         ── set(value) ──▶ values                              ◀── Reader looks at them
//!         ◀── asleep, needed ── page of a reader
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | sealed anonymous memory, read and written in whole words |
//! | [`protocol`] | the order of stores and loads, model-checked |
//! | [`packets`] | the packet buffer: frames in a ring of words |
//! | [`origin`] | the interfaces that they come from |
//! | [`entry`], [`index`] | an index: the frames of an endpoint, in order |
//! | [`values`] | names and numbers that a writer shows |
//! | [`publish`] | a socket that gives readers all of them, read-only |
//! | [`reader`] | the reading side |
//!
//! **Fast readers are preferred** by default: the writer never waits, and a reader that is too slow
//! loses the oldest frames, of which it knows the exact number ([`Reader::lost`]): `written = read +
//! lost + waiting`, for every reader. A writer may prefer slow readers instead
//! ([`Publication::held`]): frames for which there is no room are refused then, and counted
//! ([`Reader::refused`]). A reader that stops is passed over after a second.
//!
//! Neither side trusts the other. The memory is sealed: it cannot shrink under a reader, and a
//! reader cannot write it. The writer reads nothing back but a page of each reader, and clamps its
//! values. A reader checks every place and length against the size of its own mapping, and a frame
//! that it has copied or looked at is valid only after a check that the writer has not begun to
//! overwrite it. Words are atomic, so a torn frame is detected and counted as lost, never returned.
//! A writer that is killed is noticed by its connection, or within a second by its heartbeat.
//!
//! Permissions are those of the socket: its owner may read, and others if its mode allows. Source:
//! Bos et al., "FFPF: Fairly Fast Packet Filters", OSDI 2004, for packet, index and memory buffers.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_ring as ring}; }
//! use fyke::frame::{Frame, LinkType};
//! use fyke::ring::{Index, Packets, Read, Reader};
//!
//! let (mut packets, mut index) = (Packets::create(1 << 16)?, Index::create(16, LinkType::RAW)?);
//! let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
//! let mut reader = Reader::open(own(packets.fd())?, own(index.fd())?)?;
//! for number in 0..20 {
//!     index.push(packets.put(&Frame::new(LinkType::RAW, &[number]))?);
//! }
//! let (mut bytes, mut read) = (Vec::new(), 0);
//! while let Read::Frame(_) = reader.next(&mut bytes) {
//!     read += 1;
//! }
//! assert_eq!(read + reader.lost(), 20); // the index has 16 places
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod entry;
pub mod index;
#[allow(unsafe_code, reason = "mapping shared memory, and access to its words")]
pub mod memory;
pub mod origin;
pub mod packets;
mod page;
pub mod protocol;
pub mod publish;
pub mod reader;
mod sync;
#[allow(unsafe_code, reason = "waiting for descriptors, and the clock")]
mod sys;
pub mod values;

pub use entry::{Entry, Flags, Mark, Placed};
pub use index::{Index, ended_at};
pub use memory::Memory;
pub use origin::Origin;
pub use packets::{Held, Packets};
pub use page::{Sleep, Waker};
pub use publish::{MAX_READERS, Publication, listen};
pub use reader::{Lending, Lent, Read, Reader};
pub use values::{Value, Values};

#[cfg(test)]
mod tests;

use std::io;

/// Reasons why a ring could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Call {
        /// The operation.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The received buffers are not a ring.
    #[error("not a ring of frames: {what} is {given}, expected {expected}")]
    Foreign {
        /// The property.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The expected value.
        expected: String,
    },
    /// The received file is no shared memory, or its size can still change.
    #[error(
        "not a ring of frames: the file that came is no memory (memfd) that is sealed against shrinking"
    )]
    NotSealed,
    /// A frame is larger than the buffer accepts.
    #[error("the frame has {given} bytes, the limit of the buffer is {limit}")]
    TooLarge {
        /// Its bytes.
        given: usize,
        /// Most bytes.
        limit: usize,
    },
    /// A reader needs the frames that would be overwritten.
    #[error("readers still need the frames that would be overwritten")]
    Held,
    /// The process that publishes the ring belongs to another user.
    #[error(
        "{path}: user {user} serves this ring, and rings of root and of your own user are read; \
         --ring-user {user} reads this one (in a graph: user={user})"
    )]
    Stranger {
        /// The socket.
        path: String,
        /// The user id of the process.
        user: u32,
    },
    /// The writer closes the connection.
    #[error(
        "{path}: the writer does not serve this reader; it serves at most {MAX_READERS} at a time, \
         so end one of them, or try again"
    )]
    Full {
        /// The socket.
        path: String,
    },
    /// Another process publishes a ring at this path.
    #[error("{path}: another process publishes a ring there")]
    Taken {
        /// The socket.
        path: String,
    },
}

impl RingError {
    fn call(what: impl Into<String>, source: io::Error) -> RingError {
        RingError::Call { what: what.into(), source }
    }
}
