//! The associative match: keys to sessions.
//!
//! [`Hashing::Seeded`] is the default: rows of keys and session in one array, linear probing, at most half full,
//! and a hash with a secret of this process, so that an attacker cannot choose keys that collide. For three keys a
//! row has 16 bytes and a look-up reads one cache line, rarely two. [`Hashing::Sum`] is the paper's method for
//! comparison: 256 lists, selected by the sum of the keys.

use std::hash::{BuildHasher, RandomState};

/// Look-up method of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Hashing {
    /// A hash with a secret, open addressing.
    #[default]
    Seeded,
    /// The paper's sum of the keys, 256 lists.
    Sum,
}

const LISTS: usize = 256;
const EMPTY: u32 = u32::MAX;
const FIRST_ROWS: usize = 8;

/// The sessions of a group.
#[derive(Debug)]
pub struct Sessions {
    kind: Kind,
    key_count: usize,
    len: usize,
}

#[derive(Debug)]
enum Kind {
    Seeded(Rows),
    Sum(Vec<Vec<(Box<[u32]>, u32)>>),
}

#[derive(Debug)]
struct Rows {
    secret: [u64; 2],
    /// Rows of `key_count` keys and a session; [`EMPTY`] marks a free row.
    words: Vec<u32>,
    stride: usize,
    /// Number of rows minus one; the number of rows is a power of two.
    mask: usize,
}

impl Sessions {
    /// Creates an empty table; every session will have `key_count` keys.
    pub fn new(key_count: usize, hashing: Hashing) -> Sessions {
        let kind = match hashing {
            Hashing::Seeded => Kind::Seeded(Rows::new(key_count, FIRST_ROWS, secret())),
            Hashing::Sum => Kind::Sum(vec![Vec::new(); LISTS]),
        };
        Sessions { kind, key_count, len: 0 }
    }

    /// Number of distinct keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the session with these keys.
    #[inline]
    pub fn find(&self, keys: &[u32]) -> Option<u32> {
        if keys.len() != self.key_count {
            return None;
        }
        match &self.kind {
            Kind::Seeded(rows) => rows.find(keys),
            Kind::Sum(lists) => {
                let list = &lists[sum(keys)];
                list.iter().find(|(known, _)| **known == *keys).map(|&(_, session)| session)
            }
        }
    }

    /// Row where the search for these keys begins.
    #[inline]
    pub(super) fn home(&self, keys: &[u32]) -> usize {
        match &self.kind {
            Kind::Seeded(rows) => rows.hash(keys) & rows.mask,
            Kind::Sum(_) => sum(keys),
        }
    }

    /// Reads a word of the home row, so that it is in the cache when the search starts. The value is not used.
    #[inline]
    pub(super) fn touch(&self, home: usize) -> u32 {
        match &self.kind {
            Kind::Seeded(rows) => rows.words[home * rows.stride],
            Kind::Sum(_) => 0,
        }
    }

    /// Does [`Sessions::find`] for keys with a known home row.
    #[inline]
    pub(super) fn find_from(&self, home: usize, keys: &[u32]) -> Option<u32> {
        match &self.kind {
            Kind::Seeded(rows) => {
                let session = rows.session(rows.place_from(home, keys));
                (session != EMPTY).then_some(session)
            }
            Kind::Sum(_) => self.find(keys),
        }
    }

