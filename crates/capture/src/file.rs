//! Frames from capture files: pcap and pcapng, plain, gzip, zstd or lz4, from a name, standard input or any reader.
//!
//! Bytes are read in blocks, records are decoded in place, and up to 256 frames are lent at a time without copying.
//! Blocks of regular files are read ahead by two threads, and compressed files are decompressed in a thread of their
//! own (`ahead`); these threads start with the first call of [`Source::next`]. A pipe delivers a frame as soon as it
//! is complete. Memory is bounded by the longest record that the format allows, and the buffer grows only as bytes
//! arrive.

mod ahead;
mod buffer;
mod input;
mod lz4;
mod merged;
mod order;
mod pcap;
mod pcapng;
mod pseudo;
#[cfg(test)]
mod tests;

pub use input::open_before;
pub use merged::{MAX_FILES, MergedFiles};

use crate::error::{Problem, ReadError};
use crate::inputs::Reading;
use crate::source::{HeldFrames, HeldMark, Interface, LookBack, Next, Source, SourceStats};
use buffer::{Buffer, Fill};
use fyke_frame::{BATCH_CAPACITY, Batch, Direction, Frame, LinkType, Meta};
use input::{Opened, Patience};
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Opens a capture file; `-` is standard input. Blocks until the file header has been read.
///
/// # Errors
/// If the file cannot be opened, or does not start like a capture file.
pub fn open_file(path: &Path) -> Result<FileSource, ReadError> {
    FileSource::open(path, FileOptions::default())
}

/// Options for reading a capture file.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Number of bytes before a batch (in the decompressed file) whose frames are held for look-back; 0 holds none.
    /// Needs the same amount of memory.
    pub look_back_bytes: usize,
    /// True if other threads read the file ahead, and decompress it. They start with the first call of
    /// [`Source::next`]. If false, there are no threads.
    pub read_ahead: bool,
    /// True if an interface without a name gets the name of the file.
    pub named: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { look_back_bytes: 0, read_ahead: true, named: false }
    }
}

/// Frames of one capture file.
pub struct FileSource {
    name: String,
    patience: Patience,
    buffer: Buffer,
    format: Format,
    interfaces: Vec<Interface>,
    /// Held frames, oldest first, followed by those of the current batch.
    held: VecDeque<Placed>,
    /// Starts of the records of a batch in a plain file, from the first one.
    starts: Vec<u32>,
    /// Offset of the first of them in the stream.
    scanned: u64,
    options: FileOptions,
    delivered: u64,
    clamped_times: u64,
    failure: Option<ReadError>,
    started: bool,
    ended: bool,
    _reading: Option<Reading>,
}

enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// Result of gathering frames.
enum Gathered {
    /// This number of frames, at least one.
    Frames(usize),
    Idle,
    End,
}

/// Result of decoding the next bytes.
enum Step {
    /// A structure is incomplete: its name, and the number of bytes that it needs.
    Need { what: &'static str, bytes: usize },
    /// Bytes without a frame.
    Skip { len: usize },
    /// A frame.
    Frame { record: Record, len: usize },
}

/// A frame without its bytes.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// Offset of its bytes from the start of the record.
    data_at: usize,
    captured: u32,
    wire_len: u32,
    timestamp_ns: u64,
    /// True if the file gives a time that nanoseconds since 1970 cannot hold.
    clamped: bool,
    link: LinkType,
    interface: u32,
    ifindex: u32,
    direction: Direction,
}

/// A record and its offset in the file.
#[derive(Debug, Clone, Copy)]
struct Placed {
    at: u64,
    record: Record,
}

impl FileSource {
    /// Opens a capture file with options; `-` is standard input.
    ///
    /// # Errors
    /// As [`open_file`].
    pub fn open(path: &Path, options: FileOptions) -> Result<Self, ReadError> {
        Self::open_with(path, options, Patience::default())
    }

    fn open_with(path: &Path, options: FileOptions, patience: Patience) -> Result<Self, ReadError> {
        let opened = input::open(path, &patience)?;
        Self::start(opened, options, patience)
    }

    /// Frees the memory of a file that has ended.
    fn close(&mut self) {
        self.buffer.close();
        self.held = VecDeque::new();
    }

