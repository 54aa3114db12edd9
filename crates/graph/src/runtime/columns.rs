//! Class values of the frames of a batch, and a set of slot numbers: what the packet loop looks things up in.
//!
//! A column stands behind a node that classifies. Where a frame may have several class values (a demultiplexer whose
//! filters overlap), each value has a mask besides, so that an edge costs one look-up however many there are. Memory: 2
//! bytes a frame; 32 bytes for each value up to the largest in use where there are several.

use fyke_frame::{BATCH_CAPACITY, Mask};

/// The class values of a batch.
#[derive(Debug, Default)]
pub(crate) struct Column {
    /// The first value that each frame got.
    values: Vec<u16>,
    /// Frames of each value; only where a frame may have several.
    sets: Vec<Mask>,
    /// Which values have frames.
    touched: Vec<u16>,
    /// Frames that have a value.
    given: Mask,
    several: bool,
}

impl Column {
    pub fn new(several: bool) -> Column {
        Column { values: vec![0; BATCH_CAPACITY], several, ..Column::default() }
    }

    /// Whether a frame may have several values.
    pub fn is_several(&self) -> bool {
        self.several
    }

    /// The first value of a frame.
    #[inline]
    pub fn value(&self, index: usize) -> u16 {
        self.values.get(index).copied().unwrap_or(0)
    }

    /// Gives a frame a value: in the place of the one it had, or one more.
    #[inline]
    pub fn assign(&mut self, index: usize, value: u16) {
        let Some(place) = self.values.get_mut(index) else { return };
        if !self.several {
            *place = value;
            return;
        }
        if !self.given.get(index) {
            self.given.set(index);
            *place = value;
        }
        let wanted = usize::from(value);
        if self.sets.len() <= wanted {
            self.sets.resize(wanted + 1, Mask::EMPTY);
        }
        let set = &mut self.sets[wanted];
        if set.is_empty() {
            self.touched.push(value);
        }
        set.set(index);
    }

    /// The frames of `within` that have a value.
    #[inline]
    pub fn of(&self, class: u16, within: Mask) -> Mask {
        if self.several {
            return self.sets.get(usize::from(class)).map_or(Mask::EMPTY, |set| *set & within);
        }
        let mut mask = Mask::EMPTY;
        for index in within.iter().filter(|&index| self.values[index] == class) {
            mask.set(index);
        }
        mask
    }

    /// Which values have frames, where there may be several.
    pub fn touched(&self) -> &[u16] {
        &self.touched
    }

    /// All values of a frame.
    pub fn values_of(&self, index: usize) -> impl Iterator<Item = u16> + '_ {
        let one = (!self.several).then(|| self.value(index));
        let has = move |value: &&u16| self.sets[usize::from(**value)].get(index);
        one.into_iter().chain(self.touched.iter().filter(has).copied())
    }

    /// Gives frames the values that they have in another column.
    pub fn copy(&mut self, other: &Column, frames: Mask) {
        for index in frames.iter() {
            other.values_of(index).for_each(|value| self.assign(index, value));
        }
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        if !self.several {
            self.values.fill(0);
            return;
        }
        for value in self.touched.drain(..) {
            self.sets[usize::from(value)] = Mask::EMPTY;
        }
        for index in self.given.iter() {
            self.values[index] = 0;
        }
        self.given = Mask::EMPTY;
    }
}

/// A set of numbers of slots.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u64>);

impl Places {
    /// Nothing, with room for `count` slots.
    pub fn new(count: usize) -> Places {
        Places(vec![0; count.div_ceil(64)])
    }

    #[inline]
    pub fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Takes out the lowest one from `first` on.
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
        for (frame, value) in [(3, 7), (3, 9), (200, 9)] {
            several.assign(frame, value);
        }
        assert!(several.of(9, Mask::first(256)).iter().eq([3, 200]));
        assert!(several.of(9, Mask::first(100)).iter().eq([3]));
        assert_eq!((several.value(3), several.of(1000, Mask::first(256)).count()), (7, 0));
        let mut copy = Column::new(true);
        copy.copy(&several, Mask::first(100));
        copy.copy(&one, Mask::first(1));
        assert!(copy.values_of(3).eq([7, 9]) && copy.values_of(200).next().is_none());
        assert!(copy.values_of(0).eq([0]));
        several.clear();
        assert!(several.touched().is_empty() && several.value(3) == 0);
        assert!(several.of(9, Mask::first(256)).is_empty());
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
