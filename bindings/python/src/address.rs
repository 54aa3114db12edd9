//! Addresses as words of a dictionary: each address of a batch is written once, frames have its number.
//!
//! Cost: one look-up in a hash table for an address, none if the address is that of the frame before.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

/// A column of addresses.
pub struct Addresses {
    keys: Vec<i32>,
    valid: NullBufferBuilder,
    known: HashMap<Key, i32, Seeded>,
    last: Option<(Key, i32)>,
    ends: Vec<i32>,
    text: Vec<u8>,
}

/// An address; an IPv4 address is distinct from the IPv6 address that maps it.
type Key = (u128, bool);

impl Addresses {
    /// An empty column with room for `rows`.
    pub fn new(rows: usize) -> Addresses {
        Addresses {
            keys: Vec::with_capacity(rows),
            valid: NullBufferBuilder::new(rows),
            known: HashMap::with_hasher(Seeded::new()),
            last: None,
            ends: vec![0],
            text: Vec::new(),
        }
    }

    /// Appends the address of a frame.
    pub fn push(&mut self, address: Option<IpAddr>) {
        let Some(address) = address else {
            self.keys.push(0);
            return self.valid.append_null();
        };
        self.valid.append_non_null();
        let key = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        };
        if let Some((last, number)) = self.last
            && last == key
        {
            return self.keys.push(number);
        }
        let next = self.known.len() as i32; // at most as many as rows
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            // Writing to memory does not fail.
            let _written = write!(self.text, "{address}");
            self.ends.push(self.text.len() as i32); // at most 46 bytes a row
        }
        self.last = Some((key, number));
        self.keys.push(number);
    }

    /// Takes the column.
    pub fn take(&mut self) -> ArrayRef {
        let ends = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(&mut self.ends)));
        let text = Buffer::from_vec(std::mem::take(&mut self.text));
        let keys = Int32Array::new(std::mem::take(&mut self.keys).into(), self.valid.finish());
        let words = StringArray::new(ends, text, None);
        Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(words)))
    }
}

/// A quick hash with a seed that a sender of frames does not know.
struct Seeded(u64);

impl Seeded {
    fn new() -> Seeded {
        Seeded(RandomState::new().hash_one(0_u8) | 1)
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

struct Folded(u64);

impl Folded {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.fold(u64::from(byte)));
    }

    fn write_u128(&mut self, word: u128) {
        self.fold(word as u64);
        self.fold((word >> 64) as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.fold(u64::from(byte));
    }
}
