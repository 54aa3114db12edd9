//! The frames of a generator: built once, in one block of memory, and sent in turn.
//!
//! Frame *n* belongs to flow *n* modulo the number of flows. If sizes are drawn, the sequence is long enough to have
//! each of them often, and is then repeated. Memory: the frames themselves, at most [`MAX_BYTES`].

use crate::random::Random;
use etherparse::{PacketBuilder, VlanId};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// Shortest frame: the shortest of Ethernet, without its check sequence.
pub const MIN_SIZE: u16 = 60;
/// Longest frame: a jumbo frame.
pub const MAX_SIZE: u16 = 9_216;
/// Highest number of flows.
pub const MAX_FLOWS: u32 = 65_536;
/// Most memory of all frames, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// Fewest frames of a sequence with drawn sizes.
const LEAST_DRAWN: usize = 1_024;
/// Sizes of a simple Internet mix, seven of the first to four of the second to one of the last.
const IMIX: [u16; 12] = [60, 60, 60, 590, 60, 590, 60, 1_514, 60, 590, 60, 590];
/// Source and destination address, locally administered; no device has the destination.
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Destination port: discard.
const PORT: u16 = 9;
const FILL: u8 = b'u';

/// Sizes of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All frames have this size.
    Fixed(u16),
    /// Sizes are drawn evenly from these, both included.
    Range(u16, u16),
    /// 60, 590 and 1,514 bytes in the ratio 7 to 4 to 1.
    Imix,
}

/// Text that names no sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a size of {MIN_SIZE} to {MAX_SIZE} bytes such as 512, two of them such as 64-1520, or imix"
)]
pub struct SizesError;

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Sizes, SizesError> {
        let size = |text: &str| {
            let size = text.parse().ok().filter(|size| (MIN_SIZE..=MAX_SIZE).contains(size));
            size.ok_or(SizesError)
        };
        match text.split_once('-') {
            _ if text == "imix" => Ok(Sizes::Imix),
            None => size(text).map(Sizes::Fixed),
            Some((low, high)) => match (size(low)?, size(high)?) {
                (low, high) if low <= high => Ok(Sizes::Range(low, high)),
                _ => Err(SizesError),
            },
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(f, "{size}"),
            Sizes::Range(low, high) => write!(f, "{low}-{high}"),
            Sizes::Imix => f.write_str("imix"),
        }
    }
}

/// Protocol of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// UDP datagrams.
    #[default]
    Udp,
    /// TCP segments with the flag ACK, of no connection.
    Tcp,
    /// Flows of UDP and of TCP in turn.
    Both,
}

/// Contents of the frames.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Sizes, with the Ethernet header and a VLAN tag, without the check sequence.
    pub sizes: Sizes,
    /// Number of flows, 1 to [`MAX_FLOWS`]; each has addresses of its own in 198.18.0.0/15.
    pub flows: u32,
    /// The protocol.
    pub protocol: Protocol,
    /// VLAN of all frames, 0 to 4,095.
    pub vlan: Option<u16>,
    /// Destination address of all frames; that of no device by default.
    pub mac: Option<[u8; 6]>,
    /// Seed of the drawn sizes.
    pub seed: u64,
}

impl Default for Contents {
    fn default() -> Contents {
        Contents {
            sizes: Sizes::Fixed(MIN_SIZE),
            flows: 64,
            protocol: Protocol::Udp,
            vlan: None,
            mac: None,
            seed: 1,
        }
    }
}

impl Contents {
    /// Size of the longest frame.
    pub fn longest(&self) -> u16 {
        match self.sizes {
            Sizes::Fixed(size) | Sizes::Range(_, size) => size,
            Sizes::Imix => 1_514,
        }
    }
}

/// Contents that cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// The number of flows is 0 or too high.
    #[error("{0} flows: expected 1 to {MAX_FLOWS}")]
    Flows(u32),
    /// The VLAN does not exist.
    #[error("VLAN {0}: expected 0 to 4095")]
    Vlan(u16),
    /// The frames need too much memory.
    #[error(
        "the frames of {flows} flows need more than {MAX_BYTES} bytes: use fewer flows, or shorter frames"
    )]
    Memory {
        /// Number of flows.
        flows: u32,
    },
}

