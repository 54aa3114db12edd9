//! PPP in its framings, Cisco HDLC and frame relay: point-to-point links with their own protocol
//! numbers. Source: RFC 1661, 1662, 2427, 2516; the link-type registry.

use super::{Header, NextLayer, be16};
use crate::ethertype;

/// PPP's protocol numbers. Source: the PPP registry.
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
const MPLS: u16 = 0x0281;

/// A PPP protocol number at this offset, in a header of this length.
pub(super) const fn protocol_at<const AT: usize, const LEN: usize>() -> Header {
    Header::of(|data| network(be16(data, AT)?, LEN))
}

fn network(protocol: u16, offset: usize) -> Option<NextLayer> {
    let ethertype = match protocol {
        IPV4 => ethertype::IPV4,
        IPV6 => ethertype::IPV6,
        MPLS => ethertype::MPLS,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}

pub(super) const C_HDLC: Header = Header {
    len: Some(4),
    ethertype_offset: Some(2),
    next: |data| Some(NextLayer { offset: 4, ethertype: be16(data, 2)? }),
};

// The network layer's identifier after an unnumbered-information control byte.
pub(super) const FRAME_RELAY: Header = Header::of(|data| match be16(data, 2)? {
    0x03cc => Some(NextLayer { offset: 4, ethertype: ethertype::IPV4 }),
    0x038e => Some(NextLayer { offset: 4, ethertype: ethertype::IPV6 }),
    _ => None,
});
