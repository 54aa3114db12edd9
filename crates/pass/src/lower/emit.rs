//! From a conjunction to instructions: known bytes become as few masked runs as possible; every other test becomes the
//! instruction with the best opcode.
//!
//! Bytes at fixed places come first (they reject most frames), then bytes after a header, then the other tests, negated
//! ones last. Values that do not fit into an instruction go to a set.

use super::facts::{Facts, KnownByte};
use super::literal::{Alternatives, Literal, SPAN, Word};
use super::{LoweredPasses, MAX_INSTRUCTIONS, NamedSet, References};
use crate::isa::instruction::InstructionError;
use crate::isa::layout::{EITHER, Instruction, Opcode, SHORT};
use crate::isa::primitive::never;
use crate::isa::test::Base;
use crate::isa::value_set::ValueSet;
use fyke_frame::LinkType;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Makes the instructions of one text; equal lists share a set.
pub(super) struct Emitter<'s> {
    store: &'s mut References,
    words: HashMap<Arc<[u32]>, u32>,
    addresses: HashMap<Arc<[u128]>, u32>,
    inner: HashMap<usize, u32>,
    link: LinkType,
}

type Emitted = Result<Instruction, InstructionError>;

impl<'s> Emitter<'s> {
    pub fn new(store: &'s mut References, link: LinkType) -> Self {
        let (words, addresses, inner) = Default::default();
        Emitter { store, words, addresses, inner, link }
    }

    /// The instructions of one pass; `None` if the conjunction is impossible. If it has too many tests, half of them
    /// become an inner set.
    pub fn pass(&mut self, facts: &Facts) -> Result<Option<Vec<Instruction>>, InstructionError> {
        let pass = self.instructions(facts)?;
        if pass.as_ref().is_none_or(|pass| pass.len() <= MAX_INSTRUCTIONS) {
            return Ok(pass);
        }
        let mut own = facts.clone();
        let bytes = own.bytes.split_off(own.bytes.len() / 2);
        let rest = Facts { bytes, tests: own.tests.split_off(own.tests.len() / 2) };
        own.tests.push((Literal::Passes(Alternatives::new(vec![rest])), false));
        self.pass(&own)
    }

    fn instructions(
        &mut self,
        facts: &Facts,
    ) -> Result<Option<Vec<Instruction>>, InstructionError> {
        let mut instructions = Vec::new();
        for group in run_groups(&facts.bytes) {
            instructions.push(run(group)?);
        }
        let Some(tests) = gather(&facts.tests) else { return Ok(None) };
        for wanted in [false, true] {
            for (literal, negated) in tests.iter().filter(|(_, negated)| *negated == wanted) {
                let instruction = self.test(literal)?;
                instructions.push(if *negated { instruction.negated() } else { instruction });
            }
        }
        Ok(Some(instructions))
    }

    fn test(&mut self, literal: &Literal) -> Emitted {
        match literal {
            Literal::Bytes { base, at, mask, value } => {
                let bytes: Vec<KnownByte> = (0..SPAN)
                    .map(|index| {
                        let (mask, value) = (mask.byte(index), value.byte(index));
                        KnownByte { base: *base, at: at + index, mask, value }
                    })
                    .filter(|byte| byte.mask != 0)
                    .collect();
                run(&bytes)
            }
            Literal::OneOf { word, second, values } => self.one_of(*word, *second, values),
            Literal::Range { word, either, low, high } => range(*word, *either, *low, *high),
            Literal::Prefix { at, second, bits, values } => {
                self.prefix(*at, *second, *bits, values)
            }
            Literal::Length { low, high } => {
                Instruction::new(Opcode::LenRng, 0).with_operands(&[*low, *high])
            }
            Literal::Meta { field, mask, values } => {
                Instruction::new(Opcode::MetaMeq, *field).with_param(0, *mask).with_operands(values)
            }
            Literal::Passes(alternatives) => {
                let number = self.inner_set(alternatives)?;
                Instruction::new(Opcode::Passes, 0).with_operands(&[number])
            }
            Literal::Other(condition) => {
                let number = self.store.condition(condition);
                Instruction::new(Opcode::Cond, 0).with_operands(&[number])
            }
        }
    }

    fn inner_set(&mut self, alternatives: &Alternatives) -> Result<u32, InstructionError> {
        if let Some(&number) = self.inner.get(&alternatives.address()) {
            return Ok(number);
        }
        let (mut references, mut passes) = (References::default(), Vec::new());
        let mut emitter = Emitter::new(&mut references, self.link);
        for facts in alternatives.passes() {
            passes.extend(emitter.pass(facts)?);
        }
        if passes.is_empty() {
            // An empty set would accept every frame.
            passes.push(vec![never()]);
        }
        let set = LoweredPasses { link: self.link, passes, references };
        let number = self.store.set(NamedSet::Passes(set));
        self.inner.insert(alternatives.address(), number);
        Ok(number)
    }

