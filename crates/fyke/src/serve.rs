//! One capture for many programs: a reader of `fyke serve`, and services of your own.
//!
//! ```no_run
//! use fyke::capture::FrameServer;
//! use fyke::ring::Read;
//! use fyke::serve::Connection;
//! use fyke::serve::message::Text;
//!
//! let connection = Connection::open("eth0", None)?; // serve:eth0
//! let texts = vec![Text { id: 1, text: "tcp port 80".to_owned() }];
//! let mut reader = connection.buffers(texts, 0)?;
//! let mut bytes = Vec::new();
//! if let Read::Frame(frame) = reader.next(&mut bytes) {
//!     println!("{} of {} bytes", bytes.len(), frame.wire_len);
//! }
//! // In force when this returns; frames that were stored before are still in the index.
//! connection.edit(&[1], &[(2, "udp port 53")])?;
//! println!("{} lost", reader.lost());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`connect_source`] is the source `serve:NAME` of a graph, with exact counts. A service is the class
//! [`class::CLASS`] in a graph, and a [`Server`] with its [`Service`].

#[doc(inline)]
pub use fyke_serve::{
    ConnectError, Connection, Group, Listening, PlaceError, Policy, ServeSpace, Server, Service,
    class, client, connect_source, group, lower, message, place, policy, server, service, wire,
};
