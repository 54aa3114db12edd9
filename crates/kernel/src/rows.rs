//! Tables in the shared memory: the members of sets, and the rows of collapsed shapes.
//!
//! All tables share one array of buckets. A row is one 64-bit word, so one store adds or removes it. It is in one of
//! two buckets; the program looks in the first, then in the second: two cache lines, whatever the number of rows. If
//! both are full, a row that is in its *first* bucket moves to its second. It is stored there before its old entry is
//! overwritten, so a program that looks in the buckets in order finds it at any moment. A move in the other direction
//! would make the row invisible for a moment. A row that would need such a move is put into a hash map of the kernel
//! instead. There, an edit is a system call (about 1 µs) and a look-up one more call (about 20 ns), made only while the
//! map has rows and the hint does not exclude the key.
//!
//! A *hint* (Deri's Bloom filter: a word of 64 bits for the upper part of a key, two bits in it for the lower part)
//! excludes most keys that are not rows. So a frame with two addresses and two ports costs two words instead of four
//! look-ups, plus one look-up if it matches. A row is effective from the moment its hint is set; hints are cleared
//! after the row is removed. 8 bytes per row, and in the writer's memory 1 byte per hint bit (2 MiB in all). Source:
//! Deri, with the counters of Fan et al.

use crate::error::KernelEditError;
use crate::layout::{
    ADDRESS_REACH, ADDRESSES, Address, BUCKET_ROWS, BUCKETS, HINT_FIRST_SHIFT, HINT_HASH,
    HINT_SECOND_SHIFT, HINTS, MORE_ROWS, ROW_FIRST_SHIFT, ROW_HASH, ROW_SECOND_SHIFT,
    ROW_TABLE_SHIFT, ROW_VALUE_SHIFT,
};
use crate::sys::{self, ADDRESSES_AT, HINTS_AT, MORE_AT, Mapped};
use aya::maps::{HashMap, MapData};
use std::collections::HashSet;
use std::mem::offset_of;

/// Number of a table, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);

/// Contents of a table.
#[derive(Debug, Clone)]
pub(crate) enum Members {
    /// Keys of rows.
    Keys(Vec<u64>),
    /// IPv6 addresses, or prefixes padded with zeros.
    Addresses(Vec<u128>),
}

/// The array of buckets, and the addresses.
#[derive(Debug)]
pub struct Rows {
    memory: Mapped,
    /// Number of rows that have set each hint bit; 255 is never decremented.
    hinting: Vec<u8>,
    /// The kernel's hash map, if the writer has it, and the rows in it.
    elsewhere: Option<HashMap<MapData, u64, u8>>,
    more: HashSet<u64>,
    used: usize,
    addresses: usize,
    next_table: u16,
    free_tables: Vec<u16>,
}

impl Rows {
    /// Number of rows that fit in the best case.
    pub const CAPACITY: usize = BUCKETS * BUCKET_ROWS;

    pub(crate) fn new(memory: Mapped) -> Rows {
        // Writing maps the pages now, so that an edit does not take page faults.
        let mut hinting = vec![u8::MAX; HINTS * 64];
        hinting.fill(0);
        Rows {
            memory,
            hinting,
            elsewhere: None,
            more: HashSet::new(),
            used: 0,
            addresses: 0,
            next_table: 1,
            free_tables: Vec::new(),
        }
    }

    /// Gives the writer a hash map of the kernel for rows that do not fit into the shared memory.
    pub(crate) fn overflow_into(&mut self, map: HashMap<MapData, u64, u8>) {
        self.elsewhere = Some(map);
    }

    /// Number of rows in the hash map.
    pub fn elsewhere(&self) -> usize {
        self.more.len()
    }

    /// Number of rows of all tables.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Allocates an empty table; `None` if there are 65,535.
    pub fn new_table(&mut self) -> Option<TableId> {
        if let Some(number) = self.free_tables.pop() {
            return Some(TableId(number));
        }
        let number = self.next_table;
        self.next_table = number.checked_add(1)?;
        Some(TableId(number))
    }

    /// Frees a table that has no rows left and to which no pass in force refers.
    pub(crate) fn free_table(&mut self, table: TableId) {
        self.free_tables.push(table.0);
    }

    /// True if these additional members are sure to fit.
    pub(crate) fn has_room(&self, members: &Members) -> bool {
        match members {
            Members::Keys(keys) => self.used + keys.len() <= Rows::CAPACITY / 2,
            Members::Addresses(all) => self.addresses + all.len() <= ADDRESSES / 2,
        }
    }