    fn one_of(&mut self, word: Word, second: u16, values: &Arc<[u32]>) -> Emitted {
        let full = word.mask == if word.wide { u32::MAX } else { 0xffff };
        let direct = word.base == Base::Direct;
        let adjacent = second == word.width();
        let either = if adjacent { EITHER } else { 0 };
        let (opcode, flags) = match (direct, word.wide, second) {
            (true, true, 0) if full => (Opcode::DEq, 0),
            (true, true, 0) => (Opcode::DMeq, 0),
            (true, true, _) if adjacent => (Opcode::DDmeq, 0),
            (true, false, _) if full && (second == 0 || adjacent) => (Opcode::DSeq, either),
            (true, false, _) if second == 0 || adjacent => (Opcode::DSmeq, either),
            (true, wide, _) => (Opcode::DPmeq, if wide { 0 } else { SHORT }),
            (false, true, 0) if full => (Opcode::L1Eq, 0),
            (false, true, 0) => (Opcode::L1Meq, 0),
            (false, false, 0) if full => (Opcode::L1Seq, 0),
            (false, false, _) if full && adjacent => (Opcode::L1Eseq, 0),
            (false, false, _) if second == 0 || adjacent => (Opcode::L1Smeq, either),
            (false, ..) => return self.member(word, second, values),
        };
        if values.len() > usize::from(opcode.form().capacity) {
            return self.member(word, second, values);
        }
        let mut instruction = placed(opcode, word.base, word.at).with_flags(flags);
        if opcode.form().first_operand > 0 {
            instruction = instruction.with_param(0, word.mask);
        }
        if opcode == Opcode::DPmeq {
            instruction = instruction.with_param(1, second.into());
        }
        instruction.with_operands(values)
    }

    fn member(&mut self, word: Word, second: u16, values: &Arc<[u32]>) -> Emitted {
        let store = &mut self.store;
        let number = *self
            .words
            .entry(values.clone())
            .or_insert_with(|| store.set(NamedSet::Values(ValueSet::words(values))));
        let opcode = if word.base == Base::Direct { Opcode::DSet } else { Opcode::L1Set };
        placed(opcode, word.base, word.at)
            .with_flags(if word.wide { 0 } else { SHORT })
            .with_param(0, word.mask)
            .with_param(1, second.into())
            .with_operands(&[number])
    }

    fn prefix(&mut self, at: u16, second: u16, bits: u8, values: &Arc<[u128]>) -> Emitted {
        if let [value] = values[..] {
            let words = [96, 64, 32, 0].map(|shift| (value >> shift) as u32);
            return Instruction::new(Opcode::DAddr6, at)
                .with_param(0, bits.into())
                .with_param(1, second.into())
                .with_operands(&words);
        }
        let store = &mut self.store;
        let number = *self
            .addresses
            .entry(values.clone())
            .or_insert_with(|| store.set(NamedSet::Values(ValueSet::addresses(values))));
        Instruction::new(Opcode::DSet6, at)
            .with_param(0, bits.into())
            .with_param(1, second.into())
            .with_operands(&[number])
    }
}

fn placed(opcode: Opcode, base: Base, at: u16) -> Instruction {
    let instruction = Instruction::new(opcode, at);
    match base {
        Base::Direct => instruction,
        Base::L1 { header } => instruction.behind_ipv4(header),
        Base::L2 { header, field } => instruction.behind_ipv4(header).second_length_at(field),
    }
}

fn range(word: Word, either: bool, low: u32, high: u32) -> Emitted {
    let direct = word.base == Base::Direct;
    let full = word.mask == if word.wide { u32::MAX } else { 0xffff };
    let opcode = match (direct, word.wide, full) {
        _ if matches!(word.base, Base::L2 { .. }) => Opcode::L2Srng,
        (true, true, true) => Opcode::DRng,
        (true, false, true) => Opcode::DSrng,
        (true, _, false) => Opcode::DMrng,
        (false, true, true) => Opcode::L1Rng,
        (false, false, true) => Opcode::L1Srng,
        (false, _, false) => Opcode::L1Mrng,
    };
    let instruction =
        placed(opcode, word.base, word.at).with_flags(if either { EITHER } else { 0 });
    if !full {
        return instruction
            .with_flags(if word.wide { 0 } else { SHORT })
            .with_param(0, word.mask)
            .with_operands(&[low, high]);
    }
    if word.wide {
        instruction.with_operands(&[low, high])
    } else {
        // The word holds both ends; `with_operands` takes it as it is stored.
        instruction.with_operands(&[high << 16 | low])
    }
}

/// Groups known bytes into runs that one instruction can compare.
fn run_groups(bytes: &[KnownByte]) -> impl Iterator<Item = &[KnownByte]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        // L2 instructions have room for two masked words.
        let span = if matches!(first.base, Base::L2 { .. }) { 8 } else { SPAN };
        let fits = |byte: &&KnownByte| byte.base == first.base && byte.at - first.at < span;
        let count = rest.iter().take_while(fits).count();
        let (group, after) = rest.split_at(count);
        rest = after;
        Some(group)
    })
}

