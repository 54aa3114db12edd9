//! State that lasts longer than a packet, bounded in memory and time: ageing tables, fragments, TCP streams.
//!
//! ```
//! use fyke::flow::Ageing;
//!
//! let mut conversations: Ageing<&str, u32> = Ageing::new(1_000); // its limit
//! conversations.insert("a to b", 1, 60_000_000_000); // until 60 s after the epoch
//! assert_eq!(conversations.get(&"a to b", 59_000_000_000), Some(&1));
//! assert_eq!(conversations.get(&"a to b", 60_000_000_001), None);
//! ```
//!
//! Time is taken from the frames, so a capture file behaves as the live traffic did.

#[doc(inline)]
pub use fyke_flow::{
    Ageing, Bounds, Clock, Counters, Fragment, FragmentTracker, Held, PacketKey, Postponed,
    Reassembler, Streams, postponed, reassembly, streams,
};
