//! A table with entries that expire: at their deadline, or when the table is full and they are the
//! oldest.
//!
//! Keys may come from packets: they are hashed with a seed of this process, so a sender cannot make
//! them collide. A deadline can be moved ([`Ageing::touch`]) in O(1): the queue of deadlines is
//! corrected only when the old deadline is reached. Memory: at most `capacity` entries and one
//! deadline each. Cost: O(log n) per other change, O(1) per look-up.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_flow as flow; }
//! use fyke::flow::Ageing;
//!
//! let mut table = Ageing::new(2);
//! for key in 1..=3 {
//!     table.insert(key, "value", 100 * key); // the third replaces the one that ends first
//! }
//! assert_eq!((table.len(), table.evicted(), table.get(&1, 0)), (2, 1, None));
//! assert_eq!(table.pop_expired(250), Some((2, "value")));
//! assert_eq!(table.pop_expired(250), None);
//! ```

pub mod slots;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The table.
#[derive(Debug)]
pub struct Ageing<K, V> {
    capacity: usize,
    entries: HashMap<K, Entry<V>>,
    /// Deadline and serial number → key. Each entry has exactly one position here, perhaps an
    /// outdated, earlier one.
    queue: BTreeMap<(u64, u64), K>,
    serial: u64,
    /// A lower bound of all deadlines; saves the look-up in the queue for each frame.
    next_deadline_ns: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Entry<V> {
    place: (u64, u64),
    deadline_ns: u64,
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
            next_deadline_ns: u64::MAX,
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

    /// True if a new entry has no room.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// The value, unless its deadline has passed.
    pub fn get(&self, key: &K, now_ns: u64) -> Option<&V> {
        self.entries.get(key).filter(|entry| now_ns <= entry.deadline_ns).map(|entry| &entry.value)
    }

    /// The value, mutable, unless its deadline has passed.
    pub fn get_mut(&mut self, key: &K, now_ns: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        (now_ns <= entry.deadline_ns).then_some(&mut entry.value)
    }

    /// The value, even if its deadline has passed.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The value, mutable, even if its deadline has passed.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value, with the new deadline `deadline_ns`. A deadline earlier than before takes effect
    /// at once.
    pub fn touch(&mut self, key: &K, deadline_ns: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.deadline_ns = deadline_ns;
        if deadline_ns < entry.place.0
            && let Some(key) = self.queue.remove(&entry.place)
        {
            self.serial += 1;
            entry.place = (deadline_ns, self.serial);
            self.queue.insert(entry.place, key);
            self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        }
        Some(&mut entry.value)
    }

    /// Inserts an entry and replaces an older one of the same key. If the table is full, the entry
    /// with the earliest deadline is removed.
    pub fn insert(&mut self, key: K, value: V, deadline_ns: u64) {
        self.remove(&key);
        while self.is_full() && self.pop_oldest().is_some() {
            self.evicted += 1;
        }
        self.add(key, value, deadline_ns);
    }

    /// Inserts an entry.
    ///
    /// # Errors
    /// The value, if the table is full or the key exists.
    pub fn try_insert(&mut self, key: K, value: V, deadline_ns: u64) -> Result<(), V> {
        if self.is_full() || self.entries.contains_key(&key) {
            return Err(value);
        }
        self.add(key, value, deadline_ns);
        Ok(())
    }

    fn add(&mut self, key: K, value: V, deadline_ns: u64) {
        self.serial += 1;
        let place = (deadline_ns, self.serial);
        self.queue.insert(place, key.clone());
        self.entries.insert(key, Entry { place, deadline_ns, value });
        self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.queue.remove(&entry.place);
        Some(entry.value)
    }

    /// The earliest deadline of all entries, or an earlier one that an entry had before it was
    /// touched.
    pub fn next_deadline(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(place, _)| place.0)
    }

    /// Removes one entry with a deadline before `now_ns`, if there is one.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<(K, V)> {
        self.pop_if(|deadline_ns| deadline_ns < now_ns)
    }

    /// Removes one entry with a deadline at or before `now_ns`, if there is one.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(K, V)> {
        self.pop_if(|deadline_ns| deadline_ns <= now_ns)
    }

    /// Removes the entry with the earliest deadline.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        self.pop_if(|_| true)
    }

    /// Removes the entry with the earliest deadline if that has passed.
    fn pop_if(&mut self, passed: impl Fn(u64) -> bool) -> Option<(K, V)> {
        if !passed(self.next_deadline_ns) {
            return None;
        }
        while let Some(first) = self.queue.first_entry() {
            let place = *first.key();
            if !passed(place.0) {
                self.next_deadline_ns = place.0;
                return None;
            }
            let key = first.remove();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if entry.deadline_ns <= place.0 {
                return self.entries.remove(&key).map(|entry| (key, entry.value));
            }
            // It was touched: to its true deadline.
            self.serial += 1;
            entry.place = (entry.deadline_ns, self.serial);
            self.queue.insert(entry.place, key);
        }
        self.next_deadline_ns = u64::MAX;
        None
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
    #[test]
    fn entries_live_until_their_last_deadline() {
        let mut table = Ageing::new(4);
        table.try_insert(1, "one", 10).unwrap();
        table.try_insert(2, "two", 20).unwrap();
        assert!(table.pop_due(9).is_none());
        table.touch(&1, 30);
        assert_eq!(table.pop_due(25), Some((2, "two")));
        assert!(table.pop_due(25).is_none());
        table.touch(&1, 26);
        assert_eq!(table.pop_due(26), Some((1, "one")));
        assert_eq!(table.len(), 0);
        table.try_insert(3, "three", 5).unwrap();
        assert_eq!(table.pop_due(5), Some((3, "three")));
    }

    #[test]
    fn a_full_table_refuses_and_yields_its_oldest() {
        let mut table = Ageing::new(2);
        table.try_insert(1, "one", 10).unwrap();
        table.try_insert(2, "two", 20).unwrap();
        assert_eq!(table.try_insert(3, "three", 30), Err("three"));
        table.touch(&1, 40);
        assert_eq!(table.pop_oldest(), Some((2, "two")));
        assert_eq!(table.try_insert(1, "again", 30), Err("again"));
        table.try_insert(3, "three", 30).unwrap();
        assert_eq!(table.remove(&1), Some("one"));
        assert_eq!(table.pop_oldest(), Some((3, "three")));
        assert_eq!(table.pop_oldest(), None);
    }
}
