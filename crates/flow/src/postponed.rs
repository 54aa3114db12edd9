//! Packets that wait until a fact is known.
//!
//! A held packet is a copy of the frame with its metadata, the keys that it waits for, and its
//! deadline. [`Postponed::wake`] removes the packets that wait for one of the given keys, in the
//! order of arrival; other packets are not touched, so a flood of packets that wait in vain costs
//! only its bounded memory.
//!
//! Memory: limited in packets and bytes; the oldest are dropped first. Cost: O(log n) per key.
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_flow as flow, fyke_frame as frame}; }
//! use fyke::flow::Postponed;
//! use fyke::flow::postponed::Limits;
//! use fyke::frame::{Frame, LinkType};
//!
//! let mut waiting: Postponed<&str, ()> = Postponed::new(Limits::default());
//! waiting.hold(&Frame::new(LinkType::RAW, &[1, 2]), &["a key"], 1_000, (), |_dropped| {});
//! assert_eq!(waiting.wake(&["another key"]).len(), 0);
//! assert_eq!(waiting.wake(&["a key"])[0].frame().data, [1, 2]);
//! ```

use fyke_frame::Frame;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Memory of a held packet for each of its keys, besides its bytes (an upper estimate).
const OVERHEAD_BYTES: usize = 256;

/// Memory of a held packet by this estimate.
fn cost(bytes: &[u8], names: usize) -> usize {
    bytes.len() + OVERHEAD_BYTES * names.max(1)
}

/// A waiting packet.
#[derive(Debug, Clone)]
pub struct Held<T> {
    bytes: Box<[u8]>,
    frame: Frame<'static>,
    /// The deadline, at which it is dropped.
    pub expires_ns: u64,
    /// Position in the order of arrival.
    pub sequence: u64,
    /// A note of the holder.
    pub note: T,
}

impl<T> Held<T> {
    /// The packet.
    pub fn frame(&self) -> Frame<'_> {
        Frame { data: &self.bytes, ..self.frame }
    }
}

/// Limits for held packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most packets.
    pub packets: usize,
    /// Most bytes, with an estimate for each key of a packet.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { packets: 16_384, bytes: 32 << 20 }
    }
}

/// The table of waiting packets.
#[derive(Debug)]
pub struct Postponed<K, T> {
    limits: Limits,
    held: BTreeMap<u64, (Held<T>, Box<[K]>)>,
    waiting: HashMap<K, BTreeSet<u64>>,
    deadlines: BTreeSet<(u64, u64)>,
    bytes: usize,
    next: u64,
}

impl<K: Hash + Eq + Clone, T> Postponed<K, T> {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Postponed {
            limits,
            held: BTreeMap::new(),
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Memory in use by the estimate.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds a copy of a packet until one of `waits_for` is known. Packets that are removed for it
    /// are passed to `dropped`, oldest first; that is the packet itself if it is larger than the
    /// limit.
    pub fn hold(
        &mut self,
        frame: &Frame<'_>,
        waits_for: &[K],
        expires_ns: u64,
        note: T,
        dropped: impl FnMut(Held<T>),
    ) {
        let held = Held {
            bytes: frame.data.into(),
            frame: Frame { data: &[], ..*frame },
            expires_ns,
            sequence: self.next,
            note,
        };
        self.next += 1;
        self.put(held, waits_for, dropped);
    }

    /// Holds a packet again that was removed: at its old position, with its old deadline.
    pub fn hold_again(&mut self, held: Held<T>, waits_for: &[K], dropped: impl FnMut(Held<T>)) {
        self.put(held, waits_for, dropped);
    }

    fn put(&mut self, held: Held<T>, waits_for: &[K], mut dropped: impl FnMut(Held<T>)) {
        let sequence = held.sequence;
        self.bytes += cost(&held.bytes, waits_for.len());
        self.deadlines.insert((held.expires_ns, sequence));
        for key in waits_for {
            self.waiting.entry(key.clone()).or_default().insert(sequence);
        }
        self.held.insert(sequence, (held, waits_for.into()));
        while self.held.len() > self.limits.packets || self.bytes > self.limits.bytes {
            let oldest = self.held.first_key_value().map(|(&sequence, _)| sequence);
            let Some(oldest) = oldest.and_then(|sequence| self.take(sequence)) else { return };
            dropped(oldest);
        }
    }