/// One instruction for bytes that have the same base and lie within [`SPAN`].
fn run(bytes: &[KnownByte]) -> Emitted {
    let (first, last) = (bytes[0], bytes[bytes.len() - 1]);
    let span = last.at - first.at + 1;
    let deep = matches!(first.base, Base::L2 { .. });
    let at = if span == 1 && !deep { first.at & !1 } else { first.at };
    let (mut mask, mut value) = (0_u128, 0_u128);
    for byte in bytes {
        let shift = 120 - 8 * (byte.at - at);
        mask |= u128::from(byte.mask) << shift;
        value |= u128::from(byte.value) << shift;
    }
    let word = |bits: u128, index: u32| (bits >> (96 - 32 * index)) as u32;
    let half = |bits: u128| (bits >> 112) as u32;
    let direct = first.base == Base::Direct;
    let make = |d, l1| placed(if direct { d } else { l1 }, first.base, at);
    match (span, mask >> 96) {
        (2, _) if deep && half(mask) == 0xffff => {
            placed(Opcode::L2Seq, first.base, at).with_operands(&[half(value)])
        }
        (4, 0xffff_ffff) if deep => {
            placed(Opcode::L2Leq, first.base, at).with_operands(&[word(value, 0)])
        }
        (8, _) if deep && mask >> 64 == u128::from(u64::MAX) => {
            placed(Opcode::L2Leq, first.base, at).with_operands(&[word(value, 0), word(value, 1)])
        }
        _ if deep => {
            let pairs: Vec<u32> = (0..u32::from(span.div_ceil(4)))
                .flat_map(|index| [word(value, index), word(mask, index)])
                .collect();
            placed(Opcode::L2LeqM, first.base, at).with_operands(&pairs)
        }
        (1..=2, _) if half(mask) == 0xffff => {
            make(Opcode::DSeq, Opcode::L1Seq).with_operands(&[half(value)])
        }
        (1..=2, _) => make(Opcode::DSmeq, Opcode::L1Smeq)
            .with_param(0, half(mask))
            .with_operands(&[half(value)]),
        (3..=4, 0xffff_ffff) if !direct => make(Opcode::L1Sseq, Opcode::L1Sseq)
            .with_operands(&[word(value, 0) >> 16, word(value, 0) & 0xffff]),
        (3..=4, 0xffff_ffff) => make(Opcode::DEq, Opcode::L1Eq).with_operands(&[word(value, 0)]),
        (3..=4, _) => make(Opcode::DMeq, Opcode::L1Meq)
            .with_param(0, word(mask, 0))
            .with_operands(&[word(value, 0)]),
        _ => {
            let pairs: Vec<u32> = (0..u32::from(span.div_ceil(4)))
                .flat_map(|index| [word(value, index), word(mask, index)])
                .collect();
            make(Opcode::DLeqM, Opcode::L1LeqM).with_operands(&pairs)
        }
    }
}

/// A list of values of one place, to which other tests of a conjunction may be joined.
struct Gathered<'t> {
    word: Word,
    second: u16,
    negated: bool,
    values: Cow<'t, [u32]>,
    /// Its index among the tests.
    index: usize,
}

/// Joins tests of one place: unwanted values become one list, wanted lists become their intersection. `None` if the
/// intersection is empty.
fn gather(tests: &[(Literal, bool)]) -> Option<Vec<(Literal, bool)>> {
    let mut gathered = tests.to_vec();
    let mut joined = Vec::new();
    let mut lists: Vec<Gathered> = Vec::new();
    for (index, (literal, negated)) in tests.iter().enumerate() {
        let (word, second, values) = match (literal, literal.as_equal()) {
            (Literal::OneOf { word, second, values }, _) => (*word, *second, Cow::from(&**values)),
            (_, Some((word, value))) => (word, 0, Cow::from(vec![value])),
            _ => continue,
        };
        let place = |list: &&mut Gathered| {
            (list.word, list.second, list.negated) == (word, second, *negated)
        };
        match lists.iter_mut().find(place) {
            Some(list) if *negated => {
                list.values.to_mut().extend_from_slice(&values);
                joined.push(index);
            }
            Some(list) if second == 0 => {
                list.values.to_mut().retain(|value| values.binary_search(value).is_ok());
                joined.push(index);
            }
            Some(_) => {}
            None => lists.push(Gathered { word, second, negated: *negated, values, index }),
        }
    }
    for Gathered { word, second, negated, values, index } in lists {
        // A list to which nothing was joined stays as it is; a lone value becomes a list.
        if let (Cow::Borrowed(_), Literal::OneOf { .. }) = (&values, &tests[index].0) {
            continue;
        }
        let mut values = values.into_owned();
        values.sort_unstable();
        values.dedup();
        if values.is_empty() && !negated {
            return None;
        }
        gathered[index] = (Literal::OneOf { word, second, values: values.into() }, negated);
    }
    let mut index = 0;
    gathered.retain(|_| {
        index += 1;
        !joined.contains(&(index - 1))
    });
    Some(gathered)
}
