//! Facts of a conjunction: the bytes that are fixed and the tests that hold.
//!
//! Lowering looks up here if a further test is already decided, so that passes that cannot match are never built (`ip
//! and arp`) and redundant tests cost no instruction. The answers are sound, not complete: an undecided test is kept.
//! O(tests in the pass) per look-up.

use super::literal::{Literal, SPAN, Word};
use crate::isa::test::Base;

/// Number of bytes that a pass usually fixes: a type, a protocol, an address, ports.
const USUAL_BYTES: usize = 16;

/// Known bits of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownByte {
    pub base: Base,
    pub at: u16,
    pub mask: u8,
    pub value: u8,
}

/// A conjunction.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Facts {
    /// Sorted by base and place.
    pub bytes: Vec<KnownByte>,
    /// Tests that are not equalities of bytes, with their negation.
    pub tests: Vec<(Literal, bool)>,
}

/// The conjunction can never hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction;

impl Facts {
    /// The value of the test (negated if `negated`), if the facts decide it.
    pub fn decide(&self, literal: &Literal, negated: bool) -> Option<bool> {
        if let Some(value) = self.value_of(literal) {
            return Some(value != negated);
        }
        let (_, held) = self.tests.iter().find(|(test, _)| test == literal)?;
        Some(*held == negated)
    }

    /// Adds a test.
    pub fn add(&mut self, literal: &Literal, negated: bool) -> Result<(), Contradiction> {
        match self.decide(literal, negated) {
            Some(true) => return Ok(()),
            Some(false) => return Err(Contradiction),
            None => {}
        }
        if let (Literal::Bytes { base, at, mask, value }, false) = (literal, negated) {
            for index in (0..SPAN).filter(|&index| mask.byte(index) != 0) {
                self.learn(*base, at + index, mask.byte(index), value.byte(index));
            }
            let clash = |(test, negated): &(Literal, bool)| {
                self.value_of(test).is_some_and(|value| value == *negated)
            };
            if self.tests.iter().any(clash) {
                return Err(Contradiction);
            }
        } else {
            self.tests.push((literal.clone(), negated));
        }
        Ok(())
    }

    /// Drops tests that the known bytes decide (they hold: `add` refuses a contradiction).
    pub fn tidy(&mut self) {
        let mut tests = std::mem::take(&mut self.tests);
        tests.retain(|(test, _)| self.value_of(test).is_none());
        self.tests = tests;
    }

    /// True if every frame that satisfies `self` satisfies `other`; may miss some such pairs.
    pub fn implies(&self, other: &Facts) -> bool {
        other.bytes.iter().all(|byte| {
            let (mask, value) = self.byte(byte.base, byte.at);
            mask & byte.mask == byte.mask && value & byte.mask == byte.value
        }) && other.tests.iter().all(|(test, negated)| self.decide(test, *negated) == Some(true))
    }

    /// The value of a test if the known bytes decide it.
    fn value_of(&self, literal: &Literal) -> Option<bool> {
        match literal {
            Literal::Bytes { base, at, mask, value } => {
                let mut all_known = true;
                for index in (0..SPAN).filter(|&index| mask.byte(index) != 0) {
                    let wanted = mask.byte(index);
                    let (known, byte) = self.byte(*base, at + index);
                    if (byte ^ value.byte(index)) & known & wanted != 0 {
                        return Some(false);
                    }
                    all_known &= known & wanted == wanted;
                }
                all_known.then_some(true)
            }
            Literal::OneOf { word, second, values } => {
                self.at_places(*word, *second, |value| values.binary_search(&value).is_ok())
            }
            Literal::Range { word, either, low, high } => {
                let second = if *either { word.width() } else { 0 };
                self.at_places(*word, second, |value| (*low..=*high).contains(&value))
            }
            _ => None,
        }
    }

    fn at_places(&self, word: Word, second: u16, test: impl Fn(u32) -> bool) -> Option<bool> {
        let first = self.word(word).map(&test);
        if second == 0 {
            return first;
        }
        let other = self.word(Word { at: word.at.saturating_add(second), ..word }).map(&test);
        match (first, other) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }

    fn word(&self, word: Word) -> Option<u32> {
        let (mut known, mut value) = (0, 0);
        for index in 0..word.width() {
            let (mask, byte) = self.byte(word.base, word.at.saturating_add(index));
            (known, value) = (known << 8 | u32::from(mask), value << 8 | u32::from(byte));
        }
        (known & word.mask == word.mask).then_some(value & word.mask)
    }

    fn byte(&self, base: Base, at: u16) -> (u8, u8) {
        match self.bytes.binary_search_by_key(&(base, at), |byte| (byte.base, byte.at)) {
            Ok(index) => (self.bytes[index].mask, self.bytes[index].value),
            Err(_) => (0, 0),
        }
    }

    fn learn(&mut self, base: Base, at: u16, mask: u8, value: u8) {
        match self.bytes.binary_search_by_key(&(base, at), |byte| (byte.base, byte.at)) {
            Ok(index) => {
                self.bytes[index].mask |= mask;
                self.bytes[index].value |= value;
            }
            Err(index) => {
                if self.bytes.capacity() == 0 {
                    self.bytes.reserve(USUAL_BYTES);
                }
                self.bytes.insert(index, KnownByte { base, at, mask, value });
            }
        }
    }
}
