//! Filters in Python: `LiveFilter` edits texts that are in force somewhere, `Filter` has texts of its own.
//!
//! | texts | edited by |
//! |---|---|
//! | of a `Filter` | stores in its passes |
//! | of a graph of this process | the same |
//! | of another process, by its name or process id | its control socket, as by `fyke ctl` |
//!
//! The interpreter lock is released for every edit, and while more than one frame is evaluated.

mod remote;

use crate::errors::Failure;
use fyke::filters::{Change, FilterSet};
use fyke::frame::{Frame, LinkType};
use fyke::{FilterBuilder, LiveReader};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use remote::Remote;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Texts, their numbers and the frames that each has accepted.
pub type Listed = Vec<(u64, String, u64)>;

/// Place of the texts.
enum Texts {
    /// This process.
    Here(FilterSet),
    /// Another process.
    There(Box<Mutex<Remote>>),
}

/// A change in a form that needs no interpreter.
enum Owned {
    Add(String),
    Set(String),
    Remove(u64),
}

impl Owned {
    fn lent(&self) -> Change<'_> {
        match self {
            Owned::Add(text) => Change::Add(text),
            Owned::Set(text) => Change::Set(text),
            Owned::Remove(id) => Change::Remove(*id),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves a reader or a connection that is usable or reports its end.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Texts {
    fn edit(&self, changes: &[Change<'_>]) -> Result<Vec<Option<u64>>, Failure> {
        match self {
            Texts::Here(set) => set.edit(changes).map_err(|refused| match changes.len() {
                1 => refused.error.into(),
                _ => fyke::Error::from(refused).into(),
            }),
            Texts::There(remote) => lock(remote).edit(changes),
        }
    }

    fn listed(&self) -> Result<Listed, Failure> {
        match self {
            Texts::Here(set) => {
                let counts = set.counts().into_iter();
                Ok(counts.map(|one| (one.id, one.text.to_string(), one.accepted)).collect())
            }
            Texts::There(remote) => lock(remote).listed(),
        }
    }

    fn epoch(&self) -> Result<u64, Failure> {
        match self {
            Texts::Here(set) => Ok(set.epoch()),
            Texts::There(remote) => lock(remote).epoch(),
        }
    }
}

/// Filter texts in force in a running capture, edited while it runs. A frame is accepted if one of them accepts it.
///
/// `LiveFilter(1234)` and `LiveFilter("eth0")` edit those of another process, as `fyke ctl` does: by its process id,
/// or by the name of its source, if only one running fyke has it.
#[pyclass(frozen, subclass, module = "fyke")]
pub struct LiveFilter {
    texts: Texts,
}

impl LiveFilter {
    /// The filters of a graph of this process.
    pub fn of(set: FilterSet) -> LiveFilter {
        LiveFilter { texts: Texts::Here(set) }
    }
}

#[pymethods]
impl LiveFilter {
    #[new]
    fn new(py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<LiveFilter> {
        let remote = if target.is_instance_of::<PyInt>() {
            let pid: u32 = target.extract()?;
            py.detach(|| Remote::of_process(pid))?
        } else if target.is_instance_of::<PyString>() {
            let name: String = target.extract()?;
            py.detach(|| Remote::named(&name))?
        } else {
            let message = "LiveFilter takes a process id or the name of a source";
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        };
        Ok(LiveFilter { texts: Texts::There(Box::new(Mutex::new(remote))) })
    }

    /// Adds a text; returns its number, which is never used again.
    fn add(&self, py: Python<'_>, text: &str) -> PyResult<u64> {
        let added = py.detach(|| self.texts.edit(&[Change::Add(text)]))?;
        Ok(added.into_iter().flatten().next().unwrap_or_default())
    }

    /// Removes the text with this number, but not the last one of all: without a text every frame is accepted.
    fn remove(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        py.detach(|| self.texts.edit(&[Change::Remove(id)])).map(drop).map_err(PyErr::from)
    }

    /// Replaces all texts by one; returns its number. An empty text removes all, so that every frame is accepted.
    fn set(&self, py: Python<'_>, text: &str) -> PyResult<Option<u64>> {
        let added = py.detach(|| self.texts.edit(&[Change::Set(text)]))?;
        Ok(added.into_iter().flatten().next())
    }

    /// Makes several changes as one edit, all or none: ("add", text), ("set", text) and ("remove", number). Returns a
    /// number, or None, for each.
    fn edit(&self, py: Python<'_>, changes: Vec<Bound<'_, PyTuple>>) -> PyResult<Vec<Option<u64>>> {
        let changes = changes.iter().map(change).collect::<PyResult<Vec<_>>>()?;
        let lent: Vec<_> = changes.iter().map(Owned::lent).collect();
        Ok(py.detach(|| self.texts.edit(&lent))?)
    }

    /// The texts by their numbers.
    #[getter]
    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let texts = PyDict::new(py);
        for (id, text, _) in py.detach(|| self.texts.listed())? {
            texts.set_item(id, text)?;
        }
        Ok(texts)
    }

    /// Frames that each text has accepted so far, by its number. A frame counts for the first text that accepts it.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (id, _, accepted) in py.detach(|| self.texts.listed())? {
            counts.set_item(id, accepted)?;
        }
        Ok(counts)
    }

    /// Number of edits so far, the first text included.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| self.texts.epoch())?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let listed = py.detach(|| self.texts.listed())?;
        let texts: Vec<_> = listed.iter().map(|(id, text, _)| format!("{id}: {text:?}")).collect();
        Ok(format!("<fyke filter {{{}}}>", texts.join(", ")))
    }
}

