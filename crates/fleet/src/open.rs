//! The edits of a group without a final outcome at a sensor: the fyke beside it is silent, or not there.
//!
//! An edit is *open* from its reading until the fyke has it in force or refuses it. A fyke that is not there refuses
//! an edit for the moment only, and the answer has that reason; a silent one may carry out what it was sent, so there
//! is no answer before it speaks again. Each open edit has a final answer afterwards. Cost: a number per open or
//! refused edit.

use std::collections::{BTreeMap, BTreeSet};

/// Open edits and standing refusals of a sensor.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// Open edits; true if it has been told that there is no fyke.
    edits: BTreeMap<u64, bool>,
    /// Edits that are refused.
    refused: BTreeSet<u64>,
}

impl Open {
    /// Begins edits.
    pub fn begin(&mut self, sequences: impl IntoIterator<Item = u64>) {
        self.edits.extend(sequences.into_iter().map(|sequence| (sequence, false)));
    }

    /// True without open edits.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Takes the open edits, which have their outcomes now; none of them is refused any more.
    pub fn take(&mut self) -> Vec<u64> {
        let settled = std::mem::take(&mut self.edits);
        self.refused.retain(|sequence| !settled.contains_key(sequence));
        settled.into_keys().collect()
    }

    /// The open edits that have no answer yet; they count as refused until there is a fyke.
    pub fn tell(&mut self) -> Vec<u64> {
        let untold = self.edits.iter().filter(|(_, told)| !**told);
        let untold: Vec<u64> = untold.map(|(sequence, _)| *sequence).collect();
        self.edits.values_mut().for_each(|told| *told = true);
        self.refused.extend(&untold);
        untold
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, sequence: u64) {
        self.refused.insert(sequence);
    }

    /// After an edit that is in force: refusals before it stay only if `holds`.
    pub fn supersede(&mut self, by: u64, holds: impl Fn(u64) -> bool) {
        self.refused.retain(|sequence| *sequence >= by || holds(*sequence));
    }

    /// Number of standing refusals.
    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// The last edit with an answer, if `last` is the last one that was read.
    pub fn answered(&self, last: u64) -> u64 {
        self.edits.iter().find(|(_, told)| !**told).map_or(last, |(sequence, _)| sequence - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Open;

    #[test]
    fn an_open_edit_is_answered_once_for_each_state_and_a_refusal_goes_when_it_is_superseded() {
        let mut open = Open::default();
        open.begin([4, 5]);
        assert_eq!((open.answered(5), open.refused()), (3, 0));
        assert_eq!((open.tell(), open.tell()), (vec![4, 5], vec![]));
        assert_eq!((open.answered(5), open.refused()), (5, 2));
        open.begin([6]);
        assert_eq!((open.answered(6), open.tell()), (5, vec![6]));
        assert_eq!((open.take(), open.refused(), open.is_empty()), (vec![4, 5, 6], 0, true));
        [7, 8, 9].into_iter().for_each(|sequence| open.refuse(sequence));
        open.supersede(9, |sequence| sequence == 7);
        assert_eq!(open.refused(), 2, "7 stands, 8 is superseded, 9 is the last one");
    }
}
