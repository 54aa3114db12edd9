//! Policies for overlapping segments, by the system of the receiver.
//!
//! A receiver is known by its address or network, and a port if that matters. The first entry that fits a receiver
//! decides; others have the default. Source: Suricata's table (`stream-tcp-list.c`), which names these systems.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Policy for overlapping segments: which bytes a family of systems keeps. For fragments of IP packets the same
/// systems keep other bytes: see [`Reassembler`](crate::reassembly::Reassembler).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Keep the bytes that arrived first.
    #[default]
    First,
    /// Keep the bytes that arrived last, unless already delivered.
    Last,
    /// Keep new bytes if they begin before the old ones.
    Bsd,
    /// Keep new bytes if they begin before the old ones, or begin at the same offset and end after
    /// them; believes a reset with the expected number only: Linux since 3.6, measured with 6.18.
    Linux,
    /// As BSD.
    Windows,
    /// Keep new bytes if they cover the old ones, or begin inside them and end after them.
    Solaris,
    /// Keep new bytes if they begin before the old ones, or begin at the same offset and end with
    /// or after them; believes any reset within a window.
    OldLinux,
    /// As First.
    Vista,
    /// As BSD.
    Hpux10,
    /// As Solaris; believes any reset that is not before the next byte.
    Hpux11,
    /// As BSD.
    Irix,
    /// As BSD.
    Macos,
}

impl Policy {
    /// Number of policies.
    pub const COUNT: usize = 12;
    /// Names of all policies, as used in parameters.
    pub const NAMES: [&'static str; Policy::COUNT] = [
        "first",
        "last",
        "bsd",
        "linux",
        "windows",
        "solaris",
        "old-linux",
        "vista",
        "hpux10",
        "hpux11",
        "irix",
        "macos",
    ];
    /// All policies in the order of [`Policy::NAMES`].
    pub const ALL: [Policy; Policy::COUNT] = [
        Policy::First,
        Policy::Last,
        Policy::Bsd,
        Policy::Linux,
        Policy::Windows,
        Policy::Solaris,
        Policy::OldLinux,
        Policy::Vista,
        Policy::Hpux10,
        Policy::Hpux11,
        Policy::Irix,
        Policy::Macos,
    ];

    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Policy> {
        let at = Policy::NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Policy::ALL[at])
    }

    /// True if new bytes from `start` to `end` replace old ones from `old_start` to `old_end`.
    pub(super) fn prefers_new(
        self,
        (start, end): (u64, u64),
        (old_start, old_end): (u64, u64),
    ) -> bool {
        match self {
            Policy::First | Policy::Vista => false,
            Policy::Last => true,
            Policy::Bsd | Policy::Windows | Policy::Hpux10 | Policy::Irix | Policy::Macos => {
                start < old_start
            }
            Policy::Linux => start < old_start || (start == old_start && end > old_end),
            Policy::OldLinux => start < old_start || (start == old_start && end >= old_end),
            Policy::Solaris | Policy::Hpux11 => {
                (start <= old_start && end >= old_end) || (start > old_start && end > old_end)
            }
        }
    }

    /// The same for fragments of an IP packet.
    pub(crate) fn prefers_new_fragment(
        self,
        (start, end): (u64, u64),
        (old_start, old_end): (u64, u64),
    ) -> bool {
        match self {
            Policy::First | Policy::Macos | Policy::Hpux11 => false,
            Policy::Last => true,
            Policy::Bsd | Policy::Hpux10 | Policy::Irix => start < old_start,
            Policy::Linux | Policy::OldLinux => start <= old_start,
            Policy::Solaris => start <= old_start && end >= old_end,
            Policy::Windows | Policy::Vista => start < old_start && end > old_end,
        }
    }

    /// True if the receiver believes a reset at this distance from the next byte.
    pub(super) fn believes_reset(self, far: i64) -> bool {
        match self {
            Policy::Hpux11 => far >= 0,
            Policy::OldLinux | Policy::Solaris => (0..1 << 20).contains(&far),
            _ => far == 0,
        }
    }
}

/// Receivers of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Receivers {
    network: IpAddr,
    prefix: u8,
    port: Option<u16>,
    policy: Policy,
}

impl Receivers {
    fn contain(&self, receiver: SocketAddr) -> bool {
        if self.port.is_some_and(|port| port != receiver.port()) {
            return false;
        }
        let (len, differs) = match (self.network, receiver.ip()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (32, u128::from(u32::from(own) ^ u32::from(other)))
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (128, u128::from(own) ^ u128::from(other)),
            _ => return false,
        };
        let rest = len - u32::from(self.prefix).min(len);
        differs.checked_shr(rest).unwrap_or(0) == 0
    }
}

/// Policies by receiver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    default: Policy,
    receivers: Vec<Receivers>,
}

