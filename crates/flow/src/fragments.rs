//! The tracker of fragmented IP packets: finds the decision for each later fragment.
//!
//! Only the first fragment of a packet has its ports. The tracker stores a decision (`V`, of any
//! kind) about the first fragment under the packet's key, and returns it for the others. Fragments
//! that arrive before the first are held, and are returned in the order of arrival when the first
//! arrives. Packets are not reassembled.
//!
//! Keys: source, destination, identification and, for IPv4, protocol (RFC 791, 8200). Bounds:
//! decisions and held fragments are limited in number, bytes and time; the oldest are removed
//! first, and everything is counted. Cost: O(log n) per fragment; packets that are not fragments
//! cost nothing.

use crate::ageing::Ageing;
use crate::postponed::{Held, Limits, Postponed};
use fyke_frame::Frame;
use fyke_frame::walk::{FragmentInfo, Layers};
use std::net::IpAddr;

/// Packet that a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Identification.
    pub id: u32,
    /// Protocol; 0 in IPv6, where it is not part of the key.
    pub protocol: u8,
}

/// A fragment: its packet, and its position in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The packet.
    pub key: PacketKey,
    /// The position.
    pub info: FragmentInfo,
}

impl Fragment {
    /// The outermost fragmented packet of a frame; `None` if no packet in it is a fragment. A
    /// packet in one fragment (RFC 6946) is not fragmented.
    pub fn of(layers: &Layers<'_>) -> Option<Fragment> {
        layers.levels().find_map(|level| {
            let info = level.fragment().filter(|info| !info.is_whole())?;
            let ip = level.ip()?;
            let (source, destination) = (ip.source(), ip.destination());
            let protocol = if source.is_ipv4() { info.protocol } else { 0 };
            Some(Fragment { key: PacketKey { source, destination, id: info.id, protocol }, info })
        })
    }
}

/// Limits for memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most packets with a known first fragment.
    pub packets: usize,
    /// Limits for fragments that wait for their first.
    pub held: Limits,
    /// Time for which either is kept, in nanoseconds.
    pub patience_ns: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        // The time limit of a reassembly: 60 s by RFC 8200, at least that by RFC 1122.
        Bounds { packets: 65_536, held: Limits::default(), patience_ns: 60_000_000_000 }
    }
}

/// Counters of fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// First fragments.
    pub first: u64,
    /// Later fragments with a known first fragment.
    pub followed: u64,
    /// Later fragments that arrived before their first and were held.
    pub held: u64,
    /// Held fragments released because the first arrived.
    pub woken: u64,
    /// Held fragments dropped because the first did not arrive in time.
    pub expired: u64,
    /// Held fragments dropped for lack of room.
    pub no_room: u64,
    /// Decisions dropped before their deadline for lack of room.
    pub forgotten: u64,
}

/// The tracker: `V` is the decision about a packet, `T` a note on a held fragment.
#[derive(Debug)]
pub struct FragmentTracker<V, T> {
    patience_ns: u64,
    decided: Ageing<PacketKey, V>,
    waiting: Postponed<PacketKey, T>,
    counters: Counters,
}

impl<V: Clone, T> FragmentTracker<V, T> {
    /// A tracker.
    pub fn new(bounds: Bounds) -> Self {
        FragmentTracker {
            patience_ns: bounds.patience_ns,
            decided: Ageing::new(bounds.packets),
            waiting: Postponed::new(bounds.held),
            counters: Counters::default(),
        }
    }

    /// Stores the decision about a first fragment; returns the fragments that waited for it, in the
    /// order of arrival.
    pub fn first(&mut self, key: PacketKey, decision: V, now_ns: u64) -> Vec<Held<T>> {
        self.counters.first += 1;
        self.decided.insert(key, decision, now_ns.saturating_add(self.patience_ns));
        self.counters.forgotten = self.decided.evicted();
        let woken = self.waiting.wake(&[key]);
        self.counters.woken += woken.len() as u64;
        woken
    }

    /// Returns the decision for a later fragment; if there is none yet, a copy is held. Fragments
    /// dropped for lack of room are passed to `dropped`.
    pub fn follow(
        &mut self,
        key: PacketKey,
        frame: &Frame<'_>,
        note: T,
        now_ns: u64,
        mut dropped: impl FnMut(Held<T>),
    ) -> Option<V> {
        if let Some(decision) = self.decided.get(&key, now_ns) {
            self.counters.followed += 1;
            return Some(decision.clone());
        }
        self.counters.held += 1;
        let expires_ns = now_ns.saturating_add(self.patience_ns);
        let no_room = &mut self.counters.no_room;
        self.waiting.hold(frame, &[key], expires_ns, note, |held| {
            *no_room += 1;
            dropped(held);
        });
        None
    }

