//! The parameter `snaplen` of output classes: most bytes of a frame that leave the graph. Cost: nothing per frame.

use crate::node::{MakeError, Parameter, Settings};
use fyke_capture::DEFAULT_SNAPLEN;
use fyke_frame::Frame;

/// The parameter.
pub const SNAPLEN: Parameter =
    Parameter { name: "snaplen", summary: "most bytes of a frame (262144)" };

/// Reads the parameter.
///
/// # Errors
/// If it is not a number from 1 to 262,144.
pub fn snaplen(settings: &Settings) -> Result<usize, MakeError> {
    let longest = u64::from(DEFAULT_SNAPLEN);
    Ok(settings.number_or("snaplen", 1..=longest, longest)? as usize)
}

/// Returns the frame, cut to `snaplen` bytes; its length on the wire stays.
pub fn cut<'f>(frame: &Frame<'f>, snaplen: usize) -> Frame<'f> {
    Frame { data: &frame.data[..frame.data.len().min(snaplen)], ..*frame }
}