/// Frames in the order in which they are sent; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames {
    bytes: Vec<u8>,
    /// End of each frame in `bytes`.
    ends: Vec<usize>,
}

impl Frames {
    /// Builds the frames of these contents.
    ///
    /// # Errors
    /// [`FramesError`].
    pub fn build(contents: &Contents) -> Result<Frames, FramesError> {
        let flows = contents.flows;
        if !(1..=MAX_FLOWS).contains(&flows) {
            return Err(FramesError::Flows(flows));
        }
        let vlan = contents.vlan.map(|id| VlanId::try_new(id).map_err(|_| FramesError::Vlan(id)));
        let vlan = vlan.transpose()?;
        let mut random = Random::new(contents.seed);
        let mut frames = Frames { bytes: Vec::new(), ends: Vec::new() };
        let cycle = match contents.sizes {
            Sizes::Fixed(_) => flows as usize,
            _ => LEAST_DRAWN.next_multiple_of(flows as usize),
        };
        for number in 0..cycle {
            let size = match contents.sizes {
                Sizes::Fixed(size) => size,
                Sizes::Range(low, high) => low + random.below(usize::from(high - low) + 1) as u16,
                Sizes::Imix => IMIX[random.below(IMIX.len())],
            };
            let flow = (number % flows as usize) as u32;
            let is_tcp = match contents.protocol {
                Protocol::Udp => false,
                Protocol::Tcp => true,
                Protocol::Both => !flow.is_multiple_of(2),
            };
            let ends = Ends { mac: contents.mac, ..Ends::of_flow(flow) };
            frames.push(&frame(&ends, is_tcp, vlan, size));
            if frames.bytes.len() > MAX_BYTES {
                return Err(FramesError::Memory { flows });
            }
        }
        Ok(frames)
    }

    /// A sequence of this frame only.
    pub fn of_one(frame: &[u8]) -> Frames {
        Frames { bytes: frame.to_vec(), ends: vec![frame.len()] }
    }

    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Number of frames after which the sequence is repeated.
    pub fn cycle(&self) -> usize {
        self.ends.len()
    }

    /// Frame number `number` of the endless sequence.
    pub fn frame(&self, number: u64) -> &[u8] {
        let place = (number % self.ends.len() as u64) as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }
}

/// Both ends of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Sender.
    pub source: SocketAddrV4,
    /// Receiver.
    pub destination: SocketAddrV4,
    /// Destination address on the link; that of no device by default.
    pub mac: Option<[u8; 6]>,
}

impl Ends {
    /// Ends of a flow by its number, in the addresses for benchmarks (RFC 2544).
    fn of_flow(flow: u32) -> Ends {
        let [_, _, high, low] = flow.to_be_bytes();
        let port = 1_024 + (flow % 60_000) as u16;
        Ends {
            source: SocketAddrV4::new(Ipv4Addr::new(198, 18, high, low), port),
            destination: SocketAddrV4::new(Ipv4Addr::new(198, 19, high, low), PORT),
            mac: None,
        }
    }
}

