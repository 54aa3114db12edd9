//! Compression of an output: each block that is written becomes a unit of its own (a member of a gzip file, a frame of
//! a zstd or lz4 file), so a file is complete after every block, and a decompressor reads the units as one stream.
//!
//! A block counts as written when all of its unit is. If writing fails within a unit, the file is cut to the end of the
//! unit before it.

use super::channel::Channel;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// None.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// The frame format of LZ4.
    Lz4,
}

impl Compression {
    /// Names for users, each with its compression.
    pub const NAMES: [(&'static str, Compression); 4] = [
        ("none", Compression::None),
        ("gzip", Compression::Gzip),
        ("zstd", Compression::Zstd),
        ("lz4", Compression::Lz4),
    ];

    /// Selects the compression by the end of a file name: `.gz`, `.zst`, `.lz4`.
    pub fn of(path: &Path) -> Compression {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "gz" => Compression::Gzip,
            "zst" => Compression::Zstd,
            "lz4" => Compression::Lz4,
            _ => Compression::None,
        }
    }

    /// Compresses a block to a unit.
    fn pack(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Compression::None => Ok(bytes.to_vec()),
            Compression::Gzip => {
                let level = flate2::Compression::fast();
                let room = Vec::with_capacity(bytes.len() / 2);
                let mut packer = flate2::write::GzEncoder::new(room, level);
                packer.write_all(bytes)?;
                packer.finish()
            }
            Compression::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                Ok(ruzstd::encoding::compress_to_vec(bytes, level))
            }
            Compression::Lz4 => {
                let room = Vec::with_capacity(bytes.len() / 2);
                let mut packer = lz4_flex::frame::FrameEncoder::new(room);
                packer.write_all(bytes)?;
                packer.finish().map_err(io::Error::other)
            }
        }
    }
}

/// A channel that compresses.
pub(super) struct Packed<C> {
    inner: C,
    compression: Compression,
    unit: Mutex<Unit>,
}

/// The unit that is being written.
#[derive(Default)]
struct Unit {
    bytes: Vec<u8>,
    /// Bytes of it that have been written.
    written: usize,
    /// Length of the block that it holds; 0 if there is none.
    holds: usize,
}

impl<C: Channel> Packed<C> {
    pub(super) fn new(inner: C, compression: Compression) -> Packed<C> {
        Packed { inner, compression, unit: Mutex::default() }
    }
}

impl<C: Channel> Channel for Packed<C> {
    /// Returns the length of the block once its unit is written. A caller that gets another answer calls again with the
    /// same bytes, to which others may have been added.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut unit = self.unit.lock().unwrap_or_else(PoisonError::into_inner);
        if unit.holds == 0 {
            *unit = Unit { bytes: self.compression.pack(bytes)?, written: 0, holds: bytes.len() };
        }
        while unit.written < unit.bytes.len() {
            let error = match self.inner.write(&unit.bytes[unit.written..]) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    unit.written += count;
                    continue;
                }
                Err(error) => error,
            };
            let goes_on = [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&error.kind());
            if !goes_on && unit.written > 0 {
                self.inner.cut(unit.written as u64);
            }
            return Err(error);
        }
        Ok(std::mem::take(&mut unit.holds))
    }

    fn wait(&self, patience: Duration) {
        self.inner.wait(patience);
    }

    /// Nothing is written of a unit that is not complete.
    fn cut(&self, _bytes: u64) -> bool {
        false
    }

    fn file(&self) -> Option<&File> {
        self.inner.file()
    }
}
