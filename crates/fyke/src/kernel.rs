//! The kernel space (feature `kernel`): passes evaluated by one eBPF program, edited by stores into its memory.
//!
//! For filter texts use [`KernelFilters`](crate::filters::KernelFilters). This module is the layer below: the
//! loaded program, lists of passes, generated programs for what has been stable.
//!
//! ```
//! use fyke::filters::KernelFilters;
//! use fyke::frame::LinkType;
//!
//! // Needs Linux 5.17 (6.9 for the fast form), and root or CAP_BPF with CAP_NET_ADMIN.
//! match KernelFilters::open(LinkType::EN10MB) {
//!     Ok(filters) => drop(filters.add("tcp port 80")?), // attach(socket) next
//!     Err(error) => eprintln!("in user space then: {error}"),
//! }
//! # Ok::<(), fyke::Error>(())
//! ```

#[doc(inline)]
pub use fyke_kernel::{
    AttachError, Borrowed, ByHand, Form, Judge, KernelEditError, KernelPassId, KernelPasses, Lent,
    Mirror, NewPass, OpenError, Options, PacketSocket, Prepared, Rows, RowsView, Snapshot, Space,
    Specialised, TableId, Tallies, TestRun, Tuner, Way,
};
