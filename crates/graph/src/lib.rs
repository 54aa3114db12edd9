//! The path of a packet: source, filters, consumer.
//!
//! | module | what |
//! |---|---|
//! | [`filters`] | the filter texts of a running fyke, over all link types, editable from any thread |
//! | [`pipeline`] | the loop: batches from a source, judged, handed on; edits in between; exact accounting |
//!
//! An edit reaches the loop in one of two ways. From outside (the control socket) it takes effect at the next batch.
//! Made by the consumer while it looks at a frame (a tracker that reads a port number), it takes effect at the next
//! *frame*: the rest of the batch is judged again. Source: Swift, section 5.1 (FTPCap); `docs/papers/swift.md`.
#![forbid(unsafe_code)]

pub mod filters;
pub mod pipeline;

pub use filters::{FilterError, FilterReader, FilterSet, RulesError};
pub use pipeline::{Accounting, Consumer, Flow, Pipeline};
