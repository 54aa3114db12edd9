//! Generated code for the tests of passes: loads, comparisons, look-ups.
//!
//! Loaded values stay in network order, and operands are byte-swapped at generation; only intervals and keys are
//! converted to numbers. Registers 0 to 5 and 8 are free here.

use super::{L1, OP_ROWS, VALUES, Writer};
use crate::ebpf::{Alu, Label, R0, R1, R2, R3, R4, R5, R7, R8, R10, Register, When, Width};
use crate::facts::{count, distance, is_wide};
use crate::layout::{
    BUCKET_ROWS, BUCKETS, HINT_FIRST_SHIFT, HINT_HASH, HINT_SECOND_SHIFT, PART_EITHER, PART_L1,
    PART_OFFSET_MASK, PART_PRESENT, PART_WIDE, ROW_FIRST_SHIFT, ROW_HASH, ROW_SECOND_SHIFT,
    ROW_TABLE_SHIFT, ROW_VALUE_SHIFT,
};
use crate::sys::{HINTS_AT, MORE_AT};
use fyke_pass::layout::{Addressing, NEG, OFFSET_SHIFT, OPCODE_MASK, Operands};
use fyke_pass::{Instruction, Opcode};

impl Writer<'_> {
    /// Continues if the test holds; goes to `fails` otherwise.
    pub(super) fn test(&mut self, one: &Instruction, fails: Label) {
        let holds = self.asm.label();
        // NEG exchanges the two.
        let negated = one.command & NEG != 0;
        let (yes, no) = if negated { (fails, holds) } else { (holds, fails) };
        let base = match one.opcode().map(|opcode| opcode.form().addressing) {
            Some(Addressing::L1) => L1,
            _ => 0,
        };
        let at = base + (one.command >> OFFSET_SHIFT);
        match one.opcode() {
            None if one.command & OPCODE_MASK == OP_ROWS => self.rows(one, yes, no),
            // `choose` admits no other instruction.
            None | Some(Opcode::Nop) => self.asm.jump(yes),
            Some(Opcode::LenRng) => {
                self.asm.alu_register(Alu::Mov, R1, R7);
                self.intervals(one, Opcode::LenRng, &[R1], yes, no);
            }
            Some(opcode @ (Opcode::DSet | Opcode::L1Set)) => self.set(one, opcode, at, yes, no),
            Some(opcode) => match opcode.form().operands {
                Operands::Masked32 | Operands::All32 | Operands::All16 => {
                    self.run(one, opcode, at, yes, no);
                }
                _ => self.any(one, opcode, at, yes, no),
            },
        }
        self.asm.bind(holds);
    }

    /// Loads 16 or 32 bits in network order.
    fn load(&mut self, at: u32, wide: bool, to: Register) {
        let whole = if wide { Width::Word } else { Width::Half };
        let Some((base, place)) = self.bytes.place(at) else {
            self.asm.packet_at(whole, at);
            // The packet load has already converted it to a number.
            self.asm.from_network(R0, if wide { 32 } else { 16 });
            return self.asm.alu_register(Alu::Mov, to, R0);
        };
        if base != R10 {
            return self.asm.load(whole, to, base, place);
        }
        // In aligned pieces, because the verifier requires aligned reads of the stack.
        let (width, step, pieces) = match (wide, place % 4) {
            (true, 0) => (Width::Word, 4, 1),
            (true, 2 | -2) => (Width::Half, 2, 2),
            (true, _) => (Width::Byte, 1, 4),
            (false, 0 | 2 | -2) => (Width::Half, 2, 1),
            (false, _) => (Width::Byte, 1, 2),
        };
        self.asm.load(width, to, base, place);
        for piece in 1..pieces {
            self.asm.load(width, R0, base, place + step * piece);
            self.asm.alu(Alu::Shl, R0, (8 * step * piece) as u32);
            self.asm.alu_register(Alu::Or, to, R0);
        }
    }

    /// Loads two adjacent words into `R1` and `R2` by one load, if each load checks its address; otherwise returns
    /// false.
    fn load_both(&mut self, at: u32, wide: bool) -> bool {
        let (width, bits) = if wide { (Width::Double, 32) } else { (Width::Word, 16) };
        match self.bytes.place(at) {
            Some((base, place)) if base != R10 => self.asm.load(width, R2, base, place),
            _ => return false,
        }
        // The lowest bytes of the register are the first ones in memory.
        self.asm.alu_register(Alu::Mov, R1, R2);
        if !wide {
            self.asm.alu(Alu::And, R1, 0xffff);
        }
        self.asm.alu64(Alu::Shr, R2, bits);
        true
    }

    /// Tests a run of words, all of which must match.
    fn run(&mut self, one: &Instruction, opcode: Opcode, at: u32, yes: Label, no: Label) {
        let kind = opcode.form().operands;
        let wide = kind != Operands::All16;
        for index in 0..count(one) {
            let (want, mask) = match kind {
                Operands::Masked32 => (one.params[2 * index], one.params[2 * index + 1]),
                Operands::All32 => (one.params[index], u32::MAX),
                _ => (one.params[index / 2] >> (16 * (index % 2)) & 0xffff, 0xffff),
            };
            let at = at + index as u32 * if wide { 4 } else { 2 };
            match (wide, mask) {
                (_, 0) => {}
                // Half of the word is enough, and is aligned even if the word is not.
                (true, mask) if mask & 0xffff == 0 => {
                    self.must_be(at, false, want >> 16, mask >> 16, no);
                }
                (true, mask) if mask >> 16 == 0 => {
                    self.must_be(at + 2, false, want & 0xffff, mask, no);
                }
                _ => self.must_be(at, wide, want, mask, no),
            }
        }
        self.asm.jump(yes);
    }

    fn must_be(&mut self, at: u32, wide: bool, want: u32, mask: u32, no: Label) {
        self.load(at, wide, R1);
        self.mask(R1, wide, mask);
        self.asm.jump_when(R1, When::NotEqual, in_memory(want & mask, wide), no);
    }

    fn mask(&mut self, register: Register, wide: bool, mask: u32) {
        let all = if wide { u32::MAX } else { 0xffff };
        if mask & all != all {
            self.asm.alu(Alu::And, register, in_memory(mask & all, wide));
        }
    }

    /// Tests one or two words, either of which may have any of the values.
    fn any(&mut self, one: &Instruction, opcode: Opcode, at: u32, yes: Label, no: Label) {
        let (wide, form) = (is_wide(one, opcode), opcode.form());
        let all = if wide { u32::MAX } else { 0xffff };
        let mask = if form.first_operand > 0 { one.params[0] & all } else { all };
        let distance = distance(one, opcode);
        let places: &[Register] = if distance > 0 { &[R1, R2] } else { &[R1] };
        if distance == if wide { 4 } else { 2 } && self.load_both(at, wide) {
            places.iter().for_each(|&register| self.mask(register, wide, mask));
        } else {
            for (&register, at) in places.iter().zip([at, at + distance]) {
                self.load(at, wide, register);
                self.mask(register, wide, mask);
            }
        }
        match form.operands {
            Operands::Interval16 | Operands::Interval32 => {
                for &register in places {
                    self.asm.from_network(register, if wide { 32 } else { 16 });
                }
                self.intervals(one, opcode, places, yes, no);
            }
            kind => {
                let first = usize::from(form.first_operand);
                let operands: Vec<u32> = (0..count(one))
                    .map(|index| match kind {
                        Operands::Any16 => {
                            one.params[first + index / 2] >> (16 * (index % 2)) & 0xffff
                        }
                        _ => one.params[first + index],
                    })
                    .collect();
                for operand in operands {
                    for &register in places {
                        let value = in_memory(operand & mask, wide);
                        self.asm.jump_when(register, When::Equal, value, yes);
                    }
                }
                self.asm.jump(no);
            }
        }
    }

    /// Tests numbers in registers, any of which may be in any of the intervals.
    fn intervals(
        &mut self,
        one: &Instruction,
        opcode: Opcode,
        places: &[Register],
        yes: Label,
        no: Label,
    ) {
        let form = opcode.form();
        let first = usize::from(form.first_operand);
        for index in 0..count(one) {
            let (low, high) = match form.operands {
                Operands::Interval16 => {
                    let both = one.params[first + index];
                    (both & 0xffff, both >> 16)
                }
                _ => (one.params[first + 2 * index], one.params[first + 2 * index + 1]),
            };
            for &register in places {
                let other = self.asm.label();
                self.asm.jump_when(register, When::Less, low, other);
                self.asm.jump_when(register, When::AtMost, high, yes);
                self.asm.bind(other);
            }
        }
        self.asm.jump(no);
    }

    /// Tests one or two words, either of which may be a member of a set.
    fn set(&mut self, one: &Instruction, opcode: Opcode, at: u32, yes: Label, no: Label) {
        let wide = is_wide(one, opcode);
        let mask = one.params[0] & if wide { u32::MAX } else { 0xffff };
        let distance = distance(one, opcode);
        let places: &[u32] = if distance > 0 { &[at, at + distance] } else { &[at] };
        for (index, &at) in places.iter().enumerate() {
            self.value(at, wide, mask, index);
        }
        for index in 0..places.len() {
            self.look_up(one.params[2], index, &[], yes);
        }
        self.asm.jump(no);
    }

    /// Tests a collapsed shape: one or two words for the upper part of the key, and for its lower part.
    fn rows(&mut self, one: &Instruction, yes: Label, no: Label) {
        let mut parts = [0, 0];
        for (part, first) in [(0, 1), (1, 3)] {
            let place = one.params[first];
            if part == 1 && place & PART_PRESENT == 0 {
                continue;
            }
            let wide = place & PART_WIDE != 0;
            let at = if place & PART_L1 != 0 { L1 } else { 0 } + (place & PART_OFFSET_MASK);
            let step = if wide { 4 } else { 2 };
            parts[part] = if place & PART_EITHER != 0 { 2 } else { 1 };
            for index in 0..parts[part] {
                let mask = one.params[first + 1];
                self.value(at + step * index as u32, wide, mask, 2 * part + index);
            }
        }
        let ends: &[usize] = match parts[1] {
            0 => &[],
            1 => &[2],
            _ => &[2, 3],
        };
        for begin in 0..parts[0] {
            self.look_up(one.params[0], begin, ends, yes);
        }
        self.asm.jump(no);
    }

    /// Loads a number and stores it as one of the four values of a key.
    fn value(&mut self, at: u32, wide: bool, mask: u32, index: usize) {
        self.load(at, wide, R1);
        self.asm.from_network(R1, if wide { 32 } else { 16 });
        self.asm.alu(Alu::And, R1, mask);
        self.asm.store_register(Width::Double, R10, place_of(index), R1);
    }

    /// Looks up the keys of one upper part with any of the lower parts (with 0 if there are none); goes to `found` if
    /// one is a row.
    fn look_up(&mut self, table: u32, begin: usize, ends: &[usize], found: Label) {
        let table = u64::from(table & 0xffff) << ROW_TABLE_SHIFT;
        self.beginning(table, begin);
        self.hash(R0);
        self.asm.alu64(Alu::Shr, R0, ROW_FIRST_SHIFT as i32);
        self.asm.alu64(Alu::Shl, R0, 3);
        self.asm.map_value(R8, self.maps.rows, HINTS_AT as u32);
        self.asm.alu64_register(Alu::Add, R8, R0);
        self.asm.load(Width::Double, R8, R8, 0);
        let ends: Vec<Option<usize>> =
            if ends.is_empty() { vec![None] } else { ends.iter().copied().map(Some).collect() };
        for end in ends {
            let absent = self.asm.label();
            match end {
                None => self.asm.alu(Alu::Mov, R1, 0),
                Some(end) => self.asm.load(Width::Double, R1, R10, place_of(end)),
            }
            self.asm.alu(Alu::Mul, R1, HINT_HASH);
            self.asm.alu_register(Alu::Mov, R2, R1);
            self.asm.alu(Alu::Shr, R1, HINT_FIRST_SHIFT);
            self.asm.alu(Alu::Shr, R2, HINT_SECOND_SHIFT);
            self.asm.alu(Alu::And, R2, 63);
            self.asm.alu64_register(Alu::Mov, R3, R8);
            self.asm.alu64_register(Alu::Shr, R3, R1);
            self.asm.alu64_register(Alu::Mov, R4, R8);
            self.asm.alu64_register(Alu::Shr, R4, R2);
            self.asm.alu64_register(Alu::And, R3, R4);
            self.asm.alu(Alu::And, R3, 1);
            self.asm.jump_when(R3, When::Equal, 0, absent);
            self.beginning(table, begin);
            if let Some(end) = end {
                self.asm.load(Width::Double, R1, R10, place_of(end));
                self.asm.alu64_register(Alu::Or, R0, R1);
            }
            self.is_row(found);
            self.asm.bind(absent);
        }
    }

    /// `R0 =` the row of the key with a value as upper part and 0 as lower part.
    fn beginning(&mut self, table: u64, begin: usize) {
        self.asm.load(Width::Double, R0, R10, place_of(begin));
        self.asm.alu64(Alu::Shl, R0, ROW_VALUE_SHIFT as i32);
        self.asm.number(R1, table);
        self.asm.alu64_register(Alu::Or, R0, R1);
    }

    /// Goes to `found` if the row in `R0` is in one of its buckets.
    fn is_row(&mut self, found: Label) {
        self.asm.alu64_register(Alu::Mov, R2, R0);
        self.hash(R2);
        for (shift, mask) in [(ROW_FIRST_SHIFT, false), (ROW_SECOND_SHIFT, true)] {
            self.asm.alu64_register(Alu::Mov, R1, R2);
            self.asm.alu64(Alu::Shr, R1, shift as i32);
            if mask {
                self.asm.alu64(Alu::And, R1, BUCKETS as i32 - 1);
            }
            self.asm.alu64(Alu::Shl, R1, (BUCKET_ROWS * 8).trailing_zeros() as i32);
            self.asm.map_value(R3, self.maps.rows, 0);
            self.asm.alu64_register(Alu::Add, R3, R1);
            for row in 0..BUCKET_ROWS {
                self.asm.load(Width::Double, R4, R3, 8 * row as i16);
                self.asm.jump_when_register64(R4, When::Equal, R0, found);
            }
        }
        // The row may be in the hash map, if the map has any rows.
        self.asm.map_value(R3, self.maps.rows, MORE_AT as u32);
        self.asm.load(Width::Double, R3, R3, 0);
        self.asm.jump_when64(R3, When::NotEqual, 0, self.everything);
    }

    /// Hashes a row in the register.
    fn hash(&mut self, register: Register) {
        self.asm.number(R5, ROW_HASH);
        self.asm.alu64_register(Alu::Mul, register, R5);
        self.asm.alu64_register(Alu::Mov, R4, register);
        self.asm.alu64(Alu::Shr, R4, 32);
        self.asm.alu64_register(Alu::Xor, register, R4);
        self.asm.alu64_register(Alu::Mul, register, R5);
    }
}

/// A value as it is stored in network order.
fn in_memory(value: u32, wide: bool) -> u32 {
    if wide { value.to_be() } else { u32::from((value as u16).to_be()) }
}

fn place_of(index: usize) -> i16 {
    VALUES + 8 * index as i16
}
