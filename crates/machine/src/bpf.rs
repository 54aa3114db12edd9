//! The register machine: classic BPF with Linux's extensions, and MPF, which adds six instructions.
//!
//! Registers A and X, the packet `P[]`, a scratch memory `M[0..15]` that starts as zero. Loads are in network order;
//! a load outside the packet ends the program and rejects. An [`Instruction`] is the 8 bytes that kernels take.
//!
//! | module | purpose | cost |
//! |---|---|---|
//! | [`assemble`] | reads the papers' notation, `tcpdump -d`, bpf_asm text | O(text) |
//! | [`pseudo`] | reads the C-like program of the MPF paper's Appendix B | O(text) |
//! | [`numbers`] | reads `tcpdump -dd`, `-ddd`, bpf_asm's numbers | O(text) |
//! | [`disassemble`] | prints all of these | O(program) |
//! | [`validate`] | checks that a program may run, and gives the reason if not | O(program) |
//! | [`run`] | the interpreter | O(program) per packet: jumps only go forward |
//!
//! Source: McCanne & Jacobson 1993; Yuhara, Bershad, Maeda, Moss, "Efficient Packet Demultiplexing for Multiple
//! Endpoints and Large Messages", 1993; numbers of MPF's instructions from Mach 3.0, of Linux's loads from its
//! filter header.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_frame as frame, fyke_machine as machine}; }
//! use fyke::frame::{Frame, LinkType};
//! use fyke::machine::Symbols;
//! use fyke::machine::bpf::run::{Outcome, Program};
//! use fyke::machine::bpf::{Dialect, assemble::assemble};
//!
//! let text = "ldb [0]\n jeq #7, yes, no\n yes: ret #9\n no: ret #0";
//! let assembled = assemble(text, Dialect::Bpf, &Symbols::default())?;
//! let program = Program::new(assembled.program, Dialect::Bpf)?;
//! let outcome = program.run(&Frame::new(LinkType::RAW, &[7]));
//! assert_eq!(outcome, Outcome::Accept { bytes: 9 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod ancillary;
pub mod assemble;
pub mod disassemble;
pub mod numbers;
pub mod pseudo;
pub mod run;
pub mod validate;

pub use fyke_frame::bpf::Instruction;

/// Words of scratch memory.
pub const SCRATCH_WORDS: usize = 16;
/// Maximum number of instructions of a program; the limit of Linux.
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Maximum number of keys of a match instruction: one for each scratch word.
pub const MAX_KEYS: usize = SCRATCH_WORDS;
/// `#ALL`: return the whole packet.
pub const ALL: u32 = u32::MAX;
/// Offsets from this one count from the link header (Mach's `BPF_DLBASE`); here that is the packet's start.
pub const LINK_BASE: u32 = 1 << 30;

/// True for an instruction that only MPF has.
pub const fn is_mpf(instruction: &Instruction) -> bool {
    matches!(
        instruction.code,
        code::BEGIN
            | code::BEGIN_OLD
            | code::RET_MATCH_IMM
            | code::RET_MATCH_DATA
            | code::JMP_MATCH_IMM
            | code::KEY
            | code::REGISTER_DATA
            | code::POSTPONE
    )
}

/// Operation codes: those of classic BPF, and MPF's.
#[allow(missing_docs, reason = "the names are those of the instruction set's headers")]
pub mod code {
    pub use fyke_frame::bpf::code::*;

    /// First instruction of a BPF program where CSPF programs are also accepted.
    pub const BEGIN: u16 = 0x0400;
    /// The same in older versions.
    pub const BEGIN_OLD: u16 = 0xfc00;
    pub const RET_MATCH_IMM: u16 = 0x1e;
    pub const RET_MATCH_DATA: u16 = 0x26;
    pub const JMP_MATCH_IMM: u16 = 0x55;
    pub const KEY: u16 = 0x17;
    pub const REGISTER_DATA: u16 = 0x1f;
    pub const POSTPONE: u16 = 0x27;
}

/// The register machine that a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// Classic BPF with Linux's extensions.
    Bpf,
    /// BPF and the instructions for matching, fragments and postponing.
    Mpf,
}
