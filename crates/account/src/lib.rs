//! Accounting: what each interface sent and received, by filter and by class of application, in intervals of time.
//!
//! ```text
//! frame ─▶ demux: a class value for each filter that accepts it ─▶ account ─▶ tallies of an interval
//!                                                                               └─▶ table, CSV, Arrow, Parquet, IPFIX
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`class`] | the graph class `account` |
//! | [`classes`] | classes of applications, from a file or built in |
//! | [`tallies`] | frames and bytes of the open intervals |
//! | [`row`] | a row of the account, and its forms |
//! | [`table`] | the rows of an interval for people |
//! | `counters` | the counters of interfaces at the ends of intervals |
//!
//! The sums close: frames of the classes and of `unknown` are those that were seen; `other` has the frames that no
//! filter accepts; seen and lost frames are those that arrived. The counters of the interface, which the kernel makes
//! beside the capture, are rows of their own, and so is the difference. Source: Deri, High-Speed Dynamic Packet
//! Filtering, section 6 (accounting by difference).
#![forbid(unsafe_code)]

pub mod class;
pub mod classes;
mod counters;
pub mod row;
pub mod table;
pub mod tallies;

pub use class::CLASS;
