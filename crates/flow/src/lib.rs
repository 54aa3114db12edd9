//! State that lasts longer than a packet: bounded in memory and time, and counted.
//!
//! | module | what | cost |
//! |---|---|---|
//! | [`ageing`] | a table with entries that expire | O(log n) per change |
//! | [`postponed`] | packets that wait until a fact is known | O(log n) per packet |
//! | [`fragments`] | the packet of a fragment: IPv4 and IPv6, in and out of order | O(log n) per fragment |
//! | [`reassembly`] | IP packets put together from their fragments | O(log n) per fragment |
//! | [`records`] | flow records: packets, bytes, flags and end of conversations | a hash look-up per packet |
//! | [`streams`] | the bytes of TCP connections in order | a hash look-up per segment |
//!
//! Time is taken from the packets ([`Clock`]) and never goes back, so a capture file behaves as the
//! live traffic did.
#![forbid(unsafe_code)]

pub mod ageing;
pub mod clock;
pub mod fragments;
mod overlap;
pub mod postponed;
pub mod reassembly;
pub mod records;
pub mod streams;

pub use ageing::Ageing;
pub use ageing::slots::AgeingSlots;
pub use clock::Clock;
pub use fragments::{Bounds, Counters, Fragment, FragmentTracker, PacketKey};
pub use postponed::{Held, Postponed};
pub use reassembly::Reassembler;
pub use records::Flows;
pub use streams::Streams;
