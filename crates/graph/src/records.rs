//! Records on their way out of a node: lines of text, batches of Arrow, a file of Parquet, or messages of IPFIX, to a
//! file, a pipe or a collector.
//!
//! A kind of record implements [`Exported`]; [`Records`] does the rest. Bytes wait in the [`Output`] until the node
//! drains it, so a slow reader never blocks a node; a record counts as lost unless it was written completely. Datagrams
//! that the system does not accept count as refused.

pub mod arrow;
pub mod ipfix;
pub mod parquet;

use crate::node::{MakeError, NodeError, Settings};
use arrow::Batches;
use arrow_array::ArrayRef;
use arrow_schema::Schema;
use fyke_capture::{Output, WriteError};
use fyke_flow::clock;
use ipfix::{Messages, Template};
use std::io;
use std::io::IsTerminal as _;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Bytes that wait before a node takes no more frames.
pub const BUFFER: usize = 1 << 18;

/// A kind of record.
pub trait Exported: Clone + Send + 'static {
    /// Names and types of its columns in Arrow.
    fn schema() -> Schema;

    /// The columns of these records, in the order of the schema.
    fn columns(records: &[Self]) -> Vec<ArrayRef>;

    /// Its templates in IPFIX.
    fn templates() -> &'static [Template];

    /// Appends the fields of its template for IPFIX and returns the place of this in the list; `None`, and nothing
    /// appended, if the record has no form there.
    fn encode(&self, out: &mut Vec<u8>) -> Option<usize>;
}

/// Format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines of text; the kind of record decides which.
    Text,
    /// Messages of IPFIX.
    Ipfix,
    /// A file of Arrow.
    Arrow,
    /// A stream of Arrow.
    ArrowStream,
    /// A file of Parquet.
    Parquet,
}

/// The observation domain of IPFIX: the parameter `domain`, 1 without it.
///
/// # Errors
/// It is no number of 32 bits.
pub fn domain(settings: &Settings) -> Result<u32, MakeError> {
    Ok(settings.number_or("domain", 0..=u64::from(u32::MAX), 1)? as u32)
}

/// Ends of file names that choose a format.
const ENDS: [(&str, Format); 5] = [
    (".ipfix", Format::Ipfix),
    (".arrow", Format::Arrow),
    (".feather", Format::Arrow),
    (".arrows", Format::ArrowStream),
    (".parquet", Format::Parquet),
];

impl Format {
    /// The format of a destination: the given one, else IPFIX for a collector, else that of the file's name, else text.
    ///
    /// # Errors
    /// If a collector would get something else.
    pub fn of(target: &str, given: Option<Format>) -> Result<Format, MakeError> {
        if target.starts_with("udp:") {
            return match given.is_some_and(|format| format != Format::Ipfix) {
                true => {
                    let message = "a collector gets IPFIX; write others to a file";
                    Err(MakeError::new("format", message))
                }
                false => Ok(Format::Ipfix),
            };
        }
        if let Some(given) = given {
            return Ok(given);
        }
        let by_name = ENDS.iter().find(|(end, _)| target.ends_with(end));
        Ok(by_name.map_or(Format::Text, |(_, format)| *format))
    }
}

enum Target<R> {
    Text(Output),
    Batches(Box<Batches<R>>, Output),
    Ipfix(Messages<R>, Output),
    Collector(Messages<R>, UdpSocket),
}

/// Records on their way.
pub struct Records<R> {
    target: Target<R>,
    /// Name of the file for errors.
    name: String,
    refused: u64,
    /// Appends a record as text.
    line: fn(&R, &mut Vec<u8>),
}

impl<R: Exported> Records<R> {
    /// Opens a destination: a file, `-` for standard output, or `udp:HOST:PORT`. `domain` is the observation domain of
    /// IPFIX, `line` appends a record as text.
    ///
    /// # Errors
    /// If it cannot be opened, or if bytes that are no text would go to a terminal.
    pub fn open(
        target: &str,
        format: Format,
        domain: u32,
        line: fn(&R, &mut Vec<u8>),
    ) -> Result<Records<R>, MakeError> {
        let refused = |error: &dyn std::fmt::Display| MakeError::refused("expression", error);
        let output = || fyke_capture::create_output(Path::new(target), fyke_capture::PRIVATE);
        if target == "-" && format != Format::Text && io::stdout().is_terminal() {
            let message =
                "this format is not for a terminal; give a file or a pipe, or a format of text";
            return Err(MakeError::new("expression", message));
        }
        let opened = match (format, target.strip_prefix("udp:")) {
            (_, Some(end)) => Target::Collector(
                Messages::new(domain),
                collector(end).map_err(|error| refused(&error))?,
            ),
            (Format::Ipfix, None) => {
                Target::Ipfix(Messages::new(domain), output().map_err(|error| refused(&error))?)
            }
            (Format::Arrow | Format::ArrowStream | Format::Parquet, None) => {
                let mut out = output().map_err(|error| refused(&error))?;
                let batches = Batches::new(format, &mut out);
                Target::Batches(Box::new(batches.map_err(|error| refused(&error))?), out)
            }
            (Format::Text, None) => Target::Text(output().map_err(|error| refused(&error))?),
        };
        let name = if target == "-" { "standard output" } else { target }.to_owned();
        Ok(Records { target: opened, name, refused: 0, line })
    }