fn change(given: &Bound<'_, PyTuple>) -> PyResult<Owned> {
    let wrong = || {
        let message = format!(
            "a change is (\"add\", text), (\"set\", text) or (\"remove\", number), not {given}"
        );
        PyErr::from(Failure::Value(message))
    };
    let (word, value): (String, Bound<'_, PyAny>) = given.extract().map_err(|_| wrong())?;
    match word.as_str() {
        "add" => Ok(Owned::Add(value.extract().map_err(|_| wrong())?)),
        "set" => Ok(Owned::Set(value.extract().map_err(|_| wrong())?)),
        "remove" => Ok(Owned::Remove(value.extract().map_err(|_| wrong())?)),
        _ => Err(wrong()),
    }
}

/// A filter for frames that the program has: texts that are compiled, edited, and evaluated on bytes.
///
/// `link` is the type of the frames' link header, by libpcap's name. `scoped` reads texts by meaning: tags and tunnels
/// shift nothing. `live` reads them as for a capture on Linux.
#[pyclass(frozen, extends = LiveFilter, module = "fyke")]
pub struct Filter {
    /// For frames that are evaluated; edits do not need it.
    reader: Mutex<LiveReader>,
    link: LinkType,
}

/// Converts the name of a link type.
pub fn link_named(name: &str) -> Result<LinkType, Failure> {
    LinkType::from_name(name).ok_or_else(|| {
        let known: Vec<_> = fyke::frame::link::decoded().map(|link| link.name).collect();
        Failure::Value(format!(
            "unknown link type {name:?}; known: {}, and libpcap's other names",
            known.join(", ")
        ))
    })
}

/// Options for texts.
pub fn options(link: &str, scoped: bool, live: bool) -> Result<(LinkType, FilterBuilder), Failure> {
    let link = link_named(link)?;
    Ok((link, fyke::Filter::builder().link(link).scoped(scoped).live_capture(live)))
}

#[pymethods]
impl Filter {
    #[new]
    #[pyo3(signature = (text="", *, link="EN10MB", scoped=false, live=false))]
    fn new(
        py: Python<'_>,
        text: &str,
        link: &str,
        scoped: bool,
        live: bool,
    ) -> PyResult<PyClassInitializer<Filter>> {
        let (link, options) = options(link, scoped, live)?;
        let filter = py.detach(|| options.compile_live(text).map_err(Failure::from))?;
        let reader = Mutex::new(filter.reader());
        let texts = PyClassInitializer::from(LiveFilter::of(filter.filters().clone()));
        Ok(texts.add_subclass(Filter { reader, link }))
    }

    /// True if a frame is accepted. `data` begins with the link header; `length` is that on the wire, if bytes are
    /// missing.
    #[pyo3(name = "match", signature = (data, *, length=None))]
    fn matches(&self, data: PyBackedBytes, length: Option<u32>) -> bool {
        lock(&self.reader).matches_frame(&self.frame(&data, length))
    }

    /// One bool for each frame. The interpreter lock is released meanwhile.
    fn match_all(&self, py: Python<'_>, frames: Vec<PyBackedBytes>) -> Vec<bool> {
        py.detach(|| {
            let mut reader = lock(&self.reader);
            let mut accepted = Vec::with_capacity(frames.len());
            for chunk in frames.chunks(fyke::frame::BATCH_CAPACITY) {
                let mut batch = fyke::frame::Batch::new();
                for data in chunk {
                    // At most 256 frames of one link type: there is room.
                    let _pushed = batch.push(self.frame(data, None));
                }
                let mask = reader.matches_batch(&batch);
                accepted.extend((0..chunk.len()).map(|index| mask.get(index)));
            }
            accepted
        })
    }

    /// Name of the frames' link type.
    #[getter]
    fn link(&self) -> String {
        self.link.to_string()
    }
}

impl Filter {
    fn frame<'a>(&self, data: &'a [u8], length: Option<u32>) -> Frame<'a> {
        let frame = Frame::new(self.link, data);
        Frame { wire_len: length.unwrap_or(frame.wire_len).max(frame.wire_len), ..frame }
    }
}

/// The running fykes of this user that can be edited: a dict for each, with "pid", "source", "live", "link" and
/// "command_line".
#[pyfunction]
pub fn running(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let found = py.detach(fyke::control::list);
    let described = found.into_iter().filter_map(|one| Some((one.pid, one.description?)));
    let entry = |(pid, one): (u32, fyke::control::Description)| {
        let entry = PyDict::new(py);
        entry.set_item("pid", pid)?;
        entry.set_item("source", one.source)?;
        entry.set_item("live", one.live)?;
        entry.set_item("link", one.link)?;
        entry.set_item("command_line", one.command_line)?;
        Ok(entry)
    };
    described.map(entry).collect()
}
