//! Frames of a fyke on another machine: `-i serve:HOST:PORT`.
//!
//! ```text
//!  machine A                                        │ machine B
//!  fyke serve ─▶ shared memory ─▶ fyke relay ══ TLS ══▶ fyke dump -i serve:A:4747 EXPR
//!       ▲                            │              │        │
//!       └──── texts of the client ◀──┘ ◀═══════════════ edits ┘
//! ```
//!
//! The relay is a process beside the service, and a reader as every other: the service copies the frames that the
//! texts of the client accept into shared memory, and never waits. Only these frames cross the network. The client
//! grants *credit*, bytes that it has room for. Without credit the relay does not read, so what is too much is lost in
//! the ring of the relay, where each lost frame is counted. The counts cross, too: the client's sum
//! `seen = accepted + rejected + lost` is that of the frames at the far interface.
//!
//! Both ends have certificates (TLS 1.3). The subject of a client's certificate is its name; the policy of the
//! service has rules for names.
//!
//! | module | what |
//! |---|---|
//! | [`address`] | `HOST:PORT/NAME` |
//! | [`tls`] | certificates, and the name in one |
//! | [`message`] | requests and responses |
//! | [`batch`] | frames as bytes |
//! | [`link`] | messages over a connection, with limits |
//! | [`source`] | the client's end: a source of frames |
//! | [`relay`] | the service's end |
//!
//! A peer is never trusted: a message has a limit, a wrong one ends the connection with the reason, more
//! frames than granted end it, and so does silence.
#![forbid(unsafe_code)]

pub mod address;
pub mod batch;
pub mod link;
pub mod message;
pub mod relay;
pub mod source;
pub mod tls;

pub use address::Address;
pub use relay::{Offer, Relay};
pub use source::RemoteSource;
pub use tls::Files;
