//! A hash table with entries that expire: the bounded memory of every tracker.
//!
//! An entry is kept until its deadline, which is set whenever the entry is touched. Touching is
//! O(1): the queue of deadlines is corrected only when a deadline is reached. Expiry is O(log n)
//! per entry. Memory: at most `capacity` entries and one deadline each.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The table.
pub(crate) struct Ageing<K, V> {
    capacity: usize,
    entries: HashMap<K, Entry<V>>,
    /// Deadline and a tie-breaker → key. Each entry has exactly one position here, perhaps an
    /// outdated, earlier one.
    queue: BTreeMap<(u64, u64), K>,
    serial: u64,
    /// A lower bound of all deadlines; saves the look-up in the queue for each frame.
    next_deadline_ns: u64,
}

struct Entry<V> {
    place: (u64, u64),
    deadline_ns: u64,
    value: V,
}

impl<K: Hash + Eq + Copy, V> Ageing<K, V> {
    /// A table for at most `capacity` entries (at least one).
    pub(crate) fn new(capacity: usize) -> Self {
        Ageing {
            capacity: capacity.max(1),
            entries: HashMap::new(),
            queue: BTreeMap::new(),
            serial: 0,
            next_deadline_ns: u64::MAX,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The entry, without extending its life.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The entry, with the new deadline `deadline_ns`. A deadline earlier than before takes effect
    /// at once.
    pub(crate) fn touch(&mut self, key: &K, deadline_ns: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.deadline_ns = deadline_ns;
        if deadline_ns < entry.place.0 {
            self.queue.remove(&entry.place);
            self.serial += 1;
            entry.place = (deadline_ns, self.serial);
            self.queue.insert(entry.place, *key);
            self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        }
        Some(&mut entry.value)
    }

    /// Inserts an entry; returns it if the table is full or the key exists.
    pub(crate) fn insert(&mut self, key: K, value: V, deadline_ns: u64) -> Result<(), V> {
        if self.is_full() || self.entries.contains_key(&key) {
            return Err(value);
        }
        self.serial += 1;
        let place = (deadline_ns, self.serial);
        self.queue.insert(place, key);
        self.entries.insert(key, Entry { place, deadline_ns, value });
        self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.queue.remove(&entry.place);
        Some(entry.value)
    }

    /// Removes one entry with a deadline that has passed at `now_ns`, if there is one.
    pub(crate) fn pop_expired(&mut self, now_ns: u64) -> Option<(K, V)> {
        if now_ns < self.next_deadline_ns {
            return None;
        }
        while let Some((place, key)) = self.first() {
            if place.0 > now_ns {
                self.next_deadline_ns = place.0;
                return None;
            }
            if !self.requeue(place, key) {
                return self.remove(&key).map(|value| (key, value));
            }
        }
        self.next_deadline_ns = u64::MAX;
        None
    }

    /// Removes the entry with the earliest deadline.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        while let Some((place, key)) = self.first() {
            if !self.requeue(place, key) {
                return self.remove(&key).map(|value| (key, value));
            }
        }
        None
    }

    fn first(&self) -> Option<((u64, u64), K)> {
        self.queue.first_key_value().map(|(place, key)| (*place, *key))
    }

    /// Moves the entry to its true deadline; false if it is already there.
    fn requeue(&mut self, place: (u64, u64), key: K) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            self.queue.remove(&place);
            return true;
        };
        if entry.deadline_ns <= place.0 {
            return false;
        }
        self.queue.remove(&place);
        self.serial += 1;
        entry.place = (entry.deadline_ns, self.serial);
        self.queue.insert(entry.place, key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_live_until_their_last_deadline() {
        let mut table = Ageing::new(4);
        table.insert(1, "one", 10).unwrap();
        table.insert(2, "two", 20).unwrap();
        assert!(table.pop_expired(9).is_none());
        table.touch(&1, 30);
        assert_eq!(table.pop_expired(25), Some((2, "two")));
        assert!(table.pop_expired(25).is_none());
        table.touch(&1, 26);
        assert_eq!(table.pop_expired(26), Some((1, "one")));
        assert_eq!(table.len(), 0);
        table.insert(3, "three", 5).unwrap();
        assert_eq!(table.pop_expired(5), Some((3, "three")));
    }

    #[test]
    fn a_full_table_refuses_and_yields_its_oldest() {
        let mut table = Ageing::new(2);
        table.insert(1, "one", 10).unwrap();
        table.insert(2, "two", 20).unwrap();
        assert_eq!(table.insert(3, "three", 30), Err("three"));
        table.touch(&1, 40);
        assert_eq!(table.pop_oldest(), Some((2, "two")));
        assert_eq!(table.insert(1, "again", 30), Err("again"));
        table.insert(3, "three", 30).unwrap();
        assert_eq!(table.remove(&1), Some("one"));
        assert_eq!(table.pop_oldest(), Some((3, "three")));
        assert_eq!(table.pop_oldest(), None);
    }
}
