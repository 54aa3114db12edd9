//! The interpreter of the register machines.
//!
//! A [`Program`] is validated once and decoded into operations of 12 bytes, with targets instead of distances;
//! after that only accesses to the packet are checked. MPF programs also use the sessions of their group and its
//! static memory, through [`Memory`].
//!
//! Cost: one step per instruction, no allocation; the number of steps is at most the length of the program.

use super::ancillary::{self, Extension};
use super::validate::{Facts, ValidateError, key_count, validate};
use super::{Dialect, Instruction, LINK_BASE, SCRATCH_WORDS, code};
use fyke_frame::Frame;

/// Result of a program for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The program rejects the packet.
    Reject,
    /// The packet is for the program's own recipient.
    Accept {
        /// Maximum number of bytes delivered.
        bytes: u32,
    },
    /// The packet is for the recipient found by a match or in the static memory.
    Recipient {
        /// Maximum number of bytes delivered.
        bytes: u32,
        /// The recipient, as returned by [`Memory`].
        who: u32,
    },
    /// The packet is to be processed again later.
    Postpone {
        /// Milliseconds after the packet's arrival at which it is dropped.
        ms: u32,
    },
}

/// Sessions and static memory that an MPF program uses.
pub trait Memory {
    /// Finds the session with these keys.
    fn find(&mut self, keys: &[u32]) -> Option<u32>;
    /// Finds the recipient that registered this data.
    fn recall(&mut self, data: &[u32]) -> Option<u32>;
    /// Registers data for a recipient, for `ms` milliseconds.
    fn register(&mut self, data: &[u32], who: u32, ms: u32);
}

/// Memory of a single program: its own keys, and no static memory.
#[derive(Debug, Clone, Copy)]
pub struct Alone<'a> {
    /// Keys of the match instruction; if empty, nothing matches.
    pub keys: &'a [u32],
}

impl Memory for Alone<'_> {
    fn find(&mut self, keys: &[u32]) -> Option<u32> {
        (keys == self.keys).then_some(0)
    }

    fn recall(&mut self, _: &[u32]) -> Option<u32> {
        None
    }

    fn register(&mut self, _: &[u32], _: u32, _: u32) {}
}

/// A validated program, ready to run.
#[derive(Debug, Clone)]
pub struct Program {
    dialect: Dialect,
    instructions: Vec<Instruction>,
    facts: Facts,
    operations: Box<[Operation]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
}

/// A decoded instruction. Targets are indices of operations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    LoadImmediate(u32),
    LoadWord(u32),
    LoadHalf(u32),
    LoadByte(u32),
    LoadWordAt(u32),
    LoadHalfAt(u32),
    LoadByteAt(u32),
    /// A load from below zero, with its width.
    LoadSpecial {
        offset: u32,
        width: u8,
    },
    LoadExtension(Extension),
    LoadLength,
    LoadScratch(u8),
    IndexImmediate(u32),
    IndexLength,
    IndexScratch(u8),
    IndexHeader(u32),
    Store(u8),
    StoreIndex(u8),
    WithImmediate(Arithmetic, u32),
    WithIndex(Arithmetic),
    Negate,
    Jump(u16),
    Equal {
        k: u32,
        on_true: u16,
        on_false: u16,
    },
    Greater {
        k: u32,
        on_true: u16,
        on_false: u16,
    },
    GreaterEqual {
        k: u32,
        on_true: u16,
        on_false: u16,
    },
    AnyBit {
        k: u32,
        on_true: u16,
        on_false: u16,
    },
    EqualIndex {
        on_true: u16,
        on_false: u16,
    },
    GreaterIndex {
        on_true: u16,
        on_false: u16,
    },
    GreaterEqualIndex {
        on_true: u16,
        on_false: u16,
    },
    AnyBitIndex {
        on_true: u16,
        on_false: u16,
    },
    Return(u32),
    ReturnA,
    ToIndex,
    FromIndex,
    ReturnMatch {
        count: u8,
        bytes: u32,
    },
    ReturnData {
        count: u8,
        bytes: u32,
    },
    JumpMatch {
        count: u8,
        on_true: u16,
        on_false: u16,
    },
    Register {
        count: u8,
        ms: u32,
    },
    Postpone(u32),
    Nothing,
}

