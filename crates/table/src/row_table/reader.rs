//! Reader of a table.

use super::jobs::{Columns, Each, Find, KeyQuery};
use super::lookup::{Candidate, KeyColumn, MAX_EITHER, Query, Scratch};
use super::{Rows, TableError};
use crate::arch::Level;
use crate::layout::{Column, MAX_KEY_WORDS};
use crate::published::Subscriber;
use fyke_frame::Mask;

/// Looks keys up. Cheap to clone; one per thread.
///
/// A look-up sees every edit that was finished when it began; a concurrent edit is seen completely or not at all.
#[derive(Debug, Clone)]
pub struct TableReader {
    rows: Subscriber<Rows>,
    level: Level,
    scratch: Box<Scratch>,
}

impl TableReader {
    pub(super) fn new(rows: Subscriber<Rows>, level: Level) -> Self {
        TableReader { rows, level, scratch: Box::default() }
    }

    /// Selects another instruction level than the fastest.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Returns the value of the row with this key; `None` if there is none or if the key has a wrong number of words.
    #[inline]
    pub fn find(&mut self, key: &[u32]) -> Option<u32> {
        let level = self.level;
        let rows = self.rows.latest();
        (key.len() == rows.key_words()).then(|| level.run(Find(KeyQuery { rows, key }))).flatten()
    }

    /// Calls `visit` with the value of every row that has this key.
    pub fn find_each(&mut self, key: &[u32], visit: impl FnMut(u32)) {
        let level = self.level;
        let rows = self.rows.latest();
        if key.len() == rows.key_words() {
            level.run(Each(KeyQuery { rows, key }, visit));
        }
    }

    /// Looks up a batch: the key of lane *n* is `columns[0][n], columns[1][n], …`. Returns the lanes of `lanes` with a
    /// key that is present, and writes their values to the same lanes of `found`; other lanes of `found` are unchanged.
    ///
    /// # Errors
    /// [`TableError::KeyWidth`] when the number of `columns` is not the number of words of a key.
    pub fn find_columns(
        &mut self,
        columns: &[&Column],
        lanes: Mask,
        found: &mut Column,
    ) -> Result<Mask, TableError> {
        let Some(&first) = columns.first() else { return Err(self.width(0)) };
        let mut keys = [KeyColumn { words: first, others: None }; MAX_KEY_WORDS];
        keys.iter_mut().zip(columns).for_each(|(key, column)| key.words = column);
        let keys = keys.get(..columns.len()).ok_or_else(|| self.width(columns.len()))?;
        let mut hits = Mask::EMPTY;
        for one in self.find_rows(keys, lanes)? {
            found[usize::from(one.lane)] = one.value;
            hits.set(one.lane.into());
        }
        Ok(hits)
    }

    /// Looks up a batch of keys in which up to [`MAX_EITHER`] words may be in one of two columns. Returns one row per
    /// key that is present, for every lane and every combination of choices. If the candidate has `more`, use
    /// [`TableReader::find_each`] for the other rows of its key.
    ///
    /// # Errors
    /// [`TableError::KeyWidth`] when the number of `keys` is not the number of words of a key.
    ///
    /// # Panics
    /// When more words have two columns.
    pub fn find_rows(
        &mut self,
        keys: &[KeyColumn],
        lanes: Mask,
    ) -> Result<&[Candidate], TableError> {
        let either = keys.iter().filter(|key| key.others.is_some()).count();
        assert!(either <= MAX_EITHER, "{either} words at two places, {MAX_EITHER} are possible");
        if keys.len() != self.rows.latest().key_words() {
            return Err(self.width(keys.len()));
        }
        let query = Query { columns: keys, lanes };
        Ok(self.level.run(Columns(self.rows.current(), query, &mut self.scratch)))
    }

    fn width(&self, given: usize) -> TableError {
        TableError::KeyWidth { given, expected: self.rows.current().key_words() }
    }
}
