//! `fragments`: fragmented IPv4 and IPv6 datagrams in every order, with repeated, overlapping and missing fragments.

use super::CaptureFile;
use super::scene::Scene;
use crate::packet::Packet;
use crate::random::Random;

/// A datagram to be fragmented.
#[derive(Debug, Clone)]
struct Datagram {
    outer: Packet,
    six: bool,
    id: u16,
    protocol: u8,
    bytes: Vec<u8>,
}

impl Datagram {
    /// Makes the fragment of these bytes at `from`; more fragments follow unless it reaches the end.
    fn piece(&self, from: usize, len: usize) -> Vec<u8> {
        let to = (from + len).min(self.bytes.len());
        let more = to < self.bytes.len();
        let (part, offset) = (&self.bytes[from..to], from as u16);
        let outer = self.outer.clone();
        match self.six {
            true => {
                let host = |last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
                outer.ipv6(host(1), host(2)).fragment6(self.id.into(), offset, more)
            }
            false => outer.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(self.id, offset, more),
        }
        .ip_payload(self.protocol, part)
        .build()
    }

    /// Makes all fragments of this size, in order.
    fn pieces(&self, len: usize) -> Vec<Vec<u8>> {
        (0..self.bytes.len()).step_by(len).map(|from| self.piece(from, len)).collect()
    }
}

/// Builds UDP or TCP with its header.
fn datagram(six: bool, id: u16, port: u16, len: usize) -> Datagram {
    let is_tcp = id % 4 == 3;
    let mut bytes = [40_000 + id, port].map(u16::to_be_bytes).concat();
    match is_tcp {
        true => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 4, 0, 0, 0, 0, 0]),
        false => bytes.extend([len as u16, 0].map(u16::to_be_bytes).concat()),
    }
    bytes.resize(len, id as u8);
    let protocol = if is_tcp { 6 } else { 17 };
    Datagram { outer: Packet::ethernet(), six, id, protocol, bytes }
}

/// Ways of delivering the fragments of a datagram.
type Journey = fn(&mut Vec<Vec<u8>>, &mut Random);

const JOURNEYS: [(&str, Journey); 8] = [
    ("in-order", |_, _| {}),
    ("backwards", |pieces, _| pieces.reverse()),
    ("last-first", |pieces, _| pieces.rotate_right(1)),
    ("first-last", |pieces, _| pieces.rotate_left(1)),
    ("shuffled", |pieces, random| {
        for last in (1..pieces.len()).rev() {
            pieces.swap(last, random.below(last + 1));
        }
    }),
    ("twice", |pieces, random| {
        // Not the last: a repeated fragment after the end belongs to another datagram.
        let place = random.below(pieces.len() - 1);
        let again = pieces[place].clone();
        pieces.insert(place + 1, again);
    }),
    ("first-missing", |pieces, _| {
        pieces.remove(0);
    }),
    ("one-missing", |pieces, _| {
        pieces.remove(1);
    }),
];

/// Makes twelve datagrams that are delivered in this way, interleaved with each other.
fn journey(name: &str, six: bool, walk: Journey) -> CaptureFile {
    let mut random = Random::new(77);
    let mut scene = Scene::new(1);
    let mut waiting: Vec<Vec<u8>> = Vec::new();
    for id in 1..=12 {
        let mut pieces = datagram(six, id, 5_000 + id % 3, 100 + 40 * usize::from(id)).pieces(48);
        walk(&mut pieces, &mut random);
        for piece in pieces {
            scene.push(piece);
            if let Some(other) = waiting.pop() {
                scene.push(other);
            }
        }
        waiting.drain(..).rev().for_each(|piece| scene.push(piece));
        let mut other = datagram(six, id + 500, 6_000, 120).pieces(56);
        other.reverse();
        waiting = other;
    }
    waiting.drain(..).rev().for_each(|piece| scene.push(piece));
    let version = if six { 6 } else { 4 };
    CaptureFile::new("fragments", &format!("v{version}-{name}.pcap"), scene.pcap())
}

/// Returns the files with one kind of delivery each.
fn others() -> Vec<CaptureFile> {
    let mut files = Vec::new();
    let mut add = |name: &str, outer: Packet, frames: Vec<Vec<u8>>| {
        let mut scene = Scene::new(outer.link_type());
        frames.into_iter().for_each(|frame| scene.push(frame));
        files.push(CaptureFile::new("fragments", &format!("{name}.pcap"), scene.pcap()));
    };
    for (name, outer) in [
        ("vlan", Packet::ethernet().vlan(5)),
        ("qinq", Packet::ethernet().qinq(7).vlan(8)),
        ("raw", Packet::raw()),
        ("sll", Packet::sll()),
    ] {
        let pieces = (1..9).flat_map(|id| {
            let whole = datagram(id % 2 == 0, id, 53, 300);
            Datagram { outer: outer.clone(), ..whole }.pieces(128)
        });
        add(name, outer.clone(), pieces.collect());
    }
    // Fragment headers of whole datagrams, which are not fragmented.
    let alone = |id| datagram(true, id, 53, 64).piece(0, 64);
    add("v6-atomic", Packet::ethernet(), (1..5).map(alone).collect());
    // A fragment that repeats part of the previous one.
    let overlaps = (1..7).flat_map(|id| {
        let whole = datagram(false, id, 5_000, 240);
        [whole.piece(0, 96), whole.piece(48, 96), whole.piece(144, 96)]
    });
    add("v4-overlapping", Packet::ethernet(), overlaps.collect());
    // The same identification again, after the first datagram is complete.
    let again = (0..6).flat_map(|round| datagram(false, 9, 5_000 + round, 200).pieces(64));
    add("v4-same-id", Packet::ethernet(), again.collect());
    let ping = Packet::raw().icmp(8, 0, 1).payload(&[3; 600]).build();
    let ping = Datagram { protocol: 1, bytes: ping, ..datagram(false, 4, 0, 8) };
    add("v4-icmp", Packet::ethernet(), ping.pieces(184));
    files
}

/// Returns the files of the folder.
pub fn files() -> Vec<CaptureFile> {
    let versions = [false, true].into_iter();
    let mut files: Vec<_> = versions
        .flat_map(|six| JOURNEYS.iter().map(move |(name, walk)| journey(name, six, *walk)))
        .collect();
    files.extend(others());
    files
}
