//! `proto` and the names of protocols: a number in the link, IPv4, IPv6 or OSI header.
//!
//! `ip6 proto` looks at the fixed header and, behind a fragment header, at that one's; other extension headers are
//! not followed.

use super::port::{IP_PROTOCOL, IP6_HEADER_LEN, IP6_NEXT_HEADER};
use super::{Compat, Meaning, all, any, equal};
use crate::ast::Carrier;
use fyke_frame::condition::Width;

/// The fragment header's number.
const IP6_FRAGMENT: u32 = 44;

impl Compat {
    pub(super) fn protocol(&self, carrier: Carrier, number: u32) -> Meaning {
        let byte = |offset, number| equal(self.network().wrapping_add(offset), Width::One, number);
        match carrier {
            Carrier::Link => self.carries(number),
            Carrier::Ip => Ok(all([self.ip()?, byte(IP_PROTOCOL, number)])),
            Carrier::Ip6 => Ok(all([
                self.ip6()?,
                any([
                    byte(IP6_NEXT_HEADER, number),
                    all([byte(IP6_NEXT_HEADER, IP6_FRAGMENT), byte(IP6_HEADER_LEN, number)]),
                ]),
            ])),
            Carrier::Osi => self.osi(number),
            Carrier::Isis => self.isis(number),
            Carrier::IpOrIp6 => {
                Ok(any([self.protocol(Carrier::Ip, number)?, self.protocol(Carrier::Ip6, number)?]))
            }
        }
    }
}
