//! Shared code of the tests of all crates. Only tests depend on it.
//!
//! | module | what |
//! |---|---|
//! | [`browser`] | a real browser without a window, driven by a test |
//! | [`conformance`] | filter texts, frames and verdicts, the same for every engine |
//! | [`corpus`] | captures and filter texts: the project's own, and more where a folder lies beside the repository |
//! | [`faults`] | faults of reading and writing, around any reader or writer |
//! | [`filter_text`] | random filter texts from the grammar |
//! | [`generate`] | makes the project's own captures |
//! | [`namespace`] | scripts and tests in network namespaces of their own |
//! | [`packet`] | builds packets with right lengths and checksums |
//! | [`pcap`] | reads and makes classic pcap files |
//! | [`pcapng`] | makes pcapng files, right ones and wrong ones |
//! | [`random`] | random numbers with a seed |
//! | [`skip`] | skips for what a machine lacks, failures for everything else |
#![forbid(unsafe_code)]

pub mod browser;
pub mod certificates;
pub mod conformance;
pub mod corpus;
pub mod faults;
pub mod filter_text;
pub mod generate;
pub mod namespace;
pub mod nats;
pub mod packet;
pub mod pcap;
pub mod pcapng;
pub mod random;
pub mod skip;
