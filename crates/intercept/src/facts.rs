//! Facts that messages tell about users: that a user has addresses now, or has lost them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Shortest prefix of IPv6 that is followed: a shorter one would be that of a provider.
const SHORTEST: u8 = 40;

/// A user as messages name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// Name of a user in RADIUS, PAP or CHAP.
    User(Vec<u8>),
    /// Hardware address in DHCP.
    Mac([u8; 6]),
    /// Client identifier in DHCP.
    ClientId(Vec<u8>),
    /// Circuit that a relay agent has noted in DHCP.
    Circuit(Vec<u8>),
    /// Remote end that a relay agent has noted in DHCP.
    Remote(Vec<u8>),
}

/// Frames of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// An address.
    Host(IpAddr),
    /// A prefix of IPv6.
    Prefix(Ipv6Addr, u8),
    /// A session of PPPoE: hardware address of the user's end, and number.
    Session([u8; 6], u16),
}

impl Place {
    /// A filter text that accepts its frames. That of a session accepts also other packets of the same hardware
    /// address, because a filter that skips tags sees the packets in PPPoE without their session; the node `intercept`
    /// decides.
    pub(crate) fn text(&self) -> String {
        match self {
            Place::Host(IpAddr::V4(address)) => format!("ip host {address}"),
            Place::Host(IpAddr::V6(address)) => format!("ip6 host {address}"),
            Place::Prefix(address, length) => format!("ip6 net {address}/{length}"),
            Place::Session(mac, id) => {
                format!("ether host {} and (ip or ip6 or pppoes {id})", Mac(mac))
            }
        }
    }

    /// True if a message must not open the filter for it: addresses of many hosts or of none, and prefixes of
    /// providers.
    pub(crate) fn is_refused(&self) -> bool {
        match self {
            Place::Host(IpAddr::V4(address)) => {
                address.is_unspecified()
                    || address.is_loopback()
                    || address.is_multicast()
                    || address.octets()[0] >= 240
                    || address.octets()[0] == 0
            }
            Place::Host(IpAddr::V6(address)) => {
                address.is_unspecified() || address.is_loopback() || address.is_multicast()
            }
            Place::Prefix(address, length) => {
                !(SHORTEST..=128).contains(length) || address.is_multicast()
            }
            Place::Session(mac, _) => mac[0] & 1 == 1 || *mac == [0; 6],
        }
    }

    /// True if an address is in it.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Place::Host(host), address) => *host == address,
            (Place::Prefix(prefix, length), IpAddr::V6(address)) => {
                masked(address, *length) == masked(*prefix, *length)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(address) => write!(f, "{address}"),
            Place::Prefix(address, length) => write!(f, "{address}/{length}"),
            Place::Session(mac, id) => write!(f, "PPPoE session {id} of {}", Mac(mac)),
        }
    }
}

/// A hardware address as text.
struct Mac<'a>(&'a [u8; 6]);

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The first bits of an address; the others are zero.
pub(crate) fn masked(address: Ipv6Addr, length: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
    Ipv6Addr::from(u128::from(address) & mask)
}

/// A fact that a message tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A user has these places now, in this session, and no others in it. Without places, the session continues with
    /// those that it has.
    Assigned {
        who: Vec<Name>,
        session: Vec<u8>,
        places: Vec<Place>,
        /// Time for which this holds without another message.
        lifetime_ns: Option<u64>,
        /// The message, for the log.
        why: &'static str,
    },
    /// A session has ended.
    Ended { session: Vec<u8>, why: &'static str, forever: bool },
    /// All sessions with names that begin with these bytes have ended.
    AllEnded { prefix: Vec<u8>, why: &'static str },
}
