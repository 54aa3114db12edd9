//! Fields of a frame that rules can name: source and destination of the IP packet at each level of encapsulation, and
//! the VLANs.

use super::space::{IpKind, Words};
use fyke_frame::walk::{Layers, MAX_LEVELS, Scope};
use fyke_frame::{Frame, Protocol, Stop, walk};

/// Limit on VLAN tags that are looked up; a frame with more tags passes undecided.
const MAX_TAGS: usize = 8;

/// Ports of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortsSeen {
    /// The ports are known.
    Known { source: u16, destination: u16 },
    /// The protocol has no ports.
    None,
    /// The packet may have ports, but not in this frame: a later fragment, or truncated.
    Hidden,
}

/// One IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub kind: IpKind,
    pub source: Words,
    pub destination: Words,
    /// `None` if it is truncated.
    pub protocol: Option<u8>,
    pub ports: PortsSeen,
}

/// All packets of a frame.
#[derive(Debug)]
pub struct Ends {
    packets: [Option<Packet>; MAX_LEVELS as usize],
    vlans: [u16; MAX_TAGS],
    vlan_count: usize,
    /// True if a header that could match a rule was not read.
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

    /// Returns the IP packets, outermost first.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().flatten()
    }

    /// Returns the VLANs.
    pub fn vlans(&self) -> &[u16] {
        &self.vlans[..self.vlan_count]
    }
}

/// True if the walk ended before it read all that rules can name. Truncated TCP options do not matter; after any other
/// header there could be another packet.
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
        // A UDP header that may carry a tunnel.
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
