//! TCP sequence numbers relative to the start of a conversation.
//!
//! The first captured frame of a conversation with an acknowledgement, and every SYN with one, sets
//! the start for both sides. Bounded: two generations of at most 65,536 conversations; when the
//! younger is full, the older is dropped. 72 bytes per conversation, O(1) per frame.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;

const GENERATION_LEN: usize = 65_536;

type End = (u16, IpAddr);

/// A table of conversations. Its hash is faster than the standard one and has a random key, so that
/// no sender can choose conversations that collide.
type Table = HashMap<Conversation, Starts, Keyed>;

/// The lower and the higher end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Conversation(End, End);

impl Hash for Conversation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (_, address) in [self.0, self.1] {
            match address {
                IpAddr::V4(address) => state.write_u64(address.to_bits().into()),
                IpAddr::V6(address) => state.write_u128(address.to_bits()),
            }
        }
        state.write_u64(u64::from(self.0.0) << 16 | u64::from(self.1.0));
    }
}

/// Makes hashers with a random key.
#[derive(Debug, Clone)]
struct Keyed(u64);

impl Default for Keyed {
    fn default() -> Keyed {
        Keyed(RandomState::new().build_hasher().finish() | 1)
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded { key: self.0, state: self.0 }
    }
}

/// Multiplies to 128 bits and folds the halves.
struct Folded {
    key: u64,
    state: u64,
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.state ^ value) * u128::from(self.key ^ FACTOR);
        self.state = (product as u64 ^ (product >> 64) as u64).wrapping_add(self.key);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// First sequence numbers of the lower and the higher end of a conversation.
type Starts = (u32, u32);

#[derive(Debug, Default)]
pub(crate) struct Sequences {
    young: Table,
    old: Table,
}

/// The numbers of a frame as they are shown, and the base of its selective acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) sack_start: u32,
}

impl Sequences {
    /// Turns the numbers of a frame with the acknowledgement flag into the numbers that are shown.
    pub(crate) fn shown(
        &mut self,
        source: End,
        destination: End,
        sequence: u32,
        acknowledgement: u32,
        syn: bool,
    ) -> Shown {
        let reversed = source > destination;
        let key = match reversed {
            true => Conversation(destination, source),
            false => Conversation(source, destination),
        };
        let known = if syn { None } else { self.known(&key) };
        let (own, other) = match known {
            Some((low, high)) if reversed => (high, low),
            Some((low, high)) => (low, high),
            None => {
                let (own, other) = (sequence, acknowledgement.wrapping_sub(1));
                self.remember(key, if reversed { (other, own) } else { (own, other) });
                return Shown { sequence, acknowledgement, sack_start: other };
            }
        };
        Shown {
            sequence: sequence.wrapping_sub(own),
            acknowledgement: acknowledgement.wrapping_sub(other),
            sack_start: other,
        }
    }

    fn known(&mut self, key: &Conversation) -> Option<Starts> {
        if let Some(starts) = self.young.get(key) {
            return Some(*starts);
        }
        let starts = self.old.remove(key)?;
        self.remember(*key, starts);
        Some(starts)
    }

    fn remember(&mut self, key: Conversation, starts: Starts) {
        if self.young.len() >= GENERATION_LEN && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, starts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(port: u16) -> End {
        (port, IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn both_sides_count_from_the_start() {
        let mut table = Sequences::default();
        let first = table.shown(end(80), end(1000), 500, 101, true);
        assert_eq!((first.sequence, first.acknowledgement), (500, 101));
        let answer = table.shown(end(1000), end(80), 101, 501, false);
        assert_eq!((answer.sequence, answer.acknowledgement), (1, 1));
        let next = table.shown(end(80), end(1000), 501, 111, false);
        assert_eq!((next.sequence, next.acknowledgement), (1, 11));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_used() {
        let mut table = Sequences::default();
        let host = |number: u32| (1, IpAddr::from(number.to_be_bytes()));
        for number in 0..3 * GENERATION_LEN as u32 {
            table.shown(host(number), end(9), 7, 7, false);
            assert_eq!(table.shown(host(0), end(9), 8, 8, false).sequence, 1);
        }
        assert!(table.young.len() + table.old.len() <= 2 * GENERATION_LEN);
    }
}
