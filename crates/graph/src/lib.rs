//! The path of a packet: a graph of nodes over batches. Everything fyke does with frames is such a graph.
//!
//! | module | what |
//! |---|---|
//! | [`language`] | the graph language: text to tree, errors with their place |
//! | [`plan`] | trees to one graph: classes, tags, edges, equal prefixes put together |
//! | [`node`] | the contract of a node, and what a class is |
//! | [`classes`] | the classes that fyke brings, one folder each |
//! | [`draw`](mod@draw) | a graph as text, as Graphviz, as SVG |
//! | [`runtime`] | the graph at work: accounting, failures, edits |
//! | `fits` | the link types of sources, and frames that no text fits |
//! | [`rules`] | the rules of a Bloom pre-filter, editable from any thread |
//!
//! An edit reaches a filter in one of two ways. From outside (the control socket) it takes effect at the next batch.
//! Made by a node behind the filter while it looks at a frame (a tracker that reads a port number), it takes effect at
//! the next *frame*: that node cuts the batch, and the rest is judged again. Source: Swift, section 5.1 (FTPCap);
//! `docs/papers/swift.md`. Graphs are FFPF's; `docs/papers/ffpf.md`.
#![forbid(unsafe_code)]

pub mod classes;
pub mod draw;
mod fits;
pub mod language;
pub mod node;
pub mod plan;
mod programs;
pub mod rules;
pub mod runtime;
mod texts;

pub use classes::Classes;
pub use fits::{PASSED_OVER, UNFIT};
pub use plan::Plan;
pub use rules::{RuleSet, RulesError};
pub use runtime::{Engine, GraphHandle, GraphView, Made, Opened};
