//! Sources and sinks of frames: capture files, interfaces, shared memory, your own sources.
//!
//! ```
//! use fyke::capture::{MemorySource, Next, Source};
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut source = MemorySource::new(LinkType::EN10MB); // or open_file(path)?, RingSource::open(options)?
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! let filter = fyke::Filter::compile("greater 60")?;
//! let mut accepted = 0;
//! loop {
//!     match source.next()? {
//!         Next::Frames(batch, _held) => accepted += filter.matches_batch(&batch).count(),
//!         Next::Idle => {} // nothing came within the time-out of a live source
//!         Next::End => break,
//!     }
//! }
//! assert_eq!(accepted, 1);
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! | source | sink |
//! |---|---|
//! | [`open_file`]: pcap, pcapng, gzip, zstd, `-` | [`create_file`]: pcap, pcapng, rotation, `-` |
//! | [`RingSource`]: a live interface (needs `CAP_NET_RAW`) | [`InterfaceSink`]: sends frames |
//! | [`SharedSource`]: the [ring](crate::ring), or [service](crate::serve), of a process | [`ring`](crate::ring) |
//! | [`MemorySource`], [`FaultSource`]: for tests | |
//! | [`fan_out`]: a share of another source for each worker | |
//!
//! A source of your own implements [`Source`], and [`HeldFrames`] if it can show frames again after an edit
//! (look-back); `examples/own_source.rs` does both.
//!
//! The [`LookBack`] of a batch has no frame of that batch, and it has frames that were accepted before. After an edit
//! within a batch, evaluate the rest of the batch again, and skip the sequence numbers that you have delivered.

#[doc(inline)]
pub use fyke_capture::{
    ANY, Account, Available, DEFAULT_SNAPLEN, FanSource, FaultSource, FaultStats, Faults,
    FileOptions, FileSource, Format, FrameServer, HeldFrames, HeldMark, Interface, InterfaceSink,
    LinkState, LiveError, LookBack, MemorySource, Next, Notice, Output, PRIVATE, Problem,
    ReadError, RingOptions, RingSource, Rotation, ServerCounts, SharedSource, Sink, SinkStats,
    Source, SourceStats, WriteError, WriteOptions, create_file, fan_out, interface_name,
    interfaces_available, open_file, wait_for_any,
};
