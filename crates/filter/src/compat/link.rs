//! Protocols of the link layer: the field that names the next header, under tags and labels.
//!
//! Numbers above 1,500 are EtherTypes, the others LLC service access points. Some protocols have
//! more than one encapsulation; the alternatives are in the order in which libpcap tests them.
//! Source: IEEE 802.2, RFC 1042, RFC 2427.

use super::layout::{Kind, NONE};
use super::{Compat, Meaning, Refusal, all, any, not};
use fyke_frame::condition::{Compare, Width};
use fyke_frame::{Condition, ethertype};

/// Largest 802.3 length; larger values are EtherTypes.
const MAX_LENGTH: u32 = 1500;
/// The bottom-of-stack bit of an MPLS label, counted back from the end of the label.
const BOTTOM_OF_STACK: u32 = 2;

const SAP_IP: u32 = 0x06;
const SAP_SPANNING_TREE: u32 = 0x42;
const SAP_IPX: u32 = 0xe0;
const SAP_NETBEUI: u32 = 0xf0;
pub(super) const SAP_OSI: u32 = 0xfe;
const IPV4: u32 = ethertype::IPV4 as u32;
const IPV6: u32 = ethertype::IPV6 as u32;
const APPLETALK: u32 = 0x809b;
const APPLETALK_ARP: u32 = 0x80f3;
const IPX: u32 = 0x8137;
/// Organisations of SNAP headers.
const APPLE: u32 = 0x08_0007;
const ENCAPSULATED_ETHERNET: u32 = 0;
/// Linux's protocol numbers for IPX without LLC and for LLC.
const COOKED_802_3: u32 = 1;
const COOKED_802_2: u32 = 4;
/// PPP's numbers of IPv4 with compressed headers.
const PPP_COMPRESSED: [u32; 2] = [0x002d, 0x002f];
/// Address families: IPv4 everywhere, IPv6 on the BSDs (files) and on Linux (live).
const AF_INET: u32 = 2;
const AF_INET6: [u32; 3] = [24, 28, 30];
const AF_INET6_LINUX: u32 = 10;
/// The address family of a packet-filter log, and Solaris's number of IPv6.
const LOG_FAMILY: u32 = 1;
const AF_INET6_SOLARIS: u32 = 26;
/// Low byte of an SunATM header: LLC.
pub(super) const ATM_LLC: u32 = 2;

/// PPP's numbers of protocols, if they differ from the EtherType. Source: the PPP registry.
const PPP_NUMBERS: &[(u32, u32)] = &[
    (IPV4, 0x0021),
    (IPV6, 0x0057),
    (0x6003, 0x0027), // DECnet
    (APPLETALK, 0x0029),
    (0x0600, 0x0025), // Xerox NS
    (SAP_OSI, 0x0023),
    (SAP_SPANNING_TREE, 0x0031),
    (SAP_IPX, 0x002b),
];

