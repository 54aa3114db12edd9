//! Running graphs in Python: `Graph` for any text, `Capture` for a source, a filter and batches.
//!
//! The graph runs in a thread of its own, which never needs the interpreter. After a fork the thread is in the parent
//! only, so a call in the child is refused.

use crate::batch::{Batch, schema_capsule, stream_capsule};
use crate::columns::Wanted;
use crate::control;
use crate::errors::Failure;
use crate::filter::LiveFilter;
use crate::queue::{Queue, Taken};
use crate::sink::{self, Sink};
use crate::source::{FILTER, Request};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use fyke::capture::Interface;
use fyke::control::Server;
use fyke::filter::Options;
use fyke::filters::FilterSet;
use fyke::graph::placement::{LowerFilter, Space};
use fyke::graph::{Classes, Engine, GraphHandle, GraphView, Made, Plan};
use fyke::serve::{ServeSpace, client};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which a waiting thread looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait of `close` for the end of the graph's thread.
const CLOSING: Duration = Duration::from_secs(2);
/// Most frames of a batch.
const MAX_ROWS: usize = 1 << 20;

/// A graph that runs.
struct Running {
    queue: Arc<Queue>,
    handle: GraphHandle,
    /// Filters of the nodes, by tag.
    filters: HashMap<String, FilterSet>,
    schema: SchemaRef,
    /// The process that has the thread.
    process: u32,
    /// The control socket of a named capture.
    server: Mutex<Option<Server>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // In a child after a fork, the locks may be held by threads that are not there.
        if self.process == std::process::id() {
            self.queue.close();
        } else if let Some(server) = self.server.get_mut().ok().and_then(Option::take) {
            // The socket belongs to the parent.
            std::mem::forget(server);
        }
    }
}

/// The space below sources that are no services: none.
struct UserSpace;

impl Space for UserSpace {
    fn filter(&self, _of: &Interface, _reading: Options) -> Result<Arc<dyn LowerFilter>, String> {
        Err("the Python package filters in user space".to_owned())
    }
}

/// The classes of graphs in Python.
fn classes() -> Classes {
    let mut classes = Classes::new();
    classes.register(fyke::track::CLASS);
    classes.register(fyke::track::CALLS);
    classes.register(client::device());
    classes.register(sink::CLASS);
    classes
}

/// Reports the end of the graph even if its thread panics.
struct Ending(Arc<Queue>, Option<Failure>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(self.1.take());
    }
}

impl Running {
    /// Opens a graph and starts its thread. `refuse` makes an exception of an error.
    fn start(
        text: &str,
        (wanted, rows): (&Wanted, usize),
        refuse: impl Fn(fyke::graph::EditError) -> Failure,
    ) -> Result<Running, Failure> {
        let classes = classes();
        let plan = Plan::to_open(&[text], &classes).map_err(|error| refuse(error.into()))?;
        let has_sink = plan.nodes.iter().any(|node| node.class.name == sink::NAME);
        let queue = Arc::<Queue>::default();
        let node = || Made::Node(Box::new(Sink::new(wanted, rows, Arc::clone(&queue))));
        let given = has_sink.then(|| (sink::NAME, node())).into_iter().collect();
        let mut opened = GraphHandle::open_with(&[text], classes, given, 1).map_err(&refuse)?;
        opened.place(&ServeSpace(UserSpace));
        let names: Vec<_> = opened.plan().nodes.iter().map(|node| node.name.clone()).collect();
        let (engine, handle) = opened.start().map_err(&refuse)?;
        let named =
            names.into_iter().filter_map(|name| Some((name.clone(), engine.filters(&name)?)));
        let filters = named.collect();
        let ending = Ending(Arc::clone(&queue), None);
        let thread = std::thread::Builder::new().name("fyke".to_owned());
        let spawned = thread.spawn(move || run(engine, ending));
        spawned.map_err(|error| Failure::Capture(format!("cannot start a thread: {error}")))?;
        let process = std::process::id();
        Ok(Running {
            queue,
            handle,
            filters,
            schema: wanted.schema(),
            process,
            server: Mutex::new(None),
        })
    }

