//! `libfyke`: filters in the kernel for C programs, edited by memory stores.
//!
//! The eight calls of the papers' libraries under fyke's names (`compat.h` has them as
//! `SPF_…` and `NPF_…`), filter texts, attachment to any packet socket (that of a libpcap
//! handle too: `pcap_fileno`), counters, errors.
//!
//! A filter belongs to one thread at a time. A call that fails returns −1 (or `NULL`, or
//! `false`) and does not change the filter; [`fyke_error`] returns the reason. An edit
//! makes no system call.
//!
//! Source: Swift, section 4.2; NPF, chapter IV.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "pointers from C")]
mod calls;
mod filter;

pub use calls::*;
pub use filter::{FykeCounts, FykeFilter, FykeOp};
