//! What tests of all crates share. Never a dependency of anything but tests.
//!
//! | module | what |
//! |---|---|
//! | [`corpus`] | captures and expressions that lie beside the repository |
//! | [`packet`] | builds packets with right lengths and checksums |
//! | [`random`] | seeded numbers, the same on every version |
#![forbid(unsafe_code)]

pub mod corpus;
pub mod packet;
pub mod random;
