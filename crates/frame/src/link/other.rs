//! Other link types that one row describes: SLIP, ARCnet, packet-filter logs, IP over FireWire, and
//! the like. Source: the link-type registry.

use super::{Header, LLC, NextLayer, be16};
use crate::ethertype;

/// IPv4 or IPv6 by the version nibble, after a header of this length.
pub(super) const fn version_after<const LEN: usize>() -> Header {
    Header::of(|data| by_version(data, LEN))
}

pub(super) const SYMANTEC_FIREWALL: Header = Header {
    len: None,
    ethertype_offset: Some(6),
    next: |data| Some(NextLayer { offset: 44, ethertype: be16(data, 6)? }),
};

pub(super) const IEEE1394: Header = Header {
    len: None,
    ethertype_offset: Some(16),
    next: |data| Some(NextLayer { offset: 18, ethertype: be16(data, 16)? }),
};

pub(super) const PFLOG: Header =
    Header::of(|data| by_version(data, usize::from(*data.first()?).next_multiple_of(4)));

pub(super) const ARCNET: Header = Header::of(|data| arcnet(*data.get(2)?, 6));
pub(super) const ARCNET_LINUX: Header = Header::of(|data| arcnet(*data.get(4)?, 8));

/// The low bits are the kind of traffic; 2 is LLC.
pub(super) const SUNATM: Header = Header::of(|data| {
    (data.first()? & 0x0f == 2).then_some(NextLayer { offset: 4, ethertype: LLC })
});

pub(super) const NETANALYZER: Header =
    Header::of(|data| Some(NextLayer { offset: 18, ethertype: be16(data, 16)? }));
pub(super) const NETANALYZER_TRANSPARENT: Header =
    Header::of(|data| Some(NextLayer { offset: 26, ethertype: be16(data, 24)? }));

fn by_version(data: &[u8], offset: usize) -> Option<NextLayer> {
    let ethertype = match data.get(offset)? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}

fn arcnet(protocol: u8, offset: usize) -> Option<NextLayer> {
    let ethertype = match protocol {
        212 | 240 => ethertype::IPV4,
        213 | 241 => ethertype::ARP,
        214 => ethertype::REVARP,
        196 => ethertype::IPV6,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}
