//! Input of a capture file: a file, standard input or a reader, decompressed if necessary.
//!
//! Compression is recognised by the first bytes, so `-` may be compressed too. Reads from an uncompressed pipe have a
//! time-out, so a reader of a quiet pipe stays responsive; no read goes beyond the bytes that have arrived.

use super::lz4;
use crate::error::ReadError;
use crate::inputs::Reading;
use crate::sys;
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait of a read from a quiet pipe before it returns without data, by default.
const IDLE_MS: u16 = 100;

/// Pause between two attempts, for readers that cannot be polled.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Longest wait of reads from a quiet pipe, in milliseconds; shared between the source and its input.
#[derive(Clone, Debug)]
pub(super) struct Patience(Arc<AtomicU16>);

impl Default for Patience {
    fn default() -> Patience {
        Patience(Arc::new(AtomicU16::new(IDLE_MS)))
    }
}

impl Patience {
    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed).into())
    }

    pub(super) fn set(&self, patience: Duration) {
        self.0.store(patience.as_millis().min(60_000) as u16, Ordering::Relaxed);
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Magic numbers 0x184d2a50 to 0x184d2a5f start a zstd frame that decoders skip.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

type Reader = Box<dyn Read + Send>;

/// Bytes of a capture, decompressed.
pub(super) enum Input {
    /// From a reader that may be slow or have a time-out, such as a pipe.
    Stream(Reader),
    /// From a regular file, at any offset.
    File {
        file: File,
        /// Offset of the capture in the file.
        start: u64,
    },
    /// From a decompressor.
    Packed(Reader),
}

/// An open capture file.
pub(super) struct Opened {
    /// Name for error texts.
    pub(super) name: String,
    pub(super) input: Input,
    /// Makes sinks of this process refuse to write to the file.
    pub(super) reading: Option<Reading>,
}

/// Files that were opened before the process gave up its privileges.
static OPEN: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());

/// Opens a file and reads nothing. A later open by the same name gets this file: a regular file any number of times,
/// a pipe once. For a process that gives up the privilege to open it before it reads.
///
/// # Errors
/// If it cannot be opened.
pub fn open_before(path: &Path) -> Result<(), ReadError> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let file = File::open(path).map_err(|error| not_open(&path.display().to_string(), error))?;
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), file));
    Ok(())
}

/// The error for a file that cannot be opened, with what to do.
fn not_open(name: &str, source: io::Error) -> ReadError {
    let advice =
        "this user may not read it; become its owner or root, or ask the owner for `chmod`";
    let source = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(source.kind(), format!("{source}: {advice}"))
        }
        _ => source,
    };
    ReadError::Open { name: name.to_owned(), source }
}

/// The file that was opened before, from its start.
fn opened_before(path: &Path) -> Option<File> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = open.iter().position(|(name, _)| name == path)?;
    let mut again = open[place].1.try_clone().ok()?;
    match again.seek(SeekFrom::Start(0)) {
        Ok(_) => Some(again),
        // A pipe has only one reader.
        Err(_) => Some(open.swap_remove(place).1),
    }
}

/// Opens a file by name; `-` is standard input.
pub(super) fn open(path: &Path, patience: &Patience) -> Result<Opened, ReadError> {
    let standard_input = path.as_os_str() == "-";
    let name = match standard_input {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    };
    let file = if standard_input {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        opened_before(path).map_or_else(|| File::open(path), Ok)
    };
    let opened = file.and_then(|file| {
        let kind = file.metadata()?;
        if kind.is_dir() {
            return Err(io::Error::from(ErrorKind::IsADirectory));
        }
        Ok((file, kind.is_file()))
    });
    let (file, regular) = opened.map_err(|error| not_open(&name, error))?;
    let reading = Reading::of(&file);
    let (start, encoding) = peek(&name, &mut &file)?;
    let read = start.len() as u64;
    let start = Cursor::new(start);
    let input = match encoding {
        // The offset of standard input is shared with other processes, which may continue where this one ends.
        Encoding::Plain if regular && standard_input => Input::Stream(Box::new(start.chain(file))),
        Encoding::Plain if regular => {
            let at = (&file).stream_position();
            let at = at.map_err(|error| not_open(&name, error))?;
            Input::File { file, start: at.saturating_sub(read) }
        }
        Encoding::Plain => Input::Stream(Box::new(start.chain(Patient(file, patience.clone())))),
        packed => unpacker(packed, start.chain(Waiting(file))),
    };
    Ok(Opened { name, input, reading })
}

