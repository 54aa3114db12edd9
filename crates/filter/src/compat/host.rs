//! `host` and `net`: addresses of IPv4, ARP, RARP and IPv6.
//!
//! A dotted address without a qualifier is tested in IPv4, then ARP, then RARP; under MPLS in IPv4
//! only.

use super::{Compat, Meaning, all, any};
use crate::ast::{AddressFamily, PrimitiveKind, Side};
use fyke_frame::condition::{Address6, Width};
use fyke_frame::{Condition, ethertype};
use std::net::IpAddr;

/// Offsets of source and destination within the header that carries the addresses.
struct Ends {
    source: u32,
    destination: u32,
}

const IP: Ends = Ends { source: 12, destination: 16 };
const ARP: Ends = Ends { source: 14, destination: 24 };
const IP6: Ends = Ends { source: 8, destination: 24 };

impl Compat {
    pub(super) fn address(&self, kind: &PrimitiveKind) -> Meaning {
        match kind {
            PrimitiveKind::Host { family, side, address: IpAddr::V4(address) } => {
                self.ip_or_arp(*family, *side, (*address).into(), u32::MAX)
            }
            PrimitiveKind::Host { side, address: IpAddr::V6(address), .. } => {
                self.address6(*side, (*address).into(), u128::MAX)
            }
            PrimitiveKind::Net { family, side, network, mask } => {
                self.ip_or_arp(*family, *side, (*network).into(), (*mask).into())
            }
            PrimitiveKind::Net6 { side, network, prefix_len } => {
                let host_bits = 128 - u32::from(*prefix_len);
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                self.address6(*side, (*network).into(), mask)
            }
            _ => Ok(Condition::Const(false)),
        }
    }

    fn ip_or_arp(&self, family: AddressFamily, side: Side, value: u32, mask: u32) -> Meaning {
        match family {
            AddressFamily::Ip => self.address4(ethertype::IPV4, &IP, side, value, mask),
            AddressFamily::Arp => self.address4(ethertype::ARP, &ARP, side, value, mask),
            AddressFamily::Rarp => self.address4(ethertype::REVARP, &ARP, side, value, mask),
            AddressFamily::Any if self.labels > 0 => {
                self.ip_or_arp(AddressFamily::Ip, side, value, mask)
            }
            AddressFamily::Any => Ok(any([
                self.ip_or_arp(AddressFamily::Ip, side, value, mask)?,
                self.ip_or_arp(AddressFamily::Arp, side, value, mask)?,
                self.ip_or_arp(AddressFamily::Rarp, side, value, mask)?,
            ])),
            AddressFamily::Ip6 => Ok(Condition::Const(false)),
        }
    }

    fn address4(&self, ethertype: u16, ends: &Ends, side: Side, value: u32, mask: u32) -> Meaning {
        let end = |offset| self.masked(&self.network().plus(offset), Width::Four, mask, value);
        let protocol = self.carries(u32::from(ethertype))?;
        Ok(all([protocol, sides(side, end(ends.source), end(ends.destination))]))
    }

    fn address6(&self, side: Side, value: u128, mask: u128) -> Meaning {
        let network = self.network();
        let end = |offset| match &network.base {
            None if !self.exact && mask == 0 => Condition::Const(true),
            None if !self.exact => {
                let offset = network.offset.wrapping_add(offset);
                Condition::Address6(Address6 { offset, mask, value })
            }
            // Word by word; words are loaded even if all their bits are masked out.
            _ => all((0..4).map(|word| {
                let shift = 96 - 32 * word;
                let place = network.plus(offset + 4 * word);
                self.masked(&place, Width::Four, (mask >> shift) as u32, (value >> shift) as u32)
            })),
        };
        Ok(all([self.ip6()?, sides(side, end(IP6.source), end(IP6.destination))]))
    }
}

/// Joins the tests of the two ends.
pub(super) fn sides(side: Side, source: Condition, destination: Condition) -> Condition {
    match side {
        Side::Source => source,
        Side::Destination => destination,
        Side::Either => any([source, destination]),
        Side::Both => all([source, destination]),
    }
}
