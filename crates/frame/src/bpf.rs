//! Instructions of classic BPF and their operation codes: for the crates that make, run or hand over
//! such programs.
//!
//! An instruction is the 8 bytes that kernels take. Source: McCanne & Jacobson 1993; Linux's filter
//! header.

/// An instruction in the format of the kernel (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Instruction {
    /// Class, width or operation, addressing mode; a sum of constants of [`code`].
    pub code: u16,
    /// Instructions to skip when a jump's condition holds; MPF: for matches the number of keys.
    pub jt: u8,
    /// Instructions to skip when the condition does not hold.
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
}

/// Operation codes.
#[allow(missing_docs, reason = "the names are those of the instruction set's headers")]
pub mod code {
    // Classes.
    pub const LD: u16 = 0x00;
    pub const LDX: u16 = 0x01;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    /// Add the operation and, if the operand is X, [`X`].
    pub const ALU: u16 = 0x04;
    pub const JMP: u16 = 0x05;
    pub const RET: u16 = 0x06;
    pub const MISC: u16 = 0x07;

    // Widths of loads.
    pub const W: u16 = 0x00;
    pub const H: u16 = 0x08;
    pub const B: u16 = 0x10;

    // Addressing modes of loads.
    pub const IMM: u16 = 0x00;
    pub const ABS: u16 = 0x20;
    pub const IND: u16 = 0x40;
    pub const MEM: u16 = 0x60;
    pub const LEN: u16 = 0x80;
    pub const MSH: u16 = 0xa0;

    // Operations of ALU.
    pub const ADD: u16 = 0x00;
    pub const SUB: u16 = 0x10;
    pub const MUL: u16 = 0x20;
    pub const DIV: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const MOD: u16 = 0x90;
    pub const XOR: u16 = 0xa0;

    /// Added to arithmetic and jumps if the operand is X.
    pub const X: u16 = 0x08;

    // Whole codes.
    pub const LD_IMM: u16 = LD | IMM;
    pub const LD_W_ABS: u16 = LD | W | ABS;
    pub const LD_H_ABS: u16 = LD | H | ABS;
    pub const LD_B_ABS: u16 = LD | B | ABS;
    pub const LD_W_IND: u16 = LD | W | IND;
    pub const LD_H_IND: u16 = LD | H | IND;
    pub const LD_B_IND: u16 = LD | B | IND;
    pub const LD_MEM: u16 = LD | MEM;
    pub const LD_LEN: u16 = LD | LEN;
    pub const LDX_IMM: u16 = LDX | IMM;
    pub const LDX_MEM: u16 = LDX | MEM;
    pub const LDX_LEN: u16 = LDX | LEN;
    pub const LDX_MSH: u16 = LDX | B | MSH;
    pub const NEG: u16 = ALU | 0x80;
    pub const JA: u16 = JMP;
    pub const JEQ: u16 = JMP | 0x10;
    pub const JGT: u16 = JMP | 0x20;
    pub const JGE: u16 = JMP | 0x30;
    pub const JSET: u16 = JMP | 0x40;
    pub const RET_K: u16 = RET;
    pub const RET_A: u16 = RET | 0x10;
    pub const TAX: u16 = MISC;
    pub const TXA: u16 = MISC | 0x80;
}

/// Mnemonics of arithmetic with their operations.
pub const ARITHMETIC: &[(&str, u16)] = &[
    ("add", code::ADD),
    ("sub", code::SUB),
    ("mul", code::MUL),
    ("div", code::DIV),
    ("or", code::OR),
    ("and", code::AND),
    ("lsh", code::LSH),
    ("rsh", code::RSH),
    ("mod", code::MOD),
    ("xor", code::XOR),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_of_the_kernels_header() {
        assert_eq!(size_of::<Instruction>(), 8);
        let expected = [
            (code::LD_W_ABS, 0x20),
            (code::LD_H_ABS, 0x28),
            (code::LD_B_ABS, 0x30),
            (code::LD_W_IND, 0x40),
            (code::LD_H_IND, 0x48),
            (code::LD_B_IND, 0x50),
            (code::LD_MEM, 0x60),
            (code::LD_LEN, 0x80),
            (code::LDX_IMM, 0x01),
            (code::LDX_MEM, 0x61),
            (code::LDX_LEN, 0x81),
            (code::LDX_MSH, 0xb1),
            (code::NEG, 0x84),
            (code::JA, 0x05),
            (code::JEQ, 0x15),
            (code::JGT, 0x25),
            (code::JGE, 0x35),
            (code::JSET, 0x45),
            (code::RET_K, 0x06),
            (code::RET_A, 0x16),
            (code::TAX, 0x07),
            (code::TXA, 0x87),
        ];
        for (given, number) in expected {
            assert_eq!(given, number);
        }
    }
}
