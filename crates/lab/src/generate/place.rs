//! The check of the place: generated frames leave only interfaces of namespaces that were made for them.
//!
//! The host's first network namespace has its real interfaces. Some settings exist there and nowhere else
//! (`netdev_max_backlog` among others), however the process identifiers are numbered; so the check holds in containers,
//! too. There the namespace of process 1 is refused as well, because it leads to the network of the host.

use crate::net::{LinkState, NetlinkError, link_state};
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A setting that every namespace has.
const EVERYWHERE: &str = "/proc/sys/net/core/somaxconn";
/// A setting of the host's first namespace only.
const IN_THE_FIRST: &str = "/proc/sys/net/core/netdev_max_backlog";
/// Link types: Ethernet, loopback. Source: linux/if_arp.h.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
const HEADER_LEN: u32 = 14;

/// Reason why frames may not be sent on an interface.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The namespace is the host's first.
    #[error(
        "{interface} is an interface of the host: generated frames are sent in network namespaces only; \
         use --netns NAME (`ip netns add NAME` makes one), or run without -i: fyke then makes a pair of namespaces"
    )]
    Host {
        /// The interface.
        interface: String,
    },
    /// The namespace is that of process 1.
    #[error(
        "{interface} is in the network namespace of process 1, which leads to the network of the host: generated \
         frames are sent in other network namespaces only (--netns NAME), or run without -i: fyke then makes a pair \
         of them"
    )]
    First {
        /// The interface.
        interface: String,
    },
    /// The namespace cannot be told from the host's first.
    #[error(
        "cannot tell whether this is a network namespace of its own: {EVERYWHERE} is missing (is /proc mounted?)"
    )]
    Unknown,
    /// There is no such interface.
    #[error("there is no interface {interface} in this network namespace: {source}")]
    NoInterface {
        /// The name.
        interface: String,
        /// The error of the kernel.
        source: NetlinkError,
    },
    /// The interface is down.
    #[error("{interface} is down: bring it up (ip link set {interface} up)")]
    Down {
        /// The interface.
        interface: String,
    },
    /// The interface has no Ethernet frames.
    #[error("{interface} has no Ethernet frames (link type {kind})")]
    Type {
        /// The interface.
        interface: String,
        /// Its link type, `ARPHRD_…`.
        kind: u16,
    },
    /// The frames are too long for the interface.
    #[error(
        "frames of {size} bytes are too long for {interface}: its MTU {mtu} allows {allowed} \
         (ip link set {interface} mtu {needed})"
    )]
    TooLong {
        /// Size of the longest frame.
        size: u16,
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Size of the longest frame that it takes.
        allowed: u32,
        /// The MTU that would suffice.
        needed: u32,
    },
}

/// Checks that frames of up to this size may be sent on an interface of the calling thread's namespace.
///
/// # Errors
/// [`PlaceError`].
pub(super) fn check(interface: &str, longest: u16) -> Result<LinkState, PlaceError> {
    let name = || interface.to_owned();
    let state = link_state(interface)
        .map_err(|source| PlaceError::NoInterface { interface: name(), source })?;
    if state.kind != LOOPBACK {
        check_namespace(interface)?;
        if state.kind != ETHERNET {
            return Err(PlaceError::Type { interface: name(), kind: state.kind });
        }
    }
    if !state.is_up {
        return Err(PlaceError::Down { interface: name() });
    }
    let allowed = longest_of(&state);
    if u32::from(longest) > allowed {
        let needed = u32::from(longest) - HEADER_LEN;
        let (size, mtu) = (longest, state.mtu);
        return Err(PlaceError::TooLong { size, interface: name(), mtu, allowed, needed });
    }
    Ok(state)
}

/// Size of the longest frame that an interface takes.
pub(super) fn longest_of(state: &LinkState) -> u32 {
    state.mtu.saturating_add(HEADER_LEN)
}

fn check_namespace(interface: &str) -> Result<(), PlaceError> {
    if !Path::new(EVERYWHERE).exists() {
        return Err(PlaceError::Unknown);
    }
    if Path::new(IN_THE_FIRST).exists() {
        return Err(PlaceError::Host { interface: interface.to_owned() });
    }
    // Only root may look at process 1.
    let (first, own) = (metadata("/proc/1/ns/net"), metadata("/proc/thread-self/ns/net"));
    match (first, own) {
        (Ok(first), Ok(own)) if (first.dev(), first.ino()) == (own.dev(), own.ino()) => {
            Err(PlaceError::First { interface: interface.to_owned() })
        }
        _ => Ok(()),
    }
}
