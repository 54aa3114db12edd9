//! The pcap filter language: compiles a text to a typed predicate, and evaluates it slowly and
//! simply; faster engines must agree with this evaluator.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_filter as filter, fyke_frame as frame}; }
//! use fyke::filter::{Options, compile};
//! use fyke::frame::{Frame, LinkType};
//!
//! let predicate = compile("tcp port 80 or 443", &Options::default())?;
//! assert_eq!(predicate.to_string(), "tcp port 80 or tcp port 443");
//! assert!(!predicate.accepts(&Frame::new(LinkType::EN10MB, &[0; 60])));
//! let error = compile("tcp prot 80", &Options::default()).unwrap_err();
//! assert_eq!(error.hint(), Some("did you mean \"port\"?"));
//! # Ok::<(), fyke::filter::Error>(())
//! ```
//!
//! The usual reading is *compat*: exactly libpcap 1.10.3's for a capture file, including its traps:
//! `and` and `or` have equal precedence; `vlan` shifts everything after it; only first fragments
//! have ports; a load out of bounds rejects the frame even under `not`. The other reading is
//! [`scoped`], by meaning.
//!
//! | module | what |
//! |---|---|
//! | [`ast`] | the predicate: and, or, not over typed primitives, each with its byte condition |
//! | `lex`, `keywords`, `names` | words, numbers, addresses; names of ports and protocols |
//! | `parse` | the grammar; qualifiers and their inheritance |
//! | `compat` | libpcap's condition for a primitive, in its order of evaluation; one file per family |
//! | [`scoped`] | the other reading, by meaning: packets inside packets, tags, fragments |
//! | `reach` | finds texts that can never match, which libpcap refuses |
//! | `cost` | the most tests and bytes that a primitive needs |
//! | `display` | the canonical text |
//! | [`bpf`] | lowers a predicate to a program of classic BPF |
//!
//! Parsing is linear; there is no optimiser, so texts up to [`MAX_TEXT_LEN`] are fast.
#![forbid(unsafe_code)]

pub mod ast;
pub mod bpf;
mod compat;
mod cost;
mod display;
mod error;
mod keywords;
mod lex;
mod names;
mod options;
mod parse;
mod predicate;
mod reach;
pub mod scoped;

pub use ast::{Node, Primitive, PrimitiveKind};
pub use cost::{Cost, cost};
pub use error::Error;
pub use options::{Options, Reading, Resolver, needs_netmask};
pub use parse::{MAX_NESTING, MAX_TEXT_LEN};
pub use predicate::{Predicate, compile, compile_all, compile_with, system_resolver};
pub use scoped::Fragments;