impl Program {
    /// Validates and decodes a program.
    ///
    /// # Errors
    /// The reason why the program may not run.
    pub fn new(instructions: Vec<Instruction>, dialect: Dialect) -> Result<Self, ValidateError> {
        let facts = validate(&instructions, dialect)?;
        let operations =
            (instructions.iter().enumerate()).map(|(at, one)| decode(one, at, dialect)).collect();
        Ok(Program { dialect, instructions, facts, operations })
    }

    /// The machine that it is for.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    #[cfg(feature = "jit")]
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The keys of its match instructions; `None` if it has none.
    pub fn keys(&self) -> Option<&[u32]> {
        self.facts.keys.as_deref()
    }

    /// Returns true if it uses the static memory or postpones packets.
    pub fn is_stateful(&self) -> bool {
        self.facts.stateful
    }

    /// Returns true if it has a match and only returns the result: no static memory, no branch on the match.
    pub(crate) fn only_returns_matches(&self) -> bool {
        let branches = |one: &Operation| matches!(one, Operation::JumpMatch { .. });
        self.keys().is_some() && !self.is_stateful() && !self.operations.iter().any(branches)
    }

    /// The program without its keys: programs with the same shape share a group.
    pub fn shape(&self) -> Vec<Instruction> {
        let blank = |one: &Instruction| match one.code {
            code::KEY => Instruction { k: 0, ..*one },
            _ => *one,
        };
        self.instructions.iter().map(blank).collect()
    }

    /// Runs the program alone, without static memory.
    pub fn run(&self, frame: &Frame<'_>) -> Outcome {
        let keys = self.keys().unwrap_or(&[]);
        self.run_with(frame, &mut Alone { keys }, &mut 0)
    }

    /// Runs the program. `random` is the state of the generator for `ld rand`.
    pub fn run_with<M: Memory>(
        &self,
        frame: &Frame<'_>,
        memory: &mut M,
        random: &mut u64,
    ) -> Outcome {
        interpret(&self.operations, frame, memory, random)
    }
}

fn decode(instruction: &Instruction, at: usize, dialect: Dialect) -> Operation {
    use Operation as O;
    let Instruction { code: given, jt, jf, k } = *instruction;
    // The program is validated: targets are at most 4096, scratch words below 16, counts at most 16.
    let here = at as u16 + 1;
    let (on_true, on_false) = (here + u16::from(jt), here + u16::from(jf));
    let offset = match dialect {
        Dialect::Mpf if (LINK_BASE..ancillary::LINK).contains(&k) => k - LINK_BASE,
        _ => k,
    };
    match given {
        code::LD_W_ABS | code::LD_H_ABS | code::LD_B_ABS => absolute(given, offset),
        code::LD_IMM => O::LoadImmediate(k),
        code::LD_W_IND => O::LoadWordAt(offset),
        code::LD_H_IND => O::LoadHalfAt(offset),
        code::LD_B_IND => O::LoadByteAt(offset),
        code::LD_MEM => O::LoadScratch(k as u8),
        code::LD_LEN => O::LoadLength,
        code::LDX_IMM => O::IndexImmediate(k),
        code::LDX_MEM => O::IndexScratch(k as u8),
        code::LDX_LEN => O::IndexLength,
        code::LDX_MSH => O::IndexHeader(offset),
        code::ST => O::Store(k as u8),
        code::STX => O::StoreIndex(k as u8),
        code::NEG => O::Negate,
        code::JA => O::Jump((at as u64 + 1 + u64::from(k)).min(u16::MAX.into()) as u16),
        code::RET_K => O::Return(k),
        code::RET_A => O::ReturnA,
        code::TAX => O::ToIndex,
        code::TXA => O::FromIndex,
        code::RET_MATCH_IMM => O::ReturnMatch { count: jt, bytes: k },
        code::RET_MATCH_DATA => O::ReturnData { count: jt, bytes: k },
        code::JMP_MATCH_IMM => {
            let count = key_count(instruction).unwrap_or_default() as u8;
            O::JumpMatch { count, on_true, on_false }
        }
        code::REGISTER_DATA => O::Register { count: jt, ms: k },
        code::POSTPONE => O::Postpone(k),
        _ if given & 7 == code::ALU => arithmetic(given, k),
        code::JEQ => O::Equal { k, on_true, on_false },
        code::JGT => O::Greater { k, on_true, on_false },
        code::JGE => O::GreaterEqual { k, on_true, on_false },
        code::JSET => O::AnyBit { k, on_true, on_false },
        0x1d => O::EqualIndex { on_true, on_false },
        0x2d => O::GreaterIndex { on_true, on_false },
        0x3d => O::GreaterEqualIndex { on_true, on_false },
        0x4d => O::AnyBitIndex { on_true, on_false },
        _ => O::Nothing,
    }
}

