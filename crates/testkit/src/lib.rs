//! What tests of all crates share. Never a dependency of anything but tests.
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | builds packets with right lengths and checksums |
//! | [`corpus`] | the shared captures and filters |
//! | [`random`] | random numbers with a seed |
#![forbid(unsafe_code)]

pub mod corpus;
pub mod packet;
pub mod random;
