//! The frames that a source still holds, by their ports.
//!
//! A frame is under every port of its headers, in tunnels too. A frame that lacks the ports of one of its packets, such
//! as a later fragment, is under every port. The entries of a port are a chain from the newest to the oldest. Nothing
//! is removed: a chain ends at the first frame that the source no longer holds, and its place is used again.
//!
//! Memory: 12 bytes for each port of a held frame, at most 200 MB, and 32 KiB. Cost: one walk over the headers of a
//! frame that arrives; O(held frames with the port, and one in 4,096 of all) for a look-up.

use fyke_frame::Batch;
use fyke_frame::Mask;
use fyke_frame::walk::{Layers, walk_again};

/// Number of chains for ports; one more is for frames under every port.
const CHAINS: usize = 1 << 12;
/// Number of entries at first.
const FIRST: usize = 1 << 10;
/// Most entries; then the oldest frames are no longer known.
const MOST: usize = 1 << 24;

/// A frame under a port.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Low bits of the frame's sequence number.
    sequence: u32,
    /// Distance to the entry before it in its chain; 0: there is none.
    back: u32,
    port: u16,
}

/// The index of one source.
#[derive(Debug)]
pub(super) struct PortIndex {
    /// Number of the newest entry of each chain; 0: there is none.
    heads: Box<[u64]>,
    /// By number, modulo the length.
    entries: Vec<Entry>,
    /// Number of the newest entry, from 1.
    newest: u64,
    /// All frames from this sequence number on are known.
    from: u64,
    /// Sequence number of the newest frame.
    last: u64,
}

impl PortIndex {
    /// An index of the frames from a sequence number on.
    pub(super) fn new(from: u64) -> PortIndex {
        PortIndex {
            heads: vec![0; CHAINS + 1].into(),
            entries: vec![Entry::default(); FIRST],
            newest: 0,
            from,
            last: from,
        }
    }

    /// Adds frames of a batch. `oldest` is the sequence number of the oldest held frame.
    pub(super) fn add(&mut self, batch: &Batch<'_>, frames: Mask, oldest: u64) {
        let mut layers = Layers::new();
        for at in frames.iter() {
            let sequence = batch.first_sequence + at as u64;
            self.last = sequence;
            walk_again(&batch.frames()[at], &mut layers);
            let (mut packets, mut known) = (0, 0);
            for layer in layers.iter() {
                packets += u32::from(layer.protocol.is_ip());
                if !layer.protocol.has_ports() {
                    continue;
                }
                let header = layers.data().get(layer.header_range());
                if let Some(&[a, b, c, d]) = header.and_then(|header| header.first_chunk()) {
                    known += 1;
                    let (source, destination) =
                        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                    self.insert(chain(source), source, sequence, oldest);
                    if destination != source {
                        self.insert(chain(destination), destination, sequence, oldest);
                    }
                }
            }
            if packets != known || known == 0 {
                self.insert(CHAINS, 0, sequence, oldest);
            }
        }
    }

    fn insert(&mut self, chain: usize, port: u16, sequence: u64, oldest: u64) {
        let number = self.newest + 1;
        let length = self.entries.len() as u64;
        if number > length {
            let replaced = self.sequence(self.entry(number - length));
            if replaced >= oldest && self.entries.len() < MOST {
                self.grow();
            } else if replaced >= oldest {
                self.from = self.from.max(replaced + 1);
            }
        }
        // A distance that is too long leads to an entry of later frames in the same place.
        let back = match self.heads[chain] {
            0 => 0,
            head => u32::try_from(number - head).unwrap_or(0),
        };
        let at = self.place(number);
        self.entries[at] = Entry { sequence: sequence as u32, back, port };
        (self.heads[chain], self.newest) = (number, number);
    }

    fn grow(&mut self) {
        let length = self.entries.len();
        let mut larger = vec![Entry::default(); length * 2];
        let mask = larger.len() as u64 - 1;
        for number in self.newest + 1 - length as u64..=self.newest {
            larger[(number & mask) as usize] = self.entry(number);
        }
        self.entries = larger;
    }

    fn place(&self, number: u64) -> usize {
        (number & (self.entries.len() as u64 - 1)) as usize
    }

    fn entry(&self, number: u64) -> Entry {
        self.entries[self.place(number)]
    }

    /// The sequence number of an entry's frame.
    fn sequence(&self, entry: Entry) -> u64 {
        let ago = (self.last as u32).wrapping_sub(entry.sequence);
        self.last.saturating_sub(ago.into())
    }

