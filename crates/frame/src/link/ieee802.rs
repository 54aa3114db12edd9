//! Links with a medium-access header of fixed length, followed by 802.2 LLC: token ring, FDDI, ATM
//! (RFC 1483, classical IP), IP over Fibre Channel. Source: IEEE 802.5, ISO 9314, RFC 1483, RFC
//! 2625.

use super::{LLC, Link, LinkType, NextLayer};

macro_rules! with_llc {
    ($name:ident, $numbers:expr, $text:literal, $title:literal, $len:literal) => {
        pub(super) static $name: Link = Link {
            numbers: $numbers,
            name: $text,
            title: $title,
            header_len: None,
            ethertype_offset: None,
            next: |data| data.get(..$len).map(|_| NextLayer { offset: $len, ethertype: LLC }),
        };
    };
}

with_llc!(TOKEN_RING, &[LinkType(6)], "IEEE802", "Token ring", 14);
with_llc!(FDDI, &[LinkType(10)], "FDDI", "FDDI", 13);
// 11 and 19 are numbers of some systems' programming interfaces; the others are used in files.
with_llc!(
    ATM_RFC1483,
    &[LinkType(100), LinkType(11)],
    "ATM_RFC1483",
    "RFC 1483 LLC-encapsulated ATM",
    0
);
with_llc!(ATM_CLIP, &[LinkType(106), LinkType(19)], "ATM_CLIP", "Linux Classical IP over ATM", 0);
with_llc!(IP_OVER_FC, &[LinkType(122)], "IP_OVER_FC", "RFC 2625 IP-over-Fibre Channel", 16);
