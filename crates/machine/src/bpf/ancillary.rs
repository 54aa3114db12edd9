//! Linux's extensions: values besides packet bytes that a BPF program can load.
//!
//! They are absolute loads from "offsets" just below zero. A frame has the values that its source knew: length,
//! protocol, direction, interface, and a VLAN tag stored outside the bytes; a capture file has few of these.
//! Unknown values are 0: mark, queue, hash, processor. `DEPARTURE:` in Linux these have values; here the frame is
//! the only input.

use fyke_frame::walk::{self, Layer, Protocol};
use fyke_frame::{Direction, Frame};

/// First offset of the extensions: −0x1000.
pub const BASE: u32 = 0xffff_f000;
/// Loads from this offset up to [`NETWORK`] count from the link header: −0x200000.
pub const LINK: u32 = 0xffe0_0000;
/// Loads from this offset up to [`BASE`] count from the network header: −0x100000.
pub const NETWORK: u32 = 0xfff0_0000;

/// A value that can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Extension {
    /// EtherType.
    Protocol = 0,
    /// Direction of the frame.
    PacketType = 4,
    /// Index of the interface.
    InterfaceIndex = 8,
    /// Searches for the netlink attribute of type X from offset A.
    NetlinkAttribute = 12,
    /// The same, inside the attribute at A.
    NestedNetlinkAttribute = 16,
    /// Mark; always 0 here.
    Mark = 20,
    /// Queue; always 0 here.
    Queue = 24,
    /// Hardware type of the interface; always that of Ethernet here.
    HardwareType = 28,
    /// Receive hash; always 0 here.
    ReceiveHash = 32,
    /// Processor; always 0 here.
    Processor = 36,
    /// A xor X.
    XorX = 40,
    /// VLAN tag stored outside the bytes; 0 if there is none.
    VlanTag = 44,
    /// 1 if there is such a tag.
    VlanTagPresent = 48,
    /// Offset of the payload after the transport header.
    PayloadOffset = 52,
    /// A random number.
    Random = 56,
    /// EtherType of the VLAN tag stored outside: 0x8100 if there is one, since frames do not contain it.
    VlanProtocol = 60,
}

/// Names: the first name of a number is printed, all are accepted (bpf_asm's and libpcap's).
const NAMES: &[(&str, Extension)] = &[
    ("proto", Extension::Protocol),
    ("type", Extension::PacketType),
    ("ifidx", Extension::InterfaceIndex),
    ("nla", Extension::NetlinkAttribute),
    ("nlan", Extension::NestedNetlinkAttribute),
    ("mark", Extension::Mark),
    ("queue", Extension::Queue),
    ("hatype", Extension::HardwareType),
    ("rxhash", Extension::ReceiveHash),
    ("cpu", Extension::Processor),
    ("xor_x", Extension::XorX),
    ("vlan_tci", Extension::VlanTag),
    ("vlan_avail", Extension::VlanTagPresent),
    ("vlan_pr", Extension::VlanTagPresent),
    ("vlanp", Extension::VlanTagPresent),
    ("poff", Extension::PayloadOffset),
    ("rand", Extension::Random),
    ("random", Extension::Random),
    ("vlan_tpid", Extension::VlanProtocol),
];

impl Extension {
    /// Finds an extension by its name in an assembler.
    pub fn by_name(name: &str) -> Option<Extension> {
        let lower = name.to_ascii_lowercase();
        NAMES.iter().find(|(known, _)| *known == lower).map(|&(_, extension)| extension)
    }

    /// Finds an extension by the offset of the load.
    pub fn by_offset(offset: u32) -> Option<Extension> {
        let number = offset.checked_sub(BASE)?;
        NAMES.iter().map(|&(_, extension)| extension).find(|&known| known as u32 == number)
    }

    /// Offset that selects it.
    pub const fn offset(self) -> u32 {
        BASE + self as u32
    }

    /// Its name in bpf_asm.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Its name in libpcap's listings.
    pub fn listing_name(self) -> &'static str {
        match self {
            Extension::VlanTagPresent => "vlanp",
            Extension::Random => "random",
            other => other.name(),
        }
    }
}

