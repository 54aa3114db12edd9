//! Sets of values that an instruction can name instead of listing operands; or of passes (`inner.rs`).
//!
//! Open addressing with linear probing at most half full, so that a look-up is one or two cache lines and a miss
//! ends at the first empty slot. 8 to 16 bytes per 32-bit value, 32 to 64 per IPv6 address. A set is immutable once
//! published; an edit works on a copy (O(members) once per edit and set).
//!
//! Hashes are keyed from the operating system's randomness, so an attacker that chooses the members cannot choose their
//! slots. No member is more than [`MAX_PROBE`] slots from its home: if chance violates this, which is rare, the table
//! is built again under another key. Words: multiply-shift (Dietzfelbinger and others 1997), addresses: `table`'s hash.

use crate::isa::inner::InnerPasses;
use fyke_table::hash::KeyHash;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

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

/// Largest distance of a member from its home slot.
const MAX_PROBE: usize = 64;
/// Keys that are tried before the table is made larger.
const TRIES: usize = 4;

/// A value that can be hashed into a table; zero marks an empty slot.
trait Key: Copy + Eq + Ord {
    const ZERO: Self;
    /// The key of the hash.
    type Hash: Copy + fmt::Debug;
    fn draw() -> Self::Hash;
    /// The lowest `bits` bits are the home slot.
    fn home(self, hash: &Self::Hash, bits: u32) -> usize;
}

impl Key for u32 {
    const ZERO: u32 = 0;
    /// An odd multiplier. The highest bits of the product are the home: 32 bits to compute with, as vectors do.
    type Hash = u32;

    fn draw() -> u32 {
        RandomState::new().build_hasher().finish() as u32 | 1
    }

    fn home(self, hash: &u32, bits: u32) -> usize {
        (self.wrapping_mul(*hash) >> (32 - bits)) as usize
    }
}

impl Key for u128 {
    const ZERO: u128 = 0;
    type Hash = KeyHash;

    fn draw() -> KeyHash {
        KeyHash::random()
    }

    fn home(self, hash: &KeyHash, bits: u32) -> usize {
        let words = [0, 32, 64, 96].map(|shift| (self >> shift) as u32);
        hash.hash(&words) as usize & ((1 << bits) - 1)
    }
}

#[derive(Debug, Clone)]
struct Table<K: Key> {
    slots: Vec<K>,
    hash: K::Hash,
    zero: bool,
    len: usize,
}

impl<K: Key> Table<K> {
    fn new(values: &[K]) -> Self {
        let mut capacity = (values.len() * 2).next_power_of_two().max(8);
        loop {
            for _ in 0..TRIES {
                let slots = vec![K::ZERO; capacity];
                let mut table = Table { slots, hash: K::draw(), zero: false, len: 0 };
                if values.iter().all(|&value| table.place(value)) {
                    return table;
                }
            }
            capacity *= 2;
        }
    }

    fn home(&self, value: K) -> usize {
        value.home(&self.hash, self.slots.len().ilog2())
    }

    /// Stores a value (at most half the slots are in use); false if it would be too far from its home.
    fn place(&mut self, value: K) -> bool {
        if value == K::ZERO {
            self.len += usize::from(!self.zero);
            self.zero = true;
            return true;
        }
        let home = self.home(value);
        for distance in 0..=MAX_PROBE {
            let at = (home + distance) & (self.slots.len() - 1);
            if self.slots[at] == value {
                return true;
            }
            if self.slots[at] == K::ZERO {
                self.slots[at] = value;
                self.len += 1;
                return true;
            }
        }
        false
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
        if (self.len + 1) * 2 > self.slots.len() || !self.place(value) {
            let mut values = self.values();
            values.push(value);
            *self = Table::new(&values);
        }
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
        // Close the gap: move up each member that could not reach its home because of the removed value.
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
    Passes(Arc<dyn InnerPasses>),
}

impl ValueSet {
    /// A set of 16- or 32-bit values; duplicates are dropped.
    pub fn words(values: &[u32]) -> ValueSet {
        ValueSet(Members::Words(Table::new(values)))
    }

    /// A set of IPv6 addresses or prefixes (bits after the prefix zero); duplicates are dropped.
    pub fn addresses(values: &[u128]) -> ValueSet {
        ValueSet(Members::Addresses(Table::new(values)))
    }

    /// A set of passes, for `PASSES`.
    pub(crate) fn passes(set: Arc<dyn InnerPasses>) -> ValueSet {
        ValueSet(Members::Passes(set))
    }