    /// Allocates a table with these members.
    pub(crate) fn table(&mut self, members: &Members) -> Result<TableId, KernelEditError> {
        let full = KernelEditError::RowsFull { rows: self.used, limit: Rows::CAPACITY };
        let table = self.new_table().ok_or(full)?;
        let filled = match members {
            Members::Keys(keys) => {
                keys.iter().try_for_each(|&key| self.insert(table, key).map(|_| ()))
            }
            Members::Addresses(all) => {
                all.iter().try_for_each(|&address| self.insert_address(table, address))
            }
        };
        if filled.is_err() {
            self.empty(table, members);
            self.free_table(table);
        }
        filled.map(|()| table)
    }

    /// Removes those of the members that the table has.
    pub(crate) fn empty(&mut self, table: TableId, members: &Members) {
        match members {
            Members::Keys(keys) => keys.iter().for_each(|&key| {
                self.remove(table, key);
            }),
            Members::Addresses(all) => {
                all.iter().for_each(|&address| self.remove_address(table, address));
            }
        }
    }

    /// Adds an address, or a prefix padded with zeros. Storing the table's number makes it visible.
    fn insert_address(&mut self, table: TableId, address: u128) -> Result<(), KernelEditError> {
        if self.address_places(table, address).any(|at| self.is_address(at, table, address)) {
            return Ok(());
        }
        let free = self.address_places(table, address).find(|&at| self.memory.get_double(at) == 0);
        let full = KernelEditError::AddressesFull { given: self.addresses, limit: ADDRESSES };
        let at = free.ok_or(full)?;
        for (index, word) in words_of(address).into_iter().enumerate() {
            self.memory.prepare(at + offset_of!(Address, words) + 4 * index, word);
        }
        self.memory.publish_double(at, table.0.into());
        self.addresses += 1;
        Ok(())
    }

    fn remove_address(&mut self, table: TableId, address: u128) {
        let mut places = self.address_places(table, address);
        if let Some(at) = places.find(|&at| self.is_address(at, table, address)) {
            self.memory.publish_double(at, 0);
            self.addresses -= 1;
        }
    }

    /// Byte offsets at which an address can be stored.
    fn address_places(&self, table: TableId, address: u128) -> impl Iterator<Item = usize> + use<> {
        let first = hash_of((address >> 64) as u64);
        let hash = hash_of(first.wrapping_add(address as u64).wrapping_add(table.0.into()));
        let place = (hash >> ROW_FIRST_SHIFT) as usize;
        (place..place + ADDRESS_REACH).map(|at| ADDRESSES_AT + at * size_of::<Address>())
    }

    fn is_address(&self, at: usize, table: TableId, address: u128) -> bool {
        let word = |index: usize| self.memory.get(at + offset_of!(Address, words) + 4 * index);
        self.memory.get_double(at) == u64::from(table.0)
            && words_of(address).into_iter().enumerate().all(|(index, own)| own == word(index))
    }

    /// The key of a single value.
    pub fn value_key(value: u32) -> u64 {
        u64::from(value) << ROW_VALUE_SHIFT
    }

    /// True if the key (its lower 48 bits) is a row of the table.
    pub fn contains(&self, table: TableId, key: u64) -> bool {
        let row = word(table, key);
        self.find(row).is_some() || self.more.contains(&row)
    }

    /// Adds a row; returns false if the table has it already.
    ///
    /// # Errors
    /// Both buckets are full and no row can move.
    pub fn insert(&mut self, table: TableId, key: u64) -> Result<bool, KernelEditError> {
        let row = word(table, key);
        if self.contains(table, key) {
            return Ok(false);
        }
        let place = self.room(row);
        match place {
            Some(place) => self.memory.publish_double(place * 8, row),
            None => self.insert_elsewhere(row)?,
        }
        // PERF: after the row, so that no program searches for a row that is not stored yet and takes its cache line.
        self.hint(row);
        self.used += 1;
        Ok(true)
    }

    /// False if the hint excludes the key; true for few keys that are not rows.
    pub fn may_contain(&self, table: TableId, key: u64) -> bool {
        let (at, bits) = hint(word(table, key));
        bits.iter().all(|bit| self.memory.get_double(HINTS_AT + at * 8) >> bit & 1 == 1)
    }

    fn hint(&mut self, row: u64) {
        let (at, bits) = hint(row);
        let mut all = self.memory.get_double(HINTS_AT + at * 8);
        for bit in bits {
            let count = &mut self.hinting[at * 64 + bit as usize];
            *count = count.saturating_add(1);
            all |= 1 << bit;
        }
        self.memory.publish_double(HINTS_AT + at * 8, all);
    }

