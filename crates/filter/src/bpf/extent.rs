//! Bytes that a program of classic BPF may load: an upper bound for frames in which no load fails.
//!
//! A program jumps only forward, so one walk finds an upper bound of both registers and all memory
//! words at each instruction: a number, or a number more than the length of the IPv4 header at a
//! fixed offset. O(instructions).

use super::Instruction;
use fyke_frame::bpf::code;
use std::collections::BTreeMap;

/// Words of the machine's memory.
const WORDS: usize = 16;
/// Longest IPv4 header.
const HEADER: u32 = 60;
/// Start of Linux's metadata.
const METADATA: u32 = 0xffff_f000;
/// Longest frames that matter; a larger bound is none.
const LONGEST: u32 = 1 << 18;

/// Lengths from which no load of a program is out of bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes from the first byte on.
    pub bytes: u32,
    /// Bytes after IPv4 headers, by the offset of the header.
    pub after_header: BTreeMap<u32, u32>,
}

/// Upper bound of a value: `more`, plus the length of the IPv4 header at `header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    header: Option<u32>,
    more: u32,
}

impl Bound {
    const ANY: Bound = Bound { header: None, more: u32::MAX };

    const fn number(more: u32) -> Bound {
        Bound { header: None, more }
    }

    /// The bound as a number.
    fn whole(self) -> u32 {
        self.more.saturating_add(if self.header.is_some() { HEADER } else { 0 })
    }

    fn either(self, other: Bound) -> Bound {
        match self.header == other.header {
            true => Bound { more: self.more.max(other.more), ..self },
            false => Bound::number(self.whole().max(other.whole())),
        }
    }

    fn and_more(self, other: Bound) -> Bound {
        match (self.header, other.header) {
            (Some(_), Some(_)) => Bound::number(self.whole().saturating_add(other.whole())),
            (header, more) => {
                Bound { header: header.or(more), more: self.more.saturating_add(other.more) }
            }
        }
    }
}

/// Registers and memory before an instruction.
#[derive(Debug, Clone, Copy)]
struct Registers {
    a: Bound,
    x: Bound,
    memory: [Bound; WORDS],
}

impl Registers {
    fn either(&self, other: &Registers) -> Registers {
        Registers {
            a: self.a.either(other.a),
            x: self.x.either(other.x),
            memory: std::array::from_fn(|at| self.memory[at].either(other.memory[at])),
        }
    }
}

impl Extent {
    /// The extent of a program; `None` if it computes a place without a useful bound.
    pub fn of(program: &[Instruction]) -> Option<Extent> {
        let begin = Registers { a: Bound::ANY, x: Bound::ANY, memory: [Bound::ANY; WORDS] };
        let mut states: Vec<Option<Registers>> = vec![None; program.len()];
        *states.first_mut()? = Some(begin);
        let mut extent = Extent::default();
        for (at, one) in program.iter().enumerate() {
            // An instruction that no path reaches loads nothing.
            let Some(mut registers) = states[at] else { continue };
            extent.step(one, &mut registers)?;
            let jumps = match one.code & 7 {
                code::RET => continue,
                code::JMP if one.code & 0xf0 == 0 => [one.k as usize; 2],
                code::JMP => [one.jt.into(), one.jf.into()],
                _ => [0; 2],
            };
            for jump in jumps {
                let next = at.checked_add(jump)?.checked_add(1)?;
                let state = states.get_mut(next)?;
                *state = Some(state.map_or(registers, |other| registers.either(&other)));
            }
        }
        Some(extent)
    }

    /// The larger of two extents.
    pub fn and(mut self, other: &Extent) -> Extent {
        self.bytes = self.bytes.max(other.bytes);
        for (&header, &bytes) in &other.after_header {
            let own = self.after_header.entry(header).or_default();
            *own = bytes.max(*own);
        }
        self
    }

    fn loads(&mut self, place: Bound, width: u32) -> Option<()> {
        let end = place.more.checked_add(width).filter(|end| *end <= LONGEST)?;
        match place.header {
            None => self.bytes = self.bytes.max(end),
            Some(header) => {
                let own = self.after_header.entry(header).or_default();
                *own = end.max(*own);
            }
        }
        Some(())
    }

