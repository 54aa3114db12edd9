//! The messages between a client and a relay. Each has a kind and a length before it ([`link`](crate::link)); requests
//! and responses are JSON objects, [frames](crate::batch) are bytes.
//!
//! ```text
//! → hello  ← hello  → credit  → edit … ← edited … ← frames, interfaces, counts … → end  ← ended
//! ```
//!
//! An end refuses what it does not know.

use serde::{Deserialize, Serialize};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Most interfaces of a source.
pub const MAX_INTERFACES: usize = 1 << 12;

/// A text with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The number.
    pub id: u64,
    /// The filter text; an empty one accepts every frame.
    pub text: String,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first one; answered by [`Response::Hello`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The capture; without a name, the only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// True for a ring, false for a service.
        #[serde(default)]
        ring: bool,
        /// A graph that the service runs for this client, in place of texts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        graph: Option<String>,
    },
    /// Removes and adds texts as one edit; answered by [`Response::Edited`] with its number.
    Edit {
        /// Number of the edit.
        number: u64,
        /// Numbers of the texts that it removes.
        remove: Vec<u64>,
        /// Texts that it adds.
        add: Vec<Text>,
    },
    /// There is room for more bytes of frames.
    Credit {
        /// The bytes.
        bytes: u64,
    },
    /// Send what has arrived, then [`Response::Ended`].
    End {},
    /// The client is there.
    Alive {},
}

/// A response of a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case", deny_unknown_fields)]
pub enum Response {
    /// Answer to [`Request::Hello`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Name of the client.
        client: String,
        /// True if the source evaluates texts; a ring does not.
        filters: bool,
        /// True if a rule decides, too, which frames the client gets.
        restricted: bool,
        /// The interfaces so far.
        interfaces: Vec<Origin>,
    },
    /// Answer to [`Request::Edit`].
    Edited {
        /// Number of the edit.
        number: u64,
        /// The reason if it was refused; then nothing has changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// Further interfaces.
    Interfaces {
        /// They follow those before.
        more: Vec<Origin>,
    },
    /// Counts so far.
    Counts(Counts),
    /// No more frames follow.
    Ended {
        /// The last counts.
        counts: Counts,
        /// The reason if it is not the end of the capture.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A request was refused; the connection ends.
    Refused {
        /// The reason.
        reason: String,
        /// True if the same greeting may be accepted later.
        #[serde(default, skip_serializing_if = "is_false")]
        later: bool,
    },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// An interface of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Its name there.
    pub name: String,
    /// Number of its link type.
    pub link: u16,
    /// Most bytes of a frame.
    pub snaplen: u32,
    /// True if its time stamps are finer than microseconds.
    pub nanoseconds: bool,
    /// Netmask of its first IPv4 address.
    pub netmask: u32,
}

/// Counts of a client since its first text: `sent + rejected + lost + unreadable` are all frames of the interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that no text accepted.
    pub rejected: u64,
    /// Frames that were lost before they were evaluated, by the capture.
    pub dropped: u64,
    /// Accepted frames that were lost because this client was too slow, or too long for the buffer.
    pub overrun: u64,
    /// Frames that the writer of a ring has damaged.
    pub unreadable: u64,
    /// True if frames were rejected that are not counted.
    pub is_partial: bool,
}

impl Counts {
    /// The sum of the counts of two connections.
    #[must_use]
    pub fn plus(self, other: &Counts) -> Counts {
        Counts {
            sent: self.sent + other.sent,
            rejected: self.rejected + other.rejected,
            dropped: self.dropped + other.dropped,
            overrun: self.overrun + other.overrun,
            unreadable: self.unreadable + other.unreadable,
            is_partial: self.is_partial | other.is_partial,
        }
    }

    /// True if no count is lower than before.
    pub fn follows(&self, before: &Counts) -> bool {
        let all = |counts: &Counts| {
            let Counts { sent, rejected, dropped, overrun, unreadable, .. } = *counts;
            [sent, rejected, dropped, overrun, unreadable]
        };
        all(self).into_iter().zip(all(before)).all(|(now, before)| now >= before)
    }
}