    /// Sequence numbers of all frames since `oldest` that may have one of these ports, in order; `None` if the index
    /// does not know all frames since then.
    pub(super) fn find(&self, ports: &[u16], oldest: u64) -> Option<Vec<u64>> {
        if self.from > oldest {
            return None;
        }
        let mut found = Vec::new();
        if !ports.is_empty() {
            self.follow(CHAINS, 0, oldest, &mut found);
        }
        ports.iter().for_each(|&port| self.follow(chain(port), port, oldest, &mut found));
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    fn follow(&self, chain: usize, port: u16, oldest: u64, found: &mut Vec<u64>) {
        let mut number = self.heads[chain];
        while number > 0 && number + self.entries.len() as u64 > self.newest {
            let entry = self.entry(number);
            let sequence = self.sequence(entry);
            if sequence < oldest {
                return;
            }
            if entry.port == port {
                found.push(sequence);
            }
            if entry.back == 0 {
                return;
            }
            number = number.saturating_sub(entry.back.into());
        }
    }
}

/// The chain of a port.
fn chain(port: u16) -> usize {
    usize::from(port) % CHAINS
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::{Frame, LinkType};
    use fyke_testkit::packet::Packet;
    use fyke_testkit::random::Random;

    fn udp(source: u16, destination: u16) -> Vec<u8> {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        packet.udp(source, destination).build()
    }

    fn add(index: &mut PortIndex, first_sequence: u64, frames: &[Vec<u8>], oldest: u64) {
        let mut batch = Batch::new();
        batch.first_sequence = first_sequence;
        for bytes in frames {
            batch.push(Frame::new(LinkType::EN10MB, bytes)).unwrap();
        }
        index.add(&batch, batch.all(), oldest);
    }

    #[test]
    fn frames_are_under_their_ports_and_those_without_under_all() {
        let outer = Packet::ethernet().vlan(7).ipv6([1; 16], [2; 16]);
        let tunnel = outer.gtpu(9).ipv4([1; 4], [2; 4]).udp(5_060, 30_000).build();
        let later = Packet::ethernet().ipv4([1; 4], [2; 4]).fragment(1, 8, false);
        let later = later.ip_payload(17, &[0; 16]).build();
        let cut = udp(1, 2)[..35].to_vec();
        let inner = Packet::ethernet().ipv4([1; 4], [2; 4]).ipv4([1; 4], [2; 4]).udp(6, 7).build();
        let frames = [udp(4_000, 9), tunnel, later, cut, inner, udp(4_000, 4_000), vec![0; 14]];
        let mut index = PortIndex::new(100);
        add(&mut index, 100, &frames, 100);
        let find = |ports: &[u16]| index.find(ports, 100).unwrap();
        assert_eq!(find(&[4_000]), [100, 102, 103, 104, 105, 106]);
        assert_eq!(find(&[30_000]), [101, 102, 103, 104, 106]);
        assert_eq!(find(&[2_152, 7]), [101, 102, 103, 104, 106]);
        // In the chain of 9, and another port.
        assert_eq!(find(&[9 + CHAINS as u16]), [102, 103, 104, 106]);
        assert!(find(&[]).is_empty());
        assert_eq!(index.find(&[9], 99), None, "frame 99 is not known");
        assert_eq!(index.find(&[9, 30_000], 103).unwrap(), [103, 104, 106]);
    }

    /// Against all frames, with more and fewer of them held, and sequence numbers beyond 32 bits.
    #[test]
    fn no_held_frame_is_missed_while_the_index_grows_and_its_places_are_used_again() {
        fyke_testkit::random::rounds(20, |random: &mut Random| {
            let mut sequence = u64::from(u32::MAX) - 2_000;
            let (mut index, mut ports) = (PortIndex::new(sequence), Vec::new());
            let first = sequence;
            let mut oldest = sequence;
            for _ in 0..100 {
                let batch: Vec<_> = (0..1 + random.below(120))
                    .map(|_| (random.below(5_000) as u16, random.below(10) as u16))
                    .collect();
                let frames: Vec<_> = batch.iter().map(|&(from, to)| udp(from, to)).collect();
                add(&mut index, sequence, &frames, oldest);
                sequence += frames.len() as u64;
                ports.extend(batch);
                oldest = oldest.max(sequence.saturating_sub(random.below(3_000) as u64));
                let wanted = [random.below(5_000) as u16, random.below(10) as u16];
                let has = |(from, to): &(u16, u16)| wanted.contains(from) || wanted.contains(to);
                let all = (first..).zip(&ports).filter(|(number, _)| *number >= oldest);
                let expected: Vec<u64> = all.filter(|one| has(one.1)).map(|one| one.0).collect();
                assert_eq!(index.find(&wanted, oldest).unwrap(), expected);
            }
            assert!(index.entries.len() <= 1 << 15, "{}", index.entries.len());
        });
    }
}
