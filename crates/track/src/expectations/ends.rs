//! The expectations at each listening end, found by the end.
//!
//! A hash table without keys: a bucket has 32 bits of the hash and the number of a slot, and the end itself is in the
//! slot, which a hit reads anyway. The expectations at one end are a list through their slots, oldest first. Room for
//! all is made at the beginning, two to four buckets of 8 bytes for each, so no frame waits for the table to grow.
//! Linear probing; a removal moves later buckets back, so there are no marks of removed ones. Hashes are keyed.

use super::Data;
use crate::{Connection, Protocol};
use fyke_flow::AgeingSlots;
use fyke_table::Level;
use fyke_table::hash::KeyHash;
use std::net::{IpAddr, SocketAddr};

/// A listening end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    protocol: Protocol,
    address: IpAddr,
    port: u16,
}

impl End {
    pub(super) fn new(protocol: Protocol, at: SocketAddr) -> End {
        End { protocol, address: at.ip(), port: at.port() }
    }

    pub(super) fn of(connection: &Connection) -> End {
        let Connection { protocol, server, port, .. } = *connection;
        End { protocol, address: server, port }
    }

    fn hash(&self, keys: &KeyHash) -> u32 {
        let address = match self.address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => address.into(),
        };
        let word = |shift: u32| (address >> shift) as u32;
        let port = u32::from(self.port) << 8 | self.protocol as u32;
        keys.hash(&[word(0), word(32), word(64), word(96), port, 0])
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }
}

/// No further slot.
pub(super) const NONE: u32 = u32::MAX;

/// A bucket: the hash of an end, and its oldest slot plus one; zero is free.
type Bucket = u64;

fn bucket(hash: u32, slot: u32) -> Bucket {
    u64::from(hash) << 32 | u64::from(slot + 1)
}

fn hash_of(bucket: Bucket) -> u32 {
    (bucket >> 32) as u32
}

fn slot_of(bucket: Bucket) -> u32 {
    (bucket as u32).wrapping_sub(1)
}

/// The table of ends.
#[derive(Debug)]
pub(super) struct Ends {
    /// A power of two, at least twice the number of ends.
    buckets: Box<[Bucket]>,
    keys: KeyHash,
    level: Level,
}

impl Ends {
    pub(super) fn new(capacity: usize) -> Ends {
        let buckets = vec![0; (2 * capacity.max(1)).next_power_of_two()].into_boxed_slice();
        Ends { buckets, keys: KeyHash::random(), level: Level::best() }
    }

    fn mask(&self) -> usize {
        self.buckets.len() - 1
    }

    /// The used buckets from the home of a hash on, with their indexes.
    fn probe(&self, hash: u32) -> impl Iterator<Item = (usize, Bucket)> + '_ {
        let mut at = hash as usize & self.mask();
        std::iter::from_fn(move || {
            let found = (at, self.buckets[at]);
            at = (at + 1) & self.mask();
            (found.1 != 0).then_some(found)
        })
    }

    /// The bucket of an end.
    fn find(&self, table: &AgeingSlots<Data>, end: &End) -> Option<(usize, u32)> {
        let hash = end.hash(&self.keys);
        let is_at = |slot| table.get(slot).is_some_and(|data| data.end == *end);
        let same = self.probe(hash).filter(|(_, bucket)| hash_of(*bucket) == hash);
        same.map(|(at, bucket)| (at, slot_of(bucket))).find(|(_, slot)| is_at(*slot))
    }

    /// The oldest expectation at an end, or [`NONE`]; the others follow by [`Data::next`].
    pub(super) fn first(&self, table: &AgeingSlots<Data>, end: &End) -> u32 {
        self.find(table, end).map_or(NONE, |(_, slot)| slot)
    }

    /// Loads the bucket of an end; returns its hash.
    pub(super) fn load(&self, end: &End) -> u32 {
        let hash = end.hash(&self.keys);
        self.level.prefetch(&self.buckets[hash as usize & self.mask()]);
        hash
    }

    /// Loads the first part of the slot that a hash probably has, and returns it, or [`NONE`].
    pub(super) fn load_slot(&self, table: &AgeingSlots<Data>, hash: u32) -> u32 {
        let found = self.probe(hash).find(|(_, bucket)| hash_of(*bucket) == hash);
        let Some(slot) = found.map(|(_, bucket)| slot_of(bucket)) else { return NONE };
        table.slot(slot).into_iter().for_each(|memory| self.level.prefetch(memory));
        slot
    }

    /// Loads the rest of a slot.
    pub(super) fn load_rest(&self, table: &AgeingSlots<Data>, slot: u32) {
        let Some(data) = table.get(slot) else { return };
        self.level.prefetch(&data.end);
        self.level.prefetch(&data.label);
        self.level.prefetch(&data.wire_bytes);
    }

    /// The expectations at an end, oldest first.
    pub(super) fn at<'a>(
        &self,
        table: &'a AgeingSlots<Data>,
        end: &End,
    ) -> impl Iterator<Item = (u32, &'a Data)> + use<'a> {
        let mut slot = self.first(table, end);
        std::iter::from_fn(move || {
            let data = table.get(slot)?;
            let this = std::mem::replace(&mut slot, data.next);
            Some((this, data))
        })
    }

    /// Adds a slot that is in the table, as the newest of its end.
    pub(super) fn insert(&mut self, table: &mut AgeingSlots<Data>, slot: u32, end: &End) {
        let last = self.at(table, end).last().map(|(last, _)| last);
        if let Some(last) = last.and_then(|last| table.get_mut(last)) {
            last.next = slot;
            return;
        }
        let hash = end.hash(&self.keys);
        let home = hash as usize & self.mask();
        let free = self.probe(hash).last().map_or(home, |(at, _)| (at + 1) & self.mask());
        self.buckets[free] = bucket(hash, slot);
    }

    /// Removes a slot that is still in the table.
    pub(super) fn remove(&mut self, table: &mut AgeingSlots<Data>, slot: u32) {
        let Some(&Data { end, next, .. }) = table.get(slot) else { return };
        let Some((at, first)) = self.find(table, &end) else { return };
        if first != slot {
            let before = self.at(table, &end).find(|(_, data)| data.next == slot);
            let before = before.map(|(before, _)| before);
            before
                .and_then(|before| table.get_mut(before))
                .into_iter()
                .for_each(|data| data.next = next);
        } else if next == NONE {
            self.free(at);
        } else {
            self.buckets[at] = bucket(hash_of(self.buckets[at]), next);
        }
    }

    /// Frees a bucket: moves each later one of the run to it that may be there.
    fn free(&mut self, mut hole: usize) {
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let bucket = self.buckets[at];
            if bucket == 0 {
                break;
            }
            let home = hash_of(bucket) as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.buckets[hole] = bucket;
                hole = at;
            }
        }
        self.buckets[hole] = 0;
    }
}
