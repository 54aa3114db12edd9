//! Limits of streams, the treatment of unusual segments, and counters.

use super::Policies;

/// Limits for memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most connections.
    pub connections: usize,
    /// Most bytes that one direction holds.
    pub direction_bytes: usize,
    /// Most bytes that all directions hold, with an estimate for each piece.
    pub bytes: usize,
    /// Longest wait for missing bytes, in nanoseconds.
    pub gap_ns: u64,
    /// Time after which a silent connection is removed, in nanoseconds.
    pub idle_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            direction_bytes: 1 << 20,
            bytes: 64 << 20,
            gap_ns: 10_000_000_000,
            idle_ns: 300_000_000_000,
        }
    }
}

/// Treatment of segments that are not next in order, or belong to no known connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handling {
    /// Policies for overlaps and resets.
    pub policies: Policies,
    /// True if a connection without a captured SYN begins with its first segment; else its segments are ignored.
    pub midstream: bool,
    /// True if a SYN with another number begins a new connection of the same ends: at once if the known one has ended
    /// or only one end of it was seen, else if the other end answers it. False: it is ignored.
    pub renewal: bool,
    /// Most segments that one direction holds.
    pub direction_segments: usize,
    /// True if an early segment is held only if it follows the held ones, and there is room; else it is refused, and
    /// no gap is skipped for it.
    pub contiguous: bool,
}

impl Default for Handling {
    fn default() -> Self {
        Handling {
            policies: Policies::default(),
            midstream: true,
            renewal: true,
            direction_segments: 65_536,
            contiguous: false,
        }
    }
}

impl Handling {
    /// Limits and treatment of Hruby's thesis (6.5): 1,536 flows; 64 early segments, which follow each other; a second
    /// SYN and segments of unknown flows are dropped.
    pub fn thesis() -> (Limits, Handling) {
        let limits = Limits { connections: 1536, ..Limits::default() };
        let handling = Handling {
            midstream: false,
            renewal: false,
            direction_segments: 64,
            contiguous: true,
            ..Handling::default()
        };
        (limits, handling)
    }
}

/// Counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections, including those that began again.
    pub connections: u64,
    /// Connections that were first seen after their beginning.
    pub midstream: u64,
    /// Connections removed for lack of room before their idle time was over.
    pub evicted: u64,
    /// Flows of other protocols.
    pub datagram_flows: u64,
    /// Most flows at a time so far.
    pub most_flows: u64,
    /// Segments with payload.
    pub segments: u64,
    /// Bytes that were delivered.
    pub delivered_bytes: u64,
    /// Bytes that were received again.
    pub repeated_bytes: u64,
    /// Bytes that were received again with another value, while both copies were available.
    pub contradicting_bytes: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Bytes missing in gaps.
    pub missing_bytes: u64,
    /// Bytes of early segments, which are copied.
    pub copied_bytes: u64,
    /// Bytes that no receiver reads: after the end of their direction, or in a reset.
    pub dropped_bytes: u64,
    /// Directions of which the readers have seen enough.
    pub settled: u64,
    /// Segments with a number too far from the expected one.
    pub outside: u64,
    /// Segments that acknowledge what was not sent: their bytes wait until the receiver acknowledges them.
    pub doubtful: u64,
    /// Early segments that were refused because they do not follow the held ones, or for lack of room.
    pub refused: u64,
    /// Segments of unknown connections, SYNs of known ones, and segments without ACK, that were ignored.
    pub ignored: u64,
    /// Segments and fragments with a wrong checksum that were ignored.
    pub damaged: u64,
    /// Fragments of segments, and of tunnels' packets around segments, which are not reassembled here.
    pub fragments: u64,
}
