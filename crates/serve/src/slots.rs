//! Values by their keys, each also at a place that a frame finds without a search.

use std::collections::BTreeMap;

/// Values by their keys. A place stays as long as its value, and may have another value afterwards.
#[derive(Debug)]
pub struct Slots<K, V> {
    places: BTreeMap<K, usize>,
    list: Vec<Option<V>>,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Slots<K, V> {
        Slots { places: BTreeMap::new(), list: Vec::new() }
    }
}

impl<K: Ord, V> Slots<K, V> {
    /// The place of a key.
    pub fn place(&self, key: &K) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// The value at a place.
    #[inline]
    pub fn at(&self, place: usize) -> Option<&V> {
        self.list.get(place)?.as_ref()
    }

    /// The value at a place.
    #[inline]
    pub fn at_mut(&mut self, place: usize) -> Option<&mut V> {
        self.list.get_mut(place)?.as_mut()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.at(self.place(key)?)
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.at_mut(self.place(key)?)
    }

    /// Adds a value with a key that is not there; returns its place.
    pub fn insert(&mut self, key: K, value: V) -> usize {
        let free = self.list.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        });
        self.list[place] = Some(value);
        self.places.insert(key, place);
        place
    }

    /// Takes the value of a key out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.list.get_mut(self.places.remove(key)?)?.take()
    }

    /// All values, in the order of their places.
    pub fn all(&self) -> impl Iterator<Item = &V> {
        self.list.iter().flatten()
    }

    /// All keys and values, in the order of the keys.
    pub fn keyed(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.iter().filter_map(|(key, place)| Some((key, self.at(*place)?)))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_others_stay() {
        let mut slots = Slots::default();
        let places = ["c", "a", "b"].map(|key| slots.insert(key, key.to_owned()));
        assert_eq!(places, [0, 1, 2]);
        assert_eq!(slots.remove(&"a").as_deref(), Some("a"));
        assert_eq!(slots.remove(&"a"), None);
        assert_eq!((slots.at(1), slots.place(&"a")), (None, None));
        assert_eq!(slots.insert("d", "d".to_owned()), 1);
        slots.get_mut(&"d").unwrap().push('!');
        assert_eq!(slots.at(1).map(String::as_str), Some("d!"));
        assert_eq!(slots.get(&"b").map(String::as_str), Some("b"));
        let keyed: Vec<_> = slots.keyed().map(|(key, value)| (*key, value.as_str())).collect();
        assert_eq!(keyed, [("b", "b"), ("c", "c"), ("d", "d!")]);
        assert_eq!((slots.all().count(), slots.len()), (3, 3));
    }
}
