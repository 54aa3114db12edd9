//! What tests of all crates share. Never a dependency of anything but tests.
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | builds packets with right lengths and checksums |
//! | [`pcap`] | reads classic pcap files |
#![forbid(unsafe_code)]

pub mod packet;
pub mod pcap;
