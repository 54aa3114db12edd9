//! Reading, making and changing single instructions.
//!
//! Nothing here reads a frame. The bits of an instruction count as valid only after [`Instruction::validate`]; edits
//! refuse invalid instructions, so the evaluators meet valid ones only. All functions are O(1).

use crate::isa::layout::{Addressing, Form};
use crate::isa::layout::{
    COUNT_MASK, COUNT_SHIFT, EITHER, HEADER_IPV4, HEADER_KIND_SHIFT, Instruction, META_IFINDEX,
    NEG, OFFSET_SHIFT, OPCODE_MASK, Opcode, Operands, PARAMS, RESERVED, SHORT, header_word,
};

/// Reason why bits are not an instruction, or why an operand does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstructionError {
    /// No opcode has this number.
    #[error("no opcode has the number {given:#04x}")]
    UnknownOpcode {
        /// The number in the command word.
        given: u32,
    },
    /// More operands than the opcode has room for.
    #[error("{} has room for {limit} operands, {given} are given", opcode.name())]
    OperandsFull {
        /// The opcode.
        opcode: Opcode,
        /// Number of operands that the instruction would have.
        given: u32,
        /// Largest number of operands.
        limit: u32,
    },
    /// The operand count does not fit the opcode (a fixed number is needed).
    #[error("{} needs {expected} operands, not {given}", opcode.name())]
    OperandCount {
        /// The opcode.
        opcode: Opcode,
        /// The count in the command word.
        given: u32,
        /// The only valid count.
        expected: u32,
    },
    /// A flag that the opcode does not support, or a reserved bit.
    #[error("{} does not understand the command bits {given:#06x}", opcode.name())]
    Flags {
        /// The opcode.
        opcode: Opcode,
        /// The offending bits.
        given: u32,
    },
    /// A parameter word that the instruction does not use is not zero.
    #[error("parameter {index} of {} is unused and must be 0, not {given:#x}", opcode.name())]
    UnusedParameter {
        /// The opcode.
        opcode: Opcode,
        /// Index of the word, from 0.
        index: usize,
        /// Its value.
        given: u32,
    },
    /// An operand, mask or distance needs more bits than there are.
    #[error("{given:#x} does not fit: the largest value here is {limit:#x}")]
    TooWide {
        /// The value.
        given: u32,
        /// The largest possible.
        limit: u32,
    },
    /// An interval that contains nothing.
    #[error("the interval {low} to {high} is empty")]
    EmptyInterval {
        /// Lower end.
        low: u32,
        /// Upper end.
        high: u32,
    },
    /// A header kind that does not exist.
    #[error("no header kind has the number {given}")]
    HeaderKind {
        /// The number in the addressing word.
        given: u32,
    },
    /// The opcode's operands are not a list of alternatives.
    #[error("the operands of {} are not a list to add to or remove from", opcode.name())]
    NoOperandList {
        /// The opcode.
        opcode: Opcode,
    },
    /// The operand to remove is not there.
    #[error("{given} is not among the operands")]
    OperandAbsent {
        /// The value.
        given: u32,
    },
}

impl Instruction {
    /// An instruction without operands.
    pub const fn new(opcode: Opcode, offset: u16) -> Instruction {
        Instruction {
            command: opcode as u32 | (offset as u32) << OFFSET_SHIFT,
            params: [0; PARAMS],
        }
    }

