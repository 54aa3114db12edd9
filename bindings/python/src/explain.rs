//! The passes of a text, as a dict of Python.

use crate::errors::Failure;
use crate::filter::options;
use fyke::filter::{Cost, cost};
use fyke::frame::LinkType;
use fyke::pass::PassSet;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Most primitives that are listed.
const MAX_PRIMITIVES: usize = 1_000;
/// Most passes that are listed.
const MAX_PASSES: usize = 1_000;

/// Explains how a text is read and how it runs: a dict with the canonical text, its primitives with their costs, and
/// the passes with their instructions. Of long texts the first thousand of each are listed; "pass_count" has all.
#[pyfunction]
#[pyo3(signature = (text, *, link="EN10MB", scoped=false, live=false))]
pub fn explain<'py>(
    py: Python<'py>,
    text: &str,
    link: &str,
    scoped: bool,
    live: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (link, builder) = options(link, scoped, live)?;
    let explained = py.detach(|| {
        let filter = builder.compile(text)?;
        passes(&filter, link)
    })?;
    let loads = py.import("json")?.getattr("loads")?;
    loads.call1((explained.to_string(),))
}

fn passes(filter: &fyke::Filter, link: LinkType) -> Result<Value, Failure> {
    let predicate = filter.predicate();
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    edit.add_filter(predicate).map_err(fyke::Error::from)?;
    edit.commit();
    let listed = set.passes().take(MAX_PASSES).map(|pass| {
        let instructions = pass.describe().map(|view| view.to_string());
        json!({ "id": pass.id.0, "instructions": instructions.collect::<Vec<_>>() })
    });
    let primitives = predicate.root().primitives().take(MAX_PRIMITIVES).map(|primitive| {
        let Cost { tests, bytes, .. } = cost(&primitive.condition);
        let span = [primitive.span.start, primitive.span.end];
        json!({ "text": primitive.to_string(), "span": span, "tests": tests, "bytes": bytes })
    });
    let layout = set.layout();
    Ok(json!({
        "text": predicate.text(),
        "canonical": predicate.to_string(),
        "link": link.to_string(),
        "scoped": predicate.reading() == fyke::filter::Reading::Scoped,
        "primitives": primitives.collect::<Vec<_>>(),
        "pass_count": set.pass_count(),
        "passes": listed.collect::<Vec<_>>(),
        "tables": layout.shapes,
        "rows": layout.rows,
        "too_large": set.filters().find_map(|one| Some(one.too_large()?.to_string())),
    }))
}
