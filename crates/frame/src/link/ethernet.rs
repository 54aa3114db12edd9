//! Ethernet (EN10MB): destination, source, EtherType or 802.3 length. Source: IEEE 802.3.

use super::llc::{BareIpx, Llc, MAX_LENGTH};
use super::{Link, LinkType, NextLayer, be16};
use crate::condition::{Base, Compare, Condition, Load, Width};
use crate::ethertype::MIN_ETHERTYPE;

pub(super) static LINK: Link = Link {
    numbers: &[LinkType::EN10MB],
    name: "EN10MB",
    title: "Ethernet",
    header_len: 14,
    ethertype_offset: Some(12),
    next,
    carries,
};

fn next(data: &[u8]) -> Option<NextLayer> {
    let number = be16(data, 12)?;
    Some(NextLayer { offset: 14, ethertype: if number < MIN_ETHERTYPE { 0 } else { number } })
}

fn carries(number: u16, shift: u32) -> Condition {
    let kind = 12 + shift;
    let length = Compare::Range(0, MAX_LENGTH.into());
    let follows = Condition::Load(Load::at(Base::Frame, kind, Width::Two, 0xffff, length));
    Llc { kind, start: kind + 2, follows, bare_ipx: BareIpx::InPayload }.carries(number)
}
