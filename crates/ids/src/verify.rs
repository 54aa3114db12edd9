//! The verifier: judges the tests of one buffer on its bytes, exactly.
//!
//! A rule holds if there are places for its contents such that all tests hold; so where a relative test fails, the
//! content before it is tried at its next place. Tests that no position joins are judged on their own: the list is
//! split into *chains*, each a test that sets the position anew and those that count from it. Only a list with
//! variables is one chain, because a number that is read at another place may change any later test.
//!
//! Cost: one search per content of a chain if all hold at once; at most [`MAX_TRIES`] tests per list, and the granted
//! [`Work`] for all lists of a rule with their searches and expressions. A list that reaches a limit does not match,
//! and is counted ([`Verdict::Limit`]).

use crate::pcre::Found;
use crate::rule::{
    ByteJump, ByteMath, ByteTest, Comparison, Content, JumpFrom, List, Pcre, Read, Test, Value,
};
use crate::work::Work;

/// Most tests of one list on one buffer.
pub const MAX_TRIES: u32 = 20_000;
/// Most variables, as many as the translator gives a rule.
const VARIABLES: usize = 16;
/// Bytes of a search that cost a unit of work.
const SEARCHED_PER_UNIT: usize = 64;
/// Most digits of a number without a given length.
const MAX_DIGITS: usize = 23;

/// The tests of a list, in the order in which they are judged.
#[derive(Debug, Clone)]
pub struct Checks {
    /// Tests that need no position and leave none.
    alone: Vec<Test>,
    /// Tests that positions join.
    chains: Vec<Vec<Test>>,
}

/// Result of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All tests hold.
    Match,
    /// No places fit.
    Nothing,
    /// The limit was reached before places were found.
    Limit,
}

/// Values of the variables of a rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct Variables([i64; VARIABLES]);

impl Checks {
    /// Prepares a list; `variables` is true if the rule has variables.
    pub fn new(list: &List, variables: bool) -> Checks {
        if variables {
            return Checks { alone: Vec::new(), chains: vec![list.tests.clone()] };
        }
        let (mut alone, mut chains): (Vec<Test>, Vec<Vec<Test>>) = (Vec::new(), Vec::new());
        for test in &list.tests {
            match (test.is_relative(), test.moves()) {
                (false, false) if !matches!(test, Test::Base64 { .. }) => alone.push(test.clone()),
                (false, _) => chains.push(vec![test.clone()]),
                (true, _) => match chains.last_mut() {
                    Some(chain) => chain.push(test.clone()),
                    None => chains.push(vec![test.clone()]),
                },
            }
        }
        alone.shrink_to_fit();
        chains.iter_mut().for_each(Vec::shrink_to_fit);
        // Short tests first: lengths before searches.
        alone.sort_by_key(|test| {
            !matches!(test, Test::Len(_) | Test::Number(_) | Test::IsDataAt { .. })
        });
        chains.shrink_to_fit();
        Checks { alone, chains }
    }

    /// Judges a buffer.
    pub fn judge(&self, bytes: &[u8], variables: &mut Variables, work: &mut Work) -> Verdict {
        let mut judge = Judge { bytes, left: MAX_TRIES, limited: false, variables, work };
        let alone = self.alone.iter().all(|test| judge.chain(std::slice::from_ref(test), 0));
        let holds = alone && self.chains.iter().all(|chain| judge.chain(chain, 0));
        match (holds, judge.limited) {
            (true, _) => Verdict::Match,
            (false, true) => Verdict::Limit,
            (false, false) => Verdict::Nothing,
        }
    }
}

struct Judge<'b, 'v> {
    bytes: &'b [u8],
    left: u32,
    limited: bool,
    variables: &'v mut Variables,
    work: &'v mut Work,
}

