//! Collapsed shapes: many passes that differ in one address and one port become one instruction and a table.
//!
//! The key of a row has 48 bits: one word of up to 32 bits and one of 16. Each may be looked up at two adjacent offsets
//! (source or destination), so a frame costs one, two or four look-ups whatever the number of rows. Adding a row is
//! one store ([`crate::rows`]). Source: MPF's collapse, with a tuple space.

use crate::layout::{
    OP_ROWS, PART_EITHER, PART_L1, PART_OFFSET_MASK, PART_PRESENT, PART_WIDE, ROW_VALUE_SHIFT,
};
use crate::rows::TableId;
use fyke_pass::{Instruction, layout};

/// A word of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// Offset in bytes, from the frame or from the end of the IPv4 header.
    pub offset: u16,
    /// True if the offset is relative to the end of the IPv4 header.
    pub behind_ipv4: bool,
    /// True if the adjacent word may match instead, as in "source or destination".
    pub either: bool,
    /// Bits that are compared.
    pub mask: u32,
}

impl Part {
    /// Source or destination address of IPv4 over Ethernet.
    pub const HOST: Part = Part { offset: 26, behind_ipv4: false, either: true, mask: u32::MAX };
    /// Source or destination port after IPv4 over Ethernet.
    pub const PORT: Part = Part { offset: 0, behind_ipv4: true, either: true, mask: 0xffff };

    fn word(self) -> u32 {
        let flag = |set, flag| if set { flag } else { 0 };
        u32::from(self.offset) & PART_OFFSET_MASK
            | flag(self.behind_ipv4, PART_L1)
            | flag(self.either, PART_EITHER)
            | PART_PRESENT
    }
}

/// The instruction that holds if the frame's key is a row of the table. `wide` has 32 bits, `narrow` 16.
pub fn in_table(table: TableId, wide: Part, narrow: Option<Part>, ipv4: u16) -> Instruction {
    look_up(table, wide, true, narrow, ipv4)
}

/// As [`in_table`], with a first word of 32 or 16 bits.
pub(crate) fn look_up(
    table: TableId,
    first: Part,
    wide: bool,
    narrow: Option<Part>,
    ipv4: u16,
) -> Instruction {
    let mut instruction = Instruction { command: OP_ROWS, ..Instruction::default() };
    instruction.params[0] = table.0.into();
    instruction.params[1] = first.word() | if wide { PART_WIDE } else { 0 };
    instruction.params[2] = first.mask;
    if let Some(narrow) = narrow {
        instruction.params[3] = narrow.word();
        instruction.params[4] = narrow.mask & 0xffff;
    }
    instruction.params[layout::PARAMS - 1] = layout::header_word(ipv4);
    instruction
}

/// The key of a row.
pub fn key(wide: u32, narrow: u16) -> u64 {
    u64::from(wide) << ROW_VALUE_SHIFT | u64::from(narrow)
}
