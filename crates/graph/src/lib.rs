//! The path of a packet: a graph of nodes over batches, and the plain loop that `dump` and `track` run.
//!
//! | module | what |
//! |---|---|
//! | [`language`] | the graph language: text to tree, errors with their place |
//! | [`plan`] | trees to one graph: classes, tags, edges, equal prefixes put together |
//! | [`node`] | the contract of a node, and what a class is |
//! | [`classes`] | the classes that fyke brings, one folder each |
//! | [`draw`](mod@draw) | a graph as text, as Graphviz, as SVG |
//! | [`runtime`] | the graph at work: accounting, failures, edits |
//! | [`filters`] | the filter texts of a running fyke, over all link types, editable from any thread |
//! | [`pipeline`] | the loop of `dump` and `track`: judged, handed on; edits in between; look-back |
//!
//! An edit reaches the pipeline in one of two ways. From outside (the control socket) it takes effect at the next
//! batch. Made by the consumer while it looks at a frame (a tracker that reads a port number), it takes effect at the
//! next *frame*: the rest of the batch is judged again. Source: Swift, section 5.1 (FTPCap); `docs/papers/swift.md`.
//! Graphs are FFPF's; `docs/papers/ffpf.md`.
#![forbid(unsafe_code)]

pub mod classes;
pub mod draw;
pub mod filters;
pub mod language;
pub mod node;
pub mod pipeline;
pub mod plan;
pub mod runtime;

pub use classes::Classes;
pub use filters::{FilterError, FilterReader, FilterSet, RulesError};
pub use pipeline::{Accounting, Consumer, Flow, Pipeline};
pub use plan::Plan;
pub use runtime::{Engine, GraphHandle, GraphView};