impl Judge<'_, '_> {
    /// True if the tests hold from the position `at` on. Depth: the number of tests of a rule, which is bounded.
    fn chain(&mut self, tests: &[Test], at: usize) -> bool {
        let Some((test, rest)) = tests.split_first() else { return true };
        self.left = self.left.saturating_sub(1);
        if !self.work.take(1) || self.left == 0 {
            self.limited = true;
            return false;
        }
        match test {
            Test::Content(content) => self.content(content, rest, at),
            Test::Pcre(pcre) => self.pcre(pcre, rest, at),
            Test::ByteTest(test) => self.byte_test(test, at) && self.chain(rest, at),
            Test::ByteJump(jump) => self.byte_jump(jump, at).is_some_and(|at| self.chain(rest, at)),
            Test::ByteExtract(extract) => {
                let Some((value, end)) = self.number(&extract.read, at) else { return false };
                let value = value.wrapping_mul(i64::from(extract.multiplier));
                let align = i64::from(extract.align);
                self.variables.0[extract.variable] =
                    value.wrapping_add((align - value.rem_euclid(align)) % align);
                self.chain(rest, end)
            }
            Test::ByteMath(math) => {
                self.byte_math(math, at).is_some_and(|end| self.chain(rest, end))
            }
            Test::IsDataAt { at: place, relative, negated } => {
                let place = self.value(*place);
                let len = self.bytes.len() as i64;
                let holds = if *relative { at as i64 + place <= len } else { place < len };
                holds != *negated && self.chain(rest, at)
            }
            Test::Len(bound) => bound.contains(self.bytes.len() as u64) && self.chain(rest, at),
            Test::Number(bound) => {
                if !self.work.take(self.bytes.len() / 16) {
                    return self.is_in_limit();
                }
                let number =
                    self.bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                bound.contains(number) && self.chain(rest, at)
            }
            Test::Base64 { bytes, offset, relative, tests } => {
                let from = offset + if *relative { at } else { 0 };
                let text = self.bytes.get(from..).unwrap_or_default();
                let text = &text[..text.len().min(bytes.unwrap_or(usize::MAX))];
                if !self.work.take(text.len() / 4) {
                    return self.is_in_limit();
                }
                let decoded = decode_base64(text);
                let mut inner = Judge {
                    bytes: &decoded,
                    left: self.left,
                    limited: false,
                    variables: self.variables,
                    work: self.work,
                };
                let holds = !decoded.is_empty() && inner.chain(tests, 0);
                (self.left, self.limited) = (inner.left, self.limited | inner.limited);
                holds && self.chain(rest, at)
            }
        }
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Number(number) => number,
            Value::Variable(at) => self.variables.0[at],
        }
    }

    fn content(&mut self, content: &Content, rest: &[Test], at: usize) -> bool {
        let base = if content.relative { at as i64 } else { 0 };
        let first = base.saturating_add(self.value(content.from));
        let end = match content.len {
            Some(len) => {
                first.saturating_add(self.value(len)).clamp(0, self.bytes.len() as i64) as usize
            }
            None => self.bytes.len(),
        };
        let mut start = usize::try_from(first.max(0)).unwrap_or(usize::MAX);
        if content.negated {
            let found = content.find(self.bytes, start, end, self.work);
            // After a search that has ended early, the chain ends at the limit.
            return found.is_none() && self.is_in_limit() && self.chain(rest, at);
        }
        while let Some(found) = content.find(self.bytes, start, end, self.work) {
            if self.chain(rest, found + content.bytes.len()) {
                return true;
            }
            // Without a test that counts from here another place changes nothing.
            if self.limited || rest.is_empty() {
                return false;
            }
            start = found + 1;
        }
        self.is_in_limit();
        false
    }

    /// False if no work is left, which is noted.
    fn is_in_limit(&mut self) -> bool {
        self.limited |= self.work.is_out();
        !self.limited
    }

    fn pcre(&mut self, pcre: &Pcre, rest: &[Test], at: usize) -> bool {
        let base = if pcre.relative { at } else { 0 };
        let Some(bytes) = self.bytes.get(base..) else {
            return pcre.negated && self.chain(rest, at);
        };
        let is_last = pcre.negated || rest.is_empty();
        let mut from = 0;
        loop {
            let found = match is_last {
                true => pcre.pattern.find_any(bytes, self.work),
                false => pcre.pattern.find(bytes, from, self.work),
            };
            match found {
                Found::Limit => {
                    self.limited = true;
                    return false;
                }
                Found::Nothing => return pcre.negated && from == 0 && self.chain(rest, at),
                Found::At(..) if pcre.negated => return false,
                Found::At(start, end) => {
                    if self.chain(rest, base + end) {
                        return true;
                    }
                    if self.limited || rest.is_empty() {
                        return false;
                    }
                    from = start + 1;
                }
            }
        }
    }

    /// Reads a number: its value, and the place after it.
    fn number(&mut self, read: &Read, at: usize) -> Option<(i64, usize)> {
        let base = if read.relative { at as i64 } else { 0 };
        let start = usize::try_from(base.checked_add(self.value(read.offset))?).ok()?;
        let len = usize::try_from(self.value(read.len)).ok()?;
        if (len, read.text) == (0, None) {
            return (start <= self.bytes.len()).then_some((0, start));
        }
        let end = match (len, read.text) {
            (0, Some(_)) => self.bytes.len().min(start.checked_add(MAX_DIGITS)?),
            _ => start.checked_add(len)?,
        };
        let bytes = self.bytes.get(start..end).filter(|bytes| !bytes.is_empty())?;
        if !self.work.take(bytes.len() / 16) {
            self.limited = true;
            return None;
        }
        let value = match read.text {
            Some(base) => digits(bytes, base)?,
            None if bytes.len() > 8 => return None,
            None => {
                let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
                let value = match read.little {
                    true => bytes.iter().rev().fold(0, add),
                    false => bytes.iter().fold(0, add),
                };
                value.cast_signed()
            }
        };
        let value = match read.mask {
            Some(mask) => (value & i64::from(mask)) >> mask.trailing_zeros(),
            None => value,
        };
        Some((value, end))
    }

    fn byte_test(&mut self, test: &ByteTest, at: usize) -> bool {
        let Some((value, _)) = self.number(&test.read, at) else { return false };
        let (value, other) = (value.cast_unsigned(), self.value(test.value).cast_unsigned());
        let holds = match test.comparison {
            Comparison::Less => value < other,
            Comparison::AtMost => value <= other,
            Comparison::Equal => value == other,
            Comparison::AtLeast => value >= other,
            Comparison::Greater => value > other,
            Comparison::And => value & other != 0,
            Comparison::Xor => value ^ other != 0,
        };
        holds != test.negated
    }

    /// The position after a jump, which must be on a byte.
    fn byte_jump(&mut self, jump: &ByteJump, at: usize) -> Option<usize> {
        let (value, end) = self.number(&jump.read, at)?;
        let mut value = value.checked_mul(i64::from(jump.multiplier))?;
        if jump.align {
            value = value.checked_add((4 - value.rem_euclid(4)) % 4)?;
        }
        let value = value.checked_add(self.value(jump.post_offset))?;
        let base = match jump.from {
            JumpFrom::Number => end,
            JumpFrom::Beginning => 0,
            JumpFrom::End => self.bytes.len(),
        };
        let to = usize::try_from((base as i64).checked_add(value)?).ok()?;
        (to < self.bytes.len()).then_some(to)
    }

    fn byte_math(&mut self, math: &ByteMath, at: usize) -> Option<usize> {
        let (value, end) = self.number(&math.read, at)?;
        let other = self.value(math.value);
        let shift = || u32::try_from(other).ok();
        self.variables.0[math.variable] = match math.operator {
            b'+' => value.wrapping_add(other),
            b'-' => value.wrapping_sub(other),
            b'*' => value.wrapping_mul(other),
            b'/' => value.checked_div(other)?,
            b'<' => value.checked_shl(shift()?)?,
            _ => value.checked_shr(shift()?)?,
        };
        Some(end)
    }
}

