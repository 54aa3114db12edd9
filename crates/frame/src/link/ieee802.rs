//! Links with a medium-access header of fixed length, followed by 802.2 LLC: token ring, FDDI, ATM
//! (RFC 1483, classical IP), IP over Fibre Channel. Source: IEEE 802.5, ISO 9314, RFC 1483, RFC
//! 2625.

use super::{Header, LLC, NextLayer};

/// LLC after a header of this length.
pub(super) const fn llc_after<const LEN: usize>() -> Header {
    Header::of(|data| data.get(..LEN).map(|_| NextLayer { offset: LEN, ethertype: LLC }))
}
