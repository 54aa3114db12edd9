//! Uniting passes that differ in one test: `src host a or dst host a` are two passes up to here, and one instruction
//! can look at both places.
//!
//! (P and a) or (P and b) is P and (a or b), where "a or b" has an instruction: other values at one place, or the same
//! values at two places of fixed offset. Quadratic in the passes of a text, so only done for a few hundred.

use super::facts::{Facts, KnownByte};
use super::literal::{Bits, Literal};
use super::merge::{pair, union};
use crate::test::Base;

/// Farthest byte that a united test may look at: frames that are shorter are judged by the ordered evaluator.
const MAX_FLOOR: u32 = 64;

/// Unites what can be united; `floor` becomes the frame length from which on all bytes of the united tests are there.
pub(super) fn unite(passes: &mut Vec<Facts>, floor: &mut u32) {
    let mut first = 0;
    while first < passes.len() {
        let mut other = first + 1;
        while other < passes.len() {
            match united(&passes[first], &passes[other], floor) {
                Some(both) => {
                    passes[first] = both;
                    passes.remove(other);
                    other = first + 1;
                }
                None => other += 1,
            }
        }
        first += 1;
    }
}

fn united(a: &Facts, b: &Facts, floor: &mut u32) -> Option<Facts> {
    if a.tests.len().abs_diff(b.tests.len()) > 1 {
        return None;
    }
    let (only_a, only_b) = (difference(a, b)?, difference(b, a)?);
    let (one, end) = if let Some(one) = union(&only_a, &only_b) {
        (one, 0)
    } else {
        let one = pair(&only_a, &only_b)?;
        let end = fixed_end(&only_a)?.max(fixed_end(&only_b)?);
        (one, end)
    };
    if end > MAX_FLOOR {
        return None;
    }
    let mut both = Facts::default();
    both.bytes.extend(a.bytes.iter().filter(|byte| b.bytes.contains(byte)));
    both.tests.extend(a.tests.iter().filter(|test| b.tests.contains(test)).cloned());
    both.tests.push((one, false));
    *floor = (*floor).max(end);
    Some(both)
}

/// The one positive test that `a` has and `b` has not.
fn difference(a: &Facts, b: &Facts) -> Option<Literal> {
    let bytes: Vec<&KnownByte> = a.bytes.iter().filter(|byte| !b.bytes.contains(byte)).collect();
    let mut tests = a.tests.iter().filter(|test| !b.tests.contains(test));
    match (bytes[..].first(), tests.next()) {
        (None, Some((test, false))) => tests.next().is_none().then(|| test.clone()),
        (Some(first), None) => {
            let last = bytes[bytes.len() - 1];
            if last.base != first.base || last.at - first.at >= 4 {
                return None;
            }
            let (mut mask, mut value) = (0, 0);
            for byte in &bytes {
                let shift = 120 - 8 * (byte.at - first.at);
                mask |= u128::from(byte.mask) << shift;
                value |= u128::from(byte.value) << shift;
            }
            let (mask, value) = (Bits::new(mask), Bits::new(value));
            Some(Literal::Bytes { base: first.base, at: first.at, mask, value })
        }
        _ => None,
    }
}

/// Frame offset behind the bytes of a test at a fixed place.
fn fixed_end(literal: &Literal) -> Option<u32> {
    match literal {
        Literal::Bytes { .. } => literal.fixed_end(),
        Literal::OneOf { word, second: 0, .. } | Literal::Range { word, either: false, .. }
            if word.base == Base::Direct =>
        {
            Some(u32::from(word.at + word.width()))
        }
        Literal::Prefix { at, second: 0, .. } => Some(u32::from(*at) + 16),
        _ => None,
    }
}
