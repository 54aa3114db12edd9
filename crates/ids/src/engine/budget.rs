//! The work of all rules together: each byte that arrives brings units of [`crate::work`], which are saved up to a
//! bound, and every candidate and verification uses them. So the time for a byte is bounded, however many rules there
//! are and whatever they ask.
//!
//! While more than half is saved, each verification may use what one rule may use at most. Below that, it gets its part
//! of what is left, so that rules that need little are judged whatever others need. If the parts become too small, some
//! rules are left out, in turn. Invariant: what is left out or ended for this reason is counted.

use crate::work::MAX_WORK;

/// Units that a byte brings.
pub const PER_BYTE: u64 = 128;
/// Units that a frame brings, besides those of its bytes.
pub const PER_FRAME: u64 = 4096;
/// Most units that are saved: 16 verifications that use all they may.
pub const MOST: u64 = 16 * MAX_WORK;
/// Fewest units of a verification.
const FEWEST: u64 = 16;
/// Units of an alert, which is written.
pub const ALERT: u64 = 256;

/// Units that are saved for all rules.
#[derive(Debug)]
pub struct Budget {
    /// Below zero if the last verification used more than was left.
    left: i64,
    /// Candidates after the current one.
    rest: usize,
    /// Place of the first candidate that is judged when some are left out.
    turn: usize,
    used: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { left: MOST.cast_signed(), rest: 0, turn: 0, used: 0 }
    }
}

impl Budget {
    /// Adds what a frame or a piece of this length brings.
    pub fn earn(&mut self, len: usize) {
        let units = PER_FRAME + PER_BYTE * len as u64;
        self.left = self.left.saturating_add_unsigned(units).min(MOST.cast_signed());
    }

    /// Uses units.
    pub fn spend(&mut self, units: u64) {
        self.used += units;
        self.left = self.left.saturating_sub_unsigned(units);
    }

    /// Units that were used so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// True if this number of candidates can be judged with all that each may use.
    pub fn is_ample(&self, candidates: usize) -> bool {
        self.left > (MOST / 2).saturating_add(candidates as u64 * FEWEST).cast_signed()
    }

    /// Keeps the candidates for which there is enough, in turn, and moves the others to `out`.
    pub fn choose(&mut self, candidates: &mut Vec<u32>, out: &mut Vec<u32>) {
        let len = candidates.len();
        let kept = usize::try_from(self.left / FEWEST.cast_signed()).unwrap_or(0);
        if kept >= len {
            return;
        }
        let from = self.turn % len;
        let mut at = 0;
        candidates.retain(|rule| {
            let is_kept = (at + len - from) % len < kept;
            at += 1;
            if !is_kept {
                out.push(*rule);
            }
            is_kept
        });
        self.turn = (from + kept) % len;
    }

    /// Begins with a candidate before `rest` others, which uses some units before its verification; false if there
    /// are not enough left.
    pub fn next(&mut self, units: u64, rest: usize) -> bool {
        self.rest = rest;
        let are_left = self.left > units.cast_signed();
        if are_left {
            self.spend(units);
        }
        are_left
    }

    /// The units that a verification of the current candidate may use.
    pub fn grant(&self) -> u64 {
        if self.left > (MOST / 2).cast_signed() {
            return MAX_WORK;
        }
        let left = u64::try_from(self.left).unwrap_or(0);
        (left / (self.rest as u64 + 1)).clamp(FEWEST, MAX_WORK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_bounded_and_parts_are_equal() {
        let mut budget = Budget::default();
        budget.earn(1500);
        assert!(budget.is_ample(101) && budget.next(1, 100));
        assert_eq!((budget.left, budget.grant()), (MOST.cast_signed() - 1, MAX_WORK));
        budget.spend(MOST / 2);
        let part = budget.grant();
        assert!((MOST / 2 / 101 - 1..=MOST / 2 / 101).contains(&part), "{part}");
        // A candidate that needs nothing leaves its part to the others.
        assert!(budget.next(0, 99));
        assert!(budget.grant() > part && !budget.is_ample(1));
        budget.spend(2 * MOST);
        assert!(!budget.next(7, 0));
        assert_eq!(budget.used(), 1 + MOST / 2 + 2 * MOST);
    }

    #[test]
    fn candidates_are_left_out_in_turn() {
        let mut budget = Budget { left: 3 * FEWEST.cast_signed(), ..Budget::default() };
        let mut seen = Vec::new();
        for _ in 0..7 {
            let (mut candidates, mut out) = ((0..7).collect::<Vec<u32>>(), Vec::new());
            budget.choose(&mut candidates, &mut out);
            assert_eq!((candidates.len(), out.len()), (3, 4));
            assert!(candidates.is_sorted());
            seen.extend(candidates);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..7).flat_map(|rule| [rule; 3]).collect::<Vec<u32>>());
        let mut candidates = vec![1, 2, 3];
        budget.choose(&mut candidates, &mut Vec::new());
        assert_eq!(candidates, [1, 2, 3]);
    }
}
