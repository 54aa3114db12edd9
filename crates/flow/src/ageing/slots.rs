//! Entries that expire, found by the number of their slot: for owners that find the slots by tables of their own.
//!
//! As [`Ageing`](super::Ageing), but an access is one index into an array, and the deadline is beside the value: with a
//! hundred thousand entries a look-up is one place in memory, where a hash table needs two or three. The number of a
//! removed entry is used again, so an owner forgets it when the entry goes. Memory: as many slots as entries existed at
//! a time. Cost: O(1) per access, O(log n) per insertion and removal.

use std::collections::BTreeMap;

/// The entries.
#[derive(Debug)]
pub struct AgeingSlots<V> {
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    capacity: usize,
    /// Deadline and serial number → slot. Each entry has exactly one position here, perhaps an outdated, earlier one.
    queue: BTreeMap<(u64, u64), u32>,
    serial: u64,
    /// A lower bound of all deadlines.
    next_deadline_ns: u64,
}

/// Memory of an entry, on lines of the cache of its own; for owners that load it before they read it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Slot<V>(Option<Entry<V>>);

#[derive(Debug)]
struct Entry<V> {
    place: (u64, u64),
    deadline_ns: u64,
    value: V,
}

impl<V> AgeingSlots<V> {
    /// Room for at most `capacity` entries, at least one.
    pub fn new(capacity: usize) -> Self {
        AgeingSlots {
            slots: Vec::new(),
            free: Vec::new(),
            capacity: capacity.clamp(1, u32::MAX as usize),
            queue: BTreeMap::new(),
            serial: 0,
            next_deadline_ns: u64::MAX,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if a new entry has no room.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Inserts an entry; returns its slot.
    ///
    /// # Errors
    /// The value, if there is no room.
    pub fn insert(&mut self, value: V, deadline_ns: u64) -> Result<u32, V> {
        if self.is_full() {
            return Err(value);
        }
        let entry = Entry { place: self.place(deadline_ns), deadline_ns, value };
        let place = entry.place;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot(None));
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[slot as usize] = Slot(Some(entry));
        self.queue.insert(place, slot);
        self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        Ok(slot)
    }

    fn place(&mut self, deadline_ns: u64) -> (u64, u64) {
        self.serial += 1;
        (deadline_ns, self.serial)
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry<V>> {
        self.slots.get_mut(slot as usize)?.0.as_mut()
    }

    /// The memory of a slot. Nothing in it is read.
    pub fn slot(&self, slot: u32) -> Option<&Slot<V>> {
        self.slots.get(slot as usize)
    }

    /// The value in a slot, even if its deadline has passed.
    pub fn get(&self, slot: u32) -> Option<&V> {
        self.slots.get(slot as usize)?.0.as_ref().map(|entry| &entry.value)
    }

    /// The value in a slot, mutable, even if its deadline has passed.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut V> {
        self.entry_mut(slot).map(|entry| &mut entry.value)
    }

    /// The value in a slot, with a new deadline. A deadline earlier than before takes effect at once.
    pub fn touch(&mut self, slot: u32, deadline_ns: u64) -> Option<&mut V> {
        let entry = self.slots.get_mut(slot as usize)?.0.as_mut()?;
        entry.deadline_ns = deadline_ns;
        if deadline_ns < entry.place.0 {
            self.queue.remove(&entry.place);
            self.serial += 1;
            entry.place = (deadline_ns, self.serial);
            self.queue.insert(entry.place, slot);
            self.next_deadline_ns = self.next_deadline_ns.min(deadline_ns);
        }
        Some(&mut entry.value)
    }

    /// Removes an entry.
    pub fn remove(&mut self, slot: u32) -> Option<V> {
        let entry = self.slots.get_mut(slot as usize)?.0.take()?;
        self.queue.remove(&entry.place);
        self.free.push(slot);
        Some(entry.value)
    }

    /// Finds an entry with a deadline at or before `now_ns`: the earliest. It stays: the caller touches
    /// or removes it.
    pub fn first_due(&mut self, now_ns: u64) -> Option<u32> {
        if self.next_deadline_ns > now_ns {
            return None;
        }
        while let Some((&place, &slot)) = self.queue.first_key_value() {
            if place.0 > now_ns {
                self.next_deadline_ns = place.0;
                return None;
            }
            let Some(deadline_ns) = self.entry_mut(slot).map(|entry| entry.deadline_ns) else {
                self.queue.remove(&place);
                continue;
            };
            if deadline_ns <= place.0 {
                return Some(slot);
            }
            // It was touched: to its true deadline.
            let moved = self.place(deadline_ns);
            self.queue.remove(&place);
            self.queue.insert(moved, slot);
            if let Some(entry) = self.entry_mut(slot) {
                entry.place = moved;
            }
        }
        self.next_deadline_ns = u64::MAX;
        None
    }

    /// The values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().filter_map(|slot| slot.0.as_ref()).map(|entry| &entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_due_in_the_order_of_their_last_deadlines() {
        let mut slots = AgeingSlots::new(3);
        let [a, b, c] =
            [("a", 10), ("b", 20), ("c", 30)].map(|(name, at)| slots.insert(name, at).unwrap());
        assert_eq!((slots.insert("d", 5), slots.is_full()), (Err("d"), true));
        assert_eq!(slots.touch(a, 40), Some(&mut "a"));
        assert_eq!(slots.touch(c, 15), Some(&mut "c"));
        assert_eq!(slots.first_due(14), None);
        assert_eq!((slots.first_due(20), slots.remove(c)), (Some(c), Some("c")));
        assert_eq!(slots.first_due(20), Some(b));
        assert_eq!(slots.touch(b, 50), Some(&mut "b"));
        assert_eq!(slots.values().count(), 2);
        assert_eq!(slots.first_due(45), Some(a));
        assert_eq!((slots.remove(a), slots.remove(a), slots.get(a)), (Some("a"), None, None));
        assert_eq!(
            (slots.first_due(49), slots.first_due(u64::MAX), slots.len()),
            (None, Some(b), 1)
        );
        let again = slots.insert("e", 60).unwrap();
        assert!([a, c].contains(&again), "a slot is used again");
        *slots.get_mut(again).unwrap() = "f";
        assert_eq!((slots.get(again), slots.get(b)), (Some(&"f"), Some(&"b")));
    }
}
