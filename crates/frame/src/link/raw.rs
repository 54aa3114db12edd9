//! Packets without link header: RAW (the version nibble distinguishes), IPV4, IPV6.

use super::{Link, LinkType, NextLayer};
use crate::ethertype;

pub(super) static RAW: Link = Link {
    // Some systems wrote 12 and 14 for raw IP before 101 was assigned.
    numbers: &[LinkType::RAW, LinkType(12), LinkType(14)],
    name: "RAW",
    title: "raw IP",
    header_len: Some(0),
    ethertype_offset: None,
    next: |data| match data.first()? >> 4 {
        4 => Some(NextLayer { offset: 0, ethertype: ethertype::IPV4 }),
        6 => Some(NextLayer { offset: 0, ethertype: ethertype::IPV6 }),
        _ => None,
    },
};

pub(super) static IPV4: Link = Link {
    numbers: &[LinkType::IPV4],
    name: "IPV4",
    title: "raw IPv4",
    header_len: Some(0),
    ethertype_offset: None,
    next: |_| Some(NextLayer { offset: 0, ethertype: ethertype::IPV4 }),
};

pub(super) static IPV6: Link = Link {
    numbers: &[LinkType::IPV6],
    name: "IPV6",
    title: "raw IPv6",
    header_len: Some(0),
    ethertype_offset: None,
    next: |_| Some(NextLayer { offset: 0, ethertype: ethertype::IPV6 }),
};
