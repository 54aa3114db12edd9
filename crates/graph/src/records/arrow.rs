//! Records as Arrow: batches of columns, in an IPC file or an IPC stream.
//!
//! A batch has at most [`BATCH`] records, which wait for it in memory (some 1 MB). A stream gets its records after
//! [`WAIT_NS`] at the latest. A file has a list of its batches at its end, 24 bytes for each, so its batches are full
//! ones, however slowly the records come. Source: Arrow columnar format 1.5, "IPC streaming format" and "IPC file
//! format".

use super::Exported;
use arrow_array::{ArrayRef, RecordBatch, TimestampNanosecondArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType, SchemaRef, TimeUnit};
use fyke_capture::Output;
use std::sync::Arc;

/// Most records of a batch.
pub const BATCH: usize = 4_096;
/// Longest wait of a record for its batch in a stream.
pub const WAIT_NS: u64 = 1_000_000_000;

enum Writer {
    File(FileWriter<Vec<u8>>),
    Stream(StreamWriter<Vec<u8>>),
}

/// Records on their way into a file or a stream.
pub struct Batches<R> {
    writer: Writer,
    schema: SchemaRef,
    /// Records of the next batch.
    waiting: Vec<R>,
    /// Time since which the first of them has waited.
    since_ns: u64,
    /// First error of the writer, until it is reported.
    error: Option<ArrowError>,
}

impl<R: Exported> Batches<R> {
    /// Begins a file or a stream.
    ///
    /// # Errors
    /// None that is known: the beginning is written to memory.
    pub fn new(is_file: bool, out: &mut Output) -> Result<Batches<R>, ArrowError> {
        let schema = Arc::new(R::schema());
        let writer = match is_file {
            true => Writer::File(FileWriter::try_new(Vec::new(), &schema)?),
            false => Writer::Stream(StreamWriter::try_new(Vec::new(), &schema)?),
        };
        let (waiting, since_ns, error) = (Vec::new(), 0, None);
        let mut batches = Batches { writer, schema, waiting, since_ns, error };
        batches.hand_over(out, 0);
        Ok(batches)
    }

    /// Number of records that wait for a batch.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Adds a record.
    pub fn add(&mut self, record: &R, now_ns: u64, out: &mut Output) {
        if self.waiting.is_empty() {
            self.since_ns = now_ns;
        }
        self.waiting.push(record.clone());
        if self.waiting.len() >= BATCH {
            self.complete(out);
        }
    }

    /// Completes the batch if one of its records has waited for too long.
    pub fn advance(&mut self, now_ns: u64, out: &mut Output) {
        let is_late = now_ns.saturating_sub(self.since_ns) >= WAIT_NS;
        if is_late && matches!(self.writer, Writer::Stream(_)) {
            self.complete(out);
        }
    }

    fn complete(&mut self, out: &mut Output) {
        if self.waiting.is_empty() {
            return;
        }
        let records = std::mem::take(&mut self.waiting);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), R::columns(&records));
        let written = batch.and_then(|batch| match &mut self.writer {
            Writer::File(writer) => writer.write(&batch),
            Writer::Stream(writer) => writer.write(&batch),
        });
        self.note(written);
        self.hand_over(out, records.len());
    }

    /// Writes the last batch and the end.
    pub fn end(&mut self, out: &mut Output) {
        self.complete(out);
        let written = match &mut self.writer {
            Writer::File(writer) => writer.finish(),
            Writer::Stream(writer) => writer.finish(),
        };
        self.note(written);
        self.hand_over(out, 0);
    }

    /// The first error since the last call; the output is incomplete then.
    pub fn error(&mut self) -> Option<ArrowError> {
        self.error.take()
    }

    fn note(&mut self, written: Result<(), ArrowError>) {
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }

    /// Passes the bytes that were made to the output, as one unit with this number of records.
    fn hand_over(&mut self, out: &mut Output, records: usize) {
        let made = match &mut self.writer {
            Writer::File(writer) => writer.get_mut(),
            Writer::Stream(writer) => writer.get_mut(),
        };
        out.buffer().append(made);
        (0..records).for_each(|_| out.mark(true));
        if records == 0 {
            out.mark(false);
        }
    }
}

/// Type of a column of times: nanoseconds, in UTC.
#[must_use]
pub fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// A column of times, from nanoseconds since 1970.
pub fn times(all: impl Iterator<Item = u64>) -> ArrayRef {
    let all = all.map(|time_ns| i64::try_from(time_ns).unwrap_or(i64::MAX));
    Arc::new(TimestampNanosecondArray::from_iter_values(all).with_timezone("UTC"))
}