impl Compat {
    /// Tests that the frame carries the protocol with this EtherType (above 1,500) or LLC service
    /// access point.
    pub(super) fn carries(&self, number: u32) -> Meaning {
        if self.labels > 0 {
            return self.carries_under_labels(number);
        }
        let field = |value| self.equal(&self.link_type, Width::Two, value);
        let version = |value| self.masked(&self.link_header, Width::One, 0xf0, value);
        Ok(match self.kind {
            Kind::Ethernet | Kind::NetAnalyzer => {
                let inside = if self.geneve.is_none() { self.is_encapsulated() } else { None };
                all(inside.into_iter().chain([self.ethernet_carries(number)]))
            }
            Kind::Cooked => self.cooked_carries(number),
            Kind::Hdlc if number == SAP_OSI => field(SAP_OSI << 8 | SAP_OSI),
            Kind::Hdlc | Kind::EtherType | Kind::Cooked2 => field(number),
            Kind::Version | Kind::Slip => match number {
                IPV4 => version(0x40),
                IPV6 => version(0x60),
                _ => Condition::Const(false),
            },
            Kind::Always(carried) => Condition::Const(number == u32::from(carried)),
            Kind::Wlan(_) => all([self.wlan_data(), self.llc_carries(number)]),
            Kind::Fddi | Kind::TokenRing | Kind::Atm | Kind::AtmClip | Kind::FibreChannel => {
                self.llc_carries(number)
            }
            Kind::SunAtm => all([self.atm_traffic(ATM_LLC), self.llc_carries(number)]),
            Kind::PppBsdos if number == IPV4 => {
                let [compressed, uncompressed] = PPP_COMPRESSED;
                any([field(ppp_number(number)), field(compressed), field(uncompressed)])
            }
            Kind::Ppp | Kind::PppOther | Kind::PppPppd | Kind::PppBsdos => {
                field(ppp_number(number))
            }
            Kind::Family | Kind::HostFamily => self.family(number),
            Kind::PacketLog => {
                let family = self.link_header.plus(LOG_FAMILY);
                match number {
                    IPV4 => self.equal(&family, Width::One, AF_INET),
                    IPV6 => self.equal(&family, Width::One, AF_INET6_LINUX),
                    _ => Condition::Const(false),
                }
            }
            Kind::Arcnet => self.arcnet_carries(number),
            Kind::FrameRelay => self.frame_relay_carries(number),
            Kind::Juniper => {
                // Only the magic number is tested.
                self.masked(&self.link_header, Width::Four, 0xffff_ff00, 0x4d47_4300)
            }
            Kind::Bacnet => self.masked(&self.link_header, Width::Four, 0xffff_0000, 0x55ff_0000),
            Kind::Ipnet => match number {
                IPV4 => self.equal(&self.link_type, Width::One, AF_INET),
                IPV6 => self.equal(&self.link_type, Width::One, AF_INET6_SOLARIS),
                _ => Condition::Const(false),
            },
            Kind::Ss7(_) | Kind::Opaque => {
                let title = self.title;
                return Err(Refusal::new(format!(
                    "a filter cannot test the protocol of a {title} frame, only its bytes, as in \
                     \"link[0]\", and its length"
                )));
            }
        })
    }

    /// Tests the protocol under labels. Labels do not name the protocol: it follows from the
    /// version nibble after the bottom of the stack.
    fn carries_under_labels(&self, number: u32) -> Meaning {
        let version = match number {
            IPV4 => 0x40,
            IPV6 => 0x60,
            _ => {
                return Err(Refusal::new("after \"mpls\" only IPv4 and IPv6 can be told apart"));
            }
        };
        let network = self.network();
        let bottom = network.plus(BOTTOM_OF_STACK.wrapping_neg());
        Ok(all([
            self.masked(&bottom, Width::One, 0x01, 0x01),
            self.masked(&network, Width::One, 0xf0, version),
        ]))
    }

    fn ethernet_carries(&self, number: u32) -> Condition {
        let field = |value| self.equal(&self.link_type, Width::Two, value);
        let has_length = self.has_length();
        match number {
            SAP_OSI | SAP_IP | SAP_NETBEUI => all([has_length, self.both_saps(number)]),
            SAP_IPX => {
                let snap = self.snap(ENCAPSULATED_ETHERNET, IPX);
                let destination = self.equal(&self.payload, Width::One, SAP_IPX);
                let bare = self.equal(&self.payload, Width::Two, 0xffff);
                any([field(IPX), all([has_length, any([snap, destination, bare])])])
            }
            APPLETALK => any([field(number), all([has_length, self.snap(APPLE, number)])]),
            APPLETALK_ARP => {
                let snap = self.snap(ENCAPSULATED_ETHERNET, number);
                any([field(number), all([has_length, snap])])
            }
            _ if number <= MAX_LENGTH => {
                all([has_length, self.equal(&self.link_type.plus(2), Width::One, number)])
            }
            _ => field(number),
        }
    }

    /// The EtherType is a length.
    pub(super) fn has_length(&self) -> Condition {
        self.test(&self.link_type, Width::Two, 0xffff, Compare::Range(0, MAX_LENGTH))
    }

