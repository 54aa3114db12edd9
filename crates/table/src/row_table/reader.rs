//! A reader's end of a table.

use super::jobs::{Ask, Columns, Each, Find};
use super::lookup::{Query, Scratch};
use super::{Rows, TableError};
use crate::arch::Level;
use crate::layout::Column;
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
        self.find_several(columns, lanes, found).map(|(hits, _)| hits)
    }

    /// Like [`TableReader::find_columns`]; besides, the lanes of the answer whose key may have more rows than the one
    /// in `found`. Ask for those with [`TableReader::find_each`].
    ///
    /// # Errors
    /// [`TableError::KeyWidth`] when `columns` are not as many as a key has words.
    pub fn find_several(
        &mut self,
        columns: &[&Column],
        lanes: Mask,
        found: &mut Column,
    ) -> Result<(Mask, Mask), TableError> {
        let level = self.level;
        let rows = self.rows.latest();
        if columns.len() != rows.key_words() {
            return Err(TableError::KeyWidth { given: columns.len(), expected: rows.key_words() });
        }
        let scratch = &mut *self.scratch;
        Ok(level.run(Columns(rows, Query { columns, lanes, found, scratch })))
    }
}
