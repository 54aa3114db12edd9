//! Frames that another process stores in shared memory: a ring that `fyke demux 'EXPR => ring:NAME'` publishes.
//!
//! Frames are copied out of the ring, a batch at a time, because its writer continues meanwhile. Frames that the
//! writer overwrote before they were copied count as dropped; frames that do not fit the ring's link type count as
//! unreadable. The source ends when the writer has ended and everything is read; with an error if the writer has not
//! closed the ring, because it was killed. After a stop it ends at the writer's position at that time. A ring has no
//! descriptor that signals frames, so it is polled every millisecond.

use crate::error::ReadError;
use crate::source::{DEFAULT_SNAPLEN, Interface, LookBack, Next, Source, SourceStats};
use fyke_frame::{BATCH_CAPACITY, Batch, Frame};
use fyke_ring::packets::Copied;
use fyke_ring::{Read, Reader};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait of a call for a frame, by default.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time between two polls.
const PAUSE: Duration = Duration::from_millis(1);

/// A source that reads a ring.
#[derive(Debug)]
pub struct SharedSource {
    reader: Reader,
    interfaces: Vec<Interface>,
    bytes: Vec<u8>,
    frames: Vec<(Range<usize>, Copied)>,
    /// Frames of another link type, or longer than the limit: an error of the writer.
    unreadable: u64,
    patience: Duration,
    /// Number of frames, read and lost, after which a source that was stopped ends.
    end: u64,
}

impl SharedSource {
    /// Connects to the ring that is published at a socket by a process of root, of our own user, or of `user`.
    ///
    /// # Errors
    /// When no process publishes one there, or one of another user.
    pub fn connect(name: &str, path: &Path, user: Option<u32>) -> Result<SharedSource, ReadError> {
        let reader = Reader::connect_to(path, user).map_err(|error| {
            let source = io::Error::other(error);
            ReadError::Open { name: name.to_owned(), source }
        })?;
        let interfaces = vec![Interface::new(name, reader.link())];
        Ok(SharedSource {
            reader,
            interfaces,
            bytes: Vec::new(),
            frames: Vec::new(),
            unreadable: 0,
            patience: PATIENCE,
            end: u64::MAX,
        })
    }

    /// Copies the available frames, at most a batch; true if the ring has ended.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.bytes.clear();
        self.frames.clear();
        let link = self.interfaces[0].link;
        // Unreadable frames are counted, too, so that a writer of nothing else cannot hold the caller.
        for _ in 0..BATCH_CAPACITY {
            if self.reader.read() + self.reader.lost() >= self.end {
                return Ok(self.frames.is_empty());
            }
            let start = self.bytes.len();
            match self.reader.next(&mut self.bytes) {
                Read::Frame(copied) => {
                    let range = start..self.bytes.len();
                    if copied.link == link && range.len() <= DEFAULT_SNAPLEN as usize {
                        self.frames.push((range, copied));
                    } else {
                        self.unreadable += 1;
                        self.bytes.truncate(start);
                    }
                }
                Read::Nothing => return Ok(false),
                Read::End => return Ok(self.frames.is_empty()),
                Read::Gone if self.frames.is_empty() => {
                    let name = self.interfaces[0].name.clone();
                    return Err(ReadError::WriterGone { name });
                }
                Read::Gone => return Ok(false),
            }
        }
        Ok(false)
    }
}

impl Source for SharedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let start = Instant::now();
        loop {
            if self.fill()? {
                return Ok(Next::End);
            }
            if !self.frames.is_empty() {
                break;
            }
            if start.elapsed() >= self.patience {
                return Ok(Next::Idle);
            }
            std::thread::sleep(PAUSE);
        }
        let mut batch = Batch::new();
        for (range, copied) in &self.frames {
            let mut frame = Frame::new(copied.link, &self.bytes[range.clone()]);
            frame.wire_len = copied.wire_len;
            frame.timestamp_ns = copied.timestamp_ns;
            frame.meta.vlan = copied.vlan;
            frame.meta.restored = copied.restored;
            // There is space: at most one batch was read.
            let _ = batch.push(frame);
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let (read, dropped) = (self.reader.read(), self.reader.lost());
        SourceStats {
            received: read + dropped,
            delivered: read - self.unreadable,
            dropped,
            unreadable: self.unreadable,
            ..SourceStats::default()
        }
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn stop(&mut self) -> bool {
        if self.end == u64::MAX {
            self.end = self.reader.read() + self.reader.lost() + self.reader.waiting();
        }
        true
    }
}
