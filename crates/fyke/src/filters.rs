//! Filter texts in force, with everything that [`fyke::LiveFilter`](crate::LiveFilter) leaves out: several link
//! types, views of the passes, verdicts that are counted later, and the same in the kernel.
//!
//! ```
//! use fyke::filter::Options;
//! use fyke::filters::{Change, FilterSet};
//! use fyke::frame::{Batch, Frame, LinkType};
//!
//! let filters = FilterSet::new(Options { link: LinkType::IPV4, ..Options::default() });
//! filters.edit(&[Change::Set("host 10.0.0.1"), Change::Add("host 10.0.0.3")])?; // one epoch
//! let mut reader = filters.reader(); // one for each thread
//!
//! let bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
//! let mut batch = Batch::new();
//! batch.push(Frame::new(LinkType::IPV4, &bytes)).expect("the first of 256");
//! reader.refresh();
//! let accepted = reader.evaluate(&batch, batch.all())?;
//! reader.count(accepted);
//! assert_eq!(filters.counts()[0].accepted, 1);
//! assert_eq!(filters.view()[0].passes.len(), 1); // of one instruction: either end
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! With the feature `kernel`, `KernelFilters` is the same list for packet sockets, evaluated by an eBPF program
//! before a frame is copied to user space.

#[doc(inline)]
pub use fyke_filters::{
    Change, FilterCount, FilterCounts, FilterError, FilterReader, FilterSet, FilterView,
    GroupError, Inputs, PassDescription, Refused, Tags, received,
};

#[cfg(feature = "kernel")]
#[doc(inline)]
pub use fyke_filters::{ByHand, ByHandError, KernelFilters, LoweredGroup, SocketError};
