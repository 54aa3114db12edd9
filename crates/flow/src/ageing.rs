//! A table with entries that expire: at their deadline, or when the table is full and they are the
//! oldest.
//!
//! Keys may come from packets: they are hashed with a seed of this process, so a sender cannot make
//! them collide. Memory: at most `capacity` entries. Cost: O(log n) per change, O(1) per look-up.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The table.
#[derive(Debug)]
pub struct Ageing<K, V> {
    capacity: usize,
    entries: HashMap<K, Entry<V>>,
    /// Deadline and serial number of each entry.
    queue: BTreeMap<(u64, u64), K>,
    serial: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Entry<V> {
    place: (u64, u64),
    value: V,
}

impl<K: Hash + Eq + Clone, V> Ageing<K, V> {
    /// A table for at most `capacity` entries, at least one.
    pub fn new(capacity: usize) -> Self {
        Ageing {
            capacity: capacity.max(1),
            entries: HashMap::new(),
            queue: BTreeMap::new(),
            serial: 0,
            evicted: 0,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries that were removed before their deadline because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The value, unless its deadline has passed.
    pub fn get(&self, key: &K, now_ns: u64) -> Option<&V> {
        self.entries.get(key).filter(|entry| now_ns <= entry.place.0).map(|entry| &entry.value)
    }

    /// The value, mutable, unless its deadline has passed.
    pub fn get_mut(&mut self, key: &K, now_ns: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        (now_ns <= entry.place.0).then_some(&mut entry.value)
    }

    /// Inserts an entry and replaces an older one of the same key. If the table is full, the entry
    /// with the earliest deadline is removed.
    pub fn insert(&mut self, key: K, value: V, deadline_ns: u64) {
        self.remove(&key);
        while self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.queue.pop_first()
        {
            self.entries.remove(&oldest);
            self.evicted += 1;
        }
        self.serial += 1;
        let place = (deadline_ns, self.serial);
        self.queue.insert(place, key.clone());
        self.entries.insert(key, Entry { place, value });
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.queue.remove(&entry.place);
        Some(entry.value)
    }

    /// The earliest deadline of all entries.
    pub fn next_deadline(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(place, _)| place.0)
    }

    /// Removes one entry with a deadline that has passed, if there is one.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<(K, V)> {
        let (&place, _) = self.queue.first_key_value()?;
        if place.0 >= now_ns {
            return None;
        }
        let key = self.queue.remove(&place)?;
        let entry = self.entries.remove(&key)?;
        Some((key, entry.value))
    }

    /// Removes the entries for which `wanted` is false.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K, &mut V) -> bool) {
        let queue = &mut self.queue;
        self.entries.retain(|key, entry| {
            let keep = wanted(key, &mut entry.value);
            if !keep {
                queue.remove(&entry.place);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_at_their_deadline() {
        let mut table = Ageing::new(4);
        table.insert("a", 1, 10);
        table.insert("b", 2, 20);
        assert_eq!((table.get(&"a", 10), table.get(&"a", 11)), (Some(&1), None));
        assert_eq!(table.pop_expired(10), None);
        assert_eq!(table.pop_expired(30), Some(("a", 1)));
        table.insert("b", 3, 40);
        assert_eq!(table.pop_expired(30), None);
        assert_eq!(table.get_mut(&"b", 40), Some(&mut 3));
        assert_eq!((table.len(), table.evicted()), (1, 0));
        table.retain(|_, _| false);
        assert!(table.is_empty() && table.pop_expired(99).is_none());
    }

    #[test]
    fn a_full_table_lets_the_oldest_go() {
        let mut table = Ageing::new(2);
        for (key, deadline) in [(1, 30), (2, 20), (3, 40)] {
            table.insert(key, (), deadline);
        }
        assert!(table.get(&2, 0).is_none() && table.get(&1, 0).is_some());
        assert_eq!((table.len(), table.evicted()), (2, 1));
    }
}
