//! Sets of values that an instruction can name instead of listing operands.
//!
//! Open addressing with linear probing at most half full, so that a look-up is one or two cache lines and a miss
//! ends at the first empty slot. 8 to 16 bytes per 32-bit value, 32 to 64 per IPv6 address. A set is immutable once
//! published; an edit works on a copy (O(members) once per edit and set).

use std::fmt;

/// Number of a set within its [`crate::PassSet`]; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(pub(crate) u32);

impl SetId {
    /// The number, as an instruction's parameter holds it.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Multiplier of 32-bit values; the product's upper half is folded onto its lower.
pub(crate) const MULTIPLIER: u32 = 0x9e37_79b1;

/// A value that can be hashed into a table; zero marks an empty slot.
trait Key: Copy + Eq + Ord {
    const ZERO: Self;
    fn spread(self) -> u64;
}

impl Key for u32 {
    const ZERO: u32 = 0;
    /// Thirty-two bits are enough to compute with, so that vectors can do the same.
    fn spread(self) -> u64 {
        let product = self.wrapping_mul(MULTIPLIER);
        u64::from(product ^ product >> 15) << 32
    }
}

impl Key for u128 {
    const ZERO: u128 = 0;
    fn spread(self) -> u64 {
        let folded = (self >> 64) as u64 ^ (self as u64).rotate_left(29);
        (folded ^ folded >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug, Clone)]
struct Table<K> {
    slots: Vec<K>,
    zero: bool,
    len: usize,
}

impl<K: Key> Table<K> {
    fn new(values: &[K]) -> Self {
        let capacity = (values.len() * 2).next_power_of_two().max(8);
        let mut table = Table { slots: vec![K::ZERO; capacity], zero: false, len: 0 };
        values.iter().for_each(|&value| {
            table.insert(value);
        });
        table
    }

    fn home(&self, value: K) -> usize {
        (value.spread() >> 32) as usize & (self.slots.len() - 1)
    }

    fn contains(&self, value: K) -> bool {
        if value == K::ZERO {
            return self.zero;
        }
        let mut at = self.home(value);
        while self.slots[at] != K::ZERO {
            if self.slots[at] == value {
                return true;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        false
    }

    fn insert(&mut self, value: K) -> bool {
        if self.contains(value) {
            return false;
        }
        self.len += 1;
        if value == K::ZERO {
            self.zero = true;
            return true;
        }
        if self.len * 2 > self.slots.len() {
            let mut values = self.values();
            values.push(value);
            *self = Table::new(&values);
            return true;
        }
        let mut at = self.home(value);
        while self.slots[at] != K::ZERO {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = value;
        true
    }

    fn remove(&mut self, value: K) -> bool {
        if !self.contains(value) {
            return false;
        }
        self.len -= 1;
        if value == K::ZERO {
            self.zero = false;
            return true;
        }
        let wrap = self.slots.len() - 1;
        let mut hole = self.home(value);
        while self.slots[hole] != value {
            hole = (hole + 1) & wrap;
        }
        // Close the gap: whoever could not reach its place without the removed value moves up.
        let mut at = (hole + 1) & wrap;
        while self.slots[at] != K::ZERO {
            let home = self.home(self.slots[at]);
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) & wrap;
        }
        self.slots[hole] = K::ZERO;
        true
    }

    fn values(&self) -> Vec<K> {
        let mut values: Vec<K> =
            self.slots.iter().copied().filter(|&slot| slot != K::ZERO).collect();
        values.extend(self.zero.then_some(K::ZERO));
        values.sort_unstable();
        values
    }
}

/// The members of a set.
#[derive(Debug, Clone)]
pub struct ValueSet(Members);

#[derive(Debug, Clone)]
enum Members {
    Words(Table<u32>),
    Addresses(Table<u128>),
}

impl ValueSet {
    /// A set of 16- or 32-bit values; duplicates are dropped.
    pub fn words(values: &[u32]) -> ValueSet {
        ValueSet(Members::Words(Table::new(values)))
    }

    /// A set of IPv6 addresses or prefixes (bits behind the prefix zero); duplicates are dropped.
    pub fn addresses(values: &[u128]) -> ValueSet {
        ValueSet(Members::Addresses(Table::new(values)))
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        match &self.0 {
            Members::Words(table) => table.len,
            Members::Addresses(table) => table.len,
        }
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the members are IPv6 addresses.
    pub fn holds_addresses(&self) -> bool {
        matches!(self.0, Members::Addresses(_))
    }

    /// Whether a 16- or 32-bit value is a member; false for a set of addresses.
    pub fn contains(&self, value: u32) -> bool {
        matches!(&self.0, Members::Words(table) if table.contains(value))
    }

    /// Whether an IPv6 address is a member; false for a set of words.
    pub fn contains_address(&self, value: u128) -> bool {
        matches!(&self.0, Members::Addresses(table) if table.contains(value))
    }

    /// The slots of a set of words, a power of two of them, and whether zero is a member.
    pub(crate) fn slots(&self) -> Option<(&[u32], bool)> {
        match &self.0 {
            Members::Words(table) => Some((&table.slots, table.zero)),
            Members::Addresses(_) => None,
        }
    }

    /// The members, ascending, as 128-bit numbers.
    pub fn members(&self) -> Vec<u128> {
        match &self.0 {
            Members::Words(table) => table.values().into_iter().map(u128::from).collect(),
            Members::Addresses(table) => table.values(),
        }
    }

    /// Adds a 16- or 32-bit value; false when it was there (or this is a set of addresses).
    pub(crate) fn insert(&mut self, value: u32) -> bool {
        match &mut self.0 {
            Members::Words(table) => table.insert(value),
            Members::Addresses(_) => false,
        }
    }

    /// Removes a 16- or 32-bit value; false when it was not there.
    pub(crate) fn remove(&mut self, value: u32) -> bool {
        match &mut self.0 {
            Members::Words(table) => table.remove(value),
            Members::Addresses(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn behaves_like_a_tree_set_under_random_edits() {
        let mut seed = 0x1234_5678_u64;
        let mut set = ValueSet::words(&[]);
        let mut model = BTreeSet::new();
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = (seed >> 40) as u32 % 500;
            if seed >> 33 & 1 == 0 {
                assert_eq!(set.insert(value), model.insert(value));
            } else {
                assert_eq!(set.remove(value), model.remove(&value));
            }
            assert_eq!(set.len(), model.len());
        }
        assert!((0..500).all(|value| set.contains(value) == model.contains(&value)));
        assert!(set.members().into_iter().eq(model.into_iter().map(u128::from)));
    }

    #[test]
    fn addresses_are_found_by_all_their_bits() {
        let set = ValueSet::addresses(&[0, 1 << 127, 0x2001 << 112 | 5]);
        assert!(set.contains_address(0) && set.contains_address(0x2001 << 112 | 5));
        assert!(!set.contains_address(5) && !set.contains(0));
    }
}
