//! Class values of the frames of a batch, and a set of slot indices: the tables that the packet loop reads.
//!
//! A node that classifies has a column. If a frame may have several class values (a demultiplexer whose filters
//! overlap), each value also has a mask, so that an edge costs one look-up, whatever the number of edges. Memory: 4
//! bytes a frame; with several values, 32 bytes for each value in use, and for values below [`DENSE`] 32 bytes for
//! each up to the largest in use.

use fyke_frame::{BATCH_CAPACITY, Mask};
use std::collections::HashMap;

/// Values below this have their mask in an array, others in a hash table.
const DENSE: u32 = 1 << 16;

/// The class values of a batch.
#[derive(Debug, Default)]
pub(crate) struct Column {
    /// First value that each frame received.
    values: Vec<u32>,
    /// Frames of each value; only if a frame may have several.
    sets: Vec<Mask>,
    /// Frames of each value from [`DENSE`] on.
    sparse: HashMap<u32, Mask>,
    /// Values that have frames.
    touched: Vec<u32>,
    /// Frames that have a value.
    given: Mask,
    several: bool,
}

impl Column {
    pub fn new(several: bool) -> Column {
        Column { values: vec![0; BATCH_CAPACITY], several, ..Column::default() }
    }

    /// True if a frame may have several values.
    pub fn is_several(&self) -> bool {
        self.several
    }

    /// The first value of a frame.
    #[inline]
    pub fn value(&self, index: usize) -> u32 {
        self.values.get(index).copied().unwrap_or(0)
    }

    /// Gives a frame a value: it replaces the one it had, or is added to them.
    #[inline]
    pub fn assign(&mut self, index: usize, value: u32) {
        let Some(place) = self.values.get_mut(index) else { return };
        if !self.several {
            *place = value;
            return;
        }
        if !self.given.get(index) {
            self.given.set(index);
            *place = value;
        }
        let wanted = value as usize;
        if value < DENSE && self.sets.len() <= wanted {
            self.sets.resize(wanted + 1, Mask::EMPTY);
        }
        let set = match value < DENSE {
            true => &mut self.sets[wanted],
            false => self.sparse.entry(value).or_insert(Mask::EMPTY),
        };
        if set.is_empty() {
            self.touched.push(value);
        }
        set.set(index);
    }

    /// Frames of a value, if a frame may have several.
    #[inline]
    fn set(&self, value: u32) -> Mask {
        let set = match value < DENSE {
            true => self.sets.get(value as usize),
            false => self.sparse.get(&value),
        };
        set.copied().unwrap_or(Mask::EMPTY)
    }

    /// The frames of `within` that have a value.
    #[inline]
    pub fn of(&self, class: u32, within: Mask) -> Mask {
        if self.several {
            return self.set(class) & within;
        }
        let mut mask = Mask::EMPTY;
        for index in within.iter().filter(|&index| self.values[index] == class) {
            mask.set(index);
        }
        mask
    }

    /// Values that have frames, if a frame may have several.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// All values of a frame.
    pub fn values_of(&self, index: usize) -> impl Iterator<Item = u32> + '_ {
        let one = (!self.several).then(|| self.value(index));
        let has = move |value: &&u32| self.set(**value).get(index);
        one.into_iter().chain(self.touched.iter().filter(has).copied())
    }

    /// The values that frames of `within` have, ascending, each with these frames.
    pub fn groups(&self, within: Mask) -> Vec<(u32, Mask)> {
        let mut values = match self.several {
            true => self.touched.clone(),
            false => within.iter().map(|index| self.value(index)).collect(),
        };
        values.sort_unstable();
        values.dedup();
        let groups = values.into_iter().map(|value| (value, self.of(value, within)));
        groups.filter(|(_, frames)| !frames.is_empty()).collect()
    }

    /// Copies the values of frames from another column.
    pub fn copy(&mut self, other: &Column, frames: Mask) {
        for index in frames.iter() {
            other.values_of(index).for_each(|value| self.assign(index, value));
        }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        if !self.several {
            self.values.fill(0);
            return;
        }
        for value in self.touched.drain(..) {
            if let Some(set) = self.sets.get_mut(value as usize) {
                *set = Mask::EMPTY;
            }
        }
        self.sparse.clear();
        for index in self.given.iter() {
            self.values[index] = 0;
        }
        self.given = Mask::EMPTY;
    }
}

/// A set of slot indices.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<u64>);

impl Places {
    /// Creates an empty set with room for `count` slots.
    pub fn new(count: usize) -> Places {
        Places(vec![0; count.div_ceil(64)])
    }

    #[inline]
    pub fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Removes and returns the lowest index from `first` on.
    #[inline]
    pub fn pop_from(&mut self, first: usize) -> Option<usize> {
        let (word, bit) = (first / 64, first % 64);
        for at in word..self.0.len() {
            let low = if at == word { u64::MAX << bit } else { u64::MAX };
            let rest = self.0[at] & low;
            if rest != 0 {
                let place = at * 64 + rest.trailing_zeros() as usize;
                self.0[at] &= !(1 << (place % 64));
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_one_value_or_several() {
        let mut one = Column::new(false);
        one.assign(3, 7);
        one.assign(3, 8);
        assert_eq!((one.value(3), one.of(7, Mask::first(256)).count()), (8, 0));
        let mut several = Column::new(true);
        for (frame, value) in [(3, 7), (3, 9), (200, 9), (4, u32::MAX), (5, DENSE)] {
            several.assign(frame, value);
        }
        assert!(several.of(9, Mask::first(256)).iter().eq([3, 200]));
        assert!(several.of(9, Mask::first(100)).iter().eq([3]));
        assert!(several.of(u32::MAX, Mask::first(256)).iter().eq([4]));
        assert!(several.values_of(5).eq([DENSE]) && several.sets.len() < 20);
        let groups = several.groups(Mask::first(100));
        assert!(groups.iter().map(|(value, _)| *value).eq([7, 9, DENSE, u32::MAX]));
        assert!(groups[1].1.iter().eq([3]));
        let groups: Vec<_> = one.groups(Mask::first(256));
        assert_eq!(
            groups.iter().map(|(value, set)| (*value, set.count())).collect::<Vec<_>>(),
            [(0, 255), (8, 1)]
        );
        assert_eq!((several.value(3), several.of(1000, Mask::first(256)).count()), (7, 0));
        let mut copy = Column::new(true);
        copy.copy(&several, Mask::first(100));
        copy.copy(&one, Mask::first(1));
        assert!(copy.values_of(3).eq([7, 9]) && copy.values_of(200).next().is_none());
        assert!(copy.values_of(0).eq([0]));
        several.clear();
        assert!(several.touched().is_empty() && several.value(3) == 0);
        assert!(several.of(9, Mask::first(256)).is_empty());
        assert!(several.of(u32::MAX, Mask::first(256)).is_empty());
    }

    #[test]
    fn places_come_out_in_order() {
        let mut places = Places::new(200);
        [130, 3, 64, 199].into_iter().for_each(|place| places.insert(place));
        let mut seen = Vec::new();
        while let Some(place) = places.pop_from(seen.last().copied().unwrap_or(4)) {
            seen.push(place);
        }
        assert_eq!((seen, places.pop_from(0)), (vec![64, 130, 199], Some(3)));
    }
}
