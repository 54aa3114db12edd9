//! What a frame has that rules can name: per level of its encapsulation the two ends of an IP packet, and its VLANs.

use super::space::{IpKind, Words};
use fyke_frame::walk::{Layers, MAX_LEVELS, Scope};
use fyke_frame::{Frame, LinkType, Protocol, Stop, walk};

/// Most VLAN tags that are looked up; a frame with more passes undecided.
const MAX_TAGS: usize = 8;

/// The ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortsSeen {
    /// There.
    Known { source: u16, destination: u16 },
    /// The protocol has none.
    None,
    /// There may be some, not in this frame: a later fragment, or cut off.
    Hidden,
}

/// One IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub kind: IpKind,
    pub source: Words,
    pub destination: Words,
    /// `None` when it is cut off.
    pub protocol: Option<u8>,
    pub ports: PortsSeen,
}

/// All of a frame.
#[derive(Debug)]
pub struct Ends {
    packets: [Option<Packet>; MAX_LEVELS as usize],
    vlans: [u16; MAX_TAGS],
    vlan_count: usize,
    /// A header that could have mattered was not read.
    pub incomplete: bool,
}

impl Ends {
    /// Reads a frame.
    pub fn of(frame: &Frame<'_>) -> Self {
        let layers = walk(frame);
        let mut ends = Ends {
            packets: [None; MAX_LEVELS as usize],
            vlans: [0; MAX_TAGS],
            vlan_count: 0,
            incomplete: is_incomplete(&layers),
        };
        let deepest = layers.innermost().map_or(0, |layer| layer.level);
        for (level, slot) in (0..=deepest).zip(&mut ends.packets) {
            let Some(scope) = layers.level(level) else { continue };
            *slot = packet(&layers, &scope, level == deepest);
            for tag in scope.vlan().into_iter().flat_map(|stack| stack.tags()) {
                match ends.vlans.get_mut(ends.vlan_count) {
                    Some(vlan) => {
                        *vlan = tag.id;
                        ends.vlan_count += 1;
                    }
                    None => ends.incomplete = true,
                }
            }
        }
        ends
    }

    /// Its IP packets, outermost first.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().flatten()
    }

    /// Its VLANs.
    pub fn vlans(&self) -> &[u16] {
        &self.vlans[..self.vlan_count]
    }
}

/// Destination ports of UDP that may carry a tunnel: those that the walk follows.
const TUNNELS: std::ops::RangeInclusive<u16> = 2152..=8472;

/// The packet of a frame that is nothing but Ethernet, IP without options or fragments, and TCP, or UDP that is no
/// tunnel; what [`Ends::of`] would find, and nothing else. `None` for all other frames.
#[inline]
pub fn plain(frame: &Frame<'_>) -> Option<Packet> {
    let data = frame.data;
    if frame.link != LinkType::EN10MB {
        return None;
    }
    let half = |at: usize| Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
    let (kind, protocol, at) = match (half(12)?, *data.get(14)?) {
        // Neither more fragments nor an offset, and room for a header of a transport.
        (0x0800, 0x45) if half(20)? & 0x3fff == 0 && half(16)? >= 40 => {
            (IpKind::V4, *data.get(23)?, 34)
        }
        (0x86dd, 0x60..=0x6f) if half(18)? >= 20 => (IpKind::V6, *data.get(20)?, 54),
        _ => return None,
    };
    let (source, destination) = (half(at)?, half(at + 2)?);
    match protocol {
        6 if data.len() >= at + 20 => {}
        17 if data.len() >= at + 8 && !TUNNELS.contains(&destination) && half(at + 4)? >= 8 => {}
        _ => return None,
    }
    let words = |at: usize| {
        let mut words = [0; 4];
        let from = if kind == IpKind::V4 { 3 } else { 0 };
        for (word, bytes) in words[from..].iter_mut().zip(data[at..].chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        words
    };
    let (near, far) = if kind == IpKind::V4 { (26, 30) } else { (22, 38) };
    Some(Packet {
        kind,
        source: words(near),
        destination: words(far),
        protocol: Some(protocol),
        ports: PortsSeen::Known { source, destination },
    })
}

/// Whether the walk ended before everything that rules can name was seen. TCP options that are cut off are nobody's
/// loss; below anything else there could have been another packet.
fn is_incomplete(layers: &Layers<'_>) -> bool {
    match layers.stop() {
        Stop::TooDeep => true,
        Stop::Truncated | Stop::LengthLies | Stop::WrongVersion(_) => {
            layers.innermost().is_none_or(|layer| layer.protocol != Protocol::Tcp)
        }
        _ => false,
    }
}

fn packet(layers: &Layers<'_>, scope: &Scope<'_, '_>, deepest: bool) -> Option<Packet> {
    let ip = scope.ip()?;
    let (kind, source) = IpKind::of(ip.source());
    let destination = IpKind::of(ip.destination()).1;
    let later_fragment = scope.fragment().is_some_and(|fragment| !fragment.is_first());
    let cut = deepest && matches!(layers.stop(), Stop::Truncated | Stop::LengthLies);
    let transport = scope.layers().iter().find(|layer| layer.protocol.has_ports());
    let ports = match (scope.ports(), transport) {
        (Some(ports), _) => {
            PortsSeen::Known { source: ports.source, destination: ports.destination }
        }
        // A UDP header that carries a tunnel.
        (None, Some(layer)) => tunnel_ports(layers.data(), layer.header_range()),
        (None, None) if later_fragment || cut => PortsSeen::Hidden,
        (None, None) => PortsSeen::None,
    };
    let known = scope.last().is_some_and(|last| last.protocol != Protocol::Ipv6 || !cut);
    Some(Packet {
        kind,
        source,
        destination,
        protocol: scope.ip_protocol().filter(|_| known),
        ports,
    })
}

fn tunnel_ports(data: &[u8], header: std::ops::Range<usize>) -> PortsSeen {
    match data.get(header) {
        Some(&[a, b, c, d, ..]) => PortsSeen::Known {
            source: u16::from_be_bytes([a, b]),
            destination: u16::from_be_bytes([c, d]),
        },
        _ => PortsSeen::Hidden,
    }
}
