//! The recording: every frame of the device, counted per TCP connection. Captures are compared with it.

use super::tally::Tally;
use crate::ftp::Stop;
use fyke_capture::{Interface, Next, ReadError, SocketFilter, Source, SourceStats};
use std::io;
use std::sync::Arc;

/// Counts until `stop` is set and no more frames come. Also returns the number of lost frames.
pub(crate) fn record(source: &mut dyn Source, stop: &Stop) -> Result<(Tally, u64), ReadError> {
    let mut tally = Tally::default();
    loop {
        let is_over = stop.is_over();
        match source.next()? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    tally.count(frame);
                }
            }
            Next::Idle if !is_over => {}
            Next::Idle | Next::End => {
                let lost = source.stats().dropped + tally.forgotten();
                return Ok((tally, lost));
            }
        }
    }
}

/// A live source that ends after `stop` is set and the frames left in the kernel have been read.
pub(crate) struct UntilStop {
    pub(crate) source: Box<dyn Source>,
    pub(crate) stop: Stop,
}

impl Source for UntilStop {
    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        let is_over = self.stop.is_over();
        match self.source.next()? {
            Next::Idle if is_over => Ok(Next::End),
            next => Ok(next),
        }
    }

    fn stats(&mut self) -> SourceStats {
        self.source.stats()
    }

    fn set_filter(&mut self, filter: Arc<dyn SocketFilter>) -> io::Result<()> {
        self.source.set_filter(filter)
    }
}
