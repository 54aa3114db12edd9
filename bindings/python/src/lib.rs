//! The Python package `fyke`: live filters, captures and graphs, with frames as Arrow batches.
//!
//! ```text
//! source ─▶ filter ─▶ … ─▶ (arrow) ─▶ queue of batches ─▶ Python: one thread or several
//! └─────── a thread of its own, without the interpreter lock ───────┘
//! ```
//!
//! A capture is a flow graph that runs in a thread of its own. Its class `arrow` copies the accepted frames out of the
//! source's memory, once, into the columns of a batch; from there on, Arrow buffers own the memory, and pyarrow,
//! pandas, polars and DuckDB read it where it is. Every wait, and every evaluation of more than one frame, releases the
//! interpreter lock. If Python is slow, the queue is full and the source is not read: a file waits, and the ring of an
//! interface holds frames until it is full; what is lost then is counted.
//!
//! | module | content |
//! |---|---|
//! | `address` | addresses as words of a dictionary |
//! | `columns` | frames to columns, the schema |
//! | `queue` | batches from the graph to Python, bounded |
//! | `sink` | the class `arrow` |
//! | `batch` | batches in Python, and their export |
//! | `source` | the text of the graph of a capture |
//! | `graph` | running graphs in Python |
//! | `filter` | filters in Python: of their own, of a graph, of another process |
//! | `control` | the control socket of a named capture |
//! | `explain` | passes of a text |
//! | `errors` | exceptions |
#![deny(unsafe_code)]

mod address;
mod batch;
mod columns;
mod control;
mod errors;
mod explain;
mod filter;
mod graph;
mod queue;
mod sink;
mod source;

use pyo3::prelude::*;

/// The native part of the package `fyke`.
#[pymodule]
mod _fyke {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::explain::explain;
    #[pymodule_export]
    use crate::filter::{Filter, LiveFilter, running};
    #[pymodule_export]
    use crate::graph::{Capture, Graph, capture};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
