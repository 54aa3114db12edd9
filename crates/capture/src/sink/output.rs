//! A buffer for a file, a pipe or a terminal, with records that are written completely or counted as lost.
//!
//! Records are appended to a buffer and marked ([`Output::mark`]). [`Output::drain`] writes the buffer to the
//! operating system and waits at most a given time, whatever the receiver does. If writing fails, a regular file is
//! cut to the end of its last complete record, the other frames count as lost, and nothing more is written.
//!
//! Blocks for a regular file can be written by a [thread](super::writer) instead ([`Output::use_thread`]).
//!
//! Invariant: `taken = written + waiting + lost`, in frames. Cost: 16 bytes for each record that waits, one system
//! call for each drain that finds space.

use super::channel::Channel;
use super::listener::Clients;
use super::packed::{Compression, Packed};
use super::writer::Writer;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait in one system call.
const SLICE: Duration = Duration::from_secs(1);

/// A buffered output.
pub struct Output {
    channel: Arc<dyn Channel>,
    /// Thread that writes the blocks.
    writer: Option<Writer>,
    /// True if the thread may be started.
    may_start_writer: bool,
    buffer: Vec<u8>,
    /// Offset of the buffer in this output.
    base: u64,
    /// Number of bytes that have been written, as of the last look; those up to `base` are with the thread.
    sent: u64,
    /// Number of bytes at the start of the buffer that have been written.
    handed: usize,
    /// Ends of the records that have not been written completely; true for frames.
    ends: VecDeque<(u64, bool)>,
    /// End of the last record that was written completely.
    whole: u64,
    taken: u64,
    lost: u64,
    closed: bool,
}

impl Output {
    /// Creates an output to an open file, pipe, terminal or device.
    pub fn new(file: File) -> Output {
        Output::over(super::channel::of(file))
    }

