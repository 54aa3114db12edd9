//! Decoded instructions, as the evaluators use them, and the judgement of one frame.
//!
//! Decoding happens once per distinct instruction and edit, never per frame. A test has one of three results for a
//! frame: true, false, or out of bounds if one of the bytes that it reads is after the captured end. The two halves of
//! an either-test, the words of a masked run and all alternatives count as read: the result does not depend on an order
//! of comparisons. [`Test::could_hold`] is a lenient reading: it names the passes of frames that the ordered evaluator
//! accepted.

use crate::isa::inner::InnerPasses;
use crate::isa::layout::{Addressing, Form, Instruction, META_DIRECTION, Opcode, Operands, PARAMS};
use crate::isa::value_set::ValueSet;
use fyke_frame::condition::OutOfBounds;
use fyke_frame::{Condition, Frame};
use std::sync::Arc;

/// Origin of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Base {
    /// The first captured byte.
    Direct,
    /// The end of the IPv4 header at `header`.
    L1 {
        /// Frame offset of the header.
        header: u16,
    },
    /// The end of a second header, which starts where the IPv4 header at `header` ends.
    L2 {
        /// Frame offset of the first header.
        header: u16,
        /// Offset within the second header of the byte with the header's length in words in its high nibble.
        field: u16,
    },
}

impl Base {
    /// The frame offset of the base.
    pub fn start(self, data: &[u8]) -> Result<usize, OutOfBounds> {
        let byte = |at: usize| data.get(at).copied().ok_or(OutOfBounds);
        match self {
            Base::Direct => Ok(0),
            Base::L1 { header } => {
                Ok(usize::from(header) + 4 * usize::from(byte(header.into())? & 0xf))
            }
            Base::L2 { header, field } => {
                let second = Base::L1 { header }.start(data)?;
                Ok(second + 4 * usize::from(byte(second + usize::from(field))? >> 4))
            }
        }
    }
}

/// A word of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The origin of the offset.
    pub base: Base,
    /// Offset in bytes.
    pub offset: u32,
    /// 2 or 4 bytes.
    pub width: u8,
    /// Bytes of the word that must be in the frame: up to the last one that the mask selects.
    pub needed: u8,
}

impl Place {
    /// The word at `offset` of which `mask` selects the bits.
    pub fn new(base: Base, offset: u32, wide: bool, mask: u32) -> Place {
        let width = if wide { 4 } else { 2 };
        let spare = (mask.trailing_zeros() / 8).min(u32::from(width)) as u8;
        Place { base, offset, width, needed: width - spare }
    }

    /// The same place, `distance` bytes later.
    pub fn moved(self, distance: u32) -> Place {
        Place { offset: self.offset + distance, ..self }
    }

    /// Loads the word; bytes after the frame's end that the mask does not select read as zero.
    pub fn load(&self, data: &[u8]) -> Result<u32, OutOfBounds> {
        self.load_from(data, self.base.start(data)?)
    }

    /// Loads the word from a known base.
    pub fn load_from(&self, data: &[u8], start: usize) -> Result<u32, OutOfBounds> {
        let at = start + self.offset as usize;
        let width = usize::from(self.width);
        let whole = data.get(at..);
        if width == 4 {
            if let Some(word) = whole.and_then(|rest| rest.first_chunk()) {
                return Ok(u32::from_be_bytes(*word));
            }
        } else if let Some(half) = whole.and_then(|rest| rest.first_chunk()) {
            return Ok(u16::from_be_bytes(*half).into());
        }
        if at + usize::from(self.needed) > data.len() {
            return Err(OutOfBounds);
        }
        let byte = |index| u32::from(data.get(at + index).copied().unwrap_or(0));
        Ok((0..width).fold(0, |word, index| word << 8 | byte(index)))
    }
}

/// Values of which one must be equal.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// Operands of the instruction, already masked.
    List(Box<[u32]>),
    /// A set.
    Set(Arc<ValueSet>),
}

