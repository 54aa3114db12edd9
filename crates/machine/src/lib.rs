//! Pseudo machines: CSPF, BPF and MPF, and what MPF makes of many programs.
//!
//! | module | what |
//! |---|---|
//! | [`bpf`] | the register machine: classic BPF with Linux's extensions, and MPF |
//! | [`cspf`] | the stack machine |
//! | [`demultiplexer`] | collapse, dispatch to endpoints, fragments |
//! | [`jit`] | the fast path: register programs as machine code |
//! | [`load`] | programs as users give them: which machine, which values |
//! | [`papers`] | names that the papers' programs use, with values for Ethernet and IPv4 |
//! | [`text`] | errors with a caret, named constants |
//!
//! Which to use: for filters in the pcap language the pass engine is faster and can be edited; these machines run what
//! was written for them, and show what the MPF paper claims. Programs are data from outside: they are validated before
//! they run, never run away and touch nothing but the packet.
//!
//! Source: Yuhara, Bershad, Maeda, Moss, "Efficient Packet Demultiplexing for Multiple Endpoints and Large Messages",
//! 1993.
#![deny(unsafe_code)]

pub mod bpf;
pub mod cspf;
pub mod demultiplexer;
#[allow(unsafe_code, reason = "running generated machine code")]
pub mod jit;
pub mod load;
pub mod papers;
pub mod text;

pub use demultiplexer::{
    AnyProgram, Counters, Delivery, Demultiplexer, Dispatched, Endpoints, GivenUp, Hashing,
    InstallError, Limits, Options, RecipientId, Reprocess, Verdict,
};
pub use text::{SourceError, Symbols};