    /// Assigns a session to keys; returns the previous session.
    pub fn insert(&mut self, keys: &[u32], session: u32) -> Option<u32> {
        if keys.len() != self.key_count || session == EMPTY {
            return None;
        }
        let before = match &mut self.kind {
            Kind::Seeded(rows) => {
                if (self.len + 1) * 2 > rows.mask + 1 {
                    rows.grow();
                }
                rows.insert(keys, session)
            }
            Kind::Sum(lists) => {
                let list = &mut lists[sum(keys)];
                match list.iter_mut().find(|(known, _)| **known == *keys) {
                    Some((_, known)) => Some(std::mem::replace(known, session)),
                    None => {
                        list.push((keys.into(), session));
                        None
                    }
                }
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes keys.
    pub fn remove(&mut self, keys: &[u32]) {
        let removed = match &mut self.kind {
            _ if keys.len() != self.key_count => false,
            Kind::Seeded(rows) => rows.remove(keys),
            Kind::Sum(lists) => {
                let list = &mut lists[sum(keys)];
                let before = list.len();
                list.retain(|(known, _)| **known != *keys);
                list.len() < before
            }
        };
        self.len -= usize::from(removed);
    }
}

fn sum(keys: &[u32]) -> usize {
    keys.iter().fold(0u32, |sum, key| sum.wrapping_add(*key)) as usize % LISTS
}

/// Two secret numbers of this process.
fn secret() -> [u64; 2] {
    let state = RandomState::new();
    [state.hash_one(1u8), state.hash_one(2u8) | 1]
}

/// Multiplies to 128 bits and combines the halves by xor.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl Rows {
    fn new(key_count: usize, rows: usize, secret: [u64; 2]) -> Rows {
        let stride = key_count + 1;
        Rows { secret, words: vec![EMPTY; rows * stride], stride, mask: rows - 1 }
    }

    #[inline(always)]
    fn hash(&self, keys: &[u32]) -> usize {
        let [start, multiplier] = self.secret;
        let mut hash = start;
        let mut pairs = keys.chunks_exact(2);
        for pair in &mut pairs {
            let pair = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            hash = fold(hash ^ pair, multiplier);
        }
        if let [last] = pairs.remainder() {
            hash = fold(hash ^ u64::from(*last), multiplier);
        }
        // The low half of a product of few bits is weak; one more round mixes it.
        fold(hash, multiplier ^ start | 1) as usize
    }

    /// Returns the row that has these keys, or the free row for them.
    #[inline]
    fn place(&self, keys: &[u32]) -> usize {
        self.place_from(self.hash(keys) & self.mask, keys)
    }

    #[inline]
    fn place_from(&self, mut row: usize, keys: &[u32]) -> usize {
        loop {
            let words = &self.words[row * self.stride..][..self.stride];
            if words[self.stride - 1] == EMPTY || words[..self.stride - 1] == *keys {
                return row;
            }
            row = (row + 1) & self.mask;
        }
    }

    #[inline]
    fn session(&self, row: usize) -> u32 {
        self.words[row * self.stride + self.stride - 1]
    }

    #[inline]
    fn find(&self, keys: &[u32]) -> Option<u32> {
        let session = self.session(self.place(keys));
        (session != EMPTY).then_some(session)
    }

    fn insert(&mut self, keys: &[u32], session: u32) -> Option<u32> {
        let row = self.place(keys);
        let before = self.session(row);
        let words = &mut self.words[row * self.stride..][..self.stride];
        words[..keys.len()].copy_from_slice(keys);
        words[keys.len()] = session;
        (before != EMPTY).then_some(before)
    }

    fn grow(&mut self) {
        let rows = (self.mask + 1) * 2;
        let old = std::mem::replace(self, Rows::new(self.stride - 1, rows, self.secret));
        for words in old.words.chunks_exact(old.stride) {
            if let Some((&session, keys)) = words.split_last()
                && session != EMPTY
            {
                self.insert(keys, session);
            }
        }
    }

    /// Frees a row and moves rows up that it had displaced.
    fn remove(&mut self, keys: &[u32]) -> bool {
        let mut hole = self.place(keys);
        if self.session(hole) == EMPTY {
            return false;
        }
        let mut row = hole;
        loop {
            row = (row + 1) & self.mask;
            if self.session(row) == EMPTY {
                break;
            }
            let home = self.hash(&self.words[row * self.stride..][..self.stride - 1]) & self.mask;
            // A row may move to the hole unless its home is between hole and row.
            if (row.wrapping_sub(home) & self.mask) >= (row.wrapping_sub(hole) & self.mask) {
                let from = row * self.stride;
                self.words.copy_within(from..from + self.stride, hole * self.stride);
                hole = row;
            }
        }
        self.words[hole * self.stride + self.stride - 1] = EMPTY;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::random::Random;
    use std::collections::HashMap;

    #[test]
    fn both_kinds_behave_like_a_map() {
        let (mut random, seed) = Random::seeded(5);
        println!("seed {seed}");
        for hashing in [Hashing::Seeded, Hashing::Sum] {
            for key_count in [0, 1, 2, 3, 16] {
                let mut sessions = Sessions::new(key_count, hashing);
                let mut model = HashMap::new();
                for step in 0..4000 {
                    let keys: Vec<u32> =
                        (0..key_count).map(|_| random.below(7) as u32 * 0x0101).collect();
                    match random.below(3) {
                        0 => {
                            sessions.remove(&keys);
                            model.remove(&keys);
                        }
                        _ => assert_eq!(
                            sessions.insert(&keys, step),
                            model.insert(keys.clone(), step)
                        ),
                    }
                    let probe: Vec<u32> =
                        (0..key_count).map(|_| random.below(7) as u32 * 0x0101).collect();
                    assert_eq!(sessions.find(&probe), model.get(&probe).copied());
                    assert_eq!(sessions.len(), model.len());
                }
            }
        }
    }
}
