//! The kernel space: one eBPF program, verified once, that runs passes from memory which user space edits by stores.
//!
//! ```text
//! PassSet ─▶ sync ─▶ KernelPasses ─▶ stores into mapped memory ─▶ the program, on every frame of a socket
//! NewPass, AddParam, … ─▶
//! ```
//!
//! | module | what | cost |
//! |---|---|---|
//! | [`layout`] | where everything is in the shared memory | |
//! | [`space`] | loads the program, attaches it to sockets and interfaces | 11 to 20 ms once, about 1 µs a socket |
//! | [`passes`] | the list of live passes and how it is edited | O(1) stores an edit |
//! | [`rows`] | tables in the shared memory | one store a row |
//! | [`shape`] | many passes of one shape as one instruction | up to four look-ups a frame |
//! | [`share`] | the memory of a filter in the hands of a program without privilege | |
//! | [`family`] | a program and all that it starts, which ends together | |
//! | [`notify`] | its calls that make packet sockets, held until they are answered | 10 µs a call |
//! | [`sockets`] | packet sockets of other processes | |
//! | [`tier`] | what has been stable for a while becomes generated eBPF | 0.1 to 30 ms, in the background |
//! | [`sync`] | makes the lists equal to a pass set's | O(passes) compared, O(change) written |
//! | `collapse` | which passes of a set are rows | O(passes) |
//! | `code` | texts as classic BPF, for what passes cannot say | 3 ns an instruction |
//! | [`direct`] | whether programs may look at a frame's bytes where they are | |
//! | [`ebpf`] | a small assembler for eBPF, and loading what it made | |
//! | [`error`] | what can go wrong, and which kernel would help | |
//!
//! An edit needs no system call. **A half-written instruction is never executed**: new instructions are written to a
//! slot that nothing points to and become reachable by one release store; what was taken out of the list stays as it
//! is until every program run that may still be in it has ended. Frames in flight see the list before the edit or
//! after it, never between.
//!
//! Needs Linux 6.9 (`may_goto`), or 5.17 for a slower form ([`options::Form`]), which also runs if the verifier finds
//! the first too complex (6.12); and root or `CAP_BPF` with
//! `CAP_NET_ADMIN`; [`space::Space::open`] says what is missing, and the caller runs in user space then. Everything is
//! owned by descriptors: when the last process that holds the socket ends, program and maps are gone.
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
pub mod notify;
pub mod options;
pub mod passes;
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

/// Lets the calling thread run before all ordinary ones, for measuring on a machine that others use too.
///
/// # Errors
/// Without the privilege.
pub fn run_before_others() -> std::io::Result<()> {
    sys::run_before_others()
}

pub use error::{AttachError, KernelEditError, OpenError};
pub use options::{Form, Options};
pub use passes::{KernelPassId, KernelPasses, NewPass};
pub use rows::{Rows, TableId};
pub use share::{Borrowed, Lent};
pub use snapshot::{Snapshot, Specialised};
pub use sockets::PacketSocket;
pub use space::{Judge, Space, Tallies, Way};
pub use sync::{ByHand, Mirror, Prepared, RowsView};
pub use sys::TestRun;
pub use tier::Tuner;