    /// Refuses a call in a child of the process that has the thread.
    fn check(&self) -> Result<(), Failure> {
        let (own, process) = (std::process::id(), self.process);
        match own == process {
            true => Ok(()),
            false => Err(Failure::Ended(format!(
                "this capture belongs to process {process}, and this is its child {own}: open another one here"
            ))),
        }
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        self.check()?;
        loop {
            match py.detach(|| self.queue.take(LOOK)) {
                Taken::Batch(batch) => return Ok(Some(batch)),
                Taken::End => return Ok(None),
                Taken::Failed(failure) => return Err(failure.into()),
                Taken::None => py.check_signals()?,
            }
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check()?;
        py.detach(|| {
            self.queue.close();
            let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(server);
            self.queue.has_ended(CLOSING);
        });
        Ok(())
    }
}

/// Runs a graph to its end.
fn run(mut engine: Engine, mut ending: Ending) {
    ending.1 = Some(Failure::Capture("the thread of the graph has failed".to_owned()));
    let result = engine.run(&ending.0.stop);
    let view = engine.view();
    ending.1 = match result {
        Err(error) => Some(Failure::Capture(error.to_string())),
        Ok(()) => failed_node(&view),
    };
}

/// The first node that has failed.
fn failed_node(view: &GraphView) -> Option<Failure> {
    let failed = |node: &fyke::graph::NodeView| {
        let error = node.failed.as_ref().filter(|error| !error.is_done())?;
        Some(Failure::Capture(format!("{}: {error}", node.text)))
    };
    view.nodes.iter().find_map(failed)
}

/// Batches of a running graph, for the Arrow library. The graph runs as long as its stream or its object exists.
struct Stream(Arc<Running>);

fn external(failure: Failure) -> ArrowError {
    ArrowError::ExternalError(PyErr::from(failure).to_string().into())
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(failure) = self.0.check() {
            return Some(Err(external(failure)));
        }
        loop {
            match self.0.queue.take(LOOK) {
                Taken::Batch(batch) => return Some(Ok(batch)),
                Taken::End => return None,
                Taken::Failed(failure) => return Some(Err(external(failure))),
                // The interpreter is not waited for: a thread of it may wait for this one.
                Taken::None => {}
            }
        }
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }
}

/// A running flow graph: iterate over it for the batches that its node `(arrow)` gives, edit it, look at its counts.
///
/// It runs from the start on, in a thread of its own. `with` closes it.
#[pyclass(frozen, subclass, module = "fyke")]
pub struct Graph {
    running: Arc<Running>,
}

#[pymethods]
impl Graph {
    #[new]
    #[pyo3(signature = (text, *, columns=None, batch_size=16_384))]
    fn new(
        py: Python<'_>,
        text: &str,
        columns: Option<Vec<String>>,
        batch_size: usize,
    ) -> PyResult<Graph> {
        let (wanted, rows) = shape(columns, batch_size)?;
        let running = py.detach(|| Running::start(text, (&wanted, rows), Failure::of_graph))?;
        Ok(Graph { running: Arc::new(running) })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        Ok(self.running.next(py)?.map(Batch))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.running.close(py)?;
        Ok(false)
    }

    /// Ends the graph; frames that have not been taken count as lost.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.running.close(py)
    }

    /// Ends the graph; frames that have arrived are still given to a loop that continues at once.
    fn stop(&self) -> PyResult<()> {
        self.running.check()?;
        self.running.queue.request_stop();
        Ok(())
    }

    /// Waits for the end of a graph; batches that it gives are discarded.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        while self.running.next(py)?.is_some() {}
        Ok(())
    }

    /// The texts by their numbers.
    #[getter]
    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.running.check()?;
        let texts = PyDict::new(py);
        for (id, text) in py.detach(|| self.running.handle.texts()) {
            texts.set_item(id, PyString::new(py, &text))?;
        }
        Ok(texts)
    }

    /// Adds a text; nodes that it shares with others exist once. Returns its number.
    fn add(&self, py: Python<'_>, text: &str) -> PyResult<u64> {
        self.running.check()?;
        Ok(py.detach(|| self.running.handle.add(text)).map_err(Failure::of_graph)?)
    }

    /// Replaces all texts by one; nodes that it shares with them stay. Returns its number.
    fn set(&self, py: Python<'_>, text: &str) -> PyResult<u64> {
        self.running.check()?;
        Ok(py.detach(|| self.running.handle.set(text)).map_err(Failure::of_graph)?)
    }

    /// Removes a text, and the nodes that no other text has.
    fn remove(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.running.check()?;
        Ok(py.detach(|| self.running.handle.remove(id)).map_err(Failure::of_graph)?)
    }

    /// The filters of a node that was there at the start: by its tag, or by its class if there is one node of it.
    fn filter_of(&self, name: &str) -> PyResult<LiveFilter> {
        match self.running.filters.get(name) {
            Some(set) => Ok(LiveFilter::of(set.clone())),
            None => {
                let mut names: Vec<_> = self.running.filters.keys().map(String::as_str).collect();
                names.sort_unstable();
                let message =
                    format!("no node {name:?} has filters; those that have: {}", names.join(", "));
                Err(Failure::Graph(message).into())
            }
        }
    }

    /// Counts of one moment: "seen" = "accepted" + "rejected" + "taken" + the sum of "lost", and "nodes".
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.running.check()?;
        let view = py.detach(|| self.running.handle.snapshot());
        let stats = PyDict::new(py);
        let outcome = &view.outcome;
        stats.set_item("seen", outcome.seen())?;
        stats.set_item("accepted", outcome.accepted)?;
        stats.set_item("rejected", outcome.rejected)?;
        stats.set_item("taken", outcome.taken)?;
        let lost = PyDict::new(py);
        for (reason, count) in &outcome.lost {
            lost.set_item(&**reason, count)?;
        }
        stats.set_item("lost", lost)?;
        let nodes = view.nodes.iter().map(|node| node_stats(py, node));
        stats.set_item("nodes", nodes.collect::<PyResult<Vec<_>>>()?)?;
        Ok(stats)
    }

    /// The schema of the batches, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.running.schema)
    }

    /// The batches that have not been taken, as a capsule of a stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _best_effort = requested_schema;
        self.running.check()?;
        stream_capsule(py, Box::new(Stream(Arc::clone(&self.running))))
    }
}