    /// The passes, if the set consists of passes.
    pub(crate) fn inner(&self) -> Option<&Arc<dyn InnerPasses>> {
        match &self.0 {
            Members::Passes(inner) => Some(inner),
            _ => None,
        }
    }

    /// Number of members, passes among them.
    pub fn len(&self) -> usize {
        match &self.0 {
            Members::Words(table) => table.len,
            Members::Addresses(table) => table.len,
            Members::Passes(inner) => inner.pass_count(),
        }
    }

    /// True if there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the members are IPv6 addresses.
    pub fn holds_addresses(&self) -> bool {
        matches!(self.0, Members::Addresses(_))
    }

    /// Tests if a 16- or 32-bit value is a member; false for a set of addresses.
    pub fn contains(&self, value: u32) -> bool {
        matches!(&self.0, Members::Words(table) if table.contains(value))
    }

    /// Tests if an IPv6 address is a member; false for a set of words.
    pub fn contains_address(&self, value: u128) -> bool {
        matches!(&self.0, Members::Addresses(table) if table.contains(value))
    }

    /// The slots of a set of words (a power of two, at least 8); the multiplier (the highest bits of the product are a
    /// value's home slot); and whether zero is a member.
    pub(crate) fn slots(&self) -> Option<(&[u32], u32, bool)> {
        match &self.0 {
            Members::Words(table) => Some((&table.slots, table.hash, table.zero)),
            Members::Addresses(_) | Members::Passes(_) => None,
        }
    }

    /// The members, ascending, as 128-bit numbers; empty for a set of passes.
    pub fn members(&self) -> Vec<u128> {
        match &self.0 {
            Members::Passes(_) => Vec::new(),
            Members::Words(table) => table.values().into_iter().map(u128::from).collect(),
            Members::Addresses(table) => table.values(),
        }
    }

    /// Adds a 16- or 32-bit value; false if it was already there (or this is a set of addresses).
    pub(crate) fn insert(&mut self, value: u32) -> bool {
        match &mut self.0 {
            Members::Words(table) => table.insert(value),
            Members::Addresses(_) | Members::Passes(_) => false,
        }
    }

    /// Removes a 16- or 32-bit value; false if it was not there.
    pub(crate) fn remove(&mut self, value: u32) -> bool {
        match &mut self.0 {
            Members::Words(table) => table.remove(value),
            Members::Addresses(_) | Members::Passes(_) => false,
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

    /// An attacker that knows the code but not the key chooses members that might collide: multiples of powers of two,
    /// runs, and values that collided under the fixed multiplier of an earlier version. None is far from its home.
    #[test]
    fn chosen_members_do_not_lie_together() {
        fn farthest<K: Key>(table: &Table<K>) -> usize {
            let slots = table.slots.iter().enumerate().filter(|(_, slot)| **slot != K::ZERO);
            let wrap = table.slots.len() - 1;
            let far = slots.map(|(at, &slot)| at.wrapping_sub(table.home(slot)) & wrap);
            far.max().unwrap_or(0)
        }
        let old_home = |value: u32| {
            let product = value.wrapping_mul(0x9e37_79b1);
            (product ^ product >> 15) & 0xfff
        };
        let colliding: Vec<u32> = (1..).filter(|&value| old_home(value) == 7).take(1_000).collect();
        let chosen: [Vec<u32>; 4] = [
            (0..256).map(|n| n << 24).collect(),
            (0..4_000).map(|n| n << 12).collect(),
            (0..4_000).map(|n| 0x0a00_0000 + n).collect(),
            colliding,
        ];
        for members in chosen {
            let mut grown = Table::new(&[]);
            members.iter().for_each(|&value| assert!(grown.insert(value)));
            for table in [Table::new(&members), grown] {
                assert!(farthest(&table) <= MAX_PROBE, "{} members", members.len());
                assert!(table.slots.len() <= 8 * members.len(), "{}", table.slots.len());
                assert!(members.iter().all(|&value| table.contains(value)));
            }
            // Addresses with two halves that cancel out in a sum.
            let wide: Vec<u128> =
                members.iter().map(|&n| u128::from(n) << 64 | u128::from(!n)).collect();
            let table = Table::new(&wide);
            assert!(farthest(&table) <= MAX_PROBE && table.slots.len() <= 8 * wide.len());
        }
    }

    #[test]
    fn addresses_are_found_by_all_their_bits() {
        let set = ValueSet::addresses(&[0, 1 << 127, 0x2001 << 112 | 5]);
        assert!(set.contains_address(0) && set.contains_address(0x2001 << 112 | 5));
        assert!(!set.contains_address(5) && !set.contains(0));
    }
}
