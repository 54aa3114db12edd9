//! Flow graphs: sources, filters, classes and sinks as one text, with exact accounting at every node.
//!
//! ```
//! use fyke::graph::{Classes, GraphHandle, Made};
//! use fyke::capture::MemorySource;
//! use fyke::frame::{Frame, LinkType};
//! use std::sync::atomic::AtomicBool;
//!
//! let mut source = MemorySource::new(LinkType::EN10MB);
//! source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
//! source.repeat(1_000);
//! let text = "{in}(pcapin, expression=trace.pcap) > {f}(bpf, expression=\"tcp\") > (packetcount)";
//! // pcapin reads a file, and (device, expression=IF) captures; here a given source takes the place of `in`.
//! let given = vec![("in", Made::Source(Box::new(source)))];
//! let (mut engine, handle) = GraphHandle::start_with(&[text], Classes::new(), given)?;
//! engine.run(&AtomicBool::new(false))?; // meanwhile, other threads edit the graph by `handle`
//! let filter = handle.view();
//! let counts = filter.node("f").expect("the tag of the filter").counts;
//! assert_eq!((counts.arrived, counts.rejected), (1_000, 1_000));
//! assert!(counts.is_exact());
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! [`language`] has the grammar, [`Classes`] the classes, [`node`] the contract of a class of your own
//! (`examples/own_class.rs`). [`reference`](mod@reference) has every class with its parameters and counters, as
//! `fyke run --list` shows them; the class `track` is not among those of [`Classes::new`], so register it:
//! `classes.register(fyke::track::CLASS)`.
//!
//! Equal nodes at equal places are one node, whatever their tags: two texts that begin with the same source and the
//! same filter share both. An edit of such a node concerns all texts that contain it.

#[doc(inline)]
pub use fyke_graph::{
    Classes, Engine, GraphHandle, GraphView, Made, Opened, Plan, RuleSet, RulesError, UNFIT,
    language, node, placement,
};

#[doc(inline)]
pub use fyke_graph::classes::reference;

#[doc(inline)]
pub use fyke_graph::plan::{Feed, Join, PlanNode};

#[doc(inline)]
pub use fyke_graph::runtime::{
    EditError, InstantiateError, NodeCounts, NodeView, Outcome, SourceView,
};