impl Values {
    /// Tests if a masked value is one of them.
    pub fn contains(&self, value: u32) -> bool {
        match self {
            Values::List(list) => list.contains(&value),
            Values::Set(set) => set.contains(value),
        }
    }
}

/// IPv6 prefixes of which one must match.
#[derive(Debug, Clone)]
pub(crate) enum Addresses {
    /// The instruction's own address, already masked.
    One(u128),
    /// A set.
    Set(Arc<ValueSet>),
}

impl Addresses {
    /// Tests if a masked address is one of them.
    pub fn contains(&self, value: u128) -> bool {
        match self {
            Addresses::One(address) => *address == value,
            Addresses::Set(set) => set.contains_address(value),
        }
    }
}

/// One word of a run: its place, the bits that count, their value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskedWord {
    pub place: Place,
    pub mask: u32,
    pub value: u32,
}

/// The test of an instruction, without its negation.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    /// Always true.
    True,
    /// All words match.
    Run(Box<[MaskedWord]>),
    /// The word, or the one `second` bytes later, is one of the values.
    AnyOf { place: Place, second: Option<u32>, mask: u32, values: Values },
    /// The word, or the one `second` bytes later, lies in one of the closed intervals.
    Range { place: Place, second: Option<u32>, mask: u32, intervals: Box<[(u32, u32)]> },
    /// The first bits of the 16 bytes at `offset`, or `second` bytes later, are one of the prefixes.
    Prefix { offset: u32, second: Option<u32>, mask: u128, addresses: Addresses },
    /// The length on the wire lies in one of the closed intervals.
    Length { intervals: Box<[(u32, u32)]> },
    /// Metadata: `field`, masked, is one of the values.
    Meta { field: u16, mask: u32, values: Box<[u32]> },
    /// A condition of the side table.
    Condition(Arc<Condition>),
    /// One of the passes accepts.
    Passes(Arc<dyn InnerPasses>),
}

/// Look-up of what instructions name by number.
pub(crate) trait SideTables {
    fn set(&self, number: u32) -> Option<&Arc<ValueSet>>;
    fn condition(&self, number: u32) -> Option<&Arc<Condition>>;
}

impl Test {
    /// Decodes a valid instruction; `None` if it is not valid or names something that does not exist.
    pub fn decode(instruction: &Instruction, tables: &dyn SideTables) -> Option<Test> {
        use Opcode as P;
        let opcode = instruction.opcode()?;
        let form = opcode.form();
        let operands = instruction.operands();
        let mask = instruction.mask(opcode);
        let base = base(instruction, form);
        let place =
            Place::new(base, instruction.offset().into(), instruction.is_wide(opcode), mask);
        let masked = |values: &[u32]| values.iter().map(|value| value & mask).collect();
        let adjacent = instruction.is_either() || matches!(opcode, P::DDmeq | P::L1Eseq);
        let second = adjacent.then_some(u32::from(place.width));
        let distance = (instruction.params[1] != 0).then_some(instruction.params[1]);
        let pair = |chunk: &[u32]| (chunk[0], chunk[1]);
        Some(match opcode {
            P::Nop => Test::True,
            P::DSet | P::L1Set => {
                let values = Values::Set(tables.set(*operands.first()?)?.clone());
                Test::AnyOf { place, second: distance, mask, values }
            }
            P::DPmeq => Test::AnyOf {
                place,
                second: distance,
                mask,
                values: Values::List(masked(&operands)),
            },
            P::DSet6 | P::DAddr6 => prefix(instruction, distance, &operands, tables)?,
            P::LenRng => Test::Length { intervals: operands.chunks(2).map(pair).collect() },
            P::MetaMeq => {
                Test::Meta { field: instruction.offset(), mask, values: masked(&operands) }
            }
            P::Passes => Test::Passes(tables.set(*operands.first()?)?.inner()?.clone()),
            P::Cond => Test::Condition(tables.condition(*operands.first()?)?.clone()),
            _ => match form.operands {
                Operands::Any16 | Operands::Any32 => {
                    Test::AnyOf { place, second, mask, values: Values::List(masked(&operands)) }
                }
                Operands::Interval16 => {
                    let intervals = operands.iter().map(|word| (word & 0xffff, word >> 16));
                    Test::Range { place, second, mask, intervals: intervals.collect() }
                }
                Operands::Interval32 => {
                    let intervals = operands.chunks(2).map(pair).collect();
                    Test::Range { place, second, mask, intervals }
                }
                _ => Test::Run(run(base, instruction.offset(), form.operands, &operands)),
            },
        })
    }

