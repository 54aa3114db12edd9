//! Deri's Bloom pre-filter in the kernel: arrays in mapped memory, and the programs that read them.
//!
//! ```text
//! Prefilter ─▶ Arrays ─▶ stores into mapped memory ─▶ Tap: the first filter of a monitoring socket
//!                                                  ├▶ Watcher: tcx, both directions of an interface
//!                                                  └▶ Dropper: XDP, for monitoring ports
//! ```
//!
//! | program | what it rejects | the host | Linux |
//! |---|---|---|---|
//! | [`Tap`] | does not reach its sockets; [`Tap::follow`] names the filter after it | sees every frame | 5.5 |
//! | [`Watcher`] | is counted and not copied to another interface | sees every frame | 6.6 |
//! | [`Dropper`] | is dropped before all sockets | loses these frames, too | 5.9 |
//!
//! Any number of programs, of several processes, read the arrays of one pre-filter
//! ([`Prefilter`](fyke_table::prefilter::Prefilter)); only its process writes them. A rule is in force
//! after a few stores, without a system call. A program decides about frames with plain headers and passes all others,
//! so user space can decide about those.
//!
//! Cost: `fyke bench bloom --live`. Source: Deri, *High-Speed Dynamic Packet Filtering* (2007);
//! `kernel/bpf/prefilter.bpf.c` are the programs.

mod arrays;
mod dropper;
pub mod layout;
mod object;
mod tap;
mod watcher;

pub use arrays::{Arrays, ArraysView};
pub use dropper::{DropError, Dropper, DropperMode};
pub(crate) use dropper::{attach, attach_bound};
pub use tap::Tap;
pub use watcher::{Watched, Watcher};
