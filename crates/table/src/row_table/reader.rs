//! A reader's end of a table.

use super::jobs::{Ask, Columns, Each, Find};
use super::lookup::{Candidate, KeyColumn, MAX_EITHER, Query, Scratch};
use super::{Rows, TableError};
use crate::arch::Level;
use crate::layout::{Column, MAX_KEY_WORDS};
use crate::published::Subscriber;
use fyke_frame::Mask;

/// Looks keys up. Cheap to clone; one per thread.
///
/// A look-up sees every edit that was finished when it began, and of an edit under way either all or nothing.
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

    /// Computes by other instructions than the fastest.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// The value of the row with this key; `None` when there is none or the key has another number of words.
    #[inline]
    pub fn find(&mut self, key: &[u32]) -> Option<u32> {
        let level = self.level;
        let rows = self.rows.latest();
        (key.len() == rows.key_words()).then(|| level.run(Find(Ask { rows, key }))).flatten()
    }

    /// Calls `visit` with the value of every row that has this key.
    pub fn find_each(&mut self, key: &[u32], visit: impl FnMut(u32)) {
        let level = self.level;
        let rows = self.rows.latest();
        if key.len() == rows.key_words() {
            level.run(Each(Ask { rows, key }, visit));
        }
    }

    /// Looks up a batch: lane *n*'s key is `columns[0][n], columns[1][n], …`. The lanes of `lanes` whose key is there
    /// come back, with their values in the same lanes of `found`, whose other lanes stay as they are.
    ///
    /// # Errors
    /// [`TableError::KeyWidth`] when `columns` are not as many as a key has words.
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

    /// Looks up a batch of keys of which up to [`MAX_EITHER`] words may be at one of two places: a row for each key
    /// that is there, of every lane for each way to choose the places. Ask for more rows of a key, where the candidate
    /// says so, with [`TableReader::find_each`].
    ///
    /// # Errors
    /// [`TableError::KeyWidth`] when `keys` are not as many as a key has words.
    ///
    /// # Panics
    /// When more words have two places.
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
