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

pub mod ancillary;
pub mod assemble;
pub mod disassemble;
pub mod numbers;
pub mod pseudo;
pub mod run;
pub mod validate;

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

/// An instruction in the format of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Instruction {
    /// Class, width or operation, addressing mode.
    pub code: u16,
    /// Instructions to skip if the test is true; for matches the number of keys.
    pub jt: u8,
    /// Instructions to skip if the test is false.
    pub jf: u8,
    /// Immediate operand.
    pub k: u32,
}

impl Instruction {
    /// An instruction without jumps.
    pub const fn new(code: u16, k: u32) -> Self {
        Instruction { code, jt: 0, jf: 0, k }
    }

    /// An instruction with jumps.
    pub const fn jump(code: u16, jt: u8, jf: u8, k: u32) -> Self {
        Instruction { code, jt, jf, k }
    }

    /// Returns true for an instruction that only MPF has.
    pub const fn is_mpf(&self) -> bool {
        matches!(
            self.code,
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
}

/// Operation codes.
#[allow(missing_docs, reason = "the names are those of the instruction set's headers")]
pub mod code {
    pub const LD_IMM: u16 = 0x00;
    pub const LD_W_ABS: u16 = 0x20;
    pub const LD_H_ABS: u16 = 0x28;
    pub const LD_B_ABS: u16 = 0x30;
    pub const LD_W_IND: u16 = 0x40;
    pub const LD_H_IND: u16 = 0x48;
    pub const LD_B_IND: u16 = 0x50;
    pub const LD_MEM: u16 = 0x60;
    pub const LD_LEN: u16 = 0x80;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const LDX_LEN: u16 = 0x81;
    pub const LDX_MSH: u16 = 0xb1;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    /// Add the operation (0x00 … 0xa0) and, if the operand is X, 0x08.
    pub const ALU: u16 = 0x04;
    pub const NEG: u16 = 0x84;
    pub const JA: u16 = 0x05;
    pub const JEQ: u16 = 0x15;
    pub const JGT: u16 = 0x25;
    pub const JGE: u16 = 0x35;
    pub const JSET: u16 = 0x45;
    /// Added to arithmetic and jumps if the operand is X.
    pub const X: u16 = 0x08;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
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

/// Arithmetic mnemonics with their operation codes.
pub(crate) const ALU_NAMES: &[(&str, u16)] = &[
    ("add", 0x00),
    ("sub", 0x10),
    ("mul", 0x20),
    ("div", 0x30),
    ("or", 0x40),
    ("and", 0x50),
    ("lsh", 0x60),
    ("rsh", 0x70),
    ("mod", 0x90),
    ("xor", 0xa0),
];

/// The register machine that a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// Classic BPF with Linux's extensions.
    Bpf,
    /// BPF and the instructions for matching, fragments and postponing.
    Mpf,
}