    /// Reads a capture file from any reader. `name` is for error texts.
    ///
    /// # Errors
    /// As [`open_file`].
    pub fn from_reader(
        name: &str,
        reader: impl Read + Send + 'static,
        options: FileOptions,
    ) -> Result<Self, ReadError> {
        let input = input::unpack(name, reader)?;
        let opened = Opened { name: name.to_owned(), input, reading: None };
        Self::start(opened, options, Patience::default())
    }

    /// True if the format may describe more interfaces after the first frames.
    pub fn may_have_more_interfaces(&self) -> bool {
        matches!(self.format, Format::Pcapng(_))
    }

    fn start(
        Opened { name, input, reading }: Opened,
        options: FileOptions,
        patience: Patience,
    ) -> Result<Self, ReadError> {
        let mut buffer = Buffer::new(input);
        let magic = require::<4>(&name, &mut buffer, "file header")?;
        let mut interfaces = Vec::new();
        let format = if let Some(order) = pcap::order_of(magic) {
            let header = require::<{ pcap::HEADER_LEN }>(&name, &mut buffer, "file header")?;
            let (format, interface) = pcap::Pcap::new(&header, order)
                .map_err(|problem| ReadError::Format { name: name.clone(), offset: 0, problem })?;
            buffer.advance(pcap::HEADER_LEN);
            interfaces.push(interface);
            Format::Pcap(format)
        } else if u32::from_le_bytes(magic) == pcapng::SECTION {
            Format::Pcapng(pcapng::Pcapng::new())
        } else {
            let problem = Problem::UnknownFormat(magic.to_vec());
            return Err(ReadError::Format { name, offset: 0, problem });
        };
        let mut source = FileSource {
            name,
            patience,
            buffer,
            format,
            interfaces,
            held: VecDeque::new(),
            starts: Vec::with_capacity(BATCH_CAPACITY),
            scanned: 0,
            options,
            delivered: 0,
            clamped_times: 0,
            failure: None,
            started: false,
            ended: false,
            _reading: reading,
        };
        source.name_interfaces(0);
        source.find_interfaces()?;
        Ok(source)
    }

