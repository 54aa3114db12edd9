//! 802.2 LLC behind an 802.3 or Linux cooked header: the conditions that announce a protocol there.
//!
//! Numbers up to [`MAX_LENGTH`] are LLC service access points. Some protocols travel in more than one way; the
//! alternatives stand in the order in which libpcap tests them. Source: IEEE 802.2, RFC 1042.

use crate::condition::{Condition, Load, Width};

/// Largest 802.3 length; what is above is an EtherType.
pub(super) const MAX_LENGTH: u16 = 1500;

const SAP_IP: u16 = 0x06;
const SAP_IPX: u16 = 0xe0;
const SAP_NETBEUI: u16 = 0xf0;
const SAP_OSI: u16 = 0xfe;
const ETHERTYPE_APPLETALK: u16 = 0x809b;
const ETHERTYPE_APPLETALK_ARP: u16 = 0x80f3;
const ETHERTYPE_IPX: u16 = 0x8137;
/// Organisations of SNAP headers.
const APPLE: u32 = 0x08_0007;
const ENCAPSULATED_ETHERNET: u32 = 0;

/// How a link header says that LLC follows, and where.
pub(super) struct Llc {
    /// Frame offset of the two-byte protocol or length field.
    pub(super) kind: u32,
    /// Frame offset of the LLC header.
    pub(super) start: u32,
    /// The condition "LLC follows".
    pub(super) follows: Condition,
    /// The condition "an IPX header follows without LLC".
    pub(super) bare_ipx: BareIpx,
}

/// Where IPX without LLC is recognised.
pub(super) enum BareIpx {
    /// Among what LLC follows, by an impossible LLC header of all ones.
    InPayload,
    /// By the protocol field having this value.
    Kind(u16),
}

impl Llc {
    /// The frame carries the protocol with this EtherType or service access point.
    pub(super) fn carries(self, number: u16) -> Condition {
        match number {
            SAP_OSI | SAP_IP | SAP_NETBEUI => {
                let both =
                    equal(self.start, Width::Two, u32::from(number) << 8 | u32::from(number));
                Condition::All(vec![self.follows, both])
            }
            SAP_IPX => self.ipx(),
            ETHERTYPE_APPLETALK => self.ether_or_snap(number, APPLE),
            ETHERTYPE_APPLETALK_ARP => self.ether_or_snap(number, ENCAPSULATED_ETHERNET),
            _ if number <= MAX_LENGTH => {
                let destination = equal(self.start, Width::One, number.into());
                Condition::All(vec![self.follows, destination])
            }
            _ => self.kind_is(number),
        }
    }

    fn kind_is(&self, number: u16) -> Condition {
        equal(self.kind, Width::Two, number.into())
    }

    fn ether_or_snap(self, number: u16, organisation: u32) -> Condition {
        let snap = self.snap(organisation, number);
        Condition::Any(vec![self.kind_is(number), Condition::All(vec![self.follows, snap])])
    }

    fn ipx(self) -> Condition {
        let destination = equal(self.start, Width::One, SAP_IPX.into());
        let snap = self.snap(ENCAPSULATED_ETHERNET, ETHERTYPE_IPX);
        let ethernet = self.kind_is(ETHERTYPE_IPX);
        match self.bare_ipx {
            BareIpx::InPayload => {
                let bare = equal(self.start, Width::Two, 0xffff);
                let in_llc = Condition::Any(vec![snap, destination, bare]);
                Condition::Any(vec![ethernet, Condition::All(vec![self.follows, in_llc])])
            }
            BareIpx::Kind(kind) => {
                let bare = self.kind_is(kind);
                let in_llc = Condition::Any(vec![destination, snap]);
                Condition::Any(vec![ethernet, bare, Condition::All(vec![self.follows, in_llc])])
            }
        }
    }

    /// LLC and SNAP headers with this organisation and protocol; the second word is compared first.
    fn snap(&self, organisation: u32, protocol: u16) -> Condition {
        let second = organisation << 16 | u32::from(protocol);
        Condition::All(vec![
            equal(self.start + 4, Width::Four, second),
            equal(self.start, Width::Four, 0xaaaa_0300 | organisation >> 16),
        ])
    }
}

fn equal(offset: u32, width: Width, value: u32) -> Condition {
    Condition::Load(Load::equal(offset, width, width.full_mask(), value))
}