impl From<Policy> for Policies {
    fn from(default: Policy) -> Policies {
        Policies { default, receivers: Vec::new() }
    }
}

/// A text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// The text.
    pub given: String,
    /// Problem.
    pub problem: &'static str,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyError { given, problem } = self;
        write!(
            f,
            "{given}: {problem}; expected NAME or NAME@ADDRESS[/LENGTH][:PORT], NAME one of "
        )?;
        f.write_str(&Policy::NAMES.join(", "))
    }
}

impl Error for PolicyError {}

impl Policies {
    /// Most entries.
    pub const MOST: usize = 256;

    /// Adds an entry: `windows` is the default, `linux@10.0.0.0/8` and `bsd@[2001:db8::1]:80` are for receivers.
    ///
    /// # Errors
    /// The text and the problem in it.
    pub fn add(&mut self, text: &str) -> Result<(), PolicyError> {
        let wrong = |problem| PolicyError { given: text.to_owned(), problem };
        let (name, receiver) = match text.split_once('@') {
            None => (text, None),
            Some((name, receiver)) => (name, Some(receiver)),
        };
        let policy = Policy::from_name(name.trim()).ok_or_else(|| wrong("unknown policy"))?;
        let Some(receiver) = receiver else {
            self.default = policy;
            return Ok(());
        };
        if self.receivers.len() >= Policies::MOST {
            return Err(wrong("more than 256 entries"));
        }
        let (network, port) = split_port(receiver.trim());
        let port = match port {
            None => None,
            Some(port) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                Some(port.ok_or_else(|| wrong("not a port from 1 to 65535"))?)
            }
        };
        let (address, prefix) = match network.split_once('/') {
            None => (network, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let network: IpAddr = address.parse().map_err(|_| wrong("not an address"))?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => {
                let prefix = prefix.parse().ok().filter(|prefix| *prefix <= longest);
                prefix.ok_or_else(|| wrong("not a prefix length"))?
            }
        };
        if !is_network(network, prefix) {
            return Err(wrong("the address has bits after its prefix"));
        }
        self.receivers.push(Receivers { network, prefix, port, policy });
        Ok(())
    }

    /// The policy of a receiver.
    pub fn of(&self, receiver: SocketAddr) -> Policy {
        let found = self.receivers.iter().find(|entry| entry.contain(receiver));
        found.map_or(self.default, |entry| entry.policy)
    }
}

/// True if an address has no bits after its prefix.
fn is_network(address: IpAddr, prefix: u8) -> bool {
    let (bits, len) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let host = len - u32::from(prefix);
    bits & 1_u128.checked_shl(host).map_or(u128::MAX, |one| one - 1) == 0
}

/// Splits `ADDRESS:PORT` and `[ADDRESS]:PORT`; an IPv6 address without brackets has no port.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((network, port)) = rest.split_once(']') else { return (text, None) };
        return match port.strip_prefix(':') {
            Some(port) => (network, Some(port)),
            None if port.is_empty() => (network, None),
            None => (text, None),
        };
    }
    match text.split_once(':') {
        Some((network, port)) if !port.contains(':') => (network, Some(port)),
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_have_their_policies() {
        let mut policies = Policies::default();
        for text in ["windows", "linux@10.0.0.5:80", "solaris@10.0.0.0/8", "bsd@[2001:db8::/32]:80"]
        {
            policies.add(text).unwrap();
        }
        let of = |text: &str| policies.of(text.parse().unwrap());
        assert_eq!(of("10.0.0.5:80"), Policy::Linux);
        assert_eq!(of("10.0.0.5:81"), Policy::Solaris);
        assert_eq!(of("11.0.0.5:80"), Policy::Windows);
        assert_eq!(of("[2001:db8::9]:80"), Policy::Bsd);
        assert_eq!(of("[2001:db8::9]:81"), Policy::Windows);
        policies.add("last@0.0.0.0/0").unwrap();
        assert_eq!(policies.of("12.0.0.1:1".parse().unwrap()), Policy::Last);
    }

    #[test]
    fn wrong_texts_are_refused() {
        for text in [
            "",
            "dos",
            "linux@",
            "linux@10.0.0.300",
            "linux@10.0.0.0/33",
            "linux@10.0.0.1:http",
            "linux@10.0.0.1:0",
            "linux@10.0.0.1:65536",
            "linux@10.0.0.1/8",
            "linux@2001:db8::1/32",
            "linux@[::1",
            "linux@[::1]x",
            "linux@::1/129",
        ] {
            let error = Policies::default().add(text).unwrap_err();
            assert!(error.to_string().contains("expected NAME"), "{text}");
        }
        let mut many = Policies::default();
        let added = (0..300).filter(|_| many.add("linux@10.0.0.1").is_ok()).count();
        assert_eq!(added, Policies::MOST);
    }
}
