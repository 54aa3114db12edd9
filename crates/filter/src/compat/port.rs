//! `port` and `portrange`.
//!
//! In IPv4 the frame must be a first fragment or whole, in IPv6 the transport header must follow the fixed header.
//! IPv6 is asked first; without a transport, SCTP, TCP and UDP in this order.

use super::host::sides;
use super::{Compat, Meaning, all, any, equal, test};
use crate::ast::{Side, Transport};
use fyke_frame::Condition;
use fyke_frame::condition::{Base, Compare, Load, Width};

/// Length of an IPv6 header without extensions.
pub(super) const IP6_HEADER_LEN: u32 = 40;
/// Offset of the protocol number in an IPv4 header.
pub(super) const IP_PROTOCOL: u32 = 9;
/// Offset of the next-header number in an IPv6 header.
pub(super) const IP6_NEXT_HEADER: u32 = 6;
/// Offset of flags and fragment offset in an IPv4 header.
const IP_FRAGMENT: u32 = 6;

const SOURCE: u32 = 0;
const DESTINATION: u32 = 2;
/// In the order in which they are asked when none is named.
const TRANSPORTS: [Transport; 3] = [Transport::Sctp, Transport::Tcp, Transport::Udp];

impl Transport {
    /// Its number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
            Transport::Sctp => 132,
        }
    }
}

impl Compat {
    pub(super) fn ports(
        &self,
        transport: Option<Transport>,
        side: Side,
        compare: &Compare,
    ) -> Meaning {
        let asked = match &transport {
            Some(transport) => std::slice::from_ref(transport),
            None => &TRANSPORTS,
        };
        let ip6_ports = self.ip6_ports(side, compare);
        let ip6 = asked.iter().map(|transport| {
            let next = self.network().wrapping_add(IP6_NEXT_HEADER);
            all([equal(next, Width::One, transport.number().into()), ip6_ports.clone()])
        });
        let ip_ports = self.ip_ports(side, compare);
        let ip = asked.iter().map(|transport| {
            let protocol = self.network().wrapping_add(IP_PROTOCOL);
            all([
                equal(protocol, Width::One, transport.number().into()),
                self.first_fragment(),
                ip_ports.clone(),
            ])
        });
        Ok(any([all([self.ip6()?, any(ip6)]), all([self.ip()?, any(ip)])]))
    }

    /// Not an IPv4 fragment, or the first one.
    pub(super) fn first_fragment(&self) -> Condition {
        self.network_test(IP_FRAGMENT, Width::Two, 0x1fff, Compare::Equal(0))
    }

    fn ip_ports(&self, side: Side, compare: &Compare) -> Condition {
        let end = |offset| {
            let base = Base::IpHeaderEnd { ip: self.network() };
            Condition::Load(Load::at(base, offset, Width::Two, 0xffff, compare.clone()))
        };
        sides(side, end(SOURCE), end(DESTINATION))
    }

    fn ip6_ports(&self, side: Side, compare: &Compare) -> Condition {
        let end = |offset| {
            let offset = self.network().wrapping_add(IP6_HEADER_LEN + offset);
            test(offset, Width::Two, 0xffff, compare.clone())
        };
        sides(side, end(SOURCE), end(DESTINATION))
    }
}
