//! The packet path: a graph of nodes that work on batches. Everything that fyke does with frames is such a graph.
//!
//! | module | what |
//! |---|---|
//! | [`language`] | the graph language: from text to tree; errors name their position |
//! | [`plan`] | from trees to one graph: classes, tags, edges, merged equal prefixes |
//! | [`node`] | the trait of a node, and the description of a class |
//! | [`classes`] | the built-in classes, one folder each |
//! | [`draw`](mod@draw) | a graph as text, in Graphviz's language and as SVG |
//! | [`placement`] | which filters also run in a lower space, such as the kernel |
//! | [`runtime`] | the running graph: accounting, failures, edits |
//! | `fits` | the link types of sources, and counters of frames whose link type no text fits |
//! | [`kept`] | frames kept for questions after the fact |
//! | [`records`] | records on their way out of a node: lines of text, Arrow, IPFIX |
//! | [`rules`] | the rules of a Bloom pre-filter, editable from any thread |
//!
//! An edit reaches a filter in one of two ways. An edit from outside (the control socket) takes effect at the next
//! batch. An edit by a later node while it evaluates a frame (a tracker that reads a port number) takes effect at the
//! next *frame*: that node cuts the batch, and the rest is evaluated again. Source: Swift, section 5.1 (FTPCap);
//! `docs/papers/swift.md`. Graphs are FFPF's; `docs/papers/ffpf.md`.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame, fyke_graph as graph}; }
//! use fyke::capture::MemorySource;
//! use fyke::frame::{Frame, LinkType};
//! use fyke::graph::{Classes, GraphHandle, Made};
//! use std::sync::atomic::AtomicBool;
//!
//! let mut source = MemorySource::new(LinkType::EN10MB);
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! let text = "(pcapin, expression=given) > {short}(bpf, expression=\"less 60\")";
//! let given = vec![("pcapin", Made::Source(Box::new(source)))];
//! let (mut engine, handle) = GraphHandle::start_with(&[text], Classes::new(), given)?;
//! engine.run(&AtomicBool::new(false))?;
//! assert_eq!(handle.view().node("short").map(|node| node.counts.passed), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod classes;
mod comments;
mod credits;
mod cuts;
pub mod draw;
mod export;
mod fits;
mod judged;
pub mod kept;
pub mod language;
mod losses;
pub mod node;
pub mod placement;
pub mod plan;
mod programs;
pub mod records;
pub mod rules;
pub mod runtime;
mod snaplen;
mod texts;
mod waiting;

pub use classes::Classes;
pub use fits::{DEMUX_REMOVED, LOST_BY_CLIENTS, PASSED_OVER, SENT_TO_CLIENTS, UNFIT};
pub use kept::{Kept, KeptLimits};
pub use plan::Plan;
pub use rules::{REJECTED_IN_KERNEL, RuleSet, RulesError, RulesPart};
pub use runtime::{Engine, GraphHandle, GraphView, Made, Opened};
