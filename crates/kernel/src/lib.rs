//! The kernel space: one eBPF program, verified once, that runs passes from memory. User space edits them by stores.
//!
//! ```text
//! PassSet ─▶ sync ─▶ KernelPasses ─▶ stores into mapped memory ─▶ the program, on every frame of a socket
//! NewPass, AddParam, … ─▶
//! ```
//!
//! | module | what | cost |
//! |---|---|---|
//! | [`layout`] | layout of the shared memory | |
//! | [`space`] | loads the program, attaches it to sockets and interfaces | 11 to 20 ms once, about 1 µs per socket |
//! | [`passes`] | the lists of passes in force, and their edits | O(1) stores per edit |
//! | [`rows`] | tables in the shared memory | one store per row |
//! | [`shape`] | many passes of one shape as one instruction | up to four look-ups per frame |
//! | [`share`] | lends the memory of a filter to a program without privilege | |
//! | [`family`] | a program and all its descendants, which end together | |
//! | [`notify`] | system calls of the program that make packet sockets, held until they are answered | 10 µs per call |
//! | [`sockets`] | packet sockets of other processes | |
//! | [`prefilter`] | Deri's pre-filter in the kernel: arrays, the tap of a socket, XDP | a few stores per rule |
//! | [`redirect`] | frames at XDP to AF_XDP sockets | |
//! | [`tier`] | passes that have been stable for a while become generated eBPF | 0.1 to 30 ms, in the background |
//! | [`loader`] | a process that keeps the right to load such programs when this one gives it up | a forked process |
//! | [`sync`] | makes the lists equal to those of a pass set | O(passes) compared, O(change) written |
//! | `collapse` | selects the passes of a set that become rows | O(passes) |
//! | `code` | texts as classic BPF, for conditions that passes cannot express | 3 ns per instruction |
//! | [`direct`] | checks that programs may read a frame's bytes in place | |
//! | [`ebpf`] | a small assembler for eBPF, and the loader for its programs | |
//! | [`error`] | errors, with hints about the kernel that would help | |
//!
//! An edit needs no system call. **A half-written instruction is never executed**: new instructions are written to a
//! slot that is not reachable, and one release store makes them reachable. Removed slots stay unchanged until every
//! program run that may use them has ended. A frame in flight sees the list before the edit or after it, never a
//! mixture.
//!
//! Needs Linux 6.9 (`may_goto`), or 5.17 for a slower form ([`options::Form`]), which also runs if the verifier finds
//! the first too complex (6.12); and root, or `CAP_BPF` with `CAP_NET_ADMIN`. If something is missing, the error of
//! [`space::Space::open`] names it, and the caller runs in user space. Descriptors own everything: when the last
//! process that holds the socket ends, the kernel frees program and maps.
//!
//! Source: Swift, sections 3 and 4.1; NPF, chapter IV; `kernel/bpf/fyke.bpf.c` is the program.
#![deny(unsafe_code)]

mod btf;
mod code;
mod collapse;
mod counters;
pub mod direct;
pub mod ebpf;
pub mod error;
mod facts;
pub mod family;
pub mod layout;
pub mod loader;
pub mod notify;
pub mod options;
pub mod passes;
pub mod prefilter;
pub mod redirect;
pub mod rows;
pub mod shape;
pub mod share;
pub mod snapshot;
pub mod sockets;
pub mod space;
mod specialise;
pub mod sync;
#[allow(unsafe_code, reason = "mapped memory and system calls that no crate wraps")]
pub mod sys;
pub mod tier;

/// Gives the calling thread a real-time priority, for measurements on a machine that others use, too.
///
/// # Errors
/// The privilege is missing.
pub fn run_before_others() -> std::io::Result<()> {
    sys::run_before_others()
}

pub use collapse::Sharing;
pub use counters::CountReader;
pub use error::{AttachError, KernelEditError, OpenError};
pub use options::{Form, Options};
pub use passes::{KernelPassId, KernelPasses, NewPass, later};
pub use rows::{Rows, TableId};
pub use share::{Borrowed, Lent};
pub use snapshot::{Snapshot, Specialised};
pub use sockets::PacketSocket;
pub use space::{Judge, Space, Tallies, Way};
pub use sync::{ByHand, Mirror, Prepared, RowsView};
pub use sys::TestRun;
pub use tier::Tuner;
