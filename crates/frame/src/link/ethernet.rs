//! Ethernet (EN10MB): destination, source, EtherType or 802.3 length. Source: IEEE 802.3.

use super::{Header, NextLayer, be16};
use crate::ethertype::MIN_ETHERTYPE;

pub(super) const ETHERNET: Header = Header { len: Some(14), ethertype_offset: Some(12), next };

fn next(data: &[u8]) -> Option<NextLayer> {
    let number = be16(data, 12)?;
    Some(NextLayer { offset: 14, ethertype: if number < MIN_ETHERTYPE { 0 } else { number } })
}
