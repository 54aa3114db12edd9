//! Link-layer addresses: `ether host`, `broadcast`, `multicast`, and the broadcast and multicast addresses of IP.

use super::host::sides;
use super::{Compat, Meaning, Refusal, all, any, equal, not, test};
use crate::ast::PrimitiveKind;
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Width};

const DESTINATION: u32 = 0;
const SOURCE: u32 = 6;
/// Offsets in the IPv4 and IPv6 headers.
const IP_DESTINATION: u32 = 16;
const IP6_DESTINATION: u32 = 24;

impl Compat {
    pub(super) fn ether(&self, kind: &PrimitiveKind) -> Meaning {
        if !self.is_ethernet() {
            let what = match kind {
                PrimitiveKind::EtherBroadcast => "\"broadcast\"",
                PrimitiveKind::EtherMulticast => "\"multicast\"",
                _ => "an Ethernet address",
            };
            let title = self.title();
            return Err(Refusal::new(format!("{what} needs Ethernet, but this is {title}")));
        }
        Ok(match kind {
            PrimitiveKind::EtherHost { side, address } => {
                sides(*side, self.ether_end(SOURCE, address), self.ether_end(DESTINATION, address))
            }
            PrimitiveKind::EtherBroadcast => self.ether_end(DESTINATION, &[0xff; 6]),
            _ => not(test(self.link_header, Width::One, 0x01, Compare::Equal(0))),
        })
    }

    /// The last four bytes are compared first.
    fn ether_end(&self, offset: u32, address: &[u8; 6]) -> Condition {
        let [a, b, c, d, e, f] = *address;
        let start = self.link_header.wrapping_add(offset);
        all([
            equal(start.wrapping_add(2), Width::Four, u32::from_be_bytes([c, d, e, f])),
            equal(start, Width::Two, u32::from_be_bytes([0, 0, a, b])),
        ])
    }

    pub(super) fn ip_broadcast(&self) -> Meaning {
        let Some(netmask) = self.netmask else {
            return Err(Refusal::new("\"ip broadcast\" needs the netmask, which is not known")
                .with_hint("a capture file does not say its netmask"));
        };
        let host_bits = !netmask;
        let ends_in = |value| match host_bits {
            0 => Condition::Const(true),
            _ => self.network_test(IP_DESTINATION, Width::Four, host_bits, Compare::Equal(value)),
        };
        Ok(all([self.ip()?, any([ends_in(0), ends_in(host_bits)])]))
    }

    pub(super) fn ip_multicast(&self) -> Meaning {
        let from_224 = Compare::Range(224, 255);
        Ok(all([self.ip()?, self.network_test(IP_DESTINATION, Width::One, 0xff, from_224)]))
    }

    pub(super) fn ip6_multicast(&self) -> Meaning {
        let first = self.network().wrapping_add(IP6_DESTINATION);
        Ok(all([self.ip6()?, equal(first, Width::One, 0xff)]))
    }
}
