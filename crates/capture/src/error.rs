//! Errors of sources.
//!
//! Every error names the source; errors within a file also have the byte offset. Offsets in compressed files are
//! those of the decompressed data.

use fyke_frame::LinkType;
use std::io;

/// Reason why a source could not be opened or read further.
///
/// All complete frames before the position of the error have been delivered before it is reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file or device could not be opened.
    #[error("{name}: {source}")]
    Open {
        /// File name, or `standard input`.
        name: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Reading failed, or the compressed data is damaged.
    #[error("{name}: at byte {offset}: {source}")]
    Io {
        /// File name, or `standard input`.
        name: String,
        /// Bytes read before the failure.
        offset: u64,
        /// Error of the operating system or the decompressor.
        source: io::Error,
    },
    /// The file breaks the rules of its format.
    #[error("{name}: at byte {offset}: {problem}")]
    Format {
        /// File name, or `standard input`.
        name: String,
        /// Offset of the start of the invalid structure.
        offset: u64,
        /// Problem.
        problem: Problem,
    },
    /// The process that wrote a ring has ended without closing it; for example, it was killed.
    #[error(
        "{name}: its writer has ended without closing the ring; its last frames may be missing"
    )]
    WriterGone {
        /// Name of the ring, as given.
        name: String,
    },
    /// The process that stores the frames does not take a request.
    #[error("{name}: {source}")]
    Server {
        /// Name of the source.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// The number of files that are read as one capture is wrong.
    #[error("{given} files cannot be read as one capture: from 1 to {limit} can")]
    FileCount {
        /// Number of files.
        given: usize,
        /// Most files.
        limit: usize,
    },
    /// Several of the files that are read as one capture are damaged.
    #[error("{first}; and {}", others.join("; and "))]
    Several {
        /// The first damage.
        first: Box<ReadError>,
        /// Descriptions of the others.
        others: Vec<String>,
    },
    /// A live capture could not start or continue.
    #[error("{0}")]
    Live(#[from] LiveError),
}

/// Problem of a capture file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends inside a structure.
    #[error("the file is cut short: {what} needs {expected} bytes, {given} are left")]
    Truncated {
        /// Name of the structure.
        what: &'static str,
        /// Bytes that it needs.
        expected: u64,
        /// Bytes that are left.
        given: u64,
    },
    /// The first bytes are those of no known format.
    #[error("neither pcap nor pcapng (the file starts with {0:02x?})")]
    UnknownFormat(Vec<u8>),
    /// The version of the format is not supported.
    #[error("version {major}.{minor} of {format} is not supported")]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Value in the file.
        major: u16,
        /// Value in the file.
        minor: u16,
    },
    /// The link type is larger than 16 bits.
    #[error("link type {0} does not exist")]
    LinkType(u32),
    /// A record is longer than any frame.
    #[error("captured length {given} is more than {limit}")]
    CapturedLength {
        /// Value in the file.
        given: u32,
        /// Largest accepted value.
        limit: u32,
    },
    /// The length of a pcapng block is invalid.
    #[error("block length {given} is not a multiple of 4 from {least} to {limit}")]
    BlockLength {
        /// Value in the file.
        given: u32,
        /// Least length of such a block.
        least: u32,
        /// Largest accepted value.
        limit: u32,
    },
    /// The length at the end of a pcapng block differs from that at its start.
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
        /// Part that does not fit.
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
        /// Value in the file.
        given: u16,
        /// Length that the format prescribes.
        expected: u16,
    },
    /// An option that may appear only once appears twice.
    #[error("interface option {0} appears twice")]
    OptionTwice(u16),
    /// The timestamp resolution is too fine to count in 64 bits.
    #[error("timestamp resolution {0:#04x} is too fine")]
    Resolution(u8),
    /// A packet names an interface that was not described before it.
    #[error("packet on interface {given}, but the section describes only {described}")]
    UnknownInterface {
        /// Value in the file.
        given: u32,
        /// Number of interfaces of the section so far.
        described: u32,
    },
    /// The file has more interfaces than the limit.
    #[error("more than {0} interfaces")]
    TooManyInterfaces(usize),
}

/// Causes that prevent a live capture from starting or continuing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The process has given up the privilege to capture.
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
    /// The interface exists but is down.
    #[error("{interface}: the interface is down (`ip link set {interface} up` starts it)")]
    Down {
        /// Interface name.
        interface: String,
    },
    /// The interface disappeared during a capture at the driver, which cannot go to a new one.
    #[error(
        "{interface}: the interface has disappeared; at the driver, fyke cannot continue on a new one of this name: \
         start the capture again"
    )]
    DriverGone {
        /// Interface name.
        interface: String,
    },
    /// AF_XDP reads Ethernet interfaces only.
    #[error("{interface}: AF_XDP captures on one Ethernet interface, not on link type {link}")]
    NotEthernet {
        /// Interface name.
        interface: String,
        /// Its link type.
        link: LinkType,
    },
    /// The interface has no such queue.
    #[error("{interface} has no queue {queue}: it has {count}, from 0 on")]
    NoQueue {
        /// Interface name.
        interface: String,
        /// Requested queue.
        queue: u32,
        /// Number of queues.
        count: u32,
    },
    /// Another AF_XDP socket receives the frames of a queue.
    #[error("{interface}: queue {queue} belongs to an AF_XDP socket of another program")]
    QueueTaken {
        /// Interface name.
        interface: String,
        /// The queue.
        queue: u32,
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
    /// The interface does not offer this link type.
    #[error("{interface} does not offer link type {given}; it offers {}", in_words(offered))]
    NotOffered {
        /// Interface name.
        interface: String,
        /// Requested link type.
        given: LinkType,
        /// Link types that it offers.
        offered: Vec<LinkType>,
    },
    /// An option has an invalid value.
    #[error("{what} {given} is not {expected}")]
    Options {
        /// Name of the option.
        what: &'static str,
        /// Given value.
        given: u64,
        /// Valid values.
        expected: &'static str,
    },
    /// The kernel wrote inconsistent data into the ring: an error in fyke or in the kernel.
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
        /// Name of the call.
        call: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Path of this program, quoted for a shell.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "fyke".into()).display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

impl LiveError {
    /// Creates the error for a packet socket that could not be opened.
    pub(crate) fn from_socket(source: io::Error, interface: &str) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LiveError::Permission { interface },
            _ => LiveError::Call { interface, call: "socket", source },
        }
    }
}

fn in_words(links: &[LinkType]) -> String {
    links.iter().map(LinkType::to_string).collect::<Vec<_>>().join(", ")
}
