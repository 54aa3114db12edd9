//! Byte ranges that an instruction reads, for code that reads or writes instructions.

use fyke_pass::layout::{COUNT_MASK, COUNT_SHIFT, EITHER, Operands, SHORT};
use fyke_pass::{Instruction, Opcode};

/// The operand count of a command word.
pub(crate) fn count(one: &Instruction) -> usize {
    (one.command >> COUNT_SHIFT & COUNT_MASK) as usize
}

/// True if the values that a test reads are 32 bits wide.
pub(crate) fn is_wide(one: &Instruction, opcode: Opcode) -> bool {
    let narrow =
        matches!(opcode.form().operands, Operands::Any16 | Operands::Interval16 | Operands::All16);
    !narrow && one.command & SHORT == 0
}

/// Distance from the first offset of a test to the second; 0 if there is only one.
pub(crate) fn distance(one: &Instruction, opcode: Opcode) -> u32 {
    if opcode.form().first_operand == 2 {
        return one.params[1];
    }
    let adjacent = matches!(opcode, Opcode::DDmeq | Opcode::L1Eseq);
    match one.command & EITHER != 0 || adjacent {
        true if is_wide(one, opcode) => 4,
        true => 2,
        false => 0,
    }
}

/// Number of bytes, from the test's offset, that a test reads, and the number of words it loads.
pub(crate) fn reach(one: &Instruction, opcode: Opcode) -> (u32, u32) {
    let words = count(one) as u32;
    match opcode.form().operands {
        Operands::Masked32 | Operands::All32 => (4 * words, words),
        Operands::All16 => (2 * words, words),
        _ => {
            let width = if is_wide(one, opcode) { 4 } else { 2 };
            let distance = distance(one, opcode);
            (width + distance, if distance > 0 { 2 } else { 1 })
        }
    }
}
