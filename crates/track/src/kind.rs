//! A row of the [registry](crate::registry): what the command and the graph class need to know of a tracker.

use crate::{Cause, Limits, Tracker};

/// A protocol that can be tracked.
#[derive(Debug, Clone, Copy)]
pub struct TrackerKind {
    /// Name for users and for graphs, in lower case.
    pub name: &'static str,
    /// Help, one line.
    pub summary: &'static str,
    /// Standard control port.
    pub port: u16,
    /// Messages that announce a connection.
    pub causes: &'static [Cause],
    /// Returns the filter text that accepts the control connections at these ports and nothing
    /// else.
    pub start_filter: fn(&[u16]) -> String,
    /// Filter text of all frames that the kernel must keep for look-back ([`Tracker::held`]).
    pub held: Option<&'static str>,
    /// Makes a tracker of the control connections at these ports.
    pub make: fn(&[u16], Limits) -> Box<dyn Tracker>,
}

/// Frames that may be media: a description may name any host and any port, and media may arrive before it has been
/// read. Without services that never are: DNS, DHCP, NTP, NetBIOS, SNMP, QUIC on 443, IKE, syslog, RADIUS, SSDP, mDNS.
pub(crate) const HELD_MEDIA: &str = "udp and not (port 53 or port 67 or port 68 or port 123 or port 137 or port 138 or \
                               port 161 or port 162 or port 443 or port 500 or port 514 or port 1812 or port 1813 or \
                               port 1900 or port 5353 or port 5355)";
