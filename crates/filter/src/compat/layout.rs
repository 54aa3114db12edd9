//! Libpcap's offsets of the fields of each link type.
//!
//! | column | libpcap's name |
//! |---|---|
//! | kind | how the next protocol is encoded |
//! | link_type | `off_linktype`: the field that contains it |
//! | payload | `off_linkpl`: the end of the link header |
//! | network | `off_nl`: from there to the network header |
//! | without_snap | `off_nl_nosnap`: the same if there is an LLC header without SNAP |
//!
//! Places that a link type does not have are [`NONE`]. Source: facts of libpcap 1.10.3, `init_linktype`.

use fyke_frame::LinkType;

/// The link type has no such place.
pub(super) const NONE: u32 = u32::MAX;

/// Encoding of the next protocol in a link header, and other special properties of the link type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ethernet,
    /// Ethernet after a pseudo-header.
    NetAnalyzer,
    /// Linux cooked, version 1.
    Cooked,
    /// Linux cooked, version 2: an EtherType, and an interface index.
    Cooked2,
    /// An EtherType.
    EtherType,
    /// The version nibble.
    Version,
    /// SLIP: the version nibble of the bytes after its header, and a direction.
    Slip,
    /// Always the protocol with this EtherType.
    Always(u16),
    /// Cisco HDLC.
    Hdlc,
    /// 802.11, after a radio header or without.
    Wlan(Radio),
    Fddi,
    TokenRing,
    /// RFC 1483.
    Atm,
    /// Linux Classical IP.
    AtmClip,
    FibreChannel,
    SunAtm,
    Ppp,
    /// With a direction.
    PppPppd,
    /// The other framings of PPP.
    PppOther,
    PppBsdos,
    /// An address family in network byte order.
    Family,
    /// An address family in the byte order of the machine that wrote the file.
    HostFamily,
    PacketLog,
    Arcnet,
    FrameRelay,
    Juniper,
    Bacnet,
    Ipnet,
    /// Signalling system 7, with the offset of its first octet.
    Ss7(u32),
    /// No fields: only bytes and lengths.
    Opaque,
}

/// Header before an 802.11 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Radio {
    None,
    Radiotap,
    Avs,
    Prism,
    PerPacket,
}

/// The layout of one link type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) kind: Kind,
    /// Constant part of the start of the link header.
    pub(super) link_header: u32,
    pub(super) link_type: u32,
    pub(super) payload: u32,
    pub(super) network: u32,
    pub(super) without_snap: u32,
}

/// Numbers below this are exceptions; from here on each number has one meaning.
const FIRST_ASSIGNED: u16 = 104;
/// The last number that libpcap 1.10.3 knows.
const LAST_ASSIGNED: u16 = 289;