    /// Judges one frame.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        let data = frame.data;
        match self {
            Test::Run(words) => {
                words.iter().try_fold(true, |all, word| Ok(all & word.holds(data)?))
            }
            Test::AnyOf { place, second, mask, values } => {
                either(*place, *second, |at| Ok(values.contains(at.load(data)? & mask)))
            }
            Test::Range { place, second, mask, intervals } => {
                either(*place, *second, |at| Ok(within(intervals, at.load(data)? & mask)))
            }
            Test::Prefix { offset, second, mask, addresses } => {
                let first = addresses.contains(address(data, *offset, *mask)?);
                let other = match second {
                    Some(distance) => addresses.contains(address(data, *offset + distance, *mask)?),
                    None => false,
                };
                Ok(first | other)
            }
            Test::Condition(condition) => condition.holds(frame),
            Test::Passes(inner) => Ok(inner.accepts(frame)),
            Test::True | Test::Length { .. } | Test::Meta { .. } => Ok(self.holds_beside(frame)),
        }
    }

    /// Judges a test that reads no byte of the frame.
    pub fn holds_beside(&self, frame: &Frame) -> bool {
        match self {
            Test::True => true,
            Test::Length { intervals } => within(intervals, frame.wire_len),
            Test::Meta { field, mask, values } => {
                let value = match *field {
                    META_DIRECTION => frame.meta.direction as u32,
                    _ => frame.meta.ifindex,
                };
                values.contains(&(value & mask))
            }
            _ => false,
        }
    }

    /// Judges the instruction (`negated` or not) by the captured bytes alone. `None` if the result depends on bytes
    /// after the captured end.
    pub fn could_hold(&self, negated: bool, frame: &Frame) -> Option<bool> {
        let data = frame.data;
        let answer = match self {
            Test::Run(words) => {
                let mut unknown = false;
                let mut all = true;
                for word in words {
                    match word.holds(data) {
                        Ok(holds) => all &= holds,
                        Err(OutOfBounds) => unknown = true,
                    }
                }
                if all && unknown { None } else { Some(all) }
            }
            Test::AnyOf { place, second: Some(distance), mask, values } => {
                let test = |at: Place| Some(values.contains(at.load(data).ok()? & mask));
                any_known(test(*place), test(place.moved(*distance)))
            }
            Test::Range { place, second: Some(distance), mask, intervals } => {
                let test = |at: Place| Some(within(intervals, at.load(data).ok()? & mask));
                any_known(test(*place), test(place.moved(*distance)))
            }
            Test::Prefix { offset, second, mask, addresses } => {
                let test = |at| Some(addresses.contains(address(data, at, *mask).ok()?));
                let first =
                    test(*offset).or_else(|| prefix_differs(data, *offset, *mask, addresses));
                match second {
                    Some(distance) => any_known(first, test(*offset + distance)),
                    None => first,
                }
            }
            _ => self.holds(frame).ok(),
        };
        Some(answer? != negated)
    }
}

/// A distinct instruction of a set, decoded; passes share it.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// Dense number, unique among the instructions of one state.
    pub slot: u32,
    pub test: Test,
    pub negated: bool,
}

impl Compiled {
    /// Judges a frame; out of bounds is false, negated or not.
    pub fn holds(&self, frame: &Frame) -> bool {
        self.test.holds(frame).is_ok_and(|holds| holds != self.negated)
    }
}