fn absolute(given: u16, offset: u32) -> Operation {
    use Operation as O;
    if let Some(what) = Extension::by_offset(offset) {
        return O::LoadExtension(what);
    }
    let (direct, width) = match given {
        code::LD_W_ABS => (O::LoadWord(offset), 4),
        code::LD_H_ABS => (O::LoadHalf(offset), 2),
        _ => (O::LoadByte(offset), 1),
    };
    if offset >= ancillary::LINK { O::LoadSpecial { offset, width } } else { direct }
}

fn arithmetic(given: u16, k: u32) -> Operation {
    use Arithmetic as A;
    let operation = match given & 0xf0 {
        0x00 => A::Add,
        0x10 => A::Sub,
        0x20 => A::Mul,
        0x30 => A::Div,
        0x40 => A::Or,
        0x50 => A::And,
        0x60 => A::Lsh,
        0x70 => A::Rsh,
        0x90 => A::Mod,
        _ => A::Xor,
    };
    match given & code::X {
        0 => Operation::WithImmediate(operation, k),
        _ => Operation::WithIndex(operation),
    }
}

/// Computes an operation. `None` ends the program: a division by zero. Shifts by 32 or more give 0, as in libpcap.
#[inline]
pub(crate) fn calculate(operation: Arithmetic, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        Arithmetic::Add => a.wrapping_add(b),
        Arithmetic::Sub => a.wrapping_sub(b),
        Arithmetic::Mul => a.wrapping_mul(b),
        Arithmetic::Div => a.checked_div(b)?,
        Arithmetic::Mod => a.checked_rem(b)?,
        Arithmetic::Or => a | b,
        Arithmetic::And => a & b,
        Arithmetic::Xor => a ^ b,
        Arithmetic::Lsh => a.checked_shl(b).unwrap_or(0),
        Arithmetic::Rsh => a.checked_shr(b).unwrap_or(0),
    })
}

#[inline(always)]
fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline(always)]
fn half(data: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?).into())
}

#[inline(always)]
fn byte(data: &[u8], at: usize) -> Option<u32> {
    data.get(at).map(|&byte| byte.into())
}

/// A load from below zero. It is rare, so it is kept out of the hot loop.
#[cold]
pub(crate) fn special(frame: &Frame<'_>, offset: u32, width: u8) -> Option<u32> {
    let at = ancillary::below_zero(frame, offset)?;
    match width {
        4 => word(frame.data, at),
        2 => half(frame.data, at),
        _ => byte(frame.data, at),
    }
}

#[inline(always)]
fn indexed(
    frame: &Frame<'_>,
    at: u32,
    width: u8,
    read: impl Fn(&[u8], usize) -> Option<u32>,
) -> Option<u32> {
    if at >= ancillary::LINK {
        return special(frame, at, width);
    }
    read(frame.data, at as usize)
}

fn interpret<M: Memory>(
    operations: &[Operation],
    frame: &Frame<'_>,
    memory: &mut M,
    random: &mut u64,
) -> Outcome {
    execute(operations, frame, memory, random).unwrap_or(Outcome::Reject)
}

