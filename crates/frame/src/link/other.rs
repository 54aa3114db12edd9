//! Other link types that one table row describes: SLIP, ARCnet, packet-filter logs, IP over
//! FireWire, and the like. Source: the link-type registry.

use super::{Link, LinkType, NextLayer, be16};
use crate::ethertype;

macro_rules! other {
    ($name:ident, $numbers:expr, $text:literal, $title:literal, $ethertype:expr, $next:expr) => {
        pub(super) static $name: Link = Link {
            numbers: $numbers,
            name: $text,
            title: $title,
            header_len: None,
            ethertype_offset: $ethertype,
            next: $next,
        };
    };
}

other!(SLIP, &[LinkType(8)], "SLIP", "SLIP", None, |data| by_version(data, 16));
other!(SLIP_BSDOS, &[LinkType(102), LinkType(15)], "SLIP_BSDOS", "BSD/OS SLIP", None, |data| {
    by_version(data, 24)
});
other!(ENC, &[LinkType(109)], "ENC", "OpenBSD encapsulated IP", None, |data| {
    by_version(data, 12)
});
other!(
    SYMANTEC_FIREWALL,
    &[LinkType(99)],
    "SYMANTEC_FIREWALL",
    "Symantec Firewall",
    Some(6),
    |data| Some(NextLayer { offset: 44, ethertype: be16(data, 6)? })
);
other!(
    IEEE1394,
    &[LinkType(138)],
    "APPLE_IP_OVER_IEEE1394",
    "Apple IP-over-IEEE 1394",
    Some(16),
    |data| Some(NextLayer { offset: 18, ethertype: be16(data, 16)? })
);
other!(PFLOG, &[LinkType(117)], "PFLOG", "OpenBSD pflog file", None, |data| {
    by_version(data, usize::from(*data.first()?).next_multiple_of(4))
});
other!(IPNET, &[LinkType(226)], "IPNET", "Solaris ipnet", None, |data| by_version(data, 24));
other!(ARCNET, &[LinkType(7)], "ARCNET", "BSD ARCNET", None, |data| arcnet(*data.get(2)?, 6));
other!(ARCNET_LINUX, &[LinkType(129)], "ARCNET_LINUX", "Linux ARCNET", None, |data| {
    arcnet(*data.get(4)?, 8)
});
other!(SUNATM, &[LinkType(123)], "SUNATM", "Sun raw ATM", None, |data| {
    // The low bits are the kind of traffic; 2 is LLC.
    (data.first()? & 0x0f == 2).then_some(NextLayer { offset: 4, ethertype: super::LLC })
});
other!(
    NETANALYZER,
    &[LinkType(240)],
    "NETANALYZER",
    "Ethernet with Hilscher netANALYZER pseudo-header",
    None,
    |data| Some(NextLayer { offset: 18, ethertype: be16(data, 16)? })
);
other!(
    NETANALYZER_TRANSPARENT,
    &[LinkType(241)],
    "NETANALYZER_TRANSPARENT",
    "Ethernet with Hilscher netANALYZER pseudo-header and with preamble and SFD",
    None,
    |data| Some(NextLayer { offset: 26, ethertype: be16(data, 24)? })
);

fn by_version(data: &[u8], offset: usize) -> Option<NextLayer> {
    let ethertype = match data.get(offset)? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}

fn arcnet(protocol: u8, offset: usize) -> Option<NextLayer> {
    let ethertype = match protocol {
        212 | 240 => ethertype::IPV4,
        213 | 241 => ethertype::ARP,
        214 => ethertype::REVARP,
        196 => ethertype::IPV6,
        _ => return None,
    };
    Some(NextLayer { offset, ethertype })
}
