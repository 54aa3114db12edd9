//! What a frame holds for a tracker: the TCP segment of its innermost packet, or that it is a fragment of one.
//!
//! Fragments are told apart, not put together. What the capture cut off is known by `payload_len` being larger than
//! `payload`.

pub(crate) use fyke_flow::streams::Segment;
pub(crate) use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};

use fyke_frame::Frame;
use fyke_frame::walk::walk;

/// What a frame holds for a tracker.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    Tcp(Segment<'a>),
    /// A fragment of a TCP segment: its ports or the end of its payload are elsewhere.
    TcpFragment,
    Other,
}

/// Reads a frame down to the TCP payload. Headers that are cut short or contradict themselves make it `Other`.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Content<'a> {
    let layers = walk(frame);
    match Segment::of(&layers) {
        Some(segment) => Content::Tcp(segment),
        None if Segment::is_fragment(&layers) => Content::TcpFragment,
        None => Content::Other,
    }
}
