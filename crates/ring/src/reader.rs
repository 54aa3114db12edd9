//! The reading side: frames of one endpoint, in order, with an exact count of lost frames.

use crate::index::IndexView;
use crate::packets::{Copied, PacketView};
use crate::{RingError, publish};
use fyke_frame::LinkType;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Result of [`Reader::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A frame; its bytes were appended to the caller's buffer.
    Frame(Copied),
    /// No frame now.
    Nothing,
    /// No frame will follow: the writer has closed the ring.
    End,
    /// No frame will follow: the writer has ended without closing the ring, so its last frames may
    /// be missing.
    Gone,
}

/// A reader. It starts with the frames written after it connected.
#[derive(Debug)]
pub struct Reader {
    packets: PacketView,
    index: IndexView,
    next: u64,
    read: u64,
    lost: u64,
    /// Open as long as the writer lives.
    stream: Option<UnixStream>,
}

impl Reader {
    /// Connects to the writer that publishes at a socket, a process of root or of our own user.
    ///
    /// # Errors
    /// No writer publishes there, it belongs to another user, or the received buffers are not a ring.
    pub fn connect(path: &Path) -> Result<Reader, RingError> {
        Reader::connect_to(path, None)
    }

    /// Connects to a writer that may also belong to this user.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_to(path: &Path, user: Option<u32>) -> Result<Reader, RingError> {
        let (stream, packets, index) = publish::ask(path, user)?;
        let mut reader = Reader::open(packets, index)?;
        reader.stream = Some(stream);
        Ok(reader)
    }

    /// Reads buffers that were received in another way.
    ///
    /// # Errors
    /// They are not a ring.
    pub fn open(packets: OwnedFd, index: OwnedFd) -> Result<Reader, RingError> {
        let (packets, index) = (PacketView::open(packets)?, IndexView::open(index)?);
        let next = index.pushed();
        Ok(Reader { packets, index, next, read: 0, lost: 0, stream: None })
    }

    /// Link type of the frames.
    pub fn link(&self) -> LinkType {
        self.index.link()
    }

    /// Frames read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Frames overwritten before they could be read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Frames that the writer has put and that are neither read nor lost yet.
    pub fn waiting(&self) -> u64 {
        self.index.pushed().saturating_sub(self.next)
    }

    /// The next frame; its bytes are appended to `into`. Examines at most as many entries as the
    /// index has, whatever the writer does meanwhile.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Read {
        for _ in 0..self.index.capacity() {
            let pushed = self.index.pushed();
            if pushed <= self.next {
                // A writer closes the index first, then its connections: so the connection is
                // checked before the index.
                let gone = self.writer_is_gone();
                let closed = self.index.closed();
                // Check the count again after the end was seen: entries pushed before the end are
                // read first.
                return match self.index.pushed() <= self.next {
                    true if closed => Read::End,
                    true if gone => Read::Gone,
                    _ => Read::Nothing,
                };
            }
            let oldest = self.index.oldest(pushed);
            if oldest > self.next {
                self.lost += oldest - self.next;
                self.next = oldest;
            }
            let place = self.index.place(self.next);
            self.next += 1;
            match place.and_then(|place| self.packets.copy(place, into)) {
                Some(copied) => {
                    self.read += 1;
                    return Read::Frame(copied);
                }
                None => self.lost += 1,
            }
        }
        Read::Nothing
    }

    fn writer_is_gone(&self) -> bool {
        self.stream.as_ref().is_some_and(publish::is_gone)
    }
}