    fn unhint(&mut self, row: u64) {
        let (at, bits) = hint(row);
        let mut all = self.memory.get_double(HINTS_AT + at * 8);
        for bit in bits {
            let count = &mut self.hinting[at * 64 + bit as usize];
            if *count < u8::MAX {
                *count -= 1;
            }
            if *count == 0 {
                all &= !(1 << bit);
            }
        }
        self.memory.publish_double(HINTS_AT + at * 8, all);
    }

    /// Removes a row; returns false if the table does not have it.
    pub fn remove(&mut self, table: TableId, key: u64) -> bool {
        match self.find(word(table, key)) {
            Some(place) => self.memory.publish_double(place * 8, 0),
            None if self.remove_elsewhere(word(table, key)) => {}
            None => return false,
        }
        self.unhint(word(table, key));
        self.used -= 1;
        true
    }

    pub(crate) fn scribble(&self, at: u64, value: u64) {
        self.memory.publish_double(at as usize % (sys::ROWS_BYTES / 8) * 8, value);
    }

    fn find(&self, row: u64) -> Option<usize> {
        let [first, second] = buckets(row);
        places(first).chain(places(second)).find(|&place| self.get(place) == row)
    }

    fn get(&self, place: usize) -> u64 {
        self.memory.get_double(place * 8)
    }

    fn free_in(&self, bucket: usize) -> Option<usize> {
        places(bucket).find(|&place| self.get(place) == 0)
    }

    /// A free entry for the row. To make one, a row that is in its first bucket may move to its second.
    fn room(&mut self, row: u64) -> Option<usize> {
        let own = buckets(row);
        if let Some(place) = own.iter().find_map(|&bucket| self.free_in(bucket)) {
            return Some(place);
        }
        own.into_iter().flat_map(places).find(|&place| {
            let sitting = self.get(place);
            let [first, second] = buckets(sitting);
            let target = self.free_in(second).filter(|_| place / BUCKET_ROWS == first);
            if let Some(target) = target {
                self.memory.publish_double(target * 8, sitting);
            }
            target.is_some()
        })
    }

    /// Puts a row that does not fit into the kernel's hash map: one system call.
    fn insert_elsewhere(&mut self, row: u64) -> Result<(), KernelEditError> {
        let full = KernelEditError::RowsFull {
            rows: self.used,
            limit: Rows::CAPACITY + self.elsewhere.as_ref().map_or(0, |_| MORE_ROWS),
        };
        let Some(map) = &mut self.elsewhere else { return Err(full) };
        map.insert(row, 0, 0).map_err(|_| full)?;
        self.more.insert(row);
        self.memory.publish_double(MORE_AT, self.more.len() as u64);
        Ok(())
    }

    fn remove_elsewhere(&mut self, row: u64) -> bool {
        if !self.more.remove(&row) {
            return false;
        }
        // If this fails, the row stays there without effect, because passes in force use other tables.
        let _gone = self.elsewhere.as_mut().map(|map| map.remove(&row));
        self.memory.publish_double(MORE_AT, self.more.len() as u64);
        true
    }
}

fn word(table: TableId, key: u64) -> u64 {
    u64::from(table.0) << ROW_TABLE_SHIFT | key & ((1 << ROW_TABLE_SHIFT) - 1)
}

fn hash_of(row: u64) -> u64 {
    let hash = row.wrapping_mul(ROW_HASH);
    (hash ^ hash >> 32).wrapping_mul(ROW_HASH)
}

/// The words of an address, in network order.
fn words_of(address: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| (address >> shift) as u32)
}

fn buckets(row: u64) -> [usize; 2] {
    let hash = hash_of(row);
    [(hash >> ROW_FIRST_SHIFT) as usize, (hash >> ROW_SECOND_SHIFT) as usize & (BUCKETS - 1)]
}

/// Index of a row's hint word, and its two bits there (which may be equal).
fn hint(row: u64) -> (usize, [u32; 2]) {
    let [at, _] = buckets(row & !((1 << ROW_VALUE_SHIFT) - 1));
    let product = (row as u32 & 0xffff).wrapping_mul(HINT_HASH);
    (at, [product >> HINT_FIRST_SHIFT, product >> HINT_SECOND_SHIFT & 63])
}

fn places(bucket: usize) -> std::ops::Range<usize> {
    bucket * BUCKET_ROWS..(bucket + 1) * BUCKET_ROWS
}
