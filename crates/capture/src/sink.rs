//! Sinks of frames: the trait, its options and errors.
//!
//! A sink takes frames one by one, copies the bytes that it needs and counts the frames that it wrote. File sinks
//! write pcapng unless the name ends in `.pcap` or `.cap`; libpcap reads both formats. They compress if the name has
//! one more ending, `.gz`, `.zst` or `.lz4`. `-` is standard output, and `tcp:ADDRESS:PORT` any number of clients. A
//! regular file has one sink at a time (flock(2)); pipes, terminals and devices may be shared.

mod channel;
mod continued;
mod file;
mod interface;
mod listener;
mod output;
mod packed;
mod pcap;
mod pcapng;
mod rotate;
#[cfg(test)]
mod tests;
mod writer;

pub use continued::{FileIdentity, frames_before};
pub use interface::{InterfaceLosses, InterfaceSink};
pub use listener::{Clients, address as client_address};
pub use output::Output;
pub use packed::Compression;
pub use rotate::Rotation;

use crate::source::{DEFAULT_SNAPLEN, Interface};
use fyke_frame::{Frame, LinkType};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Destination of frames.
pub trait Sink: Send {
    /// Takes one frame of `interface`.
    ///
    /// # Errors
    /// If it cannot be written; the sink should then be dropped.
    fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError>;

    /// Takes frames of one interface, and looks the interface up once instead of once for each frame.
    ///
    /// # Errors
    /// As [`Sink::write`]; the frames after the failure are not taken.
    fn write_run(
        &mut self,
        interface: &Interface,
        frames: &mut dyn Iterator<Item = &Frame<'_>>,
    ) -> Result<(), WriteError> {
        for frame in frames {
            self.write(interface, frame)?;
        }
        Ok(())
    }

    /// Writes all frames taken so far to the operating system.
    ///
    /// # Errors
    /// If that fails.
    fn flush(&mut self) -> Result<(), WriteError>;

    /// Tells that no frame follows at once: a reader of a pipe gets what was taken. Frames for a file may wait.
    ///
    /// # Errors
    /// If writing fails.
    fn end_batch(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Records the account so far of an interface, for formats that can store it: the last one before the end of a
    /// file is written there. The sink itself counts the frames that it has written.
    fn account(&mut self, _interface: &Interface, _account: &Account) {}

    /// Writes frames of one interface. If a file ends before a frame, `now` gives the
    /// [account](Self::account) up to this frame.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn write_accounted(
        &mut self,
        interface: &Interface,
        frames: &mut dyn Iterator<Item = &Frame<'_>>,
        _now: &mut dyn FnMut() -> Option<Account>,
    ) -> Result<(), WriteError> {
        self.write_run(interface, frames)
    }

    /// Adds a comment to the next frame, or to the end of the last file if no frame follows; formats without comments
    /// drop it. Longer comments are cut to 1,024 bytes.
    fn comment(&mut self, _text: String) {}

    /// Writes the bytes beyond the buffer's limit, or all bytes after [`end`](Self::end), and waits at most
    /// `patience`; for sinks that do not wait ([`WriteOptions::waits`]). True if there is space for another batch.
    ///
    /// # Errors
    /// If that fails.
    fn make_room(&mut self, _patience: Duration) -> Result<bool, WriteError> {
        Ok(true)
    }

    /// Gives up bytes that the receiver does not accept: they are lost, and so is every later frame.
    fn give_up(&mut self) {}

    /// Adds the end of the file; nothing is written after it.
    ///
    /// # Errors
    /// If that fails.
    fn end(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Counts of frames so far; frames that still wait count as written.
    fn stats(&self) -> SinkStats;

    /// Ends the sink.
    ///
    /// # Errors
    /// If the last bytes cannot be written.
    fn finish(self: Box<Self>) -> Result<SinkStats, WriteError>;
}

/// Total counts of the frames of one interface so far; `None` = not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames that arrived.
    pub received: Option<u64>,
    /// Received frames that the interface dropped.
    pub interface_dropped: Option<u64>,
    /// Received frames that were dropped because they were not read in time.
    pub dropped: Option<u64>,
    /// Frames that the filter accepted.
    pub accepted: Option<u64>,
    /// Frames that were written.
    pub delivered: Option<u64>,
}

/// Counts of a sink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Frames.
    pub frames: u64,
    /// Bytes before compression, file headers included.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Frames that the receiver refused (an interface: too long for it).
    pub refused: u64,
    /// Frames that were taken and could not be written.
    pub lost: u64,
    /// Names of a rotation that were skipped, because another user has a file there.
    pub passed_over: u64,
    /// Clients, if the sink has them. What they lose is not lost by the sink.
    pub clients: Option<Clients>,
}

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// One link type, no interface names.
    Pcap,
    /// Any number of interfaces, directions, accounting.
    Pcapng,
}

impl Rotation {
    /// True if there may be more than one file.
    pub fn rotates(&self) -> bool {
        self.size_millions.or(self.seconds).is_some()
    }

    /// The folder of all later files; `None` if its name depends on the time.
    pub fn folder<'p>(&self, pattern: &'p Path) -> Option<&'p Path> {
        rotate::folder_of(pattern, self)
    }
}

impl Format {
    /// Selects the format by the extension of a file name, without that of its [`Compression`].
    pub fn of(path: &Path) -> Format {
        let packed = Compression::of(path) != Compression::None;
        let path = Path::new(path.file_stem().filter(|_| packed).unwrap_or(path.as_os_str()));
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "pcap" | "cap" => Format::Pcap,
            _ => Format::Pcapng,
        }
    }
}