    /// Reads up to the first packet or, on a pipe, the first interface, so that an open source knows its link type.
    fn find_interfaces(&mut self) -> Result<(), ReadError> {
        loop {
            match self.step() {
                Ok(Step::Skip { len }) => self.buffer.advance(len),
                Ok(Step::Frame { .. }) => return Ok(()),
                Ok(Step::Need { .. }) if !self.interfaces.is_empty() => return Ok(()),
                Ok(Step::Need { what, bytes }) => {
                    let filled = self.buffer.fill(self.buffer.position(), bytes, Duration::ZERO);
                    match filled.map_err(|source| self.io_error(source))? {
                        Fill::More | Fill::Idle => {}
                        Fill::End => return self.end(what, bytes),
                    }
                }
                Err(problem) if self.interfaces.is_empty() => return Err(self.wrong(problem)),
                Err(problem) => {
                    self.failure = Some(self.wrong(problem));
                    return Ok(());
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, Problem> {
        let unparsed = self.buffer.unparsed();
        match &mut self.format {
            Format::Pcap(pcap) => pcap.step(unparsed),
            Format::Pcapng(pcapng) => {
                let known = self.interfaces.len();
                let step = pcapng.step(unparsed, &mut self.interfaces);
                self.name_interfaces(known);
                step
            }
        }
    }

    /// Gives interfaces from this number on the name of the file, if they have none and the options want it.
    fn name_interfaces(&mut self, from: usize) {
        let new = self.interfaces.iter_mut().skip(from).filter(|_| self.options.named);
        for interface in new.filter(|interface| interface.name.is_empty()) {
            interface.name.clone_from(&self.name);
        }
    }

    /// Collects complete frames; returns their number, and the name and length of an incomplete structure after them.
    fn collect(&mut self) -> (usize, Option<(&'static str, usize)>) {
        let mut count = 0;
        let mut link = None;
        while count < BATCH_CAPACITY && self.failure.is_none() {
            match self.step() {
                Ok(Step::Need { what, bytes }) => return (count, Some((what, bytes))),
                Ok(Step::Skip { len }) => self.buffer.advance(len),
                Ok(Step::Frame { record, len }) => {
                    if *link.get_or_insert(record.link) != record.link {
                        break;
                    }
                    let at = self.buffer.position();
                    self.buffer.advance(len);
                    self.correct_order(at, &record);
                    self.clamped_times += u64::from(record.clamped);
                    self.held.push_back(Placed { at, record });
                    count += 1;
                }
                Err(problem) => self.failure = Some(self.wrong(problem)),
            }
        }
        (count, None)
    }

    /// Converts fields in the byte order of the machine that wrote the file, which some link types have.
    fn correct_order(&mut self, at: u64, record: &Record) {
        let order = match &self.format {
            Format::Pcap(pcap) => pcap.order,
            Format::Pcapng(pcapng) => pcapng.order,
        };
        if order.is_foreign() && pseudo::has_host_order_fields(record.link) {
            let at = at + record.data_at as u64;
            let data = self.buffer.slice_mut(at, record.captured as usize);
            pseudo::swap(record.link, data, record.wire_len);
        }
    }

    /// Drops the frames that are too old for look-back; returns the offset from which bytes are still needed.
    fn forget(&mut self) -> u64 {
        let position = self.buffer.position();
        if self.options.look_back_bytes == 0 {
            self.held.clear();
            return position;
        }
        let oldest = position.saturating_sub(self.options.look_back_bytes as u64);
        while self.held.front().is_some_and(|placed| placed.at < oldest) {
            self.held.pop_front();
        }
        self.held.front().map_or(position, |placed| placed.at)
    }

    fn lend(&mut self, count: usize) -> Next<'_> {
        let first_sequence = self.delivered;
        self.delivered += count as u64;
        let mut batch = Batch::new();
        batch.first_sequence = first_sequence;
        for index in 0..count {
            let pushed = batch.push(self.gathered(index, count));
            debug_assert!(pushed.is_ok(), "gathered frames of one link type, not too many");
        }
        if self.options.look_back_bytes == 0 {
            return Next::Frames(batch, LookBack::none(&self.interfaces));
        }
        let before = self.held.len() - count;
        let mark = [before as u64, first_sequence - before as u64, 0, 0];
        Next::Frames(batch, LookBack::new(&*self, mark, &self.interfaces))
    }

    /// Finds the records of the next batch, if the file is plain and no frames are held. Returns their number.
    fn scan(&mut self) -> usize {
        let Format::Pcap(pcap) = &self.format else { return 0 };
        if self.options.look_back_bytes > 0 || !pcap.is_plain() {
            return 0;
        }
        let len = pcap.scan(self.buffer.unparsed(), &mut self.starts, BATCH_CAPACITY);
        self.scanned = self.buffer.position();
        self.buffer.advance(len);
        self.starts.len()
    }

    /// Finds the next frames, at most [`BATCH_CAPACITY`] of one link type; the earlier ones are gone.
    fn gather(&mut self) -> Result<Gathered, ReadError> {
        self.starts.clear();
        self.forget();
        loop {
            if self.ended {
                return Ok(Gathered::End);
            }
            let scanned = self.scan();
            if scanned > 0 {
                return Ok(Gathered::Frames(scanned));
            }
            let (count, lack) = self.collect();
            if count > 0 {
                return Ok(Gathered::Frames(count));
            }
            if let Some(failure) = self.failure.take() {
                self.ended = true;
                return Err(failure);
            }
            let Some((what, bytes)) = lack else { continue };
            let keep = self.forget();
            match self.buffer.fill(keep, bytes, self.patience.get()) {
                Ok(Fill::More) => {}
                Ok(Fill::Idle) => return Ok(Gathered::Idle),
                Ok(Fill::End) => self.end(what, bytes)?,
                Err(source) => {
                    self.ended = true;
                    return Err(self.io_error(source));
                }
            }
        }
    }

    /// Frame `index` of those gathered.
    fn gathered(&self, index: usize, count: usize) -> Frame<'_> {
        match (&self.format, self.starts.get(index)) {
            (Format::Pcap(pcap), Some(start)) => {
                pcap.frame(self.buffer.from(self.scanned + u64::from(*start)))
            }
            _ => self.held[self.held.len() - count + index].frame(&self.buffer),
        }
    }

    /// Reads ahead from now on.
    fn start_ahead(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            self.buffer.read_ahead();
        }
    }

    fn end(&mut self, what: &'static str, bytes: usize) -> Result<(), ReadError> {
        self.ended = true;
        let given = self.buffer.unparsed().len() as u64;
        if given == 0 {
            return Ok(());
        }
        Err(self.wrong(Problem::Truncated { what, expected: bytes as u64, given }))
    }

    fn wrong(&self, problem: Problem) -> ReadError {
        ReadError::Format { name: self.name.clone(), offset: self.buffer.position(), problem }
    }

    fn io_error(&self, source: std::io::Error) -> ReadError {
        let offset = self.buffer.position() + self.buffer.unparsed().len() as u64;
        ReadError::Io { name: self.name.clone(), offset, source }
    }
}

impl Source for FileSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.options.read_ahead {
            self.start_ahead();
        }
        match self.gather()? {
            Gathered::Frames(count) => Ok(self.lend(count)),
            Gathered::Idle => Ok(Next::Idle),
            Gathered::End => Ok(Next::End),
        }
    }

