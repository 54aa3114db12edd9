//! Trackers of dynamic ports: they read control connections and report the data connections to
//! capture.
//!
//! Some protocols negotiate in one connection the port of another one: FTP in its control
//! connection, SIP and RTSP in their dialogue. A filter for the data must be edited accordingly. A
//! [`Tracker`] receives captured frames and turns them into [`Event`]s: a data connection is about
//! to [open](Event::Open), it has [closed](Event::Close). A [`PassKeeper`] turns events into edits
//! of a pass set, as FTPCap did.
//!
//! ```text
//! frame ─▶ tracker ─▶ events ─▶ keeper ─▶ edits of the pass set ─▶ frames that come next (and the rest of the batch)
//! ```
//!
//! All memory is bounded ([`Limits`]), and every discarded fact is counted. Nothing in a frame is
//! trusted: a server may announce any address, a client may send any bytes.
//!
//! | module | what |
//! |---|---|
//! | [`registry`] | the protocols that can be tracked |
//! | [`expectations`] | the one table of what is expected, with its ageing |
//! | [`ftp`] | FTP, passive and active, IPv4 and IPv6 |
//! | [`sip`] | SIP with the media of its calls |
//! | [`rtsp`] | RTSP with the media of its sessions |
//! | [`tftp`] | TFTP with its transfers |
//! | [`mgcp`] | MGCP with the media of its calls |
//! | [`h323`] | H.323 with H.245 and the media of its calls |
//! | [`p2p`] | peers of BitTorrent, eDonkey and Gnutella |
//! | [`pptp`] | PPTP with its tunnels |
//! | [`irc`] | IRC with its direct connections |
//! | [`skinny`] | Skinny phones with the media of their calls |
//! | [`dcerpc`] | DCE-RPC endpoint mappers with the services that they name |
//! | [`several`] | several trackers as one |
//! | [`class`] | the graph class `track`, which does both in one node |
//! | [`calls`] | the graph class `calls`: a file and a summary for each call |
//! | [`keeper`] | assignment of connections to passes; the change for an event |
//!
//! Source: Swift (NSDI 2008), section 5.2 (FTPCap); NPF, section 5.4.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_track as track; }
//! use fyke::track::{Ftp, Tracker, registry};
//!
//! let tracker = Ftp::default();
//! assert_eq!((tracker.name(), tracker.start_filter()), ("ftp", "tcp port ftp"));
//! assert!(registry::names().any(|name| name == "ftp"));
//! ```
#![forbid(unsafe_code)]

mod base;
mod kind;
mod messages;
mod records;
mod rtp;
mod sdp;
mod segment;
mod whole;

pub mod calls;
pub mod class;
pub mod dcerpc;
pub mod expectations;
pub mod ftp;
pub mod h323;
pub mod irc;
pub mod keeper;
pub mod mgcp;
pub mod p2p;
pub mod pptp;
pub mod registry;
pub mod rtsp;
pub mod several;
pub mod sip;
pub mod skinny;
pub mod tftp;

pub use calls::CALLS;
pub use class::CLASS;
pub use dcerpc::DceRpc;
pub use expectations::{Expectations, Expected};
pub use ftp::Ftp;
pub use h323::H323;
pub use irc::Irc;
pub use keeper::{Applied, KeepError, PassKeeper};
pub use kind::TrackerKind;
pub use mgcp::Mgcp;
pub use p2p::P2p;
pub use pptp::Pptp;
pub use registry::TRACKERS;
pub use rtsp::Rtsp;
pub use several::Several;
pub use sip::Sip;
pub use skinny::Skinny;
pub use tftp::Tftp;

use fyke_frame::Frame;
use std::net::IpAddr;

/// Reads control connections and reports data connections.
pub trait Tracker: Send {
    /// Name for users and for the command line, like `ftp`.
    fn name(&self) -> &str;

    /// The initial filter text: the control connections and nothing else.
    fn start_filter(&self) -> &str;

    /// Filter text of all frames that may belong to a connection before it is announced, or to the control connections.
    /// A filter in the kernel keeps them, so that look-back finds those that arrive before the announcement has been
    /// read. `None` = not known: the kernel then keeps every frame.
    fn held(&self) -> Option<&str> {
        None
    }

    /// Reads one captured frame and appends its events. Frames of unknown connections are ignored.
    fn frame(&mut self, frame: &Frame, events: &mut Vec<Event>);