/// Returns the value of an extension; `None` ends the program. `random` is the state of the machine's generator.
pub fn load(what: Extension, frame: &Frame<'_>, a: u32, x: u32, random: &mut u64) -> Option<u32> {
    match what {
        Extension::Protocol => Some(protocol(frame)),
        Extension::PacketType => Some(packet_type(frame.meta.direction)),
        Extension::InterfaceIndex => Some(frame.meta.ifindex),
        Extension::NetlinkAttribute => Some(attribute(frame.data, a, x)),
        Extension::NestedNetlinkAttribute => Some(nested_attribute(frame.data, a, x)),
        Extension::HardwareType => Some(1),
        Extension::XorX => Some(a ^ x),
        Extension::PayloadOffset => Some(payload_offset(frame)),
        Extension::Random => {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some((*random >> 32) as u32)
        }
        Extension::VlanTag => Some(frame.meta.vlan.map_or(0, u32::from)),
        Extension::VlanTagPresent => Some(frame.meta.vlan.is_some().into()),
        Extension::VlanProtocol => Some(if frame.meta.vlan.is_some() { 0x8100 } else { 0 }),
        Extension::Mark | Extension::Queue | Extension::ReceiveHash | Extension::Processor => {
            Some(0)
        }
    }
}

/// Converts a load below zero into an offset in the packet; `None` if it is not one.
pub fn below_zero(frame: &Frame<'_>, offset: u32) -> Option<usize> {
    if offset >= NETWORK {
        let headers = walk::walk(frame);
        let is_link = |layer: &&Layer| {
            matches!(
                layer.protocol,
                Protocol::Ethernet | Protocol::Link | Protocol::Llc | Protocol::Vlan
            )
        };
        let network = headers.iter().find(|layer| !is_link(layer))?;
        (network.offset as usize).checked_add((offset - NETWORK) as usize)
    } else {
        offset.checked_sub(LINK).map(|offset| offset as usize)
    }
}

fn packet_type(direction: Direction) -> u32 {
    match direction {
        Direction::Unknown | Direction::Inbound => 0,
        Direction::Broadcast => 1,
        Direction::Multicast => 2,
        Direction::OtherHost => 3,
        Direction::Outbound => 4,
    }
}

fn protocol(frame: &Frame<'_>) -> u32 {
    let headers = walk::walk(frame);
    if let Some(ethernet) = headers.level(0).and_then(|scope| scope.ethernet()) {
        return u32::from(ethernet.ethertype());
    }
    match headers.iter().find(|layer| layer.protocol.is_ip()).map(|layer| layer.protocol) {
        Some(Protocol::Ipv4) => 0x0800,
        Some(Protocol::Ipv6) => 0x86dd,
        _ => 0,
    }
}

fn payload_offset(frame: &Frame<'_>) -> u32 {
    let headers = walk::walk(frame);
    headers.innermost().map_or(0, |layer| layer.header_end() as u32)
}

fn read16(data: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; 2] = data.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(usize::from(u16::from_ne_bytes(bytes)))
}

/// Returns the offset of the first attribute of type `kind` from offset `from`; 0 if there is none. Attributes are
/// in the byte order of the machine that wrote them; each step advances by at least four bytes.
fn attribute(data: &[u8], from: u32, kind: u32) -> u32 {
    let mut at = from as usize;
    while let (Some(len), Some(found)) = (read16(data, at), read16(data, at + 2)) {
        let fits = len >= 4 && at.checked_add(len).is_some_and(|end| end <= data.len());
        if !fits {
            return 0;
        }
        if found & 0x3fff == kind as usize {
            return at as u32;
        }
        at += len.next_multiple_of(4);
    }
    0
}

fn nested_attribute(data: &[u8], from: u32, kind: u32) -> u32 {
    let at = from as usize;
    match read16(data, at) {
        Some(len) if len >= 4 && len <= data.len().saturating_sub(at) => {
            attribute(&data[..at + len], from.saturating_add(4), kind)
        }
        _ => 0,
    }
}