    /// Creates an output to standard output.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn standard_output() -> io::Result<Output> {
        use std::os::fd::AsFd;
        let copy = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Output::new(File::from(copy)))
    }

    /// The regular file of this output, for changes to bytes that have been written.
    pub(super) fn file(&self) -> Option<&File> {
        self.channel.file()
    }

    /// True if everything that is marked from now on is lost.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn over(channel: Arc<dyn Channel>) -> Output {
        Output {
            channel,
            writer: None,
            may_start_writer: false,
            sent: 0,
            buffer: Vec::new(),
            base: 0,
            handed: 0,
            ends: VecDeque::new(),
            whole: 0,
            taken: 0,
            lost: 0,
            closed: false,
        }
    }

    /// Compresses everything that is written from now on.
    pub(super) fn compress(&mut self, compression: Compression) {
        if compression != Compression::None {
            self.channel = Arc::new(Packed::new(Arc::clone(&self.channel), compression));
        }
    }

    /// Makes a thread write the blocks of [`pass_on`](Self::pass_on). It starts with the first of them. Only for
    /// regular files: their writes need no other process to end.
    pub(super) fn use_thread(&mut self) {
        self.may_start_writer = true;
    }

    /// True if a thread writes the blocks, or will.
    pub(super) fn has_thread(&self) -> bool {
        self.writer.is_some() || self.may_start_writer
    }

    /// Replaces the channel, before anything has been written to it.
    #[cfg(test)]
    pub(super) fn set_channel(&mut self, channel: Arc<dyn Channel>) {
        self.channel = channel;
    }

    /// The buffer, for appending a record; call [`mark`](Output::mark) afterwards.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// The bytes from the start of this output, if all of them still wait.
    pub(super) fn unsent_start(&mut self) -> Option<&mut [u8]> {
        (self.base == 0 && self.handed == 0).then_some(&mut self.buffer)
    }

    /// Marks the end of a record: a frame, or another unit that must be complete (a file header).
    pub fn mark(&mut self, is_frame: bool) {
        self.taken += u64::from(is_frame);
        if self.closed {
            self.lost += u64::from(is_frame);
            self.buffer.clear();
            return;
        }
        self.ends.push_back((self.bytes(), is_frame));
    }

    /// Removes everything that has been taken, before anything is written.
    pub(super) fn forget(&mut self) {
        self.buffer.clear();
        self.ends.clear();
    }

    /// Number of bytes taken so far, without those that could not be written.
    pub fn bytes(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Number of bytes that wait in the buffer.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.handed
    }

    /// Number of frames taken so far that are written or still wait.
    pub fn frames(&self) -> u64 {
        self.taken - self.lost
    }

    /// Number of frames that were taken and will not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes the buffer and waits for space, at most `patience` (`None`: without limit). True if all of it is
    /// written.
    ///
    /// # Errors
    /// If writing fails. Then the output is closed: the waiting bytes are lost, and so is everything that is marked
    /// later.
    pub fn drain(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        if let Some(writer) = &self.writer {
            if !self.buffer.is_empty() {
                self.base += self.buffer.len() as u64;
                writer.push(&mut self.buffer);
            }
            writer.wait();
            return self.look().map(|()| true);
        }
        let deadline = patience.map(|patience| Instant::now() + patience);
        while self.waiting() > 0 {
            match self.channel.write(&self.buffer[self.handed..]) {
                Ok(0) => return Err(self.fail(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.handed += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    let left = deadline.map_or(SLICE, |end| end.saturating_duration_since(now));
                    if left.is_zero() {
                        self.settle();
                        return Ok(false);
                    }
                    self.channel.wait(left.min(SLICE));
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        self.settle();
        Ok(true)
    }

    /// Passes the buffer on: to the thread, if there is one, without waiting for the result; else as
    /// [`drain`](Self::drain) does. An error of the thread is returned by a later call.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub(super) fn pass_on(&mut self, patience: Option<Duration>) -> io::Result<()> {
        if std::mem::take(&mut self.may_start_writer) && self.waiting() == self.buffer.len() {
            // Without a thread, blocks are written here.
            self.writer = Writer::start(Arc::clone(&self.channel), self.base).ok();
        }
        let Some(writer) = &self.writer else { return self.drain(patience).map(drop) };
        self.base += self.buffer.len() as u64;
        writer.push(&mut self.buffer);
        self.look()
    }

    /// Looks how far the thread is.
    fn look(&mut self) -> io::Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let (written, error) = writer.progress();
        self.sent = written;
        self.settle_records();
        match error {
            None => Ok(()),
            Some(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// Lets the channel do what it has to do now and then.
    pub(super) fn attend(&self) {
        self.channel.attend();
    }

    /// Waits until receivers have what was written; true if they do.
    pub(super) fn settle_receivers(&self, patience: Duration) -> bool {
        self.channel.settle(patience)
    }

    /// Counts of clients, if the channel has them.
    pub(super) fn clients(&self) -> Option<Clients> {
        self.channel.clients()
    }

    /// Gives up the waiting bytes: they are lost, and so is everything that is marked later.
    pub fn give_up(&mut self) {
        if let Some(writer) = &self.writer {
            writer.wait();
            // The error has no receiver; what is lost is counted.
            let _ = self.look();
        } else {
            self.settle();
        }
        if self.waiting() > 0 {
            self.close();
        }
        self.channel.give_up();
        self.closed = true;
    }

    /// Removes the bytes that have been written.
    fn settle(&mut self) {
        self.base += self.handed as u64;
        self.sent = self.base;
        self.settle_records();
        match self.handed == self.buffer.len() {
            true => self.buffer.clear(),
            false => drop(self.buffer.drain(..self.handed)),
        }
        self.handed = 0;
    }

    /// Removes the ends of records that have been written.
    fn settle_records(&mut self) {
        while let Some((at, _)) = self.ends.front().filter(|(at, _)| *at <= self.sent) {
            self.whole = *at;
            self.ends.pop_front();
        }
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.settle();
        self.close();
        error
    }

    /// Cuts the file to its last complete record and counts the rest as lost.
    fn close(&mut self) {
        self.closed = true;
        self.base = self.sent;
        let part = self.sent - self.whole;
        if part > 0 && self.channel.cut(part) {
            self.base = self.whole;
        }
        self.lost += self.ends.iter().filter(|(_, is_frame)| *is_frame).count() as u64;
        self.ends.clear();
        self.buffer.clear();
    }
}