    fn step(&mut self, one: &Instruction, registers: &mut Registers) -> Option<()> {
        let number = Bound::number(one.k);
        let word = one.k as usize % WORDS;
        match one.code & 7 {
            code::LD => registers.a = self.load(one, registers)?,
            code::LDX => {
                registers.x = match one.code & 0xe0 {
                    code::MSH => {
                        self.loads(number, 1)?;
                        Bound { header: Some(one.k), more: 0 }
                    }
                    code::MEM => registers.memory[word],
                    code::IMM => number,
                    _ => Bound::ANY,
                };
            }
            code::ST => registers.memory[word] = registers.a,
            code::STX => registers.memory[word] = registers.x,
            code::ALU => {
                let operand = if one.code & code::X == 0 { number } else { registers.x };
                let known = one.code & code::X == 0;
                registers.a = computed(one.code & 0xf0, registers.a, operand, known);
            }
            code::MISC if one.code & 0x80 == 0 => registers.x = registers.a,
            code::MISC => registers.a = registers.x,
            _ => {}
        }
        Some(())
    }

    fn load(&mut self, one: &Instruction, registers: &Registers) -> Option<Bound> {
        let width = match one.code & 0x18 {
            code::B => 1,
            code::H => 2,
            _ => 4,
        };
        let loaded = Bound::number(u32::MAX >> (32 - 8 * width));
        match one.code & 0xe0 {
            code::ABS if one.k >= METADATA => Some(Bound::ANY),
            code::ABS => self.loads(Bound::number(one.k), width).map(|()| loaded),
            code::IND => {
                let place = registers.x.and_more(Bound::number(one.k));
                self.loads(place, width).map(|()| loaded)
            }
            code::MEM => Some(registers.memory[one.k as usize % WORDS]),
            code::IMM => Some(Bound::number(one.k)),
            _ => Some(Bound::ANY),
        }
    }
}

/// Bound of a computation; `known` if the operand is a number.
fn computed(operation: u16, a: Bound, operand: Bound, known: bool) -> Bound {
    let (left, right) = (a.whole(), operand.whole());
    let number = operand.more;
    match operation {
        code::ADD => a.and_more(operand),
        code::AND => Bound::number(left.min(right)),
        // The bits of both.
        code::OR | code::XOR => {
            let bits = left.max(right);
            Bound::number(u32::MAX.checked_shr(bits.leading_zeros()).unwrap_or(0))
        }
        code::MUL => Bound::number(left.saturating_mul(right)),
        code::LSH if known => {
            let shifted = u64::from(left).checked_shl(number).unwrap_or(u64::MAX);
            Bound::number(u32::try_from(shifted).unwrap_or(u32::MAX))
        }
        code::RSH if known => Bound::number(left.checked_shr(number).unwrap_or(0)),
        code::DIV if known => Bound::number(left / number.max(1)),
        code::RSH | code::DIV | code::MOD => Bound::number(left),
        _ => Bound::ANY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, compile};

    fn of(text: &str) -> Option<Extent> {
        let predicate = compile(text, &Options { live: true, ..Options::default() }).unwrap();
        Extent::of(&super::super::lower(&predicate, 1).unwrap())
    }

    fn extent(bytes: u32, after: &[(u32, u32)]) -> Option<Extent> {
        Some(Extent { bytes, after_header: after.iter().copied().collect() })
    }

    #[test]
    fn fixed_loads_and_loads_after_a_header_are_bounded() {
        assert_eq!(of("arp"), extent(14, &[]));
        assert_eq!(of("len > 100"), extent(0, &[]));
        // IPv6 ports are at 54 and 56; IPv4 ports 14 and 16 bytes after the header's length.
        assert_eq!(of("udp port 53"), extent(58, &[(14, 18)]));
    }

    #[test]
    fn computed_places_have_a_bound_or_none() {
        // The TCP header's length is at most 60.
        let computed = of("tcp[((tcp[12] & 0xf0) >> 2)] = 1").unwrap();
        assert!(computed.bytes >= 15 && computed.bytes < 200, "{computed:?}");
        assert_eq!(of("ip[ip[2:4]] = 1"), None);
    }

    #[test]
    fn a_value_of_two_paths_has_the_larger_bound() {
        let header = Bound { header: Some(14), more: 3 };
        assert_eq!(header.either(Bound { header: Some(14), more: 5 }).more, 5);
        assert_eq!(header.either(Bound::number(10)), Bound::number(63));
        assert_eq!(header.and_more(header), Bound::number(126));
        assert_eq!(computed(code::OR, Bound::number(5), Bound::number(8), true).more, 15);
        assert_eq!(computed(code::LSH, Bound::number(15), Bound::number(2), true).more, 60);
        assert_eq!(computed(code::LSH, Bound::number(1), Bound::number(40), true).more, u32::MAX);
    }
}
