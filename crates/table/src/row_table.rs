//! Exact rows: a key of 1 to 6 words and a value. One writer, many readers, no locks for either.
//!
//! | | cost |
//! |---|---|
//! | insert, remove, change | a scan of two buckets, one entry, one Bloom word, their counters; growth now and then |
//! | find | Bloom word (most misses end here), two bucket lines, one entry line |
//! | memory per row | 12 to 23 bytes of slots, 16 or 32 of entry, some 2 of Bloom; the writer's own 16 to 31 |
//!
//! Invariants: a row is in exactly one slot ([`RowTable::insert`] keeps keys unique, [`RowTable::add`] does not); a
//! slot points to an entry that is completely written; a row never moves within a table. A reader sees each single edit
//! completely and at once. A group of edits is not atomic here; the epochs of the pass engine make it atomic. Measured
//! figures: `docs/decisions/0004-edits-in-tables.md`.

mod jobs;
mod lookup;
mod reader;
mod rows;

pub use lookup::{Candidate, KeyColumn, MAX_EITHER};
pub use reader::TableReader;

use jobs::{Add, Added, KeyQuery, Look};
use rows::{Books, Place, Rows};

use crate::arch::Level;
use crate::hash::{KeyHash, Seed};
use crate::layout::MAX_KEY_WORDS;
use crate::published::Publisher;

/// Default limit on rows of a table.
pub const DEFAULT_ROW_LIMIT: usize = 1 << 22;
/// Limit on rebuilds without growth; beyond it a table counts as full. Random keys never reach it.
const MAX_RESEEDS: u32 = 16;

/// Limit on rows of one key: they must fit its two buckets.
pub const MAX_SAME: usize = 8;

/// Refusal of an edit; the table is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The key does not have the table's number of words.
    #[error("a key of {given} words for a table of {expected}-word keys")]
    KeyWidth {
        /// Number of words of the key.
        given: usize,
        /// Number of words of the table's keys.
        expected: usize,
    },
    /// The limit on rows with this key is reached.
    #[error("{limit} rows have this key already")]
    SameKey {
        /// The limit.
        limit: usize,
    },
    /// The limit on rows of the table is reached.
    #[error("the table is full: {limit} rows")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// Sizes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Number of rows.
    pub rows: usize,
    /// Number of slots, used and free.
    pub slots: usize,
    /// Number of rows in the spill bucket.
    pub spilled: usize,
    /// Number of rebuilds to a larger size.
    pub growths: u32,
    /// Number of rebuilds because the spill bucket was full.
    pub reseeds: u32,
    /// Number of bytes that readers share.
    pub shared_bytes: usize,
}

/// Writer of a table.
#[derive(Debug)]
pub struct RowTable {
    publisher: Publisher<Rows>,
    books: Books,
    /// Entries that were freed.
    free: Vec<u32>,
    /// First entry that was never used.
    fresh: u32,
    capacity: u32,
    len: usize,
    limit: usize,
    key_words: usize,
    seed: Seed,
    level: Level,
    growths: u32,
    reseeds: u32,
}

impl RowTable {
    /// Creates an empty table for keys of `key_words` words.
    ///
    /// # Panics
    /// When `key_words` is 0 or more than [`MAX_KEY_WORDS`].
    pub fn new(key_words: usize, seed: Seed) -> Self {
        Self::with_capacity(key_words, seed, 0, DEFAULT_ROW_LIMIT)
    }

    /// Creates an empty table that holds `capacity` rows before it grows and never more than `limit`.
    ///
    /// # Panics
    /// When `key_words` is 0 or more than [`MAX_KEY_WORDS`].
    pub fn with_capacity(key_words: usize, mut seed: Seed, capacity: usize, limit: usize) -> Self {
        assert!((1..=MAX_KEY_WORDS).contains(&key_words), "keys have 1 to {MAX_KEY_WORDS} words");
        let limit = limit.min(rows::MAX_ROWS);
        let hash = KeyHash::new(&mut seed);
        let rows = Rows::new(key_words, rows::bits_for(capacity.min(limit)), hash);
        let level = Level::best();
        RowTable {
            books: Books::new(&rows),
            free: Vec::new(),
            fresh: 0,
            capacity: rows.capacity(),
            publisher: Publisher::new(rows),
            len: 0,
            limit,
            key_words,
            seed,
            level,
            growths: 0,
            reseeds: 0,
        }
    }

    /// Creates a reader, for any thread.
    pub fn reader(&self) -> TableReader {
        TableReader::new(self.publisher.subscribe(), self.level)
    }