impl MaskedWord {
    fn holds(&self, data: &[u8]) -> Result<bool, OutOfBounds> {
        Ok(self.place.load(data)? & self.mask == self.value)
    }
}

/// Tests if one of the closed intervals contains the value.
pub(crate) fn within(intervals: &[(u32, u32)], value: u32) -> bool {
    intervals.iter().any(|(low, high)| (*low..=*high).contains(&value))
}

/// Loads the 16 bytes of an address; only those that `mask` selects must be in the frame.
pub(crate) fn address(data: &[u8], offset: u32, mask: u128) -> Result<u128, OutOfBounds> {
    let at = offset as usize;
    let needed = 16 - (mask.trailing_zeros() / 8).min(16) as usize;
    if at + needed > data.len() {
        return Err(OutOfBounds);
    }
    let byte = |index| u128::from(data.get(at + index).copied().unwrap_or(0));
    Ok((0..needed).fold(0, |word, index| word | byte(index) << (120 - 8 * index)) & mask)
}

/// `Some(false)` if a single prefix already differs in the captured bytes.
fn prefix_differs(data: &[u8], offset: u32, mask: u128, addresses: &Addresses) -> Option<bool> {
    let Addresses::One(value) = addresses else { return None };
    let there = data.len().saturating_sub(offset as usize).min(16);
    let seen = if there == 0 { 0 } else { u128::MAX << (128 - 8 * there as u32) } & mask;
    let bytes = address(data, offset, seen).ok()?;
    (bytes != value & seen).then_some(false)
}

fn any_known(first: Option<bool>, second: Option<bool>) -> Option<bool> {
    match (first, second) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn either(
    place: Place,
    second: Option<u32>,
    test: impl Fn(Place) -> Result<bool, OutOfBounds>,
) -> Result<bool, OutOfBounds> {
    let first = test(place)?;
    match second {
        Some(distance) => Ok(first | test(place.moved(distance))?),
        None => Ok(first),
    }
}

fn base(instruction: &Instruction, form: Form) -> Base {
    let header = instruction.header(form);
    match form.addressing {
        Addressing::None | Addressing::Direct => Base::Direct,
        Addressing::L1 => Base::L1 { header },
        Addressing::L2 => Base::L2 { header, field: instruction.params[PARAMS - 1] as u16 },
    }
}

fn prefix(
    instruction: &Instruction,
    second: Option<u32>,
    operands: &[u32],
    tables: &dyn SideTables,
) -> Option<Test> {
    let bits = instruction.params[0].min(128);
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
    let addresses = if instruction.opcode()? == Opcode::DSet6 {
        Addresses::Set(tables.set(*operands.first()?)?.clone())
    } else {
        let value = operands.iter().fold(0, |value, &word| value << 32 | u128::from(word));
        Addresses::One(value & mask)
    };
    Some(Test::Prefix { offset: instruction.offset().into(), second, mask, addresses })
}

fn run(base: Base, offset: u16, operands: Operands, words: &[u32]) -> Box<[MaskedWord]> {
    let word = |index: usize, wide: bool, value: u32, mask: u32| {
        let step = if wide { 4 } else { 2 };
        let place = Place::new(base, u32::from(offset) + step * index as u32, wide, mask);
        MaskedWord { place, mask, value: value & mask }
    };
    let words: Vec<MaskedWord> = match operands {
        Operands::Masked32 => words
            .chunks(2)
            .enumerate()
            .map(|(index, pair)| word(index, true, pair[0], pair[1]))
            .collect(),
        Operands::All16 => {
            words.iter().enumerate().map(|(i, &value)| word(i, false, value, 0xffff)).collect()
        }
        _ => words.iter().enumerate().map(|(i, &value)| word(i, true, value, u32::MAX)).collect(),
    };
    words.into_iter().filter(|word| word.mask != 0).collect()
}
