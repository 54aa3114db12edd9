//! Look-up of addresses by prefix: one table per prefix length in use; finds the longest prefix or any.
//!
//! The structure is a tuple space: networks with one prefix length are rows of one [`RowTable`], with the masked
//! addresses as keys. An edit is a row. A look-up costs one masked table look-up per length, longest first; lanes that
//! have their answer skip the next ones. The number of lengths is limited, so that added networks cannot make look-ups
//! slow.
//!
//! Addresses are words *in memory order* (network byte order), as in the columns of the pass engine: one word for IPv4,
//! four for IPv6.

use crate::hash::Seed;
use crate::layout::Column;
use crate::published::{Publisher, Subscriber};
use crate::row_table::{RowTable, TableError, TableReader};
use fyke_frame::{BATCH_CAPACITY, Mask};

/// Number of words of the longest address.
const MAX_WORDS: usize = 4;

/// Refusal of an edit; the table is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The limit on prefix lengths is reached.
    #[error("{limit} prefix lengths are in use already, /{given} would be another")]
    TooManyLengths {
        /// The new length.
        given: u8,
        /// The limit.
        limit: usize,
    },
    /// The prefix is longer than the address, or the address has a wrong number of words.
    #[error("a prefix of {given} bits for addresses of {bits} bits")]
    NoSuchPrefix {
        /// Prefix length, or number of bits of the given address.
        given: u32,
        /// Number of bits of an address of this table.
        bits: u32,
    },
    /// Error of the row table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Writer of the table.
#[derive(Debug)]
pub struct PrefixTable {
    words: usize,
    max_lengths: usize,
    /// Prefix lengths, longest first.
    shapes: Vec<(u8, RowTable)>,
    publisher: Publisher<Vec<(u8, TableReader)>>,
    seed: Seed,
}

/// Reader of the table. Cheap to clone; one per thread.
#[derive(Debug, Clone)]
pub struct PrefixReader {
    words: usize,
    published: Subscriber<Vec<(u8, TableReader)>>,
    shapes: Vec<(u8, TableReader)>,
}

/// Returns the mask of one word of a prefix, in the byte order of the address words.
#[inline]
fn word_mask(length: u8, word: usize) -> u32 {
    let kept = u32::from(length).saturating_sub(32 * word as u32).min(32);
    u32::MAX.checked_shl(32 - kept).unwrap_or(0).to_be()
}

impl PrefixTable {
    /// Creates an empty table for addresses of `words` words with at most `max_lengths` prefix lengths.
    ///
    /// # Panics
    /// When `words` is neither 1 nor 4.
    pub fn new(words: usize, max_lengths: usize, seed: Seed) -> Self {
        assert!(words == 1 || words == MAX_WORDS, "addresses have 1 or 4 words");
        PrefixTable {
            words,
            max_lengths,
            shapes: Vec::new(),
            publisher: Publisher::new(Vec::new()),
            seed,
        }
    }

    /// Creates a reader, for any thread.
    pub fn reader(&self) -> PrefixReader {
        let published = self.publisher.subscribe();
        let shapes = published.current().clone();
        PrefixReader { words: self.words, published, shapes }
    }

    fn check(&self, address: &[u32], length: u8) -> Result<[u32; MAX_WORDS], PrefixError> {
        let bits = 32 * self.words as u32;
        if address.len() != self.words {
            return Err(PrefixError::NoSuchPrefix { given: 32 * address.len() as u32, bits });
        }
        if u32::from(length) > bits {
            return Err(PrefixError::NoSuchPrefix { given: length.into(), bits });
        }
        Ok(masked(address, length))
    }

    /// Adds a network or changes its value; returns the old value. Bits after the prefix are ignored.
    pub fn insert(
        &mut self,
        address: &[u32],
        length: u8,
        value: u32,
    ) -> Result<Option<u32>, PrefixError> {
        let key = &self.check(address, length)?[..self.words];
        if let Some((_, table)) = self.shapes.iter_mut().find(|(known, _)| *known == length) {
            return Ok(table.insert(key, value)?);
        }
        if self.shapes.len() >= self.max_lengths {
            return Err(PrefixError::TooManyLengths { given: length, limit: self.max_lengths });
        }
        let mut table = RowTable::new(self.words, Seed::fixed(self.seed.next()));
        table.insert(key, value)?;
        let at = self.shapes.partition_point(|(longer, _)| *longer > length);
        self.shapes.insert(at, (length, table));
        self.publish();
        Ok(None)
    }

    /// Removes a network; returns its value.
    pub fn remove(&mut self, address: &[u32], length: u8) -> Option<u32> {
        let key = &self.check(address, length).ok()?[..self.words];
        let at = self.shapes.iter().position(|(known, _)| *known == length)?;
        let value = self.shapes[at].1.remove(key)?;
        if self.shapes[at].1.is_empty() {
            self.shapes.remove(at);
            self.publish();
        }
        Some(value)
    }

    /// Number of networks.
    pub fn len(&self) -> usize {
        self.shapes.iter().map(|(_, table)| table.len()).sum()
    }

    /// True if there is no network.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Returns the prefix lengths in use, longest first.
    pub fn lengths(&self) -> impl Iterator<Item = u8> {
        self.shapes.iter().map(|&(length, _)| length)
    }

    fn publish(&mut self) {
        let readers = self.shapes.iter().map(|(length, table)| (*length, table.reader()));
        self.publisher.publish(readers.collect());
    }
}

fn masked(address: &[u32], length: u8) -> [u32; MAX_WORDS] {
    let mut key = [0; MAX_WORDS];
    for (n, (part, word)) in key.iter_mut().zip(address).enumerate() {
        *part = word & word_mask(length, n);
    }
    key
}