/// Builds a frame with correct checksums; its size is at least [`MIN_SIZE`].
pub fn frame(ends: &Ends, is_tcp: bool, vlan: Option<VlanId>, size: u16) -> Vec<u8> {
    let (source, destination) = (ends.source, ends.destination);
    let link = PacketBuilder::ethernet2(MAC[0], ends.mac.unwrap_or(MAC[1]));
    let [from, to] = [source, destination].map(|end| end.ip().octets());
    let ip = match vlan {
        Some(id) => link.single_vlan(id).ipv4(from, to, 64),
        None => link.ipv4(from, to, 64),
    };
    let size = usize::from(size.max(MIN_SIZE));
    let tag = if vlan.is_some() { 4 } else { 0 };
    let payload = vec![FILL; size - tag - if is_tcp { 54 } else { 42 }];
    let mut bytes = Vec::with_capacity(size);
    // A write to memory cannot fail, and payloads here are far below the maximum of an IP packet.
    let _ = if is_tcp {
        ip.tcp(source.port(), destination.port(), 1, 64_240).ack(1).write(&mut bytes, &payload)
    } else {
        ip.udp(source.port(), destination.port()).write(&mut bytes, &payload)
    };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use std::collections::HashSet;

    fn contents(sizes: &str) -> Contents {
        Contents { sizes: sizes.parse().unwrap(), ..Contents::default() }
    }

    #[test]
    fn sizes_are_read_and_wrong_ones_are_refused() {
        for text in ["60", "9216", "64-1520", "imix"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        for wrong in ["", "59", "9217", "1520-64", "64-", "-64", "64-1520-2000", "IMIX", "1e3"] {
            assert_eq!(wrong.parse::<Sizes>(), Err(SizesError), "{wrong:?}");
        }
    }

    #[test]
    fn frames_have_their_sizes_flows_and_checksums() {
        for (vlan, protocol) in [(None, Protocol::Udp), (Some(7), Protocol::Tcp)] {
            let wanted = Contents { flows: 300, vlan, protocol, ..contents("64-1520") };
            let frames = Frames::build(&wanted).unwrap();
            assert_eq!(frames.cycle(), 1_200);
            let mut sizes = HashSet::new();
            let mut sources = HashSet::new();
            for number in 0..1_200 {
                let bytes = frames.frame(number);
                sizes.insert(bytes.len());
                assert!((64..=1_520).contains(&bytes.len()));
                let packet = SlicedPacket::from_ethernet(bytes).unwrap();
                assert_eq!(packet.vlan_ids().first().map(|id| id.value()), vlan);
                let Some(NetSlice::Ipv4(ip)) = packet.net else { panic!("no IPv4") };
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                sources.insert(header.source);
                let sum = match packet.transport.unwrap() {
                    TransportSlice::Udp(udp) => {
                        let sum = udp.to_header().calc_checksum_ipv4(&header, udp.payload());
                        (udp.checksum(), sum.unwrap())
                    }
                    TransportSlice::Tcp(tcp) => {
                        let sum = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload());
                        (tcp.checksum(), sum.unwrap())
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(sum.0, sum.1);
            }
            assert_eq!(sources.len(), 300);
            assert!(sizes.len() > 400, "{}", sizes.len());
            assert_eq!(frames.frame(1_200), frames.frame(0));
        }
    }

    #[test]
    fn the_mix_has_its_ratio_and_a_seed_gives_the_same_frames() {
        let frames = Frames::build(&Contents { flows: 12_000, ..contents("imix") }).unwrap();
        let of =
            |size: usize| (0..12_000).filter(|&number| frames.frame(number).len() == size).count();
        assert!(of(60) > 6_700 && of(590) > 3_700 && of(1_514) > 850);
        assert_eq!(of(60) + of(590) + of(1_514), 12_000);
        let again = Frames::build(&Contents { flows: 12_000, ..contents("imix") }).unwrap();
        assert_eq!(again, frames);
        let other = Contents { flows: 12_000, seed: 2, ..contents("imix") };
        assert_ne!(Frames::build(&other).unwrap(), frames);
    }

    #[test]
    fn contents_that_cannot_be_are_refused() {
        let built = |flows, vlan, sizes| {
            Frames::build(&Contents { flows, vlan, ..contents(sizes) }).unwrap_err()
        };
        assert_eq!(built(0, None, "64"), FramesError::Flows(0));
        assert_eq!(built(MAX_FLOWS + 1, None, "64"), FramesError::Flows(MAX_FLOWS + 1));
        assert_eq!(built(1, Some(4_096), "64"), FramesError::Vlan(4_096));
        assert_eq!(built(MAX_FLOWS, None, "9216"), FramesError::Memory { flows: MAX_FLOWS });
    }
}
