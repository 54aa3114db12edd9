//! Fault injection: a wrapper that gives any reader or writer random faults from a seed.
//!
//! Faults that lose nothing (a short read or write, an interruption, `WouldBlock`) happen often. An error (a full disk,
//! a failing device) happens at a byte that the test chooses, and on every later call. The same seed gives the same
//! faults.

use crate::random::Random;
use std::io::{self, ErrorKind, Read, Write};

/// Error numbers: `ENOSPC`, `EIO`, `EFBIG`, `EDQUOT`.
pub const BROKEN: [i32; 4] = [28, 5, 27, 122];

/// A reader or writer with faults.
#[derive(Debug)]
pub struct Faulty<T> {
    inner: T,
    random: Random,
    /// First byte from which every call fails, and the error number.
    broken: Option<(u64, i32)>,
    may_block: bool,
    bytes: u64,
}

impl<T> Faulty<T> {
    /// Wraps `inner` with faults that lose nothing.
    pub fn new(inner: T, seed: u64) -> Faulty<T> {
        Faulty { inner, random: Random::new(seed), broken: None, may_block: false, bytes: 0 }
    }

    /// Fails with this error number from byte `at` on.
    pub fn breaks(mut self, at: u64, error: i32) -> Faulty<T> {
        self.broken = Some((at, error));
        self
    }

    /// Sometimes returns `WouldBlock`, like a non-blocking pipe.
    pub fn blocks(mut self) -> Faulty<T> {
        self.may_block = true;
        self
    }

    /// Inner reader or writer.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Number of `wanted` bytes that the next call moves, or its error.
    fn next(&mut self, wanted: usize) -> io::Result<usize> {
        match self.random.below(8) {
            0 => return Err(ErrorKind::Interrupted.into()),
            1 if self.may_block => return Err(ErrorKind::WouldBlock.into()),
            _ => {}
        }
        let mut most = wanted;
        if let Some((at, error)) = self.broken {
            if self.bytes >= at {
                return Err(io::Error::from_raw_os_error(error));
            }
            most = usize::try_from(at - self.bytes).map_or(most, |left| most.min(left));
        }
        // Most calls are short, and some move a single byte.
        Ok(match self.random.below(4) {
            0 => most.min(1),
            1 => most,
            _ => most.min(1 + self.random.below(most)),
        })
    }
}

impl<T: Read> Read for Faulty<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.next(buffer.len())?;
        let count = self.inner.read(&mut buffer[..most])?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<T: Write> Write for Faulty<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.next(bytes.len())?;
        let count = self.inner.write(&bytes[..most])?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads to the end, or to an error that persists.
    fn read_all(mut reader: impl Read) -> (Vec<u8>, Option<i32>) {
        let (mut all, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return (all, None),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.raw_os_error().is_some() => return (all, error.raw_os_error()),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn nothing_is_lost_before_the_byte_that_breaks() {
        let bytes: Vec<u8> = (0..2000).map(|number| number as u8).collect();
        for seed in 0..50 {
            let reader = Faulty::new(&bytes[..], seed).blocks();
            assert_eq!(read_all(reader), (bytes.clone(), None), "seed {seed}");
            let reader = Faulty::new(&bytes[..], seed).breaks(777, 5);
            assert_eq!(read_all(reader), (bytes[..777].to_vec(), Some(5)), "seed {seed}");
            let mut writer = Faulty::new(Vec::new(), seed).breaks(777, 28);
            let error = writer.write_all(&bytes).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(28), "seed {seed}");
            assert_eq!(*writer.get_mut(), bytes[..777], "seed {seed}");
        }
    }
}