/// Options for writing capture files.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Format; `None` = by the extension of the name.
    pub format: Option<Format>,
    /// Most bytes of a frame that are written; the rest is cut.
    pub snaplen: u32,
    /// For pcap: true if timestamps have nanoseconds (pcapng always has). `None` = if one of the interfaces has them.
    pub nanoseconds: Option<bool>,
    /// True if every frame is written to the operating system at once, for the reader of a pipe.
    pub flush_each: bool,
    /// True if [`Sink::write`] waits for a pipe that is full. If false, frames are kept until [`Sink::make_room`].
    pub waits: bool,
    /// Interfaces of the frames. The first is written before any frame, so that a file without frames is complete and a
    /// reader of a pipe can start; the others are written with their first frame.
    pub interfaces: Vec<Interface>,
    /// Sizes and times at which another file starts. Sizes are those before compression.
    pub rotation: Rotation,
    /// Called with the name of each file of a rotation that is complete, except the last one.
    pub completed: Option<fn(&Path)>,
    /// Compression; `None` = by the extension of the name.
    pub compression: Option<Compression>,
    /// A file of a killed capture to write on after its last complete record, instead of a new one.
    pub continues: Option<FileIdentity>,
    /// Permission bits of new files, less those of the umask; an existing file keeps its own.
    pub mode: u32,
}

/// Permission bits of a file that only its owner reads and writes, because the content of frames is private.
pub const PRIVATE: u32 = 0o600;

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            format: None,
            snaplen: DEFAULT_SNAPLEN,
            nanoseconds: None,
            flush_each: false,
            waits: true,
            interfaces: Vec::new(),
            rotation: Rotation::default(),
            completed: None,
            compression: None,
            continues: None,
            mode: PRIVATE,
        }
    }
}

/// Creates a capture file, or the first of several; `-` is standard output.
///
/// # Errors
/// If the file cannot be created, if standard output is a terminal, or if options contradict each other.
pub fn create_file(path: &Path, options: WriteOptions) -> Result<Box<dyn Sink>, WriteError> {
    Ok(Box::new(file::FileSink::create(path, options)?))
}

/// Writes a capture file to a file that is open and empty, such as one that another process has opened. `name` is its
/// name for errors, and selects the format unless the options do.
///
/// # Errors
/// If options contradict each other, or ask for rotation.
pub fn write_to(
    file: std::fs::File,
    name: &Path,
    options: WriteOptions,
) -> Result<Box<dyn Sink>, WriteError> {
    Ok(Box::new(file::FileSink::to_file(file, name, options)?))
}

/// Creates a file for records that are not frames, or empties it; `-` is standard output. A new file has the permission
/// bits of `mode`, and belongs to the user that the process will change to.
///
/// # Errors
/// If the file cannot be created.
pub fn create_output(path: &Path, mode: u32) -> Result<Output, WriteError> {
    file::create_output(path, mode)
}

/// Reason why a sink could not be created or written to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be created.
    #[error("{name}: {source}")]
    Create {
        /// File name, or `standard output`.
        name: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another sink, of this or another process, writes to the file.
    #[error("{name}: already being written by another capture or node")]
    Busy {
        /// File name.
        name: String,
    },
    /// A source of this process reads the file.
    #[error("{name}: this file is being read; write to another one")]
    Input {
        /// File name.
        name: String,
    },
    /// Writing failed.
    #[error("{name}: {source}")]
    Write {
        /// File name, or `standard output`.
        name: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Standard output is a terminal.
    #[error("standard output is a terminal: name a file, or use a pipe")]
    Terminal,
    /// The file can contain only one link type, and this frame has another.
    #[error(
        "{name}: a pcap file holds one link type: this one {holds}, not {given} \
         (write to a .pcapng file)"
    )]
    LinkType {
        /// File name.
        name: String,
        /// Link type of the file.
        holds: LinkType,
        /// Link type of the frame.
        given: LinkType,
    },
    /// The last file of a rotation is full. Not a failure: all files are written.
    #[error("all {0} files are written")]
    FileLimit(u32),
    /// Options that cannot work together.
    #[error("{0}")]
    Options(&'static str),
    /// The interface to send on cannot be used.
    #[error("{0}")]
    Interface(#[from] crate::error::LiveError),
}

impl WriteError {
    /// True if the reader of the pipe is gone, which is a normal end.
    pub fn is_closed_pipe(&self) -> bool {
        let broken = |source: &io::Error| source.kind() == io::ErrorKind::BrokenPipe;
        matches!(self, WriteError::Write { source, .. } if broken(source))
    }

    /// True if the file is an input, so that the user has to name another one.
    pub fn is_input(&self) -> bool {
        matches!(self, WriteError::Input { .. })
    }

    /// True if another file has the name, so that a different name may work.
    pub fn is_taken(&self) -> bool {
        use io::ErrorKind::{InvalidInput, IsADirectory, PermissionDenied};
        match self {
            WriteError::Create { source, .. } => {
                [InvalidInput, IsADirectory, PermissionDenied].contains(&source.kind())
            }
            WriteError::Busy { .. } => true,
            _ => false,
        }
    }

    /// True if all requested files are written, which is a normal end.
    pub fn is_file_limit(&self) -> bool {
        matches!(self, WriteError::FileLimit(_))
    }
}
