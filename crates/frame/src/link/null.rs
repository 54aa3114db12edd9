//! BSD loopback: a four-byte address family before the packet, in the byte order of the capturing machine (NULL) or
//! in network order (LOOP). IPv6 has three numbers, one for each BSD; readers accept all.

use super::{Link, LinkType, NextLayer};
use crate::condition::{Condition, Load, Width};
use crate::ethertype;

const AF_INET: u32 = 2;
const AF_INET6: [u32; 3] = [24, 28, 30];

pub(super) static NULL: Link = Link {
    numbers: &[LinkType::NULL],
    name: "NULL",
    title: "BSD loopback",
    header_len: 4,
    ethertype_offset: None,
    // Families are small, so whichever order gives the smaller number is the one it was written in.
    next: |data| family(data).and_then(|family| next(family.min(family.swap_bytes()))),
    carries: |ethertype, shift| carries(ethertype, shift, u32::swap_bytes),
};

pub(super) static LOOP: Link = Link {
    numbers: &[LinkType::LOOP],
    name: "LOOP",
    title: "OpenBSD loopback",
    header_len: 4,
    ethertype_offset: None,
    next: |data| family(data).and_then(next),
    carries: |ethertype, shift| carries(ethertype, shift, |family| family),
};

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

fn carries(ethertype: u16, shift: u32, order: fn(u32) -> u32) -> Condition {
    let equals = |family| Condition::Load(Load::equal(shift, Width::Four, u32::MAX, order(family)));
    match ethertype {
        ethertype::IPV4 => equals(AF_INET),
        ethertype::IPV6 => Condition::Any(AF_INET6.map(equals).to_vec()),
        _ => Condition::Const(false),
    }
}
