//! The control socket of a running fyke.
//!
//! Whatever runs a filter (dump, run, serve) starts a [`Server`]; `fyke ctl` is a [`Client`]. Between them goes one
//! JSON object a line over a Unix stream socket, so `socat` and a script can talk to it as well:
//!
//! ```text
//! → {"request":"add","text":"host 10.0.0.1 and port 5060"}
//! ← {"response":"ok","epoch":8,"ids":[12],"latency_ns":2150}
//! ```
//!
//! This crate knows nothing of filters. It carries texts in and numbers out; what runs the filter implements
//! [`Controlled`].
//!
//! | module | what |
//! |---|---|
//! | [`message`] | requests, responses, counters |
//! | [`runtime_dir`] | where the sockets lie, and who may put them there |
//! | [`server`] | accepts, checks who asks, answers |
//! | [`client`] | asks |
//! | [`instances`] | which fykes are running |
//!
//! # What a client cannot do
//!
//! Only the user who runs the fyke, and root, get an answer (`SO_PEERCRED`). A client has a thread of its own, so a
//! slow one holds up nobody; at most [`MAX_CLIENTS`] are served, and the one idle longest makes room for a new one.
//! A request has at most [`MAX_REQUEST_BYTES`] and ten seconds from its first byte to its line end; a client that
//! does not read its answer is closed. The capture never waits for a client.
#![forbid(unsafe_code)]

pub mod client;
pub mod instances;
pub mod message;
pub mod runtime_dir;
mod seats;
pub mod server;
mod wire;

pub use client::{CallError, Client, ConnectError};
pub use instances::{Instance, list, list_in};
pub use message::{
    Accounting, Description, EntryKind, FilterCount, FilterPasses, NodeCount, OwnFilter, PassCount,
    Request, Response, Stats,
};
pub use runtime_dir::{RuntimeDir, RuntimeDirError};
pub use server::{Controlled, MAX_CLIENTS, MAX_REQUEST_BYTES, Server, StartError};
