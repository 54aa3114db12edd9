//! Options for reading a filter text.

use fyke_frame::LinkType;
use std::net::IpAddr;

/// A function that returns all addresses of a host, none if the name is unknown.
pub type Resolver = fn(&str) -> Vec<IpAddr>;

/// Reading of a filter text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// As libpcap reads it, traps included.
    #[default]
    Compat,
    /// By meaning: see [`scoped`](crate::scoped).
    Scoped,
}

/// Options for reading a filter text.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The link type of the frames.
    pub link: LinkType,
    /// Most bytes of a frame that are captured; 0 is refused, since it rejects everything.
    pub snaplen: u32,
    /// The netmask of the captured network, which `ip broadcast` needs; `None` = unknown.
    pub netmask: Option<u32>,
    /// The file was written on a machine that is not little-endian; matters for link type NULL.
    pub swapped: bool,
    /// Reads for a live capture on Linux instead of a file: frames have a direction and an
    /// interface, and the first VLAN tag may be in their metadata instead of their bytes.
    pub live: bool,
    /// The capture gets incoming frames only, so `outbound` is refused: it would never hold.
    pub incoming_only: bool,
    /// The resolver for host names; `None` = host names are refused.
    pub resolve: Option<Resolver>,
    /// The reading of the text.
    pub reading: Reading,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            link: LinkType::EN10MB,
            snaplen: 262_144,
            netmask: None,
            swapped: false,
            live: false,
            incoming_only: false,
            resolve: None,
            reading: Reading::Compat,
        }
    }
}

/// True if the meaning of a text may depend on [`Options::netmask`], as that of `ip broadcast` does; never false for
/// one that depends on it.
pub fn needs_netmask(text: &str) -> bool {
    let depends = |(at, _): (usize, &str)| {
        let before = text[..at].trim_end();
        let parts = |letter: char| letter.is_whitespace() || "!(&|".contains(letter);
        let word = before.rsplit(parts).next().unwrap_or_default();
        // `broadcast` alone and after a link layer's name is an address of that layer.
        !["", "ether", "link", "fddi", "tr", "wlan", "and", "or", "not"].contains(&word)
    };
    text.match_indices("broadcast").any(depends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile;

    #[test]
    fn only_ip_broadcast_needs_the_netmask() {
        for (text, needs) in [
            ("", false),
            ("udp port 5001", false),
            ("broadcast", false),
            ("ip and broadcast or not broadcast", false),
            ("not (ether broadcast) and ip multicast", false),
            ("ip broadcast", true),
            ("udp or not ip\tbroadcast", true),
            ("(ip broadcast)", true),
            ("broadcast and ip broadcast", true),
        ] {
            assert_eq!(needs_netmask(text), needs, "{text}");
            let is_refused = compile(text, &Options::default()).is_err();
            assert_eq!(is_refused, needs, "without a netmask, {text}");
        }
    }
}
