//! The control socket of a running program: show, edit and watch its filters from outside, as `fyke ctl` does.
//!
//! Implement [`Controlled`] for what owns the filters, and start a [`Server`]. The protocol is one JSON object per
//! line.
//!
//! ```
//! use fyke::control::{Request, Response};
//!
//! let line = r#"{"request":"add","text":"host 10.0.0.1"}"#;
//! let request: Request = serde_json::from_str(line)?;
//! assert!(matches!(request, Request::Add { text, .. } if text == "host 10.0.0.1"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Only the user of the process and root get an answer.

#[doc(inline)]
pub use fyke_control::{
    Accounting, CallError, Change, Client, ConnectError, Controlled, Description, EditAuthor,
    EntryKind, FilterCount, FilterPasses, Frames, Instance, KeptFrame, Label, Listening, LogEntry,
    LoggedChange, MAX_CHANGES, MAX_CLIENTS, MAX_EXPLAINED, MAX_PROGRAM_CHARS, MAX_REQUEST_BYTES,
    MAX_TRIED, NodeCount, NodeFeed, OwnFilter, PassCount, Past, Peer, Reason, Rejected,
    RejectedFrame, Request, Response, RuntimeDir, RuntimeDirError, SaveFormat, Server, ShownFrame,
    StartError, Stats, Tried, Verdict, list, list_in,
};
