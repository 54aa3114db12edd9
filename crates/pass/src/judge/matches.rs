//! Matched passes: a side column that is built only on request.

use crate::isa::id::{FilterId, PassId};
use fyke_frame::BATCH_CAPACITY;

/// Extent of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MatchMode {
    /// The first pass, in the order of evaluation.
    #[default]
    First,
    /// All passes.
    All,
}

/// A pass that matched a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// The pass.
    pub pass: PassId,
    /// The filter it belongs to, unless it was made by hand or its filter was modified.
    pub filter: Option<FilterId>,
}

const NONE: u32 = u32::MAX;

/// For each frame of a batch, the passes that matched it, in the order of evaluation. Reused from batch to batch;
/// allocates only while it grows.
#[derive(Debug, Clone)]
pub struct Matches {
    mode: MatchMode,
    /// First and last entry of each frame.
    ends: Box<[(u32, u32); BATCH_CAPACITY]>,
    entries: Vec<(Match, u32)>,
}

impl Matches {
    /// An empty column.
    pub fn new(mode: MatchMode) -> Matches {
        Matches { mode, ends: Box::new([(NONE, NONE); BATCH_CAPACITY]), entries: Vec::new() }
    }

    /// Extent of the report.
    pub fn mode(&self) -> MatchMode {
        self.mode
    }

    /// The passes that matched frame `index`; none for rejected frames, and for frames that an empty set accepted.
    pub fn of(&self, index: usize) -> impl Iterator<Item = Match> + '_ {
        let mut at = self.ends.get(index).map_or(NONE, |ends| ends.0);
        std::iter::from_fn(move || {
            let (found, next) = self.entries.get(at as usize)?;
            at = *next;
            Some(*found)
        })
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.ends.fill((NONE, NONE));
    }

    pub(crate) fn push(&mut self, index: usize, found: Match) {
        let at = self.entries.len() as u32;
        let (first, last) = &mut self.ends[index];
        match self.entries.get_mut(*last as usize) {
            Some((_, next)) => *next = at,
            None => *first = at,
        }
        *last = at;
        self.entries.push((found, NONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_apart_and_in_order() {
        let mut matches = Matches::new(MatchMode::All);
        for (frame, pass) in [(3, 1), (255, 2), (3, 4), (3, 9)] {
            matches.push(frame, Match { pass: PassId(pass), filter: None });
        }
        assert!(matches.of(3).map(|found| found.pass.0).eq([1, 4, 9]));
        assert!(matches.of(255).map(|found| found.pass.0).eq([2]));
        assert_eq!(matches.of(0).count() + matches.of(999).count(), 0);
        matches.clear();
        assert_eq!(matches.of(3).count(), 0);
    }
}
