//! The readers' half of a shape: the table of its rows.

use crate::isa::id::{Epoch, OrderKey, PassId, RowRef};
use crate::isa::test::{Compiled, Place};
use crate::lower::needs::Needs;
use crate::state::rows::{Arena, Residual, Slot};
use fyke_frame::Frame;
use fyke_table::TableReader;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

/// Place of a word of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyPlace {
    pub place: Place,
    pub mask: u32,
    /// Distance of a second place: a row matches if one of both has its value.
    pub second: Option<u32>,
}

/// The readers' half of a shape.
#[derive(Debug, Clone)]
pub(crate) struct PublishedShape {
    /// Its index among the set's shapes.
    pub number: u32,
    /// Declared by the caller; its rows are not in the state.
    pub declared: bool,
    /// Order key before which no row comes.
    pub first: OrderKey,
    /// Tests of all rows.
    pub common: Vec<Arc<Compiled>>,
    /// The words of the key.
    pub keys: Vec<KeyPlace>,
    /// Look-up from key to slot.
    pub table: TableReader,
    pub slots: Arc<Arena<Slot>>,
    pub residuals: Arc<Arena<OnceLock<Residual>>>,
    /// Slots of earlier tables, while readers that have not advanced count in them.
    pub earlier: Vec<Weak<Arena<Slot>>>,
    /// Needs of the texts of which passes are rows.
    pub needs: Vec<Arc<Needs>>,
}

impl PublishedShape {
    /// Frames accepted by a row, by readers of this table and of earlier ones.
    pub fn accepted(&self, number: u32) -> u64 {
        let Some(slot) = self.slots.get(number) else { return 0 };
        let earlier = self.earlier.iter().filter_map(Weak::upgrade);
        let counts = earlier.filter_map(|slots| {
            let same = slots.get(number).filter(|old| old.order_key() == slot.order_key())?;
            Some(same.accepted.load(Ordering::Relaxed))
        });
        slot.accepted.load(Ordering::Relaxed) + counts.sum::<u64>()
    }

    /// The order key of the first row that accepts a frame; slow and obvious.
    pub fn first(&self, at: Epoch, frame: &Frame) -> Option<OrderKey> {
        if !self.common.iter().all(|one| one.holds(frame)) {
            return None;
        }
        let words = |key: &KeyPlace| {
            let word = |place: Place| Some(place.load(frame.data).ok()? & key.mask);
            let first = word(key.place)?;
            Some([first, key.second.map_or(Some(first), |by| word(key.place.moved(by)))?])
        };
        let words: Vec<[u32; 2]> = self.keys.iter().map(words).collect::<Option<_>>()?;
        let mut first = None;
        for choice in 0..1_usize << words.len() {
            let second = |at: usize| choice >> at & 1;
            if (0..words.len()).any(|at| second(at) == 1 && words[at][0] == words[at][1]) {
                continue;
            }
            let key = words.iter().enumerate().map(|(at, word)| word[second(at)]);
            let key: Vec<u32> = key.collect();
            self.table.clone().find_each(&key, |slot| {
                let row = self.slots.get(slot).filter(|row| row.is_live(at));
                let row = row.filter(|row| self.further(row, frame));
                first = first.into_iter().chain(row.map(Slot::order_key)).min();
            });
        }
        first
    }

    /// Evaluates the tests of a row besides its key.
    #[inline]
    pub fn further(&self, row: &Slot, frame: &Frame) -> bool {
        let Some(number) = row.residual().checked_sub(1) else { return true };
        let tests = self.residuals.get(number).and_then(OnceLock::get);
        tests.is_some_and(|tests| tests.iter().all(|one| one.holds(frame)))
    }
}

/// Frames that passes accepted as rows.
pub(crate) trait RowCounts: fmt::Debug {
    /// Frames that a pass accepted, which is or was a row.
    fn accepted(&self, id: PassId, row: Option<RowRef>) -> u64;
}
