//! Passes and instructions as text, and as plain values for programs.

use crate::isa::id::{Epoch, FilterId, PassId};
use crate::isa::layout::{Addressing, Instruction, META_DIRECTION, Opcode, Operands};
use crate::isa::meaning::{meanings, second_place};
use crate::isa::text::Shown;
use crate::state::published::RowCounts;
use crate::state::{PassRow, State};
use crate::writer::check::members_of;
use fyke_frame::LinkType;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

/// View of a pass.
#[derive(Debug, Clone, Copy)]
pub struct PassView<'a> {
    /// Its number.
    pub id: PassId,
    /// The filter it belongs to; `None` for passes made by hand.
    pub filter: Option<FilterId>,
    /// The pass from which it was duplicated (or that pass's parent, if it was deleted).
    pub parent: Option<PassId>,
    /// Its instructions.
    pub instructions: &'a [Instruction],
    /// Bit n: instruction n was copied from the parent and has not been changed.
    pub copied: u64,
    /// The edit that made it or last changed its instructions.
    pub changed: Epoch,
    row: &'a PassRow,
    state: &'a State,
    rows: &'a dyn RowCounts,
    link: LinkType,
}

impl<'a> PassView<'a> {
    pub(crate) fn new(
        id: PassId,
        row: &'a PassRow,
        state: &'a State,
        rows: &'a dyn RowCounts,
        link: LinkType,
    ) -> Self {
        PassView {
            id,
            filter: row.filter,
            parent: row.parent,
            instructions: &row.body.instructions,
            copied: row.body.copied,
            changed: row.changed,
            row,
            state,
            rows,
            link,
        }
    }

    /// Number of frames that it has accepted.
    pub fn accepted(&self) -> u64 {
        self.row.accepted.load(Ordering::Relaxed) + self.rows.accepted(self.id, self.row.row)
    }

    /// True if it is a row of a table.
    pub fn is_row(&self) -> bool {
        self.row.row.is_some()
    }

    /// Its instructions, described with the sets and conditions that they name.
    pub fn describe(&self) -> impl Iterator<Item = InstructionView> + use<'a> {
        let state = self.state;
        let set_of = |one| members_of(state, one);
        let pass: Vec<_> =
            self.instructions.iter().map(|one| (one, set_of(one).map(|(_, size)| size))).collect();
        let meanings = meanings(self.link, &pass);
        self.instructions.iter().zip(meanings).map(move |(instruction, meaning)| {
            let mut view = InstructionView::new(instruction);
            view.set = set_of(instruction);
            view.meaning = meaning;
            if instruction.opcode() == Some(Opcode::Cond)
                && let Some(condition) = state.conditions.get(instruction.params[0].into())
            {
                view.condition = Some(Shown(condition).to_string());
            }
            view
        })
    }
}

impl fmt::Display for PassView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pass {}", self.id)?;
        if let Some(filter) = self.filter {
            write!(f, " (filter {filter})")?;
        }
        if let Some(parent) = self.parent {
            write!(f, " (child of {parent})")?;
        }
        f.write_str(":")?;
        if self.instructions.is_empty() {
            f.write_str(" every frame")?;
        }
        for (index, instruction) in self.describe().enumerate() {
            write!(f, "{} {instruction}", if index == 0 { "" } else { " and" })?;
        }
        Ok(())
    }
}

/// View of an instruction, as plain values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionView {
    /// Name of the opcode, as the papers write it.
    pub opcode: &'static str,
    /// True if the result is negated.
    pub negated: bool,
    /// Origin of the offset: `frame`, `ipv4 header end at N`, …; empty if there is no place.
    pub base: String,
    /// Offset in bytes.
    pub offset: u16,
    /// Width of the tested words in bits; 0 if there is no place.
    pub bits: u16,
    /// Distance in bytes to a second place, either of which may match; 0 = none.
    pub second: u32,
    /// The mask, if there is one.
    pub mask: Option<u32>,
    /// Operands as they are stored, see [`Instruction::with_operands`].
    pub operands: Vec<u32>,
    /// Number and size of the set that it names.
    pub set: Option<(u32, usize)>,
    /// The condition that it names.
    pub condition: Option<String>,
    /// Its meaning, if its place has a usual name in frames of the set's link type.
    pub meaning: Option<String>,
    instruction: Instruction,
}

