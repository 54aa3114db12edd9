//! Channels for the bytes of an [`Output`](super::Output): a regular file, or a stream that may be full for a while.
//!
//! A write never waits. Pipes and terminals are reopened in non-blocking mode, because the mode of standard output is
//! shared with other processes. Descriptors that cannot be reopened (sockets) are written one page at a time, for
//! which poll(2) guarantees space.

use super::listener::Clients;
use crate::sys;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes that a descriptor accepts if poll(2) reports it writable.
const PAGE: usize = 4096;

/// The channel of an output to the operating system.
pub(super) trait Channel: Send + Sync {
    /// Writes some bytes without waiting; [`io::ErrorKind::WouldBlock`] if there is no space.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits for space.
    fn wait(&self, patience: Duration);

    /// Removes the last bytes that were written; true if that was possible.
    fn cut(&self, bytes: u64) -> bool;

    /// The file, for changes to bytes that have been written.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Does what the channel has to do now and then, in the thread of the packet loop.
    fn attend(&self) {}

    /// Waits until receivers have what was written; true if they do.
    fn settle(&self, _patience: Duration) -> bool {
        true
    }

    /// Gives up what receivers do not accept.
    fn give_up(&self) {}

    /// Counts of clients, for a channel that has them.
    fn clients(&self) -> Option<Clients> {
        None
    }
}

impl Channel for Arc<dyn Channel> {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (**self).write(bytes)
    }

    fn wait(&self, patience: Duration) {
        (**self).wait(patience);
    }

    fn cut(&self, bytes: u64) -> bool {
        (**self).cut(bytes)
    }

    fn file(&self) -> Option<&File> {
        (**self).file()
    }

    fn attend(&self) {
        (**self).attend();
    }

    fn settle(&self, patience: Duration) -> bool {
        (**self).settle(patience)
    }

    fn give_up(&self) {
        (**self).give_up();
    }

    fn clients(&self) -> Option<Clients> {
        (**self).clients()
    }
}

/// The channel for an open file.
pub(super) fn of(file: File) -> Arc<dyn Channel> {
    let kind = file.metadata().map(|metadata| metadata.file_type());
    if kind.is_ok_and(|kind| kind.is_file()) {
        return Arc::new(Regular(file));
    }
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match File::options().write(true).custom_flags(flags).open(again) {
        Ok(again) => Arc::new(Stream { file: again, by_page: false }),
        Err(_) => Arc::new(Stream { file, by_page: true }),
    }
}

struct Regular(File);

impl Channel for Regular {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn wait(&self, patience: Duration) {
        std::thread::sleep(patience.min(Duration::from_millis(1)));
    }

    fn cut(&self, bytes: u64) -> bool {
        let cut = || {
            let end = (&self.0).stream_position()?;
            // Standard output may be a file that others write to as well: only bytes at its end that are ours are
            // removed.
            if self.0.metadata()?.len() != end || bytes > end {
                return Ok(false);
            }
            self.0.set_len(end - bytes)?;
            (&self.0).seek(SeekFrom::Start(end - bytes))?;
            Ok::<_, io::Error>(true)
        };
        cut().unwrap_or(false)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }
}

struct Stream {
    file: File,
    by_page: bool,
}

impl Channel for Stream {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.by_page {
            return (&self.file).write(bytes);
        }
        if !sys::poll::writable(self.file.as_fd(), 0)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        (&self.file).write(&bytes[..bytes.len().min(PAGE)])
    }

    fn wait(&self, patience: Duration) {
        let wait_ms = patience.as_millis().clamp(1, 1_000) as u16;
        if sys::poll::writable(self.file.as_fd(), wait_ms).is_err() {
            // The next write reports the error; the pause prevents a busy loop until then.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn cut(&self, _bytes: u64) -> bool {
        false
    }
}
