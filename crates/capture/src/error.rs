//! What can go wrong with a source.
//!
//! Every error names the source; errors inside a file also say at which byte. Offsets in compressed files are those of
//! the unpacked data.

use fyke_frame::LinkType;
use std::io;

/// Why a source could not be opened or read on.
///
/// All frames that were whole before the place of the error have been delivered when this comes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file or device could not be opened.
    #[error("{name}: {source}")]
    Open {
        /// File name, or `standard input`.
        name: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// Reading failed, or the compressed data is damaged.
    #[error("{name}: at byte {offset}: {source}")]
    Io {
        /// File name, or `standard input`.
        name: String,
        /// Bytes read before the failure.
        offset: u64,
        /// What the operating system or the decompressor says.
        source: io::Error,
    },
    /// The file breaks the rules of its format.
    #[error("{name}: at byte {offset}: {problem}")]
    Format {
        /// File name, or `standard input`.
        name: String,
        /// Where the offending structure starts.
        offset: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// The process that wrote a ring has ended without closing it, as one that was killed.
    #[error(
        "{name}: its writer has ended without closing the ring; its last frames may be missing"
    )]
    WriterGone {
        /// The ring, as it was named.
        name: String,
    },
    /// A live capture could not start or continue.
    #[error("{0}")]
    Live(#[from] LiveError),
}

/// What is wrong with a capture file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file ends inside a structure.
    #[error("the file is cut short: {what} needs {expected} bytes, {given} are left")]
    Truncated {
        /// Which structure.
        what: &'static str,
        /// Bytes that it needs.
        expected: u64,
        /// Bytes that are there.
        given: u64,
    },
    /// The first bytes are those of no format we know.
    #[error("neither pcap nor pcapng (the file starts with {0:02x?})")]
    UnknownFormat(Vec<u8>),
    /// A pcap or pcapng version that nobody can read.
    #[error("version {major}.{minor} of {format} is not supported")]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// As in the file.
        major: u16,
        /// As in the file.
        minor: u16,
    },
    /// A link type beyond the 16 bits that link types have.
    #[error("link type {0} does not exist")]
    LinkType(u32),
    /// A record is longer than any frame can be.
    #[error("captured length {given} is more than {limit}")]
    CapturedLength {
        /// As in the file.
        given: u32,
        /// Largest that is accepted.
        limit: u32,
    },
    /// The length of a pcapng block cannot be.
    #[error("block length {given} is not a multiple of 4 from {least} to {limit}")]
    BlockLength {
        /// As in the file.
        given: u32,
        /// Least length of such a block.
        least: u32,
        /// Largest that is accepted.
        limit: u32,
    },
    /// A pcapng block ends with another length than it starts with.
    #[error("the block starts with length {head} and ends with length {tail}")]
    BlockTrailer {
        /// Length at the start.
        head: u32,
        /// Length at the end.
        tail: u32,
    },
    /// The content of a pcapng block does not fit in it.
    #[error("block of type {kind:#x} is too short for its {what}")]
    BlockContent {
        /// Type of the block.
        kind: u32,
        /// What does not fit.
        what: &'static str,
    },
    /// A section starts with a wrong byte-order magic.
    #[error("byte-order magic {0:#010x} instead of 0x1a2b3c4d in either order")]
    ByteOrder(u32),
    /// An option of an interface block has a wrong length.
    #[error("interface option {code} has length {given} instead of {expected}")]
    OptionLength {
        /// Option code.
        code: u16,
        /// As in the file.
        given: u16,
        /// What the format says.
        expected: u16,
    },
    /// An option that may appear once appears twice.
    #[error("interface option {0} appears twice")]
    OptionTwice(u16),
    /// A timestamp resolution finer than 64 bits can count.
    #[error("timestamp resolution {0:#04x} is too fine")]
    Resolution(u8),
    /// A packet names an interface that was not described before it.
    #[error("packet on interface {given}, but the section has described {described}")]
    UnknownInterface {
        /// As in the file.
        given: u32,
        /// Number of interfaces of the section so far.
        described: u32,
    },
    /// More interfaces than we keep.
    #[error("more than {0} interfaces")]
    TooManyInterfaces(usize),
}

/// Causes that prevent a live capture from starting or continuing.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The system refuses packet sockets to this user.
    #[error(
        "{interface}: no permission to capture: the capability CAP_NET_RAW is missing. Run as \
         root, or give it to the program, which gives it up again once it captures: \
         `sudo setcap cap_net_raw+ep {}`; or try it in a network of your own with \
         `unshare -Urn`",
        program()
    )]
    Permission {
        /// Interface name.
        interface: String,
    },
    /// The process has given up the right to capture.
    #[error(
        "{interface}: this fyke has given up the right to open interfaces; name them when it \
         starts"
    )]
    GivenUp {
        /// Interface name.
        interface: String,
    },
    /// No such interface.
    #[error("{interface}: no such interface (there are: {})", available.join(", "))]
    NoSuchInterface {
        /// Interface name.
        interface: String,
        /// The interfaces that exist.
        available: Vec<String>,
    },
    /// The interface is there but down.
    #[error("{interface}: the interface is down (`ip link set {interface} up` starts it)")]
    Down {
        /// Interface name.
        interface: String,
    },
    /// The interface of one of several rings was there and went away: they cannot be bound again.
    #[error("{interface}: the interface has disappeared")]
    Disappeared {
        /// Interface name.
        interface: String,
    },
    /// The interface came back as another kind of interface.
    #[error("{interface}: the interface came back with link type {given} instead of {expected}")]
    Changed {
        /// Interface name.
        interface: String,
        /// Its link type now.
        given: LinkType,
        /// Its link type before.
        expected: LinkType,
    },
    /// An option that cannot work.
    #[error("{what} {given} is not {expected}")]
    Options {
        /// Which option.
        what: &'static str,
        /// As given.
        given: u64,
        /// What works.
        expected: &'static str,
    },
    /// The kernel wrote something into the ring that does not add up: our bug or a kernel bug.
    #[error("{interface}: ring block {block} is damaged at byte {offset}")]
    Damaged {
        /// Interface name.
        interface: String,
        /// Number of the block.
        block: u32,
        /// Offset in it.
        offset: u32,
    },
    /// A system call failed.
    #[error("{interface}: {call}: {source}")]
    Call {
        /// Interface name.
        interface: String,
        /// Which call.
        call: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

/// The file of this program, as a shell takes it.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "fyke".into()).display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

impl LiveError {
    /// Why a packet socket could not be opened.
    pub(crate) fn from_socket(source: io::Error, interface: &str) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LiveError::Permission { interface },
            _ => LiveError::Call { interface, call: "socket", source },
        }
    }
}