impl Content {
    /// The first place from `start` on at which the content lies before `end`; none, too, if no work is left.
    fn find(&self, bytes: &[u8], start: usize, end: usize, work: &mut Work) -> Option<usize> {
        let window = bytes.get(start..end)?;
        let len = self.bytes.len();
        if self.ends {
            let last = bytes.len().checked_sub(len)?;
            return (last >= start && end == bytes.len() && self.is(&bytes[last..]))
                .then_some(last);
        }
        if window.len() < len {
            return None;
        }
        // As far as there is work for it.
        let most = work.left().saturating_mul(SEARCHED_PER_UNIT).max(len);
        let (part, is_cut) = (&window[..window.len().min(most)], window.len() > most);
        let found = match self.nocase {
            true => self.find_folded(part, work),
            false => self.finder.find(part),
        };
        work.take(found.map_or(part.len(), |at| at + len) / SEARCHED_PER_UNIT);
        if is_cut && found.is_none() {
            work.end();
        }
        Some(start + found?)
    }

    /// The first place of the content in a window that is not shorter. A place at which many bytes fit costs more work.
    fn find_folded(&self, window: &[u8], work: &mut Work) -> Option<usize> {
        let len = self.bytes.len();
        let (low, high) = (self.bytes[0], self.bytes[0].to_ascii_uppercase());
        for at in memchr::memchr2_iter(low, high, &window[..window.len() - len + 1]) {
            let most = work.left().saturating_mul(8).min(len);
            let pairs = self.bytes.iter().zip(&window[at..at + most]);
            let fits = pairs.take_while(|(own, byte)| own.eq_ignore_ascii_case(byte)).count();
            if fits == len {
                return Some(at);
            }
            if !work.take(1 + fits / 8) {
                return None;
            }
        }
        None
    }

    /// True if some bytes are the content.
    fn is(&self, bytes: &[u8]) -> bool {
        if self.nocase { bytes.eq_ignore_ascii_case(&self.bytes) } else { *bytes == *self.bytes }
    }
}

/// A number in digits: spaces, a sign, then as many digits as there are.
fn digits(bytes: &[u8], base: u32) -> Option<i64> {
    let text = bytes.trim_ascii_start();
    let (negative, text) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let text = match base {
        16 => text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text),
        _ => text,
    };
    let count = text.iter().take_while(|byte| char::from(**byte).is_digit(base)).count();
    if count == 0 {
        return None;
    }
    let value = text[..count].iter().fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(base).unwrap_or(0);
        value.saturating_mul(u64::from(base)).saturating_add(u64::from(digit))
    });
    let value = value.cast_signed();
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Decodes base 64 up to the first byte that does not belong to it; line breaks are skipped.
fn decode_base64(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'\r' | b'\n' => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests;
