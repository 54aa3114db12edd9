//! Records as Arrow: batches of columns, in an IPC file, an IPC stream or a file of Parquet.
//!
//! A batch has at most [`BATCH`] records, which wait for it in memory (some 1 MB). A stream gets its records after
//! [`WAIT_NS`] at the latest. A file has a list of its batches at its end, 24 bytes for each, so its batches are full
//! ones, however slowly the records come. In [Parquet](super::parquet) records count as written when the file is
//! complete. Source: Arrow columnar format 1.5, "IPC streaming format" and "IPC file format".

use super::parquet::RowGroups;
use super::{Exported, Format};
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
    Parquet(RowGroups<Vec<u8>>),
}

/// Records of a file of Parquet.
#[derive(Debug, Default)]
struct Whole {
    /// Those that were given to the file.
    taken: u64,
    /// Those that it does not take.
    refused: u64,
    /// True if it has its footer.
    is_ended: bool,
    /// True if all of it is written.
    is_written: bool,
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
    /// Unused but for Parquet.
    whole: Whole,
}

impl<R: Exported> Batches<R> {
    /// Begins a file of Parquet or Arrow; with another format, a stream of Arrow.
    ///
    /// # Errors
    /// None that is known: the beginning is written to memory.
    pub fn new(format: Format, out: &mut Output) -> Result<Batches<R>, ArrowError> {
        let schema = Arc::new(R::schema());
        let writer = match format {
            Format::Arrow => Writer::File(FileWriter::try_new(Vec::new(), &schema)?),
            Format::Parquet => Writer::Parquet(RowGroups::new(Vec::new(), &schema)?),
            _ => Writer::Stream(StreamWriter::try_new(Vec::new(), &schema)?),
        };
        let (waiting, since_ns, error) = (Vec::new(), 0, None);
        let whole = Whole::default();
        let mut batches = Batches { writer, schema, waiting, since_ns, error, whole };
        batches.hand_over(out, 0);
        Ok(batches)
    }

    /// Number of records that will not reach the output; without its footer a file of Parquet has none.
    pub fn lost(&self, out: &Output) -> u64 {
        let Whole { taken, refused, is_written, .. } = self.whole;
        let waiting = if out.is_closed() { self.waiting.len() as u64 } else { 0 };
        let unreadable = if out.is_closed() && !is_written { taken } else { 0 };
        out.lost() + waiting + unreadable + refused
    }

    /// Notes that everything which was handed over is written.
    pub fn note_written(&mut self) {
        self.whole.is_written = self.whole.is_ended;
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
            Writer::Parquet(writer) => writer.write(&batch),
        });
        self.count(records.len(), written.is_ok());
        self.note(written);
        self.hand_over(out, records.len());
    }

    /// Counts records of a file of Parquet.
    fn count(&mut self, records: usize, are_taken: bool) {
        let Writer::Parquet(writer) = &self.writer else { return };
        let Whole { taken, refused, is_ended, .. } = &mut self.whole;
        *(if are_taken { taken } else { refused }) += records as u64;
        *is_ended = writer.is_ended();
    }

    /// Writes the last batch and the end.
    pub fn end(&mut self, out: &mut Output) {
        self.complete(out);
        let written = match &mut self.writer {
            Writer::File(writer) => writer.finish(),
            Writer::Stream(writer) => writer.finish(),
            Writer::Parquet(writer) => writer.finish(),
        };
        self.count(0, true);
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
            Writer::Parquet(writer) => {
                out.buffer().append(writer.get_mut());
                return out.mark(false);
            }
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