    /// The opcode; `None` when the bits are not one.
    pub const fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.command & OPCODE_MASK)
    }

    /// True if the result is negated.
    pub const fn is_negated(&self) -> bool {
        self.command & NEG != 0
    }

    /// True if two adjacent places are tested.
    pub const fn is_either(&self) -> bool {
        self.command & EITHER != 0
    }

    /// True if the `SHORT` flag is set.
    pub const fn is_short(&self) -> bool {
        self.command & SHORT != 0
    }

    /// Number of operands.
    pub const fn count(&self) -> u32 {
        self.command >> COUNT_SHIFT & COUNT_MASK
    }

    /// Offset, in bytes, from the frame or from the end of the addressed header.
    pub const fn offset(&self) -> u16 {
        (self.command >> OFFSET_SHIFT) as u16
    }

    /// The same test with the opposite result.
    #[must_use]
    pub const fn negated(mut self) -> Instruction {
        self.command ^= NEG;
        self
    }

    /// Sets flags of the command word ([`EITHER`], [`SHORT`]).
    #[must_use]
    pub const fn with_flags(mut self, flags: u32) -> Instruction {
        self.command |= flags;
        self
    }

    /// Sets a parameter that precedes the operands: a mask, a distance, a prefix length.
    #[must_use]
    pub const fn with_param(mut self, index: usize, value: u32) -> Instruction {
        self.params[index] = value;
        self
    }

    /// Sets the offset of the IPv4 header after which the place of an L1 or L2 instruction is.
    #[must_use]
    pub const fn behind_ipv4(mut self, header: u16) -> Instruction {
        if let Some(opcode) = self.opcode() {
            match opcode.form().addressing {
                Addressing::L1 => self.params[PARAMS - 1] = header_word(header),
                Addressing::L2 => self.params[PARAMS - 2] = header_word(header),
                Addressing::None | Addressing::Direct => {}
            }
        }
        self
    }

    /// Sets, for an L2 instruction, the offset within the second header of the byte with that header's length in its
    /// high nibble (12 for TCP).
    #[must_use]
    pub const fn second_length_at(mut self, field: u16) -> Instruction {
        self.params[PARAMS - 1] = header_word(field);
        self
    }

    /// Replaces the operands. They are given as they are stored: one element for a 16-bit value or 16-bit interval, one
    /// for a word, two for an interval of words or a masked word.
    pub fn with_operands(mut self, operands: &[u32]) -> Result<Instruction, InstructionError> {
        let (opcode, form) = self.known_form()?;
        let words_each = form.operands.words_each();
        let count = (operands.len() / words_each) as u32;
        if operands.len() > usize::from(form.capacity) * words_each {
            let limit = u32::from(form.capacity);
            return Err(InstructionError::OperandsFull { opcode, given: count, limit });
        }
        let first = usize::from(form.first_operand);
        let room = if form.operands.is_half() {
            usize::from(form.capacity).div_ceil(2)
        } else {
            usize::from(form.capacity) * words_each
        };
        self.params[first..first + room].fill(0);
        for (index, &operand) in operands.iter().enumerate() {
            if form.operands.is_half() {
                check_width(operand, 0xffff)?;
                self.params[first + index / 2] |= operand << (16 * (index % 2));
            } else {
                self.params[first + index] = operand;
            }
        }
        self.command = self.command & !(COUNT_MASK << COUNT_SHIFT) | count << COUNT_SHIFT;
        Ok(self)
    }

    /// The operands as they are stored, see [`Instruction::with_operands`]; empty when the opcode is unknown.
    pub fn operands(&self) -> Vec<u32> {
        let Some(opcode) = self.opcode() else { return Vec::new() };
        let form = opcode.form();
        let first = usize::from(form.first_operand);
        let count = self.count().min(u32::from(form.capacity)) as usize;
        (0..count * form.operands.words_each())
            .map(|index| {
                if form.operands.is_half() {
                    self.params[first + index / 2] >> (16 * (index % 2)) & 0xffff
                } else {
                    self.params[first + index]
                }
            })
            .collect()
    }

    /// Adds an alternative; does nothing if it is already there. The list stays sorted.
    pub fn add_operand(&mut self, value: u32) -> Result<(), InstructionError> {
        let mut operands = self.operand_list()?;
        if let Err(place) = operands.binary_search(&value) {
            operands.insert(place, value);
        }
        *self = self.with_operands(&operands)?;
        Ok(())
    }

    /// Removes an alternative. An instruction without alternatives is false (with `NEG`: true).
    pub fn remove_operand(&mut self, value: u32) -> Result<(), InstructionError> {
        let mut operands = self.operand_list()?;
        let place = operands
            .binary_search(&value)
            .map_err(|_| InstructionError::OperandAbsent { given: value })?;
        operands.remove(place);
        *self = self.with_operands(&operands)?;
        Ok(())
    }

    /// Checks that the bits are an instruction. References to sets and conditions are not followed.
    pub fn validate(&self) -> Result<(), InstructionError> {
        let (opcode, form) = self.known_form()?;
        let foreign = self.command & (EITHER | SHORT | RESERVED) & !form.flags;
        if foreign != 0 {
            return Err(InstructionError::Flags { opcode, given: foreign });
        }
        self.validate_count(opcode, form)?;
        self.validate_used(opcode, form)?;
        self.validate_addressing(form)?;
        self.validate_values(opcode, form)
    }

    /// The mask that precedes the operands, or all bits if the opcode has none.
    pub(crate) fn mask(&self, opcode: Opcode) -> u32 {
        use Opcode as P;
        match opcode {
            P::DSmeq | P::L1Smeq => self.params[0] & 0xffff,
            P::DMeq | P::L1Meq | P::DDmeq | P::MetaMeq => self.params[0],
            P::DSet | P::L1Set | P::DPmeq | P::DMrng | P::L1Mrng => self.params[0],
            _ if self.is_wide(opcode) => u32::MAX,
            _ => 0xffff,
        }
    }

    /// True if the tested place is 32 bits wide (otherwise 16).
    pub(crate) fn is_wide(&self, opcode: Opcode) -> bool {
        use Opcode as P;
        match opcode {
            P::DSeq | P::DSmeq | P::DSrng | P::L1Seq | P::L1Smeq | P::L1Srng => false,
            P::L2Seq | P::L2Srng | P::L1Sseq | P::L1Eseq => false,
            P::DSet | P::L1Set | P::DPmeq | P::DMrng | P::L1Mrng => !self.is_short(),
            _ => true,
        }
    }

    /// The addressing word of L1 and L2 instructions, as the header's offset.
    pub(crate) fn header(&self, form: Form) -> u16 {
        match form.addressing {
            Addressing::L2 => self.params[PARAMS - 2] as u16,
            _ => self.params[PARAMS - 1] as u16,
        }
    }

    fn known_form(&self) -> Result<(Opcode, Form), InstructionError> {
        let given = self.command & OPCODE_MASK;
        let opcode = self.opcode().ok_or(InstructionError::UnknownOpcode { given })?;
        Ok((opcode, opcode.form()))
    }

    fn operand_list(&self) -> Result<Vec<u32>, InstructionError> {
        let (opcode, form) = self.known_form()?;
        if !matches!(form.operands, Operands::Any16 | Operands::Any32) {
            return Err(InstructionError::NoOperandList { opcode });
        }
        let mut operands = self.operands();
        operands.sort_unstable();
        operands.dedup();
        Ok(operands)
    }

    fn validate_count(&self, opcode: Opcode, form: Form) -> Result<(), InstructionError> {
        let (given, limit) = (self.count(), u32::from(form.capacity));
        if given > limit {
            return Err(InstructionError::OperandsFull { opcode, given, limit });
        }
        let fixed = matches!(opcode, Opcode::DBmeq | Opcode::L1Sseq)
            || matches!(form.operands, Operands::Reference | Operands::Address);
        let one_or_more = matches!(form.operands, Operands::Masked32 | Operands::All32);
        if fixed && given != limit {
            return Err(InstructionError::OperandCount { opcode, given, expected: limit });
        }
        if one_or_more && given == 0 {
            return Err(InstructionError::OperandCount { opcode, given, expected: 1 });
        }
        Ok(())
    }

    fn validate_used(&self, opcode: Opcode, form: Form) -> Result<(), InstructionError> {
        let first = usize::from(form.first_operand);
        let words = match form.operands {
            Operands::Any16 | Operands::All16 => self.count().div_ceil(2),
            Operands::Address => 4,
            _ => self.count() * form.operands.words_each() as u32,
        } as usize;
        let end = match form.addressing {
            Addressing::None | Addressing::Direct => PARAMS,
            Addressing::L1 => PARAMS - 1,
            Addressing::L2 => PARAMS - 2,
        };
        for index in first + words..end {
            if self.params[index] != 0 {
                let given = self.params[index];
                return Err(InstructionError::UnusedParameter { opcode, index, given });
            }
        }
        let odd_half = matches!(form.operands, Operands::Any16) && self.count() % 2 == 1;
        let last = first + words.saturating_sub(1);
        if odd_half && self.params[last] >> 16 != 0 {
            let given = self.params[last];
            return Err(InstructionError::UnusedParameter { opcode, index: last, given });
        }
        Ok(())
    }

    fn validate_addressing(&self, form: Form) -> Result<(), InstructionError> {
        let words: &[usize] = match form.addressing {
            Addressing::None | Addressing::Direct => &[],
            Addressing::L1 => &[PARAMS - 1],
            Addressing::L2 => &[PARAMS - 2, PARAMS - 1],
        };
        for &word in words {
            let given = self.params[word] >> HEADER_KIND_SHIFT;
            if given != HEADER_IPV4 {
                return Err(InstructionError::HeaderKind { given });
            }
        }
        Ok(())
    }

    fn validate_values(&self, opcode: Opcode, form: Form) -> Result<(), InstructionError> {
        use Opcode as P;
        if matches!(opcode, P::DSmeq | P::L1Smeq) || (self.is_short() && form.first_operand > 0) {
            check_width(self.params[0], 0xffff)?;
        }
        if matches!(opcode, P::DSet | P::L1Set | P::DSet6 | P::DPmeq | P::DAddr6) {
            check_width(self.params[1], 0xffff)?;
        }
        if matches!(opcode, P::DSet6 | P::DAddr6) {
            check_width(self.params[0], 128)?;
        }
        if opcode == P::MetaMeq {
            check_width(u32::from(self.offset()), u32::from(META_IFINDEX))?;
        }
        let operands = self.operands();
        match form.operands {
            Operands::Interval16 => {
                operands.iter().try_for_each(|word| check_interval(word & 0xffff, word >> 16))
            }
            Operands::Interval32 => {
                operands.chunks(2).try_for_each(|pair| check_interval(pair[0], pair[1]))
            }
            _ => Ok(()),
        }
    }
}

