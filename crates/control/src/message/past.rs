//! Answers about frames of the past: those that a filter would accept, and those that the filters rejected.

use serde::{Deserialize, Serialize};

/// The frames of the past that an answer is about: the latest that arrived at the filters and that are still kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Number of frames that were evaluated.
    pub frames: u64,
    /// Number of frames that arrived at the filters meanwhile; if it is larger, only some of them are kept.
    pub arrived: u64,
    /// Time from the first to the last of them, in milliseconds.
    pub span_ms: u64,
    /// Frames that the kernel has rejected since the start; these never arrive at the filters, so they are not among
    /// those evaluated. Absent if the kernel rejects none at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_in_kernel: Option<u64>,
    /// The service that has rejected these frames instead of the kernel, such as `serve:eth0`, or
    /// `the graph in serve:eth0` of a reader with a graph there; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_by: Option<String>,
}

/// Answer to [`Request::Try`](super::Request::Try).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The frames.
    pub past: Past,
    /// Those that the tried filter accepts.
    pub accepted: u64,
    /// Those of them that no filter in force accepts.
    pub new: u64,
    /// Those that the filters in force accept.
    pub in_force: u64,
    /// The first of the new frames or, if there is none, of the accepted ones.
    pub first: Vec<ShownFrame>,
}

/// Answer to [`Request::Why`](super::Request::Why).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The frames that were evaluated in search of rejected ones.
    pub past: Past,
    /// The latest rejected frames, oldest first.
    pub frames: Vec<RejectedFrame>,
    /// Number of filters that are not explained: only the first few are.
    pub more_filters: u64,
}

/// A rejected frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedFrame {
    /// The frame.
    pub frame: ShownFrame,
    /// The reason for each filter.
    pub reasons: Vec<Reason>,
}

/// Reason why a filter rejected a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Id of the filter.
    pub filter: u64,
    /// The primitive that decided; `None` if the text does not fit the link type of the frame.
    pub decided: Option<String>,
    /// Its result: `yes` (under `not`), `no`, or `cannot be read`.
    pub result: String,
    /// Number of primitives that were evaluated before it.
    pub before: u64,
}

/// A frame as a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownFrame {
    /// Its time, nanoseconds since 1970.
    pub timestamp_ns: u64,
    /// Its link type, without `DLT_`.
    pub link: String,
    /// Its length on the wire.
    pub wire_len: u32,
    /// Its line as `fyke dump -n` prints it, without the time. It contains data of the packet: not to be trusted.
    pub line: String,
}

/// Verdict of the filters in force on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A filter accepts it.
    Accepted,
    /// No filter accepts it.
    Rejected,
}

/// Answer to [`Request::Frames`](super::Request::Frames).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// The frames that were evaluated in search of these.
    pub past: Past,
    /// The frames, oldest first.
    pub frames: Vec<KeptFrame>,
    /// Number of filters that are not explained: only the first few are.
    pub more_filters: u64,
}

/// A frame with its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFrame {
    /// The frame.
    pub frame: ShownFrame,
    /// The verdict of the filters in force.
    pub verdict: Verdict,
    /// Its first bytes, at most 2,048, two hexadecimal digits each. They are data of the packet: not to be trusted.
    pub bytes: String,
    /// Number of captured bytes.
    pub captured: u64,
    /// Number of bytes of its headers, as far as they are known; the payload follows.
    pub header_len: u64,
    /// The reason for each filter, if it is rejected.
    pub reasons: Vec<Reason>,
}
