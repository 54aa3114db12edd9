//! Text files from which nodes are made: rows, rules, programs.
//!
//! A node is made in a client's thread while other edits wait. So nothing here blocks and nothing grows without
//! bound: only regular files are read, up to a limit in bytes.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Longest file of rows or rules.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 20;

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read(path: impl AsRef<Path>, limit: usize) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path.as_ref())?.take(limit as u64 + 1).read_to_string(&mut text)?;
    match text.len() > limit {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))),
        // Some editors begin a file with a byte order mark.
        false => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
    }
}

/// Opens a regular file. Other kinds are refused: a FIFO blocks until it has a writer, and a device may never end.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// True if the file is a FIFO without a reader, which cannot be opened for writing yet.
pub(crate) fn has_no_reader(path: &Path) -> bool {
    let is_fifo = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = || OpenOptions::new().write(true).custom_flags(flags).open(path);
    is_fifo && opened().is_err_and(|error| error.raw_os_error() == Some(Errno::NXIO.raw_os_error()))
}