impl InstructionView {
    /// Reads the fields of an instruction; sets and conditions stay numbers.
    pub fn new(instruction: &Instruction) -> InstructionView {
        let Some(opcode) = instruction.opcode() else {
            return InstructionView::unknown(instruction);
        };
        let form = opcode.form();
        let header = instruction.header(form);
        let base = match form.addressing {
            Addressing::None => String::new(),
            Addressing::Direct => "frame".to_owned(),
            Addressing::L1 => format!("end of the IPv4 header at {header}"),
            Addressing::L2 => format!(
                "end of the second header after the IPv4 header at {header}, its length at {}",
                instruction.params[6] & 0xffff
            ),
        };
        let wide = instruction.is_wide(opcode);
        let bits = match (form.addressing, opcode) {
            (Addressing::None, _) => 0,
            (_, Opcode::DSet6 | Opcode::DAddr6) => 128,
            _ if wide => 32,
            _ => 16,
        };
        let second = if bits == 0 { 0 } else { second_place(instruction, opcode) };
        let full = if wide { u32::MAX } else { 0xffff };
        let mask = Some(instruction.mask(opcode)).filter(|&mask| bits != 128 && mask != full);
        InstructionView {
            opcode: opcode.name(),
            negated: instruction.is_negated(),
            base,
            offset: instruction.offset(),
            bits,
            second,
            mask,
            operands: instruction.operands(),
            set: None,
            condition: None,
            meaning: None,
            instruction: *instruction,
        }
    }

    fn unknown(instruction: &Instruction) -> InstructionView {
        InstructionView {
            opcode: "?",
            negated: false,
            base: String::new(),
            offset: 0,
            bits: 0,
            second: 0,
            mask: None,
            operands: instruction.params.to_vec(),
            set: None,
            condition: None,
            meaning: None,
            instruction: *instruction,
        }
    }

    /// Index of the byte of a 16-bit word that the mask selects, if it selects only one.
    fn byte(&self) -> Option<u16> {
        match self.mask {
            Some(mask) if self.bits == 16 && mask & 0xff00 == 0 => Some(1),
            Some(mask) if self.bits == 16 && mask & 0x00ff == 0 => Some(0),
            _ => None,
        }
    }

    /// The place in words: its usual name among packet headers, if it has one.
    fn place(&self) -> String {
        let prefix = if self.base == "frame" { "" } else { "ip end+" };
        let row = match self.instruction.opcode().map(|opcode| opcode.form().operands) {
            Some(Operands::All16 | Operands::All32) => self.operands.len(),
            _ => 1,
        };
        let offset = u64::from(self.offset) + u64::from(self.byte().unwrap_or(0));
        let bytes = if self.byte().is_some() { 1 } else { usize::from(self.bits / 8) * row };
        match self.second {
            0 => format!("[{prefix}{offset}:{bytes}]"),
            second => {
                format!("[{prefix}{offset} or {prefix}{}:{bytes}]", offset + u64::from(second))
            }
        }
    }

    fn value(&self, value: u32) -> String {
        // Offsets of IPv4 addresses in Ethernet and raw IP frames; other words are no addresses.
        const ADDRESSES: [u16; 6] = [12, 16, 26, 28, 30, 38];
        let is_prefix = |mask: u32| mask.leading_ones() >= 8 && mask | mask.wrapping_neg() == mask;
        let address = self.base == "frame" && ADDRESSES.contains(&self.offset);
        if let Some(byte) = self.byte() {
            // A value under a partial mask is hexadecimal, like the mask.
            let value = value >> (8 - 8 * byte);
            let full = self.mask == Some(0xff << (8 - 8 * byte));
            if full { value.to_string() } else { format!("{value:#x}") }
        } else if self.bits == 32 && address && self.mask.is_none_or(is_prefix) {
            Ipv4Addr::from(value).to_string()
        } else if self.bits == 32 {
            format!("{value:#010x}")
        } else if self.mask.is_some()
            || (self.bits == 16 && value >= 0x0600 && self.base == "frame" && self.offset < 24)
        {
            format!("{value:#06x}")
        } else {
            value.to_string()
        }
    }

    /// Four bytes each from the place on; words without mask bits are left out.
    fn masked_words(&self) -> String {
        let shown = |(index, p): (usize, &[u32])| match p[1] {
            0 => None,
            u32::MAX => Some(format!("[+{}] {:#010x}", 4 * index, p[0])),
            mask => Some(format!("[+{}] {:#010x} under {mask:#010x}", 4 * index, p[0])),
        };
        let words: Vec<String> = self.operands.chunks(2).enumerate().filter_map(shown).collect();
        words.join(", ")
    }

    fn wire_length(&self, ranges: &[String]) -> String {
        match self.operands[..] {
            [low, u32::MAX] => format!("wire length at least {low}"),
            [0, high] => format!("wire length at most {high}"),
            _ => format!("wire length {}", self.list(ranges)),
        }
    }

