//! Position of every bit of an instruction: the one file that user space and the kernel share.
//!
//! An instruction is 32 bytes: one *command* word and seven *parameter* words, all in the machine's byte order.
//! Values are numbers, as they read on the wire (`0xc0a80200` is 192.168.2.0). An evaluator that compares columns in
//! network order swaps them when it decodes the instruction, never per frame.
//!
//! ```text
//! command   31            16 15 14  13     12     11     8   7   6       0
//!          +----------------+-----+-------+--------+-------+-----+---------+
//!          | offset         |  0  | SHORT | EITHER | count | NEG | opcode  |
//!          +----------------+-----+-------+--------+-------+-----+---------+
//! ```
//!
//! * `opcode` and `count` (the number of operands) are adjacent, so that one jump on the low twelve bits decides
//!   both (NPF, chapter IV iii: "hybridize the SIMD indicator with the instruction identifier").
//! * `NEG` negates the result. A load out of bounds has no result: it is never negated.
//! * `EITHER` tests two adjacent places of the same width; it is true if at least one of them matches.
//! * `SHORT` makes an instruction of the extended range 16 bits wide where both widths exist.
//! * `offset` counts from the first captured byte (direct), or from the end of the header that the addressing
//!   parameter names (L1, L2).
//! * Sixteen-bit operands are packed two to a word, low half first. Unused words are zero, so two instructions with the
//!   same meaning have the same bits.
//! * L1 instructions keep the header's place in the last parameter, see [`header_word`]; L2 instructions use the last
//!   two.
//! * A place is in bounds if the last of its bytes *that the mask selects* is in the frame.
//!
//! A mark beside the instruction, not in it, tells if the instruction was copied from the parent pass.
//!
//! Source: Wu, Xie, Wang 2008, section 3.3.1, figure 3; the texts name nine of the 22 opcodes, the others are our
//! reconstruction (see [`Opcode`]). DEPARTURE: the papers do not print the layout of the command word; this one
//! follows from the operand budgets they give (seven for `D_EQ`, twelve for L1 ports, five for `L2_LEQ`).

/// Parameter words of an instruction.
pub const PARAMS: usize = 7;
/// Bits of the command word that hold the opcode.
pub const OPCODE_MASK: u32 = 0x7f;
/// Negation.
pub const NEG: u32 = 1 << 7;
/// Position of the operand count, which is four bits wide.
pub const COUNT_SHIFT: u32 = 8;
/// The operand count, after shifting.
pub const COUNT_MASK: u32 = 0xf;
/// The test is made at two adjacent places.
pub const EITHER: u32 = 1 << 12;
/// Sixteen bits wide (extended opcodes that exist in both widths).
pub const SHORT: u32 = 1 << 13;
/// Bits that have no meaning yet and must be zero.
pub const RESERVED: u32 = 0b11 << 14;
/// Position of the offset, which is sixteen bits wide.
pub const OFFSET_SHIFT: u32 = 16;

/// Header kind of an L1 addressing word: IPv4, length `4 * (P[header] & 0xf)`.
pub const HEADER_IPV4: u32 = 0;
/// Position of the header kind in an addressing word.
pub const HEADER_KIND_SHIFT: u32 = 16;

/// One instruction: a test of a frame that is true or false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Instruction {
    /// Opcode, operand count, flags and offset.
    pub command: u32,
    /// Operands and, at the end, addressing.
    pub params: [u32; PARAMS],
}

const _: () = assert!(size_of::<Instruction>() == 32 && align_of::<Instruction>() == 4);

/// An addressing word. It names the IPv4 header that starts at frame offset `header`; in the second word of L2
/// instructions, the byte at offset `header` after the first header: four times its high nibble is the length of the
/// second header (12 for TCP).
pub const fn header_word(header: u16) -> u32 {
    HEADER_IPV4 << HEADER_KIND_SHIFT | header as u32
}