    /// Number of words of a key.
    pub fn key_words(&self) -> usize {
        self.key_words
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a row, or changes the value of the row with this key and returns the old value.
    pub fn insert(&mut self, key: &[u32], value: u32) -> Result<Option<u32>, TableError> {
        if key.len() != self.key_words {
            return Err(TableError::KeyWidth { given: key.len(), expected: self.key_words });
        }
        let mut rows = self.publisher.current();
        let (mut hash, mut found) = self.level.run(Look(KeyQuery { rows, key }));
        if let Place::At { entry, value: old, .. } = found {
            rows.change(entry, value);
            return Ok(Some(old));
        }
        if self.len >= self.limit {
            return Err(TableError::Full { limit: self.limit });
        }
        while found == Place::NoRoom || self.len >= self.capacity as usize {
            self.grow(found == Place::NoRoom)?;
            rows = self.publisher.current();
            (hash, found) = self.level.run(Look(KeyQuery { rows, key }));
        }
        if let Place::Free { slot } = found {
            let entry = self.free.pop().unwrap_or(self.fresh);
            self.fresh = self.fresh.max(entry + 1);
            self.books.enter(rows, slot, entry, hash);
            rows.place(slot, entry, hash, key, value);
            self.len += 1;
        }
        Ok(None)
    }

    /// Adds a row, even if other rows have this key. Returns its entry, which identifies the row until it is removed.
    ///
    /// # Errors
    /// [`TableError`]
    #[inline]
    pub fn add(&mut self, key: &[u32], value: u32) -> Result<u32, TableError> {
        if key.len() != self.key_words {
            return Err(TableError::KeyWidth { given: key.len(), expected: self.key_words });
        }
        if self.len >= self.limit {
            return Err(TableError::Full { limit: self.limit });
        }
        if self.len >= self.capacity as usize {
            self.grow(false)?;
        }
        let entry = self.free.last().copied().unwrap_or(self.fresh);
        loop {
            let query = KeyQuery { rows: self.publisher.current(), key };
            let books = &mut self.books;
            match self.level.run(Add { query, books, entry, value }) {
                Added::Done => break,
                Added::Same => return Err(TableError::SameKey { limit: MAX_SAME }),
                Added::NoRoom => self.grow(true)?,
            }
        }
        if self.free.pop().is_none() {
            self.fresh += 1;
        }
        self.len += 1;
        Ok(entry)
    }

    /// Removes the row with this entry; returns false if there was none.
    #[inline]
    pub fn take(&mut self, entry: u32) -> bool {
        if !self.books.take(self.publisher.current(), entry) {
            return false;
        }
        self.free.push(entry);
        self.len -= 1;
        true
    }

    /// Returns the key of the row with this entry; only its first words are used.
    pub fn key_of(&self, entry: u32) -> [u32; MAX_KEY_WORDS] {
        if entry < self.fresh { self.publisher.current().key(entry) } else { [0; MAX_KEY_WORDS] }
    }

    /// Removes a row and returns its value; `None` if there is no such row.
    pub fn remove(&mut self, key: &[u32]) -> Option<u32> {
        if key.len() != self.key_words {
            return None;
        }
        let rows = self.publisher.current();
        let (_, place) = self.level.run(Look(KeyQuery { rows, key }));
        let Place::At { entry, value, .. } = place else { return None };
        self.take(entry).then_some(value)
    }

    /// Returns the value of a row.
    pub fn get(&self, key: &[u32]) -> Option<u32> {
        let rows = self.publisher.current();
        let query = (key.len() == self.key_words).then_some(Look(KeyQuery { rows, key }));
        match query.map(|look| self.level.run(look)) {
            Some((_, Place::At { value, .. })) => Some(value),
            _ => None,
        }
    }

    /// Calls `visit` with every key and value, in no particular order.
    pub fn for_each(&self, mut visit: impl FnMut(&[u32], u32)) {
        let rows = self.publisher.current();
        rows.for_each(|key, value| visit(&key[..self.key_words], value));
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        let hash = KeyHash::new(&mut self.seed);
        let rows = Rows::new(self.key_words, rows::bits_for(0), hash);
        self.books = Books::new(&rows);
        self.capacity = rows.capacity();
        self.free.clear();
        (self.fresh, self.len) = (0, 0);
        self.publisher.publish(rows);
    }

    /// Returns the sizes of the table.
    pub fn stats(&self) -> TableStats {
        let rows = self.publisher.current();
        TableStats {
            rows: self.len,
            slots: rows.slot_count(),
            spilled: rows.spilled(),
            growths: self.growths,
            reseeds: self.reseeds,
            shared_bytes: rows.bytes(),
        }
    }

    /// Reserves space for this many additional rows at once.
    pub fn reserve(&mut self, additional: usize) {
        let bits = rows::bits_for((self.len + additional).min(self.limit));
        let old = self.publisher.current();
        if bits > old.bits() {
            self.growths += 1;
            self.rebuild(bits, old.hash);
        }
    }

    /// Enlarges the table, or gives it another hash if its spill bucket is full although many slots are free.
    #[cold]
    fn grow(&mut self, no_room: bool) -> Result<(), TableError> {
        let old = self.publisher.current();
        let (bits, hash) = (old.bits(), old.hash);
        if no_room && self.len * 4 < old.slot_count() {
            if self.reseeds == MAX_RESEEDS {
                return Err(TableError::Full { limit: self.len });
            }
            self.reseeds += 1;
            let hash = KeyHash::new(&mut self.seed);
            self.rebuild(bits, hash);
        } else {
            self.growths += 1;
            // Small tables are cheap to rebuild, so they grow in larger steps.
            self.rebuild(if bits < 14 { bits + 2 } else { bits + 1 }, hash);
        }
        Ok(())
    }

    /// Rebuilds the table with at least `1 << bits` buckets and swaps it in. O(rows).
    fn rebuild(&mut self, mut bits: u32, mut hash: KeyHash) {
        let old = self.publisher.current();
        let (rows, books) = loop {
            let rows = Rows::new(self.key_words, bits, hash);
            if let Some(books) = rows.fill_from(old, self.level) {
                break (rows, books);
            }
            hash = KeyHash::new(&mut self.seed);
            bits += 1;
        };
        self.books = books;
        self.capacity = rows.capacity();
        self.publisher.publish(rows);
    }
}

#[cfg(test)]
mod tests;
