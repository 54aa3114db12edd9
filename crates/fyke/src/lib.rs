//! fyke as a library: a dynamic packet filter and traffic monitor.
//!
//! Facade of the workspace: each module re-exports one crate.
//!
//! ```
//! use fyke::filters::FilterSet;
//! use fyke::filter::Options;
//! use fyke::frame::{Batch, Frame, LinkType};
//!
//! let filters = FilterSet::new(Options { link: LinkType::IPV4, ..Options::default() });
//! filters.set("host 10.0.0.1")?;
//! let mut reader = filters.reader();
//!
//! // An IPv4 header and nothing more: 10.0.0.1 to 10.0.0.2.
//! let bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
//! let mut batch = Batch::new();
//! let _ = batch.push(Frame::new(LinkType::IPV4, &bytes));
//! reader.refresh();
//! assert_eq!(reader.evaluate(&batch, batch.all())?.count(), 1);
//!
//! filters.set("host 10.0.0.3")?; // from any thread, while others evaluate
//! reader.refresh();
//! assert_eq!(reader.evaluate(&batch, batch.all())?.count(), 0);
//! # Ok::<(), fyke::filters::FilterError>(())
//! ```
#![forbid(unsafe_code)]

pub use fyke_capture as capture;
pub use fyke_control as control;
pub use fyke_filter as filter;
pub use fyke_filters as filters;
pub use fyke_frame as frame;
pub use fyke_graph as graph;
pub use fyke_pass as pass;
pub use fyke_print as print;
pub use fyke_track as track;
