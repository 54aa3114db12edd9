//! Names of types of 802.11 frames, and of reasons and actions in packet-filter logs. Source: IEEE 802.11; the headers
//! of OpenBSD's packet filter.

/// A name and its number.
type Names = &'static [(&'static str, u32)];

/// Types, as bits of the first byte.
pub(crate) const WLAN_TYPES: Names =
    &[("data", 0x08), ("mgt", 0), ("management", 0), ("ctl", 0x04), ("control", 0x04)];

/// Subtypes of each type, as bits of the first byte; the first name of a value is the one that is
/// printed.
#[rustfmt::skip]
pub(crate) const WLAN_SUBTYPES: &[(u8, Names)] = &[
    (0x00, &[
        ("assoc-req", 0x00), ("assocreq", 0x00), ("assoc-resp", 0x10), ("assocresp", 0x10),
        ("reassoc-req", 0x20), ("reassocreq", 0x20), ("reassoc-resp", 0x30), ("reassocresp", 0x30),
        ("probe-req", 0x40), ("probereq", 0x40), ("probe-resp", 0x50), ("proberesp", 0x50),
        ("beacon", 0x80), ("atim", 0x90), ("disassoc", 0xa0), ("disassociation", 0xa0),
        ("auth", 0xb0), ("authentication", 0xb0), ("deauth", 0xc0), ("deauthentication", 0xc0),
    ]),
    (0x04, &[
        ("ps-poll", 0xa0), ("rts", 0xb0), ("cts", 0xc0), ("ack", 0xd0), ("cf-end", 0xe0),
        ("cf-end-ack", 0xf0),
    ]),
    (0x08, &[
        ("data", 0x00), ("data-cf-ack", 0x10), ("data-cf-poll", 0x20), ("data-cf-ack-poll", 0x30),
        ("null", 0x40), ("cf-ack", 0x50), ("cf-poll", 0x60), ("cf-ack-poll", 0x70),
        ("qos-data", 0x80), ("qos-data-cf-ack", 0x90), ("qos-data-cf-poll", 0xa0),
        ("qos-data-cf-ack-poll", 0xb0), ("qos", 0xc0), ("qos-cf-poll", 0xe0),
        ("qos-cf-ack-poll", 0xf0),
    ]),
];

/// Directions of a frame.
pub(crate) const WLAN_DIRECTIONS: Names = &[("nods", 0), ("tods", 1), ("fromds", 2), ("dstods", 3)];

/// Reasons why a packet was logged.
#[rustfmt::skip]
pub(crate) const LOG_REASONS: Names = &[
    ("match", 0), ("bad-offset", 1), ("fragment", 2), ("short", 3), ("normalize", 4),
    ("memory", 5), ("bad-timestamp", 6), ("congestion", 7), ("ip-option", 8), ("proto-cksum", 9),
    ("state-mismatch", 10), ("state-insert", 11), ("state-limit", 12), ("src-limit", 13),
    ("synproxy", 14),
];

/// Actions on the packet.
#[rustfmt::skip]
pub(crate) const LOG_ACTIONS: Names = &[
    ("pass", 0), ("accept", 0), ("block", 1), ("drop", 1), ("scrub", 2), ("noscrub", 3),
    ("nat", 4), ("nonat", 5), ("binat", 6), ("nobinat", 7), ("rdr", 8), ("nordr", 9),
    ("synproxy-drop", 10),
];

/// The number of a name, ignoring case.
pub(crate) fn find(names: &[(&str, u32)], name: &str) -> Option<u32> {
    names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|&(_, number)| number)
}

/// The name of a number.
pub(crate) fn name_of(names: Names, number: u32) -> Option<&'static str> {
    names.iter().find(|(_, known)| *known == number).map(|&(name, _)| name)
}