/// Runs the operations. `None`: the program ended by a load outside the packet or a division by zero.
#[allow(clippy::too_many_lines, reason = "one arm an instruction; the loop is the machine")]
fn execute<M: Memory>(
    operations: &[Operation],
    frame: &Frame<'_>,
    memory: &mut M,
    random: &mut u64,
) -> Option<Outcome> {
    use Operation as O;
    let data = frame.data;
    let (mut a, mut x) = (0u32, 0u32);
    let mut scratch = [0u32; SCRATCH_WORDS];
    let mut recipient = None;
    let mut at = 0;
    let choose = |test: bool, on_true: u16, on_false: u16| {
        usize::from(if test { on_true } else { on_false })
    };
    while let Some(&operation) = operations.get(at) {
        at += 1;
        match operation {
            O::LoadHalf(k) => a = half(data, k as usize)?,
            O::LoadWord(k) => a = word(data, k as usize)?,
            O::LoadByte(k) => a = byte(data, k as usize)?,
            O::Equal { k, on_true, on_false } => at = choose(a == k, on_true, on_false),
            O::Greater { k, on_true, on_false } => at = choose(a > k, on_true, on_false),
            O::GreaterEqual { k, on_true, on_false } => at = choose(a >= k, on_true, on_false),
            O::AnyBit { k, on_true, on_false } => at = choose(a & k != 0, on_true, on_false),
            O::EqualIndex { on_true, on_false } => at = choose(a == x, on_true, on_false),
            O::GreaterIndex { on_true, on_false } => at = choose(a > x, on_true, on_false),
            O::GreaterEqualIndex { on_true, on_false } => at = choose(a >= x, on_true, on_false),
            O::AnyBitIndex { on_true, on_false } => at = choose(a & x != 0, on_true, on_false),
            O::Jump(target) => at = target.into(),
            O::LoadImmediate(k) => a = k,
            O::LoadWordAt(k) => a = indexed(frame, x.wrapping_add(k), 4, word)?,
            O::LoadHalfAt(k) => a = indexed(frame, x.wrapping_add(k), 2, half)?,
            O::LoadByteAt(k) => a = indexed(frame, x.wrapping_add(k), 1, byte)?,
            O::LoadSpecial { offset, width } => a = special(frame, offset, width)?,
            O::LoadExtension(what) => a = ancillary::load(what, frame, a, x, random)?,
            O::LoadLength => a = frame.wire_len,
            O::LoadScratch(k) => a = scratch[usize::from(k) % SCRATCH_WORDS],
            O::IndexImmediate(k) => x = k,
            O::IndexLength => x = frame.wire_len,
            O::IndexScratch(k) => x = scratch[usize::from(k) % SCRATCH_WORDS],
            O::IndexHeader(k) => x = 4 * (byte(data, k as usize)? & 0xf),
            O::Store(k) => scratch[usize::from(k) % SCRATCH_WORDS] = a,
            O::StoreIndex(k) => scratch[usize::from(k) % SCRATCH_WORDS] = x,
            O::WithImmediate(operation, k) => a = calculate(operation, a, k)?,
            O::WithIndex(operation) => a = calculate(operation, a, x)?,
            O::Negate => a = a.wrapping_neg(),
            O::ToIndex => x = a,
            O::FromIndex => a = x,
            O::Return(bytes) => return Some(returned(bytes, recipient)),
            O::ReturnA => return Some(returned(a, recipient)),
            O::ReturnMatch { count, bytes } => {
                let keys = &scratch[..usize::from(count).min(SCRATCH_WORDS)];
                return memory.find(keys).map(|who| returned(bytes, Some(who)));
            }
            O::ReturnData { count, bytes } => {
                let keys = &scratch[..usize::from(count).min(SCRATCH_WORDS)];
                if let Some(who) = memory.recall(keys) {
                    return Some(returned(bytes, Some(who)));
                }
            }
            O::JumpMatch { count, on_true, on_false } => {
                let keys = &scratch[..usize::from(count).min(SCRATCH_WORDS)];
                let found = memory.find(keys);
                recipient = found.or(recipient);
                at = choose(found.is_some(), on_true, on_false);
            }
            O::Register { count, ms } => {
                if let Some(who) = recipient {
                    let count = usize::from(count).min(SCRATCH_WORDS);
                    memory.register(&scratch[..count], who, ms);
                }
            }
            O::Postpone(ms) => return Some(Outcome::Postpone { ms }),
            O::Nothing => {}
        }
    }
    None
}

#[inline]
fn returned(bytes: u32, recipient: Option<u32>) -> Outcome {
    match recipient {
        _ if bytes == 0 => Outcome::Reject,
        Some(who) => Outcome::Recipient { bytes, who },
        None => Outcome::Accept { bytes },
    }
}