    fn cooked_carries(&self, number: u32) -> Condition {
        let field = |value| self.equal(&self.link_type, Width::Two, value);
        let has_llc = field(COOKED_802_2);
        match number {
            SAP_OSI | SAP_IP | SAP_NETBEUI => all([has_llc, self.both_saps(number)]),
            SAP_IPX => {
                let destination = self.equal(&self.payload, Width::One, SAP_IPX);
                let in_llc = any([destination, self.snap(ENCAPSULATED_ETHERNET, IPX)]);
                any([field(IPX), field(COOKED_802_3), all([has_llc, in_llc])])
            }
            APPLETALK => any([field(number), all([has_llc, self.snap(APPLE, number)])]),
            APPLETALK_ARP => {
                let snap = self.snap(ENCAPSULATED_ETHERNET, number);
                any([field(number), all([has_llc, snap])])
            }
            _ if number <= MAX_LENGTH => {
                let destination = self.link_header.plus(self.payload.offset);
                all([has_llc, self.equal(&destination, Width::One, number)])
            }
            _ => field(number),
        }
    }

    /// Tests the protocol after an LLC header that is always there.
    fn llc_carries(&self, number: u32) -> Condition {
        match number {
            SAP_OSI | SAP_IP | SAP_NETBEUI => self.both_saps(number),
            APPLETALK => self.snap(APPLE, number),
            _ if number <= MAX_LENGTH => self.equal(&self.payload, Width::One, number),
            // The organisation is not tested.
            _ => self.equal(&self.payload.plus(6), Width::Two, number),
        }
    }

    fn both_saps(&self, number: u32) -> Condition {
        self.equal(&self.payload, Width::Two, number << 8 | number)
    }

    /// Tests LLC and SNAP headers with this organisation and protocol; the second word is compared
    /// first.
    fn snap(&self, organisation: u32, protocol: u32) -> Condition {
        let first = 0xaaaa_0300 | organisation >> 16;
        let second = organisation << 16 | protocol;
        all([
            self.equal(&self.payload.plus(4), Width::Four, second),
            self.equal(&self.payload, Width::Four, first),
        ])
    }

    fn family(&self, number: u32) -> Condition {
        let equals = |family: u32| {
            let value = match self.kind {
                Kind::HostFamily if !self.swapped => family.swap_bytes(),
                _ => family,
            };
            self.equal(&self.link_header, Width::Four, value)
        };
        match number {
            IPV4 => equals(AF_INET),
            IPV6 if self.live => equals(AF_INET6_LINUX),
            IPV6 => any(AF_INET6.map(equals)),
            _ => Condition::Const(false),
        }
    }

    fn arcnet_carries(&self, number: u32) -> Condition {
        let values: &[u32] = match number {
            IPV4 => &[212, 240],
            0x0806 => &[213, 241],
            0x8035 => &[214],
            IPV6 => &[196],
            APPLETALK => &[221],
            _ => &[],
        };
        any(values.iter().map(|&value| self.equal(&self.link_type, Width::One, value)))
    }

    fn frame_relay_carries(&self, number: u32) -> Condition {
        let values: &[u32] = match number {
            IPV4 => &[0x03cc],
            IPV6 => &[0x038e],
            SAP_OSI => &[0x0381, 0x0382, 0x0383],
            _ => &[],
        };
        let identifier = self.link_header.plus(2);
        any(values.iter().map(|&value| self.equal(&identifier, Width::Two, value)))
    }

    /// IPv4 follows.
    pub(super) fn ip(&self) -> Meaning {
        self.carries(IPV4)
    }

    /// IPv6 follows.
    pub(super) fn ip6(&self) -> Meaning {
        self.carries(IPV6)
    }

    /// True if the current link header is Ethernet's.
    pub(super) fn is_ethernet(&self) -> bool {
        matches!(self.kind, Kind::Ethernet | Kind::NetAnalyzer)
    }

    /// Further tests of an Ethernet header inside another protocol.
    pub(super) fn is_encapsulated(&self) -> Option<Condition> {
        if let Some(geneve) = &self.geneve {
            return Some(geneve.has_ethernet.clone());
        }
        // LAN emulation: not a control message.
        let first = self.previous.plus(4);
        self.in_lane.then(|| not(self.equal(&first, Width::Two, 0xff00)))
    }

    /// True if the link header names the next protocol. Otherwise a host name means IP addresses
    /// only.
    pub(crate) fn has_link_type(&self) -> bool {
        self.link_type.base.is_some() || self.link_type.offset != NONE
    }
}

fn ppp_number(number: u32) -> u32 {
    PPP_NUMBERS.iter().find(|(known, _)| *known == number).map_or(number, |&(_, ppp)| ppp)
}