    fn stats(&mut self) -> SourceStats {
        let (delivered, clamped_times) = (self.delivered, self.clamped_times);
        SourceStats { received: delivered, delivered, clamped_times, ..Default::default() }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience.set(patience);
    }
}

impl Placed {
    fn frame<'a>(&self, buffer: &'a Buffer) -> Frame<'a> {
        let record = &self.record;
        Frame {
            data: buffer.slice(self.at + record.data_at as u64, record.captured as usize),
            wire_len: record.wire_len,
            timestamp_ns: record.timestamp_ns,
            link: record.link,
            interface: record.interface,
            meta: Meta { direction: record.direction, ifindex: record.ifindex, ..Meta::default() },
        }
    }
}

impl HeldFrames for FileSource {
    fn frames(
        &self,
        [count, first_sequence, ..]: HeldMark,
    ) -> Box<dyn Iterator<Item = (u64, Frame<'_>)> + '_> {
        let frames = self.held.range(..count as usize).map(|placed| placed.frame(&self.buffer));
        Box::new((first_sequence..).zip(frames))
    }

    fn frame(&self, [count, first_sequence, ..]: HeldMark, sequence: u64) -> Option<Frame<'_>> {
        let at = sequence.checked_sub(first_sequence).filter(|&at| at < count)?;
        self.held.get(usize::try_from(at).ok()?).map(|placed| placed.frame(&self.buffer))
    }
}

/// Longest frame of a link type, as in libpcap.
fn largest_snaplen(link: LinkType) -> u32 {
    match link.0 {
        231 => 128 << 20, // D-Bus
        279 => 8 << 20,   // EBHSCR
        249 => 1 << 20,   // USBPcap
        _ => crate::source::DEFAULT_SNAPLEN,
    }
}

/// The snapshot length to use, because files with 0 or invalid values exist.
fn usable_snaplen(link: LinkType, given: u32) -> u32 {
    if given == 0 || given > i32::MAX as u32 { largest_snaplen(link) } else { given }
}

/// Returns the next `N` bytes, and waits for them.
fn require<const N: usize>(
    name: &str,
    buffer: &mut Buffer,
    what: &'static str,
) -> Result<[u8; N], ReadError> {
    loop {
        if let Some(bytes) = buffer.unparsed().first_chunk::<N>() {
            return Ok(*bytes);
        }
        let filled = buffer.fill(0, N, Duration::ZERO).map_err(|source| {
            let offset = buffer.unparsed().len() as u64;
            ReadError::Io { name: name.to_owned(), offset, source }
        })?;
        if filled == Fill::End {
            let given = buffer.unparsed().len() as u64;
            let problem = Problem::Truncated { what, expected: N as u64, given };
            return Err(ReadError::Format { name: name.to_owned(), offset: 0, problem });
        }
    }
}
