//! The control socket of a running fyke.
//!
//! A command that runs a filter (dump, run, serve) starts a [`Server`]; `fyke ctl` is a [`Client`].
//! They exchange one JSON object per line over a Unix stream socket, so `socat` and scripts can use
//! it as well:
//!
//! ```text
//! → {"request":"add","text":"host 10.0.0.1 and port 5060"}
//! ← {"response":"ok","epoch":8,"ids":[12],"latency_ns":2150}
//! ```
//!
//! This crate knows nothing of filters. It transports filter texts in and counters out; the owner
//! of the filter implements [`Controlled`].
//!
//! | module | what |
//! |---|---|
//! | [`message`] | requests, responses, counters |
//! | [`runtime_dir`] | the folder of the sockets, and its permissions |
//! | [`server`] | accepts connections, checks the user of the peer, answers |
//! | [`client`] | sends requests |
//! | [`instances`] | the running fykes |
//!
//! # What a client cannot do
//!
//! Only the user that runs the fyke, and root, get an answer (`SO_PEERCRED`). Each client has its
//! own thread, so a slow client delays no other; at most [`MAX_CLIENTS`] of each of the two are
//! served, and a new client replaces the one of its user that has been idle longest. A request has
//! at most [`MAX_REQUEST_BYTES`] and ten seconds from its first byte to its line end; a client that
//! does not read its answer is closed. The capture never waits for a client.
#![forbid(unsafe_code)]

pub mod client;
mod edit_meter;
pub mod instances;
pub mod message;
mod process;
pub mod runtime_dir;
mod seats;
pub mod server;
mod wire;

pub use client::{CallError, Client, ConnectError};
pub use instances::{Instance, list, list_in};
pub use message::{
    Accounting, Change, Description, EditAuthor, EditTimes, EditsWithin, EntryKind,
    FIRST_EXPECTATION, FileId, FilterCount, FilterPasses, Frames, InterfaceAccounting, KeptFrame,
    Label, LogEntry, LoggedChange, MAX_CHANGES, MAX_EXPLAINED, MAX_PROGRAM_CHARS, MAX_TRIED,
    NOT_COUNTED, NodeCount, NodeFeed, OwnFilter, OwnedRules, PassCall, PassCount, Past,
    ReaderCount, Reason, Rejected, RejectedFrame, Request, Response, SaveFormat, ShownFrame, Stats,
    Tried, Verdict,
};
pub use runtime_dir::{NameLock, RuntimeDir, RuntimeDirError};
pub use server::{Controlled, Listening, MAX_CLIENTS, MAX_REQUEST_BYTES, Peer, Server, StartError};