macro_rules! opcodes {
    ($($(#[doc = $doc:expr])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Operation of an instruction. The papers name nine opcodes; the others below 0x40 are our reconstruction of
        /// all 22: direct and L1 each with seven forms, four L2 forms, four power instructions. Opcodes from 0x40 on
        /// are our own. 0x60 to 0x7f is kept free for named fields.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each has a line; the macro hands it on")]
        pub enum Opcode { $($(#[doc = $doc])* $name = $number,)* }

        impl Opcode {
            /// All opcodes, ascending.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// The name as the papers write it.
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$name => $text,)* }
            }

            /// The opcode with this number.
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    #[doc = "True. With NEG: false, which is how a pass that accepts nothing is written."]
    Nop = 0x00, "NOP";
    #[doc = "Direct, 32 bit: equal to any of up to 7."]
    DEq = 0x01, "D_EQ";
    #[doc = "Direct, 16 bit: equal to any of up to 14."]
    DSeq = 0x02, "D_SEQ";
    #[doc = "Direct, 32 bit: masked by P1, equal to any of up to 6 (masked as well)."]
    DMeq = 0x03, "D_MEQ";
    #[doc = "Direct, 16 bit: masked by P1, equal to any of up to 12."]
    DSmeq = 0x04, "D_SMEQ";
    #[doc = "Direct, 32 bit: within any of up to 3 closed intervals (low, high)."]
    DRng = 0x05, "D_RNG";
    #[doc = "Direct, 16 bit: within up to 7 closed intervals (low half low, high half high)."]
    DSrng = 0x06, "D_SRNG";
    #[doc = "Direct: up to 3 consecutive 32-bit words, each (value, mask), all must match."]
    DLeqM = 0x07, "D_LEQ_M";
    #[doc = "L1, 32 bit: equal to any of up to 6."]
    L1Eq = 0x09, "L1_EQ";
    #[doc = "L1, 16 bit: equal to any of up to 12."]
    L1Seq = 0x0a, "L1_SEQ";
    #[doc = "L1, 32 bit: masked by P1, equal to any of up to 5."]
    L1Meq = 0x0b, "L1_MEQ";
    #[doc = "L1, 16 bit: masked by P1, equal to any of up to 10."]
    L1Smeq = 0x0c, "L1_SMEQ";
    #[doc = "L1, 32 bit: within any of up to 3 closed intervals."]
    L1Rng = 0x0d, "L1_RNG";
    #[doc = "L1, 16 bit: within any of up to 6 closed intervals."]
    L1Srng = 0x0e, "L1_SRNG";
    #[doc = "L1: up to 3 consecutive 32-bit words, each (value, mask), all must match."]
    L1LeqM = 0x0f, "L1_LEQ_M";
    #[doc = "L2, 16 bit: equal to any of up to 10."]
    L2Seq = 0x11, "L2_SEQ";
    #[doc = "L2, 16 bit: within any of up to 5 closed intervals."]
    L2Srng = 0x12, "L2_SRNG";
    #[doc = "L2: up to 5 consecutive 32-bit words, all equal."]
    L2Leq = 0x13, "L2_LEQ";
    #[doc = "L2: up to 2 consecutive 32-bit words, each (value, mask), all must match."]
    L2LeqM = 0x14, "L2_LEQ_M";
    #[doc = "Power: two adjacent 32-bit words, masked by P1, any of them equal to any of up to 6."]
    DDmeq = 0x19, "D_DMEQ";
    #[doc = "Power: two adjacent 32-bit words, each (value, mask), both must match."]
    DBmeq = 0x1a, "D_BMEQ";
    #[doc = "Power: two adjacent 16-bit words at L1, both must match (first, second)."]
    L1Sseq = 0x1b, "L1_SSEQ";
    #[doc = "Power: two adjacent 16-bit words at L1, any of them equal to any of up to 12."]
    L1Eseq = 0x1c, "L1_ESEQ";
    #[doc = "Direct: masked by P1, a member of set P3; P2: distance to a second place, 0 = none."]
    DSet = 0x40, "D_SET";
    #[doc = "L1: masked by P1, a member of set P3; P2 is the distance to a second place, 0 = none."]
    L1Set = 0x41, "L1_SET";
    #[doc = "Direct, 128 bit: the first P1 bits are a member of set P3; P2 as in D_SET."]
    DSet6 = 0x42, "D_SET6";
    #[doc = "Direct: masked by P1, at either of two places P2 bytes apart equal to any of up to 5."]
    DPmeq = 0x43, "D_PMEQ";
    #[doc = "Direct: masked by P1, within any of up to 3 closed intervals."]
    DMrng = 0x44, "D_MRNG";
    #[doc = "L1: masked by P1, within any of up to 2 closed intervals."]
    L1Mrng = 0x45, "L1_MRNG";
    #[doc = "Direct, 128 bit: the first P1 bits equal P3 to P6; P2 as in D_SET."]
    DAddr6 = 0x46, "D_ADDR6";
    #[doc = "Length on the wire within any of up to 3 closed intervals."]
    LenRng = 0x47, "LEN_RNG";
    #[doc = "Metadata field `offset` (see META_*), masked by P1, equal to any of up to 6."]
    MetaMeq = 0x48, "META_MEQ";
    #[doc = "The condition with number P1 in the set's side table (arithmetic, computed places)."]
    Cond = 0x4a, "COND";
    #[doc = "One of the passes of the inner set with number P1 accepts; exceptions negate it."]
    Passes = 0x4b, "PASSES";
}

/// Metadata field of `META_MEQ`: direction.
pub const META_DIRECTION: u16 = 0;
/// Metadata field of `META_MEQ`: interface index.
pub const META_IFINDEX: u16 = 1;

/// Addressing mode of an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// No place in the frame's bytes.
    None,
    /// Absolute offset.
    Direct,
    /// After one header of variable length.
    L1,
    /// After two headers of variable length.
    L2,
}

/// Layout of an opcode's operands from `params[first_operand]` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operands {
    /// No operands.
    None,
    /// Sixteen-bit values, two to a word; any may match.
    Any16,
    /// Words; any may match.
    Any32,
    /// Sixteen-bit intervals, one to a word: low half low, high half high.
    Interval16,
    /// Intervals of two words: low, high.
    Interval32,
    /// Pairs of words (value, mask); all must match, at consecutive words of the frame.
    Masked32,
    /// Words; all must match, at consecutive words of the frame.
    All32,
    /// Sixteen-bit values, two to a word; all must match, at consecutive halves.
    All16,
    /// The number of a set or of a condition.
    Reference,
    /// Four words: an IPv6 address.
    Address,
}

/// Meaning of the bits of an opcode's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// The addressing mode.
    pub addressing: Addressing,
    /// The layout of operands.
    pub operands: Operands,
    /// Index of the first parameter that holds operands; earlier parameters hold a mask, a distance or nothing.
    pub first_operand: u8,
    /// Largest number of operands.
    pub capacity: u8,
    /// Flags that the opcode supports, besides `NEG`.
    pub flags: u32,
}

impl Opcode {
    /// The form of this opcode.
    pub const fn form(self) -> Form {
        use Addressing::{Direct, L1, L2};
        use Operands as O;
        let (addressing, operands, first_operand, capacity, flags) = match self {
            Opcode::Nop => (Addressing::None, O::None, 0, 0, 0),
            Opcode::DEq => (Direct, O::Any32, 0, 7, 0),
            Opcode::DSeq => (Direct, O::Any16, 0, 14, EITHER),
            Opcode::DMeq => (Direct, O::Any32, 1, 6, 0),
            Opcode::DSmeq => (Direct, O::Any16, 1, 12, EITHER),
            Opcode::DRng => (Direct, O::Interval32, 0, 3, EITHER),
            Opcode::DSrng => (Direct, O::Interval16, 0, 7, EITHER),
            Opcode::DLeqM => (Direct, O::Masked32, 0, 3, 0),
            Opcode::L1Eq => (L1, O::Any32, 0, 6, 0),
            Opcode::L1Seq => (L1, O::Any16, 0, 12, 0),
            Opcode::L1Meq => (L1, O::Any32, 1, 5, 0),
            Opcode::L1Smeq => (L1, O::Any16, 1, 10, EITHER),
            Opcode::L1Rng => (L1, O::Interval32, 0, 3, EITHER),
            Opcode::L1Srng => (L1, O::Interval16, 0, 6, EITHER),
            Opcode::L1LeqM => (L1, O::Masked32, 0, 3, 0),
            Opcode::L2Seq => (L2, O::Any16, 0, 10, 0),
            Opcode::L2Srng => (L2, O::Interval16, 0, 5, 0),
            Opcode::L2Leq => (L2, O::All32, 0, 5, 0),
            Opcode::L2LeqM => (L2, O::Masked32, 0, 2, 0),
            Opcode::DDmeq => (Direct, O::Any32, 1, 6, 0),
            Opcode::DBmeq => (Direct, O::Masked32, 0, 2, 0),
            Opcode::L1Sseq => (L1, O::All16, 0, 2, 0),
            Opcode::L1Eseq => (L1, O::Any16, 0, 12, 0),
            Opcode::DSet => (Direct, O::Reference, 2, 1, SHORT),
            Opcode::L1Set => (L1, O::Reference, 2, 1, SHORT),
            Opcode::DSet6 => (Direct, O::Reference, 2, 1, 0),
            Opcode::DPmeq => (Direct, O::Any32, 2, 5, SHORT),
            Opcode::DMrng => (Direct, O::Interval32, 1, 3, EITHER | SHORT),
            Opcode::L1Mrng => (L1, O::Interval32, 1, 2, EITHER | SHORT),
            Opcode::DAddr6 => (Direct, O::Address, 2, 1, 0),
            Opcode::LenRng => (Addressing::None, O::Interval32, 0, 3, 0),
            Opcode::MetaMeq => (Addressing::None, O::Any32, 1, 6, 0),
            Opcode::Cond | Opcode::Passes => (Addressing::None, O::Reference, 0, 1, 0),
        };
        Form { addressing, operands, first_operand, capacity, flags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the operand budgets that the papers give, and the word budget of every opcode.
    #[test]
    fn operand_budgets_are_the_papers() {
        let capacity = |opcode: Opcode| opcode.form().capacity;
        assert_eq!(capacity(Opcode::DEq), 7);
        assert_eq!(capacity(Opcode::L1Seq), 12);
        assert_eq!(capacity(Opcode::DLeqM), 3);
        assert_eq!(capacity(Opcode::L2Leq), 5);
        assert_eq!(capacity(Opcode::L2LeqM), 2);
        assert_eq!(Opcode::ALL.iter().filter(|&&op| (1..0x40).contains(&(op as u8))).count(), 22);
        for &opcode in Opcode::ALL {
            let form = opcode.form();
            let words = match form.operands {
                Operands::None => 0,
                Operands::Any16 | Operands::All16 => form.capacity.div_ceil(2),
                Operands::Any32 | Operands::All32 | Operands::Interval16 => form.capacity,
                Operands::Interval32 | Operands::Masked32 => 2 * form.capacity,
                Operands::Reference => 1,
                Operands::Address => 4,
            };
            let addressing = match form.addressing {
                Addressing::None | Addressing::Direct => 0,
                Addressing::L1 => 1,
                Addressing::L2 => 2,
            };
            assert!(usize::from(form.first_operand + words + addressing) <= PARAMS, "{opcode:?}");
            assert!(u32::from(form.capacity) <= COUNT_MASK);
            assert_eq!(Opcode::from_number(opcode as u32), Some(opcode));
        }
    }
}
