//! Linux "cooked" captures, versions 1 and 2, as delivered by `-i any`. Source: the link-type
//! registry.

use super::{Link, LinkType, NextLayer, be16};

pub(super) static SLL: Link = Link {
    numbers: &[LinkType::LINUX_SLL],
    name: "LINUX_SLL",
    title: "Linux cooked v1",
    header_len: Some(16),
    ethertype_offset: Some(14),
    next: |data| Some(NextLayer { offset: 16, ethertype: be16(data, 14)? }),
};

pub(super) static SLL2: Link = Link {
    numbers: &[LinkType::LINUX_SLL2],
    name: "LINUX_SLL2",
    title: "Linux cooked v2",
    header_len: Some(20),
    ethertype_offset: Some(0),
    next: |data| {
        Some(NextLayer { offset: 20, ethertype: be16(data, 0)? }).filter(|_| data.len() >= 20)
    },
};
