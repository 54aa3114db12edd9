//! Pseudo machines: CSPF, BPF and MPF, and MPF's dispatch among many programs.
//!
//! | module | purpose |
//! |---|---|
//! | [`bpf`] | the register machine: classic BPF with Linux's extensions, and MPF |
//! | [`cspf`] | the stack machine |
//! | [`demultiplexer`] | collapse, dispatch to endpoints, fragments |
//! | [`jit`] | the fast path: register programs as machine code (feature `jit`) |
//! | [`load`] | reads programs that users give: selects the machine and the values of names |
//! | [`papers`] | names that the papers' programs use, with values for Ethernet and IPv4 |
//! | [`text`] | errors with a caret, named constants |
//!
//! For filters in the pcap language the pass engine is faster and can be edited. These machines run programs
//! written for them, and demonstrate the claims of the MPF paper. Programs are untrusted input: they are validated
//! before they run, always end, and access only the packet.
//!
//! Source: Yuhara, Bershad, Maeda, Moss, "Efficient Packet Demultiplexing for Multiple Endpoints and Large Messages",
//! 1993.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_machine as machine}; }
//! use fyke::frame::{Frame, LinkType};
//! use fyke::machine::bpf::run::Program;
//! use fyke::machine::bpf::{Dialect, Instruction, code};
//! use fyke::machine::{AnyProgram, Delivery, Demultiplexer, Options};
//!
//! let mut machine = Demultiplexer::new(Options::default());
//! let everything = Program::new(vec![Instruction::new(code::RET_K, 60)], Dialect::Bpf)?;
//! machine.install(AnyProgram::Register(everything))?;
//! let mut delivered = 0;
//! machine.frame(&Frame::new(LinkType::RAW, &[0; 60]), &mut |_: &Frame<'_>, _: Delivery| delivered += 1);
//! assert_eq!(delivered, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
