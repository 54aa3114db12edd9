//! Uniting passes that differ in one test: `src host a or dst host a` are two passes before this step, and one
//! instruction can test both places.
//!
//! (P and a) or (P and b) is P and (a or b), if "a or b" has an instruction: the same values at two places of fixed
//! offset, or other values at one place. The latter is done only if few passes are left, because otherwise they become
//! rows of a table (`merge.rs`). Quadratic in the passes of a text, so only done for a few hundred.

use super::THRESHOLD;
use super::facts::{Facts, KnownByte};
use super::literal::{Bits, Literal};
use super::merge::{pair, union};
use crate::isa::test::Base;

/// Largest end of a united test: the ordered evaluator judges shorter frames.
const MAX_FLOOR: u32 = 64;

/// Number of passes up to which lists are tried to reduce their number.
const MAX_LISTED: usize = 4 * THRESHOLD;

/// Unites passes; `floor` becomes the shortest length of a frame that contains all bytes of the united tests.
pub(super) fn unite(passes: &mut Vec<Facts>, floor: &mut u32) {
    if passes.len() > MAX_LISTED {
        unite_by(pair, passes, floor);
    }
    if passes.len() <= MAX_LISTED {
        let (mut listed, mut end) = (passes.clone(), *floor);
        unite_by(|a, b| union(a, b).or_else(|| pair(a, b)), &mut listed, &mut end);
        if listed.len() < THRESHOLD {
            (*passes, *floor) = (listed, end);
        } else {
            unite_by(pair, passes, floor);
        }
    }
}

fn unite_by(
    both: impl Fn(&Literal, &Literal) -> Option<Literal>,
    passes: &mut Vec<Facts>,
    floor: &mut u32,
) {
    let mut first = 0;
    while first < passes.len() {
        let mut other = first + 1;
        while other < passes.len() {
            match united(&both, &passes[first], &passes[other], floor) {
                Some(united) => {
                    passes[first] = united;
                    passes.remove(other);
                    other = first + 1;
                }
                None => other += 1,
            }
        }
        first += 1;
    }
}

fn united(
    both: impl Fn(&Literal, &Literal) -> Option<Literal>,
    a: &Facts,
    b: &Facts,
    floor: &mut u32,
) -> Option<Facts> {
    if a.tests.len().abs_diff(b.tests.len()) > 1 {
        return None;
    }
    let (only_a, only_b) = (difference(a, b)?, difference(b, a)?);
    let one = both(&only_a, &only_b)?;
    // Values of one place need the same bytes as each of the tests.
    let end = match union(&only_a, &only_b) {
        Some(_) => 0,
        None => fixed_end(&only_a)?.max(fixed_end(&only_b)?),
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

/// The only positive test that is in `a` and not in `b`.
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

/// Frame offset after the bytes of a test at a fixed place.
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
