//! Trackers of dynamic ports: they read control connections and say which data connections to capture.
//!
//! Some protocols agree in one connection on the port of another one: FTP in its control connection, SIP and RTSP in
//! their dialogue. A filter that wants the data must follow. A [`Tracker`] is fed with captured frames and turns
//! them into [`Event`]s: a data connection is about to [open](Event::Open), it has [closed](Event::Close). A
//! [`PassKeeper`] turns events into edits of a pass set, the way FTPCap did.
//!
//! ```text
//! frame ─▶ tracker ─▶ events ─▶ keeper ─▶ edits of the pass set ─▶ frames that come next (and the rest of the batch)
//! ```
//!
//! Everything that is kept is bounded ([`Limits`]), every loss of knowledge has a counter. Nothing in a frame is
//! trusted: a server may announce any address, a client may send any bytes.
//!
//! | module | what |
//! |---|---|
//! | [`ftp`] | FTP, passive and active, IPv4 and IPv6 |
//! | [`class`] | the graph class `track`, which does both in one node |
//! | [`keeper`] | which passes hold which connections; what to change for an event |
//!
//! Source: Swift (NSDI 2008), section 5.2 (FTPCap); NPF, section 5.4.
#![forbid(unsafe_code)]

mod ageing;
mod segment;

pub mod class;
pub mod ftp;
pub mod keeper;

pub use class::CLASS;
pub use ftp::Ftp;
pub use keeper::{Applied, KeepError, PassKeeper};

use fyke_frame::Frame;
use std::net::IpAddr;

/// Reads control connections and reports data connections.
pub trait Tracker: Send {
    /// Name for people and for the command line, like `ftp`.
    fn name(&self) -> &'static str;

    /// The filter text to begin with: the control connections and nothing else.
    fn start_filter(&self) -> &str;

    /// Looks at one captured frame and appends what it means. Frames that belong to nothing known are ignored.
    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>);

    /// Gives up what has been silent for too long at `now_ns` (the clock of the frames' timestamps). To be called
    /// from time to time when no frame comes; [`Tracker::frame`] does it by itself.
    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>);
}

/// What a tracker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A data connection has been announced: capture it from now on.
    Open(Connection),
    /// A data connection is over, or will not come.
    Close(Closed),
}

/// Transport protocol of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// How a data connection became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// FTP reply 227 to `PASV`.
    Passive,
    /// FTP reply 229 to `EPSV`.
    ExtendedPassive,
    /// FTP command `PORT`.
    Active,
    /// FTP command `EPRT`.
    ExtendedActive,
}

/// A data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// Number of this connection, never used again by this tracker.
    pub id: u64,
    /// Address of the end that listens (in active FTP that is the FTP client).
    pub server: IpAddr,
    /// Port of the end that listens.
    pub port: u16,
    /// Address of the end that is expected to connect.
    pub client: IpAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// How it became known.
    pub cause: Cause,
    /// Time of the frame that announced it, in nanoseconds since 1970.
    pub announced_ns: u64,
}

/// Why a data connection is no longer followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Both ends sent FIN, and the time to wait for stragglers is over.
    Finished,
    /// One end sent RST.
    Reset,
    /// It was open and silent for too long.
    Idle,
    /// It was announced and never came.
    Unused,
    /// It was announced at two addresses and came at the other one.
    OtherAddress,
    /// It was announced, did not come, and its place was needed for newer ones.
    Evicted,
}

/// A data connection at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Closed {
    /// The connection.
    pub connection: Connection,
    /// Why.
    pub reason: Reason,
    /// Port of the end that connected, when it did.
    pub client_port: Option<u16>,
    /// Frames of the connection that the tracker was shown.
    pub frame_count: u64,
    /// Bytes of them on the wire.
    pub wire_bytes: u64,
    /// Whether the first frame shown was the opening SYN: then nothing before it was missed.
    pub from_syn: bool,
}

/// Bounds of a tracker's memory and patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most control connections; the one that was silent for longest makes room. Each costs up to 6 KiB.
    pub control_connections: usize,
    /// Most data connections, announced and open; the oldest one that did not come makes room. Each costs about
    /// 250 bytes.
    pub data_connections: usize,
    /// How long an announced connection may take to come, in nanoseconds.
    pub announced_ns: u64,
    /// How long an open data connection may be silent, in nanoseconds.
    pub idle_ns: u64,
    /// How long a control connection may be silent, in nanoseconds.
    pub control_idle_ns: u64,
    /// How long a closed connection is still captured, for the last acknowledgements and repetitions, in nanoseconds.
    pub linger_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        Limits {
            control_connections: 16_384,
            data_connections: 65_536,
            announced_ns: 60 * SECOND,
            idle_ns: 300 * SECOND,
            control_idle_ns: 3_600 * SECOND,
            linger_ns: SECOND,
        }
    }
}
