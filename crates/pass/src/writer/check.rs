//! Checks of instructions and of the sets and conditions that they name.

use crate::isa::layout::{Instruction, Opcode};
use crate::state::State;
use crate::writer::error::EditError;

/// Checks an instruction and the set or condition that it names.
pub(crate) fn check(instruction: &Instruction, state: &State) -> Result<(), EditError> {
    instruction.validate()?;
    if let Some(given) = set_of(instruction) {
        let set = state.sets.get(given.into()).ok_or(EditError::NoSet { given })?;
        if set.inner().is_some() != (instruction.opcode() == Some(Opcode::Passes)) {
            return Err(EditError::SetOfPasses { given });
        }
        let addresses = set.holds_addresses();
        if addresses != (instruction.opcode() == Some(Opcode::DSet6)) {
            return Err(EditError::SetKind { given, addresses });
        }
    }
    if instruction.opcode() == Some(Opcode::Cond) {
        let given = instruction.params[0];
        let missing = EditError::NoCondition { given };
        state.conditions.get(given.into()).ok_or(missing)?;
    }
    Ok(())
}

/// The number of the set that an instruction names.
pub(crate) fn set_of(instruction: &Instruction) -> Option<u32> {
    let opcode = instruction.opcode()?;
    let names = matches!(opcode, Opcode::DSet | Opcode::L1Set | Opcode::DSet6 | Opcode::Passes);
    names.then(|| instruction.params[usize::from(opcode.form().first_operand)])
}

/// The number of the set that an instruction names, and its number of members.
pub(crate) fn members_of(state: &State, instruction: &Instruction) -> Option<(u32, usize)> {
    let number = set_of(instruction)?;
    Some((number, state.sets.get(number.into())?.len()))
}
