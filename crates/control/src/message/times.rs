//! Times of edits, and the readers of a service, for monitoring systems.

use serde::{Deserialize, Serialize};

/// Edits by clients of the control socket, and the time from a request to its being in force. The edits of trackers,
/// of ends of filters' times and of the command line are not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditTimes {
    /// Edits in force.
    pub edits: u64,
    /// Requests for edits that were refused.
    pub refused: u64,
    /// Sum of the times, in nanoseconds.
    pub sum_ns: u64,
    /// Longest time, in nanoseconds.
    pub max_ns: u64,
    /// The edits by time, in the order of the bounds; each entry has those before it. Longer ones are in `edits` only.
    pub within: Vec<EditsWithin>,
}

/// Edits that took at most a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditsWithin {
    /// The time, in nanoseconds.
    pub ns: u64,
    /// Number of edits.
    pub edits: u64,
}

/// A reader of `fyke serve` and its frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderCount {
    /// Its number, which no other reader of the service ever has.
    pub id: u64,
    /// Name of the capture that it reads.
    pub capture: String,
    /// Its user.
    pub user: u32,
    /// Its process; 0 if it is in another PID namespace.
    pub pid: u32,
    /// Its program, as it named itself.
    pub program: String,
    /// Frames that its texts accepted.
    pub accepted: u64,
    /// Frames that its texts rejected.
    pub rejected: u64,
    /// Accepted frames that it has not read and can still read: its lag.
    pub unread: u64,
    /// Frames that it lost: accepted ones that were overwritten before it read them, and its part of those that the
    /// capture dropped, which are neither accepted nor rejected.
    pub lost: u64,
}
