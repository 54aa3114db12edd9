//! Flow records as Arrow: batches of columns, in an IPC file or an IPC stream.
//!
//! A batch has at most [`BATCH`] records, which wait for it in memory (some 1 MB). A stream gets its records after
//! [`WAIT_NS`] at the latest. A file has a list of its batches at its end, 24 bytes for each, so its batches are full
//! ones, however slowly the records come. Names and nesting are those of the JSON lines. Source: Arrow columnar format
//! 1.5, "IPC streaming format" and "IPC file format".

use super::flags;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow_array::{TimestampNanosecondArray, UInt8Array, UInt16Array, UInt64Array};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use fyke_capture::Output;
use fyke_flow::records::{Record, Side};
use std::net::SocketAddr;
use std::sync::Arc;

/// Most records of a batch.
const BATCH: usize = 4_096;
/// Longest wait of a record for its batch in a stream.
const WAIT_NS: u64 = 1_000_000_000;

enum Writer {
    File(FileWriter<Vec<u8>>),
    Stream(StreamWriter<Vec<u8>>),
}

/// Records on their way into a file or a stream.
pub struct Batches {
    writer: Writer,
    schema: SchemaRef,
    /// Records of the next batch.
    waiting: Vec<Record>,
    /// Time since which the first of them has waited.
    since_ns: u64,
    /// First error of the writer, until it is reported.
    error: Option<ArrowError>,
}

impl Batches {
    /// Begins a file or a stream.
    ///
    /// # Errors
    /// None that is known: the beginning is written to memory.
    pub fn new(is_file: bool, out: &mut Output) -> Result<Batches, ArrowError> {
        let schema = Arc::new(schema());
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
    pub fn add(&mut self, record: &Record, now_ns: u64, out: &mut Output) {
        if self.waiting.is_empty() {
            self.since_ns = now_ns;
        }
        self.waiting.push(*record);
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
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns(&records));
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

fn side_fields() -> Fields {
    let field = |name: &str, kind| Field::new(name, kind, false);
    vec![
        field("packets", DataType::UInt64),
        field("bytes", DataType::UInt64),
        field("tcp_flags", DataType::Utf8),
        field("missing_bytes", DataType::UInt64),
    ]
    .into()
}

fn schema() -> Schema {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let time = || DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let rule = Arc::new(Field::new("item", DataType::UInt32, true));
    Schema::new(vec![
        field("start_ns", time()),
        field("end_ns", time()),
        field("protocol", DataType::UInt8),
        field("source", DataType::Utf8),
        field("source_port", DataType::UInt16),
        field("destination", DataType::Utf8),
        field("destination_port", DataType::UInt16),
        field("end", DataType::Utf8),
        field("forward", DataType::Struct(side_fields())),
        field("backward", DataType::Struct(side_fields())),
        field("rules", DataType::List(rule)),
    ])
}

fn columns(records: &[Record]) -> Vec<ArrayRef> {
    let times = |of: fn(&Record) -> u64| -> ArrayRef {
        let all = records.iter().map(|record| i64::try_from(of(record)).unwrap_or(i64::MAX));
        Arc::new(TimestampNanosecondArray::from_iter_values(all).with_timezone("UTC"))
    };
    let addresses = |of: fn(&Record) -> SocketAddr| -> ArrayRef {
        let all = records.iter().map(|record| of(record).ip().to_string());
        Arc::new(StringArray::from_iter_values(all))
    };
    let ports = |of: fn(&Record) -> SocketAddr| -> ArrayRef {
        Arc::new(UInt16Array::from_iter_values(records.iter().map(|record| of(record).port())))
    };
    let rules = records
        .iter()
        .map(|record| Some(record.rules.iter().filter(|rule| **rule != 0).map(|rule| Some(*rule))));
    vec![
        times(|record| record.start_ns),
        times(|record| record.end_ns),
        Arc::new(UInt8Array::from_iter_values(records.iter().map(|record| record.protocol))),
        addresses(|record| record.source),
        ports(|record| record.source),
        addresses(|record| record.destination),
        ports(|record| record.destination),
        Arc::new(StringArray::from_iter_values(records.iter().map(|record| record.end.name()))),
        side(records.iter().map(|record| record.forward)),
        side(records.iter().map(|record| record.backward)),
        Arc::new(ListArray::from_iter_primitive::<UInt32Type, _, _>(rules)),
    ]
}

fn side(sides: impl Iterator<Item = Side> + Clone) -> ArrayRef {
    let count = |of: fn(Side) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(sides.clone().map(of)))
    };
    let letters = sides.clone().map(|side| flags(side.tcp_flags).collect::<String>());
    let columns = vec![
        count(|side| side.packets),
        count(|side| side.bytes),
        Arc::new(StringArray::from_iter_values(letters)),
        count(|side| side.missing_bytes),
    ];
    Arc::new(StructArray::new(side_fields(), columns, None))
}
