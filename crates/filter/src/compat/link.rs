//! Protocols of the link layer: what says which header follows, under tags and labels.

use super::{Compat, Layer, Meaning, Refusal, all, equal, test};
use crate::Options;
use fyke_frame::condition::{Compare, Width};
use fyke_frame::link::Link;
use fyke_frame::{Condition, LinkType, ethertype};

/// The bottom-of-stack bit of an MPLS label, counted back from the end of the label.
const BOTTOM_OF_STACK: u32 = 2;

/// PPP protocol numbers of the protocols that Ethernet numbers differently. Source: the PPP registry.
const PPP_NUMBERS: &[(u32, u32)] = &[
    (ethertype::IPV4 as u32, 0x0021),
    (ethertype::IPV6 as u32, 0x0057),
    (0x6003, 0x0027), // DECnet
    (0x809b, 0x0029), // AppleTalk
    (0x0600, 0x0025), // Xerox NS
    (0xfe, 0x0023),   // OSI
    (0x42, 0x0031),   // spanning tree
    (0xe0, 0x002b),   // IPX
];

/// The description of the outermost link header.
pub(super) fn outermost(options: &Options) -> Option<&'static Link> {
    // The address family of a NULL header is in the byte order of the machine that wrote the file; written the other
    // way round than on a little-endian machine, it is LOOP's network order.
    if options.link == LinkType::NULL && options.swapped {
        return LinkType::LOOP.description();
    }
    options.link.description()
}

impl Compat {
    /// The frame carries the protocol with this EtherType (above 1,500) or LLC service access point.
    pub(super) fn carries(&self, number: u32) -> Meaning {
        if self.labels > 0 {
            return self.carries_under_labels(number);
        }
        Ok(match self.layer {
            Layer::Ppp => {
                let known = PPP_NUMBERS.iter().find(|(ethertype, _)| *ethertype == number);
                equal(self.link_header, Width::Two, known.map_or(number, |&(_, ppp)| ppp))
            }
            Layer::Outer(link) => match (u16::try_from(number), link.ethertype_offset) {
                (Ok(number), _) => (link.carries)(number, self.tags),
                // No header can say this; but the field is read before that is known.
                (Err(_), Some(offset)) => equal(offset + self.tags, Width::Two, number),
                (Err(_), None) => Condition::Const(false),
            },
        })
    }

    /// Labels do not say what follows: the bottom of the stack is followed by what its version nibble says.
    fn carries_under_labels(&self, number: u32) -> Meaning {
        let version = match u16::try_from(number) {
            Ok(ethertype::IPV4) => 0x40,
            Ok(ethertype::IPV6) => 0x60,
            _ => {
                return Err(Refusal::new("after \"mpls\" only IPv4 and IPv6 can be told apart"));
            }
        };
        let bottom = self.network().wrapping_sub(BOTTOM_OF_STACK);
        Ok(all([
            test(bottom, Width::One, 0x01, Compare::Equal(0x01)),
            self.network_test(0, Width::One, 0xf0, Compare::Equal(version)),
        ]))
    }

    /// IPv4 follows.
    pub(super) fn ip(&self) -> Meaning {
        self.carries(u32::from(ethertype::IPV4))
    }

    /// IPv6 follows.
    pub(super) fn ip6(&self) -> Meaning {
        self.carries(u32::from(ethertype::IPV6))
    }

    /// The title of the link type, for refusals.
    pub(super) fn title(&self) -> &'static str {
        match self.layer {
            Layer::Outer(link) => link.title,
            Layer::Ppp => "PPP",
        }
    }

    /// Whether the current link header is Ethernet's.
    pub(super) fn is_ethernet(&self) -> bool {
        self.is_outer(LinkType::EN10MB)
    }

    /// Whether the current link header is the frame's own and of this type.
    pub(super) fn is_outer(&self, wanted: LinkType) -> bool {
        matches!(self.layer, Layer::Outer(link) if link.numbers.contains(&wanted))
    }
}
