//! What a sink of frames is, and how files are made.
//!
//! A sink takes frames one by one, copies what it needs and counts what it wrote. File sinks write pcapng unless the
//! name ends in `.pcap` or `.cap`; both formats are read back by libpcap. `-` is standard output. A regular file has
//! one sink at a time (flock(2)); pipes, terminals and devices may be shared.

mod channel;
mod file;
mod interface;
mod output;
mod pcap;
mod pcapng;
mod rotate;
#[cfg(test)]
mod tests;

pub use interface::InterfaceSink;
pub use output::Output;
pub use rotate::Rotation;

use crate::source::{DEFAULT_SNAPLEN, Interface};
use fyke_frame::{Frame, LinkType};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Where frames go.
pub trait Sink: Send {
    /// Takes one frame that came from `interface`.
    ///
    /// # Errors
    /// When it cannot be written; the sink should then be dropped.
    fn write(&mut self, interface: &Interface, frame: &Frame<'_>) -> Result<(), WriteError>;

    /// Takes frames that all came from `interface`: looks it up once instead of once for each frame.
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

    /// Hands everything taken so far to the operating system.
    ///
    /// # Errors
    /// When that fails.
    fn flush(&mut self) -> Result<(), WriteError>;

    /// Notes what has happened so far to the frames of an interface, for formats that can store it: the last word
    /// before the end of a file is written there. How many frames the sink has written it knows best itself.
    fn account(&mut self, _interface: &Interface, _account: &Account) {}

    /// For sinks that do not wait ([`WriteOptions::waits`]): hands on what exceeds their buffer, or all of it after
    /// [`end`](Self::end), and waits at most `patience`. True when there is room for another batch.
    ///
    /// # Errors
    /// When that fails.
    fn make_room(&mut self, _patience: Duration) -> Result<bool, WriteError> {
        Ok(true)
    }

    /// Gives up what the other end does not take: it is lost, as is every frame from now on.
    fn give_up(&mut self) {}

    /// Takes what stands at the end; nothing comes after it.
    ///
    /// # Errors
    /// When that fails.
    fn end(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// What has become of the frames so far; those that wait count as written.
    fn stats(&self) -> SinkStats;

    /// Ends the sink.
    ///
    /// # Errors
    /// When the last bytes cannot be written.
    fn finish(self: Box<Self>) -> Result<SinkStats, WriteError>;
}

/// What happened to the frames of one interface, all told; `None` = not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames that arrived.
    pub received: Option<u64>,
    /// Of these, lost by the interface.
    pub interface_dropped: Option<u64>,
    /// Of these, lost because nobody took them in time.
    pub dropped: Option<u64>,
    /// Frames that the filter accepted.
    pub accepted: Option<u64>,
    /// Frames that were written.
    pub delivered: Option<u64>,
}

/// What a sink has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Frames.
    pub frames: u64,
    /// Bytes, file headers included.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Frames that the other end refused (an interface: too long for it).
    pub refused: u64,
    /// Frames that were taken and could not be written.
    pub lost: u64,
    /// Names of a rotation that were passed over, because something of another user is there.
    pub passed_over: u64,
}

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One link type, no interface names.
    Pcap,
    /// Any number of interfaces, directions, accounting.
    Pcapng,
}

impl Rotation {
    /// Whether there may be more than one file.
    pub fn rotates(&self) -> bool {
        self.size_millions.or(self.seconds).is_some()
    }

    /// The folder in which files are made from now on; `None` when its name changes with the time.
    pub fn folder<'p>(&self, pattern: &'p Path) -> Option<&'p Path> {
        rotate::folder_of(pattern, self)
    }
}

impl Format {
    /// The format that a file name asks for.
    pub fn of(path: &Path) -> Format {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "pcap" | "cap" => Format::Pcap,
            _ => Format::Pcapng,
        }
    }
}

/// How to write capture files.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Format; `None` = by the name's ending.
    pub format: Option<Format>,
    /// Most bytes of a frame that are written; the rest is cut.
    pub snaplen: u32,
    /// pcap only: whether timestamps have nanoseconds (pcapng always has). `None` = when one of the
    /// interfaces has them.
    pub nanoseconds: Option<bool>,
    /// Whether every frame is handed to the operating system at once, for a reader at the other end of a pipe.
    pub flush_each: bool,
    /// Whether [`Sink::write`] waits for a pipe that is full. Without it frames are kept until [`Sink::make_room`].
    pub waits: bool,
    /// Interfaces that frames will come from. The first is written before any frame comes, so that a file without
    /// frames is a whole one and a reader of a pipe can start; the others when their first frame comes.
    pub interfaces: Vec<Interface>,
    /// When to start another file.
    pub rotation: Rotation,
    /// Permission bits of new files, less those of the umask; a file that is there keeps its own.
    pub mode: u32,
}

/// Permission bits of a file that only its owner reads and writes: what frames say is not for everybody.
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
            mode: PRIVATE,
        }
    }
}

/// Creates a capture file, or the first of several; `-` is standard output.
///
/// # Errors
/// When the file cannot be created, when standard output is a terminal, or when options contradict each other.
pub fn create_file(path: &Path, options: WriteOptions) -> Result<Box<dyn Sink>, WriteError> {
    Ok(Box::new(file::FileSink::create(path, options)?))
}

/// Why a sink could not be made or written to.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file could not be created.
    #[error("{name}: {source}")]
    Create {
        /// File name, or `standard output`.
        name: String,
        /// What the operating system says.
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
        /// What the operating system says.
        source: io::Error,
    },
    /// Standard output is a terminal.
    #[error("standard output is a terminal: name a file, or pipe it into something")]
    Terminal,
    /// The file can hold one link type, and this frame has another.
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
    /// The last file of a rotation is full. Not a failure: the work is done.
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
    /// Whether the reader of our pipe has gone: time to stop, quietly.
    pub fn is_closed_pipe(&self) -> bool {
        let broken = |source: &io::Error| source.kind() == io::ErrorKind::BrokenPipe;
        matches!(self, WriteError::Write { source, .. } if broken(source))
    }

    /// Whether whoever named the file has to name another one.
    pub fn is_input(&self) -> bool {
        matches!(self, WriteError::Input { .. })
    }

    /// Whether something else is at the name of a file: another name may do.
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

    /// Whether all is well and everything that was asked for is written.
    pub fn is_file_limit(&self) -> bool {
        matches!(self, WriteError::FileLimit(_))
    }
}
