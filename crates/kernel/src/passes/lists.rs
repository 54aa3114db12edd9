//! The two lists of passes in the shared memory, and the cost per frame of each.

use super::{KernelPassId, NewPass, steps};
use crate::code;
use crate::layout::Control;
use fyke_pass::Instruction;
use std::mem::offset_of;

/// A list of passes. Each frame runs through one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// The list for all other frames.
    Main,
    /// The list for frames that are shorter than some load of the texts.
    Short,
}

impl List {
    /// Byte offset of the word that holds the head of the list.
    pub(super) const fn head(self) -> usize {
        match self {
            List::Main => offset_of!(Control, head),
            List::Short => offset_of!(Control, short_head),
        }
    }
}

/// Replacement of a range of a list.
pub(crate) struct Splice<'w> {
    pub list: List,
    /// The pass before the range; `None` at the start.
    pub after: Option<KernelPassId>,
    pub removed: Vec<KernelPassId>,
    pub added: Vec<NewPass<'w>>,
}

/// First and last pass of a list, and its cost.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ends {
    pub first: Option<KernelPassId>,
    pub last: Option<KernelPassId>,
    pub cost: Cost,
}

/// Work for a frame in the worst case.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cost {
    pub instructions: usize,
    pub code: usize,
}

impl Cost {
    pub fn of(instructions: &[Instruction]) -> Cost {
        let code = instructions.iter().filter(|one| code::of(one).is_some());
        Cost {
            instructions: steps(instructions.len()),
            code: code.filter_map(code::of).map(|code| code.len as usize).sum(),
        }
    }

    pub fn less(self, other: Cost) -> Cost {
        Cost { instructions: self.instructions - other.instructions, code: self.code - other.code }
    }

    pub fn plus(self, other: Cost) -> Cost {
        Cost { instructions: self.instructions + other.instructions, code: self.code + other.code }
    }
}
