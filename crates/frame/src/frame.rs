//! A frame: captured bytes, from the link header on, and what is known about them besides.
//!
//! A frame borrows its bytes (from a file buffer, a capture ring, a test), so it is `Copy` and costs nothing to
//! pass on. Nothing in it is trusted: `data` may be shorter than any header says, `wire_len` may be anything.

use crate::LinkType;

/// Which way a frame went, seen from the machine that captured it. Source: packet(7), `sll_pkttype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u8)]
pub enum Direction {
    /// The source does not say (a file without direction).
    #[default]
    Unknown = 0,
    /// Addressed to the capturing host.
    Inbound = 1,
    /// Link-layer broadcast.
    Broadcast = 2,
    /// Link-layer multicast.
    Multicast = 3,
    /// Addressed to someone else and seen in promiscuous mode.
    OtherHost = 4,
    /// Sent by the capturing host.
    Outbound = 5,
}

/// Metadata of a frame that is not in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Direction, where the source knows it.
    pub direction: Direction,
    /// Interface index of the operating system; 0 = unknown.
    pub ifindex: u32,
    /// Priority and identifier of a VLAN tag that the device has taken out of the bytes.
    pub vlan: Option<u16>,
    /// Delivered by look-back: captured before the edit that accepts it.
    pub late: bool,
}

/// Captured bytes and their metadata.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The captured bytes from the link header on; at most `wire_len` of them in an honest source.
    pub data: &'a [u8],
    /// Length of the frame on the wire, in bytes.
    pub wire_len: u32,
    /// Capture time in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp_ns: u64,
    /// What the first byte of `data` is.
    pub link: LinkType,
    /// Index into the source's list of interfaces.
    pub interface: u32,
    /// What the source knows besides the bytes.
    pub meta: Meta,
}

impl<'a> Frame<'a> {
    /// A whole frame without metadata, as tests and generators use it.
    #[inline]
    pub fn new(link: LinkType, data: &'a [u8]) -> Self {
        Frame {
            data,
            wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX),
            timestamp_ns: 0,
            link,
            interface: 0,
            meta: Meta::default(),
        }
    }
}