fn node_stats<'py>(py: Python<'py>, node: &fyke::graph::NodeView) -> PyResult<Bound<'py, PyDict>> {
    let stats = PyDict::new(py);
    stats.set_item("name", &node.name)?;
    stats.set_item("class", node.class)?;
    stats.set_item("text", &*node.text)?;
    let counts = &node.counts;
    stats.set_item("arrived", counts.arrived)?;
    stats.set_item("passed", counts.passed)?;
    stats.set_item("rejected", counts.rejected)?;
    stats.set_item("taken", counts.taken)?;
    stats.set_item("lost", counts.lost)?;
    let counters = PyDict::new(py);
    for counter in &node.counters {
        counters.set_item(&counter.name, counter.value)?;
    }
    stats.set_item("counters", counters)?;
    Ok(stats)
}

/// Checks the arguments that shape batches.
fn shape(columns: Option<Vec<String>>, rows: usize) -> Result<(Wanted, usize), Failure> {
    if !(1..=MAX_ROWS).contains(&rows) {
        return Err(Failure::Value(format!("batch_size is from 1 to {MAX_ROWS}, not {rows}")));
    }
    let wanted = match columns {
        Some(names) => Wanted::named(&names).map_err(Failure::Value)?,
        None => Wanted::usual(),
    };
    Ok((wanted, rows))
}

/// A capture: a graph of a source, a filter and batches.
#[pyclass(frozen, extends = Graph, module = "fyke")]
pub struct Capture {
    source: String,
}

#[pymethods]
impl Capture {
    /// The filter; an edit of it is in force from the next batch of the source on.
    #[getter]
    fn filter(this: PyRef<'_, Self>) -> PyResult<LiveFilter> {
        this.into_super().filter_of(FILTER)
    }

    fn __repr__(&self) -> String {
        format!("<fyke.Capture of {}>", self.source)
    }
}

/// Opens a source and gives the frames that a filter accepts, in batches.
///
/// `source` is a capture file (a path, or "-" for standard input), an interface, "any", or "serve:NAME". A capture with
/// a `name` can be edited from outside: by `fyke ctl`, and by `LiveFilter(name)` in another program.
#[pyfunction]
#[pyo3(signature = (
    source, filter="", *, columns=None, batch_size=16_384, count=None, scoped=false, names=false,
    promiscuous=true, snaplen=None, buffer=None, user=None, name=None
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn capture(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    filter: &str,
    columns: Option<Vec<String>>,
    batch_size: usize,
    count: Option<u64>,
    scoped: bool,
    names: bool,
    promiscuous: bool,
    snaplen: Option<u32>,
    buffer: Option<u32>,
    user: Option<String>,
    name: Option<String>,
) -> PyResult<Py<Capture>> {
    let (wanted, rows) = shape(columns, batch_size)?;
    let source = source_of(source)?;
    let request = Request {
        source: source.clone(),
        filter: filter.to_owned(),
        count,
        scoped,
        names,
        promiscuous,
        snaplen,
        user,
        buffer,
        credits: wanted.needs_credits(),
    };
    let running = py.detach(|| {
        let live = request.is_live()?;
        let text = request.graph(live);
        let refuse = |error| Failure::of_capture(error, filter);
        let mut running = Running::start(&text, (&wanted, rows), refuse)?;
        if let (Some(name), Some(set)) = (&name, running.filters.get(FILTER)) {
            let about = (name.as_str(), source.0.as_str(), live);
            let server = control::serve(about, set.clone(), running.handle.clone())?;
            running.server = Mutex::new(Some(server));
        }
        Ok::<_, Failure>(running)
    })?;
    let capture = PyClassInitializer::from(Graph { running: Arc::new(running) });
    Py::new(py, capture.add_subclass(Capture { source: source.0 }))
}

/// The source; `true`: it is the path of a file.
fn source_of(given: &Bound<'_, PyAny>) -> PyResult<(String, bool)> {
    if let Ok(name) = given.cast::<PyString>() {
        return Ok((name.extract()?, false));
    }
    let path: PathBuf = given.extract()?;
    match path.to_str() {
        Some(name) => Ok((name.to_owned(), true)),
        None => Err(Failure::Value(format!("{path:?}: the file name must be UTF-8")).into()),
    }
}
