//! What is asked of one generation of a table, as jobs that are compiled for each level of the processor.

use super::lookup::{Query, find_columns};
use super::rows::{Place, Rows};
use crate::arch::{Job, Probe};
use fyke_frame::Mask;

/// A question about one key: hash and answer.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub rows: &'a Rows,
    pub key: &'a [u32],
}

/// Where a key is or could be; for the writer.
pub(super) struct Look<'a>(pub Ask<'a>);
/// How many rows have a key, and a free slot for one more; for the writer.
pub(super) struct LookMore<'a>(pub Ask<'a>);
/// A free slot for a key of this hash, which is not there.
pub(super) struct LookFree<'a>(pub &'a Rows, pub u32);
/// The slot of the row with this entry, and its hash.
pub(super) struct LookEntry<'a>(pub &'a Rows, pub u32);
/// The value of a key; for readers.
pub(super) struct Find<'a>(pub Ask<'a>);
/// The values of all rows with a key; for readers.
pub(super) struct Each<'a, F>(pub Ask<'a>, pub F);
/// The values of a batch of keys; for readers.
pub(super) struct Columns<'a>(pub &'a Rows, pub Query<'a>);

impl Job for Look<'_> {
    type Output = (u32, Place);
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> (u32, Place) {
        let hash = self.0.rows.hash(self.0.key);
        (hash, self.0.rows.look(probe, self.0.key, hash))
    }
}

impl Job for LookMore<'_> {
    type Output = (u32, usize, Place);
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> (u32, usize, Place) {
        let hash = self.0.rows.hash(self.0.key);
        let (same, place) = self.0.rows.look_more(probe, self.0.key, hash);
        (hash, same, place)
    }
}

impl Job for LookFree<'_> {
    type Output = Place;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Place {
        self.0.look_free(probe, self.1)
    }
}

impl Job for LookEntry<'_> {
    type Output = Option<(u32, usize)>;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Option<(u32, usize)> {
        let LookEntry(rows, entry) = self;
        let hash = rows.hash(&rows.key(entry)[..rows.key_words()]);
        Some((hash, rows.look_entry(probe, entry, hash)?))
    }
}

impl Job for Find<'_> {
    type Output = Option<u32>;
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> Option<u32> {
        let Ask { rows, key } = self.0;
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
        let Ask { rows, key } = self.0;
        let hash = rows.hash(key);
        if rows.bloom().may_contain(hash) {
            rows.each(probe, key, hash, self.1);
        }
    }
}

impl Job for Columns<'_> {
    type Output = (Mask, Mask);
    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> (Mask, Mask) {
        find_columns(probe, self.0, self.1)
    }
}