impl Operands {
    /// Elements of [`Instruction::operands`] that one operand takes.
    pub(crate) const fn words_each(self) -> usize {
        match self {
            Operands::Interval32 | Operands::Masked32 => 2,
            Operands::Address => 4,
            _ => 1,
        }
    }

    const fn is_half(self) -> bool {
        matches!(self, Operands::Any16 | Operands::All16)
    }
}

fn check_width(given: u32, limit: u32) -> Result<(), InstructionError> {
    if given > limit { Err(InstructionError::TooWide { given, limit }) } else { Ok(()) }
}

fn check_interval(low: u32, high: u32) -> Result<(), InstructionError> {
    if low > high { Err(InstructionError::EmptyInterval { low, high }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_fill_up_to_twelve_and_come_out_again() {
        let mut ports = Instruction::new(Opcode::L1Eseq, 0).behind_ipv4(14);
        for port in (1..=12).rev() {
            ports.add_operand(port).unwrap();
        }
        ports.add_operand(7).unwrap();
        assert_eq!(ports.operands(), (1..=12).collect::<Vec<_>>());
        let full = InstructionError::OperandsFull { opcode: Opcode::L1Eseq, given: 13, limit: 12 };
        assert_eq!(ports.add_operand(13), Err(full));
        ports.remove_operand(4).unwrap();
        assert_eq!(ports.remove_operand(4), Err(InstructionError::OperandAbsent { given: 4 }));
        assert_eq!(ports.count(), 11);
        assert_eq!(ports.validate(), Ok(()));
        assert_eq!(ports.params[6], 14);
    }

    #[test]
    fn adding_and_removing_in_any_order_gives_the_same_bits() {
        let build = |values: &[u32]| {
            let mut addresses = Instruction::new(Opcode::DEq, 26);
            values.iter().for_each(|&value| addresses.add_operand(value).unwrap());
            addresses
        };
        assert_eq!(build(&[5, 9, 1]), build(&[9, 1, 5]));
    }

    #[test]
    fn bad_bits_are_refused_with_their_value() {
        let check = |command: u32, params: [u32; 7]| Instruction { command, params }.validate();
        assert_eq!(check(0x7e, [0; 7]), Err(InstructionError::UnknownOpcode { given: 0x7e }));
        let full = InstructionError::OperandsFull { opcode: Opcode::DEq, given: 9, limit: 7 };
        assert_eq!(check(0x01 | 9 << 8, [0; 7]), Err(full));
        let flags = InstructionError::Flags { opcode: Opcode::DEq, given: EITHER };
        assert_eq!(check(0x01 | 1 << 8 | EITHER, [0; 7]), Err(flags));
        let unused = InstructionError::UnusedParameter { opcode: Opcode::DEq, index: 2, given: 7 };
        assert_eq!(check(0x01 | 1 << 8, [1, 0, 7, 0, 0, 0, 0]), Err(unused));
        let empty = InstructionError::EmptyInterval { low: 9, high: 3 };
        assert_eq!(check(0x06 | 1 << 8, [3 << 16 | 9, 0, 0, 0, 0, 0, 0]), Err(empty));
        let kind = InstructionError::HeaderKind { given: 1 };
        assert_eq!(check(0x0a | 1 << 8, [80, 0, 0, 0, 0, 0, 1 << 16]), Err(kind));
    }
}
