//! Filter texts as classic BPF programs in the shared memory, one 64-bit word per instruction.
//!
//! Passes cannot express byte expressions and computed offsets. They also do not keep the order of evaluation, which
//! decides for frames that are shorter than the text's loads. In these cases the text runs in its own order, left to
//! right: [`fyke_filter::bpf`] generates the program and `bpf/code.h` interprets it at about 3 ns per instruction. A
//! program is written into a free range to which no pass refers. It becomes reachable when a pass that refers to it is
//! published, and is never changed.

use crate::error::KernelEditError;
use crate::facts::{distance, is_wide, reach};
use crate::layout::{CODE_LIMIT, CODE_WORDS, COOKED_BYTES, OP_CODE};
use fyke_filter::bpf::{self, LowerError};
use fyke_pass::layout::{Addressing, OPCODE_MASK, Operands};
use fyke_pass::{Instruction, Opcode, Ordered};

/// Most instructions of one text.
pub(crate) const MOST: usize = 4096;
/// Byte ranges of a cooked capture's header that the kernel program can fill in: protocol, interface, direction.
const KNOWN: [(u32, u32); 3] = [(0, 2), (4, 8), (10, 11)];

/// A program in the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub place: u32,
    pub len: u32,
}

impl Code {
    /// The instruction that holds if the program accepts the frame.
    pub fn instruction(self) -> Instruction {
        let mut one = Instruction { command: OP_CODE, ..Instruction::default() };
        (one.params[0], one.params[1]) = (self.place, self.len);
        one
    }
}

/// The program that an instruction runs.
pub(crate) fn of(one: &Instruction) -> Option<Code> {
    let is_code = one.command & OPCODE_MASK == OP_CODE;
    is_code.then_some(Code { place: one.params[0], len: one.params[1].min(CODE_LIMIT) })
}

/// Generates the program of a text. The error is the reason why the text has none.
pub(crate) fn program(ordered: &Ordered<'_>, cooked: bool) -> Result<Vec<u64>, String> {
    let lowered = match ordered.predicate {
        Ok(predicate) => bpf::lower_in_order(predicate),
        Err(condition) => bpf::lower_condition(condition),
    };
    let lowered = lowered.map_err(|error: LowerError| error.to_string())?;
    if lowered.len() > MOST {
        return Err(format!("{} instructions in its own order, at most {MOST}", lowered.len()));
    }
    if cooked && let Some(at) = lowered.iter().find_map(unknown) {
        return Err(not_known(at));
    }
    let word = |one: &bpf::Instruction| {
        u64::from(one.code)
            | u64::from(one.jt) << 16
            | u64::from(one.jf) << 24
            | u64::from(one.k) << 32
    };
    Ok(lowered.iter().map(word).collect())
}

pub(crate) fn not_known(at: u32) -> String {
    format!("the kernel does not know byte {at} of a cooked frame's link header")
}

/// The first byte of a cooked header that the pass's instruction reads and the kernel program cannot fill in.
pub(crate) fn unknown_to(one: &Instruction) -> Option<u32> {
    let opcode = one.opcode().filter(|op| op.form().addressing == Addressing::Direct)?;
    let (form, at) = (opcode.form(), u32::from(one.offset()));
    let looked_at = |at: u32, mask: u32, wide: bool| {
        let mask = if wide { mask } else { mask << 16 };
        (at..).zip(mask.to_be_bytes()).find(|&(at, mask)| mask != 0 && !is_known(at))
    };
    let found = match (form.operands, opcode) {
        (Operands::Masked32, _) => (0..one.count())
            .find_map(|word| looked_at(at + 4 * word, one.params[2 * word as usize + 1], true)),
        (Operands::Address, _) | (_, Opcode::DSet6) => looked_at(at, u32::MAX, true),
        (Operands::All32 | Operands::All16, _) => {
            let all = at..at + reach(one, opcode).0;
            all.map(|at| (at, 0)).find(|(at, _)| !is_known(*at))
        }
        _ => {
            let mask = if form.first_operand > 0 { one.params[0] } else { u32::MAX };
            let places = [at, at + distance(one, opcode)];
            places.into_iter().find_map(|at| looked_at(at, mask, is_wide(one, opcode)))
        }
    };
    found.map(|(at, _)| at)
}

/// True for the bytes of the packet, and for the bytes of the cooked header that can be filled in.
fn is_known(at: u32) -> bool {
    at >= COOKED_BYTES || KNOWN.iter().any(|(from, to)| (*from..*to).contains(&at))
}

/// The first byte of a cooked header that the BPF instruction loads and only a capture file has.
fn unknown(one: &bpf::Instruction) -> Option<u32> {
    const LOAD_AT: [(u16, u32); 3] = [(0x20, 4), (0x28, 2), (0x30, 1)];
    let (_, width) = LOAD_AT.into_iter().find(|(code, _)| *code == one.code)?;
    (one.k..one.k.saturating_add(width)).find(|at| !is_known(*at))
}

/// Allocator of the code memory.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    /// Offset and length of the free ranges, sorted by offset.
    free: Vec<(u32, u32)>,
}

impl Default for CodeMemory {
    fn default() -> Self {
        CodeMemory { free: vec![(0, CODE_WORDS as u32)] }
    }
}

impl CodeMemory {
    /// Length of the longest free range.
    pub fn largest(&self) -> usize {
        self.free.iter().map(|(_, len)| *len as usize).max().unwrap_or(0)
    }

    /// Allocates a range of this length.
    pub fn take(&mut self, len: usize) -> Result<Code, KernelEditError> {
        let full = KernelEditError::CodeFull { given: len, limit: self.largest() };
        let len = u32::try_from(len).map_err(|_| full.clone())?;
        let found = self.free.iter_mut().find(|(_, free)| *free >= len).ok_or(full)?;
        let place = found.0;
        *found = (place + len, found.1 - len);
        self.free.retain(|(_, len)| *len > 0);
        Ok(Code { place, len })
    }

    /// Frees a range.
    pub fn release(&mut self, code: Code) {
        let at = self.free.partition_point(|(place, _)| *place < code.place);
        self.free.insert(at, (code.place, code.len));
        self.free.dedup_by(|next, own| {
            let adjoin = own.0 + own.1 == next.0;
            if adjoin {
                own.1 += next.1;
            }
            adjoin
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_are_found_and_merge() {
        let mut memory = CodeMemory::default();
        let all: Vec<Code> = (1..=40).map(|len| memory.take(len * 10).unwrap()).collect();
        assert!(all.windows(2).all(|two| two[0].place + two[0].len == two[1].place));
        for code in all.iter().step_by(2).chain(all.iter().skip(1).step_by(2)) {
            memory.release(*code);
        }
        assert_eq!((memory.free.len(), memory.largest()), (1, CODE_WORDS));
        let refused = memory.take(CODE_WORDS + 1).unwrap_err();
        assert!(refused.to_string().contains("65537 words wanted, 65536 left"), "{refused}");
    }
}
