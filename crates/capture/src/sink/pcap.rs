//! Writing the pcap format, in the version and byte order that every reader supports (2.4, this machine's order).

use fyke_frame::{Frame, LinkType};

/// Properties of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pcap {
    link: LinkType,
    nanoseconds: bool,
    /// Snapshot length in the header: readers cut frames to it.
    snaplen: u32,
}

/// Offset of the snapshot length in a file.
pub(super) const SNAPLEN_AT: usize = 16;

impl Pcap {
    /// Properties of a file that has its header.
    pub(super) fn of_file(link: LinkType, snaplen: u32, nanoseconds: bool) -> Pcap {
        Pcap { link, nanoseconds, snaplen }
    }

    /// Link type of the file; frames of other link types cannot be written.
    pub(super) fn link(&self) -> LinkType {
        self.link
    }

    /// True if the header must be changed before a frame of this length is written; assumes that it will be changed.
    pub(super) fn raise_snaplen(&mut self, snaplen: u32) -> bool {
        let raised = snaplen > self.snaplen;
        self.snaplen = self.snaplen.max(snaplen);
        raised
    }

    /// Writes the file header.
    pub(super) fn start(
        link: LinkType,
        snaplen: u32,
        nanoseconds: bool,
        out: &mut Vec<u8>,
    ) -> Self {
        let magic: u32 = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        out.extend_from_slice(&magic.to_ne_bytes());
        out.extend_from_slice(&2u16.to_ne_bytes());
        out.extend_from_slice(&4u16.to_ne_bytes());
        for word in [0, 0, snaplen, u32::from(link.0)] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        Pcap { link, nanoseconds, snaplen }
    }

    /// Writes a record. In a file without nanoseconds, timestamps are truncated.
    pub(super) fn frame(&self, frame: &Frame<'_>, data: &[u8], out: &mut Vec<u8>) {
        let seconds = u32::try_from(frame.timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let nanoseconds = (frame.timestamp_ns % 1_000_000_000) as u32;
        let fraction = if self.nanoseconds { nanoseconds } else { nanoseconds / 1000 };
        let mut header = [0; 16];
        let words = [seconds, fraction, data.len() as u32, frame.wire_len];
        for (place, word) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        out.reserve(header.len() + data.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(data);
    }
}
