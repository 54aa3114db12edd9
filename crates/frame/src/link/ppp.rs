//! PPP in its framings, Cisco HDLC and frame relay: point-to-point links with their own protocol
//! numbers. Source: RFC 1661, 1662, 2427, 2516; the link-type registry.

use super::{Link, LinkType, NextLayer, be16};
use crate::ethertype;

/// PPP's protocol numbers. Source: the PPP registry.
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
const MPLS: u16 = 0x0281;

macro_rules! ppp {
    ($name:ident, $numbers:expr, $text:literal, $title:literal, $at:literal, $len:literal) => {
        pub(super) static $name: Link = Link {
            numbers: $numbers,
            name: $text,
            title: $title,
            header_len: None,
            ethertype_offset: None,
            next: |data| network(be16(data, $at)?, $len),
        };
    };
}

ppp!(PPP, &[LinkType(9)], "PPP", "PPP", 2, 4);
ppp!(PPP_SERIAL, &[LinkType(50)], "PPP_SERIAL", "PPP over serial", 2, 4);
ppp!(PPP_ETHER, &[LinkType(51)], "PPP_ETHER", "PPPoE", 6, 8);
ppp!(PPP_BSDOS, &[LinkType(103), LinkType(16)], "PPP_BSDOS", "BSD/OS PPP", 5, 24);
ppp!(PPP_PPPD, &[LinkType(166)], "PPP_PPPD", "PPP for pppd, with direction flag", 2, 4);

fn network(protocol: u16, offset: usize) -> Option<NextLayer> {
    let ethertype = match protocol {
        IPV4 => ethertype::IPV4,
        IPV6 => ethertype::IPV6,
        MPLS => ethertype::MPLS,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}

pub(super) static C_HDLC: Link = Link {
    numbers: &[LinkType(104)],
    name: "C_HDLC",
    title: "Cisco HDLC",
    header_len: Some(4),
    ethertype_offset: Some(2),
    next: |data| Some(NextLayer { offset: 4, ethertype: be16(data, 2)? }),
};

pub(super) static FRELAY: Link = Link {
    numbers: &[LinkType(107)],
    name: "FRELAY",
    title: "Frame Relay",
    header_len: None,
    ethertype_offset: None,
    // The network layer's identifier after an unnumbered-information control byte.
    next: |data| match be16(data, 2)? {
        0x03cc => Some(NextLayer { offset: 4, ethertype: ethertype::IPV4 }),
        0x038e => Some(NextLayer { offset: 4, ethertype: ethertype::IPV6 }),
        _ => None,
    },
};
