//! Protocol numbers of the link layer (EtherTypes) that more than one crate uses. Source: IEEE,
//! IANA.

/// Smallest number that is an EtherType and not an 802.3 length.
pub const MIN_ETHERTYPE: u16 = 0x0600;
/// IPv4.
pub const IPV4: u16 = 0x0800;
/// ARP.
pub const ARP: u16 = 0x0806;
/// Reverse ARP.
pub const REVARP: u16 = 0x8035;
/// 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// IPv6.
pub const IPV6: u16 = 0x86dd;
/// MPLS unicast.
pub const MPLS: u16 = 0x8847;
/// MPLS with upstream-assigned label (once: multicast).
pub const MPLS_MULTICAST: u16 = 0x8848;
/// PPPoE discovery stage.
pub const PPPOE_DISCOVERY: u16 = 0x8863;
/// PPPoE session stage.
pub const PPPOE_SESSION: u16 = 0x8864;
/// 802.1ad service tag (QinQ).
pub const QINQ: u16 = 0x88a8;
/// The tag number that switches used for QinQ before 802.1ad.
pub const QINQ_OLD: u16 = 0x9100;
/// Transparent Ethernet bridging: an Ethernet frame follows (in GRE, Geneve).
pub const TRANSPARENT_ETHERNET: u16 = 0x6558;
/// PPP (in GRE, as PPTP uses it).
pub const PPP: u16 = 0x880b;
