//! A buffer for a file, a pipe or a terminal, with records that are written completely or counted as lost.
//!
//! Records are appended to a buffer and marked ([`Output::mark`]). [`Output::drain`] writes the buffer to the
//! operating system and waits at most a given time, whatever the receiver does. If writing fails, a regular file is
//! cut to the end of its last complete record, the other frames count as lost, and nothing more is written.
//!
//! Invariant: `taken = written + waiting + lost`, in frames. Cost: 16 bytes for each record that waits, one system
//! call for each drain that finds space.

use super::channel::Channel;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// Longest wait in one system call.
const SLICE: Duration = Duration::from_secs(1);

/// A buffered output.
pub struct Output {
    channel: Box<dyn Channel>,
    buffer: Vec<u8>,
    /// Offset of the buffer in this output.
    base: u64,
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

    pub(super) fn over(channel: Box<dyn Channel>) -> Output {
        Output {
            channel,
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

    /// Replaces the channel, before anything has been written to it.
    #[cfg(test)]
    pub(super) fn set_channel(&mut self, channel: Box<dyn Channel>) {
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

    /// Gives up the waiting bytes: they are lost, and so is everything that is marked later.
    pub fn give_up(&mut self) {
        self.settle();
        if self.waiting() > 0 {
            self.close();
        }
        self.closed = true;
    }

    /// Removes the bytes that have been written.
    fn settle(&mut self) {
        let end = self.base + self.handed as u64;
        while let Some((at, _)) = self.ends.front().filter(|(at, _)| *at <= end) {
            self.whole = *at;
            self.ends.pop_front();
        }
        self.base = end;
        match self.handed == self.buffer.len() {
            true => self.buffer.clear(),
            false => drop(self.buffer.drain(..self.handed)),
        }
        self.handed = 0;
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.settle();
        self.close();
        error
    }

    /// Cuts the file to its last complete record and counts the rest as lost.
    fn close(&mut self) {
        self.closed = true;
        let part = self.base - self.whole;
        if part > 0 && self.channel.cut(part) {
            self.base = self.whole;
        }
        self.lost += self.ends.iter().filter(|(_, is_frame)| *is_frame).count() as u64;
        self.ends.clear();
        self.buffer.clear();
    }
}
