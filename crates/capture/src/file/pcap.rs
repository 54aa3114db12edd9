//! The pcap format: a 24-byte header, then records.
//!
//! Accepts the files that libpcap 1.10 accepts: both byte orders, microseconds and nanoseconds, Kuznetsov's longer
//! record headers, versions 2.0 to 2.4 and DG/UX's 543.0 with their exchanged length fields, a snapshot length of 0
//! or beyond 2^31 (ignored), records longer than the snapshot length (cut). Source: pcap-savefile(5); for tolerated
//! errors, libpcap's sf-pcap.c.

use super::order::Order;
use super::{Record, Step, largest_snaplen, usable_snaplen};
use crate::error::Problem;
use crate::source::Interface;
use fyke_frame::{Direction, Frame, LinkType};

/// Bytes of the file header.
pub(super) const HEADER_LEN: usize = 24;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const KUZNETSOV: u32 = 0xa1b2_cd34;

/// Bytes of a record header in a plain file.
const PLAIN_HEADER_LEN: usize = 16;

/// Four bytes in this machine's order. The caller has checked the length.
#[inline]
fn native(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads records of one file.
pub(super) struct Pcap {
    pub(super) order: Order,
    nanoseconds: bool,
    patched: bool,
    lengths: Lengths,
    link: LinkType,
    snaplen: u32,
    limit: u32,
}

/// Order of the two length fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    SmallerIsCaptured,
}

/// Byte order of a pcap file with these first bytes; `None` if it is not a pcap file.
pub(super) fn order_of(magic: [u8; 4]) -> Option<Order> {
    let known = |number| matches!(number, MICROSECONDS | NANOSECONDS | KUZNETSOV);
    if known(u32::from_le_bytes(magic)) {
        Some(Order::Little)
    } else if known(u32::from_be_bytes(magic)) {
        Some(Order::Big)
    } else {
        None
    }
}

impl Pcap {
    /// Reads the file header.
    pub(super) fn new(
        header: &[u8; HEADER_LEN],
        order: Order,
    ) -> Result<(Pcap, Interface), Problem> {
        let magic = order.u32(header, 0);
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        let lengths = match (major, minor) {
            (2, 0..=2) | (543, 0) => Lengths::WireFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            (2, 4) => Lengths::CapturedFirst,
            _ => return Err(Problem::Version { format: "pcap", major, minor }),
        };
        // The upper six bits describe frame check sequences.
        let link = order.u32(header, 20) & 0x03ff_ffff;
        let link = LinkType(u16::try_from(link).map_err(|_| Problem::LinkType(link))?);
        let patched = magic == KUZNETSOV;
        let mut snaplen = usable_snaplen(link, order.u32(header, 16));
        if patched && link == LinkType::EN10MB {
            // In a cooked capture, an Ethernet header may have been added to a packet of full snapshot length.
            snaplen = (snaplen + 14).min(i32::MAX as u32);
        }
        let nanoseconds = magic == NANOSECONDS;
        let limit = largest_snaplen(link);
        let interface = Interface { snaplen, nanoseconds, ..Interface::new("", link) };
        Ok((Pcap { order, nanoseconds, patched, lengths, link, snaplen, limit }, interface))
    }

    /// Decodes the next record.
    pub(super) fn step(&self, unparsed: &[u8]) -> Result<Step, Problem> {
        let header_len = if self.patched { 24 } else { PLAIN_HEADER_LEN };
        if unparsed.len() < header_len {
            return Ok(Step::Need { what: "record header", bytes: header_len });
        }
        let (first, second) = (self.order.u32(unparsed, 8), self.order.u32(unparsed, 12));
        let exchanged = match self.lengths {
            Lengths::CapturedFirst => false,
            Lengths::WireFirst => true,
            Lengths::SmallerIsCaptured => first > second,
        };
        let (captured, wire_len) = if exchanged { (second, first) } else { (first, second) };
        if captured > self.limit {
            return Err(Problem::CapturedLength { given: captured, limit: self.limit });
        }
        let len = header_len + captured as usize;
        if unparsed.len() < len {
            return Ok(Step::Need { what: "record", bytes: len });
        }
        let fraction = u64::from(self.order.u32(unparsed, 4));
        let nanoseconds = if self.nanoseconds { fraction } else { fraction * 1000 };
        let (ifindex, direction) = self.patched_fields(unparsed);
        let record = Record {
            data_at: header_len,
            captured: captured.min(self.snaplen),
            wire_len,
            timestamp_ns: u64::from(self.order.u32(unparsed, 0)) * 1_000_000_000 + nanoseconds,
            clamped: false,
            link: self.link,
            interface: 0,
            ifindex,
            direction,
        };
        Ok(Step::Frame { record, len })
    }

    /// True if [`scan`](Self::scan) and [`frame`](Self::frame) read this file: it has records of today's form in this
    /// machine's byte order.
    pub(super) fn is_plain(&self) -> bool {
        !self.patched && self.lengths == Lengths::CapturedFirst && !self.order.is_foreign()
    }

    /// Finds complete records in a plain file, until `starts` is full or [`step`](Self::step) has to look at the next
    /// one. Returns the number of bytes of all of them.
    ///
    /// PERF: only the chain of lengths is followed here, because each length is a load that the next one waits for; the
    /// fields are read by [`frame`](Self::frame), where the loads of several records overlap.
    pub(super) fn scan(&self, unparsed: &[u8], starts: &mut Vec<u32>, most: usize) -> usize {
        starts.clear();
        let mut at = 0;
        while starts.len() < most {
            let Some(header) = unparsed.get(at..at + PLAIN_HEADER_LEN) else { break };
            let captured = native(header, 8);
            let end = at + PLAIN_HEADER_LEN + captured as usize;
            if captured > self.limit || end > unparsed.len() {
                break;
            }
            starts.push(at as u32);
            at = end;
        }
        at
    }

    /// The frame of a record that [`scan`](Self::scan) has found at the start of `record`.
    #[inline]
    pub(super) fn frame<'r>(&self, record: &'r [u8]) -> Frame<'r> {
        let (header, data) = record.split_at(PLAIN_HEADER_LEN);
        let (seconds, fraction) = (u64::from(native(header, 0)), u64::from(native(header, 4)));
        let unit = if self.nanoseconds { 1 } else { 1000 };
        let captured = native(header, 8).min(self.snaplen) as usize;
        Frame {
            wire_len: native(header, 12),
            timestamp_ns: seconds * 1_000_000_000 + fraction * unit,
            ..Frame::new(self.link, &data[..captured])
        }
    }

    /// Interface index and direction, which only patched records contain.
    fn patched_fields(&self, unparsed: &[u8]) -> (u32, Direction) {
        if !self.patched {
            return (0, Direction::Unknown);
        }
        (self.order.u32(unparsed, 16), crate::cooked::direction(unparsed[22]))
    }
}
