//! TCP connections: handshake, data in segments, end; and disorder of the segments.

use super::scene::ip;
use crate::packet::Packet;
use crate::random::Random;
use std::net::IpAddr;

/// An address with a port.
pub type End = (IpAddr, u16);

/// Options of a SYN: segment size, permitted selective acknowledgements, window scale.
const SYN_OPTIONS: &[u8] = &[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 0, 0];

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// True for segments from the client to the server.
    pub forward: bool,
    /// Sequence number of the first byte.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32.
    pub flags: u8,
    /// Payload.
    pub payload: Vec<u8>,
}

/// A connection between a client and a server.
#[derive(Debug, Clone)]
pub struct Talk {
    /// Headers before the IP header.
    pub outer: Packet,
    /// Segments so far, in capture order.
    pub pieces: Vec<Piece>,
    ends: [End; 2],
    next: [u32; 2],
    segment_len: usize,
}

impl Talk {
    /// Creates a connection without segments; `first` are the sequence numbers of the two SYNs.
    pub fn new(outer: Packet, client: End, server: End, first: [u32; 2]) -> Talk {
        Talk { outer, pieces: Vec::new(), ends: [client, server], next: first, segment_len: 1400 }
    }

    /// Creates a connection over Ethernet after its handshake.
    pub fn open(client: End, server: End) -> Talk {
        let first = [1_000 * u32::from(client.1), 77_000 + u32::from(client.1)];
        let mut talk = Talk::new(Packet::ethernet(), client, server, first);
        talk.handshake();
        talk
    }

    /// Sets the size of the largest segment from now on.
    pub fn segment_len(&mut self, len: usize) -> &mut Self {
        self.segment_len = len.max(1);
        self
    }

    /// Adds the handshake: SYN, SYN and ACK, ACK.
    pub fn handshake(&mut self) -> &mut Self {
        self.piece(true, 0x02, b"");
        self.piece(false, 0x12, b"");
        self.piece(true, 0x10, b"")
    }

    /// Adds data of the client, and its acknowledgement.
    pub fn client(&mut self, bytes: &[u8]) -> &mut Self {
        self.say(true, bytes)
    }

    /// Adds data of the server, and its acknowledgement.
    pub fn server(&mut self, bytes: &[u8]) -> &mut Self {
        self.say(false, bytes)
    }

    fn say(&mut self, forward: bool, bytes: &[u8]) -> &mut Self {
        for part in bytes.chunks(self.segment_len) {
            self.piece(forward, 0x18, part);
        }
        self.piece(!forward, 0x10, b"")
    }

    /// Adds the FIN of both sides.
    pub fn close(&mut self) -> &mut Self {
        self.piece(true, 0x11, b"");
        self.piece(false, 0x11, b"");
        self.piece(true, 0x10, b"")
    }

    /// Adds the RST of one side.
    pub fn reset(&mut self, by_client: bool) -> &mut Self {
        self.piece(by_client, 0x14, b"")
    }

    /// Adds any segment at the next sequence number.
    pub fn piece(&mut self, forward: bool, flags: u8, payload: &[u8]) -> &mut Self {
        let (own, other) = (usize::from(!forward), usize::from(forward));
        let acknowledgement = if flags & 0x10 != 0 { self.next[other] } else { 0 };
        let payload = payload.to_vec();
        let (sequence, len) = (self.next[own], payload.len() as u32);
        self.pieces.push(Piece { forward, sequence, acknowledgement, flags, payload });
        let counted = len + u32::from(flags & 0x02 != 0) + u32::from(flags & 0x01 != 0);
        self.next[own] = sequence.wrapping_add(counted);
        self
    }

    /// Builds the frame of a segment.
    pub fn packet(&self, piece: &Piece) -> Packet {
        let [client, server] = self.ends;
        let (from, to) = if piece.forward { (client, server) } else { (server, client) };
        let tcp = ip(self.outer.clone(), from.0, to.0).tcp(from.1, to.1);
        let tcp = tcp.flags(piece.flags).seq_ack(piece.sequence, piece.acknowledgement);
        let tcp = if piece.flags & 0x02 != 0 { tcp.tcp_options(SYN_OPTIONS) } else { tcp };
        tcp.payload(&piece.payload)
    }

    /// Builds all frames in order.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.pieces.iter().map(|piece| self.packet(piece).build()).collect()
    }

    /// Returns the indices of the segments with data.
    fn with_data(&self) -> Vec<usize> {
        let places = self.pieces.iter().enumerate();
        places.filter(|(_, piece)| !piece.payload.is_empty()).map(|(place, _)| place).collect()
    }

    /// Swaps some neighbouring segments of one direction.
    pub fn reordered(&mut self, random: &mut Random) -> &mut Self {
        for pair in self.with_data().windows(2) {
            if self.pieces[pair[0]].forward == self.pieces[pair[1]].forward && random.chance(2) {
                self.pieces.swap(pair[0], pair[1]);
            }
        }
        self
    }

    /// Repeats some segments with the same bytes.
    pub fn retransmitted(&mut self, random: &mut Random) -> &mut Self {
        for place in self.with_data().into_iter().rev() {
            if random.chance(3) {
                let again = self.pieces[place].clone();
                self.pieces.insert(place + 1 + random.below(2), again);
            }
        }
        self
    }

    /// Repeats the last half of some segments, together with the first half of the next one.
    pub fn overlapping(&mut self, random: &mut Random) -> &mut Self {
        for pair in self.with_data().windows(2).rev() {
            let [first, second] = [&self.pieces[pair[0]], &self.pieces[pair[1]]];
            if first.forward != second.forward || random.chance(3) {
                continue;
            }
            let half = first.payload.len() / 2;
            let mut both = second.clone();
            both.sequence = first.sequence.wrapping_add(half as u32);
            let some = second.payload.len().div_ceil(2);
            both.payload = [&first.payload[half..], &second.payload[..some]].concat();
            self.pieces.insert(pair[1] + 1, both);
        }
        self
    }

    /// Removes a segment with data.
    pub fn with_a_gap(&mut self, random: &mut Random) -> &mut Self {
        let places = self.with_data();
        if let Some(&place) = places.get(random.below(places.len())) {
            self.pieces.remove(place);
        }
        self
    }
}
