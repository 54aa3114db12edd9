//! What tests of all crates share. Never a dependency of anything but tests.
//!
//! | module | what |
//! |---|---|
//! | [`conformance`] | filter texts, frames and verdicts, the same for every engine |
//! | [`corpus`] | captures and expressions that lie beside the repository |
//! | [`filter_text`] | random filter texts from the grammar |
//! | [`packet`] | builds packets with right lengths and checksums |
//! | [`pcap`] | reads classic pcap files |
//! | [`random`] | random numbers with a seed |
#![forbid(unsafe_code)]

pub mod conformance;
pub mod corpus;
pub mod filter_text;
pub mod packet;
pub mod pcap;
pub mod random;
