//! BSD loopback: a four-byte address family before the packet, in the byte order of the capturing machine (NULL) or
//! in network order (LOOP). IPv6 has three numbers, one for each BSD; readers accept all.

use super::{Header, NextLayer};
use crate::ethertype;

const AF_INET: u32 = 2;
const AF_INET6: [u32; 3] = [24, 28, 30];

pub(super) const HOST_ORDER: Header = Header {
    len: Some(4),
    ethertype_offset: None,
    // Families are small numbers, so the byte order that gives the smaller number is the right one.
    next: |data| family(data).and_then(|family| next(family.min(family.swap_bytes()))),
};

pub(super) const NETWORK_ORDER: Header =
    Header { len: Some(4), ethertype_offset: None, next: |data| family(data).and_then(next) };

fn family(data: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(..4)?.try_into().ok()?))
}

fn next(family: u32) -> Option<NextLayer> {
    let ethertype = match family {
        AF_INET => ethertype::IPV4,
        _ if AF_INET6.contains(&family) => ethertype::IPV6,
        _ => return None,
    };
    Some(NextLayer { offset: 4, ethertype })
}
