//! Linux "cooked" captures, versions 1 and 2: what `-i any` delivers. Source: the link-type registry.

use super::llc::{BareIpx, Llc};
use super::{Link, LinkType, NextLayer, be16};
use crate::condition::{Condition, Load, Width};

/// Linux's protocol numbers for IPX without LLC and for LLC.
const PROTOCOL_802_3: u16 = 1;
const PROTOCOL_802_2: u16 = 4;

pub(super) static SLL: Link = Link {
    numbers: &[LinkType::LINUX_SLL],
    name: "LINUX_SLL",
    title: "Linux cooked v1",
    header_len: 16,
    ethertype_offset: Some(14),
    next: |data| Some(NextLayer { offset: 16, ethertype: be16(data, 14)? }),
    carries: |number, shift| {
        let follows = protocol(14 + shift, PROTOCOL_802_2);
        let bare_ipx = BareIpx::Kind(PROTOCOL_802_3);
        Llc { kind: 14 + shift, start: 16 + shift, follows, bare_ipx }.carries(number)
    },
};

pub(super) static SLL2: Link = Link {
    numbers: &[LinkType::LINUX_SLL2],
    name: "LINUX_SLL2",
    title: "Linux cooked v2",
    header_len: 20,
    ethertype_offset: Some(0),
    next: |data| {
        Some(NextLayer { offset: 20, ethertype: be16(data, 0)? }).filter(|_| data.len() >= 20)
    },
    carries: |ethertype, shift| protocol(shift, ethertype),
};

fn protocol(offset: u32, ethertype: u16) -> Condition {
    Condition::Load(Load::equal(offset, Width::Two, 0xffff, u32::from(ethertype)))
}