/// Decompresses the bytes of a reader, if they are compressed.
pub(super) fn unpack(
    name: &str,
    mut reader: impl Read + Send + 'static,
) -> Result<Input, ReadError> {
    let (start, encoding) = peek(name, &mut reader)?;
    let whole = Cursor::new(start).chain(reader);
    Ok(match encoding {
        Encoding::Plain => Input::Stream(Box::new(whole)),
        packed => unpacker(packed, whole),
    })
}

#[derive(Clone, Copy)]
enum Encoding {
    Plain,
    Gzip,
    Zstd,
    Lz4,
}

fn peek(name: &str, reader: &mut impl Read) -> Result<(Vec<u8>, Encoding), ReadError> {
    let mut start = Vec::with_capacity(4);
    while start.len() < 4 {
        let mut bytes = [0; 4];
        match reader.read(&mut bytes[start.len()..]) {
            Ok(0) => break,
            Ok(count) => {
                let from = start.len();
                start.extend_from_slice(&bytes[from..from + count]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(A_MOMENT),
            Err(source) => return Err(ReadError::Open { name: name.to_owned(), source }),
        }
    }
    let encoding = match start[..] {
        [a, b, ..] if [a, b] == GZIP => Encoding::Gzip,
        [a, b, c, d] if [a, b, c, d] == ZSTD => Encoding::Zstd,
        [a, b, c, d] if a & 0xf0 == 0x50 && [b, c, d] == ZSTD_SKIPPABLE => Encoding::Zstd,
        [a, b, c, d] if [a, b, c, d] == lz4::MAGIC => Encoding::Lz4,
        _ => Encoding::Plain,
    };
    Ok((start, encoding))
}

fn unpacker(encoding: Encoding, packed: impl Read + Send + 'static) -> Input {
    match encoding {
        Encoding::Plain => Input::Stream(Box::new(packed)),
        Encoding::Gzip => Input::Packed(Box::new(MultiGzDecoder::new(packed))),
        Encoding::Zstd => Input::Packed(Box::new(Zstd::new(packed))),
        Encoding::Lz4 => Input::Packed(Box::new(lz4::Lz4::new(packed))),
    }
}

/// A pipe, terminal or socket that is read only if it is readable.
struct Patient(File, Patience);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !sys::poll::readable(self.0.as_fd(), self.1.0.load(Ordering::Relaxed))? {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.0.read(buffer)
    }
}

/// A file or pipe with unlimited waits, whatever its mode, because decompressors would lose the bytes that they have
/// read.
struct Waiting(File);

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sys::poll::readable(self.0.as_fd(), IDLE_MS)?;
                }
                read => return read,
            }
        }
    }
}

/// Any number of zstd frames, one after the other.
///
/// Blocks are decompressed one at a time, so that everything before damage, or before the end of a truncated file, is
/// delivered before the error.
struct Zstd<R> {
    packed: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
    failure: Option<io::Error>,
}

impl<R: Read> Zstd<R> {
    fn new(packed: R) -> Self {
        // The decoder checks the window size against its limit (100 MiB) only from the second frame on, so an empty
        // frame comes first.
        const EMPTY_FRAME: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00];
        let mut decoder = FrameDecoder::new();
        let mut empty = &EMPTY_FRAME[..];
        let mut failure = decoder.reset(&mut empty).map_err(io::Error::other).err();
        if failure.is_none() {
            let last = decoder.decode_blocks(&mut empty, BlockDecodingStrategy::All);
            failure = last.map_err(io::Error::other).err();
        }
        Zstd { packed: BufReader::new(packed), decoder, in_frame: false, failure }
    }

    /// Starts the next frame. False at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        if self.packed.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.packed) {
            Ok(()) => self.in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = u64::from(length);
                if io::copy(&mut (&mut self.packed).take(length), &mut io::sink())? < length {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }

    fn decode_block(&mut self) {
        let one = BlockDecodingStrategy::UptoBlocks(1);
        let Err(error) = self.decoder.decode_blocks(&mut self.packed, one) else { return };
        self.failure = Some(io::Error::other(format!("zstd: {error}")));
        // An empty last block makes the decoder return the bytes that it keeps for later references.
        let last = [1, 0, 0, 0, 0, 0, 0];
        let _ = self.decoder.decode_blocks(&last[..], BlockDecodingStrategy::UptoBlocks(1));
    }

    /// Verifies the checksum of a frame, after all of it has been returned.
    fn check(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(ErrorKind::InvalidData, "zstd: the checksum is wrong"));
        }
        Ok(())
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.in_frame && self.decoder.is_finished() {
                self.in_frame = false;
                self.check()?;
            }
            if self.in_frame {
                self.decode_block();
            } else if !self.start_frame()? {
                return Ok(0);
            }
        }
    }
}
