//! Tally of the frames seen, per TCP connection: the recording that captures are compared with.
//!
//! A frame is stored as 64 bits of hash over its first bytes (with IP identification, sequence and acknowledgement
//! numbers). So a comparison shows that a capture has the same frames, each once, and not only the same number. The
//! order is not compared: two sockets may receive frames that two processors handle at the same time in different
//! order. Memory: 8 bytes per frame, at most [`MOST_FRAMES`]; further frames are only counted, and the tally
//! reports their number.

use fyke_frame::Frame;
use fyke_frame::walk::walk;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Maximum number of frames stored individually.
const MOST_FRAMES: usize = 4_000_000;
/// Number of bytes of a frame that identify it; IPv6 and TCP options fit.
const IDENTIFYING_BYTES: usize = 128;

/// The two ends of a TCP connection, in an order independent of the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ends(SocketAddr, SocketAddr);

impl Ends {
    /// Creates the pair of these ends.
    pub fn new(one: SocketAddr, other: SocketAddr) -> Ends {
        if one <= other { Ends(one, other) } else { Ends(other, one) }
    }

    /// Returns true if one end has this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.0.port() == port || self.1.port() == port
    }
}

/// Frames of one connection.
#[derive(Debug, Default)]
pub struct Flow {
    /// Number of frames.
    pub frame_count: u64,
    /// Hashes of the frames, in order.
    identities: Vec<u64>,
}

/// Frames by connection.
#[derive(Debug, Default)]
pub struct Tally {
    /// All frames that were counted, TCP or not.
    pub frame_count: u64,
    flows: HashMap<Ends, Flow>,
    remembered: usize,
    forgotten: u64,
}

/// A capture's frames of one connection, compared with the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Comparison {
    /// Frames on the wire.
    pub on_wire: u64,
    /// Frames captured.
    pub captured: u64,
    /// Frames on the wire that were not captured.
    pub missed: u64,
    /// Frames missed before the first captured one; all of them if none was captured.
    pub missed_before_first: u64,
    /// Frames captured that were not on the wire, and duplicates.
    pub foreign: u64,
}

impl Comparison {
    /// Returns true if the capture has exactly the frames of the wire.
    pub fn is_whole(&self) -> bool {
        self.on_wire > 0 && self.missed == 0 && self.foreign == 0
    }

    /// Adds the numbers of another connection.
    pub fn add(&mut self, other: &Comparison) {
        self.on_wire += other.on_wire;
        self.captured += other.captured;
        self.missed += other.missed;
        self.missed_before_first += other.missed_before_first;
        self.foreign += other.foreign;
    }
}

impl Tally {
    /// Counts a frame; returns its connection if it is TCP.
    pub fn count(&mut self, frame: &Frame) -> Option<Ends> {
        self.frame_count += 1;
        let ends = ends_of(frame)?;
        let flow = self.flows.entry(ends).or_default();
        flow.frame_count += 1;
        if self.remembered < MOST_FRAMES {
            self.remembered += 1;
            flow.identities.push(identity(frame.data));
        } else {
            self.forgotten += 1;
        }
        Some(ends)
    }

    /// Connections in which one end has this port.
    pub fn with_port(&self, port: u16) -> impl Iterator<Item = Ends> + '_ {
        self.flows.keys().copied().filter(move |ends| ends.has_port(port))
    }

    /// Number of frames that were only counted, because the maximum of stored ones was reached.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Compares a capture's frames of a connection with this recording.
    pub fn compare(&self, ends: Ends, capture: &Tally) -> Comparison {
        let nothing = Flow::default();
        let wire = self.flows.get(&ends).unwrap_or(&nothing);
        let captured = capture.flows.get(&ends).unwrap_or(&nothing);
        let mut unmatched: HashMap<u64, u64> = HashMap::new();
        for identity in &captured.identities {
            *unmatched.entry(*identity).or_default() += 1;
        }
        let (mut missed, mut missed_before_first) = (0, None);
        for identity in &wire.identities {
            match unmatched.get_mut(identity).filter(|count| **count > 0) {
                Some(count) => {
                    *count -= 1;
                    missed_before_first.get_or_insert(missed);
                }
                None => missed += 1,
            }
        }
        Comparison {
            on_wire: wire.frame_count,
            captured: captured.frame_count,
            missed,
            missed_before_first: missed_before_first.unwrap_or(missed),
            foreign: unmatched.values().sum(),
        }
    }
}

fn ends_of(frame: &Frame) -> Option<Ends> {
    let layers = walk(frame);
    let (ip, tcp) = (layers.innermost_ip()?, layers.tcp()?);
    let source = SocketAddr::new(ip.source(), tcp.source_port());
    Some(Ends::new(source, SocketAddr::new(ip.destination(), tcp.destination_port())))
}

/// Computes FNV-1a. It need not resist attacks: the traffic is generated here.
fn identity(data: &[u8]) -> u64 {
    data.iter().take(IDENTIFYING_BYTES).fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::LinkType;

    fn tcp(sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(5_000, 6_000, sequence, 100)
            .write(&mut bytes, b"x")
            .unwrap();
        bytes
    }

    fn tally(sequences: &[u32]) -> Tally {
        let mut tally = Tally::default();
        for &sequence in sequences {
            tally.count(&Frame::new(LinkType::EN10MB, &tcp(sequence)));
        }
        tally
    }

    #[test]
    fn missing_double_and_foreign_frames_are_told_apart() {
        let ends = Ends::new(([10, 0, 0, 2], 6_000).into(), ([10, 0, 0, 1], 5_000).into());
        let wire = tally(&[1, 2, 3, 4]);
        let compare = |sequences: &[u32]| wire.compare(ends, &tally(sequences));
        assert!(compare(&[1, 2, 3, 4]).is_whole());
        assert!(compare(&[2, 1, 3, 4]).is_whole());
        let late = compare(&[3]);
        assert_eq!((late.missed, late.missed_before_first, late.foreign), (3, 2, 0));
        assert_eq!(compare(&[]).missed_before_first, 4);
        let double = compare(&[1, 2, 2, 3, 4]);
        assert_eq!((double.missed, double.foreign, double.is_whole()), (0, 1, false));
        let foreign = compare(&[1, 2, 3, 9]);
        assert_eq!((foreign.missed, foreign.foreign), (1, 1));
    }
}
