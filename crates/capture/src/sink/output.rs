//! Bytes on their way to a file, a pipe or a terminal, in records that are written whole or counted as lost.
//!
//! Records are appended to a buffer and marked ([`Output::mark`]); [`Output::drain`] hands the buffer to the operating
//! system and waits no longer than it is told to, whatever the other end does. When writing fails, a regular file is
//! cut to the end of its last whole record, the frames that are not in it count as lost, and nothing is written again.
//!
//! Invariant: `taken = handed over + waiting + lost`, in frames. Cost: 16 bytes for each record that waits, one system
//! call for each drain that finds room.

use super::channel::Channel;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// Longest wait that is asked of the operating system at once.
const SLICE: Duration = Duration::from_secs(1);

/// A buffered output.
pub struct Output {
    channel: Box<dyn Channel>,
    buffer: Vec<u8>,
    /// Bytes of this output that lie before the buffer.
    base: u64,
    /// Bytes at the start of the buffer that have been handed over.
    handed: usize,
    /// Ends of the records that have not been handed over whole, and whether they are frames.
    ends: VecDeque<(u64, bool)>,
    /// End of the last record that was handed over whole.
    whole: u64,
    taken: u64,
    lost: u64,
    closed: bool,
}

impl Output {
    /// An output to an open file, pipe, terminal or device.
    pub fn new(file: File) -> Output {
        Output::over(super::channel::of(file))
    }

    /// An output to standard output.
    ///
    /// # Errors
    /// When standard output is closed.
    pub fn standard_output() -> io::Result<Output> {
        use std::os::fd::AsFd;
        let copy = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Output::new(File::from(copy)))
    }

    /// The regular file that the bytes go to, to change what has been written before.
    pub(super) fn file(&self) -> Option<&File> {
        self.channel.file()
    }

    /// Whether everything that is marked from now on is lost.
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

    /// Puts another channel in the place of the one that nothing has gone to yet.
    #[cfg(test)]
    pub(super) fn set_channel(&mut self, channel: Box<dyn Channel>) {
        self.channel = channel;
    }

    /// The buffer, to append a record to; [`mark`](Output::mark) it afterwards.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// The bytes from the start of this output, when all of them still wait.
    pub(super) fn unsent_start(&mut self) -> Option<&mut [u8]> {
        (self.base == 0 && self.handed == 0).then_some(&mut self.buffer)
    }

    /// Marks the end of a record: a frame, or something else that has to be whole (a file header).
    pub fn mark(&mut self, is_frame: bool) {
        self.taken += u64::from(is_frame);
        if self.closed {
            self.lost += u64::from(is_frame);
            self.buffer.clear();
            return;
        }
        self.ends.push_back((self.bytes(), is_frame));
    }

    /// Bytes taken so far; those that failed to be written are not part of it.
    pub fn bytes(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Bytes that wait in the buffer.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.handed
    }

    /// Frames taken so far that are handed over or still wait.
    pub fn frames(&self) -> u64 {
        self.taken - self.lost
    }

    /// Frames that were taken and will never be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Hands the buffer over and waits for room, at most `patience` (`None`: without end). Whether all of it has gone.
    ///
    /// # Errors
    /// When writing fails. The output is closed then: what waited is lost, as is everything that is marked later.
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

    /// Gives up what waits: it is lost, and so is everything that is marked later.
    pub fn give_up(&mut self) {
        self.settle();
        if self.waiting() > 0 {
            self.close();
        }
        self.closed = true;
    }

    /// Forgets what has been handed over.
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

    /// Cuts the file to its last whole record and counts the rest as lost.
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