impl PrefixReader {
    fn refresh(&mut self) {
        if self.published.refresh() {
            self.shapes.clone_from(self.published.current());
        }
    }

    /// Returns length and value of the longest prefix of an address.
    pub fn longest(&mut self, address: &[u32]) -> Option<(u8, u32)> {
        self.refresh();
        if address.len() != self.words {
            return None;
        }
        let words = self.words;
        self.shapes.iter_mut().find_map(|(length, table)| {
            Some((*length, table.find(&masked(address, *length)[..words])?))
        })
    }

    /// Returns the lanes of `lanes` for which the address (`columns[0][n], …`) has a prefix in the table; writes the
    /// value of the longest prefix of each to `values`.
    ///
    /// # Errors
    /// When the number of `columns` is not the number of words of an address.
    pub fn longest_columns(
        &mut self,
        columns: &[&Column],
        lanes: Mask,
        values: &mut Column,
    ) -> Result<Mask, TableError> {
        self.refresh();
        if columns.len() != self.words {
            return Err(TableError::KeyWidth { given: columns.len(), expected: self.words });
        }
        let mut keys = [[0; BATCH_CAPACITY]; MAX_WORDS];
        let mut hits = Mask::EMPTY;
        for (length, table) in &mut self.shapes {
            let rest = lanes.without(hits);
            if rest.is_empty() {
                break;
            }
            for (n, (key, column)) in keys.iter_mut().zip(columns).enumerate() {
                let mask = word_mask(*length, n);
                key.iter_mut().zip(*column).for_each(|(key, &word)| *key = word & mask);
            }
            let [a, b, c, d] = &keys;
            let found = table.find_columns(&[a, b, c, d][..self.words], rest, values)?;
            hits = hits | found;
        }
        Ok(hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(text: &str) -> [u32; 1] {
        [u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets())]
    }

    fn v6(text: &str) -> [u32; 4] {
        let octets = text.parse::<Ipv6Addr>().unwrap().octets();
        std::array::from_fn(|n| u32::from_ne_bytes(octets[4 * n..4 * n + 4].try_into().unwrap()))
    }

    #[test]
    fn the_longest_wins_and_lengths_come_and_go() {
        let mut table = PrefixTable::new(1, 3, Seed::fixed(1));
        let mut reader = table.reader();
        table.insert(&v4("10.0.0.0"), 8, 1).unwrap();
        table.insert(&v4("10.1.99.99"), 16, 2).unwrap();
        table.insert(&v4("0.0.0.0"), 0, 3).unwrap();
        assert_eq!(reader.longest(&v4("10.1.2.3")), Some((16, 2)));
        assert_eq!(reader.longest(&v4("10.2.2.3")), Some((8, 1)));
        assert_eq!(reader.longest(&v4("11.2.2.3")), Some((0, 3)));
        let refused = table.insert(&v4("10.1.2.3"), 32, 4);
        assert_eq!(refused, Err(PrefixError::TooManyLengths { given: 32, limit: 3 }));
        assert_eq!(table.remove(&v4("10.1.0.0"), 16), Some(2));
        assert_eq!(reader.longest(&v4("10.1.2.3")), Some((8, 1)));
        table.insert(&v4("10.1.2.3"), 32, 4).unwrap();
        assert_eq!(reader.longest(&v4("10.1.2.3")), Some((32, 4)));
        assert!(table.lengths().eq([32, 8, 0]));
        assert!(table.insert(&v4("1.1.1.1"), 33, 1).is_err());
        assert!(table.insert(&v6("::1"), 32, 1).is_err());
        assert_eq!(reader.longest(&v6("::1")), None);
    }

    #[test]
    fn batches_agree_with_single_look_ups_and_the_obvious_search() {
        let mut random = Seed::fixed(3);
        let mut table = PrefixTable::new(4, 8, Seed::fixed(2));
        let mut nets = Vec::new();
        let base = v6("2001:db8:1:2:3:4:5:6");
        let near = |draw: u64| {
            let mut address = base;
            address[(draw % 4) as usize] ^= 1u32.rotate_left((draw >> 8) as u32 % 32);
            address
        };
        for value in 0..200 {
            let draw = random.next();
            let length = [16, 32, 48, 56, 64, 96, 120, 128][(draw >> 32) as usize % 8];
            let net = masked(&near(draw), length);
            table.insert(&net, length, value).unwrap();
            nets.retain(|&(known, other, _)| (known, other) != (net, length));
            nets.push((net, length, value));
        }
        assert_eq!(table.len(), nets.len());
        let addresses: Vec<[u32; 4]> = (0..256).map(|_| near(random.next())).collect();
        let columns: [Column; 4] =
            std::array::from_fn(|word| std::array::from_fn(|lane| addresses[lane][word]));
        let [a, b, c, d] = &columns;
        let (mut values, lanes) = ([0; 256], Mask([random.next(), u64::MAX, 0, 1]));
        let mut reader = table.reader();
        let hits = reader.longest_columns(&[a, b, c, d], lanes, &mut values).unwrap();
        for (lane, address) in addresses.iter().enumerate() {
            let matching = nets.iter().filter(|(net, length, _)| masked(address, *length) == *net);
            let best = matching.max_by_key(|(_, length, _)| *length);
            let best = best.map(|&(_, length, value)| (length, value));
            assert_eq!(reader.longest(address), best);
            let expected = best.map(|(_, value)| value).filter(|_| lanes.get(lane));
            assert_eq!(hits.get(lane).then_some(values[lane]), expected);
        }
        assert!(reader.longest_columns(&[a], lanes, &mut values).is_err());
    }
}
