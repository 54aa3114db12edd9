//! What tests of several crates need: packets, corpora, random numbers with a seed.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod corpus;
pub mod filter_text;
pub mod random;
