//! Link-layer addresses: `ether host`, `broadcast`, `multicast`, and the broadcast and multicast addresses of IP.

use super::host::sides;
use super::layout::Kind;
use super::{Compat, Meaning, Refusal, all, any};
use crate::ast::{PrimitiveKind, Side};
use fyke_frame::Condition;
use fyke_frame::condition::{Compare, Width};

/// Offsets in the IPv4 and IPv6 headers.
const IP_DESTINATION: u32 = 16;
const IP6_DESTINATION: u32 = 24;

impl Compat {
    pub(super) fn ether(&self, kind: &PrimitiveKind) -> Meaning {
        match kind {
            PrimitiveKind::EtherHost { side, address } => {
                self.mac_host(*side, address, "a link-layer address")
            }
            PrimitiveKind::EtherBroadcast => match self.kind {
                Kind::Arcnet => Ok(self.arcnet_host(Side::Destination, 0)),
                _ => self.mac_host(Side::Destination, &[0xff; 6], "\"broadcast\""),
            },
            _ => self.mac_multicast(),
        }
    }

    /// Offsets of destination and source, for link headers with addresses of six bytes.
    fn mac_ends(&self) -> Option<(u32, u32)> {
        Some(match self.kind {
            Kind::Ethernet | Kind::NetAnalyzer => (0, 6),
            Kind::Fddi => (1, 7),
            Kind::TokenRing => (2, 8),
            Kind::FibreChannel => (2, 10),
            _ => return None,
        })
    }

    fn mac_host(&self, side: Side, address: &[u8; 6], what: &str) -> Meaning {
        if self.is_wlan() {
            return Ok(self.wlan_side(side, address));
        }
        let Some((destination, source)) = self.mac_ends() else { return self.no_mac(what) };
        let end = |offset| self.bytes(&self.link_header.plus(offset), address);
        let inside = self.is_encapsulated().filter(|_| self.is_ethernet());
        Ok(all(inside.into_iter().chain([sides(side, end(source), end(destination))])))
    }

    fn mac_multicast(&self) -> Meaning {
        match self.kind {
            Kind::Arcnet => return Ok(self.arcnet_host(Side::Destination, 0)),
            Kind::Wlan(_) => return Ok(self.wlan_multicast()),
            _ => {}
        }
        let Some((destination, _)) = self.mac_ends() else { return self.no_mac("\"multicast\"") };
        let inside = self.is_encapsulated().filter(|_| self.is_ethernet());
        let first = self.bit(&self.link_header.plus(destination), 0x01);
        Ok(all(inside.into_iter().chain([first])))
    }

    fn no_mac(&self, what: &str) -> Meaning {
        let title = self.title;
        Err(Refusal::new(format!(
            "{what} needs a link header with addresses (Ethernet, 802.11, FDDI, token ring, Fibre \
             Channel), but this is {title}"
        )))
    }

    /// Tests an ARCnet address: one byte, the source first.
    pub(super) fn arcnet_host(&self, side: Side, address: u8) -> Condition {
        let end = |offset| self.equal(&self.link_header.plus(offset), Width::One, address.into());
        sides(side, end(0), end(1))
    }

    pub(super) fn arcnet(&self, side: Side, address: u8) -> Meaning {
        match self.kind {
            Kind::Arcnet => Ok(self.arcnet_host(side, address)),
            _ => {
                Err(Refusal::new(format!("this address needs ARCnet, but this is {}", self.title)))
            }
        }
    }

    pub(super) fn ip_broadcast(&self) -> Meaning {
        let Some(netmask) = self.netmask else {
            return Err(Refusal::new("\"ip broadcast\" needs the netmask, which is not known")
                .with_hint("a capture file does not record a netmask"));
        };
        let place = self.network().plus(IP_DESTINATION);
        let ends_in = |value| self.masked(&place, Width::Four, !netmask, value);
        Ok(all([self.ip()?, any([ends_in(0), ends_in(!netmask)])]))
    }

    pub(super) fn ip_multicast(&self) -> Meaning {
        let place = self.network().plus(IP_DESTINATION);
        let from_224 = self.test(&place, Width::One, 0xff, Compare::Range(224, 255));
        Ok(all([self.ip()?, from_224]))
    }

    pub(super) fn ip6_multicast(&self) -> Meaning {
        let first = self.network().plus(IP6_DESTINATION);
        Ok(all([self.ip6()?, self.equal(&first, Width::One, 0xff)]))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, compile};
    use fyke_frame::{Frame, LinkType};

    #[test]
    fn each_link_type_has_its_own_places() {
        let mut bytes = [0_u8; 40];
        for (link, at) in [("FDDI", 1), ("IEEE802", 2), ("IP_OVER_FC", 2), ("NETANALYZER", 4)] {
            let link = LinkType::from_name(link).unwrap();
            let options = Options { link, ..Options::default() };
            let predicate = compile("ether dst 1:2:3:4:5:6", &options).unwrap();
            bytes.fill(0);
            bytes[at..at + 6].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
            assert!(predicate.accepts(&Frame::new(link, &bytes)), "{link}");
            bytes[at] = 9;
            assert!(!predicate.accepts(&Frame::new(link, &bytes)), "{link}");
        }
        let refused = |link: &str| {
            let link = LinkType::from_name(link).unwrap();
            compile("ether host 1:2:3:4:5:6", &Options { link, ..Options::default() }).is_err()
        };
        assert!(refused("PPP") && refused("RAW") && refused("ARCNET") && !refused("PPI"));
    }
}
