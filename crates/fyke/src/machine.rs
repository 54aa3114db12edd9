//! Pseudo machines: CSPF, BPF and MPF programs, validated before they run, and MPF's dispatch among many of them.
//!
//! For texts of the filter language [`fyke::Filter`](crate::Filter) is faster and can be edited. Use a machine to run
//! a program that exists already: a `tcpdump -ddd` listing, a program of the papers, thousands of sessions of one
//! shape.
//!
//! ```
//! use fyke::frame::{Frame, LinkType};
//! use fyke::machine::bpf::run::{Outcome, Program};
//! use fyke::machine::bpf::{Dialect, assemble::assemble};
//! use fyke::machine::Symbols;
//!
//! let text = "ldh [12]\n jeq #0x800, yes, no\n yes: ret #262144\n no: ret #0";
//! let assembled = assemble(text, Dialect::Bpf, &Symbols::default())?;
//! let program = Program::new(assembled.program, Dialect::Bpf)?;
//! assert_eq!(program.run(&Frame::new(LinkType::EN10MB, &[0; 60])), Outcome::Reject);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `jit`, register programs can run as machine code; without it the interpreter gives the same
//! verdicts.

#[doc(inline)]
pub use fyke_machine::{
    AnyProgram, Counters, Delivery, Demultiplexer, Dispatched, Endpoints, GivenUp, Hashing,
    InstallError, Limits, Options, RecipientId, Reprocess, SourceError, Symbols, Verdict, bpf,
    cspf, jit, load, papers,
};
