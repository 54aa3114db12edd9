//! `proto`, `protochain` and the names of protocols: a number in the link, IPv4, IPv6 or OSI header.
//!
//! `ip6 proto` tests the fixed header and, after a fragment header, the number in that one; other
//! extension headers are not followed.

use super::port::{IP_PROTOCOL, IP6_HEADER_LEN, IP6_NEXT_HEADER};
use super::{Compat, Meaning, Refusal, all, any};
use crate::ast::Carrier;
use fyke_frame::Condition;
use fyke_frame::condition::{Chain, Width};

/// The fragment header's number.
const IP6_FRAGMENT: u32 = 44;

impl Compat {
    pub(super) fn protocol(&self, carrier: Carrier, number: u32) -> Meaning {
        let byte = |offset, number| self.equal(&self.network().plus(offset), Width::One, number);
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

    /// `protochain`: the protocol after any extension headers of IP.
    pub(super) fn protocol_chain(&mut self, carrier: Carrier, number: u32) -> Meaning {
        self.take_register()?;
        let chain = match carrier {
            // Libpcap forgets to release the register of the first call.
            Carrier::IpOrIp6 => {
                let ip = self.protocol_chain(Carrier::Ip, number)?;
                return Ok(any([ip, self.protocol_chain(Carrier::Ip6, number)?]));
            }
            Carrier::Ip | Carrier::Ip6 => {
                let network = self.network();
                if network.base.is_some() {
                    let message = "\"protochain\" does not work after headers of variable length";
                    return Err(Refusal::new(message));
                }
                let v6 = carrier == Carrier::Ip6;
                Chain { ip: network.offset, v6, protocol: number }
            }
            Carrier::Link | Carrier::Osi | Carrier::Isis => {
                let message = "\"protochain\" follows the headers of \"ip\" and \"ip6\" only";
                return Err(Refusal::new(message));
            }
        };
        self.registers -= 1;
        self.jumps_in_code();
        let carried = if chain.v6 { self.ip6()? } else { self.ip()? };
        Ok(all([carried, Condition::Chain(chain)]))
    }
}
