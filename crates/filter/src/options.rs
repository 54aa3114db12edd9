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
