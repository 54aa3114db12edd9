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
    use LinkType as L;
    let link = link.description().map_or(link, |known| known.numbers[0]);
    match link {
        L::NULL => row(Kind::HostFamily, 0, 4, 0, 0),
        L::EN10MB => row(Kind::Ethernet, 12, 14, 0, 3),
        L::IEEE802 => row(Kind::TokenRing, 14, 14, 8, 3),
        L::ARCNET => row(Kind::Arcnet, 2, 6, 0, 0),
        L::SLIP => row(Kind::Slip, NONE, 16, 0, 0),
        L::PPP => row(Kind::Ppp, 2, 4, 0, 0),
        L::FDDI => row(Kind::Fddi, 13, 13, 8, 3),
        L::PPP_SERIAL => row(Kind::PppOther, 2, 4, 0, 0),
        L::PPP_ETHER => row(Kind::PppOther, 6, 8, 0, 0),
        L::SYMANTEC_FIREWALL => row(Kind::EtherType, 6, 44, 0, 0),
        L::ATM_RFC1483 => row(Kind::Atm, 0, 0, 8, 3),
        L::RAW => row(Kind::Version, NONE, 0, 0, 0),
        L::SLIP_BSDOS => row(Kind::Version, NONE, 24, 0, 0),
        L::PPP_BSDOS => row(Kind::PppBsdos, 5, 24, 0, 0),
        L::C_HDLC => row(Kind::Hdlc, 2, 4, 0, 0),
        L::IEEE802_11 => row(Kind::Wlan(Radio::None), 24, 0, 8, 3),
        L::ATM_CLIP => row(Kind::AtmClip, 0, 0, 8, 3),
        L::FRELAY => row(Kind::FrameRelay, NONE, 0, 0, 0),
        L::LOOP => row(Kind::Family, 0, 4, 0, 0),
        L::ENC => row(Kind::HostFamily, 0, 12, 0, 0),
        L::LINUX_SLL => row(Kind::Cooked, 14, 16, 0, 0),
        L::LTALK => row(Kind::Always(0x809b), NONE, 0, 0, 0),
        L::PFLOG => row(Kind::PacketLog, 0, 0, 0, 0),
        L::PRISM_HEADER => row(Kind::Wlan(Radio::Prism), 24, 0, 8, 3),
        L::IP_OVER_FC => row(Kind::FibreChannel, 16, 16, 8, 3),
        L::SUNATM => row(Kind::SunAtm, 4, 4, 8, 3),
        L::IEEE802_11_RADIO => row(Kind::Wlan(Radio::Radiotap), 24, 0, 8, 3),
        L::ARCNET_LINUX => row(Kind::Arcnet, 4, 8, 0, 0),
        L::APPLE_IP_OVER_IEEE1394 => row(Kind::EtherType, 16, 18, 0, 0),
        L::MTP2_WITH_PHDR => row(Kind::Ss7(6), NONE, NONE, NONE, NONE),
        L::MTP2 => row(Kind::Ss7(2), NONE, NONE, NONE, NONE),
        L::IEEE802_11_RADIO_AVS => row(Kind::Wlan(Radio::Avs), 24, 0, 8, 3),
        L::BACNET_MS_TP => row(Kind::Bacnet, NONE, NONE, NONE, NONE),
        L::PPP_PPPD => row(Kind::PppPppd, 2, 4, 0, 0),
        L::MFR => row(Kind::Opaque, NONE, 0, 4, 0),
        L::PPI => row(Kind::Wlan(Radio::PerPacket), 24, 0, 8, 3),
        L::ERF => row(Kind::Ss7(22), NONE, NONE, NONE, NONE),
        L::IPNET => row(Kind::Ipnet, 1, 24, 0, NONE),
        L::IPV4 => row(Kind::Always(0x0800), NONE, 0, 0, 0),
        L::IPV6 => row(Kind::Always(0x86dd), NONE, 0, 0, 0),
        L::NETANALYZER => Some(net_analyzer(4)),
        L::NETANALYZER_TRANSPARENT => Some(net_analyzer(12)),
        L::PFSYNC => row(Kind::Opaque, NONE, 4, 0, 0),
        L::LINUX_SLL2 => row(Kind::Cooked2, 0, 20, 0, 0),
        LinkType(FIRST_ASSIGNED..=LAST_ASSIGNED) => {
            juniper(link).or_else(|| row(Kind::Opaque, NONE, NONE, NONE, NONE))
        }
        _ => None,
    }
}

/// The layout of a frame after one of Juniper's headers.
fn juniper(link: LinkType) -> Option<Layout> {
    use LinkType as L;
    match link {
        L::JUNIPER_MLPPP
        | L::JUNIPER_MLFR
        | L::JUNIPER_MFR
        | L::JUNIPER_PPP
        | L::JUNIPER_FRELAY
        | L::JUNIPER_CHDLC => row(Kind::Juniper, 4, 4, 0, NONE),
        L::JUNIPER_ES => row(Kind::Juniper, 6, NONE, NONE, NONE),
        L::JUNIPER_GGSN => row(Kind::Juniper, 6, 12, 0, NONE),
        L::JUNIPER_ATM2 => row(Kind::Juniper, 8, 8, 0, 10),
        L::JUNIPER_SERVICES => row(Kind::Juniper, 12, NONE, NONE, NONE),
        L::JUNIPER_ATM1 => row(Kind::Juniper, 4, 4, 0, 10),
        L::JUNIPER_MONITOR => row(Kind::Juniper, 12, 12, 0, NONE),
        L::JUNIPER_PPPOE | L::JUNIPER_ETHER => row(Kind::Juniper, 16, 14, 18, 21),
        L::JUNIPER_PPPOE_ATM => row(Kind::Juniper, 4, 6, 0, NONE),
        L::JUNIPER_VP | L::JUNIPER_ST => row(Kind::Juniper, 18, NONE, NONE, NONE),
        L::JUNIPER_ISM
        | L::JUNIPER_VS
        | L::JUNIPER_SRX_E2E
        | L::JUNIPER_FIBRECHANNEL
        | L::JUNIPER_ATM_CEMIC => row(Kind::Juniper, 8, NONE, NONE, NONE),
        _ => None,
    }
}

fn row(
    kind: Kind,
    link_type: u32,
    payload: u32,
    network: u32,
    without_snap: u32,
) -> Option<Layout> {
    Some(Layout { kind, link_header: 0, link_type, payload, network, without_snap })
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

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::link;

    #[test]
    fn every_named_link_type_has_a_layout_and_every_layout_has_a_name() {
        for known in link::all() {
            let found = known.numbers.iter().map(|&number| layout(number).map(|found| found.kind));
            let kinds: Vec<_> = found.collect();
            assert!(kinds[0].is_some(), "{}", known.name);
            assert!(kinds.iter().all(|kind| *kind == kinds[0]), "{}: {kinds:?}", known.name);
        }
        for number in 0..=u16::MAX {
            let link = LinkType(number);
            match layout(link).map(|found| found.kind) {
                None | Some(Kind::Opaque) => {}
                kind => assert!(link.description().is_some(), "{kind:?} of the nameless {number}"),
            }
        }
    }

    #[test]
    fn link_types_that_the_header_walk_decodes_have_fields() {
        for known in link::decoded() {
            let found = layout(known.numbers[0]).unwrap();
            assert_ne!(found.kind, Kind::Opaque, "{}", known.name);
            let payload = known.header_len.unwrap_or(found.payload);
            assert_eq!(found.payload, payload, "{}", known.name);
        }
    }
}
