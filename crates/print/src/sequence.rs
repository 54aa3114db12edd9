//! TCP sequence numbers relative to the start of a conversation.
//!
//! The first captured frame of a conversation with an acknowledgement, and every SYN with one, sets
//! the start for both sides. Bounded: two generations of at most 65,536 conversations; when the
//! younger is full, the older is dropped. 72 bytes per conversation, O(1) per frame.

use std::collections::HashMap;
use std::net::IpAddr;

const GENERATION_LEN: usize = 65_536;

type End = (u16, IpAddr);

/// First sequence numbers of the lower and the higher end of a conversation.
type Starts = (u32, u32);

#[derive(Debug, Default)]
pub(crate) struct Sequences {
    young: HashMap<(End, End), Starts>,
    old: HashMap<(End, End), Starts>,
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
        let key = if reversed { (destination, source) } else { (source, destination) };
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

    fn known(&mut self, key: &(End, End)) -> Option<Starts> {
        if let Some(starts) = self.young.get(key) {
            return Some(*starts);
        }
        let starts = self.old.remove(key)?;
        self.remember(*key, starts);
        Some(starts)
    }

    fn remember(&mut self, key: (End, End), starts: Starts) {
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
