//! Operations on one generation of a table, as jobs that are compiled for each instruction level.

use super::MAX_SAME;
use super::lookup::{Candidate, Query, Scratch, find_columns};
use super::rows::{Books, Place, Rows};
use crate::arch::{Job, Probe};

/// An operation on one key: takes its hash, returns the answer.
#[derive(Clone, Copy)]
pub(super) struct KeyQuery<'a> {
    pub rows: &'a Rows,
    pub key: &'a [u32],
}

/// Finds the slot of a key, or a free slot for it; for the writer.
pub(super) struct Look<'a>(pub KeyQuery<'a>);
/// Adds a row, even if others have its key; for the writer.
pub(super) struct Add<'a> {
    pub query: KeyQuery<'a>,
    pub books: &'a mut Books,
    pub entry: u32,
    pub value: u32,
}

/// Result of [`Add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    Done,
    /// The limit of [`MAX_SAME`] rows with this key is reached.
    Same,
    NoRoom,
}
/// Finds a free slot for an absent key with this hash.
pub(super) struct LookFree<'a>(pub &'a Rows, pub u32);
/// Finds the value of a key; for readers.
pub(super) struct Find<'a>(pub KeyQuery<'a>);
/// Finds the values of all rows with a key; for readers.
pub(super) struct Each<'a, F>(pub KeyQuery<'a>, pub F);
/// Finds the rows for a batch of keys; for readers.
pub(super) struct Columns<'a, 's>(pub &'a Rows, pub Query<'a>, pub &'s mut Scratch);

impl Job for Look<'_> {
    type Output = (u32, Place);
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> (u32, Place) {
        let hash = self.0.rows.hash(self.0.key);
        (hash, self.0.rows.look(probe, self.0.key, hash))
    }
}

impl Job for Add<'_> {
    type Output = Added;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Added {
        let KeyQuery { rows, key } = self.query;
        let hash = rows.hash(key);
        let (same, place) = rows.look_more(probe, key, hash);
        match place {
            _ if same >= MAX_SAME => Added::Same,
            Place::Free { slot } => {
                self.books.enter(rows, slot, self.entry, hash);
                rows.place(slot, self.entry, hash, key, self.value);
                Added::Done
            }
            _ => Added::NoRoom,
        }
    }
}

impl Job for LookFree<'_> {
    type Output = Place;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Place {
        self.0.look_free(probe, self.1)
    }
}

impl Job for Find<'_> {
    type Output = Option<u32>;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Option<u32> {
        let KeyQuery { rows, key } = self.0;
        let hash = rows.hash(key);
        if !rows.bloom().may_contain(hash) {
            return None;
        }
        rows.find(probe, key, hash)
    }
}

impl<F: FnMut(u32)> Job for Each<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        let KeyQuery { rows, key } = self.0;
        let hash = rows.hash(key);
        if rows.bloom().may_contain(hash) {
            rows.each(probe, key, hash, self.1);
        }
    }
}

impl<'s> Job for Columns<'_, 's> {
    type Output = &'s [Candidate];
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> &'s [Candidate] {
        find_columns(probe, self.0, &self.1, self.2)
    }
}
