//! Frames in shared memory: one writer stores each frame once, any number of other processes read what is theirs.
//!
//! ```text
//!  Writer ── put(frame) ──▶ packet buffer (the frames)          ◀── Reader copies frames out
//!         ── push(place) ─▶ index buffer, one for each endpoint ◀── Reader follows the index
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | sealed anonymous memory, read and written in whole words |
//! | [`packets`] | the packet buffer: frames in a ring of words |
//! | [`index`] | an index buffer: which frames an endpoint got, in order |
//! | [`publish`] | who wants to read asks at a socket and is handed both buffers, to read only |
//! | [`reader`] | the reading side |
//!
//! The writer never waits: a reader that is too slow loses the oldest frames and is told exactly how many
//! ([`Reader::lost`]). `written = read + lost + not yet read`, for every reader.
//!
//! Neither side trusts the other. The memory is sealed: it can neither shrink under a reader nor be written by one. The
//! writer reads nothing back from it. A reader checks every place and length against the size of its own mapping and
//! copies before it looks. Words are atomic, so a torn frame is noticed and counted as lost, never shown.
//!
//! Permissions are those of the socket: its owner may read, and whom its mode lets in.
//! Source: Bos et al., "FFPF: Fairly Fast Packet Filters", OSDI 2004, for packet and index buffers. `DEPARTURE:` there
//! an index entry also carries a class value, and a slow reader can stop the writer; both are not here.
#![deny(unsafe_code)]

pub mod index;
#[allow(unsafe_code, reason = "mapping shared memory, and access to its words")]
pub mod memory;
pub mod packets;
pub mod publish;
pub mod reader;

pub use index::Index;
pub use memory::Memory;
pub use packets::Packets;
pub use publish::{Publication, listen};
pub use reader::{Read, Reader};

#[cfg(test)]
mod tests;

use std::io;

/// Why a ring could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Call {
        /// What was tried.
        what: String,
        /// What it says.
        source: io::Error,
    },
    /// What was handed over is no ring.
    #[error("not a ring of frames: {what} is {given}, expected {expected}")]
    Foreign {
        /// Which property.
        what: &'static str,
        /// What it is.
        given: u64,
        /// What it should be.
        expected: String,
    },
    /// A frame is larger than the buffer takes.
    #[error("a frame of {given} bytes; the buffer takes frames of up to {limit}")]
    TooLarge {
        /// Its bytes.
        given: usize,
        /// Most bytes.
        limit: usize,
    },
    /// Somebody serves there already.
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
