//! Packets without link header: RAW (the version nibble distinguishes), IPV4, IPV6.

use super::{Header, NextLayer};
use crate::ethertype;

pub(super) const BY_VERSION: Header = without_header(|data| match data.first()? >> 4 {
    4 => Some(NextLayer { offset: 0, ethertype: ethertype::IPV4 }),
    6 => Some(NextLayer { offset: 0, ethertype: ethertype::IPV6 }),
    _ => None,
});

pub(super) const IPV4: Header =
    without_header(|_| Some(NextLayer { offset: 0, ethertype: ethertype::IPV4 }));

pub(super) const IPV6: Header =
    without_header(|_| Some(NextLayer { offset: 0, ethertype: ethertype::IPV6 }));

const fn without_header(next: fn(&[u8]) -> Option<NextLayer>) -> Header {
    Header { len: Some(0), ethertype_offset: None, next }
}