    /// Adds a record.
    pub fn add(&mut self, record: &R) {
        match &mut self.target {
            Target::Text(out) => {
                (self.line)(record, out.buffer());
                out.mark(true);
            }
            Target::Batches(batches, out) => batches.add(record, clock::system_ns(), out),
            Target::Ipfix(messages, _) | Target::Collector(messages, _) => {
                let full = messages.add(record, clock::system_ns());
                self.send(full);
            }
        }
    }

    /// Adds text that is no record, such as a header; false if the format is not text.
    pub fn add_text(&mut self, text: &str) -> bool {
        let Target::Text(out) = &mut self.target else { return false };
        out.buffer().extend_from_slice(text.as_bytes());
        out.mark(false);
        true
    }

    fn send(&mut self, message: Option<Vec<u8>>) {
        let Some(message) = message else { return };
        match &mut self.target {
            Target::Text(_) | Target::Batches(..) => {}
            Target::Ipfix(_, out) => {
                out.buffer().extend(message);
                out.mark(true);
            }
            Target::Collector(_, socket) => {
                self.refused += u64::from(socket.send(&message).is_err());
            }
        }
    }

    /// Hands over the records that have waited for others for long enough.
    pub fn advance(&mut self) {
        let now_ns = clock::system_ns();
        match &mut self.target {
            Target::Text(_) => {}
            Target::Batches(batches, out) => batches.advance(now_ns, out),
            Target::Ipfix(messages, _) | Target::Collector(messages, _) => {
                let message = messages.take(now_ns);
                self.send(message);
            }
        }
    }

    /// Completes a batch of Arrow that has waited for long enough; messages of IPFIX wait for
    /// [`advance`](Self::advance).
    pub fn advance_batches(&mut self) {
        if let Target::Batches(..) = self.target {
            self.advance();
        }
    }

    /// Hands over all records; there will be no more.
    pub fn end(&mut self) {
        match &mut self.target {
            Target::Batches(batches, out) => batches.end(out),
            _ => self.advance(),
        }
    }

    fn output(&mut self) -> Option<&mut Output> {
        match &mut self.target {
            Target::Text(out) | Target::Batches(_, out) | Target::Ipfix(_, out) => Some(out),
            Target::Collector(..) => None,
        }
    }

    /// True if the bytes that wait are too many for the node to take more frames.
    pub fn is_full(&mut self) -> bool {
        self.output().is_some_and(|out| out.waiting() >= BUFFER)
    }

    /// Writes what waits, and waits at most `patience` for the reader; true if all of it is written.
    ///
    /// # Errors
    /// If writing fails: then the records that waited are lost, and so is each later one.
    pub fn drain(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let Some(out) = self.output() else { return Ok(true) };
        let drained = out.drain(Some(patience)).map_err(|source| {
            NodeError::new(WriteError::Write { name: self.name.clone(), source })
        });
        let is_written = drained?;
        if let Target::Batches(batches, _) = &mut self.target
            && is_written
        {
            batches.note_written();
            // After what precedes it: a file of Parquet that is full is complete.
            if let Some(error) = batches.error() {
                return Err(NodeError::new(format!("{}: {error}", self.name)));
            }
        }
        Ok(is_written)
    }

    /// Gives up what the reader does not take.
    pub fn give_up(&mut self) {
        if let Some(out) = self.output() {
            out.give_up();
        }
    }

    /// Number of records that will not reach the file, or of refused datagrams; with the name of the counter. A message
    /// of IPFIX is one record.
    pub fn lost(&self) -> (&'static str, u64) {
        match &self.target {
            Target::Text(out) | Target::Ipfix(_, out) => ("lost_writes", out.lost()),
            Target::Batches(batches, out) => ("lost_writes", batches.lost(out)),
            Target::Collector(..) => ("refused_datagrams", self.refused),
        }
    }
}

fn collector(end: &str) -> io::Result<UdpSocket> {
    let not_found = || io::Error::new(io::ErrorKind::NotFound, "udp:HOST:PORT is expected");
    let address = end.to_socket_addrs()?.next().ok_or_else(not_found)?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