    /// Loads what [`Tracker::frame`] will read of these frames, which come next. Changes nothing.
    fn load(&self, _frames: &mut dyn Iterator<Item = &Frame<'_>>) {}

    /// Closes connections that have been silent too long at `now_ns` (the clock of the frames'
    /// timestamps). Call it from time to time if no frame arrives; [`Tracker::frame`] does it by
    /// itself.
    fn expire(&mut self, now_ns: u64, events: &mut Vec<Event>);

    /// The call that the last frame belongs to; `None`: to no call.
    fn call(&self) -> Option<CallFrame> {
        None
    }

    /// Returns the protocol of a call, for people, and the call's number in it.
    fn name_of(&self, call: u64) -> (&str, u64) {
        (self.name(), call)
    }

    /// Returns the expectations, with those that have arrived.
    fn expected(&self) -> Vec<Expected> {
        Vec::new()
    }

    /// Returns the numbers of what was not followed, by the names of [`NOTICES`].
    fn notices(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Filter text of fragments without ports: later fragments, and all of IPv6. With this text besides that of the
/// tracker, the graph class `track` gets whole packets; its parameter `fragments` rejects those of other packets. The
/// version is tested because Linux damages frames with two tags on `any`.
pub const FRAGMENTS: &str = "(ip[0] & 0xf0 = 0x40 and ip[6:2] & 0x1fff != 0) or ip6 proto 44";

/// Names of [`Tracker::notices`], with a text for people that follows the number.
pub const NOTICES: &[(&str, &str)] = &[
    ("calls_evicted", "calls were given up for newer ones, because too many were open"),
    ("evicted", "announced ends were given up for newer ones, because too many were open"),
    ("refused_ends", "announced ends were refused: a port below 1024, loopback or broadcast"),
    ("over_limit", "announced ends were omitted: too many in one message"),
    ("unreadable", "announcements could not be read"),
    ("not_read", "announcements are of a kind that is not read"),
    ("encrypted", "control connections became encrypted: what they announce is not known"),
    ("other_address", "announced ends are not at the address of their sender"),
];

/// The part of a frame in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFrame {
    /// Number of the call, as in [`Connection::call`].
    pub call: u64,
    /// Label of the end at which it arrived; `None`: it is signalling.
    pub label: Option<&'static str>,
}

impl CallFrame {
    /// Signalling of a call.
    pub fn signalling(call: u64) -> CallFrame {
        CallFrame { call, label: None }
    }
}

/// Event that a tracker reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A data connection has been announced: capture it from now on.
    Open(Connection),
    /// A data connection has ended, or will not arrive.
    Close(Closed),
}

/// Protocol of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// GRE, between two hosts; ports are 0.
    Gre,
}

impl Protocol {
    /// The word of the filter language.
    pub const fn word(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Gre => "gre",
        }
    }
}

/// Message that announced a data connection. Each protocol names its own, like
/// [`ftp::PASSIVE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cause(&'static str);

impl Cause {
    /// A message of that name.
    pub const fn new(name: &'static str) -> Cause {
        Cause(name)
    }

    /// Name of the message, like `FTP reply 227`.
    pub const fn name(self) -> &'static str {
        self.0
    }
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
    /// True if only frames between these two hosts belong to it; else the other end may be any host.
    pub pair: bool,
    /// Number of the call that announced it (FTP: of the control connection), from 1.
    pub call: u64,
    /// Its content, like `RTP audio`.
    pub label: &'static str,
    /// The message that announced it.
    pub cause: Cause,
    /// Time of the frame that announced it, in nanoseconds since 1970.
    pub announced_ns: u64,
}

impl Connection {
    /// The only host that may be the other end, if there is one.
    pub fn only_host(&self) -> Option<IpAddr> {
        self.pair.then_some(self.client)
    }
}

/// Reason why a data connection is no longer followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Both ends sent FIN, and the time for late segments is over.
    Finished,
    /// One end sent RST.
    Reset,
    /// It was open and silent for too long.
    Idle,
    /// It was announced and never arrived.
    Unused,
    /// It was announced at two addresses and arrived at the other one.
    OtherAddress,
    /// It was announced, did not arrive, and was removed to make room for newer ones.
    Evicted,
}

/// A data connection after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Closed {
    /// The connection.
    pub connection: Connection,
    /// The reason.
    pub reason: Reason,
    /// Port of the end that connected, if it connected.
    pub client_port: Option<u16>,
    /// Frames of the connection that the tracker received.
    pub frame_count: u64,
    /// Total length of these frames on the wire.
    pub wire_bytes: u64,
    /// True if the first received frame was the opening SYN: then nothing before it was missed.
    pub from_syn: bool,
}

/// Limits of a tracker's memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most control connections; the one that was silent longest is removed first. Each costs up to
    /// 6 KiB.
    pub control_connections: usize,
    /// Most data connections, announced and open; the oldest that has not arrived is removed first.
    /// Each costs about 250 bytes.
    pub data_connections: usize,
    /// Longest time until an announced connection arrives, in nanoseconds.
    pub announced_ns: u64,
    /// Longest silence of an open data connection, in nanoseconds.
    pub idle_ns: u64,
    /// Longest silence of a control connection, in nanoseconds.
    pub control_idle_ns: u64,
    /// Time for which a closed connection is still captured, for the last acknowledgements and
    /// repetitions, in nanoseconds.
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
