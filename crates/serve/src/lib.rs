//! One capture for many programs: `fyke serve` owns the capture, and *readers* open filter texts on it.
//!
//! ```text
//!  device ─▶ node `serve` ── a frame that a text accepts ─▶ packet buffer of the group ──▶ readers map it, read-only
//!               ▲                                      └──▶ index of each reader that accepts it
//!               └── texts of all readers, one filter set ◀── edits ◀── socket ◀── readers
//! ```
//!
//! A frame is copied once for each *group* that accepts it, however many readers the group has; another reader of the
//! group costs one store for each frame that it gets. All texts form one filter set, so the cost of a frame grows with
//! the number of different shapes, not of readers; equal texts are one filter. The union of the texts also runs in the
//! kernel. A reader that is too slow loses the oldest frames and knows how many; it delays no other.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | requests and responses, one JSON object each |
//! | [`wire`] | messages as packets of a Unix socket, with limits |
//! | [`place`] | where the socket of a service is |
//! | [`policy`] | users that are served, with their frames and limits; the captures of a service |
//! | [`group`] | readers that share a packet buffer, and the buffer |
//! | [`table`] | readers and the texts that they follow; stores frames for them |
//! | [`service`] | edits: from the request of a reader to the filter set |
//! | [`class`](mod@class) | the graph class `serve` |
//! | [`files`] | files that graphs of readers write, to descriptors of these |
//! | [`graph`] | graphs of readers, which run in the service |
//! | [`server`] | accepts readers, checks their user, answers |
//! | [`store`] | the things that a service leaves to the process after it |
//! | [`restore`](mod@restore) | readers of the process before |
//! | [`client`] | a reader's end of the connection, and the source of its frames |
//! | [`lower`] | the service as the space below a reader's own graph |
//!
//! # What a reader cannot do
//!
//! Users are told apart by `SO_PEERCRED`. Without a policy only root and the user of the service are served, each user
//! in a group of its own: a reader gets the descriptors of its group's packet buffer and of its own index, and no
//! other; both are sealed, so that it cannot write or shrink them. Of the descriptors that a reader sends, one may be a
//! page that tells whether it sleeps ([`Waker`](fyke_ring::Waker)), and some may be files for its graph ([`files`]);
//! all others are closed unread. A reader has its own thread, and limits for the number and length of texts; what it
//! opened is gone when its connection is. The packet loop never waits for a reader.
#![forbid(unsafe_code)]

pub mod class;
pub mod client;
mod compiling;
pub mod events;
pub mod files;
pub mod graph;
pub mod group;
pub mod lower;
pub mod message;
pub mod place;
pub mod policy;
pub mod restore;
pub mod server;
pub mod service;
mod slots;
pub mod store;
pub mod table;
pub mod wire;

pub use client::{ConnectError, Connection, connect_source};
pub use group::Group;
pub use lower::ServeSpace;
pub use place::{Listening, PlaceError};
pub use policy::Policy;
pub use restore::{Restoration, count_on, restore};
pub use server::Server;
pub use service::Service;
pub use store::{Left, Store};
