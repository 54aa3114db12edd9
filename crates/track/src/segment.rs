//! Content of a frame for a tracker: the TCP segment of its innermost packet, or the fact that it
//! is a fragment of one.
//!
//! Fragments are detected, not reassembled. If `payload_len` is larger than `payload`, the capture
//! has cut the frame.

pub(crate) use fyke_flow::streams::Segment;
pub(crate) use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};

use fyke_frame::Frame;
use fyke_frame::walk::walk;

/// Content of a frame for a tracker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    Tcp(Segment<'a>),
    /// A fragment of a TCP segment: its ports or the end of its payload are elsewhere.
    TcpFragment,
    Other,
}

/// Reads a frame down to the TCP payload. Headers that are cut short or contradictory make it
/// `Other`.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Content<'a> {
    let layers = walk(frame);
    match Segment::of(&layers) {
        Some(segment) => Content::Tcp(segment),
        None if Segment::is_fragment(&layers) => Content::TcpFragment,
        None => Content::Other,
    }
}
