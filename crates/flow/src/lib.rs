//! State that outlives a packet: bounded in memory, bounded in time, and counted.
//!
//! | module | what | cost |
//! |---|---|---|
//! | [`ageing`] | a table whose entries end by themselves | O(log n) a change |
//! | [`postponed`] | packets that wait for something to become known | O(log n) a packet |
//! | [`fragments`] | whose fragment this is: IPv4 and IPv6, in and out of order | O(log n) a fragment |
//! | [`streams`] | the bytes of TCP connections in order | a hash look-up a segment |
//!
//! Time is what the packets say ([`Clock`]): it never goes back, so a capture file behaves as the wire did.
#![forbid(unsafe_code)]

pub mod ageing;
pub mod clock;
pub mod fragments;
pub mod postponed;
pub mod streams;

pub use ageing::Ageing;
pub use clock::Clock;
pub use fragments::{Bounds, Counters, Fragment, FragmentTracker, PacketKey};
pub use postponed::{Held, Postponed};
pub use streams::Streams;
