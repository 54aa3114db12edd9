//! Linux "cooked" captures, versions 1 and 2, as delivered by `-i any`. Source: the link-type
//! registry.

use super::{Header, NextLayer, be16};

pub(super) const SLL: Header = Header {
    len: Some(16),
    ethertype_offset: Some(14),
    next: |data| Some(NextLayer { offset: 16, ethertype: be16(data, 14)? }),
};

pub(super) const SLL2: Header = Header {
    len: Some(20),
    ethertype_offset: Some(0),
    next: |data| {
        Some(NextLayer { offset: 20, ethertype: be16(data, 0)? }).filter(|_| data.len() >= 20)
    },
};
