//! IP packets put together from their fragments, as the receiver's system does it.
//!
//! The fragments of a packet may come in any order and overlap; the receiver's policy decides which bytes it keeps.
//! When nothing is missing, the packet is returned as a frame of raw IP: its header (IPv6: the fixed one) and all of
//! its payload. Memory: at most [`Limits`]; beyond it, and after the time limit, the oldest packets are given up. Cost:
//! O(log n) and a copy of its bytes per fragment. Source: RFC 791, 8200; policies as in Suricata and Snort's frag3
//! (Novak, *Target-based fragmentation reassembly*, 2005).
//!
//! `linux` is Linux as it is since 4.19: a fragment with nothing new is ignored, and any other overlap discards the
//! packet, as RFC 5722 wants it for IPv6; `old-linux` is the rule before. Measured with Linux 6.18.

use crate::ageing::Ageing;
use crate::fragments::{Fragment, PacketKey};
use crate::overlap::Pieces;
use crate::streams::{Policies, Policy};
use fyke_frame::walk::{Layers, Protocol};
use fyke_frame::{Frame, LinkType, checksum};
use std::net::SocketAddr;

mod runs;

use runs::{Runs, Verdict};

/// Longest payload of a packet.
const LONGEST: u64 = 65_535;
/// Length of the fixed header of IPv6.
const V6_HEADER: usize = 40;

/// Limits for memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most packets that are incomplete at a time.
    pub packets: usize,
    /// Most fragments of a packet.
    pub fragments: usize,
    /// Most bytes that all packets hold, with an estimate for each fragment.
    pub bytes: usize,
    /// Time for which an incomplete packet is kept, in nanoseconds.
    pub patience_ns: u64,
}

impl Default for Limits {
    /// 16,384 packets of 1,024 fragments, 16 MiB, 60 seconds.
    fn default() -> Self {
        Limits { packets: 16_384, fragments: 1_024, bytes: 16 << 20, patience_ns: 60_000_000_000 }
    }
}

/// Counters so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Fragments.
    pub fragments: u64,
    /// Packets that were completed.
    pub packets: u64,
    /// Incomplete packets that were given up.
    pub given_up: u64,
    /// Bytes that were received again with another value.
    pub contradicting_bytes: u64,
    /// Fragments that fit no packet: cut by the capture, too long, too many.
    pub refused: u64,
}

/// A packet that is incomplete.
#[derive(Debug, Default)]
struct Incomplete {
    pieces: Pieces,
    /// For the policy that discards packets.
    runs: Runs,
    /// Length of the payload, if the last fragment is there.
    len: Option<u64>,
    /// Header of the first fragment.
    header: Vec<u8>,
    /// Protocol of the payload, as the first fragment gives it.
    protocol: u8,
    number: u64,
}

/// Packets that are incomplete.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    policies: Policies,
    packets: Ageing<PacketKey, Incomplete>,
    held_bytes: usize,
    made: Vec<u8>,
    /// Number of packets so far, and the number of the last fragment's packet.
    numbers: (u64, u64),
    counters: Counters,
}

/// A fragment's part of the packet.
struct Part<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Part<'a> {
    /// The header and the payload of the outermost fragment; `None` if the capture has cut it.
    fn of(layers: &Layers<'a>) -> Option<Part<'a>> {
        let level = layers
            .levels()
            .find(|level| level.fragment().is_some_and(|fragment| !fragment.is_whole()))?;
        let ip = level.layers().iter().rev().find(|layer| layer.protocol.is_ip())?;
        let around = match level.find(Protocol::Fragment) {
            Some(fragment) if ip.protocol != Protocol::Ipv4 => fragment,
            _ => ip,
        };
        let payload = layers.data().get(around.payload_range())?;
        let header = layers.data().get(ip.header_range())?;
        (payload.len() == around.wire_payload_len()).then_some(Part { header, payload })
    }
}