/// The layout of a link type; `None` = libpcap accepts no text for it.
pub(super) fn layout(link: LinkType) -> Option<Layout> {
    let link = link.description().map_or(link, |known| known.numbers[0]);
    let row = |kind, link_type, payload, network, without_snap| {
        Some(Layout { kind, link_header: 0, link_type, payload, network, without_snap })
    };
    match link.0 {
        0 => row(Kind::HostFamily, 0, 4, 0, 0),
        1 => row(Kind::Ethernet, 12, 14, 0, 3),
        6 => row(Kind::TokenRing, 14, 14, 8, 3),
        7 => row(Kind::Arcnet, 2, 6, 0, 0),
        8 => row(Kind::Slip, NONE, 16, 0, 0),
        9 => row(Kind::Ppp, 2, 4, 0, 0),
        10 => row(Kind::Fddi, 13, 13, 8, 3),
        50 => row(Kind::PppOther, 2, 4, 0, 0),
        51 => row(Kind::PppOther, 6, 8, 0, 0),
        99 => row(Kind::EtherType, 6, 44, 0, 0),
        100 => row(Kind::Atm, 0, 0, 8, 3),
        101 => row(Kind::Version, NONE, 0, 0, 0),
        102 => row(Kind::Version, NONE, 24, 0, 0),
        103 => row(Kind::PppBsdos, 5, 24, 0, 0),
        104 => row(Kind::Hdlc, 2, 4, 0, 0),
        105 => row(Kind::Wlan(Radio::None), 24, 0, 8, 3),
        106 => row(Kind::AtmClip, 0, 0, 8, 3),
        107 => row(Kind::FrameRelay, NONE, 0, 0, 0),
        108 => row(Kind::Family, 0, 4, 0, 0),
        109 => row(Kind::HostFamily, 0, 12, 0, 0),
        113 => row(Kind::Cooked, 14, 16, 0, 0),
        114 => row(Kind::Always(0x809b), NONE, 0, 0, 0),
        117 => row(Kind::PacketLog, 0, 0, 0, 0),
        119 => row(Kind::Wlan(Radio::Prism), 24, 0, 8, 3),
        122 => row(Kind::FibreChannel, 16, 16, 8, 3),
        123 => row(Kind::SunAtm, 4, 4, 8, 3),
        127 => row(Kind::Wlan(Radio::Radiotap), 24, 0, 8, 3),
        129 => row(Kind::Arcnet, 4, 8, 0, 0),
        130 | 131 | 134 | 179..=181 => row(Kind::Juniper, 4, 4, 0, NONE),
        132 => row(Kind::Juniper, 6, NONE, NONE, NONE),
        133 => row(Kind::Juniper, 6, 12, 0, NONE),
        135 => row(Kind::Juniper, 8, 8, 0, 10),
        136 => row(Kind::Juniper, 12, NONE, NONE, NONE),
        137 => row(Kind::Juniper, 4, 4, 0, 10),
        138 => row(Kind::EtherType, 16, 18, 0, 0),
        139 => row(Kind::Ss7(6), NONE, NONE, NONE, NONE),
        140 => row(Kind::Ss7(2), NONE, NONE, NONE, NONE),
        163 => row(Kind::Wlan(Radio::Avs), 24, 0, 8, 3),
        164 => row(Kind::Juniper, 12, 12, 0, NONE),
        165 => row(Kind::Bacnet, NONE, NONE, NONE, NONE),
        166 => row(Kind::PppPppd, 2, 4, 0, 0),
        167 | 178 => row(Kind::Juniper, 16, 14, 18, 21),
        168 => row(Kind::Juniper, 4, 6, 0, NONE),
        182 => row(Kind::Opaque, NONE, 0, 4, 0),
        183 | 200 => row(Kind::Juniper, 18, NONE, NONE, NONE),
        192 => row(Kind::Wlan(Radio::PerPacket), 24, 0, 8, 3),
        194 | 232..=234 | 238 => row(Kind::Juniper, 8, NONE, NONE, NONE),
        197 => row(Kind::Ss7(22), NONE, NONE, NONE, NONE),
        226 => row(Kind::Ipnet, 1, 24, 0, NONE),
        228 => row(Kind::Always(0x0800), NONE, 0, 0, 0),
        229 => row(Kind::Always(0x86dd), NONE, 0, 0, 0),
        240 => Some(net_analyzer(4)),
        241 => Some(net_analyzer(12)),
        246 => row(Kind::Opaque, NONE, 4, 0, 0),
        276 => row(Kind::Cooked2, 0, 20, 0, 0),
        number if (FIRST_ASSIGNED..=LAST_ASSIGNED).contains(&number) => {
            row(Kind::Opaque, NONE, NONE, NONE, NONE)
        }
        _ => None,
    }
}

/// Ethernet after a pseudo-header of this length.
fn net_analyzer(before: u32) -> Layout {
    Layout {
        kind: Kind::NetAnalyzer,
        link_header: before,
        link_type: before + 12,
        payload: before + 14,
        network: 0,
        without_snap: 3,
    }
}