    fn take(&mut self, sequence: u64) -> Option<Held<T>> {
        let (held, keys) = self.held.remove(&sequence)?;
        self.bytes -= cost(&held.bytes, keys.len());
        self.deadlines.remove(&(held.expires_ns, sequence));
        for key in &keys {
            let Some(waiting) = self.waiting.get_mut(key) else { continue };
            waiting.remove(&sequence);
            if waiting.is_empty() {
                self.waiting.remove(key);
            }
        }
        Some(held)
    }

    /// Removes the packets that wait for one of these keys, in the order of arrival.
    pub fn wake(&mut self, keys: &[K]) -> Vec<Held<T>> {
        let waiting = keys.iter().filter_map(|key| self.waiting.get(key));
        let waiting: BTreeSet<u64> = waiting.flatten().copied().collect();
        waiting.into_iter().filter_map(|sequence| self.take(sequence)).collect()
    }

    /// Removes all packets, in the order of arrival.
    pub fn wake_all(&mut self) -> Vec<Held<T>> {
        self.waiting.clear();
        self.deadlines.clear();
        self.bytes = 0;
        std::mem::take(&mut self.held).into_values().map(|(held, _)| held).collect()
    }

    /// Removes one packet with a deadline that has passed, if there is one.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<Held<T>> {
        let &(deadline, sequence) = self.deadlines.first()?;
        if deadline < now_ns { self.take(sequence) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::LinkType;

    fn packet(data: &'static [u8]) -> Frame<'static> {
        Frame::new(LinkType::EN10MB, data)
    }

    #[test]
    fn packets_wake_in_order_and_end_in_time() {
        let mut room = Postponed::new(Limits::default());
        for (data, key, expires) in [(b"1", 'a', 30), (b"2", 'b', 10), (b"3", 'a', 20)] {
            room.hold(&packet(data), &[key], expires, (), |_| panic!("there is room"));
        }
        assert!(room.pop_expired(10).is_none());
        assert_eq!(room.pop_expired(11).map(|held| held.frame().data[0]), Some(b'2'));
        let woken = room.wake(&['a']);
        assert_eq!(woken.iter().map(|held| held.frame().data[0]).collect::<Vec<_>>(), b"13");
        assert_eq!((room.len(), room.bytes()), (0, 0));
        let first = woken.into_iter().next().unwrap();
        room.hold_again(first, &[], |_| panic!("there is room"));
        assert_eq!(room.pop_expired(31).map(|held| held.expires_ns), Some(30));
        assert!(room.is_empty() && room.wake(&['a']).is_empty());
    }

    #[test]
    fn a_packet_waits_for_several_things_and_wakes_once() {
        let mut room = Postponed::new(Limits::default());
        for (data, keys) in [(b"1", &['a', 'b'][..]), (b"2", &['b', 'c']), (b"3", &['a', 'a'])] {
            room.hold(&packet(data), keys, 10, (), |_| panic!("there is room"));
        }
        let wake = |room: &mut Postponed<char, ()>, keys: &[char]| -> Vec<u8> {
            room.wake(keys).iter().map(|held| held.frame().data[0]).collect()
        };
        assert_eq!(wake(&mut room, &['c', 'b']), b"12");
        assert_eq!(wake(&mut room, &['b', 'c']), b"");
        assert_eq!(wake(&mut room, &['b', 'a']), b"3");
        assert!(room.is_empty() && room.waiting.is_empty() && room.bytes() == 0);
    }

    #[test]
    fn a_full_room_lets_the_oldest_go() {
        let limits = Limits { packets: 2, bytes: 3 * OVERHEAD_BYTES };
        let mut room = Postponed::new(limits);
        let mut gone = Vec::new();
        for data in [b"1", b"2", b"3"] {
            room.hold(&packet(data), &[0], 10, (), |held| gone.push(held.frame().data[0]));
        }
        room.hold(&packet(&[0; 1000]), &[0], 10, (), |held| gone.push(held.frame().data[0]));
        assert_eq!(gone, [b'1', b'2', b'3', 0]);
        assert_eq!((room.len(), room.bytes()), (0, 0));
        room.hold(&packet(b"4"), &[], 10, (), |_| panic!("there is room"));
        assert_eq!(room.wake_all().len(), 1);
    }
}