impl Reassembler {
    /// No packets yet.
    pub fn new(limits: Limits, policies: Policies) -> Reassembler {
        Reassembler {
            limits,
            policies,
            packets: Ageing::new(limits.packets),
            held_bytes: 0,
            made: Vec::new(),
            numbers: (0, 0),
            counters: Counters::default(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes held now, with an estimate for each fragment.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Number of the packet of the last fragment, from 1, never used again; 0 if that was refused.
    pub fn packet(&self) -> u64 {
        self.numbers.1
    }

    /// Takes a fragment; returns the packet as a frame of raw IP if that completes it.
    pub fn add(&mut self, frame: &Frame<'_>, layers: &Layers<'_>) -> Option<Frame<'_>> {
        let now_ns = frame.timestamp_ns;
        self.made.clear();
        self.expire(now_ns);
        let Fragment { key, info } = Fragment::of(layers)?;
        self.counters.fragments += 1;
        self.numbers.1 = 0;
        let part = Part::of(layers);
        let start = u64::from(info.offset);
        let fits = |part: &Part<'_>| {
            let end = start + part.payload.len() as u64;
            end <= LONGEST && (!info.more || part.payload.len().is_multiple_of(8))
        };
        let Some(part) = part.filter(fits) else {
            self.counters.refused += 1;
            return None;
        };
        if self.packets.peek(&key).is_none() {
            while self.packets.is_full() {
                self.give_up_oldest();
            }
            let deadline = now_ns.saturating_add(self.limits.patience_ns);
            self.numbers.0 += 1;
            let packet = Incomplete { number: self.numbers.0, ..Incomplete::default() };
            self.packets.insert(key, packet, deadline);
        }
        let policy = self.policies.of(SocketAddr::new(key.destination, 0));
        let packet = self.packets.peek_mut(&key)?;
        let before = packet.pieces.memory();
        self.numbers.1 = packet.number;
        if packet.pieces.len() >= self.limits.fragments {
            self.counters.refused += 1;
            return None;
        }
        if policy == Policy::Linux {
            match packet.runs.add((start, start + part.payload.len() as u64), info.more) {
                Verdict::New => {}
                Verdict::Repeated => {
                    packet.compare(start, part.payload, &mut self.counters);
                    return None;
                }
                Verdict::Discarded => {
                    packet.compare(start, part.payload, &mut self.counters);
                    self.remove(&key);
                    self.counters.given_up += 1;
                    return None;
                }
            }
        }
        if info.offset == 0 && packet.header.is_empty() {
            (packet.header, packet.protocol) = (part.header.to_vec(), info.protocol);
        }
        packet.take(start, info.more, part.payload, policy, &mut self.counters);
        self.held_bytes = self.held_bytes + packet.pieces.memory() - before;
        let is_complete = packet.build(&key, &mut self.made);
        if is_complete {
            self.remove(&key);
            self.counters.packets += 1;
        }
        while self.held_bytes > self.limits.bytes {
            self.give_up_oldest();
        }
        if !is_complete {
            self.made.clear();
        }
        self.made(frame)
    }

    /// The packet that the last fragment completed, as a frame of raw IP; its metadata are those of `frame`.
    pub fn made(&self, frame: &Frame<'_>) -> Option<Frame<'_>> {
        let is_complete = !self.made.is_empty();
        is_complete.then(|| Frame { link: LinkType::RAW, ..whole(frame, &self.made) })
    }

    fn remove(&mut self, key: &PacketKey) {
        if let Some(packet) = self.packets.remove(key) {
            self.held_bytes -= packet.pieces.memory();
        }
    }

    fn give_up_oldest(&mut self) {
        if let Some((_, packet)) = self.packets.pop_oldest() {
            self.held_bytes -= packet.pieces.memory();
            self.counters.given_up += 1;
        }
    }

    /// Gives up packets that have been incomplete for too long.
    pub fn expire(&mut self, now_ns: u64) {
        while let Some((_, packet)) = self.packets.pop_expired(now_ns) {
            self.held_bytes -= packet.pieces.memory();
            self.counters.given_up += 1;
        }
    }
}

/// A frame with other bytes.
fn whole<'b>(frame: &Frame<'_>, data: &'b [u8]) -> Frame<'b> {
    let wire_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Frame {
        data,
        wire_len,
        timestamp_ns: frame.timestamp_ns,
        link: frame.link,
        interface: frame.interface,
        meta: frame.meta,
    }
}

impl Incomplete {
    fn take(
        &mut self,
        start: u64,
        more: bool,
        payload: &[u8],
        policy: Policy,
        counters: &mut Counters,
    ) {
        let end = start + payload.len() as u64;
        if !more {
            self.len.get_or_insert(end);
        }
        let prefers = |new, old| policy.prefers_new_fragment(new, old);
        let overlap = self.pieces.insert(start, payload, 0, prefers);
        counters.contradicting_bytes += overlap.contradicting;
    }

    /// Counts bytes with other values than those that are there.
    fn compare(&self, start: u64, payload: &[u8], counters: &mut Counters) {
        counters.contradicting_bytes += self.pieces.contradicting(start, payload);
    }

    /// Writes the packet if it is complete: the header, without the marks of a fragment, and the payload.
    fn build(&self, key: &PacketKey, out: &mut Vec<u8>) -> bool {
        let Some(len) = self.len else { return false };
        if self.header.is_empty() || self.pieces.byte_count() < len {
            return false;
        }
        out.extend_from_slice(&self.header);
        if !self.pieces.join(len, out) {
            return false;
        }
        let is_v4 = key.source.is_ipv4();
        let total = if is_v4 { out.len() } else { out.len() - V6_HEADER };
        let Ok(total) = u16::try_from(total) else { return false };
        let at = if is_v4 { 2 } else { 4 };
        out[at..at + 2].copy_from_slice(&total.to_be_bytes());
        if is_v4 {
            out[6..8].copy_from_slice(&[0; 2]);
            out[10..12].copy_from_slice(&[0; 2]);
            let sum = checksum(&[&out[..self.header.len()]]);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            out[6] = self.protocol;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::walk;
    use fyke_testkit::packet::Packet;
    use fyke_testkit::random::Random;

    /// A fragment of packet `id`; `offset` in bytes.
    fn part(six: bool, id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let ether = Packet::ethernet();
        let ip = match six {
            true => ether.ipv6([0x20; 16], [0x21; 16]).fragment6(id.into(), offset, more),
            false => ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(id, offset, more),
        };
        ip.ip_payload(17, payload).build()
    }

    /// Puts fragments together; returns the payloads of the packets.
    fn run(tracker: &mut Reassembler, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for data in frames {
            let frame = Frame::new(LinkType::EN10MB, data);
            if let Some(whole) = tracker.add(&frame, &walk(&frame)) {
                let layers = walk(&whole);
                assert!(Fragment::of(&layers).is_none());
                let ip = layers.innermost_level().unwrap();
                assert_eq!(ip.ip_protocol(), Some(17));
                let header = if ip.ipv4().is_some() { 20 } else { 40 };
                all.push(whole.data[header..].to_vec());
            }
        }
        all
    }

    #[test]
    fn fragments_in_any_order_make_the_packet() {
        let (mut random, seed) = Random::seeded(41);
        println!("seed {seed}");
        for round in 0..200u16 {
            let six = round % 2 == 0;
            let text: Vec<u8> =
                (0..400 + random.below(3_000)).map(|_| random.number() as u8).collect();
            let mut frames = Vec::new();
            let mut at = 0;
            while at < text.len() {
                let end = (at + 8 * (1 + random.below(40))).min(text.len());
                let from = at.saturating_sub(8 * random.below(3));
                frames.push(part(six, round, from as u16, end < text.len(), &text[from..end]));
                at = end;
            }
            for index in (1..frames.len()).rev() {
                frames.swap(index, random.below(index + 1));
            }
            let mut tracker = Reassembler::new(Limits::default(), Policies::default());
            let made = run(&mut tracker, &frames);
            assert!(made.first() == Some(&text) && tracker.counters().packets == 1, "{round}");
            assert_eq!(tracker.counters().contradicting_bytes, 0);
        }
    }

    /// Old bytes `OOOOOOOO` at 8 to 16 when new bytes `n` arrive; then the rest.
    #[test]
    fn overlaps_are_decided_as_the_receiver_does() {
        let old = part(false, 1, 8, true, b"OOOOOOOOOOOOOOOO");
        // Policies in the order of `Policy::ALL`: the first letter that is kept at offset 8.
        // Linux discards packets: `.`.
        let cases: [(u16, &[u8], &str); 4] = [
            (8, b"nnnnnnnnnnnnnnnn", "OnOOOnnOOOOO"),
            (0, b"nnnnnnnnnnnnnnnn", "Onn.OOnOnOnO"),
            (0, &[b'n'; 32], "Onn.nnnnnOnO"),
            (8, b"nnnnnnnn", "OnOOOOnOOOOO"),
        ];
        for (start, new, kept) in cases {
            for (policy, kept) in Policy::ALL.into_iter().zip(kept.bytes()) {
                let mut tracker = Reassembler::new(Limits::default(), policy.into());
                let frames = [
                    old.clone(),
                    part(false, 1, start, true, new),
                    part(false, 1, 0, true, b"++++++++"),
                    part(false, 1, 24, true, b"--------"),
                    part(false, 1, 32, false, b"."),
                ];
                let made = run(&mut tracker, &frames);
                let first = made.first().map_or('.', |made| char::from(made[8]));
                assert_eq!(first, char::from(kept), "{policy:?} {start}");
            }
        }
    }

    #[test]
    fn floods_are_bounded() {
        let (mut random, seed) = Random::seeded(42);
        println!("seed {seed}");
        let limits = Limits { packets: 40, fragments: 8, bytes: 20_000, patience_ns: 500 };
        let mut tracker = Reassembler::new(limits, Policies::default());
        for now_ns in 0..20_000 {
            let offset = 8 * random.below(8_192) as u16;
            let bytes = vec![7; random.below(200)];
            let data = part(random.chance(2), random.below(90) as u16, offset, true, &bytes);
            let data = &data[..data.len() - random.below(3)];
            let frame = Frame { timestamp_ns: now_ns, ..Frame::new(LinkType::EN10MB, data) };
            tracker.add(&frame, &walk(&frame));
            assert!(tracker.held_bytes() <= 20_000 && tracker.packets.len() <= 40);
        }
        tracker.expire(u64::MAX);
        let counters = tracker.counters();
        assert!(counters.given_up > 0 && counters.refused > 0, "{counters:?}");
        assert_eq!((tracker.held_bytes(), tracker.packets.len()), (0, 0));
    }
}