    /// Drops entries that are too old; each held fragment is passed to `dropped`.
    pub fn expire(&mut self, now_ns: u64, mut dropped: impl FnMut(Held<T>)) {
        while self.decided.pop_expired(now_ns).is_some() {}
        while let Some(held) = self.waiting.pop_expired(now_ns) {
            self.counters.expired += 1;
            dropped(held);
        }
    }

    /// Drops all waiting fragments at the end of the input.
    pub fn finish(&mut self, mut dropped: impl FnMut(Held<T>)) {
        for held in self.waiting.wake_all() {
            self.counters.expired += 1;
            dropped(held);
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of waiting fragments.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::LinkType;
    use fyke_testkit::packet::Packet;
    use fyke_testkit::random::Random;

    fn part(six: bool, id: u32, offset: u16, more: bool) -> Vec<u8> {
        let ether = Packet::ethernet();
        let ip = match six {
            true => ether.ipv6([0x20; 16], [0x21; 16]).fragment6(id, offset, more),
            false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(id as u16, offset, more),
        };
        ip.ip_payload(17, &[0; 24]).build()
    }

    fn fragment(frame: &Frame<'_>) -> Fragment {
        Fragment::of(&fyke_frame::walk(frame)).unwrap()
    }

    #[test]
    fn later_fragments_follow_or_wait_for_their_first() {
        for six in [false, true] {
            let mut tracker = FragmentTracker::new(Bounds::default());
            let [first, middle, last] = [(0, true), (24, true), (48, false)]
                .map(|(offset, more)| part(six, 7, offset, more));
            let [first, middle, last] =
                [&first, &middle, &last].map(|bytes| Frame::new(LinkType::EN10MB, bytes));
            let keys = [first, middle, last].map(|frame| fragment(&frame).key);
            assert!(keys[0] == keys[1] && keys[1] == keys[2]);
            assert!(
                tracker.follow(keys[1], &middle, 'm', 5, |_| panic!("there is room")).is_none()
            );
            let woken = tracker.first(keys[0], 53, 6);
            assert_eq!(woken.iter().map(|held| held.note).collect::<Vec<_>>(), ['m']);
            assert_eq!(woken[0].frame().data, middle.data);
            assert_eq!(tracker.follow(keys[2], &last, 'l', 7, |_| panic!("known")), Some(53));
            let late = 7 + 61_000_000_000;
            tracker.expire(late, |_| panic!("nobody waits"));
            assert!(tracker.follow(keys[2], &last, 'l', late, |_| ()).is_none());
            let counters = tracker.counters();
            assert_eq!(
                (counters.first, counters.followed, counters.held, counters.woken),
                (1, 1, 2, 1)
            );
        }
    }

    #[test]
    fn floods_of_fragments_are_bounded_and_every_one_is_counted() {
        let (mut random, seed) = Random::seeded(11);
        println!("seed {seed}");
        let held = Limits { packets: 100, bytes: 20_000 };
        let bounds = Bounds { packets: 50, held, patience_ns: 1000 };
        let mut tracker = FragmentTracker::new(bounds);
        let (mut firsts, mut others, mut dropped) = (0u64, 0u64, 0u64);
        for now_ns in 0..20_000 {
            let six = random.below(2) == 0;
            let first = random.below(4) == 0;
            let id = random.below(3000) as u32;
            let bytes = part(six, id, if first { 0 } else { 8 }, true);
            let frame = Frame::new(LinkType::EN10MB, &bytes);
            let key = fragment(&frame).key;
            tracker.expire(now_ns, |_| dropped += 1);
            if first {
                firsts += 1;
                tracker.first(key, (), now_ns);
            } else {
                others += 1;
                tracker.follow(key, &frame, (), now_ns, |_| dropped += 1);
            }
            assert!(tracker.waiting() <= 100 && tracker.waiting.bytes() <= 20_000);
            assert!(tracker.decided.len() <= 50);
        }
        tracker.finish(|_| dropped += 1);
        let counters = tracker.counters();
        assert_eq!(counters.first, firsts);
        assert_eq!(counters.followed + counters.held, others);
        assert_eq!(counters.woken + counters.expired + counters.no_room, counters.held);
        assert_eq!(counters.expired + counters.no_room, dropped);
        assert!(counters.no_room > 0 && counters.woken > 0 && counters.forgotten > 0);
    }
}
