//! Batches of frames in Python, and their export by the Arrow PyCapsule interface.
//!
//! An export shares the buffers of the batch: nothing is copied, and they live as long as one side needs them.

use crate::errors::Failure;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray, ffi};
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::CStr;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Frames as columns; pyarrow, pandas, polars and DuckDB read them without a copy.
#[pyclass(frozen, module = "fyke")]
pub struct Batch(pub RecordBatch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<fyke.Batch of {} frames: {}>", self.0.num_rows(), self.columns().join(", "))
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Bytes of memory of the columns.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.get_array_memory_size()
    }

    /// The schema, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.0.schema_ref())
    }

    /// The schema and the columns, as two capsules. A requested schema may be ignored, and is.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _best_effort = requested_schema;
        let columns = StructArray::from(self.0.clone());
        let (array, schema) = ffi::to_ffi(&columns.to_data()).map_err(Failure::arrow)?;
        let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
        let array = PyCapsule::new_with_value(py, array, ARRAY)?;
        PyTuple::new(py, [schema, array])
    }

    /// A stream of this one batch, as a capsule.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _best_effort = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        stream_capsule(py, Box::new(batches))
    }
}

/// A schema as a capsule.
pub fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &arrow_schema::Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(Failure::arrow)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// A stream of batches as a capsule.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), STREAM)
}
