//! Hashed rows, sets, prefixes and Bloom filters: look up many similar passes at the cost of one.
//!
//! Every structure has one writer and any number of readers in other threads. Readers take no lock and never wait for
//! an edit; an edit is a few stores. When a structure becomes too small, the writer builds a larger one and swaps it
//! in.
//!
//! | type | answers | when to use it | caveat |
//! |---|---|---|---|
//! | [`RowTable`] | *which row* has this key of 1 to 6 words | passes of one shape, from some 20 on | one row per key |
//! | [`BlockedBloom`] | *certainly none* or *maybe* | in front of every [`RowTable`] | passes 1 to 4 % too much |
//! | [`RegisterSet`] | whether a word is one of up to 48 | two vector compares for 16 lanes | built anew per edit |
//! | [`ValueSet`] | the same, for any number of values | operands that are sets | moves to a table above 48 |
//! | [`PrefixTable`] | the longest prefix of an address | nets: one table per prefix length | lengths are capped |
//! | [`prefilter`] | *certainly none* or *maybe* | rule texts, in front of everything else (Deri) | the same |
//!
//! Hashes are keyed with random numbers from the operating system and probes are bounded, so an attacker that can add
//! rows cannot make look-ups slow. The layouts of [`layout`] are plain words without pointers: a kernel can map them.
#![deny(unsafe_code)]

pub mod arch;
pub mod bloom;
pub mod hash;
pub mod layout;
pub mod prefilter;
pub mod prefix;
mod protocol;
mod published;
pub mod register_set;
pub mod row_table;
mod sync;
pub mod value_set;

pub use arch::Level;
pub use bloom::BlockedBloom;
pub use hash::Seed;
pub use layout::{Column, MAX_KEY_WORDS};
pub use prefix::{PrefixError, PrefixReader, PrefixTable};
pub use register_set::RegisterSet;
pub use row_table::{RowTable, TableError, TableReader, TableStats};
pub use value_set::{ValueSet, ValueSetReader};
