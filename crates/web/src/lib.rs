//! Running fykes as a page in a browser: a client of control sockets that serves one page on the loopback interface, or
//! over TLS.
//!
//! ```text
//!  browser ── HTTP, token ──▶ Server ── control socket ──▶ running fyke
//!     ▲  page, one stream of lines, one call per action      (dump, track, run, …)
//! ```
//!
//! The server is a process of its own. The running fyke sees the same requests as from `fyke ctl`, limits each client,
//! and never waits for one.
//!
//! | module | job |
//! |---|---|
//! | [`server`] | accepts connections and answers requests |
//! | `door` | refuses requests of other pages, other hosts, and without the token |
//! | [`tls`] | the handshake of a connection over TLS |
//! | `seats` | bounds the number of connections; those without a token go first |
//! | `socket` | the WebSocket for programs |
//! | `hub` | one reader of counts for each running fyke, however many pages show it |
//! | [`looks`] | capture files that a page sends, and graphs that are drawn on it |
//! | [`fleet`] | the filters of a group of machines, and where they are in force |
//! | `call` | the requests that a page may make |
//! | `view` | counts as they are sent to a page: the largest entries, texts cut |
//! | [`metrics`] | counts as OpenMetrics, and a server for them of its own |
//!
//! # What a page gets
//!
//! `GET /`, `/page.css` and the scripts beside it return the page, without data. Everything else needs the token
//! (`Authorization: Bearer TOKEN`) and a body of JSON:
//!
//! | path | body | answer |
//! |---|---|---|
//! | `POST /api/events` | `{"pid":4711}`, `{"pids":[…]}` for several, `{}` without | lines of JSON until it is closed |
//! | `POST /api/call` | `{"pid":4711,"request":{…}}` | a [`fyke_control::Response`] |
//! | `POST /api/file` | a capture file, `application/octet-stream` | `{"file":1,"bytes":2048}` |
//! | `POST /api/look` | a [`looks::Look`], such as `{"look":"draw","graph":"…"}` | its answer, or `{"error":"…"}` |
//!
//! `GET /api/socket` opens a WebSocket with events and calls for programs: `crates/web/src/socket.rs`, docs/ctl.md.
//!
//! The field `event` of a line is `fykes`, `counts`, `ended` or, if the server shows a group, `fleet`; empty lines keep
//! the stream open. The request of a call is a [`fyke_control::Request`].
//!
//! An added text is first tried ([`fyke_control::Request::Try`]). So only texts of filters are accepted; the text of a
//! graph, which could open files, is refused. Only a fyke that runs texts of graphs takes one: with the sources that
//! run there, and of classes that open nothing.
//!
//! Memory: a stream holds the last line of each kind, not a queue; a request has at most 256 KiB, an answer 1 MiB.
#![forbid(unsafe_code)]

mod call;
mod door;
pub mod fleet;
mod hub;
pub mod looks;
pub mod metrics;
mod seats;
pub mod server;
mod socket;
pub mod tls;
mod view;

pub use server::{Ended, Options, Server, StartError};
pub use tls::Tls;
