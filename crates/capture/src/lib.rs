//! Sources and sinks of frames.
//!
//! | module | what | when |
//! |---|---|---|
//! | [`file`](mod@file) | pcap and pcapng files, gzip, zstd and lz4, pipes; several, merged by time | `-r` |
//! | [`ring`] | live, from a ring that the kernel fills | `-i` |
//! | [`xdp`] | live, before the host gets the frames | `-i xdp:IF` |
//! | [`shared`] | frames that another process stores in shared memory | `-i ring:NAME`, `-i serve:NAME` |
//! | [`server`] | a process that stores the frames that texts accept | `-i serve:NAME` |
//! | [`memory`] | stored frames, repeated | tests, generators, benches |
//! | [`merged`] | several sources as one, in the order of time | `-i` several times |
//! | [`mod@fan`] | a share of another source for each of several workers | more than one core |
//! | [`group`] | live, a ring for each of several workers | `-i` with `--workers` |
//! | [`flow`] | the assignment of frames to workers | |
//! | [`fault`] | another source with dropped, duplicated, cut and reordered frames | tests |
//! | [`sink`] | pcap and pcapng files, pipes, rotation; network interfaces | `-w` |
//! | [`interfaces`] | the interfaces that can be captured from | `-D` |
//! | [`drops`] | frames that interfaces dropped before any capture saw them | `--stats` |
//! | [`traffic`] | frames and bytes that interfaces sent and received | `fyke account` |
//!
//! A [`Source`] lends batches of frames from its own memory, without copying, and holds some of the frames that it
//! has lent for [`LookBack`].
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame}; }
//! use fyke::capture::{MemorySource, Next, Source};
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut source = MemorySource::new(LinkType::EN10MB);
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! let Next::Frames(batch, held) = source.next()? else { panic!("there is a frame") };
//! assert_eq!((batch.len(), held.frames().count()), (1, 0));
//! # Ok::<(), fyke::capture::ReadError>(())
//! ```
#![deny(unsafe_code)]

mod cooked;
pub mod drops;
pub mod error;
pub mod fan;
pub mod fault;
pub mod file;
pub mod flow;
pub mod group;
mod inputs;
pub mod interfaces;
pub mod memory;
pub mod merged;
mod rebind;
mod renewal;
pub mod ring;
pub mod server;
pub mod shared;
mod sharing;
pub mod sink;
mod socket;
pub mod source;
#[allow(unsafe_code, reason = "system calls and the kernel's ring; nothing else in the crate")]
mod sys;
pub mod traffic;
pub mod xdp;

pub use drops::{InterfaceDrops, InterfaceWatch, SoftnetDrops};
pub use error::{LiveError, Problem, ReadError};
pub use fan::{FanSource, fan_out};
pub use fault::{FaultSource, FaultStats, Faults};
pub use file::{FileOptions, FileSource, MAX_FILES, MergedFiles, open_before, open_file};
pub use flow::FlowHash;
pub use group::{RingGroup, RingShare};
pub use interfaces::{ANY, Available, interface_name, interfaces_available, local_offset_s};
pub use memory::MemorySource;
pub use merged::MergedSource;
pub use rebind::PacketSockets;
pub use ring::handover::{self, Handover, Resumed};
pub use ring::{RingOptions, RingSource};
pub use server::{FrameServer, Moved, ServerCounts};
pub use shared::{Chunk, Filled, SharedSource};
pub use sink::{
    Account, Clients, Compression, FileIdentity, Format, InterfaceLosses, InterfaceSink, Output,
    PRIVATE, Rotation, Sink, SinkStats, WriteError, WriteOptions, client_address, create_file,
    create_output, frames_before, write_to,
};
pub use socket::FilterSocket;
pub use source::{
    DEFAULT_SNAPLEN, DROP_REASONS, HeldFrames, HeldMark, Interface, LATER, LinkState, LookBack,
    NOT_SENT, Next, Notice, RING_FULL, SocketFilter, Source, SourceStats,
};
pub use sys::drops::Traffic;
pub use sys::packet::grace_period;
pub use sys::poll::Bell;
pub use sys::time::processor_time;

pub use traffic::TrafficWatch;
pub use xdp::{DriverFilter, DriverMark, Redirect, Redirected, XdpOptions, XdpSource};

/// Waits until one of several sources may have frames ([`Source::readiness`]), at most `patience`; true if one may.
pub fn wait_for_any(
    readiness: &[std::os::fd::BorrowedFd<'_>],
    patience: std::time::Duration,
) -> bool {
    let patience_ms = patience.as_millis().min(1_000) as u16;
    sys::poll::any_readable(readiness, patience_ms).unwrap_or_else(|_| {
        // The next read reports the error; the pause prevents a busy loop until then.
        std::thread::sleep(std::time::Duration::from_millis(1));
        false
    })
}

/// Waits until a descriptor can be written, or its other end is gone; at most a minute. False after the wait, and after
/// a signal.
///
/// # Errors
/// The descriptor cannot be waited for.
pub fn wait_for_room(
    descriptor: std::os::fd::BorrowedFd<'_>,
    patience: std::time::Duration,
) -> std::io::Result<bool> {
    let patience_ms = patience.as_millis().min(60_000) as u16;
    sys::poll::writable(descriptor, patience_ms)
}