    fn metadata(&self) -> String {
        let (field, shown): (_, fn(u32) -> String) = match self.offset {
            META_DIRECTION => ("direction", direction),
            _ => ("ifindex", |index| index.to_string()),
        };
        let values: Vec<String> = self.operands.iter().map(|&value| shown(value)).collect();
        format!("{field} {}", self.list(&values))
    }

    fn list(&self, values: &[String]) -> String {
        match values {
            [value] => format!("= {value}"),
            _ => format!("in {{{}}}", values.join(", ")),
        }
    }
}

impl fmt::Display for InstructionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = self.instruction.opcode();
        let form = opcode.map(Opcode::form);
        if self.negated {
            f.write_str("not ")?;
        }
        if let Some(meaning) = &self.meaning {
            let (open, close) =
                if self.negated && meaning.contains(", ") { ("(", ")") } else { ("", "") };
            return write!(f, "{open}{meaning}{close} ({} {})", self.opcode, self.place());
        }
        let pairs = |join: &str| {
            let pair = |p: &[u32]| format!("{}{join}{}", p[0], p[1]);
            self.operands.chunks(2).map(pair).collect::<Vec<_>>()
        };
        let what = match (opcode, form.map(|form| form.operands)) {
            (Some(Opcode::Nop), _) => "true".to_owned(),
            (Some(Opcode::Cond), _) => {
                let number = self.operands.first().copied().unwrap_or(0);
                self.condition.clone().unwrap_or_else(|| format!("condition {number}"))
            }
            (Some(Opcode::Passes), _) => match self.set {
                Some((_, 1)) => "(the pass holds)".to_owned(),
                Some((_, size)) => format!("(one of {size} passes holds)"),
                None => "(one of the passes of a set holds)".to_owned(),
            },
            (Some(Opcode::LenRng), _) => self.wire_length(&pairs("-")),
            (Some(Opcode::MetaMeq), _) => self.metadata(),
            (Some(Opcode::DAddr6), _) => {
                let value = self.operands.iter().fold(0, |v, &w| v << 32 | u128::from(w));
                let bits = self.instruction.params[0];
                format!("{} = {}/{bits}", self.place(), Ipv6Addr::from(value))
            }
            (Some(_), Some(Operands::Reference)) => match self.set {
                Some((number, size)) => format!("{} in set {number} of {size}", self.place()),
                None => format!("{} in set {}", self.place(), self.instruction.params[2]),
            },
            (Some(_), Some(Operands::Masked32)) => {
                format!("{} = {}", self.place(), self.masked_words())
            }
            (Some(_), Some(Operands::All16 | Operands::All32)) => {
                let digits = usize::from(self.bits / 4);
                let words = self.operands.iter().map(|word| format!("{word:0digits$x}"));
                format!("{} = 0x{}", self.place(), words.collect::<String>())
            }
            (Some(_), Some(Operands::Interval16)) => {
                let pair = |&word: &u32| format!("{}-{}", word & 0xffff, word >> 16);
                let values: Vec<String> = self.operands.iter().map(pair).collect();
                format!("{} {}", self.place(), self.list(&values))
            }
            (Some(_), Some(Operands::Interval32)) => {
                format!("{} {}", self.place(), self.list(&pairs("-")))
            }
            (Some(_), _) => {
                let values: Vec<String> = self.operands.iter().map(|&v| self.value(v)).collect();
                format!("{} {}", self.place(), self.list(&values))
            }
            (None, _) => format!("no instruction: {:#010x}", self.instruction.command),
        };
        f.write_str(&what)?;
        let mask = self.mask.filter(|_| self.bits != 0);
        match (mask, self.byte()) {
            (Some(mask), Some(0)) if mask != 0xff00 => write!(f, " under {:#x}", mask >> 8)?,
            (Some(mask), Some(1)) if mask != 0x00ff => write!(f, " under {mask:#x}")?,
            (Some(mask), None) => write!(f, " under {mask:#x}")?,
            _ => {}
        }
        write!(f, " ({})", self.opcode)
    }
}

/// A direction by its number, with the language's word if it has one.
fn direction(number: u32) -> String {
    match number {
        0 => "unknown".to_owned(),
        1 => "to this host".to_owned(),
        2 => "broadcast".to_owned(),
        3 => "multicast".to_owned(),
        4 => "to another host".to_owned(),
        5 => "outbound".to_owned(),
        other => other.to_string(),
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        InstructionView::new(self).fmt(f)
    }
}
