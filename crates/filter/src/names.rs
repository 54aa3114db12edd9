//! Names of ports, protocols and networks: built-in tables, so that a text means the same on every
//! machine.
//!
//! A look-up is a binary search. Host names are not included: [`crate::Options::resolve`] resolves
//! them.

mod protocols;
mod services;
mod special;

use crate::ast::{LlcFrame, Transport};
pub(crate) use special::{
    LOG_ACTIONS, LOG_REASONS, WLAN_DIRECTIONS, WLAN_SUBTYPES, WLAN_TYPES, find, name_of,
};

/// A named port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) port: u16,
    /// The only transport for which the name is registered; `None` = TCP and UDP.
    pub(crate) transport: Option<Transport>,
}

/// The port with this name. A number is its own name, for TCP and UDP.
pub(crate) fn service(name: &str) -> Option<Service> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().ok().map(|port| Service { port, transport: None });
    }
    let index = services::SERVICES.binary_search_by(|entry| entry.0.cmp(name)).ok()?;
    let (_, port, transport) = services::SERVICES[index];
    Some(Service { port, transport })
}

/// The number of an IP protocol.
pub(crate) fn ip_protocol(name: &str) -> Option<u16> {
    let index = protocols::IP.binary_search_by(|entry| entry.0.cmp(name)).ok()?;
    Some(protocols::IP[index].1)
}

/// The EtherType or LLC service access point of a protocol.
pub(crate) fn link_protocol(name: &str) -> Option<u16> {
    protocols::LINK.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

/// Kinds of LLC frames by name. Source: IEEE 802.2, section 5.
pub(crate) const LLC_FRAMES: &[(&str, LlcFrame)] = &[
    ("i", LlcFrame::Information),
    ("s", LlcFrame::Supervisory(None)),
    ("u", LlcFrame::Unnumbered(None)),
    ("rr", LlcFrame::Supervisory(Some(0x01))),
    ("rnr", LlcFrame::Supervisory(Some(0x05))),
    ("rej", LlcFrame::Supervisory(Some(0x09))),
    ("ui", LlcFrame::Unnumbered(Some(0x03))),
    ("ua", LlcFrame::Unnumbered(Some(0x63))),
    ("disc", LlcFrame::Unnumbered(Some(0x43))),
    ("dm", LlcFrame::Unnumbered(Some(0x0f))),
    ("sabme", LlcFrame::Unnumbered(Some(0x6f))),
    ("test", LlcFrame::Unnumbered(Some(0xe3))),
    ("xid", LlcFrame::Unnumbered(Some(0xaf))),
    ("frmr", LlcFrame::Unnumbered(Some(0x87))),
];

/// The number of a network.
pub(crate) fn network(name: &str) -> Option<u32> {
    match name {
        "loopback" => Some(0x7f00_0000),
        "link-local" => Some(0xa9fe_0000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_names_found() {
        assert!(services::SERVICES.is_sorted_by(|left, right| left.0 < right.0));
        assert!(protocols::IP.is_sorted_by(|left, right| left.0 < right.0));
        let http = Service { port: 80, transport: Some(Transport::Tcp) };
        assert_eq!(service("http"), Some(http));
        assert_eq!(service("www"), Some(http));
        assert_eq!(service("domain"), Some(Service { port: 53, transport: None }));
        assert_eq!(service("no-such-service"), None);
        assert_eq!(ip_protocol("sctp"), Some(132));
        assert_eq!(link_protocol("ip6"), Some(0x86dd));
    }
}
