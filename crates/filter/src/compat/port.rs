//! `port` and `portrange`.
//!
//! In IPv4 the frame must be a first fragment or whole, in IPv6 the transport header must follow
//! the fixed header. IPv6 is tested first; without a transport, SCTP, TCP and UDP in this order.

use super::host::sides;
use super::{Compat, Meaning, all, any};
use crate::ast::{Side, Transport};
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Width};

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
/// The transports in the order of their tests when none is named.
const TRANSPORTS: [Transport; 3] = [Transport::Sctp, Transport::Tcp, Transport::Udp];

impl Transport {
    /// The protocol number in the IP header.
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
        let of = |version| self.ports_of(version, transport, side, compare);
        Ok(any([of(6)?, of(4)?]))
    }

    /// The ports of one version of IP.
    pub(super) fn ports_of(
        &self,
        version: u8,
        transport: Option<Transport>,
        side: Side,
        compare: &Compare,
    ) -> Meaning {
        let asked = match &transport {
            Some(transport) => std::slice::from_ref(transport),
            None => &TRANSPORTS,
        };
        let (carried, number_at) = match version {
            4 => (self.ip()?, IP_PROTOCOL),
            _ => (self.ip6()?, IP6_NEXT_HEADER),
        };
        let number_at = self.network().plus(number_at);
        let in_transport = asked.iter().map(|transport| {
            let number = self.equal(&number_at, Width::One, transport.number().into());
            match version {
                4 => all([number, self.first_fragment(), self.ip_ports(side, compare)]),
                _ => all([number, self.ip6_ports(side, compare)]),
            }
        });
        Ok(all([carried, any(in_transport)]))
    }

    /// Not an IPv4 fragment, or the first one.
    pub(super) fn first_fragment(&self) -> Condition {
        self.masked(&self.network().plus(IP_FRAGMENT), Width::Two, 0x1fff, 0)
    }

    fn ip_ports(&self, side: Side, compare: &Compare) -> Condition {
        let end = |offset| self.after_ip(offset, Width::Two, 0xffff, compare.clone());
        sides(side, end(SOURCE), end(DESTINATION))
    }

    fn ip6_ports(&self, side: Side, compare: &Compare) -> Condition {
        let end = |offset| {
            let place = self.network().plus(IP6_HEADER_LEN + offset);
            self.test(&place, Width::Two, 0xffff, compare.clone())
        };
        sides(side, end(SOURCE), end(DESTINATION))
    }
}
